//! What a controller may write into the status of a Job (S-01…S-54).
//!
//! The rules keep every writer honest, the built-in controller and external ones alike. Most of them look only at what
//! a write changes, so that a status that was bad already can still be mended or left alone (S-40).

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, JobStatus};

use crate::field::{Error, Errors, Path, Value};
use crate::meta::{self, IMMUTABLE, not_negative};
use crate::wire;

use super::indexes::{self, IndexSet};
use super::{
    COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED, has_condition, is_finished,
    is_indexed, is_suspended, is_true, spec, status,
};

/// Everything that is wrong with a status write, after
/// [`prepare::for_status_update`](super::prepare::for_status_update).
pub fn validate_status_update(new: &Job, old: &Job) -> Errors {
    let mut errors = meta::validate_update_built_in(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(validate_transition(new, old));
    errors
}

/// The part about the status itself, in the order in which Kubernetes checks.
pub fn validate_transition(new: &Job, old: &Job) -> Errors {
    let path = Path::new("status");
    let changed = Changed::between(old, new);
    let mut errors = validate_counters(status(new), &path);
    errors.extend(validate_finish(new, &changed, &path));
    errors.extend(validate_indexes(new, &changed, &path));
    errors.extend(validate_pod_counts(new, &changed, &path));
    errors.extend(validate_success_criteria(new, &path));
    errors.extend(validate_history(new, old, &changed, &path));
    errors
}

/// What a write changes; a rule is asked only when something it speaks of did.
#[allow(clippy::struct_excessive_bools)] // each is one predicate of the rules' table
struct Changed {
    finished: bool,
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria: bool,
    completed_indexes: bool,
    failed_indexes: bool,
    active: bool,
    ready: bool,
    terminating: bool,
    start_time: bool,
    completion_time: bool,
    uncounted: bool,
}

impl Changed {
    fn between(old: &Job, new: &Job) -> Self {
        let finished = is_finished(old) != is_finished(new);
        let (old, new) = (status(old), status(new));
        let condition = |name| is_true(old, name) != is_true(new, name);
        Changed {
            finished,
            complete: condition(COMPLETE),
            failed: condition(FAILED),
            failure_target: condition(FAILURE_TARGET),
            success_criteria: condition(SUCCESS_CRITERIA_MET),
            completed_indexes: completed_indexes(old) != completed_indexes(new),
            failed_indexes: old.failed_indexes != new.failed_indexes,
            active: active(old) != active(new),
            ready: old.ready != new.ready,
            terminating: old.terminating != new.terminating,
            start_time: old.start_time != new.start_time,
            completion_time: old.completion_time != new.completion_time,
            uncounted: uncounted(old) != uncounted(new),
        }
    }
}

/// Counters are not negative and pods are not counted twice (S-06…S-08).
fn validate_counters(status: &JobStatus, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (field, count) in [
        ("active", status.active),
        ("succeeded", status.succeeded),
        ("failed", status.failed),
        ("ready", status.ready),
        ("terminating", status.terminating),
    ] {
        errors.extend(not_negative(count.unwrap_or(0).into(), &path.child(field)));
    }
    if let Some(pods) = &status.uncounted_terminated_pods {
        let mut seen = BTreeSet::new();
        for (field, uids) in [("succeeded", &pods.succeeded), ("failed", &pods.failed)] {
            for (i, uid) in uids.iter().flatten().enumerate() {
                let path = path.child("uncountedTerminatedPods").child(field).index(i);
                if uid.is_empty() {
                    errors.push(path.invalid(Value::json(uid), "must not be empty"));
                } else if !seen.insert(uid) {
                    errors.push(path.duplicate(Value::json(uid)));
                }
            }
        }
    }
    errors
}

/// How a Job ends: one way only, with its times, and with no pods left (S-09a…S-09j).
fn validate_finish(job: &Job, changed: &Changed, path: &Path) -> Errors {
    let status = status(job);
    let is_true = |condition| is_true(status, condition);
    let conditions = |why: &str| path.child("conditions").invalid(Value::OMITTED, why);
    let completion_time = path.child("completionTime");
    let mut errors = Errors::new();

    if (changed.complete || changed.failed) && is_true(COMPLETE) && is_true(FAILED) {
        errors.push(conditions("cannot set Complete=True and Failed=true conditions"));
    }
    if (changed.complete || changed.failure_target) && is_true(COMPLETE) && is_true(FAILURE_TARGET) {
        errors.push(conditions("cannot set Complete=True and FailureTarget=true conditions"));
    }
    if changed.complete || changed.completion_time {
        errors.extend(match (&status.completion_time, is_true(COMPLETE)) {
            (Some(time), false) => {
                let why = "cannot set completionTime when there is no Complete=True condition";
                Some(completion_time.invalid(Value::json(time), why))
            }
            (None, true) => Some(completion_time.required("completionTime is required for Complete jobs")),
            _ => None,
        });
    }
    if (changed.start_time || changed.completion_time)
        && let (Some(start), Some(completion)) = (&status.start_time, &status.completion_time)
        && completion.0 < start.0
    {
        errors
            .push(completion_time.invalid(Value::json(completion), "must be equal to or after `startTime`"));
    }
    // Upstream looks at the failed indexes here, not only at the condition; so do we (S-09f).
    if (changed.failed || changed.failed_indexes) && is_true(FAILED) && !is_true(FAILURE_TARGET) {
        errors.push(conditions("cannot set Failed=True condition without the FailureTarget=true condition"));
    }
    if (changed.complete || changed.success_criteria) && is_true(COMPLETE) && !is_true(SUCCESS_CRITERIA_MET) {
        errors.push(conditions(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ));
    }
    if is_finished(job) {
        errors.extend(validate_finished(job, changed, path));
    }
    errors
}

fn validate_finished(job: &Job, changed: &Changed, path: &Path) -> Errors {
    let status = status(job);
    let mut errors = Errors::new();
    if (changed.finished || changed.active) && active(status) > 0 {
        errors.push(path.child("active").invalid(active(status), "active>0 is invalid for finished job"));
    }
    // A suspended Job that wants no pods is complete without ever having started.
    let never_starts = is_suspended(spec(job)) && spec(job).completions == Some(0);
    if (changed.finished || changed.start_time) && !never_starts && status.start_time.is_none() {
        errors.push(path.child("startTime").required("startTime is required for finished job"));
    }
    let (succeeded, failed) = uncounted(status).unwrap_or_default();
    if (changed.finished || changed.uncounted) && !(succeeded.is_empty() && failed.is_empty()) {
        let pods = Value::internal(wire::UNCOUNTED_TERMINATED_PODS, &status.uncounted_terminated_pods);
        errors.push(path.child("uncountedTerminatedPods").invalid(pods, "must be empty for finished job"));
    }
    errors
}

/// The lists of indexes are well-formed, where they make sense, and do not overlap (S-10…S-14).
fn validate_indexes(job: &Job, changed: &Changed, path: &Path) -> Errors {
    let (spec, status) = (spec(job), status(job));
    let (completed, failed) = (completed_indexes(status), status.failed_indexes.as_deref());
    let (completed_path, failed_path) = (path.child("completedIndexes"), path.child("failedIndexes"));
    let mut errors = Errors::new();

    if let Some(completions) = spec.completions
        && changed.completed_indexes
        && let Err(why) = IndexSet::parse(completed, completions)
    {
        errors.push(completed_path.invalid(completed, format!("error parsing completedIndexes: {why}")));
    }
    if let (Some(completions), Some(_), Some(failed)) =
        (spec.completions, spec.backoff_limit_per_index, failed)
        && changed.failed_indexes
        && let Err(why) = IndexSet::parse(failed, completions)
    {
        errors.push(failed_path.invalid(Value::json(&failed), format!("error parsing failedIndexes: {why}")));
    }
    if changed.completed_indexes && !completed.is_empty() && !is_indexed(spec) {
        let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(completed_path.invalid(completed, why));
    }
    if let (Some(failed), None) = (failed, spec.backoff_limit_per_index)
        && changed.failed_indexes
    {
        let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(failed_path.invalid(failed, why));
    }
    if let (Some(completions), Some(failed)) = (spec.completions, failed)
        && (changed.failed_indexes || changed.completed_indexes)
        && let Some(index) = indexes::overlap(completed, failed, completions)
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(failed_path.invalid(failed, why));
    }
    errors
}

/// No pods go on after the end, and ready pods are active ones (S-15, S-16).
fn validate_pod_counts(job: &Job, changed: &Changed, path: &Path) -> Errors {
    let status = status(job);
    let mut errors = Errors::new();
    if let Some(terminating) = status.terminating.filter(|n| *n > 0 && is_finished(job))
        && (changed.finished || changed.terminating)
    {
        errors.push(
            path.child("terminating").invalid(terminating, "terminating>0 is invalid for finished job"),
        );
    }
    if let Some(ready) = status.ready.filter(|ready| *ready > active(status))
        && (changed.ready || changed.active)
    {
        errors.push(path.child("ready").invalid(ready, "cannot set more ready pods than active"));
    }
    errors
}

/// Success and failure exclude each other from the moment the outcome is known (S-20…S-22).
fn validate_success_criteria(job: &Job, path: &Path) -> Errors {
    let is_true = |condition| is_true(status(job), condition);
    let refuse = |when: bool, why: &str| when.then(|| path.child("conditions").invalid(Value::OMITTED, why));
    let met = is_true(SUCCESS_CRITERIA_MET);
    let errors: [Option<Error>; 3] = [
        refuse(met && is_true(FAILED), "cannot set SuccessCriteriaMet=True and Failed=true conditions"),
        refuse(
            met && is_true(FAILURE_TARGET),
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ),
        refuse(
            spec(job).success_policy.is_some() && is_true(COMPLETE) && !met,
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ),
    ];
    errors.into_iter().flatten().collect()
}

/// Ends are final, counters count up, and a Job starts once (S-17, S-18, S-30, S-31).
fn validate_history(new: &Job, old: &Job, changed: &Changed, path: &Path) -> Errors {
    let spec = spec(new);
    let (was, is) = (status(old), status(new));
    let conditions = |why: String| path.child("conditions").invalid(Value::OMITTED, why);
    let mut errors = Errors::new();

    for condition in [FAILED, COMPLETE, FAILURE_TARGET] {
        if is_true(was, condition) && !is_true(is, condition) {
            errors.push(conditions(format!("cannot disable the terminal {condition}=True condition")));
        }
    }
    let (failed, succeeded) = (is.failed.unwrap_or(0), is.succeeded.unwrap_or(0));
    if failed < was.failed.unwrap_or(0) {
        errors.push(path.child("failed").invalid(failed, "cannot decrease the failed counter"));
    }
    // An elastic Job that shrinks forgets the indexes that it no longer has.
    let is_elastic = is_indexed(spec) && spec.completions == spec.parallelism;
    if !is_elastic && succeeded < was.succeeded.unwrap_or(0) {
        errors.push(path.child("succeeded").invalid(succeeded, "cannot decrease the succeeded counter"));
    }
    if let (Some(old), Some(new)) = (&was.completion_time, &is.completion_time)
        && old != new
    {
        errors.push(path.child("completionTime").invalid(Value::json(new), IMMUTABLE));
    }
    let resuming = is_true(was, SUSPENDED) && has_condition(is, SUSPENDED, "False");
    if changed.start_time && !resuming && was.start_time.is_some() && !is_suspended(spec) {
        errors.push(path.child("startTime").required("startTime cannot be removed for unsuspended job"));
    }
    let (was_met, is_met) = (is_true(was, SUCCESS_CRITERIA_MET), is_true(is, SUCCESS_CRITERIA_MET));
    if was_met && !is_met {
        errors.push(conditions("cannot disable the SuccessCriteriaMet=True condition".to_owned()));
    }
    if is_true(was, COMPLETE) && !was_met && is_met {
        let why = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions";
        errors.push(conditions(why.to_owned()));
    }
    errors
}

fn active(status: &JobStatus) -> i32 {
    status.active.unwrap_or(0)
}

fn completed_indexes(status: &JobStatus) -> &str {
    status.completed_indexes.as_deref().unwrap_or("")
}

/// The uids that are not counted yet; an absent and an empty list are the same.
fn uncounted(status: &JobStatus) -> Option<(&[String], &[String])> {
    let pods = status.uncounted_terminated_pods.as_ref()?;
    Some((pods.succeeded.as_deref().unwrap_or_default(), pods.failed.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests;
