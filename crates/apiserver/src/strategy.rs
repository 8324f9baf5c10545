//! What differs from kind to kind in a write, for those kinds where something does.

use std::sync::Arc;

use jiff::Timestamp;
use rules::job::{self, Settings};
use rules::meta::system::Identity;
use rules::wire;
use rules::write::{Accepted, Refused};
use serde_json::Value;

use crate::crd::definition::Definitions;
use crate::registry::Resource;

pub(crate) mod addresses;
pub(crate) mod admin_access;
mod built_in;
pub(crate) mod certificates;
pub(crate) mod forms;
pub(crate) mod node_ports;
pub(crate) mod traits;

/// How objects of a kind are made and changed. Bodies are what [`schema::decode`] left.
pub trait Strategy: Send + Sync {
    /// The body with what nobody said, before anybody looks at who said what. What did not change since the stored object
    /// has its defaults.
    fn with_defaults(&self, body: &Value, stored: Option<&Value>) -> Value {
        let _ = stored;
        body.clone()
    }
    /// A new object.
    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused>;
    /// A changed object.
    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused>;
    /// A changed status.
    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused>;
    /// A change through a subresource that writes the object itself, such as `status` or `resize`.
    fn update_subresource(&self, name: &str, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let _ = name;
        self.update_status(body, stored)
    }
    /// An object that begins to leave, for kinds that have more to say of it than when.
    fn leaving(&self, stored: &Value, now: Timestamp) -> Option<Value> {
        let _ = (stored, now);
        None
    }
    /// Fields that can be selected, besides name and namespace.
    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let _ = object;
        Vec::new()
    }
    /// What a field selector may name, besides name and namespace.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }
}

/// The strategy of a resource.
pub fn of(resource: &Resource, settings: Settings) -> Arc<dyn Strategy> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("batch", "Job") => Arc::new(Jobs { settings }),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => Arc::new(Definitions::of(resource)),
        _ => Arc::new(built_in::BuiltIn::of(resource, settings)),
    }
}

/// Jobs: the rules are all in [`rules::job`].
struct Jobs {
    settings: Settings,
}

impl Strategy for Jobs {
    fn with_defaults(&self, body: &Value, stored: Option<&Value>) -> Value {
        if let Some(settled) = stored.and_then(|stored| job::endpoints::settled(body, stored)) {
            return settled;
        }
        let mut job = wire::typed(body);
        job::defaults::apply_defaults(&mut job);
        wire::untyped(&job, body)
    }

    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        job::endpoints::create(body, namespace, identity, &self.settings)
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        job::endpoints::update(body, stored, &self.settings)
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        job::endpoints::update_status(body, stored)
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("status.successful", object["status"]["succeeded"].as_i64().unwrap_or(0).to_string())]
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.successful"]
    }
}
