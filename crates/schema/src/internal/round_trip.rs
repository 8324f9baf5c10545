//! What is left of a wire value that was an internal one for a while.

use serde_json::{Map, Value, json};

use super::{convert, inlined};
use crate::pack::{Counterpart, Id, Pack, Shape, Source};
use crate::value::{is_zero, zero};

/// Changes a value of a wire type as converting it to an internal type and back does.
pub(super) fn value(pack: &Pack, wire: Id, internal: Id, slot: &mut Value) {
    if wire == internal {
        return;
    }
    match (pack.def(wire).shape, pack.def(internal).shape) {
        (Shape::Pointer(_), Shape::Pointer(_)) if slot.is_null() => {}
        (Shape::Pointer(wire), Shape::Pointer(internal)) => value(pack, wire, internal, slot),
        (Shape::Pointer(wire), _) => {
            // What is nil comes back as zero, because only one of the two can tell.
            if slot.is_null() {
                *slot = zero(pack.def(wire).shape);
            }
            value(pack, wire, internal, slot);
        }
        (_, Shape::Pointer(internal)) => value(pack, wire, internal, slot),
        (Shape::List(wire), Shape::List(internal)) => {
            for item in slot.as_array_mut().into_iter().flatten() {
                value(pack, wire, internal, item);
            }
        }
        (Shape::Map(wire), Shape::Map(internal)) => {
            for (_, item) in slot.as_object_mut().into_iter().flatten() {
                value(pack, wire, internal, item);
            }
        }
        (Shape::Struct, _) => {
            if let Some(counterpart) = &pack.def(wire).internal {
                if slot.is_null() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(members) = slot {
                    structure(pack, wire, counterpart, members);
                }
            }
        }
        _ => {}
    }
}

fn structure(pack: &Pack, wire: Id, counterpart: &Counterpart, members: &mut Map<String, Value>) {
    for (field, source) in pack.def(counterpart.id).fields.iter().zip(&counterpart.sources) {
        match source {
            Source::Nothing => {}
            Source::SameObject => {
                let from = inlined(pack, wire, field.go);
                if let Some(counterpart) = &pack.def(from).internal {
                    structure(pack, from, counterpart, members);
                }
            }
            Source::Key(key) => {
                let Some(place) = pack.def(wire).member(key) else { continue };
                let from = pack.def(wire).members[place].id;
                let mut slot = members.remove(*key).unwrap_or(Value::Null);
                value(pack, from, field.id, &mut slot);
                if !is_zero(pack, from, &slot) {
                    members.insert((*key).to_owned(), slot);
                }
            }
        }
    }
    special(pack.def(wire).model, members);
}

/// What the conversions do besides copying.
fn special(name: &str, members: &mut Map<String, Value>) {
    match name {
        "io.k8s.api.core.v1.PodSpec" => pod_spec(members),
        "io.k8s.api.core.v1.PodTemplateSpec" => convert::pod_template_spec(members),
        "io.k8s.api.core.v1.Pod" => convert::pod(members),
        "io.k8s.api.core.v1.PodStatus" => {
            convert::pod_status(members);
            let first = members.get("podIPs").and_then(|all| all.get(0)).map(|first| first["ip"].clone());
            replace(members, "podIP", first);
        }
        "io.k8s.api.core.v1.NodeSpec" => {
            convert::node_spec(members);
            let first = members.get("podCIDRs").and_then(|all| all.get(0)).cloned();
            replace(members, "podCIDR", first);
        }
        "io.k8s.api.core.v1.Secret" => convert::secret(members),
        "io.k8s.api.apps.v1.StatefulSetSpec" => {
            let claims = members.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
            for claim in claims.into_iter().flatten() {
                claim["apiVersion"] = json!("v1");
                claim["kind"] = json!("PersistentVolumeClaim");
            }
        }
        "io.k8s.api.apps.v1.DaemonSet" => {
            let metadata = members.entry("metadata").or_insert_with(|| json!({}));
            let generation = &mut metadata["annotations"]["deprecated.daemonset.template.generation"];
            if generation.is_null() {
                *generation = json!("0");
            }
        }
        _ => {}
    }
}

/// The security context, which holds the host's namespaces internally, is always there, and a service account has both
/// its names.
fn pod_spec(spec: &mut Map<String, Value>) {
    spec.entry("securityContext").or_insert_with(|| json!({}));
    let new = spec.get("serviceAccountName").or_else(|| spec.get("serviceAccount")).cloned();
    replace(spec, "serviceAccountName", new.clone());
    replace(spec, "serviceAccount", new);
}

fn replace(members: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    match value {
        Some(value) if !value.is_null() => members.insert(key.to_owned(), value),
        _ => members.remove(key),
    };
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Pack;
    use crate::internal::round_trip;

    fn check(name: &str, before: Value, after: &Value) {
        let of = Pack::v1_35().named(name).expect("the pack has the type");
        assert_eq!(&round_trip(of, before), after, "{name}");
    }

    #[test]
    fn pods_come_back_with_a_security_context_and_both_names_of_a_service_account() {
        let spec = "io.k8s.api.core.v1.PodSpec";
        check(spec, json!({"hostPID": true}), &json!({"hostPID": true, "securityContext": {}}));
        let named = json!({"serviceAccountName": "a", "serviceAccount": "a", "securityContext": {}});
        check(spec, json!({"serviceAccount": "a"}), &named);
        check(spec, json!({"serviceAccount": "b", "serviceAccountName": "a"}), &named);
        check(
            "io.k8s.api.batch.v1.Job",
            json!({"spec": {"parallelism": 1}}),
            &json!({"spec": {"parallelism": 1, "template": {"spec": {"securityContext": {}}}}}),
        );
    }

    #[test]
    fn what_is_no_pointer_internally_comes_back_as_zero() {
        let of = Pack::v1_35().named("io.k8s.api.apps.v1.DeploymentSpec").expect("the pack has the type");
        assert_eq!(round_trip(of, json!({}))["replicas"], json!(0));
        let of = Pack::v1_35().named("io.k8s.api.batch.v1.JobSpec").expect("the pack has the type");
        assert_eq!(round_trip(of, json!({})).get("parallelism"), None);
    }

    #[test]
    fn fields_that_are_not_internal_follow_those_that_are() {
        let secret = "io.k8s.api.core.v1.Secret";
        check(secret, json!({"stringData": {"a": "foo"}}), &json!({"data": {"a": "Zm9v"}}));
        let ip = json!({"podIP": "1", "podIPs": [{"ip": "1"}]});
        check("io.k8s.api.core.v1.PodStatus", json!({"podIP": "1"}), &ip);
        check("io.k8s.api.core.v1.PodStatus", json!({"podIPs": [{"ip": "1"}]}), &ip);
        check(
            "io.k8s.api.core.v1.NodeSpec",
            json!({"podCIDRs": ["1"]}),
            &json!({"podCIDR": "1", "podCIDRs": ["1"]}),
        );
    }

    #[test]
    fn what_is_internally_the_same_stays() {
        let spec = "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec";
        check(spec, json!({"maxReplicas": 2}), &json!({"maxReplicas": 2}));
        check("io.k8s.api.core.v1.ConfigMap", json!({"data": {}}), &json!({"data": {}}));
    }
}
