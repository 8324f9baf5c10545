//! What may change in a stored Job (U-01…U-37).

use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{Affinity, Container, PodTemplateSpec};

use crate::field::{Errors, Path, Value};
use crate::meta::{self, IMMUTABLE};
use crate::{pod, semantic, wire};

use super::validate::{self, Options};
use super::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, SUSPENDED, Settings, is_indexed, is_suspended, is_true, spec,
    status,
};

/// Everything that is wrong with a change, after defaults and [`prepare::for_update`](super::prepare::for_update). The
/// new Job is judged as such and once more as a change, so that many errors stand twice; Kubernetes answers them so.
pub fn validate_update(new: &Job, old: &Job, settings: &Settings) -> Errors {
    let options = options_for_update(new, old, settings);
    let mut errors = validate::validate_job(new, &options);
    errors.extend(meta::validate_update_built_in(&new.metadata, &old.metadata, &Path::new("metadata")));
    errors.extend(validate_spec_update(new, old, &options, settings, &Path::new("spec")));
    errors
}

/// What an older server let in stays allowed (U-10, U-11).
fn options_for_update(new: &Job, old: &Job, settings: &Settings) -> Options {
    let old_template = &spec(old).template;
    let old_labels = old_template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
    let had = |key: &str| old_labels.is_some_and(|labels| labels.contains_key(key));
    let pod = pod::Options::for_template(&spec(new).template, Some(old_template))
        .with_privileged(settings.allow_privileged);
    let tolerate_selector_values = pod.allow_invalid_label_value_in_selector
        || meta::selector::has_invalid_value(spec(old).selector.as_ref());
    Options {
        pod,
        require_prefixed_labels: had(JOB_NAME_LABEL) && had(CONTROLLER_UID_LABEL),
        tolerate_selector_values,
    }
}

fn validate_spec_update(new: &Job, old: &Job, options: &Options, settings: &Settings, path: &Path) -> Errors {
    let (new_spec, old_spec) = (spec(new), spec(old));
    let mut errors = validate::validate_spec_and_selector(new_spec, options, path);
    errors.extend(validate_completions(new_spec, old_spec, &path.child("completions")));
    let selectors = (new_spec.selector.as_ref(), old_spec.selector.as_ref());
    errors.extend(immutable(wire::LABEL_SELECTOR, selectors, &path.child("selector")));
    errors.extend(validate_template_update(new, old, settings, path));
    errors.extend(immutable_scalar(
        new_spec.completion_mode.as_ref(),
        old_spec.completion_mode.as_ref(),
        &path.child("completionMode"),
    ));
    let policies = (new_spec.pod_failure_policy.as_ref(), old_spec.pod_failure_policy.as_ref());
    errors.extend(immutable(wire::POD_FAILURE_POLICY, policies, &path.child("podFailurePolicy")));
    errors.extend(immutable_scalar(
        new_spec.backoff_limit_per_index.as_ref(),
        old_spec.backoff_limit_per_index.as_ref(),
        &path.child("backoffLimitPerIndex"),
    ));
    errors.extend(immutable_scalar(
        new_spec.managed_by.as_ref(),
        old_spec.managed_by.as_ref(),
        &path.child("managedBy"),
    ));
    let policies = (new_spec.success_policy.as_ref(), old_spec.success_policy.as_ref());
    errors.extend(immutable(wire::SUCCESS_POLICY, policies, &path.child("successPolicy")));
    errors
}

/// An Indexed Job is elastic as long as all its indexes may run at once; any other Job ends after as many pods as were
/// asked for at first (U-20).
fn validate_completions(new: &JobSpec, old: &JobSpec, path: &Path) -> Errors {
    if !is_indexed(new) {
        return immutable_scalar(new.completions.as_ref(), old.completions.as_ref(), path);
    }
    match new.completions {
        Some(completions) if new.completions != old.completions && new.completions != new.parallelism => {
            vec![path.invalid(completions, "can only be modified in tandem with spec.parallelism")]
        }
        _ => Errors::new(),
    }
}

/// The template is what was asked to run; only where it runs, and with how much, may be settled later (U-30…U-37).
fn validate_template_update(new: &Job, old: &Job, settings: &Settings, path: &Path) -> Errors {
    let (template, mut old_template) = (&spec(new).template, spec(old).template.clone());
    let is_quiet = is_true(status(old), SUSPENDED) && status(old).active.unwrap_or(0) == 0;
    let scheduling_is_open = is_suspended(spec(old))
        && if settings.mutable_scheduling_directives { is_quiet } else { status(old).start_time.is_none() };
    if scheduling_is_open {
        take_scheduling_directives(&mut old_template, template);
    }
    if is_suspended(spec(old)) && settings.mutable_pod_resources && is_quiet {
        take_resources(&mut old_template, template);
        let specs = (template.spec.as_ref(), old_template.spec.as_ref());
        return immutable(wire::POD_SPEC, specs, &path.child("template.spec"));
    }
    immutable(wire::POD_TEMPLATE_SPEC, (Some(template), Some(&old_template)), &path.child("template"))
}

/// Makes the directives that may change the same on both sides (U-32, U-33).
fn take_scheduling_directives(old: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    let (old_spec, new_spec) = (old.spec.get_or_insert_default(), new.spec.clone().unwrap_or_default());
    match (&mut old_spec.affinity, new_spec.affinity) {
        (None, None) => {}
        (Some(affinity), None) => {
            affinity.node_affinity = None;
            if *affinity == Affinity::default() {
                old_spec.affinity = None;
            }
        }
        (affinity, Some(new)) => affinity.get_or_insert_default().node_affinity = new.node_affinity,
    }
    old_spec.node_selector = new_spec.node_selector;
    old_spec.tolerations = new_spec.tolerations;
    old_spec.scheduling_gates = new_spec.scheduling_gates;
    let (old_meta, new_meta) =
        (old.metadata.get_or_insert_default(), new.metadata.clone().unwrap_or_default());
    old_meta.labels = new_meta.labels;
    old_meta.annotations = new_meta.annotations;
}

/// Makes the resources of containers the same on both sides, where they are the same containers.
fn take_resources(old: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    fn take(old: &mut [Container], new: &[Container]) {
        if old.len() == new.len() {
            for (old, new) in old.iter_mut().zip(new).filter(|(old, new)| old.name == new.name) {
                old.resources.clone_from(&new.resources);
            }
        }
    }
    if let (Some(old), Some(new)) = (&mut old.spec, &new.spec) {
        take(&mut old.containers, &new.containers);
        take(
            old.init_containers.as_deref_mut().unwrap_or_default(),
            new.init_containers.as_deref().unwrap_or_default(),
        );
    }
}

/// A structure that must stay as it is.
fn immutable<T: serde::Serialize>(
    wire_type: &str,
    (new, old): (Option<&T>, Option<&T>),
    path: &Path,
) -> Errors {
    let same = match (new, old) {
        (Some(new), Some(old)) => semantic::equal(wire_type, new, old),
        (None, None) => true,
        _ => false,
    };
    let value = || new.map_or(Value::json(&None::<()>), |new| Value::internal(wire_type, new));
    if same { Errors::new() } else { vec![path.invalid(value(), IMMUTABLE)] }
}

/// A scalar, or the absence of one, that must stay as it is.
fn immutable_scalar<T: serde::Serialize + PartialEq>(
    new: Option<&T>,
    old: Option<&T>,
    path: &Path,
) -> Errors {
    if new == old { Errors::new() } else { vec![path.invalid(Value::json(&new), IMMUTABLE)] }
}

#[cfg(test)]
mod tests;
