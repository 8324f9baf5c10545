//! Managers of an object as its `/scale` shows them, and back.
//!
//! Of all fields a Scale has one, the number of replicas, which stands elsewhere in the object that it scales.

use std::collections::BTreeMap;

use super::managers::{DecodeError, Managed, Managers};
use super::path::{Path, PathElement};
use super::set::Set;
use super::tracked::Entries;

/// Where replicas stand in each version of the scaled kind; `None` if the version has no `/scale`.
pub type ReplicasPaths = BTreeMap<String, Option<Path>>;

const SCALE_VERSION: &str = "autoscaling/v1";

fn replicas_in_scale() -> Path {
    vec![PathElement::field("spec"), PathElement::field("replicas")]
}

/// The managers of a Scale, of an object's.
pub fn to_scale(of_object: &Entries, paths: &ReplicasPaths) -> Result<Entries, DecodeError> {
    let mut scale = Managers::new();
    for (manager, managed) in of_object.read()? {
        let path = paths.get(&managed.version).and_then(Option::as_ref);
        if path.is_some_and(|path| managed.fields.contains(path)) {
            let fields = [replicas_in_scale().as_slice()].into_iter().collect();
            scale.insert(manager, Managed { fields, version: SCALE_VERSION.into(), time: managed.time });
        }
    }
    Ok(Entries::of(&scale))
}

/// The managers of an object in `version` after a write to its Scale.
pub fn from_scale(
    of_object: &Entries,
    of_scale: &Entries,
    version: &str,
    paths: &ReplicasPaths,
) -> Result<Entries, DecodeError> {
    let before = of_object.read()?;
    let mut scale = of_scale.read()?;
    let mut after = Managers::new();
    for (manager, managed) in &before {
        let Some(path) = paths.get(&managed.version) else { continue };
        let mut managed = managed.clone();
        if let Some(path) = path
            && managed.fields.contains(path)
            && scale.remove(manager).is_none()
        {
            managed.fields = managed.fields.difference(&[path.as_slice()].into_iter().collect::<Set>());
        }
        if !managed.fields.is_empty() {
            after.insert(manager.clone(), managed);
        }
    }
    let path = paths.get(version).and_then(Option::as_ref);
    for (manager, managed) in scale {
        if !managed.fields.contains(&replicas_in_scale()) {
            continue;
        }
        let fields = path.map(Vec::as_slice).into_iter().collect();
        let time = before.get(&manager).and_then(|managed| managed.time);
        after.insert(manager, Managed { fields, version: version.to_owned(), time });
    }
    Ok(Entries::of(&after))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn entry(manager: &str, version: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": "Apply", "apiVersion": version, "time": "2024-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn entries(tree: &Value) -> Entries {
        Entries::of_tree(Some(tree))
    }

    fn written(object: &Value, scale: &Value) -> Option<Value> {
        let after = from_scale(&entries(object), &entries(scale), "apps/v1", &paths());
        after.expect("managers").tree()
    }

    fn paths() -> ReplicasPaths {
        [("apps/v1".to_owned(), Some(replicas_in_scale()))].into()
    }

    #[test]
    fn r2_74_a_scale_shows_only_who_has_the_replicas() {
        let object = json!([
            entry("a", "apps/v1", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            entry("b", "apps/v1", json!({"f:spec": {"f:paused": {}}})),
            entry("c", "apps/v9", json!({"f:spec": {"f:replicas": {}}})),
        ]);
        let scale = json!([entry("a", "autoscaling/v1", json!({"f:spec": {"f:replicas": {}}}))]);
        assert_eq!(to_scale(&entries(&object), &paths()).map(|shown| shown.tree()), Ok(Some(scale)));
    }

    #[test]
    fn r2_74_a_write_to_scale_takes_the_replicas_from_others() {
        let replicas = || json!({"f:spec": {"f:replicas": {}}});
        let object = json!([
            entry("a", "apps/v1", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            entry("b", "apps/v1", replicas()),
            entry("c", "apps/v9", replicas()),
        ]);
        let mut taken = entry("new", "autoscaling/v1", replicas());
        let scale = json!([taken]);
        taken["apiVersion"] = json!("apps/v1");
        taken.as_object_mut().expect("an entry").remove("time");
        let after = json!([taken, entry("a", "apps/v1", json!({"f:spec": {"f:paused": {}}}))]);
        assert_eq!(written(&object, &scale), Some(after));
        let kept = json!([entry("b", "autoscaling/v1", replicas())]);
        let after = json!([
            entry("a", "apps/v1", json!({"f:spec": {"f:paused": {}}})),
            entry("b", "apps/v1", replicas()),
        ]);
        assert_eq!(written(&object, &kept), Some(after));
    }
}
