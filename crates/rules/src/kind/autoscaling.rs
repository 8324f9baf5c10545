//! Autoscalers. They are kept as the second version has them; [`to_v2`] and [`from_v2`] translate.

use serde_json::{Value, json};
use types::Quantity;

use super::{It, Kind, at, items, text};
use crate::field::{self, Errors, Path};
use crate::meta;
use crate::names;

/// The one metric that the first version knows.
const CPU: &str = "cpu";

/// An autoscaler of the first version as one of the second. It knows no metric but the CPU.
pub fn to_v2(autoscaler: &Value) -> Value {
    let mut new = renamed(autoscaler, "autoscaling/v2");
    if let Some(spec) = new["spec"].as_object_mut()
        && let Some(percent) = spec.remove("targetCPUUtilizationPercentage")
        && !percent.is_null()
    {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        spec.insert(
            "metrics".to_owned(),
            json!([{"type": "Resource", "resource": {"name": CPU, "target": target}}]),
        );
    }
    if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
        && let Some(percent) = status.remove("currentCPUUtilizationPercentage")
        && !percent.is_null()
    {
        let current = json!({"averageUtilization": percent, "averageValue": "0"});
        let metric = json!({"type": "Resource", "resource": {"name": CPU, "current": current}});
        status.insert("currentMetrics".to_owned(), json!([metric]));
    }
    new
}

/// An autoscaler of the second version as one of the first.
pub fn from_v2(autoscaler: &Value) -> Value {
    let mut old = renamed(autoscaler, "autoscaling/v1");
    let of_cpu = |metrics: &Value, place: &str| {
        let mut metrics = metrics.as_array().into_iter().flatten();
        let cpu = metrics.find(|metric| text(metric, "resource.name") == CPU)?;
        let percent = cpu["resource"][place]["averageUtilization"].clone();
        (!percent.is_null()).then_some(percent)
    };
    if let Some(spec) = old["spec"].as_object_mut() {
        spec.remove("behavior");
        let metrics = spec.remove("metrics").unwrap_or(Value::Null);
        if let Some(percent) = of_cpu(&metrics, "target") {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
    }
    if let Some(status) = old.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("conditions");
        let metrics = status.remove("currentMetrics").unwrap_or(Value::Null);
        if let Some(percent) = of_cpu(&metrics, "current") {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
        }
    }
    old
}

fn renamed(autoscaler: &Value, version: &str) -> Value {
    let mut autoscaler = autoscaler.clone();
    if let Some(api_version) = autoscaler.get_mut("apiVersion") {
        *api_version = json!(version);
    }
    autoscaler
}

/// Autoscalers: how many replicas of what. What a metric says of its source is taken as it comes.
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
        for (i, metric) in items(spec, "metrics").iter().enumerate() {
            errors.extend(Autoscalers::metric(metric, &path.child("metrics").index(i)));
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
    fn metric(metric: &Value, path: &Path) -> Errors {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_versions() {
        let first = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70},
            "status": {"currentReplicas": 1, "currentCPUUtilizationPercentage": 5}});
        let second = to_v2(&first);
        assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
        assert_eq!(second["apiVersion"], "autoscaling/v2");
        assert_eq!(from_v2(&second), first);
    }
}
