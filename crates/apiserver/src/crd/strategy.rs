//! How objects of a defined kind are made and changed: the steps of a version, with the metadata that the server gives.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use rules::field::Errors;
use rules::meta::system::{Identity, begin_create, match_namespace, match_stored};
use rules::write::{Accepted, Refused};
use serde_json::{Map, Value};

use super::canonical::is_canonical;
use super::kind::Custom;
use crate::object;
use crate::strategy::Strategy;

impl Strategy for Custom {
    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let version = self.version();
        let mut object = body.clone();
        let mut meta = object::meta(&object);
        match_namespace(&mut meta, namespace)?;
        begin_create(&mut meta, identity);
        let sent_version = meta.resource_version.take();
        set_system_fields(&mut object, &meta);
        version.prepare_create(&mut object);
        meta.generation = object["metadata"]["generation"].as_i64();
        accepted(version.validate_new(&object, &meta))?;
        if sent_version.is_some_and(|version| version.parse::<u64>().is_ok_and(|version| version != 0)) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refused::Internal(why.to_owned()));
        }
        Ok(Accepted { warnings: version.warnings(&object, None), object })
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let version = self.version();
        let mut object = body.clone();
        let (mut meta, old) = (object::meta(&object), object::meta(stored));
        match_stored(&mut meta, &old)?;
        set_system_fields(&mut object, &meta);
        version.prepare_update(&mut object, stored);
        meta.generation = object["metadata"]["generation"].as_i64();
        let mut warnings = Vec::new();
        accepted(version.validate_changed(&object, stored, (&meta, &old), &mut warnings))?;
        warnings.extend(version.warnings(&object, Some(stored)));
        Ok(Accepted { object, warnings })
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let version = self.version();
        if body["metadata"] != stored["metadata"] {
            match_stored(&mut object::meta(body), &object::meta(stored))?;
        }
        let object = version.with_status(stored, body);
        let mut warnings = Vec::new();
        accepted(version.validate_status_update(&object, stored, &mut warnings))?;
        Ok(Accepted { object, warnings })
    }
}

/// Puts typed metadata into an object whose metadata it was, and in which only what is the server's to say was changed.
fn set_system_fields(object: &mut Value, meta: &ObjectMeta) {
    let Some(Value::Object(fields)) = object.get_mut("metadata").filter(|fields| is_canonical(fields)) else {
        return object::set_meta(object, meta);
    };
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let time = |time: &Option<Time>| time.as_ref().and_then(|time| serde_json::to_value(time).ok());
    set(fields, "creationTimestamp", time(&meta.creation_timestamp));
    set(fields, "deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.map(Value::from));
    set(fields, "deletionTimestamp", time(&meta.deletion_timestamp));
    set(fields, "generation", meta.generation.map(Value::from));
    set(fields, "name", text(&meta.name));
    set(fields, "namespace", text(&meta.namespace));
    set(fields, "resourceVersion", text(&meta.resource_version));
    set(fields, "selfLink", text(&meta.self_link));
    set(fields, "uid", text(&meta.uid));
}

fn set(fields: &mut Map<String, Value>, name: &str, value: Option<Value>) {
    match (value, fields.get_mut(name)) {
        (Some(value), Some(place)) => *place = value,
        (Some(value), None) => drop(fields.insert(name.to_owned(), value)),
        (None, Some(_)) => drop(fields.remove(name)),
        (None, None) => {}
    }
}

fn accepted(errors: Errors) -> Result<(), Refused> {
    if errors.is_empty() { Ok(()) } else { Err(Refused::Invalid(errors)) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn metadata_is_as_if_it_were_written_as_a_whole() {
        let time: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).expect("a time");
        let all = json!({
            "annotations": {"a": ""}, "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["f"], "generateName": "g", "generation": 7,
            "labels": {"l": "m"}, "managedFields": [{"manager": "m", "time": "2026-01-01T00:00:00Z"}], "name": "n",
            "namespace": "s", "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "u"}],
            "resourceVersion": "1", "selfLink": "l", "uid": "i",
        });
        for metadata in
            [all, json!({}), json!({"name": "n", "labels": {}}), json!({"name": "n", "finalizers": []})]
        {
            let sent = json!({"metadata": metadata, "spec": {}});
            let meta = object::meta(&sent);
            let changed = ObjectMeta {
                creation_timestamp: Some(time.clone()),
                generation: Some(8),
                uid: Some("j".to_owned()),
                resource_version: Some("2".to_owned()),
                ..meta.clone()
            };
            let cleared = ObjectMeta {
                creation_timestamp: None,
                deletion_grace_period_seconds: None,
                deletion_timestamp: None,
                generation: None,
                name: None,
                namespace: None,
                resource_version: None,
                self_link: None,
                uid: None,
                ..meta.clone()
            };
            for meta in [meta, changed, cleared] {
                let (mut one, mut other) = (sent.clone(), sent.clone());
                set_system_fields(&mut one, &meta);
                object::set_meta(&mut other, &meta);
                assert_eq!(one, other);
            }
        }
    }
}
