//! Changes of claims on storage.

use serde_json::{Value, json};

use super::{changed, create, endpoints, facts, kind_of};
use crate::write::Refused;

const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn claim() -> Value {
    json!({"metadata": {"annotations": {CLASS: "gold"}}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}})
}

#[test]
fn the_class_of_a_claim_moves_from_the_annotation_to_the_field() {
    let of = |change: &[(&str, Value)], expected: &[&str]| {
        changed("v1", "PersistentVolumeClaim", claim(), change, expected);
    };
    let field = |class: &str| ("/spec/storageClassName", json!(class));
    let annotations = |annotations: Value| ("/metadata/annotations", annotations);
    of(&[field("gold")], &[]);
    of(&[field("gold"), annotations(json!({}))], &[]);
    of(&[field("lead")], &["spec: Forbidden: spec is immutable"]);
    let immutable = format!("metadata.annotations.{CLASS}: Invalid value: ");
    of(&[annotations(json!({}))], &[&immutable]);
    of(&[field("gold"), annotations(json!({CLASS: "lead"}))], &[&immutable]);
}

/// The errors of a change of a claim that has such a status.
fn of_status(status: Value, subresource: &str, change: (&str, Value), expected: &[&str]) {
    let facts = facts("v1", "PersistentVolumeClaim", true);
    let mut old = create(&facts, claim()).expect("a claim").object;
    old["metadata"]["resourceVersion"] = json!("1");
    old["spec"]["volumeAttributesClassName"] = json!("silver");
    old["status"] = status;
    let mut new = old.clone();
    new[subresource][change.0] = change.1;
    let kind = kind_of(&facts);
    let done = match subresource {
        "status" => endpoints::update_subresource(kind, &facts, "status", &new, &old, &Vec::new()),
        _ => endpoints::update(kind, &facts, &new, &old, &Vec::new()),
    };
    match done {
        Ok(_) => assert!(expected.is_empty(), "the claim was accepted"),
        Err(Refused::Invalid(errors)) => crate::field::assert_starts(&errors, expected),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn what_a_volume_has_is_not_taken_from_its_claim() {
    let bound = json!({"phase": "Bound", "currentVolumeAttributesClassName": "silver"});
    let of = |class: Value, expected: &[&str]| {
        of_status(bound.clone(), "spec", ("volumeAttributesClassName", class), expected);
    };
    let path = "spec.volumeAttributesClassName: Forbidden: update to";
    of(json!("gold"), &[]);
    of(Value::Null, &[&format!("{path} nil is forbidden")]);
    of(json!(""), &[&format!("{path} empty string is forbidden")]);
    let fresh = json!({"phase": "Bound"});
    of_status(fresh, "spec", ("volumeAttributesClassName", Value::Null), &[]);
}

#[test]
fn a_claim_got_storage() {
    let of = |field: &str, value: Value, expected: &[&str]| {
        of_status(json!({"phase": "Bound"}), "status", (field, value), expected);
    };
    of("allocatedResources", json!({"storage": "1Gi", "example.com/a": "1"}), &[]);
    of("allocatedResourceStatuses", json!({"storage": "NodeResizePending"}), &[]);
    let negative = "status.allocatedResources[storage]: Invalid value: -1: must be a valid resource quantity";
    of("allocatedResources", json!({"storage": "-1"}), &[negative]);
    of("allocatedResources", json!({"cpu": "1"}), &["status.allocatedResources: Unsupported value: \"cpu\""]);
    let unknown = "status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \
                   \"ControllerResizeInProgress\"";
    of("allocatedResourceStatuses", json!({"storage": "x"}), &[unknown]);
}
