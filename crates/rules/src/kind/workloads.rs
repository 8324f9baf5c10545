//! What runs pods from a template: Deployments, ReplicaSets, StatefulSets, DaemonSets, ReplicationControllers, and the
//! templates and revisions that they keep.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::{Counts, It, Kind, at, text};
use crate::field::{self, Errors, Path};
use crate::meta::{IMMUTABLE, not_negative, selector};
use crate::names;
use crate::{pod, wire};

mod amounts;
mod daemon_sets;
mod deployments;
mod replicas;
mod stateful_sets;

pub(super) use amounts::{int_or_percent, no_more_than_all};
pub(super) use daemon_sets::DaemonSets;
pub(super) use deployments::Deployments;
pub(super) use replicas::Replicas;
pub(super) use stateful_sets::StatefulSets;

pub(super) const TEMPLATE: &str = "spec.template";
const DECREMENTED: &str = "cannot be decremented";

/// The pod template at a path.
pub(super) fn template(object: &Value, path: &str) -> PodTemplateSpec {
    match at(object, path) {
        Value::Null => PodTemplateSpec::default(),
        template => wire::typed(template),
    }
}

/// Drops from a template what is behind a gate that is off.
pub(super) fn drop_disabled(new: &mut Value, old: &Value, path: &str) {
    if at(new, path).is_null() {
        return;
    }
    let (mut changed, before) = (template(new, path), template(old, path));
    let sent = changed.clone();
    pod::gates::drop_disabled(&mut changed, (!old.is_null()).then_some(&before));
    if changed == sent {
        return;
    }
    let untyped = wire::untyped(&changed, at(new, path));
    if let Some(place) = new.pointer_mut(&format!("/{}", path.replace('.', "/"))) {
        *place = schema::encode(wire::named(wire::POD_TEMPLATE_SPEC), &untyped);
    }
}

/// What is wrong with a template, and with a pod that does not go on for ever.
pub(super) fn judge_template(it: &It<'_>, noun: &str) -> Errors {
    let mut errors = template_errors(it, TEMPLATE);
    errors.extend(runs_for_ever(it.new, noun));
    errors
}

pub(super) fn template_errors(it: &It<'_>, path: &str) -> Errors {
    let (new, old) = (template(it.new, path), template(it.old, path));
    let options = pod::Options::for_template(&new, (!it.old.is_null()).then_some(&old));
    let options = options.with_privileged(it.allow_privileged);
    let at_template = path
        .split('.')
        .skip(1)
        .fold(Path::new(path.split('.').next().unwrap_or("")), |p, part| p.child(part));
    pod::validate_template(&new, &options, &at_template)
}

pub(super) fn runs_for_ever(object: &Value, noun: &str) -> Errors {
    let path = Path::new("spec").child("template").child("spec");
    let mut errors = Errors::new();
    let policy = text(object, "spec.template.spec.restartPolicy");
    if policy != "Always" {
        errors.push(path.child("restartPolicy").not_supported(field::Value::json(&policy), &["Always"]));
    }
    if !at(object, "spec.template.spec.activeDeadlineSeconds").is_null() {
        let why = format!("activeDeadlineSeconds in {noun} is not Supported");
        errors.push(path.child("activeDeadlineSeconds").forbidden(why));
    }
    errors
}

/// The selector at `spec.selector`, which must be there, not be empty, and match the labels of the template.
pub(super) struct Selected {
    pub(super) errors: Errors,
    /// Whether it can be matched against labels at all.
    pub(super) is_usable: bool,
    pub(super) mismatch: Option<field::Error>,
}

pub(super) fn judge_selector(object: &Value, noun: &str, tolerate: bool) -> Selected {
    let path = Path::new("spec").child("selector");
    let value = at(object, "spec.selector");
    if value.is_null() {
        // An absent selector selects nothing, and so not what the template makes.
        return Selected {
            errors: vec![path.required("")],
            is_usable: true,
            mismatch: mismatch(object, None),
        };
    }
    let typed: LabelSelector = wire::typed(value);
    let mut errors = selector::validate(&typed, tolerate, &path);
    let is_empty = typed.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && typed.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        let why = format!("empty selector is invalid for {noun}");
        errors.push(path.invalid(field::Value::internal(wire::LABEL_SELECTOR, &typed), why));
    }
    let labels = template(object, TEMPLATE).metadata.and_then(|meta| meta.labels).unwrap_or_default();
    let matches = selector::matches(Some(&typed), &labels);
    Selected {
        errors,
        is_usable: matches.is_some(),
        mismatch: if is_empty { None } else { mismatch(object, Some(&typed)) },
    }
}

pub(super) fn mismatch(object: &Value, selector: Option<&LabelSelector>) -> Option<field::Error> {
    let labels = template(object, TEMPLATE).metadata.and_then(|meta| meta.labels);
    let matches = selector.is_some_and(|selector| {
        selector::matches(Some(selector), &labels.clone().unwrap_or_default()) != Some(false)
    });
    let path = Path::new("spec").child("template").child("metadata").child("labels");
    (!matches)
        .then(|| path.invalid(field::Value::json(&labels), "`selector` does not match template `labels`"))
}

/// Numbers below zero, by their names in an object.
pub(super) fn negative(object: &Value, of: &str, fields: &[&str]) -> Errors {
    let numbers = fields.iter().filter_map(|name| Some((name, at(at(object, of), name).as_i64()?)));
    numbers.flat_map(|(name, number)| not_negative(number, &Path::new(of).child(name))).collect()
}

/// Counts in a status that exceed another one.
pub(super) fn exceeding(object: &Value, fields: &[&str], limit: &str, why: &str) -> Errors {
    let count = |name: &str| object["status"][name].as_i64().unwrap_or(0);
    let more = fields.iter().filter(|name| count(name) > count(limit));
    more.map(|name| Path::new("status").child(name).invalid(count(name), why)).collect()
}

pub(super) fn collisions(it: &It<'_>) -> Option<field::Error> {
    let count = |object: &Value| at(object, "status.collisionCount").as_i64();
    let (new, old) = (count(it.new), count(it.old)?);
    let path = Path::new("status").child("collisionCount");
    (new.unwrap_or(0) < old).then(|| path.invalid(new.unwrap_or(0), DECREMENTED))
}

pub(super) fn immutable_selector(it: &It<'_>) -> Errors {
    let (new, old) = (at(it.new, "spec.selector"), at(it.old, "spec.selector"));
    if new == old {
        return Errors::new();
    }
    let value = match new {
        Value::Null => field::Value::printed("null"),
        new => field::Value::internal(wire::LABEL_SELECTOR, new),
    };
    vec![Path::new("spec").child("selector").invalid(value, IMMUTABLE)]
}

pub(super) fn name_is_no_label(new: &Value) -> Vec<String> {
    let problems = names::dns_label(text(new, "metadata.name"));
    if problems.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is \
         recommended: [{}]",
        problems.join(" ")
    )]
}

pub(super) fn warn_of_template(new: &Value, path: &str) -> Vec<String> {
    let at_template = path
        .split('.')
        .skip(1)
        .fold(Path::new(path.split('.').next().unwrap_or("")), |p, part| p.child(part));
    pod::warnings::for_template(&template(new, path), None, &at_template)
}

pub(super) fn generation(object: &Value) -> i64 {
    at(object, "metadata.generation").as_i64().unwrap_or(0)
}

/// Templates by themselves.
pub(super) struct PodTemplates;

impl Kind for PodTemplates {
    fn counts(&self) -> Counts {
        Counts::Fields(&["template"])
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, "template");
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, "template");
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(template_errors(it, "template"));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(template_errors(it, "template"));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        warn_of_template(new, "template")
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, "template") }
    }
}

/// What a template was before.
pub(super) struct ControllerRevisions;

impl Kind for ControllerRevisions {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(not_negative(at(it.new, "revision").as_i64().unwrap_or(0), &Path::new("revision")));
        if it.old.is_null() {
            match at(it.new, "data") {
                Value::Object(_) => {}
                Value::Null => errors.push(Path::new("data").required("data is mandatory")),
                _ => errors.push(Path::new("data").required("data must be a valid JSON object")),
            }
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(self.validate(it));
        if at(it.new, "data") != at(it.old, "data") {
            errors.push(Path::new("data").invalid(field::Value::json(at(it.new, "data")), IMMUTABLE));
        }
        errors
    }
}
