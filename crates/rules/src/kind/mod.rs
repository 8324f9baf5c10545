//! What differs from kind to kind in a write: defaults, preparation, judgement, generations, selectable fields.
//!
//! A [`Kind`] sees objects as JSON in canonical form, and says what an API server's strategy says; [`endpoints`] is the
//! order in which it is asked. Kinds without rules of their own are [`Plain`]. Jobs have their own endpoints in
//! [`crate::job`].
//!
//! What a cluster holds besides the object is not known here: a quota, a free address or a priority class is somebody
//! else's to add before or after.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use crate::field::{self, Errors, Path};
use crate::names::{self, Problems};
use crate::{meta, wire};

mod admission;
pub mod autoscaling;
mod batch;
pub mod certificates;
pub mod client_config;
mod coordination;
pub mod core;
mod csi;
pub mod defaults;
mod devices;
pub mod endpoints;
mod flowcontrol;
mod ingress;
mod networking;
mod node;
pub mod policy;
mod rbac;
mod registration;
mod storage;
#[cfg(test)]
mod tests;
pub mod url;
mod volumes;
mod workloads;

/// The rules of a kind. What is not overridden is what most kinds do.
pub trait Kind: Send + Sync {
    /// How objects may be called.
    fn name(&self) -> fn(&str) -> Problems {
        names::dns_subdomain
    }

    /// Which changes make a new generation.
    fn counts(&self) -> Counts {
        Counts::Nothing
    }

    /// Fills in what nobody said, beside what [`defaults`] knows of every type.
    fn default(&self, object: &mut Value) {
        let _ = object;
    }

    /// Whether an object whose spec and annotations are the stored one's has all its defaults but those of
    /// [`Kind::default`].
    fn keeps_defaults(&self) -> bool {
        false
    }

    /// Whether a status that comes with a new object is thrown away.
    fn resets_status(&self) -> bool {
        true
    }

    /// Takes and gives what a new object may not have, or must. Returns what to warn of.
    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        let _ = new;
        Vec::new()
    }

    /// Everything wrong with a new object.
    fn validate(&self, it: &It<'_>) -> Errors {
        it.metadata()
    }

    /// What a new object is accepted with.
    fn warn(&self, new: &Value) -> Vec<String> {
        let _ = new;
        Vec::new()
    }

    /// Keeps what an update cannot change. A status is kept already.
    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let _ = (new, old);
    }

    /// Everything wrong with a change.
    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.validate(it));
        errors
    }

    /// What a change is accepted with.
    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let _ = old;
        self.warn(new)
    }

    /// Whether a write to the status changes nothing of the metadata.
    fn status_keeps_metadata(&self) -> bool {
        false
    }

    /// Keeps what a write through a subresource cannot change: all but metadata and status.
    fn prepare_subresource(&self, name: &str, new: &mut Value, old: &Value) {
        keep_all_but(new, old, &["metadata", "status"]);
        if name == "status" && self.status_keeps_metadata() {
            keep_metadata(new, old);
        }
    }

    /// Prepares a write through a subresource. A kind that judges it on the way and finds nothing wrong says what to warn
    /// of, and is not asked again.
    fn prepare_good(
        &self,
        name: &str,
        new: &mut Value,
        old: &Value,
        allow_privileged: bool,
    ) -> Option<Vec<String>> {
        let _ = allow_privileged;
        self.prepare_subresource(name, new, old);
        None
    }

    /// Everything wrong with such a write.
    fn validate_subresource(&self, name: &str, it: &It<'_>) -> Errors {
        let _ = name;
        it.metadata_update()
    }

    /// What such a write is accepted with.
    fn warn_subresource(&self, name: &str, new: &Value) -> Vec<String> {
        let _ = (name, new);
        Vec::new()
    }

    /// The last touch before an object is stored.
    fn canonicalize(&self, new: &mut Value) {
        let _ = new;
    }

    /// What a field selector may name, besides name and namespace.
    fn selectable(&self) -> &'static [&'static str] {
        &[]
    }

    /// The values of the fields that can be selected.
    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let path = |name: &&'static str| (*name, printed(at(object, name)));
        self.selectable().iter().map(path).collect()
    }
}

/// Which changes make a new generation (2.34).
#[derive(Clone, Copy)]
pub enum Counts {
    /// None: the field is the client's.
    Nothing,
    /// Those of the spec.
    Spec,
    /// Those of these fields.
    Fields(&'static [&'static str]),
    /// Those of these fields, of which one that was sent empty is another one than one that is not there.
    Exactly(&'static [&'static str]),
    /// The first generation is the last one.
    Once,
}

/// An object on its way into the store, next to the stored one if there is one.
pub struct It<'a> {
    /// The object as it would be stored.
    pub new: &'a Value,
    /// The stored one; null for a new object.
    pub old: &'a Value,
    /// What was sent, in which a list without items is another thing than none.
    pub sent: &'a Value,
    /// The metadata of the new one.
    pub meta: ObjectMeta,
    /// The metadata of the stored one; empty for a new object.
    old_meta: ObjectMeta,
    /// Whether containers may be privileged.
    pub allow_privileged: bool,
    /// What is wrong with the parts of the object that are in a language that is not known here: expressions, certificates.
    expressions: BTreeMap<&'a str, &'a field::Error>,
    namespaced: bool,
    name: fn(&str) -> Problems,
}

impl It<'_> {
    /// What is wrong with the expression, or the certificate, at a path.
    pub fn expression(&self, path: &Path) -> Option<field::Error> {
        self.expressions.get(path.to_string().as_str()).map(|error| (*error).clone())
    }

    /// What is wrong with the metadata of any object of the kind.
    pub fn metadata(&self) -> Errors {
        self.scoped(meta::validate_built_in(&self.meta, self.name, &Path::new("metadata")))
    }

    /// What is wrong with the metadata of an object whose kind judges names alone, not what they are generated from.
    pub fn metadata_by_name(&self) -> Errors {
        self.metadata().into_iter().filter(|error| error.path != "metadata.generateName").collect()
    }

    /// What is wrong with the metadata of an object whose kind lets finalizers be called anything.
    pub fn any_metadata(&self) -> Errors {
        self.scoped(meta::validate(&self.meta, self.name, &Path::new("metadata")))
    }

    /// What is wrong with a change of such metadata.
    pub fn any_metadata_update(&self) -> Errors {
        meta::validate_update(&self.meta, &self.old_meta, &Path::new("metadata"))
    }

    /// What is wrong with a change of the metadata.
    pub fn metadata_update(&self) -> Errors {
        meta::validate_update_built_in(&self.meta, &self.old_meta, &Path::new("metadata"))
    }

    /// What is asked of every object, whatever its kind.
    fn common(&self) -> Errors {
        let path = Path::new("metadata");
        let mut errors = self.scoped(meta::validate(&self.meta, names::path_segment, &path));
        if !self.old.is_null() {
            errors.extend(meta::validate_update(&self.meta, &self.old_meta, &path));
        }
        errors
    }

    /// Rules of metadata are written for objects in namespaces; others must not be in one.
    fn scoped(&self, errors: Errors) -> Errors {
        if self.namespaced {
            return errors;
        }
        let mut errors: Errors =
            errors.into_iter().filter(|error| error.path != "metadata.namespace").collect();
        if self.meta.namespace.as_ref().is_some_and(|namespace| !namespace.is_empty()) {
            errors.push(Path::new("metadata").child("namespace").forbidden("not allowed on this type"));
        }
        errors
    }
}

/// A kind without rules of its own.
pub struct Plain;

impl Kind for Plain {}

/// The rules of a kind.
pub fn of(group: &str, kind: &str) -> &'static dyn Kind {
    match (group, kind) {
        ("", kind) => core::of(kind),
        ("events.k8s.io", "Event") => &core::Event::Events,
        ("rbac.authorization.k8s.io", "Role") => &rbac::Roles::InNamespace,
        ("rbac.authorization.k8s.io", "ClusterRole") => &rbac::Roles::OfCluster,
        ("rbac.authorization.k8s.io", "RoleBinding") => &rbac::Bindings::InNamespace,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => &rbac::Bindings::OfCluster,
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => &admission::Webhooks,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => &admission::Policies,
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding") => &admission::PolicyBindings,
        ("coordination.k8s.io", "Lease") => &coordination::Leases,
        ("apps", "Deployment") => &workloads::Deployments,
        ("apps", "ReplicaSet") => &workloads::Replicas::Set,
        ("apps", "StatefulSet") => &workloads::StatefulSets,
        ("apps", "DaemonSet") => &workloads::DaemonSets,
        ("apps", "ControllerRevision") => &workloads::ControllerRevisions,
        ("batch", "CronJob") => &batch::CronJobs,
        ("discovery.k8s.io", "EndpointSlice") => &core::endpoints::EndpointSlices,
        ("policy", "PodDisruptionBudget") => &policy::PodDisruptionBudgets,
        ("scheduling.k8s.io", "PriorityClass") => &policy::PriorityClasses,
        ("storage.k8s.io", "StorageClass") => &storage::StorageClasses,
        ("storage.k8s.io", "CSIDriver") => &csi::Drivers,
        ("storage.k8s.io", "CSINode") => &csi::Nodes,
        ("storage.k8s.io", "VolumeAttributesClass") => &storage::VolumeAttributesClasses,
        ("storage.k8s.io", "VolumeAttachment") => &storage::Attachments,
        ("storage.k8s.io", "CSIStorageCapacity") => &storage::Capacities,
        ("resource.k8s.io", "ResourceClaim") => &devices::Claims,
        ("resource.k8s.io", "ResourceClaimTemplate") => &devices::Templates,
        ("networking.k8s.io", "NetworkPolicy") => &networking::NetworkPolicies,
        ("networking.k8s.io", "Ingress") => &ingress::Ingresses,
        ("networking.k8s.io", "IPAddress") => &networking::Addresses,
        ("networking.k8s.io", "ServiceCIDR") => &networking::ServiceRanges,
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => &flowcontrol::FlowSchemas,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => &flowcontrol::PriorityLevels,
        ("certificates.k8s.io", "CertificateSigningRequest") => &certificates::SigningRequests,
        ("apiregistration.k8s.io", "APIService") => &registration::Services,
        ("resource.k8s.io", "ResourceSlice") => &devices::Slices,
        ("networking.k8s.io", "IngressClass") => &networking::IngressClasses,
        ("autoscaling", "HorizontalPodAutoscaler") => &autoscaling::Autoscalers,
        ("node.k8s.io", "RuntimeClass") => &node::RuntimeClasses,
        ("resource.k8s.io", "DeviceClass") => &devices::Classes,
        _ => &Plain,
    }
}

/// The metadata of an object.
pub fn metadata(object: &Value) -> ObjectMeta {
    static NONE: Value = Value::Null;
    match object.get("metadata").unwrap_or(&NONE) {
        Value::Null => ObjectMeta::default(),
        meta => wire::typed(meta),
    }
}

/// Puts metadata into an object.
pub fn set_metadata(object: &mut Value, meta: &ObjectMeta) {
    object["metadata"] = wire::untyped(meta, &Value::Null);
}

/// Takes everything from the stored object but these fields.
pub fn keep_all_but(new: &mut Value, old: &Value, fields: &[&str]) {
    let mut kept = old.as_object().cloned().unwrap_or_default();
    let mut sent = match new.take() {
        Value::Object(sent) => sent,
        _ => Map::new(),
    };
    for field in fields {
        match sent.remove(*field) {
            Some(value) => kept.insert((*field).to_owned(), value),
            None => kept.remove(*field),
        };
    }
    *new = Value::Object(kept);
}

/// Takes what people write into metadata from the stored object.
fn keep_metadata(new: &mut Value, old: &Value) {
    let mut meta = at(old, "metadata").clone();
    for field in ["managedFields", "resourceVersion"] {
        keep(&mut meta, at(new, "metadata"), field);
    }
    new["metadata"] = meta;
}

/// Takes a field from the stored object, or takes it away if there is none.
pub fn keep(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => new[field] = value.clone(),
        None => drop(new.as_object_mut().map(|new| new.remove(field))),
    }
}

/// The value at a path like `status.phase`.
pub fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    static NONE: Value = Value::Null;
    path.split('.').try_fold(object, |value, part| value.get(part)).unwrap_or(&NONE)
}

/// The text at a path; empty if there is none.
pub fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).as_str().unwrap_or("")
}

/// The items of a list at a path.
pub fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).as_array().map_or(&[], Vec::as_slice)
}

/// A value as a field selector sees it.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Sets a text that is absent or empty.
pub(crate) fn default_text(object: &mut Value, field: &str, value: &str) {
    if object[field].as_str().is_none_or(str::is_empty) {
        object[field] = json!(value);
    }
}
