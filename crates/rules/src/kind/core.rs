//! The core group, but for what has a file of its own.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::defaults::NAME_LABEL;
use super::{Counts, It, Kind, Plain, at, keep, keep_all_but, text};
use crate::field::{Errors, Path};
use crate::meta::{self, IMMUTABLE};
use crate::names::{self, Problems};
use crate::{pod, wire};

mod data;
pub(super) mod endpoints;
mod events;
mod nodes;
mod quotas;
pub mod services;

pub use events::{Event, from_core, to_core};

/// The rules of a kind of the core group.
pub(super) fn of(kind: &str) -> &'static dyn Kind {
    match kind {
        "Pod" => &Pods,
        "Namespace" => &Namespaces,
        "Node" => &nodes::Nodes,
        "Event" => &Event::Core,
        "ServiceAccount" => &ServiceAccounts,
        "ConfigMap" => &data::ConfigMaps,
        "Secret" => &data::Secrets,
        "Service" => &services::Services,
        "Endpoints" => &endpoints::Endpoints,
        "PersistentVolumeClaim" => &super::storage::Claims,
        "PersistentVolume" => &super::volumes::Volumes,
        "ResourceQuota" => &quotas::ResourceQuotas,
        "LimitRange" => &quotas::LimitRanges,
        "ReplicationController" => &super::workloads::Replicas::Controller,
        "PodTemplate" => &super::workloads::PodTemplates,
        _ => &Plain,
    }
}

/// Pods: the rules are in [`crate::pod`].
struct Pods;

impl Pods {
    /// Judges typed pods.
    fn judge(it: &It<'_>, rule: fn(&Pod, &Pod, &pod::Options) -> Errors) -> Errors {
        let (new, old): (Pod, Pod) = (wire::typed(it.new), wire::typed(it.old));
        let options = pod::Options::for_pod(Some(&old)).with_privileged(it.allow_privileged);
        let mut errors = rule(&new, &old, &options);
        as_sent(&mut errors, &new, it.new);
        errors
    }

    /// Changes typed pods.
    fn change(new: &mut Value, old: &Value, rule: fn(&mut Pod, &Pod)) {
        let (mut pod, old): (Pod, Pod) = (wire::typed(new), wire::typed(old));
        rule(&mut pod, &old);
        *new = wire::untyped(&pod, new);
    }
}

/// Typed rules do not see whether a list that must be there was sent; what they print is put right.
pub(super) fn as_sent(errors: &mut Errors, typed: &impl serde::Serialize, sent: &Value) {
    if !errors.is_empty() {
        let typed = serde_json::to_value(typed).expect("wire types have string keys and finite numbers");
        crate::field::print_as_sent(errors, &typed, sent);
    }
}

impl Kind for Pods {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn default(&self, pod: &mut Value) {
        if !pod["status"].is_null() {
            first_of_many(&mut pod["status"], "podIP", "podIPs", |ip| json!({"ip": ip}), |ip| text(ip, "ip"));
        }
    }

    fn keeps_defaults(&self) -> bool {
        true
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        let mut pod: Pod = wire::typed(new);
        let warnings = pod::prepare::for_create(&mut pod);
        *new = wire::untyped(&pod, new);
        warnings
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let pod: Pod = wire::typed(it.new);
        let options = pod::Options::for_pod(None).with_privileged(it.allow_privileged);
        let mut errors = pod::validate_create(&pod, &options);
        as_sent(&mut errors, &pod, it.new);
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = Vec::new();
        let problems = names::dns_label(text(new, "metadata.name"));
        if !problems.is_empty() {
            warnings.push(format!(
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is \
                 recommended: [{}]",
                problems.join(" ")
            ));
        }
        warnings.extend(pod::warnings::for_pod(&wire::typed(new)));
        warnings
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        Pods::change(new, old, pod::prepare::for_update);
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        Pods::judge(it, pod::update::validate)
    }

    fn warn_update(&self, _: &Value, _: &Value) -> Vec<String> {
        Vec::new()
    }

    fn prepare_subresource(&self, name: &str, new: &mut Value, old: &Value) {
        let rule = match name {
            "ephemeralcontainers" => pod::prepare::for_ephemeral_containers,
            "resize" => pod::prepare::for_resize,
            _ => pod::prepare::for_status,
        };
        Pods::change(new, old, rule);
    }

    /// Most writes of pods are of their status; to make typed pods of them costs more than all rules together.
    fn prepare_good(
        &self,
        name: &str,
        new: &mut Value,
        old: &Value,
        allow_privileged: bool,
    ) -> Option<Vec<String>> {
        if name != "status" {
            self.prepare_subresource(name, new, old);
            return None;
        }
        // The spec stays as it is stored, so that it need not be read twice, nor written.
        let _ = new["spec"].take();
        let (mut pod, before): (Pod, Pod) = (wire::typed(new), wire::typed(old));
        pod::prepare::for_status(&mut pod, &before);
        let options = pod::Options::for_pod(Some(&before)).with_privileged(allow_privileged);
        let is_good = pod::status::validate(&pod, &before, &options).is_empty();
        let warnings = is_good.then(|| pod::status::warnings(&pod));
        pod.spec = None;
        *new = wire::untyped(&pod, new);
        new["spec"] = old["spec"].clone();
        warnings
    }

    fn validate_subresource(&self, name: &str, it: &It<'_>) -> Errors {
        let rule = match name {
            "ephemeralcontainers" => pod::update::validate_ephemeral_containers,
            "resize" => pod::update::validate_resize,
            _ => pod::status::validate,
        };
        Pods::judge(it, rule)
    }

    fn warn_subresource(&self, name: &str, new: &Value) -> Vec<String> {
        if name == "status" { pod::status::warnings(&wire::typed(new)) } else { Vec::new() }
    }

    fn selectable(&self) -> &'static [&'static str] {
        &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let ip = text(&object["status"]["podIPs"][0], "ip").to_owned();
        let value = |name: &'static str| match name {
            "spec.hostNetwork" => at(object, name).as_bool().unwrap_or(false).to_string(),
            "status.podIP" => ip.clone(),
            // Upstream takes it in selectors and knows no value of it.
            "status.podIPs" => String::new(),
            name => text(object, name).to_owned(),
        };
        self.selectable().iter().map(|name| (*name, value(name))).collect()
    }
}

/// Namespaces are labelled with their name, and leave only when they are empty (2.60, 3.12).
struct Namespaces;

/// Holds a namespace back until everything in it is gone.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

impl Kind for Namespaces {
    fn name(&self) -> fn(&str) -> Problems {
        names::dns_label
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        new["status"] = json!({"phase": "Active"});
        let mut finalizers = super::items(new, "spec.finalizers").to_vec();
        if !finalizers.contains(&json!(NAMESPACE_FINALIZER)) {
            finalizers.push(json!(NAMESPACE_FINALIZER));
        }
        new["spec"]["finalizers"] = json!(finalizers);
        Vec::new()
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let path = Path::new("spec").child("finalizers");
        let mut errors = it.metadata();
        errors.extend(finalizers(it.new, |_| path.clone()));
        errors
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        let (mut spec, stored) = (new["spec"].take(), &old["spec"]);
        keep(&mut spec, stored, "finalizers");
        new["spec"] = spec;
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = self.validate(it);
        errors.extend(it.metadata_update());
        errors
    }

    fn prepare_subresource(&self, name: &str, new: &mut Value, old: &Value) {
        let own = if name == "finalize" { "spec" } else { "status" };
        keep_all_but(new, old, &["metadata", own]);
    }

    fn validate_subresource(&self, name: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        if name == "finalize" {
            let path = Path::new("spec").child("finalizers");
            errors.extend(finalizers(it.new, |i| path.index(i)));
            return errors;
        }
        let (phase, expected, when) = if at(it.new, "metadata.deletionTimestamp").is_null() {
            (text(it.new, "status.phase"), "Active", "is empty")
        } else {
            (text(it.new, "status.phase"), "Terminating", "is not empty")
        };
        if phase != expected {
            let why = format!("may only be '{expected}' if `deletionTimestamp` {when}");
            let value = crate::field::Value::json(&phase);
            errors.push(Path::new("status").child("Phase").invalid(value, why));
        }
        errors
    }

    fn canonicalize(&self, new: &mut Value) {
        new["metadata"]["labels"][NAME_LABEL] = new["metadata"]["name"].clone();
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }
}

fn finalizers(namespace: &Value, path: impl Fn(usize) -> Path) -> Errors {
    let finalizers = super::items(namespace, "spec.finalizers").iter().filter_map(Value::as_str).enumerate();
    finalizers.flat_map(|(i, finalizer)| meta::finalizer(finalizer, &path(i))).collect()
}

/// Service accounts. Of the secrets that they name, only the names are kept.
struct ServiceAccounts;

const MOUNTABLE_SECRETS: &str = "kubernetes.io/enforce-mountable-secrets";

impl Kind for ServiceAccounts {
    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        only_names_of_secrets(new);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, _: &Value) {
        only_names_of_secrets(new);
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        self.warn_update(new, &Value::Null)
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let has = |account: &Value| !account["metadata"]["annotations"][MOUNTABLE_SECRETS].is_null();
        if has(old) || !has(new) {
            return Vec::new();
        }
        let why = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets";
        vec![format!("metadata.annotations[{MOUNTABLE_SECRETS}]: {why}")]
    }
}

fn only_names_of_secrets(account: &mut Value) {
    for secret in account["secrets"].as_array_mut().into_iter().flatten() {
        *secret = match secret.get("name") {
            Some(name) => json!({"name": name}),
            None => json!({}),
        };
    }
}

/// A field that was alone, and is now the first of a list. Whoever says only the one says the other; whoever says two
/// different things means the old one.
pub(super) fn first_of_many(
    object: &mut Value,
    one: &str,
    many: &str,
    to_item: impl Fn(&str) -> Value,
    of_item: impl Fn(&Value) -> &str,
) {
    let single = text(object, one).to_owned();
    let first = super::items(object, many).first().map(|item| of_item(item).to_owned());
    match first {
        Some(first) if single.is_empty() => object[one] = json!(first),
        Some(first) if single == first => {}
        None if single.is_empty() => {}
        _ => object[many] = json!([to_item(&single)]),
    }
}

/// A field that keeps its first value.
pub(super) fn immutable(it: &It<'_>, path: &str) -> Errors {
    let (new, old) = (at(it.new, path), at(it.old, path));
    if new == old {
        return Errors::new();
    }
    vec![Path::new(path).invalid(crate::field::Value::json(new), IMMUTABLE)]
}
