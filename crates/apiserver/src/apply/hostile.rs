//! Whatever clients send, no part of server-side apply or of patching panics, and what it promises holds.

use jiff::Timestamp;
use proptest::prelude::*;
use schema::Pack;
use serde_json::{Map, Value, json};

use super::updater::Versions;
use super::{
    BuiltIn, Duplicates, FieldManager, Filters, PathElement, Schema, Set, Tracked, TypeId, Typed, managers,
};
use crate::patch;

/// Any JSON, with names that mean something to somebody.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        "[a-c]",
        "\\PC{0,3}",
        prop::sample::select(vec![
            "apiVersion",
            "kind",
            "metadata",
            "name",
            "spec",
            "template",
            "containers",
            "ports",
            "containerPort",
            "protocol",
            "env",
            "finalizers",
            "labels",
            "annotations",
            "managedFields",
            "manager",
            "operation",
            "fieldsType",
            "fieldsV1",
            "time",
            "f:spec",
            "f:metadata",
            "k:{\"name\":\"a\"}",
            "v:1",
            "i:0",
            ".",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "$setElementOrder",
            "kubectl.kubernetes.io/last-applied-configuration",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        name.clone().prop_map(Value::from),
        prop::sample::select(vec![
            "Apply", "Update", "FieldsV1", "batch/v1", "Job", "delete", "replace", "/a/0", "-1"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A Job with some of its parts replaced.
fn any_job() -> impl Strategy<Value = Value> {
    let places = prop::sample::select(vec![
        "/metadata",
        "/metadata/labels",
        "/metadata/managedFields",
        "/metadata/finalizers",
        "/metadata/annotations",
        "/spec",
        "/spec/template/spec/containers",
        "/spec/template/spec/containers/0/ports",
        "/status",
        "/kind",
    ]);
    prop::collection::vec((places, any_json()), 0..3).prop_map(|replaced| {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "j", "labels": {}, "annotations": {}, "finalizers": [], "managedFields": null},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}},
            "status": {}});
        for (place, value) in replaced {
            if let Some(part) = job.pointer_mut(place) {
                *part = value;
            }
        }
        job
    })
}

struct Jobs;

impl Versions for Jobs {
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)> {
        BuiltIn::v1_35().of_kind("batch", version.strip_prefix("batch/")?, "Job")
    }

    fn convert(&self, _: &Value, version: &str) -> Result<Value, String> {
        Err(format!("no conversion to {version}"))
    }
}

fn field_manager<'a>(empty: &'a Value, reset: &'a Filters) -> FieldManager<'a> {
    FieldManager { versions: &Jobs, version: "batch/v1", kind: "Job", subresource: "", reset, empty }
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}

proptest! {
    #[test]
    fn typed_values_never_panic(left in any_job(), right in any_job(), set in any_json()) {
        let (schema, of) = Jobs.type_in("batch/v1").expect("Jobs are built in");
        let set = Set::from_fields_v1(&set).unwrap_or_default();
        for of in [of, Schema::DEDUCED, Schema::ANY] {
            let left = Typed::new(schema, of, left.clone(), Duplicates::Allowed);
            let right = Typed::new(schema, of, right.clone(), Duplicates::Refused);
            let (Ok(left), Ok(right)) = (left, right) else { continue };
            let merged = left.merge(&right).expect("values of one type merge");
            let again = merged.merge(&right).expect("values of one type merge");
            prop_assert_eq!(again.value(), merged.value(), "what is merged twice is merged once");
            prop_assert!(left.compare(&left).expect("a value is like itself").is_same());
            let _ = (left.compare(&right), left.remove(&set), left.extract(&set), left.reconcile(&set));
            let _ = left.with_named_fields(&set);
        }
    }

    #[test]
    fn steps_and_managers_never_panic(text in "\\PC{0,12}", fields in any_json()) {
        if let Ok(element) = PathElement::parse(&text) {
            prop_assert_eq!(PathElement::parse(&element.wire()), Ok(element));
        }
        let decoded = managers::decode(Some(&fields));
        prop_assert_eq!(managers::read(fields.to_string().as_bytes()), decoded, "a text says what its tree says");
    }

    #[test]
    fn applying_and_updating_never_panic(live in any_job(), object in any_job(), force: bool) {
        let empty = json!({"apiVersion": "batch/v1", "kind": "Job"});
        let reset = Filters::new();
        let manager = field_manager(&empty, &reset);
        let (live, new) = (Tracked::of(live), Tracked::of(object.clone()));
        let _ = manager.update(&live, &new.object, new.managers.tree().as_ref(), "u", now());
        if let Ok(applied) = manager.apply(&live, object.clone(), "kubectl", force, now()) {
            let again = manager.apply(&applied, object, "kubectl", false, now());
            prop_assert_eq!(again, Ok(applied), "what is applied twice is applied once");
        }
    }

    #[test]
    fn patching_never_panics(document in any_job(), patch in any_json(), operations in prop::collection::vec(any_json(), 0..4)) {
        let job = Pack::v1_35().of_kind("batch", "v1", "Job").expect("Jobs are built in");
        let _ = patch::strategic::apply(job, document.clone(), patch.clone());
        let _ = patch::strategic::apply(job, document.clone(), document.clone());
        let _ = patch::merge::apply(document.clone(), patch.clone());
        for reading in [patch::json::Reading::Checked, patch::json::Reading::Lenient] {
            for patch in [patch.clone(), Value::from(operations.clone())] {
                if let Ok((patch, _)) = patch::json::Patch::read(patch, reading) {
                    let _ = patch.apply(document.clone());
                }
            }
        }
    }

    #[test]
    fn json_patch_operations_never_panic(
        document in any_json(),
        steps in prop::collection::vec(("add|remove|replace|move|copy|test", "(/(a|b|0|-|-1|~1|~|)){0,3}", "(/[ab0]){0,2}", any_json()), 1..5),
    ) {
        let operations: Value = steps
            .into_iter()
            .map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
            .collect();
        let (patch, _) = patch::json::Patch::read(operations, patch::json::Reading::Checked).expect("a patch");
        let _ = patch.apply(document);
    }
}
