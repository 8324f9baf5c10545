//! A good object of every kind that clients make, from which random ones are made.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

/// A kind, and what can be done with it here.
pub(crate) struct Base {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) object: Value,
    /// A good status, where it is written by itself.
    pub(crate) status: Value,
    /// The subresource through which it is written.
    pub(crate) through: &'static str,
    /// Annotations that say something to the server, with good and bad values.
    pub(crate) annotations: &'static [(&'static str, &'static [&'static str])],
}

impl Base {
    fn through(self, through: &'static str) -> Base {
        Base { through, ..self }
    }

    fn annotated(self, annotations: &'static [(&'static str, &'static [&'static str])]) -> Base {
        Base { annotations, ..self }
    }
}

fn base(api_version: &'static str, kind: &'static str, object: Value, status: Value) -> Base {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Base { group, version, kind, object, status, through: "status", annotations: &[] }
}

/// A request for a certificate, and a certificate.
fn certificates() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["a.b".to_owned()]).expect("a name");
    let request = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    (STANDARD.encode(request), STANDARD.encode(certificate))
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

fn selected(mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"a": "b"}});
    spec["template"] = template();
    json!({"spec": spec})
}

fn webhook() -> Value {
    json!({"name": "a.b.io", "clientConfig": {"service": {"namespace": "n", "name": "s"}}, "sideEffects": "None",
        "matchConditions": [{"name": "c", "expression": "true"}],
        "admissionReviewVersions": ["v1"],
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]})
}

fn claimed() -> Value {
    json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "selectors": [{"cel": {"expression": "true"}}]}},
            {"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "c"}]}],
        "constraints": [{"requests": ["r"], "matchAttribute": "d.io/a"}],
        "config": [{"requests": ["s/t"], "opaque": {"driver": "d.io", "parameters": {"a": 1}}}]})
}

/// What a load balancer says of itself.
fn balanced() -> Value {
    json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}, {"hostname": "a.b"}]}})
}

const SERVICE: &[(&str, &[&str])] = &[
    ("service.kubernetes.io/topology-aware-hints", &["auto", "disabled"]),
    ("service.kubernetes.io/topology-mode", &["Auto", "auto"]),
    (
        "service.beta.kubernetes.io/load-balancer-source-ranges",
        &["", "10.0.0.0/8, 010.1.0.0/16", "x,10.0.0.0/8,"],
    ),
];

/// What the first version of autoscalers keeps of the second.
const AUTOSCALER: &[(&str, &[&str])] = &[
    (
        "autoscaling.alpha.kubernetes.io/metrics",
        &[
            r#"[{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 70}}]"#,
            r#"[{"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": "2"}}]"#,
            r#"[{"type": "External", "external": {"metricName": "m", "targetValue": "1000m"}}]"#,
            r#"[{"type": "External", "external": {"metricName": "m", "targetAverageValue": "2",
                "metricSelector": {"matchLabels": {"a": "b"}}}}]"#,
            r#"[{"type": "Object", "object": {"target": {"kind": "Service", "name": "s"}, "metricName": "m",
                "targetValue": "3"}}]"#,
            r#"[{"type": "Object", "object": {"target": {"kind": "Service", "name": "s"}, "metricName": "m",
                "averageValue": "3"}}]"#,
            r#"[{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
                "targetAverageValue": "1"}}, {"Type": "Resource", "x": 1}]"#,
            r#"[{"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 70}}]"#,
            r#"[{"type": 1}]"#,
            "[]",
            "x",
        ],
    ),
    (
        // Rules without policies get the usual ones here, and are refused there.
        "autoscaling.alpha.kubernetes.io/behavior",
        &[
            r#"{"ScaleDown": {"StabilizationWindowSeconds": 60, "SelectPolicy": "Min", "Policies": [{"Type": "Pods",
                "Value": 4, "PeriodSeconds": 60}], "Tolerance": null}}"#,
            r#"{"ScaleUp": {"StabilizationWindowSeconds": "x"}}"#,
            "{}",
        ],
    ),
    (
        "autoscaling.alpha.kubernetes.io/conditions",
        &[
            r#"[{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z"}]"#,
            "x",
        ],
    ),
    (
        "autoscaling.alpha.kubernetes.io/current-metrics",
        &[
            r#"[{"type": "Resource", "resource": {"name": "cpu", "currentAverageUtilization": 5,
                "currentAverageValue": "10m"}}]"#,
            r#"[{"type": "External", "external": {"metricName": "m", "currentAverageValue": "2"}}]"#,
        ],
    ),
    ("autoscaling.alpha.kubernetes.io/scale-up-tolerance", &["0.1"]),
];

const NODE: &[(&str, &[&str])] = &[
    (
        "scheduler.alpha.kubernetes.io/taints",
        &[r#"[{"key": "a", "effect": "NoSchedule"}]"#, "x", "[]", "[{}]"],
    ),
    (
        "scheduler.alpha.kubernetes.io/preferAvoidPods",
        &[
            "x",
            "{}",
            r#"{"preferAvoidPods": [{}]}"#,
            r#"{"preferAvoidPods": [{"podSignature": {"podController": {"apiVersion": "v1", "kind": "R", "name": "n",
                "uid": "u", "controller": true}}}]}"#,
        ],
    ),
];

pub(crate) fn all() -> Vec<Base> {
    let none = Value::Null;
    let (request, certificate) = certificates();
    let signing =
        json!({"spec": {"request": request, "signerName": "example.com/s", "usages": ["client auth"]}});
    let replicas =
        json!({"replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "observedGeneration": 1});
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let subjects = json!([{"kind": "User", "name": "u"}]);
    vec![
        base("v1", "ConfigMap", json!({"data": {"a": "b"}}), none.clone()),
        base("v1", "Secret", json!({"data": {"a": "Yg=="}}), none.clone()),
        base("v1", "ServiceAccount", json!({"secrets": [{"name": "s", "kind": "Secret"}]}), none.clone()),
        base("v1", "Namespace", json!({}), json!({"phase": "Active"})),
        base(
            "v1",
            "Node",
            json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "1"}}}),
            json!({"capacity": {"cpu": "2"}, "conditions": [{"type": "Ready", "status": "True"}],
                "declaredFeatures": ["A", "B/c"], "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}),
        )
        .annotated(NODE),
        base(
            "v1",
            "Event",
            json!({"involvedObject": {"kind": "Pod", "namespace": "NAMESPACE", "name": "p"}, "reason": "r", "message": "m",
                "type": "Normal", "count": 1}),
            none.clone(),
        ),
        base(
            "events.k8s.io/v1",
            "Event",
            json!({"regarding": {"kind": "Pod", "namespace": "NAMESPACE", "name": "p"}, "reason": "r", "note": "m",
                "type": "Normal", "action": "a", "reportingController": "c.io/c", "reportingInstance": "i",
                "eventTime": "2025-01-01T00:00:00.000000Z"}),
            none.clone(),
        ),
        base(
            "v1",
            "Service",
            json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "name": "http"}]}}),
            json!({"loadBalancer": {}}),
        )
        .annotated(SERVICE),
        base(
            "v1",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local", "selector": {"a": "b"},
                "loadBalancerSourceRanges": ["10.0.0.0/8"], "ports": [{"port": 80, "name": "http"}]}}),
            balanced(),
        )
        .annotated(SERVICE),
        base(
            "v1",
            "Service",
            json!({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "loadBalancerClass": "a.io/b",
                "selector": {"a": "b"}, "ports": [{"port": 80, "name": "http"}, {"port": 81, "name": "more"}]}}),
            balanced(),
        )
        .annotated(SERVICE),
        base(
            "v1",
            "Service",
            json!({"spec": {"externalIPs": ["10.1.1.1"], "selector": {"a": "b"}, "ports": [{"port": 80}]}}),
            balanced(),
        )
        .annotated(SERVICE),
        base(
            "v1",
            "Service",
            json!({"spec": {"type": "NodePort", "selector": {"a": "b"}, "ports": [{"port": 53, "name": "udp", "protocol": "UDP"},
                {"port": 53, "name": "tcp"}]}}),
            balanced(),
        )
        .annotated(SERVICE),
        base(
            "v1",
            "Endpoints",
            json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
            none.clone(),
        ),
        base(
            "v1",
            "LimitRange",
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"cpu": "100m"}}]}}),
            none.clone(),
        ),
        base(
            "v1",
            "ResourceQuota",
            json!({"spec": {"hard": {"pods": "5", "cpu": "1"}}}),
            json!({"hard": {"pods": "5"}, "used": {"pods": "1"}}),
        ),
        base("v1", "PodTemplate", json!({"template": template()}), none.clone()),
        base(
            "v1",
            "ReplicationController",
            json!({"spec": {"replicas": 2, "selector": {"a": "b"}, "template": template()}}),
            replicas.clone(),
        ),
        base(
            "v1",
            "Pod",
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"serviceAccountName": "default",
                "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}}),
            json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {}}}]}),
        ),
        base(
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}),
            json!({"phase": "Bound"}),
        )
        .annotated(&[("volume.beta.kubernetes.io/storage-class", &["a", "b", ""])]),
        base(
            "v1",
            "PersistentVolume",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}}}),
            json!({"phase": "Available"}),
        ),
        base("apps/v1", "Deployment", selected(json!({"replicas": 2})), replicas.clone())
            .annotated(&[("deprecated.deployment.rollback.to", &["0", "1"])]),
        base("apps/v1", "ReplicaSet", selected(json!({"replicas": 2})), replicas.clone()),
        base("apps/v1", "StatefulSet", selected(json!({"serviceName": "s"})), replicas.clone()),
        base(
            "apps/v1",
            "DaemonSet",
            selected(json!({})),
            json!({"currentNumberScheduled": 1, "numberMisscheduled": 0, "desiredNumberScheduled": 1, "numberReady": 1}),
        )
        .annotated(&[("deprecated.daemonset.template.generation", &["-1", "0", "1", "+5"])]),
        base("apps/v1", "ControllerRevision", json!({"data": {"a": 1}, "revision": 1}), none.clone()),
        base(
            "batch/v1",
            "CronJob",
            json!({"spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": {"template": {"spec":
                {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
            json!({"lastScheduleTime": "2025-01-01T00:00:00Z"}),
        ),
        base(
            "coordination.k8s.io/v1",
            "Lease",
            json!({"spec": {"holderIdentity": "h", "leaseDurationSeconds": 15, "leaseTransitions": 1}}),
            none.clone(),
        ),
        base("scheduling.k8s.io/v1", "PriorityClass", json!({"value": 10}), none.clone()),
        base(
            "policy/v1",
            "PodDisruptionBudget",
            json!({"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}),
            json!({"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}),
        ),
        base("rbac.authorization.k8s.io/v1", "Role", json!({"rules": rules}), none.clone()),
        base("rbac.authorization.k8s.io/v1", "ClusterRole", json!({"rules": rules}), none.clone()),
        base(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            json!({"subjects": subjects, "roleRef": {"kind": "Role", "name": "r"}}),
            none.clone(),
        ),
        base(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            json!({"subjects": subjects, "roleRef": {"kind": "ClusterRole", "name": "r"}}),
            none.clone(),
        ),
        base(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"name": "a", "port": 80}]}),
            none.clone(),
        ),
        base("storage.k8s.io/v1", "StorageClass", json!({"provisioner": "a.io/b"}), none.clone()),
        base("storage.k8s.io/v1", "CSIDriver", json!({"spec": {"attachRequired": true}}), none.clone()),
        base(
            "storage.k8s.io/v1",
            "CSINode",
            json!({"spec": {"drivers": [{"name": "a.io", "nodeID": "n"}]}}),
            none.clone(),
        ),
        base(
            "storage.k8s.io/v1",
            "VolumeAttachment",
            json!({"spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}),
            json!({"attached": true}),
        ),
        base("storage.k8s.io/v1", "CSIStorageCapacity", json!({"storageClassName": "s"}), none.clone()),
        base(
            "storage.k8s.io/v1",
            "VolumeAttributesClass",
            json!({"driverName": "a.io", "parameters": {"a": "b"}}),
            none.clone(),
        ),
        base(
            "networking.k8s.io/v1",
            "Ingress",
            json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}}),
            json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}),
        )
        .annotated(&[("kubernetes.io/ingress.class", &["a", "b", ""])]),
        base("networking.k8s.io/v1", "IngressClass", json!({"spec": {"controller": "a.io/b"}}), none.clone()),
        base(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}, "ingress": [{"ports": [{"port": 80}]}]}}),
            none.clone(),
        ),
        base(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
            json!({"desiredReplicas": 1, "currentMetrics": null, "conditions": []}),
        ),
        base(
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            json!({"spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}}),
            json!({"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 20}),
        )
        .annotated(AUTOSCALER),
        base(
            "networking.k8s.io/v1",
            "IPAddress",
            json!({"spec": {"parentRef": {"resource": "services", "namespace": "n", "name": "s"}}}),
            none.clone(),
        ),
        base(
            "networking.k8s.io/v1",
            "ServiceCIDR",
            json!({"spec": {"cidrs": ["10.250.0.0/24"]}}),
            json!({"conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "",
                "lastTransitionTime": "2025-01-01T00:00:00Z"}]}),
        ),
        base(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            signing.clone(),
            json!({"certificate": certificate, "conditions": [{"type": "Failed", "status": "True", "reason": "r"}]}),
        ),
        base(
            "certificates.k8s.io/v1",
            "CertificateSigningRequest",
            signing,
            json!({"conditions": [{"type": "Approved", "status": "True", "reason": "r"}]}),
        )
        .through("approval"),
        base(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "FQDN", "endpoints": [{"addresses": ["a.b"]}], "ports": [{"name": "a", "port": 80}]}),
            none.clone(),
        ),
        base(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            json!({"addressType": "IPv6", "endpoints": [{"addresses": ["2001:db8::1"]}], "ports": [{"port": 80}]}),
            none.clone(),
        ),
        base(
            "admissionregistration.k8s.io/v1",
            "ValidatingWebhookConfiguration",
            json!({"webhooks": [webhook()]}),
            none.clone(),
        ),
        base(
            "admissionregistration.k8s.io/v1",
            "MutatingWebhookConfiguration",
            json!({"webhooks": [webhook()]}),
            none.clone(),
        ),
        base(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicy",
            json!({"spec": {"matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
                "apiVersions": ["v1"], "resources": ["pods"]}]}, "validations": [{"expression": "true"}]}}),
            json!({"observedGeneration": 1}),
        ),
        base(
            "admissionregistration.k8s.io/v1",
            "ValidatingAdmissionPolicyBinding",
            json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}}),
            none.clone(),
        ),
        base(
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            json!({"spec": {"priorityLevelConfiguration": {"name": "catch-all"}, "matchingPrecedence": 500}}),
            none.clone(),
        ),
        base(
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            json!({"spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}}),
            none.clone(),
        ),
        base("node.k8s.io/v1", "RuntimeClass", json!({"handler": "h"}), none.clone()),
        base(
            "resource.k8s.io/v1",
            "ResourceClaim",
            json!({"spec": {"devices": claimed()}}),
            json!({"allocation": {"devices": {"results": [{"request": "r", "driver": "d.io", "pool": "p", "device": "v"}],
                "config": [{"source": "FromClaim", "opaque": {"driver": "d.io", "parameters": {"a": 1}}}]}},
                "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
                "devices": [{"driver": "d.io", "pool": "p", "device": "v", "networkData": {"ips": ["10.9.8.7/24"]}}]}),
        ),
        base(
            "resource.k8s.io/v1",
            "ResourceClaimTemplate",
            json!({"spec": {"spec": {"devices": claimed()}}}),
            none.clone(),
        ),
        base(
            "resource.k8s.io/v1",
            "DeviceClass",
            json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
            none.clone(),
        ),
        base(
            "resource.k8s.io/v1",
            "ResourceSlice",
            json!({"spec": {"driver": "d.io", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1},
                "devices": [{"name": "v", "attributes": {"a": {"string": "b"}}, "capacity": {"c": {"value": "1"}}}]}}),
            none.clone(),
        ),
        base(
            "apiregistration.k8s.io/v1",
            "APIService",
            json!({"spec": {"group": "g.io", "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
                "service": {"namespace": "n", "name": "s"}, "insecureSkipTLSVerify": true}}),
            none,
        ),
    ]
}
