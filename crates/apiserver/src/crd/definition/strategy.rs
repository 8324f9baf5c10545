//! How definitions themselves are written: what the rest of this module decides, as a strategy of the server.

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use rules::field::Errors;
use rules::meta::system::{Identity, begin_create, match_namespace, match_stored};
use rules::wire;
use rules::write::{Accepted, Refused};
use serde_json::{Value, json};

use super::naming::set_condition;
use crate::crd::formats;
use crate::crd::version::schema;
use crate::object;
use crate::registry::Resource;
use crate::strategy::Strategy;

/// Holds a definition back until its objects are gone (3.23).
pub(crate) const FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The strategy of CustomResourceDefinitions.
pub(crate) struct Definitions {
    of: ::schema::Type,
}

impl Definitions {
    pub(crate) fn of(resource: &Resource) -> Self {
        Definitions { of: resource.of_type() }
    }

    /// The object of a judged definition. Schemas stay as they were sent.
    fn accepted(&self, mut object: Value, definition: &CustomResourceDefinition) -> Accepted {
        object::set_meta(&mut object, &definition.metadata);
        put_derived(&mut object, definition);
        object["apiVersion"] = json!("apiextensions.k8s.io/v1");
        object["kind"] = json!("CustomResourceDefinition");
        Accepted { object: ::schema::encode(self.of, &object), warnings: Vec::new() }
    }
}

impl Strategy for Definitions {
    fn leaving(&self, stored: &Value, now: Timestamp) -> Option<Value> {
        Some(leaving(stored, now))
    }

    fn with_defaults(&self, body: &Value, _: Option<&Value>) -> Value {
        let mut object = body.clone();
        let mut definition: CustomResourceDefinition = wire::typed(body);
        super::apply_defaults(&mut definition);
        put_derived(&mut object, &definition);
        object
    }

    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        let mut definition: CustomResourceDefinition = wire::typed(body);
        match_namespace(&mut definition.metadata, namespace)?;
        begin_create(&mut definition.metadata, identity);
        let sent_version = definition.metadata.resource_version.take();
        super::prepare_create(&mut definition);
        accepted(super::validate(&definition))?;
        let warnings = unknown_formats(&definition).iter().map(|format| unrecognized(format)).collect();
        if sent_version.is_some_and(|version| version.parse::<u64>().is_ok_and(|version| version != 0)) {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Refused::Internal(why.to_owned()));
        }
        Ok(Accepted { warnings, ..self.accepted(body.clone(), &definition) })
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let (mut definition, old): (CustomResourceDefinition, CustomResourceDefinition) =
            (wire::typed(body), wire::typed(stored));
        match_stored(&mut definition.metadata, &old.metadata)?;
        super::prepare_update(&mut definition, &old);
        accepted(super::validate_update(&definition, &old))?;
        let known = unknown_formats(&old);
        let new = unknown_formats(&definition).into_iter().filter(|format| !known.contains(format));
        let warnings = new.map(|format| unrecognized(&format)).collect();
        Ok(Accepted { warnings, ..self.accepted(body.clone(), &definition) })
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        let (new, old): (CustomResourceDefinition, CustomResourceDefinition) =
            (wire::typed(body), wire::typed(stored));
        let mut definition = CustomResourceDefinition { spec: old.spec.clone(), ..new };
        match_stored(&mut definition.metadata, &old.metadata)?;
        // Something is stored, whatever anybody says.
        super::apply_defaults(&mut definition);
        accepted(super::validate_status_update(&definition, &old))?;
        Ok(self.accepted(stored.clone(), &definition))
    }
}

/// Formats of strings that nobody checks.
fn unknown_formats(definition: &CustomResourceDefinition) -> Vec<String> {
    fn collect(props: &JSONSchemaProps, into: &mut Vec<String>) {
        let format = props.format.as_deref().unwrap_or("");
        if !format.is_empty() && props.type_.as_deref() == Some("string") && !formats::is_known(format) {
            into.push(format.to_owned());
        }
        for (_, child) in super::children(props) {
            collect(child, into);
        }
    }
    let mut found = Vec::new();
    definition.spec.versions.iter().filter_map(schema).for_each(|props| collect(props, &mut found));
    found
}

fn unrecognized(format: &str) -> String {
    format!("unrecognized format {}", types::go::quote(format))
}

/// A definition on its way out: its objects go first.
fn leaving(stored: &Value, now: Timestamp) -> Value {
    let mut object = stored.clone();
    let mut definition: CustomResourceDefinition = wire::typed(stored);
    if definition.metadata.deletion_timestamp.is_some() {
        return object;
    }
    object["metadata"]["deletionTimestamp"] = json!(object::time(now));
    let finalizers = definition.metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|name| name == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    object["metadata"]["finalizers"] = json!(finalizers);
    let status = definition.status.get_or_insert_default();
    set_condition(
        status.conditions.get_or_insert_default(),
        "Terminating",
        true,
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
    object["status"]["conditions"] = wire::untyped(&status.conditions, &Value::Null);
    object
}

/// Puts what the server derives into an object.
fn put_derived(object: &mut Value, definition: &CustomResourceDefinition) {
    object["spec"]["names"] = wire::untyped(&definition.spec.names, &object["spec"]["names"]);
    object["spec"]["conversion"] = wire::untyped(&definition.spec.conversion, &object["spec"]["conversion"]);
    object["status"] = wire::untyped(&definition.status, &object["status"]);
}

fn accepted(errors: Errors) -> Result<(), Refused> {
    if errors.is_empty() { Ok(()) } else { Err(Refused::Invalid(errors)) }
}
