//! Namespaces: they are labelled with their name, and leave only when they are empty (2.60, 3.12).

use rules::meta::system::Identity;
use rules::write::{Accepted, Refused};
use serde_json::{Value, json};

use super::Strategy;
use super::generic::Generic;
use crate::object;
use crate::registry::Registry;

/// Holds a namespace back until everything in it is gone.
pub(crate) const FINALIZER: &str = "kubernetes";
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) struct Namespaces;

impl Namespaces {
    fn generic() -> Generic {
        Generic::of(Registry::built_in().get("", "v1", "namespaces").expect("namespaces are served"))
    }
}

impl Strategy for Namespaces {
    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let mut accepted = Self::generic().create(body, namespace, identity)?;
        let object = &mut accepted.object;
        object["metadata"]["labels"][NAME_LABEL] = object["metadata"]["name"].clone();
        let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.contains(&json!(FINALIZER)) {
            object["spec"]["finalizers"] = finalizers.into_iter().chain([json!(FINALIZER)]).collect();
        }
        object["status"] = json!({"phase": "Active"});
        Ok(accepted)
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let mut body = body.clone();
        body["spec"]["finalizers"] = stored["spec"]["finalizers"].clone();
        let mut accepted = Self::generic().update(&body, stored)?;
        accepted.object["metadata"]["labels"][NAME_LABEL] = accepted.object["metadata"]["name"].clone();
        Ok(accepted)
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        Self::generic().update_status(body, stored)
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.phase", object::text(object, &["status", "phase"]).to_owned())]
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}
