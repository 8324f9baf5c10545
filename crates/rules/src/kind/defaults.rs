//! What fields are when nobody said, for every built-in type.
//!
//! Most defaults are facts: in the type T the field F is V unless it is set (`FACTS`, and those that the schema pack
//! carries). Some depend on other fields; those are functions (`rule`). Both belong to types and not to kinds, so that
//! a port is a TCP port wherever a port stands. Pods and pod templates have their own in [`crate::pod::defaults`].
//! Defaulting twice changes nothing.

use std::sync::LazyLock;

use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use schema::pack::{Reach, Shape};
use serde_json::{Map, Value, json};
use types::Quantity;

use super::{at, default_text, text};
use crate::{pod, wire};

/// The fields of a type, each with its value as JSON.
type Fields = &'static [(&'static str, &'static str)];

/// Sorted by the name of the type, without `io.k8s.`.
const FACTS: &[(&str, Fields)] = &[
    ("api.admissionregistration.v1.MatchResources", WEBHOOK_MATCH),
    (
        "api.admissionregistration.v1.MutatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
            ("reinvocationPolicy", r#""Never""#),
        ],
    ),
    ("api.admissionregistration.v1.RuleWithOperations", SCOPE),
    ("api.admissionregistration.v1.NamedRuleWithOperations", SCOPE),
    ("api.admissionregistration.v1.ServiceReference", HTTPS),
    ("api.admissionregistration.v1.ValidatingAdmissionPolicySpec", &[("failurePolicy", r#""Fail""#)]),
    (
        "api.admissionregistration.v1.ValidatingWebhook",
        &[
            ("failurePolicy", r#""Fail""#),
            ("matchPolicy", r#""Equivalent""#),
            ("namespaceSelector", "{}"),
            ("objectSelector", "{}"),
            ("timeoutSeconds", "10"),
        ],
    ),
    ("api.apps.v1.DaemonSetSpec", &[("revisionHistoryLimit", "10")]),
    (
        "api.apps.v1.DeploymentSpec",
        &[("replicas", "1"), ("revisionHistoryLimit", "10"), ("progressDeadlineSeconds", "600")],
    ),
    ("api.apps.v1.ReplicaSetSpec", &[("replicas", "1")]),
    (
        "api.apps.v1.StatefulSetPersistentVolumeClaimRetentionPolicy",
        &[("whenDeleted", r#""Retain""#), ("whenScaled", r#""Retain""#)],
    ),
    (
        "api.apps.v1.StatefulSetSpec",
        &[
            ("podManagementPolicy", r#""OrderedReady""#),
            ("persistentVolumeClaimRetentionPolicy", "{}"),
            ("replicas", "1"),
            ("revisionHistoryLimit", "10"),
        ],
    ),
    ("api.autoscaling.v1.HorizontalPodAutoscalerSpec", &[("minReplicas", "1")]),
    (
        "api.autoscaling.v2.HorizontalPodAutoscalerSpec",
        &[
            ("minReplicas", "1"),
            (
                "metrics",
                r#"[{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]"#,
            ),
        ],
    ),
    (
        "api.batch.v1.CronJobSpec",
        &[
            ("concurrencyPolicy", r#""Allow""#),
            ("suspend", "false"),
            ("successfulJobsHistoryLimit", "3"),
            ("failedJobsHistoryLimit", "1"),
        ],
    ),
    ("api.batch.v1.PodFailurePolicyOnPodConditionsPattern", &[("status", r#""True""#)]),
    ("api.core.v1.EndpointPort", TCP),
    ("api.core.v1.NamespaceStatus", &[("phase", r#""Active""#)]),
    ("api.core.v1.PersistentVolumeClaimSpec", VOLUME_MODE),
    ("api.core.v1.PersistentVolumeClaimStatus", &[("phase", r#""Pending""#)]),
    ("api.core.v1.PersistentVolumeStatus", &[("phase", r#""Pending""#)]),
    ("api.core.v1.HostPathVolumeSource", &[("type", r#""""#)]),
    ("api.core.v1.Secret", &[("type", r#""Opaque""#)]),
    ("api.core.v1.ServicePort", TCP),
    ("api.discovery.v1.EndpointPort", &[("name", r#""""#), ("protocol", r#""TCP""#)]),
    (
        "api.flowcontrol.v1.ExemptPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "0"), ("lendablePercent", "0")],
    ),
    ("api.flowcontrol.v1.FlowSchemaSpec", &[("matchingPrecedence", "1000")]),
    (
        "api.flowcontrol.v1.LimitedPriorityLevelConfiguration",
        &[("nominalConcurrencyShares", "30"), ("lendablePercent", "0")],
    ),
    (
        "api.flowcontrol.v1.QueuingConfiguration",
        &[("handSize", "8"), ("queues", "64"), ("queueLengthLimit", "50")],
    ),
    ("api.networking.v1.IngressClassParametersReference", &[("scope", r#""Cluster""#)]),
    ("api.networking.v1.NetworkPolicyPort", TCP),
    ("api.rbac.v1.RoleRef", &[("apiGroup", r#""rbac.authorization.k8s.io""#)]),
    ("api.scheduling.v1.PriorityClass", &[("preemptionPolicy", r#""PreemptLowerPriority""#)]),
    (
        "api.storage.v1.CSIDriverSpec",
        &[
            ("attachRequired", "true"),
            ("podInfoOnMount", "false"),
            ("storageCapacity", "false"),
            ("fsGroupPolicy", r#""ReadWriteOnceWithFSType""#),
            ("volumeLifecycleModes", r#"["Persistent"]"#),
            ("requiresRepublish", "false"),
            ("seLinuxMount", "false"),
        ],
    ),
    (
        "api.storage.v1.StorageClass",
        &[("reclaimPolicy", r#""Delete""#), ("volumeBindingMode", r#""Immediate""#)],
    ),
    ("kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference", HTTPS),
];

const TCP: Fields = &[("protocol", r#""TCP""#)];
const HTTPS: Fields = &[("port", "443")];
const SCOPE: Fields = &[("scope", r#""*""#)];
const VOLUME_MODE: Fields = &[("volumeMode", r#""Filesystem""#)];
const WEBHOOK_MATCH: Fields =
    &[("matchPolicy", r#""Equivalent""#), ("namespaceSelector", "{}"), ("objectSelector", "{}")];

/// Fills in what nobody said, everywhere in a value of a type.
pub fn apply(of: schema::Type, value: &mut Value) {
    // Events, leases and most statuses have none anywhere.
    static DEFAULTS: LazyLock<Reach> = LazyLock::new(|| Reach::of(schema::Pack::v1_35(), has_own));
    if !DEFAULTS.has(of) {
        return;
    }
    match of.shape() {
        Shape::Pointer(inner) if !value.is_null() => apply(inner, value),
        Shape::List(item) => value.as_array_mut().into_iter().flatten().for_each(|value| apply(item, value)),
        Shape::Map(item) if of.go_name() == "v1.ResourceList" => round_to_millis(item, value),
        Shape::Map(item) => {
            value.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(|value| apply(item, value));
        }
        Shape::Struct if value.is_object() => apply_to_struct(of, value),
        _ => {}
    }
}

/// Whether something stands in a value of a type, whatever is below it, that [`apply`] does not leave alone.
fn has_own(of: schema::Type) -> bool {
    let name = short_name(of);
    of.go_name() == "v1.ResourceList"
        || matches!(name, "api.core.v1.Pod" | "api.core.v1.PodTemplateSpec")
        || rule(name).is_some()
        || FACTS.iter().any(|(known, _)| *known == name)
        || of.fields().any(|field| {
            field.facts().default_value().is_some_and(|default| means_something(field.of_type(), &default))
        })
}

fn short_name(of: schema::Type) -> &'static str {
    of.name().strip_prefix("io.k8s.").unwrap_or(of.name())
}

fn apply_to_struct(of: schema::Type, value: &mut Value) {
    let name = short_name(of);
    match name {
        "api.core.v1.Pod" => return defaulted::<Pod>(value, pod::defaults::apply_pod_defaults),
        // What pods of a class cost besides themselves is written down as it was said.
        "api.node.v1.Overhead" => return,
        "api.core.v1.PodTemplateSpec" => {
            return defaulted::<PodTemplateSpec>(value, pod::defaults::apply_template_defaults);
        }
        // A Job in a CronJob is only a plan of one; its pods get their defaults, it does not.
        _ => {}
    }
    if let Some(rule) = rule(name) {
        rule(value);
    }
    let facts = FACTS.iter().filter(|(known, _)| *known == name).flat_map(|(_, fields)| fields.iter());
    for (field, fact) in facts {
        if let Some(known) = of.field(field)
            && is_unset(known.of_type(), &value[*field])
        {
            value[*field] = serde_json::from_str(fact).expect("defaults are JSON");
        }
    }
    descend(of, value);
}

/// The fields of a struct; those of inlined structs stand beside them.
fn descend(of: schema::Type, value: &mut Value) {
    for field in of.fields() {
        if field.is_inline() {
            descend(field.of_type(), value);
            continue;
        }
        let inner = field.of_type();
        if let Some(default) = field.facts().default_value()
            && means_something(inner, &default)
            && is_unset(inner, &value[field.name()])
        {
            value[field.name()] = default;
        }
        match value.get_mut(field.name()) {
            Some(present) if !present.is_null() => apply(inner, present),
            // A struct that is no pointer is always there, and so are its defaults.
            _ if matches!(inner.shape(), Shape::Struct) => {
                let mut absent = json!({});
                apply(inner, &mut absent);
                if absent.as_object().is_some_and(|absent| !absent.is_empty()) {
                    value[field.name()] = absent;
                }
            }
            _ => {}
        }
    }
}

/// Absent; or zero, where Go cannot tell the two apart.
fn is_unset(of: schema::Type, value: &Value) -> bool {
    match value {
        Value::Null => true,
        _ if matches!(of.shape(), Shape::Pointer(_)) => false,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Object(_) => false,
    }
}

/// The pack writes zero for whatever is required; only what differs from an absent field is a default.
fn means_something(of: schema::Type, default: &Value) -> bool {
    let is_pointer = matches!(of.shape(), Shape::Pointer(_));
    match default {
        Value::Null | Value::Object(_) | Value::Array(_) => false,
        Value::Bool(value) => *value || is_pointer,
        value => !is_unset(of, value) || is_pointer,
    }
}

fn defaulted<T: serde::Serialize + serde::de::DeserializeOwned>(value: &mut Value, apply: fn(&mut T)) {
    let mut object: T = wire::typed(value);
    apply(&mut object);
    *value = wire::untyped(&object, value);
}

/// Amounts of resources are kept in whole thousandths.
fn round_to_millis(_: schema::Type, value: &mut Value) {
    for amount in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if let Some(Ok(quantity)) = amount.as_str().map(str::parse::<Quantity>) {
            *amount = json!(quantity.rounded_to_millis().to_string());
        }
    }
}

/// Defaults that depend on other fields.
fn rule(name: &str) -> Option<fn(&mut Value)> {
    Some(match name {
        "api.apps.v1.DeploymentSpec" => |spec| rolling(spec, "strategy", json!("25%"), json!("25%")),
        "api.apps.v1.DaemonSetSpec" => |spec| rolling(spec, "updateStrategy", json!(1), json!(0)),
        "api.apps.v1.StatefulSetSpec" => stateful_set,
        "api.autoscaling.v2.HorizontalPodAutoscalerSpec" => autoscaler,
        "api.core.v1.LimitRangeItem" => limit_range_item,
        "api.core.v1.Namespace" => |namespace| {
            if !text(namespace, "metadata.name").is_empty() {
                namespace["metadata"]["labels"][NAME_LABEL] = namespace["metadata"]["name"].clone();
            }
        },
        "api.core.v1.NodeStatus" => |status| {
            if status["allocatable"].is_null() && !status["capacity"].is_null() {
                status["allocatable"] = status["capacity"].clone();
            }
        },
        "api.core.v1.ReplicationController" => replication_controller,
        "api.core.v1.Service" => service,
        "api.networking.v1.NetworkPolicySpec" => |spec| {
            if spec["policyTypes"].as_array().is_none_or(Vec::is_empty) {
                let has_egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
                spec["policyTypes"] =
                    if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            }
        },
        "api.rbac.v1.Subject" => |subject| {
            if matches!(text(subject, "kind"), "User" | "Group") {
                default_text(subject, "apiGroup", "rbac.authorization.k8s.io");
            }
        },
        "api.resource.v1.ExactDeviceRequest" | "api.resource.v1.DeviceSubRequest" => |request| {
            default_text(request, "allocationMode", "ExactCount");
            if text(request, "allocationMode") == "ExactCount" && request["count"].as_i64().unwrap_or(0) == 0
            {
                request["count"] = json!(1);
            }
        },
        _ => return None,
    })
}

/// Namespaces are labelled with their name, so that selectors can name them (3.12).
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

fn rolling(spec: &mut Value, field: &str, unavailable: Value, surge: Value) {
    default_text(&mut spec[field], "type", "RollingUpdate");
    if text(&spec[field], "type") == "RollingUpdate" {
        let rolling = &mut spec[field]["rollingUpdate"];
        default_value(rolling, "maxUnavailable", unavailable);
        default_value(rolling, "maxSurge", surge);
    }
}

fn default_value(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

fn stateful_set(spec: &mut Value) {
    let strategy = &mut spec["updateStrategy"];
    if text(strategy, "type").is_empty() {
        strategy["type"] = json!("RollingUpdate");
        default_value(strategy, "rollingUpdate", json!({}));
    }
    if text(strategy, "type") == "RollingUpdate" && !strategy["rollingUpdate"].is_null() {
        default_value(&mut strategy["rollingUpdate"], "partition", json!(0));
    }
}

fn autoscaler(spec: &mut Value) {
    if spec["behavior"].is_null() {
        return;
    }
    let policy = |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 15});
    for (direction, window, policies) in [
        ("scaleUp", json!(0), json!([policy("Pods", 4), policy("Percent", 100)])),
        ("scaleDown", Value::Null, json!([policy("Percent", 100)])),
    ] {
        let rules = &mut spec["behavior"][direction];
        default_value(rules, "selectPolicy", json!("Max"));
        default_value(rules, "policies", policies);
        if !window.is_null() {
            default_value(rules, "stabilizationWindowSeconds", window);
        }
    }
}

/// What a container gets follows from what it may have.
fn limit_range_item(item: &mut Value) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let amounts = item[from].as_object().cloned().unwrap_or_default();
        for (name, amount) in amounts {
            if item[to][&name].is_null() {
                item[to][&name] = amount;
            }
        }
    }
}

/// A controller without labels or selector has those of its pods.
fn replication_controller(controller: &mut Value) {
    default_value(&mut controller["spec"], "replicas", json!(1));
    let labels = at(controller, "spec.template.metadata.labels").clone();
    let is_empty = |labels: &Value| labels.as_object().is_none_or(Map::is_empty);
    if is_empty(&labels) {
        return;
    }
    if is_empty(at(controller, "spec.selector")) {
        controller["spec"]["selector"] = labels.clone();
    }
    if is_empty(at(controller, "metadata.labels")) {
        controller["metadata"]["labels"] = labels;
    }
}

fn service(service: &mut Value) {
    const AFFINITY_SECONDS: i32 = 3 * 60 * 60;
    let spec = &mut service["spec"];
    default_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => drop(spec.as_object_mut().map(|spec| spec.remove("sessionAffinityConfig"))),
        "ClientIP" if at(spec, "sessionAffinityConfig.clientIP.timeoutSeconds").is_null() => {
            spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_SECONDS}});
        }
        _ => {}
    }
    default_text(spec, "type", "ClusterIP");
    for port in spec["ports"].as_array_mut().into_iter().flatten() {
        if matches!(&port["targetPort"], Value::Null)
            || port["targetPort"] == json!(0)
            || port["targetPort"] == json!("")
        {
            port["targetPort"] = json!(port["port"].as_i64().unwrap_or(0));
        }
    }
    let kind = text(spec, "type").to_owned();
    let has_external_ips = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    let is_external =
        matches!(kind.as_str(), "NodePort" | "LoadBalancer") || kind == "ClusterIP" && has_external_ips;
    if is_external {
        default_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        default_value(spec, "internalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        default_value(spec, "allocateLoadBalancerNodePorts", json!(true));
        let ingresses = service["status"]["loadBalancer"]["ingress"].as_array_mut();
        for ingress in ingresses.into_iter().flatten().filter(|ingress| !text(ingress, "ip").is_empty()) {
            default_value(ingress, "ipMode", json!("VIP"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(group: &str, version: &str, kind: &str, mut object: Value, expected: Value) {
        let of = schema::Pack::v1_35().of_kind(group, version, kind).expect("a built-in kind");
        apply(of, &mut object);
        assert_eq!(object, expected, "{kind}");
        let once = object.clone();
        apply(of, &mut object);
        assert_eq!(object, once, "{kind}: defaulting twice");
    }

    #[test]
    fn every_fact_names_a_field() {
        for (name, fields) in FACTS {
            let of = wire::named(&format!("io.k8s.{name}"));
            for (field, fact) in *fields {
                assert!(of.field(field).is_some(), "{name} has no {field}");
                serde_json::from_str::<Value>(fact).expect("JSON");
            }
        }
    }

    #[test]
    fn facts_hold_wherever_their_type_stands() {
        check(
            "",
            "v1",
            "Endpoints",
            json!({"subsets": [{"ports": [{"port": 1}]}]}),
            json!({"subsets": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}),
        );
        check(
            "scheduling.k8s.io",
            "v1",
            "PriorityClass",
            json!({"value": 5}),
            json!({"value": 5, "preemptionPolicy": "PreemptLowerPriority"}),
        );
        check(
            "",
            "v1",
            "PersistentVolumeClaim",
            json!({"spec": {"resources": {"requests": {"storage": "1.0001"}}}}),
            json!({"spec": {"volumeMode": "Filesystem", "resources": {"requests": {"storage": "1001m"}}},
                "status": {"phase": "Pending"}}),
        );
        check(
            "",
            "v1",
            "Namespace",
            json!({"metadata": {"name": "n"}}),
            json!({"metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}, "status": {"phase": "Active"}}),
        );
    }

    #[test]
    fn rule_3_11_cron_jobs() {
        let of = schema::Pack::v1_35().of_kind("batch", "v1", "CronJob").expect("CronJobs");
        let mut object =
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {}}}}}});
        apply(of, &mut object);
        assert_eq!(object["spec"]["failedJobsHistoryLimit"], 1);
        assert_eq!(object["spec"]["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"], "Always");
        assert_eq!(object["spec"]["jobTemplate"]["spec"].get("parallelism"), None);
    }

    #[test]
    fn rule_3_12_services() {
        check(
            "",
            "v1",
            "Service",
            json!({"spec": {"ports": [{"port": 80}], "sessionAffinityConfig": {}}}),
            json!({"spec": {"ports": [{"port": 80, "targetPort": 80, "protocol": "TCP"}], "sessionAffinity": "None",
                "type": "ClusterIP", "internalTrafficPolicy": "Cluster"}}),
        );
    }
}
