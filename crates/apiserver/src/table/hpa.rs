//! Autoscalers: what they measure, and what they want it to be.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::value::{NONE, UNKNOWN, UNSET, age, at, few, list, name, number, text};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    let columns = "Name:name|Reference|Targets|MinPods|MaxPods|Replicas|Age";
    ((group, kind) == ("autoscaling", "HorizontalPodAutoscaler")).then_some((columns, cells as Cells))
}

fn cells(hpa: &Value, now: Timestamp) -> Vec<Value> {
    let of = at(hpa, "spec/scaleTargetRef");
    let least = at(hpa, "spec/minReplicas").as_i64().map_or(UNSET.to_owned(), |number| number.to_string());
    vec![
        name(hpa),
        json!(format!("{}/{}", text(of, "kind"), text(of, "name"))),
        json!(targets(hpa)),
        json!(least),
        json!(number(hpa, "spec/maxReplicas")),
        json!(number(hpa, "status/currentReplicas")),
        age(hpa, now),
    ]
}

fn targets(hpa: &Value) -> String {
    let statuses = list(hpa, "status/currentMetrics");
    let mut all: Vec<String> = list(hpa, "spec/metrics")
        .iter()
        .enumerate()
        .map(|(i, metric)| target(metric, statuses.get(i).unwrap_or(&Value::Null)))
        .collect();
    // The first version of the API knows the processor only.
    if let Some(wanted) = at(hpa, "spec/targetCPUUtilizationPercentage").as_i64() {
        let current = at(hpa, "status/currentCPUUtilizationPercentage").as_i64();
        let current = current.map_or(UNKNOWN.to_owned(), |percent| format!("{percent}%"));
        all.push(format!("cpu: {current}/{wanted}%"));
    }
    few(&all, 2, ", ", NONE)
}

fn target(metric: &Value, status: &Value) -> String {
    let quantity = |value: &Value| value.as_str().map(str::to_owned);
    let percent = |value: &Value| value.as_i64().map(|percent| format!("{percent}%"));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| UNKNOWN.to_owned());
    match text(metric, "type") {
        kind @ ("External" | "Object") => {
            let part = if kind == "External" { "external" } else { "object" };
            let (wanted, current) = (&metric[part]["target"], &status[part]["current"]);
            if let Some(average) = quantity(&wanted["averageValue"]) {
                return format!("{}/{average} (avg)", or_unknown(quantity(&current["averageValue"])));
            }
            let current = (!status[part].is_null()).then(|| text(current, "value").to_owned());
            format!("{}/{}", or_unknown(current), text(wanted, "value"))
        }
        "Pods" => {
            let current = quantity(&status["pods"]["current"]["averageValue"]);
            format!("{}/{}", or_unknown(current), text(metric, "pods/target/averageValue"))
        }
        kind @ ("Resource" | "ContainerResource") => {
            let part = if kind == "Resource" { "resource" } else { "containerResource" };
            let (of, current) = (&metric[part], &status[part]["current"]);
            let resource = text(of, "name");
            if let Some(average) = quantity(&of["target"]["averageValue"]) {
                return format!("{resource}: {}/{average}", or_unknown(quantity(&current["averageValue"])));
            }
            let wanted = percent(&of["target"]["averageUtilization"]).unwrap_or("<auto>".to_owned());
            format!("{resource}: {}/{wanted}", or_unknown(percent(&current["averageUtilization"])))
        }
        _ => "<unknown type>".to_owned(),
    }
}
