//! The role of a pod in its group: pods that ask for the same of a cluster have the same, and each role is a pod set (JF-70).

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::ROLE_HASH;
use crate::{framework::annotation, wire};

/// How much of the hash is a name.
const LENGTH: usize = 8;

/// The role of a pod: what was written on it when it was created, or what would be.
pub fn of(pod: &Pod) -> String {
    match annotation(&pod.metadata, ROLE_HASH) {
        Some(role) => role.to_owned(),
        None => hash(pod.spec.as_ref().unwrap_or(&PodSpec::default())),
    }
}

/// The hash of what decides where pods can be, of the very text that Kueue takes it of: a group that was begun under the one
/// is completed under the other.
pub fn hash(spec: &PodSpec) -> String {
    let digest = Sha256::digest(format!("{{\"spec\":{}}}", shape(spec)).as_bytes());
    let digits = digest.iter().map(|byte| format!("{byte:02x}"));
    digits.take(LENGTH / 2).collect()
}

/// What decides where pods can be, field by field in the order of their names.
pub fn shape(spec: &PodSpec) -> String {
    let mut fields = vec![
        ("affinity", one("Affinity", spec.affinity.as_ref())),
        ("containers", containers(Some(&spec.containers))),
        ("initContainers", containers(spec.init_containers.as_deref())),
        ("nodeSelector", plain(&spec.node_selector)),
        ("overhead", plain(&spec.overhead)),
        ("priority", plain(&spec.priority)),
        ("resourceClaims", list("PodResourceClaim", spec.resource_claims.as_deref())),
    ];
    if let Some(resources) = &spec.resources {
        fields.push(("resources", plain(&resources.requests)));
    }
    fields.extend([
        ("runtimeClassName", plain(&spec.runtime_class_name)),
        ("tolerations", list("Toleration", spec.tolerations.as_deref())),
        (
            "topologySpreadConstraints",
            list("TopologySpreadConstraint", spec.topology_spread_constraints.as_deref()),
        ),
    ]);
    object(fields)
}

fn containers(all: Option<&[Container]>) -> String {
    let Some(all) = all.filter(|all| !all.is_empty()) else { return "null".to_owned() };
    let of = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let resources = object(vec![("requests", plain(&requests))]);
        object(vec![("ports", list("ContainerPort", container.ports.as_deref())), ("resources", resources)])
    };
    format!("[{}]", all.iter().map(of).collect::<Vec<_>>().join(","))
}

fn object(fields: Vec<(&str, String)>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// A value whose text has no order of its own.
fn plain<T: Serialize>(value: &T) -> String {
    tree(value).to_string()
}

fn one<T: Serialize>(kind: &str, value: Option<&T>) -> String {
    let of = wire::named(&format!("io.k8s.api.core.v1.{kind}"));
    value.map_or_else(|| "null".to_owned(), |value| schema::encode_text(of, &tree(value)))
}

fn list<T: Serialize>(kind: &str, values: Option<&[T]>) -> String {
    let Some(values) = values else { return "null".to_owned() };
    let values: Vec<String> = values.iter().map(|value| one(kind, Some(value))).collect();
    format!("[{}]", values.join(","))
}

fn tree<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("wire types have string keys and finite numbers")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn hash_of(spec: Value) -> String {
        hash(&serde_json::from_value(spec).expect("a pod's spec"))
    }

    /// The values are Kueue's own.
    #[test]
    fn jf_70_roles_have_kueues_names() {
        let with = |requests: Value| json!({ "containers": [{ "name": "c", "resources": { "requests": requests } }] });
        assert_eq!(hash_of(with(json!({}))), "a9f06f3a");
        assert_eq!(hash_of(with(json!({ "cpu": "1" }))), "dc85db45");
    }

    #[test]
    fn jf_70_a_role_is_what_decides_where_a_pod_can_be() {
        let base = json!({ "containers": [{ "name": "c", "image": "a" }] });
        let other = |more: Value| {
            let mut spec = base.clone();
            for (key, value) in more.as_object().expect("fields") {
                spec[key] = value.clone();
            }
            hash_of(spec) != hash_of(base.clone())
        };
        assert!(!other(json!({ "containers": [{ "name": "d", "image": "b", "args": ["x"] }] })));
        assert!(!other(json!({ "restartPolicy": "Never", "serviceAccountName": "s" })));
        assert!(other(json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }] })));
        assert!(other(json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] })));
        assert!(other(json!({ "nodeSelector": { "zone": "a" } })));
        assert!(other(json!({ "priority": 7 })));
    }

    /// Fields of structures are in the order in which Go declares them.
    #[test]
    fn jf_70_the_text_that_is_hashed_is_gos() {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{ "name": "c", "ports": [{ "protocol": "TCP", "containerPort": 80, "name": "web" }] }],
            "tolerations": [{ "effect": "NoSchedule", "value": "v", "operator": "Equal", "key": "k" }],
        }))
        .expect("a pod's spec");
        let shape = shape(&spec);
        assert!(shape.contains(r#""ports":[{"name":"web","containerPort":80,"protocol":"TCP"}]"#), "{shape}");
        let toleration =
            r#""tolerations":[{"key":"k","operator":"Equal","value":"v","effect":"NoSchedule"}]"#;
        assert!(shape.contains(toleration), "{shape}");
    }
}
