//! How Jobs show in `kubectl get` (API-05…API-08): the columns of a table, and the cells of a row.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, is_true, spec, status};

/// Names of the columns, and whether they show only when more is asked for.
pub const COLUMNS: [(&str, bool); 8] = [
    ("Name", false),
    ("Status", false),
    ("Completions", false),
    ("Duration", false),
    ("Age", false),
    ("Containers", true),
    ("Images", true),
    ("Selector", true),
];

/// The cells of a Job, in the order of [`COLUMNS`].
pub fn row(job: &Job, now: Timestamp) -> [String; 8] {
    let containers = || spec(job).template.spec.iter().flat_map(|pod| &pod.containers);
    let names: Vec<&str> = containers().map(|container| container.name.as_str()).collect();
    let images: Vec<&str> = containers().filter_map(|container| container.image.as_deref()).collect();
    [
        job.metadata.name.clone().unwrap_or_default(),
        state(job).to_owned(),
        completions(job),
        duration(job, now),
        job.metadata.creation_timestamp.as_ref().map_or("<unknown>".to_owned(), |at| age(at.0, now)),
        names.join(","),
        images.join(","),
        selector(spec(job).selector.as_ref()),
    ]
}

/// In one word how the Job is; the first that holds.
pub fn state(job: &Job) -> &'static str {
    let is = |condition| is_true(status(job), condition);
    match () {
        () if is(COMPLETE) => "Complete",
        () if is(FAILED) => "Failed",
        () if job.metadata.deletion_timestamp.is_some() => "Terminating",
        () if is(SUSPENDED) => "Suspended",
        () if is(FAILURE_TARGET) => "FailureTarget",
        () if is(SUCCESS_CRITERIA_MET) => "SuccessCriteriaMet",
        () => "Running",
    }
}

fn completions(job: &Job) -> String {
    let succeeded = status(job).succeeded.unwrap_or(0);
    match (spec(job).completions, spec(job).parallelism.unwrap_or(0)) {
        (Some(completions), _) => format!("{succeeded}/{completions}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// How long the Job has run; that of a failed Job keeps growing, because it has no completion time.
fn duration(job: &Job, now: Timestamp) -> String {
    let status = status(job);
    let end = status.completion_time.as_ref().map_or(now, |time| time.0);
    status.start_time.as_ref().map_or_else(String::new, |start| age(start.0, end))
}

/// The time between two moments in Kubernetes' words.
fn age(from: Timestamp, to: Timestamp) -> String {
    match Duration::try_from(to.duration_since(from)) {
        Ok(duration) => human(duration),
        Err(_) if to.duration_since(from).as_secs() >= -1 => "0s".to_owned(),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration with two digits or so of what matters: `45s`, `3m20s`, `75m`, `5h30m`, `2d4h`, `3y10d`.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: u64, unit: &str, small: u64, sub: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{sub}"),
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, "h", minutes % 60, "m"),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => two(days, "d", hours % 24, "h"),
        () if days < 365 * 2 => format!("{days}d"),
        () if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        () => format!("{}y", days / 365),
    }
}

/// A selector as it would be typed; `<none>` if it is empty.
pub fn selector(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "<none>".to_owned() };
    let labels = selector.match_labels.iter().flatten();
    let mut terms: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={value}"))).collect();
    for requirement in selector.match_expressions.iter().flatten() {
        let key = &requirement.key;
        let mut values: Vec<&str> = requirement.values.iter().flatten().map(String::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        let term = match requirement.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        terms.push((key, term));
    }
    terms.sort_by_key(|(key, _)| *key);
    let terms: Vec<String> = terms.into_iter().map(|(_, term)| term).collect();
    if terms.is_empty() { "<none>".to_owned() } else { terms.join(",") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(job: Value, column: &str, expected: &str) {
        let job: Job = serde_json::from_value(job).expect("a test's Job");
        let now = "2025-01-01T01:00:00Z".parse().expect("a time");
        let place = COLUMNS.iter().position(|(name, _)| *name == column).expect("a column");
        assert_eq!(row(&job, now)[place], expected);
    }

    #[test]
    fn api_05_columns() {
        let plain: Vec<&str> = COLUMNS.iter().filter(|(_, wide)| !wide).map(|(name, _)| *name).collect();
        assert_eq!(plain, ["Name", "Status", "Completions", "Duration", "Age"]);
        let template =
            json!({"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}});
        let job = json!({
            "metadata": {"name": "n", "creationTimestamp": "2025-01-01T00:58:00Z"},
            "spec": {"template": template, "selector": {"matchLabels": {"k": "v"}, "matchExpressions": [
                {"key": "x", "operator": "In", "values": ["1", "2"]}, {"key": "y", "operator": "DoesNotExist"},
            ]}},
        });
        for (column, cell) in [
            ("Name", "n"),
            ("Age", "2m"),
            ("Containers", "a,b"),
            ("Images", "i,j"),
            ("Selector", "k=v,x in (1,2),!y"),
        ] {
            check(job.clone(), column, cell);
        }
    }

    #[test]
    fn api_06_status() {
        let with = |names: &[&str], deleting: bool| {
            let conditions: Value =
                names.iter().map(|name| json!({"type": name, "status": "True"})).collect();
            let mut job = json!({"spec": {}, "status": {"conditions": conditions}});
            if deleting {
                job["metadata"] = json!({"deletionTimestamp": "2025-01-01T00:00:00Z"});
            }
            job
        };
        check(with(&["SuccessCriteriaMet", "Complete"], true), "Status", "Complete");
        check(with(&["FailureTarget", "Failed"], false), "Status", "Failed");
        check(with(&["Suspended"], true), "Status", "Terminating");
        check(with(&["Suspended", "FailureTarget"], false), "Status", "Suspended");
        check(with(&["FailureTarget", "SuccessCriteriaMet"], false), "Status", "FailureTarget");
        check(with(&["SuccessCriteriaMet"], false), "Status", "SuccessCriteriaMet");
        check(with(&[], false), "Status", "Running");
    }

    #[test]
    fn api_07_completions() {
        check(json!({"spec": {"completions": 3}, "status": {"succeeded": 1}}), "Completions", "1/3");
        check(json!({"spec": {"parallelism": 4}}), "Completions", "0/1 of 4");
        check(json!({"spec": {"parallelism": 1}}), "Completions", "0/1");
    }

    #[test]
    fn api_08_duration() {
        check(json!({"spec": {}}), "Duration", "");
        check(json!({"spec": {}, "status": {"startTime": "2025-01-01T00:59:15Z"}}), "Duration", "45s");
        let done = json!({"startTime": "2025-01-01T00:00:00Z", "completionTime": "2025-01-01T00:03:20Z"});
        check(json!({"spec": {}, "status": done}), "Duration", "3m20s");
    }

    #[test]
    fn api_08_durations_are_human() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (179 * 60, "179m"),
            (3 * 3600, "3h"),
            (7 * 3600 + 60, "7h1m"),
            (8 * 3600, "8h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (8 * 86400, "8d"),
            (729 * 86400, "729d"),
            (730 * 86400, "2y"),
            (740 * 86400, "2y10d"),
            (8 * 365 * 86400, "8y"),
        ] {
            assert_eq!(human(Duration::from_secs(seconds)), text);
        }
    }
}
