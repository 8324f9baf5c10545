//! A worker's status of a job, as the manager may show it.
//!
//! What a worker reports is valid there; it need not be valid as the next status of the manager's object, which has a
//! history of its own: it may have run on another worker before, and it is suspended and resumed at other times. So a
//! status is copied as far as the rules of the Job API let it follow what is shown already, and what comes out always
//! passes them.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube_core::DynamicObject;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{Adapter, STOPPING, adapter::Back, condition, group, observed::annotation};
use crate::framework::custom::{self, Shape};
use crate::job::{
    self, COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, indexes::IndexSet, is_finished,
    is_indexed, is_suspended, is_true,
};

/// The status that the manager's job gets when a worker reports this one; `None` if it has it already, or if it must
/// not be shown yet.
pub fn status(
    adapter: &Adapter,
    local: &DynamicObject,
    remote: &DynamicObject,
    now: Timestamp,
) -> Option<Value> {
    let reported = remote.data.get("status").filter(|status| status.is_object());
    let shown = local.data.get("status").cloned().unwrap_or_else(|| json!({}));
    // Most looks find nothing new. What is held back may have to say so nevertheless.
    if !adapter.is_suspended(&local.data) && reported.is_some_and(|reported| is_same(reported, &shown)) {
        return None;
    }
    let next = match adapter.back {
        Back::Job => {
            let (local, remote) = (typed(local)?, typed(remote)?);
            if is_untold(&local) && is_to_start(&remote) {
                return None;
            }
            serde_json::to_value(job_status(&local, &remote, now)).ok()?
        }
        Back::Pod => pod_status(&shown, reported?),
        Back::Group => {
            return group::statuses(local, |name, shown| {
                let next = pod_status(shown, group::reported(remote, name)?);
                (!is_same(&next, shown)).then_some(next)
            });
        }
        Back::Nothing => return None,
        Back::Whole => reported?.clone(),
    };
    (!is_same(&next, &shown)).then_some(next)
}

/// The status of the manager's job when no cluster has pods of it any more (MK-LOST-07); `None` if it shows none.
pub fn settled(adapter: &Adapter, local: &DynamicObject, now: Timestamp) -> Option<Value> {
    match adapter.back {
        Back::Pod => return settled_pod(local.data.get("status")?),
        Back::Group => return group::statuses(local, |_, shown| settled_pod(shown)),
        Back::Job | Back::Whole | Back::Nothing => {}
    }
    if adapter.back != Back::Job {
        return custom::settled(Shape::of(adapter.group, adapter.kind)?, local, now);
    }
    let job = typed(local)?;
    let mut status = job::status(&job).clone();
    let shows_pods =
        [status.active, status.ready, status.terminating].into_iter().flatten().any(|count| count > 0);
    if !shows_pods || is_finished(&job) {
        return None;
    }
    status.active = Some(0);
    status.ready = Some(0);
    status.terminating = Some(0);
    serde_json::to_value(status).ok()
}

/// The same when a cluster has no pods of it except those of the mirror, which may be some of a group.
pub fn settled_without(
    adapter: &Adapter,
    local: &DynamicObject,
    mirror: Option<&DynamicObject>,
    now: Timestamp,
) -> Option<Value> {
    match mirror {
        None => settled(adapter, local, now),
        Some(mirror) if adapter.back == Back::Group => {
            let missing = group::missing(local, Some(mirror));
            let is_missing = |name: &str| missing.iter().any(|it| it == name);
            group::statuses(local, |name, shown| is_missing(name).then(|| settled_pod(shown))?)
        }
        Some(_) => None,
    }
}

/// The statuses of a group's pods on the manager with the ends that a worker reports; `None` if all of them are recorded,
/// and for all that is no group.
pub fn ends(adapter: &Adapter, local: &DynamicObject, mirror: &DynamicObject) -> Option<Value> {
    if adapter.back != Back::Group {
        return None;
    }
    group::statuses(local, |name, shown| {
        let reported = group::reported(mirror, name).filter(|reported| group::is_over(reported))?;
        (!group::is_over(shown)).then(|| pod_status(shown, reported))
    })
}

/// The status of the manager's job when a worker says of the Workload that it has ended, and the mirror is not there to
/// tell more. `None` for kinds other than batch Job, Pod and groups of pods, if the manager's job has ended already, and
/// if the worker does not say that the job has succeeded or failed: nothing is made up.
pub fn ended(adapter: &Adapter, local: &DynamicObject, end: &Condition) -> Option<Value> {
    let failed = match end.reason.as_str() {
        "Succeeded" => false,
        "Failed" => true,
        _ => return None,
    };
    match adapter.back {
        Back::Job => {}
        Back::Pod => return ended_pod(local.data.get("status").unwrap_or(&Value::Null), failed),
        // Who is not known to have started may have joined the group when it had ended.
        Back::Group => {
            let started = |shown: &&Value| shown["phase"] == "Running";
            return group::statuses(local, |_, shown| ended_pod(Some(shown).filter(started)?, failed));
        }
        Back::Nothing | Back::Whole => return None,
    }
    let job = typed(local)?;
    if is_finished(&job) {
        return None;
    }
    let mut status = job::status(&job).clone();
    let at = Time(
        end.last_transition_time.0.max(status.start_time.as_ref().map_or(Timestamp::MIN, |start| start.0)),
    );
    let (target, outcome) = if failed { (FAILURE_TARGET, FAILED) } else { (SUCCESS_CRITERIA_MET, COMPLETE) };
    let conditions = status.conditions.get_or_insert_default();
    for kind in [target, outcome] {
        set(conditions, kind, &end.reason, &end.message, &at);
    }
    status.active = Some(0);
    status.ready = Some(0);
    status.terminating = Some(0);
    status.uncounted_terminated_pods = None;
    status.start_time = status.start_time.or_else(|| Some(at.clone()));
    status.completion_time = (!failed).then_some(at);
    serde_json::to_value(status).ok()
}

/// What the manager shows of a batch Job whose mirror is in this state (MK-JOB-01…06).
fn job_status(local: &Job, remote: &Job, now: Timestamp) -> JobStatus {
    let shown = job::status(local);
    // Ends are final.
    if is_finished(local) {
        return shown.clone();
    }
    let reported = job::status(remote);
    if is_held_back(local) && !is_held_back(remote) && !is_finished(remote) {
        // A start time would keep the template from being changed until the Job is resumed here too (MK-JOB-04).
        let mut status = shown.clone();
        if !is_true(shown, SUSPENDED) {
            let conditions = status.conditions.get_or_insert_default();
            set(
                conditions,
                SUSPENDED,
                "MultiKueueAdapter",
                "Set by MultiKueue adapter",
                &condition::time(now),
            );
        }
        return status;
    }
    let mut status = reported.clone();
    // Which pods the worker's controller has still to count is between it and its pods.
    status.uncounted_terminated_pods = None;
    if !is_finished(remote) {
        // A promised outcome cannot be taken back, and until it has come the Job may have to run elsewhere.
        status.conditions.iter_mut().for_each(|conditions| {
            conditions.retain(|condition| {
                ![FAILURE_TARGET, SUCCESS_CRITERIA_MET].contains(&condition.type_.as_str())
            });
        });
    }
    follow_indexes(&mut status, local);
    follow_counters(&mut status, local);
    follow_times(&mut status, local, remote);
    status
}

/// With partial admission the worker may run more indexes than the Job has here, and what is said of those is not valid
/// here (MK-JOB-07).
fn follow_indexes(status: &mut JobStatus, local: &Job) {
    let spec = job::spec(local);
    let Some(completions) = spec.completions.filter(|_| is_indexed(spec)) else { return };
    let cut = |list: &mut Option<String>| {
        let beyond = list.as_deref().is_some_and(|list| IndexSet::parse(list, completions).is_err());
        let within = beyond.then(|| IndexSet::read(list.as_deref().unwrap_or_default(), completions));
        *list = within.as_ref().map(ToString::to_string).or_else(|| list.take());
        within
    };
    cut(&mut status.failed_indexes);
    if let Some(completed) = cut(&mut status.completed_indexes) {
        let count = i32::try_from(completed.len()).unwrap_or(i32::MAX);
        status.succeeded = status.succeeded.map(|succeeded| succeeded.min(count));
    }
}

/// Counters only count up, also when the Job starts again elsewhere.
fn follow_counters(status: &mut JobStatus, local: &Job) {
    let (shown, spec) = (job::status(local), job::spec(local));
    let at_least = |count: Option<i32>, before: Option<i32>| if before > count { before } else { count };
    status.failed = at_least(status.failed, shown.failed);
    if !(is_indexed(spec) && spec.completions == spec.parallelism) {
        status.succeeded = at_least(status.succeeded, shown.succeeded);
    }
}

/// A Job that is not suspended keeps the time at which it started here, unless this is when it is resumed; and what has
/// ended has started.
fn follow_times(status: &mut JobStatus, local: &Job, remote: &Job) {
    let shown = job::status(local);
    let resumes = is_true(shown, SUSPENDED) && job::has_condition(status, SUSPENDED, "False");
    let is_pinned = !is_suspended(job::spec(local)) && shown.start_time.is_some() && !resumes;
    if is_pinned {
        status.start_time.clone_from(&shown.start_time);
    }
    if is_finished(remote) && status.start_time.is_none() {
        status.start_time = shown.start_time.clone().or_else(|| {
            let conditions = status.conditions.iter().flatten();
            let times = conditions.filter(|condition| condition.status == "True");
            times.filter_map(|condition| condition.last_transition_time.clone()).min_by_key(|time| time.0)
        });
    }
    if let (Some(start), Some(end)) = (&status.start_time, &status.completion_time)
        && end.0 < start.0
    {
        // Clocks differ: the other worker's, on which it started first, was ahead.
        let both = if is_pinned { start.clone() } else { end.clone() };
        status.start_time = Some(both.clone());
        status.completion_time = Some(both);
    }
}

/// Nothing is shown of it yet: that the mirror waits to be started is no news.
fn is_untold(job: &Job) -> bool {
    *job::status(job) == JobStatus::default()
}

/// Held back, or no longer so and its controller has yet to see that.
fn is_to_start(mirror: &Job) -> bool {
    (is_held_back(mirror) || is_true(job::status(mirror), SUSPENDED)) && !is_finished(mirror)
}

/// Suspended, and not only about to be (MK-JOB-05).
fn is_held_back(job: &Job) -> bool {
    is_suspended(job::spec(job)) && annotation(&job.metadata, STOPPING) != Some("true")
}

/// The status of a pod (MK-POD-04): while the manager's pod is held back and the worker's is not scheduled, the
/// manager's says that it is held back, so that nobody adds a node for it. Ends are final.
fn pod_status(shown: &Value, reported: &Value) -> Value {
    if group::is_over(shown) && shown["phase"] != reported["phase"] {
        return shown.clone();
    }
    let find = |status: &Value| {
        let conditions = status["conditions"].as_array();
        conditions.and_then(|all| all.iter().find(|condition| condition["type"] == "PodScheduled")).cloned()
    };
    let mut next = reported.clone();
    let Some(gated) = find(shown).filter(|scheduled| scheduled["reason"] == "SchedulingGated") else {
        return next;
    };
    if find(reported).is_some_and(|scheduled| scheduled["status"] == "True") {
        return next;
    }
    let others = reported["conditions"].as_array().into_iter().flatten();
    let mut conditions: Vec<Value> =
        others.filter(|condition| condition["type"] != "PodScheduled").cloned().collect();
    conditions.push(gated);
    next["conditions"] = Value::Array(conditions);
    next
}

/// The status of a pod whose worker says that it has ended, and does not show it any more; `None` if its end is shown.
fn ended_pod(shown: &Value, failed: bool) -> Option<Value> {
    let phase = if failed { "Failed" } else { "Succeeded" };
    let mut status = if shown.is_object() { shown.clone() } else { json!({}) };
    status["phase"] = json!(phase);
    (!group::is_over(shown)).then_some(status)
}

/// The status of a pod that no cluster has any more, and that has not ended (MK-POD-06): it waits again behind its gate. `None`
/// if that is what it shows.
fn settled_pod(shown: &Value) -> Option<Value> {
    let phase = shown["phase"].as_str().unwrap_or("Pending");
    let conditions = shown["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_gated = |condition: &Value| condition["reason"] == "SchedulingGated";
    let rests = phase == "Pending" && conditions.iter().all(is_gated);
    if rests || group::is_over(shown) {
        return None;
    }
    let gated = json!({
        "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    });
    Some(json!({ "phase": "Pending", "conditions": [gated], "qosClass": shown["qosClass"] }))
}

fn set(conditions: &mut Vec<JobCondition>, kind: &str, reason: &str, message: &str, at: &Time) {
    conditions.retain(|condition| condition.type_ != kind);
    conditions.push(JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(at.clone()),
        last_transition_time: Some(at.clone()),
    });
}

/// A batch Job out of an object that says it is one.
pub(super) fn typed(object: &DynamicObject) -> Option<Job> {
    let job = Job::deserialize(&object.data).ok()?;
    Some(Job { metadata: object.metadata.clone(), ..job })
}

/// Whether two statuses say the same; an absent field and an empty one do.
pub(super) fn is_same(left: &Value, right: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let null = Value::Null;
            left.keys().chain(right.keys()).all(|key| {
                let (left, right) = (left.get(key).unwrap_or(&null), right.get(key).unwrap_or(&null));
                is_empty(left) && is_empty(right) || is_same(left, right)
            })
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| is_same(left, right))
        }
        _ => left == right,
    }
}
