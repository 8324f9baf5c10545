//! The unversioned structs in which an API server keeps objects, as far as clients can tell.
//!
//! When a rule refuses a whole struct, the message shows it as Go prints the *internal* type: other field names, other
//! fields, everything that is nil as `null`. Clients show these messages, so they are part of the API.
//!
//! Every type of a generally available kind has a counterpart, except v1 autoscalers and what belongs to custom
//! resource definitions, whose conversion is more than renaming; see `tools/schema/pack/internal.go`.

mod convert;
mod round_trip;

use serde_json::Value;

use crate::encode::sink::{Sink, Text};
use crate::encode::{is_omitted, write, write_members};
use crate::pack::{Counterpart, Id, Pack, Shape, Source, Type};

/// The text that Go prints for the internal counterpart of a value. `None` if the type has none.
pub fn json(of: Type, value: &Value) -> Option<String> {
    if of.shape() == Shape::Struct && !has_counterpart(of) {
        return None;
    }
    let mut text = Text::default();
    print(of.pack(), of.id(), value, &mut text);
    Some(text.finish())
}

/// Whether a struct has an internal form; `metav1` and what it consists of is its own.
fn has_counterpart(of: Type) -> bool {
    of.pack().def(of.id()).internal.is_some() || of.name().starts_with("io.k8s.apimachinery.")
}

/// What becomes of a value while an API server holds it: it was an internal one, and comes back with the traces of
/// that (a pod's spec has a security context, a secret's text is data, a Deployment without replicas has none).
///
/// Defaults are set before, validation sees the internal value, and what is stored and sent is the outcome of this. A
/// type without counterpart comes back as it went.
pub fn round_trip(of: Type, mut value: Value) -> Value {
    if let Some(counterpart) = &of.pack().def(of.id()).internal {
        round_trip::value(of.pack(), of.id(), counterpart.id, &mut value);
    }
    value
}

/// Prints a value of a wire type, each struct in it as its counterpart.
fn print(pack: &Pack, wire: Id, value: &Value, to: &mut Text) {
    match (pack.def(wire).shape, value) {
        (Shape::Pointer(_), Value::Null) => to.null(),
        (Shape::Pointer(of), _) => print(pack, of, value, to),
        (Shape::List(item), Value::Array(items)) => {
            to.begin_list();
            for value in items {
                to.item();
                print(pack, item, value, to);
            }
            to.end_list();
        }
        (Shape::Map(item), Value::Object(members)) => {
            to.begin_object();
            for (key, value) in members {
                to.key(key);
                print(pack, item, value, to);
            }
            to.end_object();
        }
        (Shape::Struct, _) => match &pack.def(wire).internal {
            Some(counterpart) => print_struct(pack, wire, counterpart, value, to),
            None => write(pack, wire, value, to),
        },
        _ => write(pack, wire, value, to),
    }
}

fn print_struct(pack: &Pack, wire: Id, counterpart: &Counterpart, value: &Value, to: &mut Text) {
    to.begin_object();
    print_fields(pack, wire, counterpart, value, to);
    to.end_object();
}

fn print_fields(pack: &Pack, wire: Id, counterpart: &Counterpart, value: &Value, to: &mut Text) {
    let value = convert::prepare(pack.def(wire).model, value);
    for (field, source) in pack.def(counterpart.id).fields.iter().zip(&counterpart.sources) {
        let (from, given) = match source {
            Source::Nothing => (field.id, &Value::Null),
            Source::SameObject => (inlined(pack, wire, field.go), &*value),
            Source::Key(key) => (
                // The five fields that move into a PodSecurityContext are none of the wire type's.
                pack.def(wire).member(key).map_or(field.id, |place| pack.def(wire).members[place].id),
                value.get(key).unwrap_or(&Value::Null),
            ),
        };
        if field.name.is_empty() {
            print_inlined(pack, from, field.id, given, to);
        } else if !is_omitted(pack, field.omit, field.id, given) {
            to.key(field.name);
            let from = match (pack.def(from).shape, pack.def(field.id).shape) {
                (Shape::Pointer(_), Shape::Pointer(_)) => from,
                (Shape::Pointer(to), _) => to, // nil becomes zero
                _ => from,
            };
            print(pack, from, given, to);
        }
    }
}

/// Prints the fields of a struct that the internal type embeds.
fn print_inlined(pack: &Pack, wire: Id, internal: Id, value: &Value, to: &mut Text) {
    match &pack.def(wire).internal {
        Some(counterpart) if counterpart.id == internal => print_fields(pack, wire, counterpart, value, to),
        _ => write_members(pack, &pack.def(internal).members, value, to),
    }
}

/// The type of the field that a wire struct inlines under a Go name.
fn inlined(pack: &Pack, wire: Id, go: &str) -> Id {
    let field = pack.def(wire).fields.iter().find(|field| field.go == go);
    field.expect("the pack names fields of the wire type").id
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(name: &str, value: &Value, text: &str) {
        let of = Pack::v1_35().named(name).expect("the pack has the type");
        assert_eq!(json(of, value).as_deref(), Some(text), "{name} {value}");
    }

    /// What is printed for a pod's spec, between two of its fields.
    fn pod_spec(value: &Value, from: &str, to: &str) -> String {
        let of = Pack::v1_35().named("io.k8s.api.core.v1.PodSpec").expect("the pack has PodSpec");
        let text = super::json(of, value).expect("PodSpec has a counterpart");
        let start = text.find(&format!("\"{from}\"")).expect("the field is printed");
        let end = text.find(&format!(",\"{to}\"")).expect("the field is printed");
        text[start..end].to_owned()
    }

    #[test]
    fn prints_gos_names_and_nil_as_null() {
        check("io.k8s.api.batch.v1.SuccessPolicy", &json!({"rules": []}), r#"{"Rules":[]}"#);
        check(
            "io.k8s.api.batch.v1.PodFailurePolicyRule",
            &json!({"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}),
            r#"{"Action":"Count","OnExitCodes":{"ContainerName":null,"Operator":"In","Values":[1]},"OnPodConditions":null}"#,
        );
        check(
            "io.k8s.api.core.v1.Toleration",
            &json!({}),
            r#"{"Key":"","Operator":"","Value":"","Effect":"","TolerationSeconds":null}"#,
        );
    }

    #[test]
    fn metadata_is_inlined_and_keeps_its_names() {
        let of = Pack::v1_35().named("io.k8s.api.core.v1.PodTemplateSpec").expect("the pack has it");
        let text =
            json(of, &json!({"metadata": {"labels": {"a": "<b>"}, "annotations": {}}})).expect("has one");
        assert!(text.starts_with(r#"{"labels":{"a":"\u003cb\u003e"},"Spec":{"Volumes":null,"#), "{text}");
        assert!(text.ends_with(r#""WorkloadRef":null}}"#), "{text}");
    }

    #[test]
    fn shared_types_print_as_on_the_wire() {
        let selector = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
        check(selector, &json!({"matchLabels": {"a": "b"}}), r#"{"matchLabels":{"a":"b"}}"#);
    }

    #[test]
    fn host_namespaces_live_in_the_security_context() {
        let context = pod_spec(
            &json!({"hostNetwork": true, "hostUsers": false, "securityContext": {"runAsUser": 0}}),
            "SecurityContext",
            "SupplementalGroups",
        );
        assert_eq!(
            context,
            r#""SecurityContext":{"HostNetwork":true,"HostPID":false,"HostIPC":false,"ShareProcessNamespace":null,"HostUsers":false,"SELinuxOptions":null,"WindowsOptions":null,"RunAsUser":0,"RunAsGroup":null,"RunAsNonRoot":null"#
        );
        assert!(
            pod_spec(&json!({}), "SecurityContext", "SELinuxOptions").contains(r#"{"HostNetwork":false"#)
        );
    }

    #[test]
    fn the_old_name_of_a_service_account_counts_if_the_new_one_is_missing() {
        let old = json!({"serviceAccount": "old"});
        assert_eq!(
            pod_spec(&old, "ServiceAccountName", "AutomountServiceAccountToken"),
            r#""ServiceAccountName":"old""#
        );
        let both = json!({"serviceAccount": "old", "serviceAccountName": "new"});
        assert_eq!(
            pod_spec(&both, "ServiceAccountName", "AutomountServiceAccountToken"),
            r#""ServiceAccountName":"new""#
        );
    }

    #[test]
    fn inlined_structs_print_inlined() {
        let of = Pack::v1_35().named("io.k8s.api.core.v1.Volume").expect("the pack has Volume");
        let text = json(of, &json!({"name": "v", "emptyDir": {"sizeLimit": "1000m"}})).expect("has one");
        let start = r#"{"Name":"v","HostPath":null,"EmptyDir":{"Medium":"","SizeLimit":"1"},"GCEPersistentDisk":null"#;
        assert!(text.starts_with(start), "{text}");
    }

    #[test]
    fn text_of_a_secret_becomes_data() {
        let secret = json!({"data": {"a": "Zg=="}, "stringData": {"b": "foo"}});
        check(
            "io.k8s.api.core.v1.Secret",
            &secret,
            r#"{"Immutable":null,"Data":{"a":"Zg==","b":"Zm9v"},"Type":""}"#,
        );
    }

    #[test]
    fn single_addresses_rule_lists() {
        let status = |value: &Value| {
            let of = Pack::v1_35().named("io.k8s.api.core.v1.PodStatus").expect("the pack has PodStatus");
            json(of, value).expect("has one")
        };
        assert!(status(&json!({"podIP": "1", "podIPs": [{"ip": "2"}]})).contains(r#""PodIPs":[{"IP":"1"}]"#));
        assert!(status(&json!({"podIP": "1"})).contains(r#""PodIPs":[{"IP":"1"}]"#));
        assert!(
            status(&json!({"podIPs": [{"ip": "2"}, {"ip": "3"}]}))
                .contains(r#""PodIPs":[{"IP":"2"},{"IP":"3"}]"#)
        );
        let node = Pack::v1_35().named("io.k8s.api.core.v1.NodeSpec").expect("the pack has NodeSpec");
        assert!(json(node, &json!({"podCIDR": "1"})).expect("has one").starts_with(r#"{"PodCIDRs":["1"],"#));
    }

    #[test]
    fn some_types_have_no_counterpart() {
        for name in [
            "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec",
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinitionSpec",
        ] {
            let of = Pack::v1_35().named(name).expect("the pack has the type");
            assert_eq!(json(of, &json!({})), None, "{name}");
        }
    }
}
