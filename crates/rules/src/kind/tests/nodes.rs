//! Nodes, and what they say of themselves.

use serde_json::{Value, json};

use super::{create, endpoints, facts, kind_of, refused};
use crate::write::Refused;

#[test]
fn annotations_that_were_fields_of_nodes_are_read() {
    let of = |name: &str, text: &str, expected: &[&str]| {
        let name = format!("scheduler.alpha.kubernetes.io/{name}");
        refused("v1", "Node", false, json!({"metadata": {"annotations": {name: text}}}), expected);
    };
    of("taints", r#"[{"key": "a", "effect": "NoSchedule"}]"#, &[]);
    of("taints", "", &[]);
    let path = "metadata.annotations.scheduler.alpha.kubernetes.io";
    of(
        "taints",
        "x",
        &[
            "metadata.annotations: Invalid value: \"scheduler.alpha.kubernetes.io/taints\": invalid character 'x'",
        ],
    );
    of("taints", r#"[{"key": "a"}]"#, &[&format!("{path}/taints[0].effect: Required value")]);
    of("preferAvoidPods", "{}", &[]);
    of(
        "preferAvoidPods",
        "x",
        &[
            "metadata.annotations.AvoidPods: Invalid value: \"scheduler.alpha.kubernetes.io/preferAvoidPods\": invalid",
        ],
    );
    of(
        "preferAvoidPods",
        r#"{"preferAvoidPods": [{}]}"#,
        &[&format!("{path}/preferAvoidPods[0].PodSignature: Required value")],
    );
}

#[test]
fn a_node_says_which_features_it_has() {
    let facts = facts("v1", "Node", false);
    let mut old = create(&facts, json!({})).expect("a node").object;
    old["metadata"]["resourceVersion"] = json!("1");
    let check = |features: Value, expected: &[&str]| {
        let mut new = old.clone();
        new["status"]["declaredFeatures"] = features.clone();
        match endpoints::update_subresource(kind_of(&facts), &facts, "status", &new, &old, &Vec::new()) {
            Ok(accepted) => {
                assert!(expected.is_empty(), "{features} were accepted");
                assert_eq!(accepted.object["status"]["declaredFeatures"], features);
            }
            Err(Refused::Invalid(errors)) => crate::field::assert_starts(&errors, expected),
            Err(other) => panic!("{other}"),
        }
    };
    let path = "status.declaredFeatures";
    check(json!(["A", "MyFeature/mySubFeature"]), &[]);
    check(
        json!(["a"]),
        &[&format!("{path}[0]: Invalid value: \"a\": invalid feature name \"a\": must start with")],
    );
    check(json!(["A/"]), &[&format!("{path}[0]: Invalid value: \"A/\"")]);
    check(
        json!(["B", "A"]),
        &[&format!("{path}[1]: Invalid value: \"A\": list must be sorted alphabetically")],
    );
    check(json!(["A", "A"]), &[&format!("{path}[1]: Duplicate value: \"A\"")]);
}
