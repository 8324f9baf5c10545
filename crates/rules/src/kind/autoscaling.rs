//! Autoscalers.

use serde_json::Value;

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta;
use crate::names;

/// Autoscalers: how many replicas of what. Metrics are taken as they come.
pub(super) struct Autoscalers;

impl Autoscalers {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        let (min, max) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
        if let Some(min) = min.filter(|min| *min < 1) {
            errors.push(path.child("minReplicas").invalid(min, "must be greater than or equal to 1"));
        }
        if max < 1 {
            errors.push(path.child("maxReplicas").invalid(max, "must be greater than 0"));
        }
        if min.is_some_and(|min| max < min) {
            let why = "must be greater than or equal to `minReplicas`";
            errors.push(path.child("maxReplicas").invalid(max, why));
        }
        let (target, path_target) = (&spec["scaleTargetRef"], path.child("scaleTargetRef"));
        for name in ["kind", "name"] {
            match text(target, name) {
                "" => errors.push(path_target.child(name).required("")),
                value => {
                    let path = path_target.child(name);
                    errors.extend(
                        names::path_segment(value).into_iter().map(|problem| path.invalid(value, problem)),
                    );
                }
            }
        }
        let version = text(target, "apiVersion");
        match version.matches('/').count() {
            0 => {
                let why = "apiVersion must specify API group";
                errors.push(path_target.child("apiVersion").invalid(version, why));
            }
            1 => {}
            _ => {
                let why = format!("unexpected GroupVersion string: {version}");
                errors.push(path_target.child("apiVersion").invalid(version, why));
            }
        }
        for direction in ["scaleUp", "scaleDown"] {
            let rules = &spec["behavior"][direction];
            if !rules.is_null() {
                errors.extend(Autoscalers::rules(rules, &path.child("behavior").child(direction)));
            }
        }
        errors
    }

    fn rules(rules: &Value, path: &Path) -> Errors {
        const HOUR: i64 = 60 * 60;
        const HALF_HOUR: i64 = 30 * 60;
        let mut errors = Errors::new();
        let at_window = path.child("stabilizationWindowSeconds");
        match rules["stabilizationWindowSeconds"].as_i64() {
            Some(seconds) if seconds < 0 => {
                errors.push(at_window.invalid(seconds, "must be greater than or equal to zero"));
            }
            Some(seconds) if seconds > HOUR => {
                errors.push(at_window.invalid(seconds, format!("must be less than or equal to {HOUR}")));
            }
            _ => {}
        }
        let select = ["Disabled", "Max", "Min"];
        if let Some(policy) = rules["selectPolicy"].as_str().filter(|policy| !select.contains(policy)) {
            errors.push(path.child("selectPolicy").not_supported(field::Value::json(&policy), &select));
        }
        let policies = items(rules, "policies");
        if policies.is_empty() {
            errors.push(path.child("policies").required("must specify at least one Policy"));
        }
        for (i, policy) in policies.iter().enumerate() {
            let path = path.child("policies").index(i);
            let kind = text(policy, "type");
            if !matches!(kind, "Pods" | "Percent") {
                errors
                    .push(path.child("type").not_supported(field::Value::json(&kind), &["Percent", "Pods"]));
            }
            let number = |name: &str| policy[name].as_i64().unwrap_or(0);
            for name in ["value", "periodSeconds"] {
                if number(name) <= 0 {
                    errors.push(path.child(name).invalid(number(name), "must be greater than zero"));
                }
            }
            if number("periodSeconds") > HALF_HOUR {
                let why = format!("must be less than or equal to {HALF_HOUR}");
                errors.push(path.child("periodSeconds").invalid(number("periodSeconds"), why));
            }
        }
        errors
    }
}

impl Kind for Autoscalers {
    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        errors.extend(Autoscalers::spec(it));
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(Autoscalers::spec(it));
        errors
    }

    fn validate_subresource(&self, _: &str, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        for name in ["currentReplicas", "desiredReplicas"] {
            let count = it.new["status"][name].as_i64().unwrap_or(0);
            errors.extend(meta::not_negative(count, &Path::new("status").child(name)));
        }
        errors
    }
}
