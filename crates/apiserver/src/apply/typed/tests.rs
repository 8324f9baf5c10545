use serde_json::json;

use super::super::schema::{Field, List, Map, Scalar};
use super::*;

/// A struct with every way to merge: the shapes of a pod, shortened.
struct Shapes {
    schema: Schema,
    root: TypeId,
}

fn shapes() -> Shapes {
    let mut schema = Schema::new();
    let string = schema.add(Scalar::String);
    let number = schema.add(Scalar::Numeric);
    let boolean = schema.add(Scalar::Boolean);
    let strings = schema.add(Map::of(string));
    let port = schema.add(Map::of_fields([
        Field::new("port", number),
        Field::new("protocol", string).or(json!("TCP")),
        Field::new("name", string),
    ]));
    let ports = schema.add(List::by_keys(port, ["port", "protocol"]));
    let args = schema.add(List::atomic(string));
    let container = schema.add(Map::of_fields([
        Field::new("name", string),
        Field::new("image", string),
        Field::new("args", args),
        Field::new("ports", ports),
    ]));
    let containers = schema.add(List::by_keys(container, ["name"]));
    let finalizers = schema.add(List::set(string));
    let selector = schema.add(Map::of(string).atomic());
    let root = schema.add(Map::of_fields([
        Field::new("labels", strings),
        Field::new("containers", containers),
        Field::new("finalizers", finalizers),
        Field::new("selector", selector),
        Field::new("replicas", number),
        Field::new("paused", boolean),
        Field::new("any", Schema::DEDUCED),
    ]));
    Shapes { schema, root }
}

impl Shapes {
    fn typed(&self, value: Value) -> Typed<'_> {
        Typed::new(&self.schema, self.root, value, Duplicates::Allowed).expect("a value of the type")
    }
}

fn set(fields: Value) -> Set {
    Set::from_fields_v1(&fields).expect("FieldsV1")
}

#[test]
fn r2_42_values_of_other_types_are_refused() {
    let shapes = shapes();
    let check = |value: Value, errors: &str| {
        let result = Typed::new(&shapes.schema, shapes.root, value, Duplicates::Refused);
        assert_eq!(result.expect_err(errors).to_string(), errors);
    };
    check(json!({"nope": 1}), ".nope: field not declared in schema");
    check(json!({"labels": {"a": 1}}), ".labels.a: expected string, got &value.valueUnstructured{Value:1}");
    check(json!({"labels": ["x"]}), ".labels: expected map, got &{[x]}");
    check(json!({"containers": {"a": 1}}), ".containers: expected list, got &{map[a:1]}");
    check(json!({"replicas": "2"}), ".replicas: expected numeric (int or float), got string");
    check(json!({"paused": 1}), ".paused: expected boolean, got &{1}");
    check(json!({"finalizers": ["a", "a"]}), ".finalizers: duplicate entries for key [=\"a\"]");
    check(
        json!({"finalizers": [{}]}),
        ".finalizers: element 0: associative list without keys has an element that's a map type",
    );
    check(
        json!({"finalizers": [null]}),
        ".finalizers: element 0: associative list without keys has an element that's an explicit null",
    );
    check(
        json!({"containers": [{"image": "x"}]}),
        ".containers: element 0: associative list with keys has an element that omits all key fields [\"name\"] \
         (and doesn't have default values for any key fields)",
    );
    check(
        json!({"containers": ["x"]}),
        ".containers: element 0: associative list with keys may not have non-map elements",
    );
    check(
        json!({"containers": [{"name": "c", "ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]}]}),
        ".containers[name=\"c\"].ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
    );
    check(
        json!({"replicas": true, "labels": {"a": []}}),
        "errors:\n  .labels.a: expected string, got &value.valueUnstructured{Value:[]interface {}{}}\n  \
         .replicas: expected numeric (int or float), got bool",
    );
    check(
        json!({"containers": [{"name": "c", "args": [1]}]}),
        ".containers[name=\"c\"].args[0]: expected string, got &value.valueUnstructured{Value:1}",
    );
}

#[test]
fn what_a_value_became_is_judged_as_if_nothing_was_known() {
    let shapes = shapes();
    let live = json!({
        "labels": {"a": "1", "b": "2"}, "replicas": 2, "finalizers": ["x"],
        "containers": [{"name": "c", "args": ["1"], "ports": [{"port": 80}]}],
    });
    let known = shapes.typed(live.clone());
    for (pointer, value) in [
        ("/labels/a", json!("2")),
        ("/labels/a", json!(1)),
        ("/labels", json!(["a"])),
        ("/replicas", json!("2")),
        ("/finalizers", json!(["x", "x"])),
        ("/finalizers", json!([{}])),
        ("/containers/0/name", json!("d")),
        ("/containers/0", json!({"args": ["1"], "ports": [{"port": 80}]})),
        ("/containers/0/args/0", json!(1)),
        ("/containers/0/ports/0", json!({"port": "80", "nope": 1})),
    ] {
        let mut new = live.clone();
        *new.pointer_mut(pointer).expect("a part of the value") = value;
        let told = |typed: Result<Typed<'_>, Errors>| typed.map(|_| ()).map_err(|why| why.to_string());
        assert_eq!(
            told(known.changed(&new)),
            told(Typed::borrowed(&shapes.schema, shapes.root, &new)),
            "{new}"
        );
    }
}

#[test]
fn null_has_every_type() {
    shapes().typed(json!({"labels": null, "containers": null, "replicas": null, "any": null}));
}

#[test]
fn r2_42_field_sets_follow_the_list_and_map_types() {
    let shapes = shapes();
    let check =
        |value: Value, fields: Value| assert_eq!(shapes.typed(value).field_set().to_fields_v1(), fields);
    check(json!({"replicas": 1, "labels": {"a": "b"}}), json!({"f:replicas": {}, "f:labels": {"f:a": {}}}));
    check(
        json!({"labels": {}, "containers": [], "selector": {"a": "b"}}),
        json!({"f:labels": {}, "f:selector": {}}),
    );
    check(
        json!({"containers": [{"name": "c", "args": ["x"], "ports": [{"port": 80}]}]}),
        json!({"f:containers": {"k:{\"name\":\"c\"}": {
            ".": {}, "f:name": {}, "f:args": {},
            "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}}),
    );
    check(json!({"finalizers": ["a", "b", "a"]}), json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}));
    check(
        json!({"containers": [{"name": "c", "image": "1"}, {"name": "c"}]}),
        json!({"f:containers": {"k:{\"name\":\"c\"}": {}}}),
    );
    check(
        json!({"any": {"a": {"b": 1}, "l": [{"x": 1}], "n": null}}),
        json!({"f:any": {"f:a": {".": {}, "f:b": {}}, "f:l": {}, "f:n": {}}}),
    );
}

#[test]
fn r2_43_merging_keeps_what_is_not_mentioned() {
    let shapes = shapes();
    let check = |left: Value, right: Value, merged: Value| {
        let result = shapes.typed(left).merge(&shapes.typed(right)).expect("a merge");
        assert_eq!(result.into_value(), merged);
    };
    check(
        json!({"labels": {"a": "1", "b": "1"}}),
        json!({"labels": {"b": "2"}}),
        json!({"labels": {"a": "1", "b": "2"}}),
    );
    check(json!({"selector": {"a": "1"}}), json!({"selector": {"b": "2"}}), json!({"selector": {"b": "2"}}));
    check(json!({"labels": {"a": "1"}}), json!({"labels": null}), json!({"labels": {"a": "1"}}));
    check(json!({"labels": {}}), json!({"labels": null}), json!({"labels": null}));
    check(json!({"replicas": 1}), json!({"replicas": null}), json!({"replicas": null}));
    check(
        json!({"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "2", "args": []}]}),
        json!({"containers": [{"name": "c"}, {"name": "a", "image": "2", "args": []}, {"name": "b"}]}),
    );
    check(json!({"any": {"a": [1]}}), json!({"any": {"a": {"b": 1}}}), json!({"any": {"a": {"b": 1}}}));
}

#[test]
fn r2_43_merged_lists_take_the_order_of_the_right() {
    let shapes = shapes();
    let check = |left: &str, right: &str, merged: &str| {
        let list = |text: &str| json!({"finalizers": text.split_terminator("").skip(1).collect::<Vec<_>>()});
        let result = shapes.typed(list(left)).merge(&shapes.typed(list(right))).expect("a merge");
        assert_eq!(result.into_value(), list(merged), "{left} with {right}");
    };
    check("abc", "abc", "abc");
    check("abc", "cba", "cba");
    check("abc", "d", "abcd");
    check("abcd", "bx", "abcdx");
    check("abcd", "db", "acdb");
    check("1234", "4x1", "234x1");
    check("ab", "xayb", "xayb");
}

#[test]
fn r2_45_comparing_tells_added_modified_and_removed() {
    let shapes = shapes();
    let check = |left: Value, right: Value, added: Value, modified: Value, removed: Value| {
        let changes = shapes.typed(left).compare(&shapes.typed(right)).expect("a comparison");
        let found =
            (changes.added.to_fields_v1(), changes.modified.to_fields_v1(), changes.removed.to_fields_v1());
        assert_eq!(found, (added, modified, removed));
    };
    let none = || json!({});
    check(json!({"replicas": 1}), json!({"replicas": 1.0}), none(), none(), none());
    check(
        json!({"labels": {"a": "1", "b": "1"}, "replicas": 1}),
        json!({"labels": {"a": "2", "c": "1"}}),
        json!({"f:labels": {"f:c": {}}}),
        json!({"f:labels": {"f:a": {}}}),
        json!({"f:labels": {"f:b": {}}, "f:replicas": {}}),
    );
    check(none(), json!({"labels": {"a": "1"}}), json!({"f:labels": {".": {}, "f:a": {}}}), none(), none());
    check(
        json!({"labels": null}),
        json!({"labels": {"a": "1"}}),
        json!({"f:labels": {"f:a": {}}}),
        none(),
        none(),
    );
    check(json!({"labels": {}}), json!({"labels": null}), none(), json!({"f:labels": {}}), none());
    check(
        json!({"containers": [{"name": "a", "args": ["1"]}]}),
        json!({"containers": [{"name": "b"}, {"name": "a", "args": ["2"]}]}),
        json!({"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}),
        json!({"f:containers": {"k:{\"name\":\"a\"}": {"f:args": {}}}}),
        none(),
    );
    check(
        json!({"finalizers": ["a", "a", "b"]}),
        json!({"finalizers": ["a", "b", "b"]}),
        json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}),
        none(),
        json!({"f:finalizers": {"v:\"a\"": {}, "v:\"b\"": {}}}),
    );
    check(
        json!({"any": {"a": "x"}}),
        json!({"any": {"a": {"b": 1}}}),
        json!({"f:any": {"f:a": {"f:b": {}}}}),
        json!({"f:any": {"f:a": {}}}),
        none(),
    );
}

#[test]
fn removing_and_extracting_divide_a_value() {
    let shapes = shapes();
    let value = json!({"labels": {"a": "1", "b": "2"}, "replicas": 1,
        "containers": [{"name": "a", "image": "1"}, {"name": "b"}], "selector": {"x": "y"}});
    let items = set(json!({"f:labels": {"f:a": {}}, "f:replicas": {}, "f:containers": {
        "k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"b\"}": {}}}));
    let typed = shapes.typed(value);
    assert_eq!(
        typed.remove(&items).into_value(),
        json!({"labels": {"b": "2"}, "containers": [{"name": "a"}], "selector": {"x": "y"}})
    );
    assert_eq!(
        typed.extract(&items).into_value(),
        json!({"labels": {"a": "1"}, "replicas": 1, "containers": [{"image": "1"}, null]})
    );
    let keys = typed.key_fields(&items);
    assert_eq!(
        typed.extract(&items.union(&keys)).into_value(),
        json!({"labels": {"a": "1"}, "replicas": 1, "containers": [{"name": "a", "image": "1"}, null, {"name": "b"}]})
    );
    assert_eq!(typed.remove(&set(json!({"f:selector": {"f:x": {}}}))).value()["selector"], Value::Null);
}

#[test]
fn a_type_that_became_atomic_is_owned_as_one_value() {
    let shapes = shapes();
    let typed = shapes.typed(json!({}));
    let check = |before: Value, after: Option<Value>| {
        assert_eq!(typed.reconcile(&set(before)).map(|it| it.to_fields_v1()), after);
    };
    check(
        json!({"f:selector": {"f:a": {}, "f:b": {}}, "f:replicas": {}}),
        Some(json!({"f:selector": {}, "f:replicas": {}})),
    );
    check(json!({"f:selector": {}}), None);
    check(json!({"f:labels": {"f:a": {}}, "f:any": {"f:x": {"f:y": {}}}}), None);
    check(
        json!({"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {"v:\"x\"": {}}}}}),
        Some(json!({"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:args": {}}}})),
    );
}

#[test]
fn structs_on_the_way_become_members_but_map_entries_do_not() {
    let shapes = shapes();
    let named = shapes.typed(json!({})).with_named_fields(&set(json!({
        "f:labels": {"f:a": {}}, "f:any": {"f:x": {"f:y": {}}},
        "f:containers": {"k:{\"name\":\"c\"}": {"f:ports": {"k:{\"port\":1}": {"f:name": {}}}}}})));
    assert_eq!(
        named.to_fields_v1(),
        json!({"f:labels": {".": {}, "f:a": {}}, "f:any": {".": {}, "f:x": {"f:y": {}}},
            "f:containers": {".": {}, "k:{\"name\":\"c\"}": {"f:ports": {".": {}, "k:{\"port\":1}": {"f:name": {}}}}}})
    );
}
