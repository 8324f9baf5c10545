//! Autoscalers. They are kept as the second version has them; [`to_v2`] and [`from_v2`] translate.

mod first;

pub use first::{from_v2, to_v2};
use serde_json::{Value, json};
use types::Quantity;

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta;
use crate::names;
use crate::pod::resources::container_resource_name;

/// Which versions a reference may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Versions {
    /// Whatever it says.
    Any,
    /// Those that can be read.
    Parsed,
    /// Those of a group.
    Grouped,
}

fn wrong_version(version: &str, versions: Versions) -> Option<String> {
    match (versions, version.matches('/').count()) {
        (Versions::Any, _) => None,
        (_, 2..) => Some(format!("unexpected GroupVersion string: {version}")),
        (Versions::Grouped, 0) => Some("apiVersion must specify API group".to_owned()),
        (Versions::Grouped, _) if version.starts_with('/') => {
            Some("apiVersion must specify API group".to_owned())
        }
        _ => None,
    }
}

fn reference(target: &Value, versions: Versions, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for name in ["kind", "name"] {
        let path = path.child(name);
        match text(target, name) {
            "" => errors.push(path.required("")),
            value => errors.extend(segment(value, &path)),
        }
    }
    let version = text(target, "apiVersion");
    errors.extend(wrong_version(version, versions).map(|why| path.child("apiVersion").invalid(version, why)));
    errors
}

fn segment(name: &str, path: &Path) -> Errors {
    names::path_segment(name).into_iter().map(|problem| path.invalid(name, problem)).collect()
}

/// What a metric says of its source.
fn measured(kind: &str, source: &Value, versions: Versions, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if kind == "object" {
        errors.extend(reference(&source["describedObject"], versions, &path.child("describedObject")));
    }
    if matches!(kind, "resource" | "containerResource") {
        let at_name = path.child("name");
        match text(source, "name") {
            "" => errors.push(at_name.required("must specify a resource name")),
            name if kind == "containerResource" => errors.extend(container_resource_name(name, &at_name)),
            _ => {}
        }
    } else {
        let at_name = path.child("metric").child("name");
        match text(source, "metric.name") {
            "" => errors.push(at_name.required("must specify a metric name")),
            name => errors.extend(segment(name, &at_name)),
        }
    }
    if kind == "containerResource" {
        let at_container = path.child("container");
        match text(source, "container") {
            "" => errors.push(at_container.required("must specify a container")),
            name => {
                let problems = names::dns_label(name).into_iter();
                errors.extend(problems.map(|problem| at_container.invalid(name, problem)));
            }
        }
    }
    let (target, path) = (&source["target"], path.child("target"));
    errors.extend(self::target(target, &path));
    let has = |field: &str| !target[field].is_null();
    let average = path.child("averageValue");
    match kind {
        "object" if !has("value") && !has("averageValue") => {
            errors.push(average.required("must set either a target value or averageValue"));
        }
        "external" if !has("value") && !has("averageValue") => {
            errors.push(average.required("must set either a target value for metric or a per-pod target"));
        }
        "external" if has("value") && has("averageValue") => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.push(path.child("value").forbidden(why));
        }
        "pods" if !has("averageValue") => {
            errors.push(average.required("must specify a positive target averageValue"));
        }
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => {
            let why = "must set either a target raw value or a target utilization";
            errors.push(path.child("averageUtilization").required(why));
        }
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => {
            errors.push(average.forbidden("may not set both a target raw value and a target utilization"));
        }
        _ => {}
    }
    errors
}

fn target(target: &Value, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (kind, at_type) = (text(target, "type"), path.child("type"));
    if kind.is_empty() {
        errors.push(at_type.required("must specify a metric target type"));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let value = field::Value::json(&kind);
        errors.push(at_type.invalid(value, "must be either Utilization, Value, or AverageValue"));
    }
    for name in ["value", "averageValue"] {
        if let Some(Ok(amount)) = target[name].as_str().map(str::parse::<Quantity>)
            && !amount.is_positive()
        {
            errors.push(path.child(name).invalid(amount.to_string().as_str(), "must be positive"));
        }
    }
    if let Some(percent) = target["averageUtilization"].as_i64().filter(|percent| *percent < 1) {
        errors.push(path.child("averageUtilization").invalid(percent, "must be greater than 0"));
    }
    errors
}

/// Autoscalers: how many replicas of what, by which measures.
pub(super) struct Autoscalers;

impl Autoscalers {
    fn spec(it: &It<'_>) -> Errors {
        let (spec, path) = (at(it.new, "spec"), Path::new("spec"));
        let mut errors = Errors::new();
        let (min, max) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
        // Whoever has none may keep it so.
        let least = i64::from(at(it.old, "spec.minReplicas") != &json!(0));
        if let Some(min) = min.filter(|min| *min < least) {
            errors.push(
                path.child("minReplicas").invalid(min, format!("must be greater than or equal to {least}")),
            );
        }
        if max < 1 {
            errors.push(path.child("maxReplicas").invalid(max, "must be greater than 0"));
        }
        if min.is_some_and(|min| max < min) {
            let why = "must be greater than or equal to `minReplicas`";
            errors.push(path.child("maxReplicas").invalid(max, why));
        }
        let (target, before) = (&spec["scaleTargetRef"], at(it.old, "spec.scaleTargetRef"));
        let is_same = !it.old.is_null()
            && ["apiVersion", "kind"].iter().all(|name| text(target, name) == text(before, name));
        let versions = match text(target, "kind") {
            _ if is_same => Versions::Any,
            "ReplicationController" => Versions::Parsed,
            _ => Versions::Grouped,
        };
        errors.extend(reference(target, versions, &path.child("scaleTargetRef")));
        let was_wrong = items(it.old, "spec.metrics").iter().any(|metric| {
            text(metric, "type") == "Object"
                && wrong_version(text(metric, "object.describedObject.apiVersion"), Versions::Parsed)
                    .is_some()
        });
        let versions = if was_wrong { Versions::Any } else { Versions::Parsed };
        let metrics = items(spec, "metrics");
        for (i, metric) in metrics.iter().enumerate() {
            errors.extend(Autoscalers::metric(metric, versions, &path.child("metrics").index(i)));
        }
        if min == Some(0)
            && !metrics.iter().any(|metric| matches!(text(metric, "type"), "Object" | "External"))
        {
            let why =
                "must specify at least one Object or External metric to support scaling to zero replicas";
            errors.push(path.child("metrics").forbidden(why));
        }
        for direction in ["scaleUp", "scaleDown"] {
            let rules = &spec["behavior"][direction];
            if !rules.is_null() {
                errors.extend(Autoscalers::rules(rules, &path.child("behavior").child(direction)));
            }
        }
        errors
    }

    /// A metric has a type and is of that type.
    fn metric(metric: &Value, versions: Versions, path: &Path) -> Errors {
        const SOURCES: [(&str, &str); 5] = [
            ("ContainerResource", "containerResource"),
            ("External", "external"),
            ("Object", "object"),
            ("Pods", "pods"),
            ("Resource", "resource"),
        ];
        let mut errors = Errors::new();
        let (kind, at_type) = (text(metric, "type"), path.child("type"));
        if kind.is_empty() {
            errors.push(at_type.required("must specify a metric source type"));
        }
        let wanted = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, source)| *source);
        // Only the first that is there is looked at.
        let first = ["object", "external", "pods", "resource", "containerResource"].into_iter();
        if let Some(source) = first.into_iter().find(|source| !metric[*source].is_null()) {
            errors.extend(measured(source, &metric[source], versions, &path.child(source)));
        }
        match wanted {
            None => {
                // Asked twice, in the list of types and for what belongs to it.
                let error = at_type.not_supported(field::Value::json(&kind), &SOURCES.map(|(name, _)| name));
                errors.extend([error.clone(), error]);
            }
            Some(source) if metric[source].is_null() => {
                let why = "must populate information for the given metric source";
                errors.push(path.child(source).required(why));
            }
            Some(_) => {}
        }
        let present: Vec<&str> =
            SOURCES.iter().map(|(_, source)| *source).filter(|source| !metric[*source].is_null()).collect();
        if present.len() != 1 {
            let others = present.into_iter().filter(|source| Some(*source) != wanted);
            let why = "must populate the given metric source only";
            errors.extend(others.map(|source| path.child(source).forbidden(why)));
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
        if let Some(Ok(tolerance)) = rules["tolerance"].as_str().map(str::parse::<Quantity>)
            && tolerance.is_negative()
        {
            let path = path.child("tolerance");
            errors.push(path.invalid(tolerance.to_string().as_str(), meta::NEGATIVE));
        }
        errors
    }
}

impl Kind for Autoscalers {
    /// What the first version keeps in annotations has fields here.
    fn default(&self, object: &mut Value) {
        first::drop_annotations(object);
    }

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
