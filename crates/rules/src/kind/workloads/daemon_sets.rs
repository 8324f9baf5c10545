//! DaemonSets.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::amounts::{int_or_percent, is_zero, no_more_than_all};
use super::{
    TEMPLATE, collisions, drop_disabled, immutable_selector, judge_template, negative, template,
    warn_of_template,
};
use crate::field::{self, Errors, Path};
use crate::kind::{Counts, It, Kind, at, text};
use crate::meta::selector;
use crate::wire;

pub(in crate::kind) struct DaemonSets;

/// The generation of the template is kept where clients once read it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

impl DaemonSets {
    fn spec(it: &It<'_>) -> Errors {
        let (path, spec) = (Path::new("spec"), at(it.new, "spec"));
        let tolerate = !it.old.is_null() && {
            let old: Option<LabelSelector> = match at(it.old, "spec.selector") {
                Value::Null => None,
                selector => Some(wire::typed(selector)),
            };
            selector::has_invalid_value(old.as_ref())
        };
        let mut errors = Errors::new();
        let selector = &spec["selector"];
        let labels = template(it.new, TEMPLATE).metadata.and_then(|meta| meta.labels);
        let typed: Option<LabelSelector> = (!selector.is_null()).then(|| wire::typed(selector));
        if let Some(typed) = &typed {
            errors.extend(selector::validate(typed, tolerate, &path.child("selector")));
        }
        let matches = match &typed {
            None => Some(false),
            Some(typed) => selector::matches(Some(typed), &labels.clone().unwrap_or_default()),
        };
        if matches == Some(false) {
            let path = path.child("template").child("metadata").child("labels");
            errors.push(
                path.invalid(field::Value::json(&labels), "`selector` does not match template `labels`"),
            );
        }
        if let Some(typed) = &typed
            && typed.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
            && typed.match_expressions.as_ref().is_none_or(Vec::is_empty)
        {
            let value = field::Value::internal(wire::LABEL_SELECTOR, typed);
            errors.push(path.child("selector").invalid(value, "empty selector is invalid for daemonset"));
        }
        errors.extend(judge_template(it, "DaemonSet"));
        errors.extend(negative(it.new, "spec", &["minReadySeconds"]));
        errors.extend(DaemonSets::strategy(&spec["updateStrategy"], &path.child("updateStrategy")));
        errors.extend(negative(it.new, "spec", &["revisionHistoryLimit"]));
        errors
    }

    fn strategy(strategy: &Value, path: &Path) -> Errors {
        let (rolling, at_rolling) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
        match text(strategy, "type") {
            "OnDelete" => Errors::new(),
            "RollingUpdate" if rolling.is_null() => vec![at_rolling.required("")],
            "RollingUpdate" => {
                let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
                let (at_unavailable, at_surge) =
                    (at_rolling.child("maxUnavailable"), at_rolling.child("maxSurge"));
                let mut errors = int_or_percent(unavailable, &at_unavailable);
                errors.extend(int_or_percent(surge, &at_surge));
                errors.extend(no_more_than_all(unavailable, &at_unavailable));
                errors.extend(no_more_than_all(surge, &at_surge));
                match (is_zero(unavailable), is_zero(surge)) {
                    (false, false) => {
                        let why = "may not be set when maxUnavailable is non-zero";
                        errors.push(at_surge.invalid(field::Value::json(surge), why));
                    }
                    (true, true) => errors.push(at_unavailable.required("cannot be 0 when maxSurge is 0")),
                    _ => {}
                }
                errors
            }
            _ => {
                let value = field::Value::internal("io.k8s.api.apps.v1.DaemonSetUpdateStrategy", strategy);
                vec![path.not_supported(value, &["RollingUpdate", "OnDelete"])]
            }
        }
    }

    fn template_generation(object: &Value) -> i64 {
        let text = object["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    fn set_template_generation(object: &mut Value, generation: i64) {
        object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!(generation.to_string());
    }
}

impl Kind for DaemonSets {
    fn counts(&self) -> Counts {
        Counts::Spec
    }

    fn default(&self, object: &mut Value) {
        if object["metadata"]["annotations"].get(TEMPLATE_GENERATION).is_none() {
            DaemonSets::set_template_generation(object, 0);
        }
    }

    fn prepare_create(&self, new: &mut Value) -> Vec<String> {
        let generation = DaemonSets::template_generation(new).max(1);
        DaemonSets::set_template_generation(new, generation);
        drop_disabled(new, &Value::Null, TEMPLATE);
        Vec::new()
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        drop_disabled(new, old, TEMPLATE);
        let changed = at(new, TEMPLATE) != at(old, TEMPLATE);
        DaemonSets::set_template_generation(new, DaemonSets::template_generation(old) + i64::from(changed));
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(DaemonSets::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(immutable_selector(it));
        errors.extend(DaemonSets::spec(it));
        errors
    }

    fn warn(&self, new: &Value) -> Vec<String> {
        warn_of_template(new, TEMPLATE)
    }

    fn warn_update(&self, new: &Value, old: &Value) -> Vec<String> {
        let same = DaemonSets::template_generation(new) == DaemonSets::template_generation(old);
        if same { Vec::new() } else { warn_of_template(new, TEMPLATE) }
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(negative(
            it.new,
            "status",
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ],
        ));
        errors.extend(collisions(it));
        errors
    }
}
