//! What becomes of a Job that is queued, before it is stored, and what of it may change (JF-6, JF-34, JF-35).

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use types::go;

use super::{MULTIKUEUE, gates, topology};
use crate::field::{Errors, Path, Value};
use crate::framework::batch::{COMPLETIONS_EQUAL_PARALLELISM, MIN_PARALLELISM, STOPPING};
use crate::framework::{
    MAX_EXEC_TIME_LABEL, PREBUILT_WORKLOAD, PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, annotation, label,
};
use crate::job::JOB_CONTROLLER;
use crate::meta::IMMUTABLE;
use crate::names;
use crate::workload::ELASTIC_JOB;

/// What around a Job decides about its defaults.
#[derive(Debug, Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, answered elsewhere")]
pub struct Surroundings {
    /// Jobs are queued even if they name no queue.
    pub manages_without_queue_name: bool,
    /// The namespace is one in which Jobs are queued at all.
    pub in_managed_namespace: bool,
    /// The namespace has a LocalQueue called `default`, and it is not stopped.
    pub has_default_queue: bool,
    /// The direct owner is of a kind that is queued itself.
    pub has_managed_owner: bool,
    /// Something above it is queued, so that it must not be queued again.
    pub has_managed_ancestor: bool,
    /// The queue that it names, or would name, dispatches to other clusters.
    pub is_dispatched: bool,
    /// A pod says of what it is part, and that is of a kind that is queued.
    pub has_managed_parent: bool,
    /// Pods are queued as parts of something else only.
    pub only_parts: bool,
    /// A StatefulSet that had no pods still has a Workload that was not put on hold.
    pub has_lingering_workload: bool,
}

/// The queue that a Job is in, or would be in by default.
pub fn queue_name(metadata: &ObjectMeta, around: &Surroundings) -> Option<String> {
    let named = label(metadata, QUEUE_NAME_LABEL).map(str::to_owned);
    let by_default = around.has_default_queue && around.in_managed_namespace && !around.has_managed_owner;
    named.or_else(|| by_default.then(|| "default".to_owned()))
}

/// Fills in what a new Job did not say: its queue, that it waits, and who reconciles it.
pub fn default(job: &mut Job, around: &Surroundings) {
    let queue = queue_name(&job.metadata, around);
    if let Some(queue) = &queue
        && label(&job.metadata, QUEUE_NAME_LABEL).is_none()
    {
        job.metadata.labels.get_or_insert_default().insert(QUEUE_NAME_LABEL.to_owned(), queue.clone());
    }
    let Some(spec) = &mut job.spec else { return };
    let is_managed = queue.is_some() || around.manages_without_queue_name && around.in_managed_namespace;
    if is_managed && !around.has_managed_ancestor && job.metadata.deletion_timestamp.is_none() {
        spec.suspend = Some(true);
    }
    let by_nobody_else = spec.managed_by.as_deref().is_none_or(|name| name == JOB_CONTROLLER);
    if queue.is_some() && around.is_dispatched && by_nobody_else {
        spec.managed_by = Some(MULTIKUEUE.to_owned());
    }
    if is_elastic(&job.metadata) {
        let gates = spec.template.spec.get_or_insert_default().scheduling_gates.get_or_insert_default();
        if !gates.iter().any(|gate| gate.name == ELASTIC_JOB) {
            gates.push(k8s_openapi::api::core::v1::PodSchedulingGate { name: ELASTIC_JOB.to_owned() });
        }
    }
}

/// A new Job.
pub fn create(job: &Job) -> Errors {
    let mut errors = validate(&job.metadata);
    errors.extend(min_parallelism(job));
    errors.extend(equal_completions(job));
    errors.extend(placed(job));
    errors
}

/// A changed Job.
pub fn update(new: &Job, old: &Job, has_default_queue: bool) -> Errors {
    let mut errors = validate(&new.metadata);
    if annotation(&new.metadata, MIN_PARALLELISM) != annotation(&old.metadata, MIN_PARALLELISM) {
        errors.extend(min_parallelism(new));
    }
    errors.extend(equal_completions(new));
    errors.extend(kept(&Look::of(new), &Look::of(old), has_default_queue));
    errors.extend(same_partial(new, old));
    errors.extend(placed(new));
    errors
}

fn placed(job: &Job) -> Errors {
    let path = Path::new("spec").child("template").child("metadata");
    let template = job.spec.as_ref().map(|spec| &spec.template);
    template
        .map_or_else(Errors::new, |it| topology::validate(it, &path, pods(job), is_elastic(&job.metadata)))
}

/// What is looked at of a Job of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look<'a> {
    /// Its metadata.
    pub(super) metadata: &'a ObjectMeta,
    /// Whether it has to wait.
    pub(super) suspended: bool,
}

impl<'a> Look<'a> {
    fn of(job: &'a Job) -> Self {
        Look { metadata: &job.metadata, suspended: is_suspended(job) }
    }
}

/// What may not change about a Job of any kind, or not now (JF-24, JF-34).
pub(super) fn kept(new: &Look<'_>, old: &Look<'_>, has_default_queue: bool) -> Errors {
    let mut errors = same_queue(new, old, has_default_queue);
    errors.extend(same_prebuilt(new, old));
    errors.extend(same_time_limit(new, old));
    errors.extend(priority_class(new, old));
    if is_elastic(new.metadata) != is_elastic(old.metadata) {
        errors.push(annotation_path(ELASTIC_JOB).invalid(is_elastic(new.metadata), IMMUTABLE));
    }
    errors.extend(gates::update(new.metadata, old.metadata));
    errors
}

/// What holds for every Job that is queued, whenever it is written.
pub(super) fn validate(metadata: &ObjectMeta) -> Errors {
    let mut errors = Errors::new();
    let name = |value: &str, path: Path| -> Errors {
        let problems = names::dns_subdomain(value);
        if problems.is_empty() { Errors::new() } else { vec![path.invalid(value, problems.join(","))] }
    };
    // A label that is there and empty is a mistake, and not the same as none.
    let stated = |key: &str| metadata.labels.as_ref()?.get(key).map(String::as_str);
    if let Some(queue) = stated(QUEUE_NAME_LABEL) {
        errors.extend(name(queue, label_path(QUEUE_NAME_LABEL)));
    }
    if let Some((workload, path)) = prebuilt(metadata) {
        errors.extend(name(workload, path));
    } else if let Some(workload) = stated(PREBUILT_WORKLOAD) {
        errors.extend(name(workload, label_path(PREBUILT_WORKLOAD)));
    }
    if let Some(limit) = stated(MAX_EXEC_TIME_LABEL) {
        let path = label_path(MAX_EXEC_TIME_LABEL);
        match go::atoi(limit) {
            Err(problem) => errors.push(path.invalid(limit, problem)),
            Ok(seconds) if seconds <= 0 => errors.push(path.invalid(seconds, "should be greater than 0")),
            Ok(_) => {}
        }
    }
    errors.extend(gates::create(metadata));
    errors
}

fn min_parallelism(job: &Job) -> Errors {
    let Some(said) = annotation(&job.metadata, MIN_PARALLELISM) else { return Errors::new() };
    let (path, pods) = (annotation_path(MIN_PARALLELISM), i64::from(pods(job)));
    let mut errors = Errors::new();
    match go::atoi(said) {
        Err(problem) => errors.push(path.invalid(said, problem)),
        Ok(least) if least >= pods || least <= 0 => {
            errors.push(path.invalid(least, format!("should be between 0 and {}", pods - 1)));
        }
        Ok(_) => {}
    }
    if is_elastic(&job.metadata) {
        errors.push(path.invalid(said, "partial admission and elastic job cannot be used together"));
    }
    errors
}

fn equal_completions(job: &Job) -> Errors {
    let Some(said) = annotation(&job.metadata, COMPLETIONS_EQUAL_PARALLELISM) else { return Errors::new() };
    let path = annotation_path(COMPLETIONS_EQUAL_PARALLELISM);
    let mut errors = Errors::new();
    match go::parse_bool(said) {
        Err(problem) => errors.push(path.invalid(said, problem)),
        Ok(false) => {}
        Ok(true) => {
            let spec = job.spec.as_ref();
            if spec.and_then(|spec| spec.completion_mode.as_deref()).is_none_or(|mode| mode == "NonIndexed") {
                errors.push(path.invalid(said, "should not be enabled for NonIndexed jobs"));
            }
            let completions = spec.and_then(|spec| spec.completions);
            if parallelism(job) != completions.unwrap_or(1) {
                let why = format!(
                    "should be equal to parallelism when {COMPLETIONS_EQUAL_PARALLELISM} annotation is true"
                );
                errors.push(Path::new("spec").child("completions").invalid(Value::json(&completions), why));
            }
        }
    }
    errors
}

fn same_queue(new: &Look<'_>, old: &Look<'_>, has_default_queue: bool) -> Errors {
    let queue = |job: &Look<'_>| label(job.metadata, QUEUE_NAME_LABEL).unwrap_or_default().to_owned();
    let (path, new_queue, old_queue) = (label_path(QUEUE_NAME_LABEL), queue(new), queue(old));
    let mut errors = Errors::new();
    if !new.suspended && new_queue != old_queue {
        errors.push(path.invalid(new_queue.as_str(), IMMUTABLE));
    }
    if new_queue.is_empty() && !old_queue.is_empty() && has_default_queue {
        errors.push(path.invalid("", "queue-name must not be empty in namespace with default queue"));
    }
    errors
}

fn same_prebuilt(new: &Look<'_>, old: &Look<'_>) -> Errors {
    let name = |job: &Look<'_>| prebuilt(job.metadata).map(|(name, _)| name.to_owned()).unwrap_or_default();
    if new.suspended || is_elastic(old.metadata) || name(new) == name(old) {
        return Errors::new();
    }
    let path = prebuilt(new.metadata).map_or_else(|| label_path(PREBUILT_WORKLOAD), |(_, path)| path);
    vec![path.invalid(&name(new), IMMUTABLE)]
}

fn same_time_limit(new: &Look<'_>, old: &Look<'_>) -> Errors {
    let limit = |job: &Look<'_>| label(job.metadata, MAX_EXEC_TIME_LABEL).unwrap_or_default().to_owned();
    if new.suspended && old.suspended || limit(new) == limit(old) {
        return Errors::new();
    }
    vec![label_path(MAX_EXEC_TIME_LABEL).invalid(&limit(new), IMMUTABLE)]
}

pub(super) fn priority_class(new: &Look<'_>, old: &Look<'_>) -> Errors {
    let class = |job: &Look<'_>| label(job.metadata, PRIORITY_CLASS_LABEL).unwrap_or_default().to_owned();
    let (now, before) = (class(new), class(old));
    let why = match (before.is_empty(), now.is_empty()) {
        (true, false) if !new.suspended => {
            "WorkloadPriorityClass cannot be added to a non-suspended workload"
        }
        (false, true) => "WorkloadPriorityClass cannot be removed from a workload",
        _ => return Errors::new(),
    };
    vec![label_path(PRIORITY_CLASS_LABEL).invalid(&now, why)]
}

fn same_partial(new: &Job, old: &Job) -> Errors {
    let mut errors = Errors::new();
    let suspend = old.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    if annotation(&old.metadata, MIN_PARALLELISM).is_some()
        && !suspend
        && parallelism(old) != parallelism(new)
    {
        let why = "cannot change when partial admission is enabled and the job is not suspended";
        errors.push(Path::new("spec").child("parallelism").forbidden(why));
    }
    let equal = |job: &Job| {
        let said = annotation(&job.metadata, COMPLETIONS_EQUAL_PARALLELISM);
        said.is_some_and(|said| go::parse_bool(said) == Ok(true))
    };
    if !is_suspended(old) && !is_suspended(new) && equal(old) != equal(new) {
        let why = format!("{IMMUTABLE} while the job is not suspended");
        errors.push(annotation_path(COMPLETIONS_EQUAL_PARALLELISM).forbidden(why));
    }
    errors
}

/// A Job that is being stopped is not suspended yet, whatever its spec says (JF-53).
fn is_suspended(job: &Job) -> bool {
    let suspend = job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false);
    suspend && annotation(&job.metadata, STOPPING) != Some("true")
}

pub(super) fn is_elastic(metadata: &ObjectMeta) -> bool {
    annotation(metadata, ELASTIC_JOB) == Some("true")
}

/// The Workload that was made for a Job beforehand, and where the Job says so (JF-20).
pub(super) fn prebuilt(metadata: &ObjectMeta) -> Option<(&str, Path)> {
    let annotation = annotation(metadata, PREBUILT_WORKLOAD).filter(|name| !name.is_empty());
    let annotation = annotation.map(|name| (name, annotation_path(PREBUILT_WORKLOAD)));
    annotation.or_else(|| Some((label(metadata, PREBUILT_WORKLOAD)?, label_path(PREBUILT_WORKLOAD))))
}

fn parallelism(job: &Job) -> i32 {
    job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1)
}

fn pods(job: &Job) -> i32 {
    let completions = job.spec.as_ref().and_then(|spec| spec.completions);
    completions.map_or(parallelism(job), |completions| completions.min(parallelism(job)))
}

pub(super) fn label_path(key: &str) -> Path {
    Path::new("metadata").child("labels").key(key)
}

pub(super) fn annotation_path(key: &str) -> Path {
    Path::new("metadata").child("annotations").key(key)
}
