//! ReplicaSets and ReplicationControllers.

use serde_json::Value;

use super::{
    TEMPLATE, drop_disabled, exceeding, generation, immutable_selector, judge_selector, judge_template,
    name_is_no_label, negative, warn_of_template,
};
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at};
use crate::wire;

/// ReplicaSets, and what they were before.
pub(in crate::kind) enum Replicas {
    Set,
    Controller,
}

impl Replicas {
    fn spec(&self, it: &It<'_>) -> Errors {
        let path = Path::new("spec");
        match self {
            Replicas::Set => {
                let mut errors = negative(it.new, "spec", &["replicas", "minReadySeconds"]);
                let selected = judge_selector(it.new, "deployment", false);
                errors.extend(selected.errors);
                if selected.is_usable {
                    errors.extend(selected.mismatch);
                    errors.extend(judge_template(it, "ReplicaSet"));
                } else {
                    let selector = field::Value::internal(wire::LABEL_SELECTOR, at(it.new, "spec.selector"));
                    errors.push(path.child("selector").invalid(selector, "invalid label selector"));
                }
                errors
            }
            Replicas::Controller => {
                let mut errors = negative(it.new, "spec", &["minReadySeconds"]);
                let labels = at(it.new, "spec.selector");
                let has_selector = labels.as_object().is_some_and(|labels| !labels.is_empty());
                if !has_selector {
                    errors.push(path.child("selector").required(""));
                }
                errors.extend(negative(it.new, "spec", &["replicas"]));
                if at(it.new, TEMPLATE).is_null() {
                    errors.push(path.child("template").required(""));
                    return errors;
                }
                let own = at(it.new, "spec.template.metadata.labels");
                let differs = |(key, value): (&String, &Value)| own.get(key) != Some(value);
                if labels.as_object().is_some_and(|labels| labels.iter().any(differs)) {
                    let path = path.child("template").child("metadata").child("labels");
                    let why = "`selector` does not match template `labels`";
                    errors.push(path.invalid(field::Value::json(own), why));
                }
                errors.extend(judge_template(it, "ReplicationController"));
                errors
            }
        }
    }
}

impl Kind for Replicas {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = match self {
            Replicas::Set => it.metadata(),
            Replicas::Controller => it.metadata_by_name(),
        };
        errors.extend(self.spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.spec(it));
        if matches!(self, Replicas::Set) {
            errors.extend(immutable_selector(it));
        }
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = name_is_no_label(new);
        warnings.extend(warn_of_template(new, TEMPLATE));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        // Upstream confuses the templates of a changed ReplicationController: it is warned of the one that was.
        let warned_of = match self {
            Replicas::Set => new,
            Replicas::Controller => old,
        };
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(warned_of, TEMPLATE) }
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "replicas",
                "fullyLabeledReplicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
                "terminatingReplicas",
            ],
        ));
        let why = "cannot be greater than status.replicas";
        let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        errors.extend(exceeding(it.new, &counts, "replicas", why));
        errors.extend(exceeding(
            it.new,
            &["availableReplicas"],
            "readyReplicas",
            "cannot be greater than readyReplicas",
        ));
        errors
    }

    /// Only the older kind can be selected by how many there are.
    fn selectable(&self) -> &'static [&'static str] {
        match self {
            Replicas::Set => &[],
            Replicas::Controller => &["status.replicas"],
        }
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        let count = at(object, "status.replicas").as_i64().unwrap_or(0).to_string();
        self.selectable().iter().map(|name| (*name, count.clone())).collect()
    }
}
