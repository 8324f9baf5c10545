//! What kinds refuse, make of an object, and count. A real API server judges all of them on random objects; these are the
//! rules that must not get lost where there is none.

mod certificates;
mod claims;
mod networking;
mod nodes;

use serde_json::{Value, json};

use super::endpoints::{self, Facts};
use super::of;
use crate::meta::system::Identity;
use crate::write::{Accepted, Refused};

pub(super) fn facts(api_version: &str, kind: &str, namespaced: bool) -> Facts {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let of = schema::Pack::v1_35().of_kind(group, version, kind).expect("a built-in kind");
    let has_status = of.field("status").is_some();
    let (api_version, kind) = (api_version.to_owned(), kind.to_owned());
    Facts { of, api_version, kind, namespaced, has_status, allow_privileged: true }
}

pub(super) fn kind_of(facts: &Facts) -> &'static dyn super::Kind {
    of(facts.api_version.split_once('/').map_or("", |(group, _)| group), &facts.kind)
}

pub(super) fn create(facts: &Facts, mut object: Value) -> Result<Accepted, Refused> {
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = json!("n");
    }
    let now = "2025-01-01T00:00:00Z".parse().expect("a time");
    let identity = Identity { uid: "u".to_owned(), now, suffix: String::new() };
    endpoints::create(kind_of(facts), facts, &object, "ns", identity, &Vec::new())
}

/// The errors of a new object, each of which begins as expected.
pub(super) fn refused(api_version: &str, kind: &str, namespaced: bool, object: Value, expected: &[&str]) {
    match create(&facts(api_version, kind, namespaced), object) {
        Ok(_) => assert!(expected.is_empty(), "{kind} was accepted"),
        Err(Refused::Invalid(errors)) => crate::field::assert_starts(&errors, expected),
        Err(other) => panic!("{kind}: {other}"),
    }
}

/// The errors of a change, without those of metadata, and the new generation if there are none.
pub(super) fn changed(
    api_version: &str,
    kind: &str,
    object: Value,
    change: &[(&str, Value)],
    expected: &[&str],
) -> Value {
    let facts = facts(api_version, kind, true);
    let mut old = create(&facts, object).unwrap_or_else(|why| panic!("{kind}: {why}")).object;
    old["metadata"]["resourceVersion"] = json!("1");
    let mut new = old.clone();
    for (pointer, value) in change {
        let (parent, last) = pointer.rsplit_once('/').expect("a pointer");
        new.pointer_mut(parent).expect("a parent")[last] = value.clone();
    }
    match endpoints::update(kind_of(&facts), &facts, &new, &old, &Vec::new()) {
        Ok(accepted) => {
            assert!(expected.is_empty(), "{kind} was accepted");
            accepted.object
        }
        Err(Refused::Invalid(errors)) => {
            crate::field::assert_starts(&errors, expected);
            Value::Null
        }
        Err(other) => panic!("{kind}: {other}"),
    }
}

fn selected(mut spec: Value) -> Value {
    spec["selector"] = json!({"matchLabels": {"a": "b"}});
    spec["template"] =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    json!({"spec": spec})
}

#[test]
fn workloads() {
    for kind in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        refused("apps/v1", kind, true, selected(json!({})), &[]);
        let made = changed("apps/v1", kind, selected(json!({})), &[("/spec/minReadySeconds", json!(3))], &[]);
        assert_eq!(made["metadata"]["generation"], 2, "{kind}");
    }
    let mut mismatch = selected(json!({"replicas": -1}));
    mismatch["spec"]["selector"]["matchLabels"]["a"] = json!("c");
    refused(
        "apps/v1",
        "Deployment",
        true,
        mismatch,
        &[
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template `labels`",
        ],
    );
    refused(
        "apps/v1",
        "Deployment",
        true,
        selected(json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}})),
        &["spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"],
    );
    changed(
        "apps/v1",
        "ReplicaSet",
        selected(json!({})),
        &[("/spec/selector", json!({"matchLabels": {"a": "c"}}))],
        &[
            "spec.template.metadata.labels: Invalid value",
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
        ],
    );
    changed(
        "apps/v1",
        "StatefulSet",
        selected(json!({})),
        &[("/spec/serviceName", json!("s"))],
        &["spec: Forbidden: updates to statefulset spec for fields other than"],
    );
    // An amount in another notation is no other amount, and makes no new generation.
    let spelled = |memory: &str| json!({"requests": {"memory": memory}});
    let mut sized = selected(json!({}));
    sized["spec"]["template"]["spec"]["containers"][0]["resources"] = spelled("1Gi");
    for (memory, generation) in [("1073741824", 1), ("1G", 2)] {
        let change = [("/spec/template/spec/containers/0/resources", spelled(memory))];
        let made = changed("apps/v1", "ReplicaSet", sized.clone(), &change, &[]);
        assert_eq!(made["metadata"]["generation"], generation, "{memory}");
    }
    let image = [("/spec/template/spec/containers/0/image", json!("j"))];
    let made = changed("apps/v1", "DaemonSet", selected(json!({})), &image, &[]);
    assert_eq!(made["metadata"]["annotations"]["deprecated.daemonset.template.generation"], "2");
    refused(
        "apps/v1",
        "ControllerRevision",
        true,
        json!({"data": [1]}),
        &["data: Required value: data must be a valid"],
    );
}

#[test]
fn rule_3_11_cron_jobs() {
    let cron = |schedule: &str, zone: Value| {
        json!({"spec": {"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": {"spec":
            {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}})
    };
    refused("batch/v1", "CronJob", true, cron("*/5 * * * *", json!("Europe/Berlin")), &[]);
    refused(
        "batch/v1",
        "CronJob",
        true,
        cron("* *", json!("Nowhere")),
        &[
            "spec.schedule: Invalid value: \"* *\": expected exactly 5 fields, found 2: [* *]",
            "spec.timeZone: Invalid value: \"Nowhere\": unknown time zone Nowhere",
        ],
    );
    refused(
        "batch/v1",
        "CronJob",
        true,
        cron("TZ=UTC * * * * *", Value::Null),
        &["spec.schedule: Invalid value: \"TZ=UTC * * * * *\": cannot use TZ or CRON_TZ in schedule"],
    );
    let mut long = cron("@daily", Value::Null);
    long["metadata"]["name"] = json!("x".repeat(53));
    refused("batch/v1", "CronJob", true, long, &["metadata.name: Invalid value: \"xxx"]);
}

#[test]
fn data_that_is_for_good() {
    let fixed = json!({"data": {"a": "b"}, "immutable": true});
    changed(
        "v1",
        "ConfigMap",
        fixed,
        &[("/data", json!({"a": "c"})), ("/immutable", json!(false))],
        &[
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ],
    );
    refused(
        "v1",
        "Secret",
        true,
        json!({"type": "kubernetes.io/tls", "data": {"a b": "Yg=="}}),
        &[
            "data[a b]: Invalid value: \"a b\": a valid config key must",
            "data[tls.crt]: Required value",
            "data[tls.key]: Required value",
        ],
    );
    changed(
        "v1",
        "Secret",
        json!({}),
        &[("/type", json!("x"))],
        &["type: Invalid value: \"x\": field is immutable"],
    );
}

#[test]
fn services_and_what_is_behind_them() {
    let made = create(
        &facts("v1", "Service", true),
        json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}}),
    );
    let spec = made.expect("a service").object["spec"].clone();
    assert_eq!((&spec["clusterIPs"], &spec["ipFamilies"]), (&json!(["10.96.0.9"]), &json!(["IPv4"])));
    refused(
        "v1",
        "Service",
        true,
        json!({"metadata": {"name": "1a"}, "spec": {"type": "ExternalName"}}),
        &["metadata.name: Invalid value: \"1a\": a DNS-1035 label must", "spec.externalName: Required value"],
    );
    changed(
        "v1",
        "Service",
        json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}}),
        &[("/spec/clusterIP", json!("10.96.0.8")), ("/spec/clusterIPs", json!(["10.96.0.8"]))],
        &["spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set"],
    );
    refused(
        "v1",
        "Endpoints",
        true,
        json!({"subsets": [{"ports": [{"port": 0}]}]}),
        &[
            "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`",
            "subsets[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    );
}

#[test]
fn quotas_limits_and_priorities() {
    refused(
        "v1",
        "ResourceQuota",
        true,
        json!({"spec": {"hard": {"wings": "1", "pods": "1500m"}}}),
        &[
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.hard[wings]: Invalid value: \"wings\": must be a standard resource type or fully qualified",
            "spec.hard[wings]: Invalid value: \"wings\": must be a standard resource for quota",
        ],
    );
    refused(
        "v1",
        "LimitRange",
        true,
        json!({"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}}),
        &["spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1"],
    );
    refused(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        false,
        json!({"metadata": {"name": "system-x"}, "value": 1}),
        &[
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: \
         system-x is not a known system priority class",
        ],
    );
    refused(
        "policy/v1",
        "PodDisruptionBudget",
        true,
        json!({"spec": {"minAvailable": "x", "maxUnavailable": "101%"}}),
        &[
            "spec: Invalid value: {\"MinAvailable\":\"x\",\"Selector\":null,\"MaxUnavailable\":\"101%\"",
            "spec.minAvailable: Invalid value: \"x\": a valid percent string must be a numeric string",
            "spec.maxUnavailable: Invalid value: \"101%\": must not be greater than 100%",
        ],
    );
}

#[test]
fn roles_bindings_and_leases() {
    refused(
        "rbac.authorization.k8s.io/v1",
        "Role",
        true,
        json!({"rules": [{"nonResourceURLs": ["/x"]}]}),
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].nonResourceURLs: Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
        ],
    );
    refused(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        true,
        json!({"subjects": [{"kind": "Robot", "name": "r"}],
        "roleRef": {"kind": "Role"}}),
        &[
            "roleRef.name: Required value",
            "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ],
    );
    refused(
        "coordination.k8s.io/v1",
        "Lease",
        true,
        json!({"spec": {"leaseDurationSeconds": 0}}),
        &["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"],
    );
}

#[test]
fn webhooks() {
    let hook = json!({"webhooks": [{"name": "a", "clientConfig": {"url": "http://x?y"}, "admissionReviewVersions": ["v9"],
        "timeoutSeconds": 31, "rules": [{"operations": ["*", "CREATE"], "apiGroups": ["*"], "apiVersions": ["v1"],
            "resources": ["*", "pods"]}]}]});
    refused(
        "admissionregistration.k8s.io/v1",
        "ValidatingWebhookConfiguration",
        false,
        hook,
        &[
            "webhooks[0].name: Invalid value: \"a\": should be a domain with at least three segments",
            "webhooks[0].rules[0].operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present",
            "webhooks[0].rules[0].resources: Invalid value: [\"*\",\"pods\"]: if '*' is present",
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
            "webhooks[0].clientConfig.url: Invalid value: \"y\": query parameters are not permitted in the URL",
            "webhooks[0].admissionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1",
        ],
    );
}

#[test]
fn nodes_namespaces_and_claims() {
    refused(
        "v1",
        "Node",
        false,
        json!({"spec": {"taints": [{"key": "k", "effect": "Never"}]}}),
        &["metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\""],
    );
    let made = create(&facts("v1", "Node", false), json!({"status": {"capacity": {"cpu": "2"}}}))
        .expect("a node")
        .object;
    assert_eq!(made["status"]["allocatable"], json!({"cpu": "2"}));
    let made = create(&facts("v1", "Namespace", false), json!({"status": {"phase": "Terminating"}}))
        .expect("one")
        .object;
    assert_eq!(made["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        (&made["status"]["phase"], &made["metadata"]["labels"]["kubernetes.io/metadata.name"]),
        (&json!("Active"), &json!("n"))
    );
    let claim =
        json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    changed(
        "v1",
        "PersistentVolumeClaim",
        claim,
        &[("/spec/accessModes", json!(["ReadOnlyMany"]))],
        &[
            "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName",
        ],
    );
}
#[test]
fn rule_3_1_claims_of_devices() {
    let claim = |devices: Value| json!({"spec": {"devices": devices}});
    let of = |object: Value, expected: &[&str]| {
        refused("resource.k8s.io/v1", "ResourceClaim", true, object, expected);
    };
    let request = json!({"name": "r", "exactly": {"deviceClassName": "c"}});
    let also = json!({"name": "s", "firstAvailable": [{"name": "t", "deviceClassName": "c"}]});
    of(
        claim(
            json!({"requests": [request, also], "constraints": [{"requests": ["r", "s/t"], "matchAttribute": "d.io/a"}],
            "config": [{"opaque": {"driver": "d.io", "parameters": {"a": 1}}}]}),
        ),
        &[],
    );
    of(
        claim(json!({"requests": [request, request, {"name": "x"}],
            "constraints": [{"requests": ["y"], "distinctAttribute": "d.io/a"}],
            "config": [{"opaque": {"driver": "d.io", "parameters": 1}}]})),
        &[
            "spec.devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            "spec.devices.requests[1]: Duplicate value: \"r\"",
            "spec.devices.constraints[0].requests[0]: Invalid value: \"y\": must be the name of a request",
            "spec.devices.constraints[0].matchAttribute: Required value",
            "spec.devices.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ],
    );
}

#[test]
fn rule_3_1_names_of_api_services() {
    let service = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"group": "g.io", "version": "v1",
        "groupPriorityMinimum": 1, "versionPriority": 1}})
    };
    let of = |object: Value, expected: &[&str]| {
        refused("apiregistration.k8s.io/v1", "APIService", false, object, expected);
    };
    let made = create(&facts("apiregistration.k8s.io/v1", "APIService", false), service("v1.g.io"));
    let condition = &made.expect("accepted").object["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Available"), &json!("Local")));
    of(
        service("other"),
        &["metadata.name: Invalid value: \"other\": must be `spec.version+\".\"+spec.group`: \"v1.g.io\""],
    );
}

/// What a new object is accepted with, and then a change of its labels and `change`.
fn warned(api_version: &str, kind: &str, object: Value, expected: &[&str], on_change: &[&str]) {
    let facts = facts(api_version, kind, true);
    let accepted = create(&facts, object).unwrap_or_else(|why| panic!("{kind}: {why}"));
    assert_eq!(accepted.warnings, expected, "{kind}");
    let mut old = accepted.object;
    old["metadata"]["resourceVersion"] = json!("1");
    let mut new = old.clone();
    new["metadata"]["labels"]["changed"] = json!("yes");
    let changed = endpoints::update(kind_of(&facts), &facts, &new, &old, &Vec::new());
    let changed = changed.unwrap_or_else(|why| panic!("{kind}: {why}"));
    assert_eq!(changed.warnings, on_change, "{kind}");
}

#[test]
fn what_is_accepted_with_a_warning() {
    let more = "ResourceQuota requests.cpu (2) should be less than limits.cpu (1)";
    let bare = "ResourceQuota memory (2Gi) should be less than limits.memory (1Gi)";
    let hard = |hard: Value| json!({"spec": {"hard": hard}});
    warned("v1", "ResourceQuota", hard(json!({"requests.cpu": "2", "limits.cpu": "1"})), &[more], &[]);
    warned("v1", "ResourceQuota", hard(json!({"memory": "2Gi", "limits.memory": "1Gi"})), &[bare], &[]);
    warned(
        "v1",
        "ResourceQuota",
        hard(json!({"cpu": "9", "requests.cpu": "1", "limits.cpu": "1"})),
        &[],
        &[],
    );

    let old = "failure-domain.beta.kubernetes.io/zone";
    let instead = r#"deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#;
    let told = format!("allowedTopologies[0].matchLabelExpressions[0].key: {instead}");
    warned(
        "storage.k8s.io/v1",
        "StorageClass",
        json!({"provisioner": "a.b", "allowedTopologies": [{"matchLabelExpressions": [{"key": old, "values": ["a"]}]}]}),
        &[&told],
        &[&told],
    );
    let told = format!("scheduling.nodeSelector: {instead}");
    warned(
        "node.k8s.io/v1",
        "RuntimeClass",
        json!({"handler": "h", "scheduling": {"nodeSelector": {old: "a"}}}),
        &[&told],
        &[&told],
    );
    let told = [
        format!("nodeTopology.matchExpressions[0].key: {old} is {instead}"),
        format!("nodeTopology.matchLabels.{old}: {instead}"),
    ];
    let told = [told[0].as_str(), told[1].as_str()];
    let topology =
        json!({"matchLabels": {old: "a"}, "matchExpressions": [{"key": old, "operator": "Exists"}]});
    warned(
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        json!({"storageClassName": "c", "nodeTopology": topology}),
        &told,
        &told,
    );

    let later = "will be considered invalid in a future Kubernetes release: use";
    let told = [
        format!(
            r#"spec.ingress[0].from[0].ipBlock.cidr: non-standard CIDR value "010.0.0.0/8" {later} "10.0.0.0/8""#
        ),
        format!(
            r#"spec.egress[0].to[0].ipBlock.except[0]: non-standard CIDR value "10.0.0.0/09" {later} "10.0.0.0/9""#
        ),
    ];
    let told = [told[0].as_str(), told[1].as_str()];
    warned(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        json!({"spec": {
            "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": "010.0.0.0/8"}}]}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/09"]}}]}],
        }}),
        &told,
        &told,
    );
    let slice = |address_type: &str, address: &str, by: &str| {
        json!({
            "metadata": {"name": "n", "labels": {"endpointslice.kubernetes.io/managed-by": by}},
            "addressType": address_type, "endpoints": [{"addresses": [address]}],
        })
    };
    let told =
        format!(r#"endpoints[0].addresses[0]: non-standard IP address "010.0.0.1" {later} "10.0.0.1""#);
    let (own, kind) = ("endpointslice-controller.k8s.io", "EndpointSlice");
    warned("discovery.k8s.io/v1", kind, slice("IPv4", "010.0.0.1", "me"), &[&told], &[&told]);
    warned("discovery.k8s.io/v1", kind, slice("IPv4", "010.0.0.1", own), &[], &[]);
    let fqdn = "spec.addressType: FQDN endpoints are deprecated";
    warned("discovery.k8s.io/v1", kind, slice("FQDN", "a.b", own), &[fqdn], &[]);
    let told = [
        "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
         service.kubernetes.io/topology-mode instead"
            .to_owned(),
        format!(r#"spec.loadBalancerIP: non-standard IP address "010.0.0.1" {later} "10.0.0.1""#),
        format!(
            r#"spec.loadBalancerSourceRanges[0]: non-standard CIDR value "010.0.0.0/8" {later} "10.0.0.0/8""#
        ),
    ];
    let told = [told[0].as_str(), told[1].as_str(), told[2].as_str()];
    warned(
        "v1",
        "Service",
        json!({
            "metadata": {"name": "n", "annotations": {"service.kubernetes.io/topology-aware-hints": "auto"}},
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ports": [{"port": 80}], "loadBalancerIP": "010.0.0.1", "loadBalancerSourceRanges": ["010.0.0.0/8"],
            },
        }),
        &told,
        &told,
    );
    let told = r#"spec.podCIDRs[0]: CIDR value "10.0.0.1/8" is ambiguous in this context (should be "10.0.0.0/8" or "10.0.0.1/32"?)"#;
    let cidrs = json!({"podCIDR": "10.0.0.1/8", "podCIDRs": ["10.0.0.1/8"]});
    warned("v1", "Node", json!({"spec": cidrs}), &[told], &[told]);

    let why = r#"fractional byte value "1500m" is invalid, must be an integer"#;
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let claim = json!({
        "metadata": {"name": "v"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}},
    });
    warned(
        "apps/v1",
        "StatefulSet",
        json!({"spec": {
            "serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": pod,
            "volumeClaimTemplates": [claim],
        }}),
        &[&format!("spec.volumeClaimTemplates[0].resources.requests[storage]: {why}")],
        &[&format!("spec.volumeClaimTemplates[0].Spec.resources.requests[storage]: {why}")],
    );
}

#[test]
fn a_changed_replication_controller_is_warned_of_what_it_was() {
    let facts = facts("v1", "ReplicationController", true);
    let template = |label: &str| {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {
            "nodeSelector": {label: "x"}, "containers": [{"name": "c", "image": "i"}]}})
    };
    let object = json!({"spec": {"selector": {"a": "b"}, "template": template("beta.kubernetes.io/os")}});
    let mut old = create(&facts, object).unwrap_or_else(|why| panic!("{why}")).object;
    old["metadata"]["resourceVersion"] = json!("1");
    let mut new = old.clone();
    new["spec"]["template"]["spec"]["nodeSelector"] = json!({"beta.kubernetes.io/arch": "x"});
    let changed = endpoints::update(kind_of(&facts), &facts, &new, &old, &Vec::new());
    let told = r#"spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead"#;
    assert_eq!(changed.unwrap_or_else(|why| panic!("{why}")).warnings, [told]);
}
