//! What a Job's fields are when nobody said (D-01…D-14).
//!
//! Kubernetes applies defaults to everything it decodes: request bodies, the result of a patch, and what it reads back
//! from its store. So defaulting twice changes nothing, and a PUT that leaves a field out resets it.

use k8s_openapi::api::batch::v1::{Job, JobSpec, PodFailurePolicy};

/// Fills in what the client left open.
pub fn apply_defaults(job: &mut Job) {
    let spec = job.spec.get_or_insert_default();
    if spec.completions.is_none() && spec.parallelism.is_none() {
        spec.completions = Some(1);
    }
    spec.parallelism.get_or_insert(1);
    let retries = if spec.backoff_limit_per_index.is_some() { i32::MAX } else { 6 };
    spec.backoff_limit.get_or_insert(retries);
    spec.completion_mode.get_or_insert_with(|| "NonIndexed".to_owned());
    spec.suspend.get_or_insert(false);
    let replace = if spec.pod_failure_policy.is_some() { "Failed" } else { "TerminatingOrFailed" };
    spec.pod_replacement_policy.get_or_insert_with(|| replace.to_owned());
    spec.manual_selector.get_or_insert(false);
    apply_template_defaults(spec);

    let template_labels = spec.template.metadata.as_ref().and_then(|meta| meta.labels.clone());
    if template_labels.is_some()
        && job.metadata.labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
    {
        job.metadata.labels = template_labels;
    }
}

/// The part that also holds for the Job template of a CronJob (D-14).
pub fn apply_template_defaults(spec: &mut JobSpec) {
    if let Some(policy) = &mut spec.pod_failure_policy {
        default_condition_patterns(policy);
    }
    crate::pod::defaults::apply_template_defaults(&mut spec.template);
}

fn default_condition_patterns(policy: &mut PodFailurePolicy) {
    for pattern in policy.rules.iter_mut().flat_map(|rule| rule.on_pod_conditions.iter_mut().flatten()) {
        let status = pattern.status.get_or_insert_default();
        if status.is_empty() {
            "True".clone_into(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Applies defaults to a Job with this spec (and a template that needs nothing said) and compares one field.
    fn check(spec: Value, field: &str, expected: &Value) {
        let job = defaulted(json!({"spec": spec}));
        let got = serde_json::to_value(&job.spec).expect("a Job is JSON");
        assert_eq!(got.get(field).unwrap_or(&Value::Null), expected, "{field} of {job:?}");
    }

    fn defaulted(job: Value) -> Job {
        let mut job: Job = serde_json::from_value(job).expect("a test's Job");
        apply_defaults(&mut job);
        let once = job.clone();
        apply_defaults(&mut job);
        assert_eq!(once, job, "D-01: defaulting twice changes nothing");
        job
    }

    #[test]
    fn d_01_what_was_said_stays() {
        let spec = json!({"completions": 3, "parallelism": 2, "suspend": true, "backoffLimit": 0, "manualSelector": true});
        for (field, value) in spec.as_object().expect("an object") {
            check(spec.clone(), field, value);
        }
    }

    #[test]
    fn d_14_the_job_of_a_cron_job_gets_the_templates_defaults_only() {
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "a"}]}]});
        let mut spec: JobSpec =
            serde_json::from_value(json!({"podFailurePolicy": policy})).expect("a test's spec");
        apply_template_defaults(&mut spec);
        assert_eq!((spec.parallelism, spec.backoff_limit, spec.suspend), (None, None, None));
        let rules = spec.pod_failure_policy.expect("the policy").rules;
        assert_eq!(
            rules[0].on_pod_conditions.as_ref().expect("a pattern")[0].status.as_deref(),
            Some("True")
        );
        assert_eq!(spec.template.spec.expect("a pod").termination_grace_period_seconds, Some(30));
    }

    #[test]
    fn d_02_d_03_d_04_completions_and_parallelism() {
        check(json!({}), "completions", &json!(1));
        check(json!({}), "parallelism", &json!(1));
        check(json!({"completions": 5}), "parallelism", &json!(1));
        check(json!({"completions": 5}), "completions", &json!(5));
        check(json!({"parallelism": 0}), "completions", &json!(null));
        check(json!({"parallelism": 0}), "parallelism", &json!(0));
    }

    #[test]
    fn d_05_backoff_limit() {
        check(json!({}), "backoffLimit", &json!(6));
        check(json!({"backoffLimit": 0}), "backoffLimit", &json!(0));
        check(json!({"backoffLimitPerIndex": 0}), "backoffLimit", &json!(i32::MAX));
        check(json!({"backoffLimitPerIndex": 1, "backoffLimit": 3}), "backoffLimit", &json!(3));
    }

    #[test]
    fn d_06_d_07_d_09_mode_suspend_manual_selector() {
        check(json!({}), "completionMode", &json!("NonIndexed"));
        check(json!({"completionMode": "Indexed"}), "completionMode", &json!("Indexed"));
        check(json!({}), "suspend", &json!(false));
        check(json!({"suspend": true}), "suspend", &json!(true));
        check(json!({}), "manualSelector", &json!(false));
    }

    #[test]
    fn d_08_pod_replacement_policy() {
        check(json!({}), "podReplacementPolicy", &json!("TerminatingOrFailed"));
        check(json!({"podFailurePolicy": {"rules": []}}), "podReplacementPolicy", &json!("Failed"));
        check(json!({"podReplacementPolicy": "Failed"}), "podReplacementPolicy", &json!("Failed"));
    }

    #[test]
    fn d_10_labels_of_the_template() {
        let template = json!({"metadata": {"labels": {"a": "b"}}});
        let labels = |job: Value| defaulted(job).metadata.labels.unwrap_or_default();
        assert_eq!(labels(json!({"spec": {"template": template}})).get("a").map(String::as_str), Some("b"));
        let own = json!({"metadata": {"labels": {"c": "d"}}, "spec": {"template": template}});
        assert_eq!(labels(own).keys().collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn d_11_status_of_condition_patterns() {
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "a"}, {"type": "b", "status": "False"}]}]});
        let job = defaulted(json!({"spec": {"podFailurePolicy": policy}}));
        let rules = job.spec.and_then(|spec| spec.pod_failure_policy).expect("the policy").rules;
        let statuses: Vec<_> =
            rules[0].on_pod_conditions.iter().flatten().map(|p| p.status.as_deref()).collect();
        assert_eq!(statuses, [Some("True"), Some("False")]);
    }

    #[test]
    fn d_12_never_defaulted() {
        for field in [
            "activeDeadlineSeconds",
            "ttlSecondsAfterFinished",
            "backoffLimitPerIndex",
            "maxFailedIndexes",
            "selector",
            "successPolicy",
            "managedBy",
        ] {
            check(json!({}), field, &Value::Null);
        }
    }

    #[test]
    fn d_13_the_pod_template() {
        let job =
            defaulted(json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
        let pod = job.spec.and_then(|spec| spec.template.spec).expect("the pod template's spec");
        assert_eq!(pod.restart_policy.as_deref(), Some("Always"));
        assert_eq!(pod.termination_grace_period_seconds, Some(30));
        assert_eq!(pod.containers[0].image_pull_policy.as_deref(), Some("Always"));
        assert_eq!(pod.enable_service_links, None, "a default of pods, not of templates");
    }
}
