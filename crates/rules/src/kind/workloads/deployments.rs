//! Deployments.

use serde_json::Value;

use super::amounts::{int_or_percent, is_zero, no_more_than_all};
use super::{
    TEMPLATE, collisions, drop_disabled, exceeding, generation, immutable_selector, judge_selector,
    judge_template, name_is_no_label, negative, warn_of_template,
};
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at, keep, keep_all_but, text};
use crate::wire;

pub(in crate::kind) struct Deployments;

impl Deployments {
    fn spec(it: &It<'_>) -> Errors {
        let path = Path::new("spec");
        let mut errors = negative(it.new, "spec", &["replicas"]);
        let selected = judge_selector(it.new, "deployment", false);
        errors.extend(selected.errors);
        if selected.is_usable {
            errors.extend(selected.mismatch);
            errors.extend(judge_template(it, "ReplicaSet"));
        } else {
            let selector = field::Value::internal(wire::LABEL_SELECTOR, at(it.new, "spec.selector"));
            errors.push(path.child("selector").invalid(selector, "invalid label selector"));
        }
        errors.extend(Deployments::strategy(at(it.new, "spec.strategy"), &path.child("strategy")));
        errors.extend(negative(
            it.new,
            "spec",
            &["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
        ));
        let ready = at(it.new, "spec.minReadySeconds").as_i64().unwrap_or(0);
        if let Some(deadline) = at(it.new, "spec.progressDeadlineSeconds").as_i64().filter(|it| *it <= ready)
        {
            let why = "must be greater than minReadySeconds";
            errors.push(path.child("progressDeadlineSeconds").invalid(deadline, why));
        }
        errors
    }

    fn strategy(strategy: &Value, path: &Path) -> Errors {
        let rolling = &strategy["rollingUpdate"];
        let path_rolling = path.child("rollingUpdate");
        match text(strategy, "type") {
            "Recreate" if rolling.is_null() => Errors::new(),
            "Recreate" => {
                vec![path_rolling.forbidden("may not be specified when strategy `type` is 'Recreate'")]
            }
            "RollingUpdate" if rolling.is_null() => {
                vec![path_rolling.required("this should be defaulted and never be nil")]
            }
            "RollingUpdate" => {
                let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
                let at_unavailable = path_rolling.child("maxUnavailable");
                let mut errors = int_or_percent(unavailable, &at_unavailable);
                errors.extend(int_or_percent(surge, &path_rolling.child("maxSurge")));
                if is_zero(unavailable) && is_zero(surge) {
                    let why = "may not be 0 when `maxSurge` is 0";
                    errors.push(at_unavailable.invalid(field::Value::json(unavailable), why));
                }
                errors.extend(no_more_than_all(unavailable, &at_unavailable));
                errors
            }
            _ => {
                let value = field::Value::internal("io.k8s.api.apps.v1.DeploymentStrategy", strategy);
                vec![path.not_supported(value, &["Recreate", "RollingUpdate"])]
            }
        }
    }
}

impl Kind for Deployments {
    fn counts(&self) -> Counts {
        Counts::Fields(&["spec", "metadata.annotations"])
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Deployments::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(Deployments::spec(it));
        errors.extend(immutable_selector(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        let mut warnings = name_is_no_label(new);
        warnings.extend(warn_of_template(new, TEMPLATE));
        warnings
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        if generation(new) == generation(old) { Vec::new() } else { warn_of_template(new, TEMPLATE) }
    }

    fn prepare_subresource(&self, _: &str, new: &mut Value, old: &Value) {
        keep_all_but(new, old, &["metadata", "status"]);
        let (mut meta, stored) = (new["metadata"].take(), &old["metadata"]);
        keep(&mut meta, stored, "labels");
        new["metadata"] = meta;
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "observedGeneration",
                "replicas",
                "updatedReplicas",
                "readyReplicas",
                "availableReplicas",
                "unavailableReplicas",
                "terminatingReplicas",
                "collisionCount",
            ],
        ));
        let why = "cannot be greater than status.replicas";
        errors.extend(exceeding(
            it.new,
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            "replicas",
            why,
        ));
        errors.extend(exceeding(
            it.new,
            &["availableReplicas"],
            "readyReplicas",
            "cannot be greater than readyReplicas",
        ));
        errors.extend(collisions(it));
        errors
    }
}
