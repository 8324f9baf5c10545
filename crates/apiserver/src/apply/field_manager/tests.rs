use serde_json::json;

use super::super::filter::Filter;
use super::super::schema::{Field, List, Map as MapType, Scalar, Schema, TypeId};
use super::super::tracked::remove_managed_fields;
use super::object::MANAGED_FIELDS;
use super::*;

/// A kind in two versions: `v2` calls `replicas` `count`. `v0` was once served.
struct Widgets {
    schema: Schema,
    v1: TypeId,
    v2: TypeId,
}

impl Widgets {
    fn new() -> Widgets {
        let mut schema = Schema::new();
        let string = schema.add(Scalar::String);
        let number = schema.add(Scalar::Numeric);
        let strings = schema.add(MapType::of(string));
        let set = schema.add(List::set(string));
        let metadata = schema.add(MapType::of_fields([
            Field::new("name", string),
            Field::new("namespace", string),
            Field::new("uid", string),
            Field::new("resourceVersion", string),
            Field::new("labels", strings),
            Field::new("annotations", strings),
            Field::new("finalizers", set),
        ]));
        let port = schema.add(MapType::of_fields([
            Field::new("port", number),
            Field::new("protocol", string).or(json!("TCP")),
            Field::new("name", string),
        ]));
        let ports = schema.add(List::by_keys(port, ["port", "protocol"]));
        let selector = schema.add(MapType::of(string).atomic());
        let mut version = |replicas: &str| {
            let spec = schema.add(MapType::of_fields([
                Field::new(replicas, number),
                Field::new("ports", ports),
                Field::new("selector", selector),
                Field::new("image", string),
            ]));
            let status = schema.add(MapType::of_fields([Field::new("ready", number)]));
            schema.add(MapType::of_fields([
                Field::new("apiVersion", string),
                Field::new("kind", string),
                Field::new("metadata", metadata),
                Field::new("spec", spec),
                Field::new("status", status),
                Field::new("data", strings),
            ]))
        };
        let (v1, v2) = (version("replicas"), version("count"));
        Widgets { schema, v1, v2 }
    }
}

impl Versions for Widgets {
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)> {
        match version {
            "example.com/v1" => Some((&self.schema, self.v1)),
            "example.com/v2" => Some((&self.schema, self.v2)),
            _ => None,
        }
    }

    fn convert(&self, object: &Value, version: &str) -> Result<Value, String> {
        let (from, to) =
            if version == "example.com/v2" { ("replicas", "count") } else { ("count", "replicas") };
        let mut converted = object.clone();
        converted["apiVersion"] = json!(version);
        if let Some(Value::Object(spec)) = converted.get_mut("spec")
            && let Some(replicas) = spec.remove(from)
        {
            spec.insert(to.into(), replicas);
        }
        Ok(converted)
    }
}

/// One object, and who does what to it at which second.
struct Story {
    widgets: Widgets,
    reset: Filters,
    empty: Value,
    object: Value,
    now: Timestamp,
    version: &'static str,
    subresource: &'static str,
}

fn story() -> Story {
    let empty = json!({"apiVersion": "example.com/v1", "kind": "Widget"});
    Story {
        widgets: Widgets::new(),
        reset: Filters::new(),
        object: empty.clone(),
        empty,
        now: "2024-01-01T00:00:00Z".parse().expect("a time"),
        version: "example.com/v1",
        subresource: "",
    }
}

/// An object after a write that was no apply.
fn updated(
    manager: &FieldManager<'_>,
    live: Value,
    mut new: Value,
    who: &str,
    now: Timestamp,
) -> Result<Value, UpdateError> {
    let brought = remove_managed_fields(&mut new);
    let managers = manager.update(&Tracked::of(live), &new, brought.as_ref(), who, now)?;
    Ok(Tracked { object: new, managers }.into_whole())
}

impl Story {
    fn manager(&self) -> FieldManager<'_> {
        FieldManager {
            versions: &self.widgets,
            version: self.version,
            kind: "Widget",
            subresource: self.subresource,
            reset: &self.reset,
            empty: &self.empty,
        }
    }

    fn config(&self, fields: Value) -> Value {
        let mut config = json!({"apiVersion": self.version, "kind": "Widget", "metadata": {"name": "w"}});
        merge(&mut config, fields);
        config
    }

    fn try_apply(&mut self, who: &str, fields: Value, force: bool) -> Result<(), ApplyError> {
        self.now += jiff::SignedDuration::from_secs(1);
        let live = self.widgets.convert(&self.object, self.version).expect("a conversion");
        let applied = self.manager().apply(&Tracked::of(live), self.config(fields), who, force, self.now)?;
        self.object = applied.into_whole();
        self.object["metadata"]["uid"] = json!("u");
        Ok(())
    }

    fn apply(mut self, who: &str, fields: Value) -> Story {
        self.try_apply(who, fields, false).unwrap_or_else(|error| panic!("{who}: {error}"));
        self
    }

    fn force(mut self, who: &str, fields: Value) -> Story {
        self.try_apply(who, fields, true).unwrap_or_else(|error| panic!("{who}: {error}"));
        self
    }

    fn conflicts(mut self, who: &str, fields: Value, message: &str) -> Story {
        let error = self.try_apply(who, fields, false).expect_err(message);
        assert!(matches!(error, ApplyError::Conflicts(_)), "{error}");
        assert_eq!(error.to_string(), message);
        self
    }

    /// A merge patch.
    fn patch(mut self, who: &str, fields: Value) -> Story {
        self.now += jiff::SignedDuration::from_secs(1);
        let live = self.widgets.convert(&self.object, self.version).expect("a conversion");
        let mut new = live.clone();
        merge(&mut new, fields);
        self.object = updated(&self.manager(), live, new, who, self.now).expect("an update");
        self.object["metadata"]["uid"] = json!("u");
        self
    }

    fn in_version(mut self, version: &'static str) -> Story {
        self.version = version;
        self
    }

    fn through(mut self, subresource: &'static str) -> Story {
        self.subresource = subresource;
        self
    }

    fn check(self, pointer: &str, value: Value) -> Story {
        assert_eq!(self.object.pointer(pointer).unwrap_or(&Value::Null), &value, "{}", self.object);
        self
    }

    /// Who manages what since which second: `name operation seconds fields`.
    fn managed(self, expected: &[(&str, &str, Option<i64>, Value)]) -> Story {
        let none = Vec::new();
        let entries = self.object.pointer(MANAGED_FIELDS).and_then(Value::as_array).unwrap_or(&none);
        let start: Timestamp = "2024-01-01T00:00:00Z".parse().expect("a time");
        let found: Vec<_> = entries
            .iter()
            .map(|entry| {
                let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                let time: Option<Timestamp> =
                    entry["time"].as_str().map(|time| time.parse().expect("a time"));
                let seconds = time.map(|time| time.as_second() - start.as_second());
                let how = format!(
                    "{} {}{}",
                    text("operation"),
                    text("apiVersion").replace("example.com/", ""),
                    entry["subresource"].as_str().map(|it| format!(" {it}")).unwrap_or_default()
                );
                (text("manager"), how, seconds, entry["fieldsV1"].clone())
            })
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(name, how, seconds, fields)| (name.to_string(), how.to_string(), *seconds, fields.clone()))
            .collect();
        assert_eq!(found, expected);
        self
    }
}

fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (name, value) in patch {
                if value.is_null() {
                    into.remove(&name);
                } else {
                    merge(into.entry(name).or_insert(Value::Null), value);
                }
            }
        }
        (into, patch) => *into = patch,
    }
}

#[test]
fn r2_43_appliers_share_an_object() {
    story()
        .apply("a", json!({"data": {"k": "v"}}))
        .apply("b", json!({"data": {"x": "v"}}))
        .check("/data", json!({"k": "v", "x": "v"}))
        .managed(&[
            ("a", "Apply v1", Some(1), json!({"f:data": {"f:k": {}}})),
            ("b", "Apply v1", Some(2), json!({"f:data": {"f:x": {}}})),
        ]);
}

#[test]
fn r2_43_what_is_not_applied_again_is_pruned_unless_another_has_it() {
    story()
        .apply("a", json!({"data": {"k": "v", "shared": "s"}, "spec": {"image": "i", "ports": [{"port": 80, "name": "p"}]}}))
        .apply("b", json!({"data": {"shared": "s"}, "spec": {"ports": [{"port": 80}]}}))
        .apply("a", json!({"data": {"new": "n"}}))
        .check("/data", json!({"new": "n", "shared": "s"}))
        .check("/spec", json!({"ports": [{"port": 80}]}))
        .managed(&[
            ("b", "Apply v1", None, json!({"f:data": {"f:shared": {}},
                "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}})),
            ("a", "Apply v1", Some(3), json!({"f:data": {"f:new": {}}})),
        ]);
}

#[test]
fn r2_43_an_item_goes_with_what_updaters_added_to_it() {
    story()
        .apply("a", json!({"spec": {"ports": [{"port": 80}, {"port": 90}]}}))
        .patch("controller", json!({"spec": {"ports": [{"port": 80, "name": "http"}, {"port": 90}]}}))
        .apply("a", json!({"spec": {"ports": [{"port": 90}]}}))
        .check("/spec/ports", json!([{"port": 90}]))
        .managed(&[(
            "a",
            "Apply v1",
            Some(3),
            json!({"f:spec": {"f:ports": {"k:{\"port\":90,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}}),
        )]);
}

#[test]
fn r2_43_what_nobody_manages_stays() {
    let mut story = story().apply("a", json!({"spec": {"replicas": 1, "ports": [{"port": 80}]}}));
    story.object["spec"]["image"] = json!("a default");
    story
        .apply("a", json!({"spec": {"ports": [{"port": 80}]}}))
        .check("/spec", json!({"image": "a default", "ports": [{"port": 80}]}));
}

#[test]
fn r2_44_changing_anothers_field_is_a_conflict() {
    story()
        .apply("a", json!({"data": {"k": "v"}, "spec": {"replicas": 1}}))
        .patch("hpa", json!({"spec": {"replicas": 2}}))
        .conflicts(
            "b",
            json!({"data": {"k": "w"}}),
            "Apply failed with 1 conflict: conflict with \"a\": .data.k",
        )
        .conflicts(
            "b",
            json!({"data": {"k": "w"}, "spec": {"replicas": 3}}),
            "Apply failed with 2 conflicts: conflicts with \"a\":\n- .data.k\nconflicts with \"hpa\" using \
             example.com/v1:\n- .spec.replicas",
        )
        .apply("b", json!({"data": {"k": "v"}}))
        .force("b", json!({"data": {"k": "w"}, "spec": {"replicas": 3}}))
        .check("/data/k", json!("w"))
        .managed(&[("b", "Apply v1", Some(6), json!({"f:data": {"f:k": {}}, "f:spec": {"f:replicas": {}}}))]);
}

#[test]
fn r2_44_conflicts_name_the_subresource() {
    story()
        .apply("a", json!({"spec": {"replicas": 1}}))
        .through("scale")
        .patch("hpa", json!({"spec": {"replicas": 2}}))
        .managed(&[("hpa", "Update v1 scale", Some(2), json!({"f:spec": {"f:replicas": {}}}))])
        .through("")
        .conflicts(
            "a",
            json!({"spec": {"replicas": 1}}),
            "Apply failed with 1 conflict: conflict with \"hpa\" with subresource \"scale\" using example.com/v1: \
             .spec.replicas",
        );
}

#[test]
fn r2_45_applying_the_same_changes_nothing() {
    let story = story().apply("a", json!({"data": {"k": "v"}})).apply("b", json!({"data": {"k": "v"}}));
    let before = story.object.clone();
    let story = story.apply("a", json!({"data": {"k": "v"}}));
    assert_eq!(story.object, before);
    story.managed(&[
        ("b", "Apply v1", None, json!({"f:data": {"f:k": {}}})),
        ("a", "Apply v1", Some(1), json!({"f:data": {"f:k": {}}})),
    ]);
}

#[test]
fn r2_45_updates_take_fields_and_keep_their_own() {
    story()
        .patch("u", json!({"metadata": {"name": "w", "labels": {"a": "1"}}, "data": {"k": "v", "l": "v"}}))
        .patch("u", json!({"data": {"k": "w"}}))
        .patch("other", json!({"data": {"l": null, "m": "1"}}))
        .managed(&[
            (
                "u",
                "Update v1",
                Some(2),
                json!({"f:data": {".": {}, "f:k": {}},
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}}}),
            ),
            ("other", "Update v1", Some(3), json!({"f:data": {"f:m": {}}})),
        ]);
}

#[test]
fn r2_45_the_oldest_of_many_updaters_are_merged() {
    let mut story = story().apply("applier", json!({"data": {"applied": "v"}}));
    for i in 0..12 {
        story = story.patch(&format!("m{i:02}"), json!({"data": {format!("k{i}"): "v"}}));
    }
    let fields = |i: usize| json!({"f:data": {format!("f:k{i}"): {}}});
    let names: Vec<String> = (3..12).map(|i| format!("m{i:02}")).collect();
    let mut expected = vec![
        ("applier", "Apply v1", Some(1), json!({"f:data": {"f:applied": {}}})),
        ("ancient-changes", "Update v1", Some(4), json!({"f:data": {"f:k0": {}, "f:k1": {}, "f:k2": {}}})),
    ];
    expected.extend(names.iter().zip(3..).map(|(name, i)| {
        (name.as_str(), "Update v1", Some(i64::try_from(i).expect("small") + 2), fields(i))
    }));
    story.managed(&expected);
}

#[test]
fn r2_46_reset_fields_are_not_managed() {
    let mut story = story();
    let status = Set::from_fields_v1(&json!({"f:status": {}})).expect("FieldsV1");
    story.reset = [("example.com/v1".to_owned(), Filter::Except(status))].into();
    story
        .apply("a", json!({"data": {"k": "v"}, "status": {"ready": 1}}))
        .managed(&[("a", "Apply v1", Some(1), json!({"f:data": {"f:k": {}}}))])
        .apply("b", json!({"status": {"ready": 2}}))
        .managed(&[("a", "Apply v1", Some(1), json!({"f:data": {"f:k": {}}}))]);
}

#[test]
fn r2_43_fields_from_before_get_a_manager_of_their_own() {
    let mut story = story();
    story.object = story.config(json!({"data": {"k": "v"}, "metadata": {"uid": "u"}}));
    story
        .patch("u", json!({"data": {"l": "v"}}))
        .managed(&[])
        .conflicts(
            "a",
            json!({"data": {"k": "w"}}),
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using example.com/v1: .data.k",
        )
        .apply("a", json!({"data": {"k": "v"}}))
        .managed(&[
            ("a", "Apply v1", None, json!({"f:data": {"f:k": {}}})),
            ("before-first-apply", "Update v1", Some(3), json!({"f:data": {".": {}, "f:k": {}, "f:l": {}}})),
        ]);
}

#[test]
fn r2_47_managers_can_be_cleared_and_edited() {
    let stolen = json!([{"manager": "s", "operation": "Apply", "apiVersion": "example.com/v1",
        "time": "2024-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}}]);
    let mut broken = stolen.clone();
    broken[0]["operation"] = json!("Nope");
    story()
        .apply("a", json!({"data": {"k": "v"}}))
        .patch("u", json!({"metadata": {"managedFields": stolen}}))
        .managed(&[("s", "Apply v1", Some(0), json!({"f:data": {"f:k": {}}}))])
        .patch("u", json!({"metadata": {"managedFields": broken}}))
        .managed(&[("s", "Apply v1", Some(0), json!({"f:data": {"f:k": {}}}))])
        .through("status")
        .patch("u", json!({"metadata": {"managedFields": []}}))
        .managed(&[("s", "Apply v1", Some(0), json!({"f:data": {"f:k": {}}}))])
        .through("")
        .patch("u", json!({"metadata": {"managedFields": [{}]}}))
        .managed(&[])
        .patch("u", json!({"data": {"l": "v"}}))
        .managed(&[]);
}

#[test]
fn r2_47_versions_that_are_gone_are_dropped() {
    let mut story = story().apply("a", json!({"data": {"k": "v"}}));
    let gone = json!({"manager": "old", "operation": "Update", "apiVersion": "example.com/v0",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}});
    story.object["metadata"]["managedFields"].as_array_mut().expect("entries").push(gone);
    story.force("b", json!({"data": {"k": "w"}})).managed(&[(
        "b",
        "Apply v1",
        Some(2),
        json!({"f:data": {"f:k": {}}}),
    )]);
}

#[test]
fn managers_of_two_versions_see_the_same_field() {
    story()
        .apply("a", json!({"spec": {"replicas": 1, "image": "i"}}))
        .in_version("example.com/v2")
        .conflicts(
            "b",
            json!({"spec": {"count": 2}}),
            "Apply failed with 1 conflict: conflict with \"a\": .spec.replicas",
        )
        .force("b", json!({"spec": {"count": 2}}))
        .check("/spec", json!({"count": 2, "image": "i"}))
        .apply("a", json!({"spec": {"count": 2}}))
        .check("/spec", json!({"count": 2}))
        .managed(&[
            ("b", "Apply v2", Some(3), json!({"f:spec": {"f:count": {}}})),
            ("a", "Apply v2", Some(4), json!({"f:spec": {"f:count": {}}})),
        ])
        .in_version("example.com/v1")
        .patch("u", json!({"spec": {"replicas": 5}}))
        .managed(&[("u", "Update v1", Some(5), json!({"f:spec": {"f:replicas": {}}}))]);
}

#[test]
fn r2_41_what_cannot_be_applied_says_why() {
    let story = story().apply("a", json!({"data": {"k": "v"}}));
    let check = |config: Value, error: ApplyError| {
        let live = Tracked::of(story.object.clone());
        assert_eq!(story.manager().apply(&live, config, "a", false, story.now), Err(error));
    };
    let bad = |message: &str| ApplyError::BadRequest(message.into());
    let failed = |message: &str| ApplyError::Failed(message.into());
    check(json!({}), bad("invalid object type: /, Kind="));
    check(json!({"apiVersion": "v1", "kind": "Secret"}), bad("invalid object type: /v1, Kind=Secret"));
    check(json!({"apiVersion": "a/b/c", "kind": "Widget"}), bad("invalid object type: /, Kind="));
    check(
        json!({"apiVersion": "example.com/v2", "kind": "Widget"}),
        bad("invalid object type: example.com/v2, Kind=Widget"),
    );
    check(
        story.config(json!({"metadata": {"managedFields": []}})),
        bad("metadata.managedFields must be nil"),
    );
    check(
        story.config(json!({"metadata": {"managedFields": [{"manager": "x"}]}})),
        bad("metadata.managedFields must be nil"),
    );
    check(
        story.config(json!({"nope": 1})),
        failed(
            "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .nope: field not declared in schema",
        ),
    );
    check(
        story.config(json!({"metadata": {"finalizers": ["a", "a"]}})),
        failed(
            "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .metadata.finalizers: duplicate \
             entries for key [=\"a\"]",
        ),
    );
    check(
        story.config(json!({"spec": {"image": 1_000_000}})),
        failed(
            "failed to create typed patch object (/w; example.com/v1, Kind=Widget): .spec.image: expected string, \
             got &value.valueUnstructured{Value:1e+06}",
        ),
    );
}

#[test]
fn r2_48_kubectl_keeps_its_annotation_up_to_date() {
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let applied = "{\"apiVersion\":\"example.com/v1\",\"kind\":\"Widget\",\"metadata\":{\"name\":\"w\"},\
                   \"spec\":{\"replicas\":2}}\n";
    story()
        .patch("u", json!({"metadata": {"name": "w", "annotations": {last: "{}"}}}))
        .apply("kubectl", json!({"spec": {"replicas": 2}}))
        .check("/metadata/annotations", json!({last: applied}))
        .apply("other", json!({"data": {"k": "v"}}))
        .check("/metadata/annotations", json!({last: applied}));
}

#[test]
fn r2_48_kubectl_takes_over_from_its_client_side() {
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let before = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "data": {"k": "v", "l": "v"}});
    let client_side = || {
        let mut object = before.clone();
        object["metadata"]["annotations"] = json!({last: before.to_string()});
        story().patch("kubectl-client-side-apply", object)
    };
    client_side()
        .apply("kubectl", json!({"data": {"k": "w", "l": "v"}}))
        .check("/data", json!({"k": "w", "l": "v"}));
    client_side().patch("u", json!({"data": {"l": "u"}})).conflicts(
        "kubectl",
        json!({"data": {"k": "w", "l": "w"}}),
        "Apply failed with 1 conflict: conflict with \"u\" using example.com/v1: .data.l",
    );
    client_side().conflicts(
        "someone",
        json!({"data": {"k": "w"}}),
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using example.com/v1: .data.k",
    );
}

#[test]
fn a_write_that_does_not_fit_leaves_no_managers() {
    let story = story().apply("a", json!({"data": {"k": "v"}}));
    let mut new = story.object.clone();
    new["data"] = json!([]);
    let error = updated(&story.manager(), story.object.clone(), new, "u", story.now).expect_err("an error");
    assert_eq!(
        error.to_string(),
        "failed to convert new object (/w; example.com/v1, Kind=Widget) to smd typed: .data: expected map, got &{[]}"
    );
}
