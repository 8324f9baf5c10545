//! Each rule of part 3, by its number. A row is a stored Job, a change of it, and what is then answered.

use serde_json::{Value, json};

use super::*;
use crate::job::defaults::apply_defaults;
use crate::job::prepare;

/// A stored Job with this spec merged over a good one, and this status.
fn stored(spec: Value, status: Value) -> Job {
    let mut job: Job = serde_json::from_value(json!({
        "metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1", "generation": 1},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
    }))
    .expect("a test's Job");
    change(&mut job, spec);
    apply_defaults(&mut job);
    prepare::for_create(&mut job, false);
    job.status = serde_json::from_value(status).expect("a test's status");
    job
}

/// Merges over the spec; `null` removes.
fn change(job: &mut Job, patch: Value) {
    let mut spec = serde_json::to_value(&job.spec).expect("a spec is JSON");
    json_merge(&mut spec, patch);
    job.spec = Some(serde_json::from_value(spec).expect("a test's spec"));
}

fn json_merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *target = patch };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(target.as_object_mut().and_then(|target| target.remove(&key))),
            value => json_merge(&mut target[key], value),
        }
    }
}

fn errors(old: &Job, patch: Value, settings: Settings) -> Vec<String> {
    let mut new = old.clone();
    change(&mut new, patch);
    apply_defaults(&mut new);
    prepare::for_update(&mut new, old);
    validate_update(&new, old, &settings).iter().map(ToString::to_string).collect()
}

fn check(old: &Job, patch: Value, expected: &[&str]) {
    check_with(old, patch, Settings::default(), expected);
}

/// Compares the starts: the whole template is too long to be read in a table.
fn check_with(old: &Job, patch: Value, settings: Settings, expected: &[&str]) {
    let errors = errors(old, patch, settings);
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(start), "{error} does not start with {start}");
    }
}

fn indexed() -> Job {
    stored(json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3}), json!({}))
}

#[test]
fn u_03_spec_errors_stand_twice() {
    let error = "spec.parallelism: Invalid value: -1: must be greater than or equal to 0";
    check(&stored(json!({}), json!({})), json!({"parallelism": -1}), &[error, error]);
}

#[test]
fn u_05_u_28_u_29_what_may_change_even_after_the_end() {
    let finished =
        json!({"startTime": "2025-01-01T00:00:00Z", "conditions": [{"type": "Complete", "status": "True"}]});
    for old in [stored(json!({}), json!({})), stored(json!({}), finished)] {
        check(
            &old,
            json!({
                "parallelism": 7, "activeDeadlineSeconds": 5, "backoffLimit": 1, "ttlSecondsAfterFinished": 0,
                "suspend": true, "podReplacementPolicy": "Failed", "manualSelector": true,
            }),
            &[],
        );
    }
    let old =
        stored(json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1}), json!({}));
    check(&old, json!({"maxFailedIndexes": 2, "parallelism": 9}), &[]);
}

#[test]
fn u_06_the_original_manifest_is_not_enough() {
    check(
        &stored(json!({}), json!({})),
        json!({"selector": null, "template": {"metadata": null}}),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match",
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match",
            "spec.selector: Invalid value: null: field is immutable",
            "spec.template: Invalid value: {",
        ],
    );
}

#[test]
fn u_10_prefixed_labels_are_required_where_they_were() {
    let mut old = stored(json!({"suspend": true}), json!({}));
    let legacy = json!({"template": {"metadata": {"labels": {
        "batch.kubernetes.io/job-name": null, "batch.kubernetes.io/controller-uid": null,
    }}}, "selector": {"matchLabels": {"controller-uid": "u", "batch.kubernetes.io/controller-uid": null}}});
    change(&mut old, legacy);
    check(&old, json!({"parallelism": 2}), &[]);
    let error = "spec.template.metadata.labels[job-name]: Required value: must be 'n'";
    check(&old, json!({"template": {"metadata": {"labels": {"job-name": null}}}}), &[error]);
}

#[test]
fn u_11_label_values_that_were_let_in() {
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["-"]}]});
    let mut old = stored(json!({"manualSelector": true, "selector": {}}), json!({}));
    change(&mut old, json!({"selector": selector}));
    check(&old, json!({"parallelism": 2}), &[]);
}

#[test]
fn u_20_completions() {
    check(
        &stored(json!({}), json!({})),
        json!({"completions": 2}),
        &["spec.completions: Invalid value: 2: field is immutable"],
    );
    check(&indexed(), json!({"completions": 5, "parallelism": 5}), &[]);
    check(
        &indexed(),
        json!({"completions": 5}),
        &["spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"],
    );
    let missing = "spec.completions: Required value: when completion mode is Indexed";
    check(&indexed(), json!({"completions": null}), &[missing, missing]);
    check(&indexed(), json!({"parallelism": 1}), &[]);
}

#[test]
fn u_21_u_23_u_25_u_27_immutable_fields() {
    check(
        &stored(json!({"manualSelector": true, "selector": {}}), json!({})),
        json!({"selector": {"matchLabels": {}}}),
        &[],
    );
    check(
        &indexed(),
        json!({"completionMode": "NonIndexed"}),
        &["spec.completionMode: Invalid value: \"NonIndexed\": field is immutable"],
    );
    check(
        &indexed(),
        json!({"backoffLimitPerIndex": 1}),
        &["spec.backoffLimitPerIndex: Invalid value: 1: field is immutable"],
    );
    check(
        &indexed(),
        json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}),
        &[
            "spec.successPolicy: Invalid value: {\"Rules\":[{\"SucceededIndexes\":null,\"SucceededCount\":1}]}: field is immutable",
        ],
    );
}

#[test]
fn u_24_pod_failure_policy() {
    let policy = json!({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "Failed"});
    let without = stored(json!({"podReplacementPolicy": "Failed"}), json!({}));
    check(
        &without,
        policy.clone(),
        &["spec.podFailurePolicy: Invalid value: {\"Rules\":[]}: field is immutable"],
    );
    let with = stored(policy, json!({}));
    check(
        &with,
        json!({"podFailurePolicy": null}),
        &["spec.podFailurePolicy: Invalid value: null: field is immutable"],
    );
}

#[test]
fn u_26_m_11_managed_by() {
    let jobs = |managed_by: Value| {
        [false, true].map(|suspend| stored(json!({"managedBy": managed_by, "suspend": suspend}), json!({})))
    };
    for old in jobs(json!("a.io/b")) {
        check(
            &old,
            json!({"managedBy": "a.io/c"}),
            &["spec.managedBy: Invalid value: \"a.io/c\": field is immutable"],
        );
        check(&old, json!({"managedBy": null}), &["spec.managedBy: Invalid value: null: field is immutable"]);
        let syntax = "spec.managedBy: Invalid value: \"x\": must be a domain-prefixed path";
        check(
            &old,
            json!({"managedBy": "x"}),
            &[syntax, syntax, "spec.managedBy: Invalid value: \"x\": field is immutable"],
        );
    }
    for old in jobs(json!(null)) {
        let error = "spec.managedBy: Invalid value: \"kubernetes.io/job-controller\": field is immutable";
        check(&old, json!({"managedBy": "kubernetes.io/job-controller"}), &[error]);
    }
    for old in jobs(json!("kubernetes.io/job-controller")) {
        check(&old, json!({"managedBy": null}), &["spec.managedBy: Invalid value: null: field is immutable"]);
    }
}

/// Each scheduling directive that may change while the Job has not started.
fn directives() -> Vec<Value> {
    let node_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
    ]}});
    vec![
        json!({"template": {"spec": {"nodeSelector": {"a": "b"}}}}),
        json!({"template": {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}}),
        json!({"template": {"spec": {"schedulingGates": [{"name": "a.io/b"}]}}}),
        json!({"template": {"spec": {"affinity": {"nodeAffinity": node_affinity}}}}),
        json!({"template": {"metadata": {"labels": {"x": "y"}}}}),
        json!({"template": {"metadata": {"annotations": {"x": "y"}}}}),
    ]
}

#[test]
fn u_22_u_30_u_31_u_32_scheduling_directives() {
    let started = json!({"startTime": "2025-01-01T00:00:00Z"});
    for directive in directives() {
        check(&stored(json!({"suspend": true}), json!({})), directive.clone(), &[]);
        check(
            &stored(json!({"suspend": false}), json!({})),
            directive.clone(),
            &["spec.template: Invalid value: {"],
        );
        check(
            &stored(json!({"suspend": true}), started.clone()),
            directive.clone(),
            &["spec.template: Invalid value: {"],
        );
        let mut with_resume = directive;
        with_resume["suspend"] = json!(false);
        check(&stored(json!({"suspend": true}), json!({})), with_resume, &[]);
    }
}

#[test]
fn u_33_affinity() {
    let pod_affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "t", "labelSelector": {}},
    ]});
    let with = |affinity: Value| {
        stored(json!({"suspend": true, "template": {"spec": {"affinity": affinity}}}), json!({}))
    };
    let affinity = |affinity: Value| json!({"template": {"spec": {"affinity": affinity}}});
    let node_affinity = json!({"preferredDuringSchedulingIgnoredDuringExecution": []});
    check(&with(json!({"nodeAffinity": node_affinity})), affinity(Value::Null), &[]);
    check(
        &with(json!({"podAffinity": pod_affinity})),
        affinity(Value::Null),
        &["spec.template: Invalid value: {"],
    );
    check(
        &with(Value::Null),
        affinity(json!({"podAntiAffinity": pod_affinity})),
        &["spec.template: Invalid value: {"],
    );
    check(&with(json!({"podAffinity": pod_affinity})), affinity(json!({"nodeAffinity": node_affinity})), &[]);
}

#[test]
fn u_34_u_35_anything_else_in_the_template() {
    let image = json!({"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}});
    for old in [stored(json!({"suspend": true}), json!({})), stored(json!({}), json!({}))] {
        check(&old, image.clone(), &["spec.template: Invalid value: {"]);
    }
}

fn quiet() -> Value {
    json!({"startTime": "2025-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]})
}

#[test]
fn u_36_scheduling_directives_of_quiet_jobs() {
    let settings = Settings { mutable_scheduling_directives: true, ..Settings::default() };
    let suspended = json!({"suspend": true});
    for directive in directives() {
        check_with(&stored(suspended.clone(), quiet()), directive.clone(), settings, &[]);
        check_with(
            &stored(suspended.clone(), json!({})),
            directive.clone(),
            settings,
            &["spec.template: Invalid value: {"],
        );
        let mut active = quiet();
        active["active"] = json!(1);
        check_with(
            &stored(suspended.clone(), active),
            directive,
            settings,
            &["spec.template: Invalid value: {"],
        );
    }
}

#[test]
fn u_37_resources_of_quiet_jobs() {
    let settings = Settings { mutable_pod_resources: true, ..Settings::default() };
    let resources = |image: &str| {
        json!({"template": {"spec": {"containers": [
            {"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}},
        ]}}})
    };
    let suspended = json!({"suspend": true});
    check_with(&stored(suspended.clone(), quiet()), resources("i"), settings, &[]);
    check_with(
        &stored(suspended.clone(), quiet()),
        resources("other"),
        settings,
        &["spec.template.spec: Invalid value: {"],
    );
    check_with(
        &stored(suspended.clone(), json!({})),
        resources("i"),
        settings,
        &["spec.template: Invalid value: {"],
    );
    check_with(
        &stored(suspended, quiet()),
        resources("i"),
        Settings::default(),
        &["spec.template: Invalid value: {"],
    );
}
