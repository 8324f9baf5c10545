use proptest::prelude::*;
use serde_json::json;

use super::*;

/// A set from its wire form, be that a tree or a text.
fn set(fields: Value) -> Set {
    let set = Set::from_fields_v1(&fields).expect("FieldsV1");
    assert_eq!(serde_json::from_value::<Set>(fields.clone()).expect("FieldsV1"), set);
    assert_eq!(serde_json::from_str::<Set>(&fields.to_string()).expect("FieldsV1"), set);
    set
}

#[test]
fn r2_47_fields_v1_is_read_and_written() {
    let check = |fields: Value| assert_eq!(set(fields.clone()).to_fields_v1(), fields);
    check(json!({}));
    check(json!({"f:a": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {"f:e": {}}}));
    check(
        json!({"f:list": {"k:{\"name\":\"c\",\"port\":80}": {".": {}, "f:name": {}}, "v:\"x\"": {}, "i:1": {}}}),
    );
    assert_eq!(set(json!({"f:a": {}, "r:new": {"x": 1}})).to_fields_v1(), json!({"f:a": {}}));
    assert_eq!(set(json!({"f:a": {"r:new": {}}})).to_fields_v1(), json!({"f:a": {}}));
    assert_eq!(set(json!({"f:a": {".": 5}})).to_fields_v1(), json!({"f:a": {}}));
    assert_eq!(set(json!({"f:a": null})).to_fields_v1(), json!({"f:a": {}}));
    assert_eq!(set(json!(null)), Set::new());
}

#[test]
fn r2_47_the_text_is_in_the_order_of_steps() {
    let text = r#"{"f:a":{".":{},"f:b":{}},"k:{\"p\":9}":{},"k:{\"p\":10}":{},"v:2":{},"v:\"<\\u003c\"":{},"i:0":{}}"#;
    let text = text.replace("<\\\\u003c", "\\\\u003c");
    let fields = serde_json::from_str(&text).expect("JSON");
    assert_eq!(set(fields).to_json(), text);
}

#[test]
fn r2_47_other_json_is_refused() {
    for fields in [json!(5), json!([]), json!({"f:a": "x"}), json!({"nope": {}}), json!({"f:a": {"v:x": {}}})]
    {
        assert!(Set::from_fields_v1(&fields).is_err(), "{fields}");
        assert!(serde_json::from_value::<Set>(fields).is_err());
    }
}

#[test]
fn a_parent_and_its_children_are_different_members() {
    let parent = set(json!({"f:a": {}}));
    let child = set(json!({"f:a": {"f:b": {}}}));
    let both = set(json!({"f:a": {".": {}, "f:b": {}}}));
    assert_eq!(parent.union(&child), both);
    assert_eq!(parent.intersection(&child), Set::new());
    assert_eq!(parent.difference(&child), parent);
    assert_eq!(child.difference(&parent), child);
    assert_eq!(both.difference(&parent), child);
    assert_eq!(both.recursive_difference(&parent), Set::new());
    assert_eq!(both.recursive_difference(&child), parent);
}

#[test]
fn prints_members_before_what_is_below_them() {
    let set = set(json!({"f:b": {".": {}, "f:x": {}}, "f:a": {"f:y": {}}, "f:c": {}}));
    assert_eq!(set.to_string(), ".b\n.c\n.a.y\n.b.x");
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        "[abc]".prop_map(|name| PathElement::field(&name)),
        (0..3_i64).prop_map(|port| PathElement::key([("port", json!(port))])),
        prop_oneof![Just(json!("x")), Just(json!(1)), Just(json!(true))].prop_map(PathElement::Value),
        (0..3_i64).prop_map(PathElement::Index),
    ]
}

fn sets() -> impl Strategy<Value = Set> {
    proptest::collection::vec(proptest::collection::vec(element(), 1..4), 0..12)
        .prop_map(|paths| paths.iter().map(Vec::as_slice).collect())
}

proptest! {
    #[test]
    fn sets_obey_the_laws_of_sets(a in sets(), b in sets(), c in sets()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert!(a.recursive_difference(&a).is_empty());
        prop_assert_eq!(a.recursive_difference(&b).difference(&b), a.recursive_difference(&b));
    }

    #[test]
    fn membership_agrees_with_the_operations(a in sets(), b in sets(), path in proptest::collection::vec(element(), 1..4)) {
        let (in_a, in_b) = (a.contains(&path), b.contains(&path));
        prop_assert_eq!(a.union(&b).contains(&path), in_a || in_b);
        prop_assert_eq!(a.intersection(&b).contains(&path), in_a && in_b);
        prop_assert_eq!(a.difference(&b).contains(&path), in_a && !in_b);
        let below = (1..=path.len()).any(|end| b.contains(&path[..end]));
        prop_assert_eq!(a.recursive_difference(&b).contains(&path), in_a && !below);
    }

    #[test]
    fn every_set_survives_the_wire(a in sets()) {
        prop_assert_eq!(Set::from_fields_v1(&a.to_fields_v1()), Ok(a));
    }
}
