//! Each rule of part 2, by its number. A row is a change of a good Job and what is then answered.

use serde_json::{Value, json};

use super::*;
use crate::job::defaults::apply_defaults;
use crate::job::prepare;

/// A good Job with `patch` merged over it, as it stands after defaults and generation.
fn prepared(patch: Value) -> Job {
    let mut job = json!({
        "metadata": {"name": "n", "namespace": "ns", "uid": "u"},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
    });
    merge(&mut job, patch);
    let mut job: Job = serde_json::from_value(job).expect("a test's Job");
    apply_defaults(&mut job);
    prepare::for_create(&mut job, false);
    job
}

/// RFC 7386: `null` removes.
fn merge(target: &mut Value, patch: Value) {
    match patch {
        Value::Object(patch) => {
            if !target.is_object() {
                *target = json!({});
            }
            for (key, value) in patch {
                let target = target.as_object_mut().expect("made an object above");
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        other => *target = other,
    }
}

fn check(patch: Value, expected: &[&str]) {
    let errors = validate_create(&prepared(patch), &Settings::default());
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

/// Like [`check`], for a change of the spec.
fn check_spec(patch: Value, expected: &[&str]) {
    check(json!({"spec": patch}), expected);
}

#[test]
fn a_good_job_is_good() {
    check(json!({}), &[]);
}

#[test]
fn c_02_a_long_name_is_no_label() {
    let name = "a".repeat(64);
    let manual = json!({"manualSelector": true, "selector": {}});
    check(json!({"metadata": {"name": name}, "spec": manual}), &[]);
}

#[test]
fn c_10_uid() {
    check(json!({"metadata": {"uid": null}}), &["metadata.uid: Required value"]);
}

#[test]
fn c_11_labels_are_required() {
    let mut job = prepared(json!({}));
    job.spec.as_mut().and_then(|spec| spec.template.metadata.as_mut()).expect("a template").labels = None;
    let errors = validate_create(&job, &Settings::default());
    let fields: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        fields,
        [
            "spec.template.metadata.labels[controller-uid]: Required value: must be 'u'",
            "spec.template.metadata.labels[job-name]: Required value: must be 'n'",
            "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]: Required value: must be 'u'",
            "spec.template.metadata.labels[batch.kubernetes.io/job-name]: Required value: must be 'n'",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
        ]
    );
}

#[test]
fn c_12_labels_are_as_generated() {
    let labels = json!({"template": {"metadata": {"labels": {"job-name": "other"}}}});
    check_spec(
        labels,
        &[concat!(
            "spec.template.metadata.labels[job-name]: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",",
            "\"batch.kubernetes.io/job-name\":\"n\",\"controller-uid\":\"u\",\"job-name\":\"other\"}: must be 'n'"
        )],
    );
}

#[test]
fn c_13_the_selector_is_as_generated() {
    check_spec(
        json!({"selector": {"matchLabels": {"a": "b"}}}),
        &[
            concat!(
                "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\",\"batch.kubernetes.io/controller-uid\":\"u\"}}: ",
                "`selector` not auto-generated"
            ),
            concat!(
                "spec.template.metadata.labels: Invalid value: {\"batch.kubernetes.io/controller-uid\":\"u\",",
                "\"batch.kubernetes.io/job-name\":\"n\",\"controller-uid\":\"u\",\"job-name\":\"n\"}: ",
                "`selector` does not match template `labels`"
            ),
        ],
    );
}

#[test]
fn c_20_to_c_26_counts_are_not_negative() {
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        let mut spec = json!({});
        spec[field] = json!(-1);
        check_spec(
            spec.clone(),
            &[&format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0")],
        );
        spec[field] = json!(0);
        check_spec(spec, &[]);
    }
    let indexed = |field: &str| json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1, field: -1});
    for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        let why = format!("spec.{field}: Invalid value: -1: must be greater than or equal to 0");
        check_spec(indexed(field), &[&why]);
    }
}

#[test]
fn c_27_max_failed_indexes_needs_backoff_per_index() {
    let spec = json!({"completionMode": "Indexed", "completions": 3, "maxFailedIndexes": 1});
    check_spec(spec, &["spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"]);
}

const HOST: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
     start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const HTTP_PATH: &str = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')";

fn check_managed_by(value: &str, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|error| format!("spec.managedBy: {error}")).collect();
    check_spec(json!({"managedBy": value}), &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn m_01_m_08_m_09_m_13_m_14_accepted() {
    for value in [
        "kubernetes.io/job-controller",
        "example.com/custom-job-controller",
        "k8s.io/x",
        "localhost/foo",
        "a/b",
        "acme.io/foo/bar",
        "acme.io//",
        "acme.io/%zz",
        "acme.io/foo:8080",
        "kueue.x-k8s.io/multikueue",
        &format!("example.com/{}", "a".repeat(51)),
    ] {
        check_managed_by(value, &[]);
    }
}

#[test]
fn m_02_empty() {
    check_managed_by("", &["Required value"]);
}

#[test]
fn m_03_no_domain_or_no_path() {
    for value in ["acme.io", "acme.io/", "/foo", "job-controller"] {
        let why =
            format!("Invalid value: \"{value}\": must be a domain-prefixed path (such as \"acme.io/foo\")");
        check_managed_by(value, &[&why]);
    }
}

#[test]
fn m_04_the_domain() {
    for host in ["Acme.io", "acme_io", "-acme.io", "acme..io"] {
        check_managed_by(&format!("{host}/foo"), &[&format!("Invalid value: \"{host}\": {HOST}")]);
    }
}

#[test]
fn m_05_the_path() {
    for path in ["a@b", "foo bar", "foo?x", "foo#", "[x]", "é"] {
        check_managed_by(&format!("acme.io/{path}"), &[&format!("Invalid value: \"{path}\": {HTTP_PATH}")]);
    }
}

#[test]
fn m_06_both_parts() {
    check_managed_by(
        "Bad Host/bad path",
        &[
            &format!("Invalid value: \"Bad Host\": {HOST}"),
            &format!("Invalid value: \"bad path\": {HTTP_PATH}"),
        ],
    );
}

#[test]
fn m_07_the_length_in_bytes() {
    check_managed_by(
        &format!("example.com/{}", "a".repeat(52)),
        &["Too long: may not be more than 63 bytes"],
    );
    let long = "x".repeat(64);
    check_managed_by(
        &long,
        &[
            &format!("Invalid value: \"{long}\": must be a domain-prefixed path (such as \"acme.io/foo\")"),
            "Too long: may not be more than 63 bytes",
        ],
    );
}

#[test]
fn m_08_a_cluster_may_refuse_the_reserved_value() {
    let settings = Settings { refuse_reserved_managed_by: true, ..Settings::default() };
    let errors = |value: &str| validate_create(&prepared(json!({"spec": {"managedBy": value}})), &settings);
    assert_eq!(errors("example.com/x"), []);
    let refused = errors("kubernetes.io/job-controller");
    assert_eq!(refused.len(), 1);
    assert!(refused[0].to_string().starts_with("spec.managedBy: Forbidden: this cluster keeps the field"));
}

#[test]
fn m_10_managed_by_goes_with_every_other_field() {
    check_spec(
        json!({
            "managedBy": "example.com/x", "suspend": true, "completionMode": "Indexed", "completions": 3,
            "backoffLimitPerIndex": 1, "ttlSecondsAfterFinished": 1, "successPolicy": {"rules": [{"succeededCount": 1}]},
            "podFailurePolicy": {"rules": [{"action": "FailIndex", "onPodConditions": [{"type": "a"}]}]},
            "manualSelector": true, "selector": {},
        }),
        &[],
    );
}

#[test]
fn c_30_completion_mode() {
    for mode in ["Bad", ""] {
        let why = format!(
            "spec.completionMode: Unsupported value: \"{mode}\": supported values: \"NonIndexed\", \"Indexed\""
        );
        check_spec(json!({"completionMode": mode}), &[&why]);
    }
}

#[test]
fn c_31_indexed_needs_completions() {
    let why = "spec.completions: Required value: when completion mode is Indexed";
    check_spec(json!({"completionMode": "Indexed", "parallelism": 1}), &[why]);
    let policy = json!({"rules": [{"succeededCount": 1, "succeededIndexes": "0"}]});
    check_spec(json!({"completionMode": "Indexed", "parallelism": 1, "successPolicy": policy}), &[why]);
}

#[test]
fn c_32_c_33_c_34_limits_of_indexed_jobs() {
    let spec = |patch: Value| {
        let mut spec = json!({"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1});
        merge(&mut spec, patch);
        spec
    };
    check_spec(spec(json!({"parallelism": 100_000})), &[]);
    check_spec(
        spec(json!({"parallelism": 100_001})),
        &[
            "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
        ],
    );
    check_spec(spec(json!({"maxFailedIndexes": 5})), &[]);
    check_spec(
        spec(json!({"maxFailedIndexes": 6})),
        &["spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions"],
    );
    check_spec(
        spec(json!({"maxFailedIndexes": 100_001})),
        &[
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to completions",
            "spec.maxFailedIndexes: Invalid value: 100001: must be less than or equal to 100000",
        ],
    );
}

#[test]
fn c_39_limits_with_many_completions() {
    let spec = |patch: Value| {
        let mut spec =
            json!({"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1});
        merge(&mut spec, patch);
        spec
    };
    let above = "when completions are above 100000 and used with backoff limit per index";
    check_spec(
        spec(json!({})),
        &["spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"],
    );
    check_spec(spec(json!({"maxFailedIndexes": 10_000, "parallelism": 10_000})), &[]);
    check_spec(
        spec(json!({"maxFailedIndexes": 10_001, "parallelism": 10_001})),
        &[
            &format!("spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 {above}"),
            &format!(
                "spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 {above}"
            ),
        ],
    );
}

#[test]
fn c_40_per_index_backoff_needs_indexes() {
    check_spec(
        json!({"backoffLimitPerIndex": 1, "maxFailedIndexes": 2}),
        &[
            "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
            "spec.maxFailedIndexes: Invalid value: 2: requires indexed completion mode",
        ],
    );
}

#[test]
fn c_41_not_checked() {
    check_spec(
        json!({
            "completionMode": "Indexed", "completions": 2, "parallelism": 5, "backoffLimitPerIndex": 1,
            "template": {"spec": {"restartPolicy": "OnFailure"}},
        }),
        &[],
    );
}

fn check_failure_rule(rule: &Value, expected: &[&str]) {
    let expected: Vec<String> =
        expected.iter().map(|error| format!("spec.podFailurePolicy.rules[0]{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_spec(json!({"podFailurePolicy": {"rules": [rule]}}), &expected);
}

#[test]
fn c_42_number_of_rules() {
    let rules = |n: usize| json!({"podFailurePolicy": {"rules": vec![json!({"action": "Count", "onPodConditions": [{"type": "a"}]}); n]}});
    check_spec(rules(0), &[]);
    check_spec(rules(20), &[]);
    check_spec(rules(21), &["spec.podFailurePolicy.rules: Too many: 21: must have at most 20 items"]);
}

#[test]
fn c_43_c_44_c_45_actions() {
    let rule = |action: &str| json!({"action": action, "onPodConditions": [{"type": "a"}]});
    for action in ["Count", "FailJob", "Ignore"] {
        check_failure_rule(&rule(action), &[]);
    }
    check_failure_rule(
        &rule(""),
        &[r#".action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]"#],
    );
    check_failure_rule(
        &rule("FailIndex"),
        &[r#".action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set"#],
    );
    check_failure_rule(
        &rule("Bad"),
        &[
            r#".action: Unsupported value: "Bad": supported values: "Count", "FailIndex", "FailJob", "Ignore""#,
        ],
    );
}

fn check_exit_codes(exit_codes: &Value, expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|error| format!(".onExitCodes{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_failure_rule(&json!({"action": "Count", "onExitCodes": exit_codes}), &expected);
}

#[test]
fn c_46_operators() {
    check_exit_codes(
        &json!({"operator": "", "values": [1]}),
        &[r#".operator: Required value: valid values: ["In" "NotIn"]"#],
    );
    check_exit_codes(
        &json!({"operator": "Bad", "values": [1]}),
        &[r#".operator: Unsupported value: "Bad": supported values: "In", "NotIn""#],
    );
}

#[test]
fn c_47_container_names() {
    check_exit_codes(&json!({"operator": "In", "values": [1], "containerName": "c"}), &[]);
    check_exit_codes(
        &json!({"operator": "In", "values": [1], "containerName": "x"}),
        &[
            r#".containerName: Invalid value: "x": must be one of the container or initContainer names in the pod template"#,
        ],
    );
}

#[test]
fn c_48_c_49_c_50_exit_codes() {
    check_exit_codes(
        &json!({"operator": "In", "values": []}),
        &[".values: Invalid value: []: at least one value is required"],
    );
    check_exit_codes(
        &json!({"operator": "NotIn", "values": (0..256).collect::<Vec<_>>()}),
        &[".values: Too many: 256: must have at most 255 items"],
    );
    check_exit_codes(
        &json!({"operator": "In", "values": [0, 1]}),
        &[".values[0]: Invalid value: 0: must not be 0 for the In operator"],
    );
    check_exit_codes(&json!({"operator": "NotIn", "values": [-1, 0, 1000]}), &[]);
    check_exit_codes(
        &json!({"operator": "In", "values": [2, 1, 2]}),
        &[".values[2]: Duplicate value: 2", ".values: Invalid value: [2,1,2]: must be ordered"],
    );
}

#[test]
fn c_51_c_52_condition_patterns() {
    let patterns = |n: usize| json!({"action": "Count", "onPodConditions": vec![json!({"type": "a"}); n]});
    check_failure_rule(&patterns(20), &[]);
    check_failure_rule(&patterns(21), &[".onPodConditions: Too many: 21: must have at most 20 items"]);
    check_failure_rule(
        &json!({"action": "Count", "onPodConditions": [{"type": "a/b/c", "status": "Maybe"}]}),
        &[
            concat!(
                r#".onPodConditions[0].type: Invalid value: "a/b/c": a valid label key must consist of alphanumeric "#,
                "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or ",
                "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an ",
                "optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
            r#".onPodConditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown""#,
        ],
    );
}

#[test]
fn c_53_c_54_exactly_one_matcher() {
    let exit_codes = json!({"operator": "In", "values": [1]});
    check_failure_rule(
        &json!({"action": "Count", "onExitCodes": exit_codes, "onPodConditions": [{"type": "a"}]}),
        &[": Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"],
    );
    check_failure_rule(
        &json!({"action": "Count"}),
        &[": Invalid value: specifying one of OnExitCodes and OnPodConditions is required"],
    );
}

fn check_success_rules(rules: &Value, expected: &[&str]) {
    let expected: Vec<String> =
        expected.iter().map(|error| format!("spec.successPolicy.rules{error}")).collect();
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    check_spec(
        json!({"completionMode": "Indexed", "completions": 5, "successPolicy": {"rules": rules}}),
        &expected,
    );
}

#[test]
fn c_55_success_policy_needs_indexes() {
    check_spec(
        json!({"successPolicy": {"rules": []}}),
        &[r#"spec.successPolicy: Invalid value: {"Rules":[]}: requires indexed completion mode"#],
    );
}

#[test]
fn c_56_c_57_success_rules() {
    check_success_rules(
        &json!([]),
        &[": Required value: at least one rules must be specified when the successPolicy is specified"],
    );
    check_success_rules(
        &json!(vec![json!({"succeededCount": 1}); 21]),
        &[": Too many: 21: must have at most 20 items"],
    );
    check_success_rules(
        &json!([{}]),
        &["[0]: Required value: at least one of succeededCount or succeededIndexes must be specified"],
    );
}

#[test]
fn c_58_succeeded_indexes() {
    check_success_rules(&json!([{"succeededIndexes": ""}, {"succeededIndexes": "0-2,4"}]), &[]);
    check_success_rules(
        &json!([{"succeededIndexes": "a"}]),
        &[concat!(
            r#"[0].succeededIndexes: Invalid value: "a": error parsing succeededIndexes: "#,
            r#"cannot convert string to integer for index: "a""#
        )],
    );
    let long = vec!["1"; 40_000].join(",");
    check_success_rules(
        &json!([{"succeededIndexes": long}]),
        &[
            "[0].succeededIndexes: Too long: may not be more than 65536 bytes",
            &format!(
                "[0].succeededIndexes: Invalid value: \"{long}\": error parsing succeededIndexes: non-increasing order, \
             previous: 1, current: 1"
            ),
        ],
    );
}

#[test]
fn c_59_succeeded_count() {
    check_success_rules(&json!([{"succeededCount": 0}, {"succeededCount": 5}]), &[]);
    check_success_rules(
        &json!([{"succeededCount": -1}, {"succeededCount": 6}]),
        &[
            "[0].succeededCount: Invalid value: -1: must be greater than or equal to 0",
            "[1].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
        ],
    );
    check_success_rules(
        &json!([{"succeededCount": 3, "succeededIndexes": "0,1"}]),
        &[concat!(
            "[0].succeededCount: Invalid value: 3: must be less than or equal to 2 ",
            "(the number of indexes in the specified succeededIndexes field)"
        )],
    );
}

#[test]
fn c_61_c_62_pod_replacement_policy() {
    check_spec(
        json!({"podReplacementPolicy": "TerminatingOrFailed", "podFailurePolicy": {"rules": []}}),
        &[
            r#"spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed""#,
        ],
    );
    for policy in ["", "Bad"] {
        check_spec(
            json!({"podReplacementPolicy": policy}),
            &[&format!(
                "spec.podReplacementPolicy: Unsupported value: \"{policy}\": supported values: \"Failed\", \"TerminatingOrFailed\""
            )],
        );
    }
}

fn check_restart(policy: &str, also: Value, expected: &[&str]) {
    let mut spec = json!({"template": {"spec": {"restartPolicy": policy}}});
    merge(&mut spec, also);
    let errors = validate_create(&prepared(json!({"spec": spec})), &Settings::default());
    let job_errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(job_errors.last().map_or("", String::as_str), expected.last().copied().unwrap_or(""));
}

#[test]
fn c_60_c_64_restart_policy() {
    check_restart("OnFailure", json!({}), &[]);
    check_restart(
        "Always",
        json!({}),
        &[r#"spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never""#],
    );
    check_restart(
        "Bad",
        json!({}),
        &[
            r#"spec.template.spec.restartPolicy: Unsupported value: "Bad": supported values: "OnFailure", "Never""#,
        ],
    );
    check_restart(
        "OnFailure",
        json!({"podFailurePolicy": {"rules": []}}),
        &[concat!(
            r#"spec.template.spec.restartPolicy: Invalid value: "OnFailure": "#,
            r#"only "Never" is supported when podFailurePolicy is specified"#
        )],
    );
}

#[test]
fn c_65_c_66_c_67_manual_selectors() {
    check_spec(
        json!({"manualSelector": true}),
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
        ],
    );
    check_spec(json!({"manualSelector": true, "selector": {}}), &[]);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    check_spec(
        json!({"manualSelector": true, "selector": {"matchLabels": {"a": "b"}}, "template": labels}),
        &[],
    );
    check_spec(
        json!({"manualSelector": true, "selector": {"matchLabels": {"a": "c"}}, "template": labels}),
        &[
            r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#,
        ],
    );
    let bad = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    check_spec(
        json!({"manualSelector": true, "selector": bad}),
        &[
            r#"spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator"#,
        ],
    );
}

#[test]
fn c_70_the_last_hostname() {
    let job = |name: String| json!({"metadata": {"name": name}, "spec": {"completionMode": "Indexed", "completions": 11}});
    check(job("a".repeat(60)), &[]);
    let name = "a".repeat(61);
    check(
        job(name.clone()),
        &[&format!(
            "metadata.name: Invalid value: \"{name}\": will not able to create pod with invalid DNS label: {name}-10"
        )],
    );
}

#[test]
fn m_12_the_job_of_a_cron_job() {
    let mut job = prepared(json!({"spec": {"managedBy": "nobody"}}));
    let spec = job.spec.take().expect("a spec");
    let options = Options::for_create(&prepared(json!({})));
    let errors = validate_spec(&spec, &options, &Path::new("spec").child("jobTemplate").child("spec"));
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "spec.jobTemplate.spec.managedBy: Invalid value: \"nobody\": must be a domain-prefixed path (such as \"acme.io/foo\")",
        ]
    );
}
