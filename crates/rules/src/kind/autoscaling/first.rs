//! The first version of autoscalers. It knows no metric but the CPU: everything else of the second is kept in annotations,
//! so that whoever reads an autoscaler in the first and writes it back loses nothing.

use schema::Type;
use serde_json::{Value, json};

use crate::kind::{at, items, text};
use crate::wire;

/// The one metric that the first version knows.
const CPU: &str = "cpu";
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
/// All that are the server's; the last two are of a version that is gone.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    BEHAVIOR,
    CONDITIONS,
    CURRENT_METRICS,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// How a field of a metric is spelled in the first version, and where it is in the second.
struct Field(&'static str, &'static str, As);

/// How a field is written in the first version.
#[derive(Clone, Copy)]
enum As {
    /// A text that is always there.
    Text,
    /// An amount that is always there, and be it zero.
    Amount,
    /// Something that may not be there.
    Maybe,
    /// A reference to an object.
    Reference,
    /// A selector that may not be there.
    Selector,
}

/// The sources of metrics and their fields, in the order in which they are written.
type Sources = [(&'static str, &'static [Field]); 5];

const TARGETS: Sources = [
    (
        "object",
        &[
            Field("target", "describedObject", As::Reference),
            Field("metricName", "metric.name", As::Text),
            Field("targetValue", "target.value", As::Amount),
            Field("selector", "metric.selector", As::Selector),
            Field("averageValue", "target.averageValue", As::Maybe),
        ],
    ),
    (
        "pods",
        &[
            Field("metricName", "metric.name", As::Text),
            Field("targetAverageValue", "target.averageValue", As::Amount),
            Field("selector", "metric.selector", As::Selector),
        ],
    ),
    (
        "resource",
        &[
            Field("name", "name", As::Text),
            Field("targetAverageUtilization", "target.averageUtilization", As::Maybe),
            Field("targetAverageValue", "target.averageValue", As::Maybe),
        ],
    ),
    (
        "containerResource",
        &[
            Field("name", "name", As::Text),
            Field("targetAverageUtilization", "target.averageUtilization", As::Maybe),
            Field("targetAverageValue", "target.averageValue", As::Maybe),
            Field("container", "container", As::Text),
        ],
    ),
    (
        "external",
        &[
            Field("metricName", "metric.name", As::Text),
            Field("metricSelector", "metric.selector", As::Selector),
            Field("targetValue", "target.value", As::Maybe),
            Field("targetAverageValue", "target.averageValue", As::Maybe),
        ],
    ),
];

const MEASURED: Sources = [
    (
        "object",
        &[
            Field("target", "describedObject", As::Reference),
            Field("metricName", "metric.name", As::Text),
            Field("currentValue", "current.value", As::Amount),
            Field("selector", "metric.selector", As::Selector),
            Field("averageValue", "current.averageValue", As::Maybe),
        ],
    ),
    (
        "pods",
        &[
            Field("metricName", "metric.name", As::Text),
            Field("currentAverageValue", "current.averageValue", As::Amount),
            Field("selector", "metric.selector", As::Selector),
        ],
    ),
    (
        "resource",
        &[
            Field("name", "name", As::Text),
            Field("currentAverageUtilization", "current.averageUtilization", As::Maybe),
            Field("currentAverageValue", "current.averageValue", As::Amount),
        ],
    ),
    (
        "containerResource",
        &[
            Field("name", "name", As::Text),
            Field("currentAverageUtilization", "current.averageUtilization", As::Maybe),
            Field("currentAverageValue", "current.averageValue", As::Amount),
            Field("container", "container", As::Text),
        ],
    ),
    (
        "external",
        &[
            Field("metricName", "metric.name", As::Text),
            Field("metricSelector", "metric.selector", As::Selector),
            Field("currentValue", "current.value", As::Amount),
            Field("currentAverageValue", "current.averageValue", As::Maybe),
        ],
    ),
];

/// An autoscaler of the first version as one of the second.
pub fn to_v2(autoscaler: &Value) -> Value {
    let mut new = renamed(autoscaler, "autoscaling/v2");
    let kept = |name: &str| -> Option<Value> {
        serde_json::from_str(autoscaler["metadata"]["annotations"][name].as_str()?).ok()
    };
    let mut metrics = kept(METRICS).and_then(|kept| read_metrics(&kept, &TARGETS, "MetricSpec"));
    if let Some(spec) = new["spec"].as_object_mut() {
        if let Some(percent) =
            spec.remove("targetCPUUtilizationPercentage").filter(|percent| !percent.is_null())
        {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            let metric = json!({"type": "Resource", "resource": {"name": CPU, "target": target}});
            metrics.get_or_insert_default().push(metric);
        }
        if let Some(metrics) = metrics {
            spec.insert("metrics".to_owned(), json!(metrics));
        }
        let behavior = kept(BEHAVIOR).map(|kept| with_small_first_letters(&kept));
        let behavior = behavior.and_then(|kept| read(&kept, "HorizontalPodAutoscalerBehavior"));
        if let Some(behavior) =
            behavior.filter(|behavior| behavior.as_object().is_some_and(|of| !of.is_empty()))
        {
            spec.insert("behavior".to_owned(), behavior);
        }
    }
    let mut status = new["status"].take();
    let percent = status.as_object_mut().and_then(|status| status.remove("currentCPUUtilizationPercentage"));
    if let Some(percent) = percent.filter(|percent| !percent.is_null()) {
        let resource = json!({"name": CPU, "current": {"averageUtilization": percent}});
        status["currentMetrics"] = json!([{"type": "Resource", "resource": resource}]);
    }
    // What was kept says more.
    if let Some(metrics) =
        kept(CURRENT_METRICS).and_then(|kept| read_metrics(&kept, &MEASURED, "MetricStatus"))
    {
        status["currentMetrics"] = json!(metrics);
    }
    let conditions = kept(CONDITIONS).and_then(|kept| {
        let all = kept.as_array()?.iter();
        all.map(|kept| read(kept, "HorizontalPodAutoscalerCondition")).collect::<Option<Vec<_>>>()
    });
    if let Some(conditions) = conditions {
        status["conditions"] = json!(conditions);
    }
    match status {
        Value::Null => drop(new.as_object_mut().map(|new| new.remove("status"))),
        status => new["status"] = status,
    }
    drop_annotations(&mut new);
    new
}

/// An autoscaler of the second version as one of the first.
pub fn from_v2(autoscaler: &Value) -> Value {
    let mut old = renamed(autoscaler, "autoscaling/v1");
    drop_annotations(&mut old);
    let mut keep = |name: &str, text: String| old["metadata"]["annotations"][name] = json!(text);
    let metrics = items(autoscaler, "spec.metrics");
    let percent_of = |metric: &Value, place: &str| {
        let is_of_cpu = text(metric, "type") == "Resource" && text(metric, "resource.name") == CPU;
        let percent = metric["resource"][place]["averageUtilization"].clone();
        (is_of_cpu && !percent.is_null()).then_some(percent)
    };
    let others: Vec<&Value> =
        metrics.iter().filter(|metric| percent_of(metric, "target").is_none()).collect();
    if !others.is_empty() {
        keep(METRICS, written(others.into_iter().map(|metric| write_metric(metric, &TARGETS))));
    }
    let current = items(autoscaler, "status.currentMetrics");
    if !current.is_empty() {
        keep(CURRENT_METRICS, written(current.iter().map(|metric| write_metric(metric, &MEASURED))));
    }
    let behavior = at(autoscaler, "spec.behavior");
    if !behavior.is_null() {
        let of = named("HorizontalPodAutoscalerBehavior");
        // As the struct in which a server holds it, which has names of its own.
        keep(BEHAVIOR, schema::internal::json(of, behavior).expect("the type has a counterpart"));
    }
    let conditions = items(autoscaler, "status.conditions");
    if !conditions.is_empty() {
        let of = named("HorizontalPodAutoscalerCondition");
        keep(CONDITIONS, written(conditions.iter().map(|condition| schema::encode_text(of, condition))));
    }
    if let Some(spec) = old["spec"].as_object_mut() {
        spec.remove("behavior");
        spec.remove("metrics");
        if let Some(percent) = metrics.iter().find_map(|metric| percent_of(metric, "target")) {
            spec.insert("targetCPUUtilizationPercentage".to_owned(), percent);
        }
    }
    if let Some(status) = old.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("conditions");
        status.remove("currentMetrics");
        if let Some(percent) = current.iter().rev().find_map(|metric| percent_of(metric, "current")) {
            status.insert("currentCPUUtilizationPercentage".to_owned(), percent);
        }
    }
    old
}

/// Takes away the annotations that are nobody's but the server's.
pub(super) fn drop_annotations(autoscaler: &mut Value) {
    let Some(annotations) = autoscaler.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.retain(|name, _| !ANNOTATIONS.contains(&name.as_str()));
    if annotations.is_empty() {
        autoscaler["metadata"].as_object_mut().map(|meta| meta.remove("annotations"));
    }
}

fn renamed(autoscaler: &Value, version: &str) -> Value {
    let mut autoscaler = autoscaler.clone();
    if let Some(api_version) = autoscaler.get_mut("apiVersion") {
        *api_version = json!(version);
    }
    autoscaler
}

/// A type of the second version.
fn named(name: &str) -> Type {
    wire::named(&format!("io.k8s.api.autoscaling.v2.{name}"))
}

/// What was kept, if it is of a type of the second version: what is not is passed over as a whole.
fn read(kept: &Value, name: &str) -> Option<Value> {
    schema::decode_value(named(name), kept).ok().map(|decoded| decoded.value)
}

/// Metrics of the first version as those of the second.
fn read_metrics(kept: &Value, sources: &Sources, name: &str) -> Option<Vec<Value>> {
    kept.as_array()?.iter().map(|metric| read(&read_metric(metric, sources), name)).collect()
}

fn read_metric(metric: &Value, sources: &Sources) -> Value {
    if !metric.is_object() {
        return metric.clone();
    }
    let mut read = json!({"type": field(metric, "type")});
    for (source, fields) in sources {
        let old = field(metric, source);
        if old.is_null() {
            continue;
        }
        if !old.is_object() {
            read[source] = old.clone();
            continue;
        }
        let mut new = json!({});
        for Field(name, path, form) in *fields {
            let value = match (field(old, name), form) {
                (Value::Null, As::Amount) => json!("0"),
                (Value::Null, _) => continue,
                (value, _) => value.clone(),
            };
            *path.split('.').fold(&mut new, |at, part| &mut at[part]) = value;
        }
        if fields.iter().any(|Field(_, path, _)| path.starts_with("target.")) {
            new["target"]["type"] = json!(type_of_target(source, &new["target"]));
        }
        read[source] = new;
    }
    read
}

/// A field, however it is capitalised: so does Go read it.
fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let fields = object.as_object().into_iter().flatten();
    let mut alike = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    alike.next().map_or(&Value::Null, |(_, value)| value)
}

/// The type of a target, which the first version does not tell.
fn type_of_target(source: &str, target: &Value) -> &'static str {
    let has = |name: &str| !target[name].is_null();
    match source {
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        "object" if !has("averageValue") => "Value",
        "external" if has("value") => "Value",
        _ => "AverageValue",
    }
}

/// Fields of the struct in which a server holds an autoscaler as clients call them.
fn with_small_first_letters(value: &Value) -> Value {
    let small = |name: &str| -> String {
        name.chars().take(1).flat_map(char::to_lowercase).chain(name.chars().skip(1)).collect()
    };
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (small(name), with_small_first_letters(value))).collect()
        }
        Value::Array(items) => items.iter().map(with_small_first_letters).collect(),
        other => other.clone(),
    }
}

/// A metric as the first version writes it, field by field in its order.
fn write_metric(metric: &Value, sources: &Sources) -> String {
    let mut fields = vec![("type", types::go::json(&json!(text(metric, "type"))))];
    for (source, of) in sources.iter().filter(|(source, _)| !metric[*source].is_null()) {
        let parts = of.iter().filter_map(|Field(name, path, form)| {
            Some((*name, write_field(at(&metric[*source], path), *form)?))
        });
        fields.push((source, object(parts)));
    }
    object(fields)
}

fn write_field(value: &Value, form: As) -> Option<String> {
    let of_meta = || wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector");
    match (form, value) {
        (As::Maybe | As::Selector, Value::Null) => None,
        (As::Text, Value::Null) => Some("\"\"".to_owned()),
        (As::Amount, Value::Null) => Some("\"0\"".to_owned()),
        (As::Reference, value) => Some(schema::encode_text(named("CrossVersionObjectReference"), value)),
        (As::Selector, value) => Some(schema::encode_text(of_meta(), value)),
        (As::Text | As::Amount | As::Maybe, value) => Some(types::go::json(value)),
    }
}

fn object<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn written(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_versions() {
        let first = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70},
            "status": {"currentReplicas": 1}});
        let second = to_v2(&first);
        assert_eq!(second["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 70);
        assert_eq!(second["apiVersion"], "autoscaling/v2");
        assert_eq!(from_v2(&second), first);
    }

    fn second(spec: &Value, status: &Value) -> Value {
        let meta = json!({"name": "a", "annotations": {"a": "b"}});
        json!({"apiVersion": "autoscaling/v2", "metadata": meta, "spec": spec, "status": status})
    }

    #[test]
    fn nothing_of_the_second_is_lost_by_way_of_the_first() {
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}});
        let memory = json!({"type": "Resource", "resource": {"name": "memory",
            "target": {"type": "Utilization", "averageUtilization": 70}}});
        let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "2"}}});
        let object = json!({"type": "Object", "object": {"metric": {"name": "m"},
            "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
            "target": {"type": "Value", "value": "1k"}}});
        let external = json!({"type": "External", "external": {"metric": {"name": "m"},
            "target": {"type": "AverageValue", "averageValue": "2"}}});
        let container = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 5}}});
        let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Min",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}], "tolerance": "100m"}});
        let conditions = json!([{"type": "AbleToScale", "status": "True", "lastTransitionTime": "2025-01-01T00:00:00Z",
            "reason": "r", "message": "m"}]);
        let current = json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": 5, "averageValue": "10m"}}}]);
        // The CPU comes last: it is the one that the first version has a field for.
        let spec = json!({"maxReplicas": 3, "behavior": behavior,
            "metrics": [memory, pods, object, external, container, cpu]});
        let status = json!({"currentReplicas": 1, "currentMetrics": current, "conditions": conditions});
        for (spec, status) in
            [(spec, status), (json!({"maxReplicas": 3, "metrics": [memory]}), json!({"currentReplicas": 1}))]
        {
            let whole = second(&spec, &status);
            assert_eq!(to_v2(&from_v2(&whole)), whole);
        }
    }

    #[test]
    fn annotations_are_written_as_kubernetes_writes_them() {
        let spec = json!({"maxReplicas": 3, "metrics": [{"type": "Object", "object": {"metric": {"name": "m"},
            "describedObject": {"kind": "Service", "name": "s"}, "target": {"type": "Value", "value": "3"}}}],
            "behavior": {"scaleUp": {"selectPolicy": "Disabled"}}});
        let first = from_v2(&second(&spec, &json!({})));
        let annotations = json!({"a": "b",
            METRICS: r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"m","targetValue":"3"}}]"#,
            BEHAVIOR: r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Disabled","Policies":null,"Tolerance":null},"ScaleDown":null}"#});
        assert_eq!(first["metadata"]["annotations"], annotations);
    }

    #[test]
    fn annotations_that_cannot_be_read_are_dropped() {
        for (name, text) in [
            (METRICS, r#"[{"type": 1}]"#),
            (METRICS, r#"[{"resource": "x"}]"#),
            (METRICS, "x"),
            (BEHAVIOR, r#"{"ScaleUp": {"StabilizationWindowSeconds": "x"}}"#),
            (BEHAVIOR, "{}"),
            (CONDITIONS, "[1]"),
            (CURRENT_METRICS, "{}"),
        ] {
            let first = json!({"apiVersion": "autoscaling/v1", "metadata": {"annotations": {name: text}},
                "spec": {"maxReplicas": 1}});
            let second = to_v2(&first);
            let expected =
                json!({"apiVersion": "autoscaling/v2", "metadata": {}, "spec": {"maxReplicas": 1}});
            assert_eq!(second, expected, "{name}: {text}");
        }
    }
}
