//! What runs pods: Jobs, Deployments and their kin.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::value::{
    NONE, age, at, containers, count, labels, list, name, number, selector, since, text, text_or,
};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    const REPLICAS: &str =
        "Name:name|Desired:integer|Current:integer|Ready:integer|Age|Containers*|Images*|Selector*";
    Some(match (group, kind) {
        ("batch", "Job") => ("Name:name|Status|Completions|Duration|Age|Containers*|Images*|Selector*", job),
        ("batch", "CronJob") => (
            "Name:name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|Containers*|Images*|Selector*",
            cron_job,
        ),
        ("", "ReplicationController") => (REPLICAS, |o, now| {
            let mut cells = replicas(o, now);
            cells.push(json!(labels(o, "spec/selector")));
            cells
        }),
        ("apps", "ReplicaSet") => (REPLICAS, |o, now| {
            let mut cells = replicas(o, now);
            cells.push(json!(selector(o, "spec/selector")));
            cells
        }),
        ("apps", "Deployment") => {
            ("Name:name|Ready|Up-to-date|Available|Age|Containers*|Images*|Selector*", deployment)
        }
        ("apps", "StatefulSet") => ("Name:name|Ready|Age|Containers*|Images*", stateful_set),
        ("apps", "DaemonSet") => (
            "Name:name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|\
             Containers*|Images*|Selector*",
            daemon_set,
        ),
        ("apps", "ControllerRevision") => ("Name:name|Controller|Revision|Age", controller_revision),
        ("autoscaling", "Scale") => ("Name|Desired:integer|Available:integer|Age", |o, now| {
            vec![name(o), json!(number(o, "spec/replicas")), json!(number(o, "status/replicas")), age(o, now)]
        }),
        _ => return None,
    })
}

/// The rules of Jobs know what a Job shows.
fn job(job: &Value, now: Timestamp) -> Vec<Value> {
    rules::job::table::row(&rules::wire::typed(job), now).into_iter().map(|cell| json!(cell)).collect()
}

fn cron_job(cron: &Value, now: Timestamp) -> Vec<Value> {
    let suspend = match at(cron, "spec/suspend") {
        Value::Bool(true) => "True",
        Value::Bool(false) => "False",
        _ => UNSET_SWITCH,
    };
    let last = match at(cron, "status/lastScheduleTime") {
        Value::Null => NONE.to_owned(),
        time => since(time, now),
    };
    let [names, images] = containers(at(cron, "spec/jobTemplate/spec/template/spec"));
    vec![
        name(cron),
        json!(text(cron, "spec/schedule")),
        json!(text_or(cron, "spec/timeZone", NONE)),
        json!(suspend),
        json!(count(cron, "status/active")),
        json!(last),
        age(cron, now),
        names,
        images,
        json!(selector(cron, "spec/jobTemplate/spec/selector")),
    ]
}

const UNSET_SWITCH: &str = "<unset>";

/// All but the selector, which two kinds write in two ways.
fn replicas(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(at(set, "spec/template/spec"));
    vec![
        name(set),
        json!(number(set, "spec/replicas")),
        json!(number(set, "status/replicas")),
        json!(number(set, "status/readyReplicas")),
        age(set, now),
        names,
        images,
    ]
}

fn ready(set: &Value) -> Value {
    json!(format!("{}/{}", number(set, "status/readyReplicas"), number(set, "spec/replicas")))
}

fn deployment(deployment: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(at(deployment, "spec/template/spec"));
    let selected = selector(deployment, "spec/selector");
    vec![
        name(deployment),
        ready(deployment),
        json!(number(deployment, "status/updatedReplicas")),
        json!(number(deployment, "status/availableReplicas")),
        age(deployment, now),
        names,
        images,
        json!(if selected == NONE { "" } else { &selected }),
    ]
}

fn stateful_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(at(set, "spec/template/spec"));
    vec![name(set), ready(set), age(set, now), names, images]
}

fn daemon_set(set: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(at(set, "spec/template/spec"));
    let status = |part: &str| json!(number(set, &format!("status/{part}")));
    vec![
        name(set),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        json!(labels(set, "spec/template/spec/nodeSelector")),
        age(set, now),
        names,
        images,
        json!(selector(set, "spec/selector")),
    ]
}

fn controller_revision(revision: &Value, now: Timestamp) -> Vec<Value> {
    let owners = list(revision, "metadata/ownerReferences");
    let owner = owners.iter().find(|owner| owner["controller"] == true);
    let owner = owner.map_or_else(
        || NONE.to_owned(),
        |owner| {
            let kind = text(owner, "kind").to_lowercase();
            match text(owner, "apiVersion").rsplit_once('/') {
                Some((group, _)) => format!("{kind}.{}/{}", group.to_lowercase(), text(owner, "name")),
                None => format!("{kind}/{}", text(owner, "name")),
            }
        },
    );
    vec![name(revision), json!(owner), json!(number(revision, "revision")), age(revision, now)]
}
