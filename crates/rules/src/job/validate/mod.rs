//! What a Job must be to be accepted (C-01…C-70): every error at once, in the order in which Kubernetes checks.

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use crate::field::{Errors, Path, Value};
use crate::meta::{self, not_negative};
use crate::{names, pod};

use super::{JOB_CONTROLLER, Settings, is_indexed, spec};

mod failure_policy;
mod selector;
mod success_policy;

const MAX_MANAGED_BY_BYTES: usize = 63;
const MAX_PARALLELISM_INDEXED: i32 = 100_000;
const MAX_FAILED_INDEXES: i32 = 100_000;
/// Above so many completions, per-index retries are only tracked within the two limits below.
const MANY_COMPLETIONS: i32 = 100_000;
const MAX_PARALLELISM_MANY: i32 = 10_000;
const MAX_FAILED_INDEXES_MANY: i32 = 10_000;

/// How strictly a Job is judged: an old Job may hold what a new one may not.
#[derive(Debug, Clone)]
pub struct Options {
    /// What the pod template may hold.
    pub pod: pod::Options,
    /// Whether the labels with a prefix must be there (U-10).
    pub require_prefixed_labels: bool,
    /// Whether label values in the selector may be malformed (U-11).
    pub tolerate_selector_values: bool,
}

impl Options {
    /// For a Job that is new.
    pub fn for_create(job: &Job) -> Self {
        let pod = pod::Options::for_template(&spec(job).template, None);
        Options { pod, require_prefixed_labels: true, tolerate_selector_values: false }
    }
}

/// Everything that is wrong with a new Job, after defaults and generation.
pub fn validate_create(job: &Job, settings: &Settings) -> Errors {
    let options = Options::for_create(job);
    let options = Options { pod: options.pod.with_privileged(settings.allow_privileged), ..options };
    let mut errors = validate_job(job, &options);
    if settings.refuse_reserved_managed_by && spec(job).managed_by.as_deref() == Some(JOB_CONTROLLER) {
        let why =
            "this cluster keeps the field for external controllers; leave it out to use the built-in one";
        errors.push(Path::new("spec").child("managedBy").forbidden(why));
    }
    errors
}

/// What holds for a Job as such, new or changed.
pub(super) fn validate_job(job: &Job, options: &Options) -> Errors {
    let mut errors = meta::validate_built_in(&job.metadata, names::dns_subdomain, &Path::new("metadata"));
    errors.extend(selector::validate_generated(job, options.require_prefixed_labels));
    errors.extend(validate_spec_and_selector(spec(job), options, &Path::new("spec")));
    errors.extend(validate_hostname(job));
    errors
}

/// The spec of a Job, its selector included.
pub(super) fn validate_spec_and_selector(spec: &JobSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = validate_spec(spec, options, path);
    errors.extend(selector::validate(spec, options.tolerate_selector_values, path));
    errors
}

/// The spec of a Job without its selector: as it stands in a CronJob's template, too.
pub fn validate_spec(spec: &JobSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = validate_counts(spec, path);
    errors.extend(validate_managed_by(spec.managed_by.as_deref(), &path.child("managedBy")));
    errors.extend(validate_completion_mode(spec, path));
    if let Some(policy) = &spec.pod_failure_policy {
        errors.extend(failure_policy::validate(policy, spec, &path.child("podFailurePolicy")));
    }
    if let Some(policy) = &spec.success_policy {
        errors.extend(success_policy::validate(policy, spec, &path.child("successPolicy")));
    }
    errors.extend(validate_pod_replacement_policy(spec, &path.child("podReplacementPolicy")));
    errors.extend(pod::validate_template(&spec.template, &options.pod, &path.child("template")));
    errors.extend(validate_restart_policy(spec, &path.child("template.spec.restartPolicy")));
    errors
}

fn validate_counts(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (field, value) in [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index.map(i64::from)),
        ("maxFailedIndexes", spec.max_failed_indexes.map(i64::from)),
    ] {
        errors.extend(value.map(|value| not_negative(value, &path.child(field))).unwrap_or_default());
    }
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        errors.push(path.child("backoffLimitPerIndex").required("when maxFailedIndexes is specified"));
    }
    errors
}

/// Who reconciles the Job, as a path under a domain that somebody owns (M-01…M-09).
pub fn validate_managed_by(managed_by: Option<&str>, path: &Path) -> Errors {
    let Some(managed_by) = managed_by else { return Errors::new() };
    let mut errors = names::domain_prefixed_path(path, managed_by);
    if managed_by.len() > MAX_MANAGED_BY_BYTES {
        errors.push(path.too_long(MAX_MANAGED_BY_BYTES));
    }
    errors
}

fn validate_completion_mode(spec: &JobSpec, path: &Path) -> Errors {
    match spec.completion_mode.as_deref() {
        Some("Indexed") => validate_indexed(spec, path),
        Some("NonIndexed") | None => validate_non_indexed(spec, path),
        Some(other) => vec![path.child("completionMode").not_supported(other, &["NonIndexed", "Indexed"])],
    }
}

fn validate_indexed(spec: &JobSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (parallelism_path, max_failed_path) = (path.child("parallelism"), path.child("maxFailedIndexes"));
    if spec.completions.is_none() {
        errors.push(path.child("completions").required("when completion mode is Indexed"));
    }
    if let Some(parallelism) = spec.parallelism.filter(|n| *n > MAX_PARALLELISM_INDEXED) {
        let why = format!(
            "must be less than or equal to {MAX_PARALLELISM_INDEXED} when completion mode is Indexed"
        );
        errors.push(parallelism_path.invalid(parallelism, why));
    }
    if let (Some(completions), Some(max_failed)) = (spec.completions, spec.max_failed_indexes)
        && max_failed > completions
    {
        errors.push(max_failed_path.invalid(max_failed, "must be less than or equal to completions"));
    }
    if let Some(max_failed) = spec.max_failed_indexes.filter(|n| *n > MAX_FAILED_INDEXES) {
        errors.push(
            max_failed_path
                .invalid(max_failed, format!("must be less than or equal to {MAX_FAILED_INDEXES}")),
        );
    }
    if spec.completions.is_some_and(|n| n > MANY_COMPLETIONS) && spec.backoff_limit_per_index.is_some() {
        let above = |limit: i32| {
            format!(
                "must be less than or equal to {limit} when completions are above {MANY_COMPLETIONS} and used with \
                 backoff limit per index"
            )
        };
        if spec.max_failed_indexes.is_none() {
            let why = format!("must be specified when completions is above {MANY_COMPLETIONS}");
            errors.push(max_failed_path.required(why));
        }
        if let Some(parallelism) = spec.parallelism.filter(|n| *n > MAX_PARALLELISM_MANY) {
            errors.push(parallelism_path.invalid(parallelism, above(MAX_PARALLELISM_MANY)));
        }
        if let Some(max_failed) = spec.max_failed_indexes.filter(|n| *n > MAX_FAILED_INDEXES_MANY) {
            errors.push(max_failed_path.invalid(max_failed, above(MAX_FAILED_INDEXES_MANY)));
        }
    }
    errors
}

fn validate_non_indexed(spec: &JobSpec, path: &Path) -> Errors {
    [("backoffLimitPerIndex", spec.backoff_limit_per_index), ("maxFailedIndexes", spec.max_failed_indexes)]
        .into_iter()
        .filter_map(|(field, value)| {
            Some(path.child(field).invalid(value?, "requires indexed completion mode"))
        })
        .collect()
}

fn validate_pod_replacement_policy(spec: &JobSpec, path: &Path) -> Errors {
    let Some(policy) = spec.pod_replacement_policy.as_deref() else { return Errors::new() };
    let supported: &[&str] =
        if spec.pod_failure_policy.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if supported.contains(&policy) {
        Errors::new()
    } else {
        vec![path.not_supported(Value::json(&policy), supported)]
    }
}

/// Pods of a Job end; how they may be restarted is the Job's own question (C-60, C-64).
fn validate_restart_policy(spec: &JobSpec, path: &Path) -> Errors {
    let policy = spec.template.spec.as_ref().and_then(|pod| pod.restart_policy.as_deref()).unwrap_or("");
    match policy {
        "" | "Always" => vec![path.required(r#"valid values: "OnFailure", "Never""#)],
        "Never" => Errors::new(),
        "OnFailure" if spec.pod_failure_policy.is_none() => Errors::new(),
        "OnFailure" => {
            let why = r#"only "Never" is supported when podFailurePolicy is specified"#;
            vec![path.invalid(Value::json(&policy), why)]
        }
        _ => vec![path.not_supported(Value::json(&policy), &["OnFailure", "Never"])],
    }
}

/// The pods of an Indexed Job are hosts called `<name>-<index>`, the last index included (C-70).
fn validate_hostname(job: &Job) -> Errors {
    let spec = spec(job);
    let Some(completions) = spec.completions.filter(|n| is_indexed(spec) && *n > 0) else {
        return Errors::new();
    };
    let name = job.metadata.name.as_deref().unwrap_or("");
    let last = format!("{name}-{}", completions - 1);
    if names::dns_label(&last).is_empty() {
        return Errors::new();
    }
    let why = format!("will not able to create pod with invalid DNS label: {last}");
    vec![Path::new("metadata").child("name").invalid(name, why)]
}

#[cfg(test)]
mod tests;
