//! `ferry check`.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn ferry(arguments: &[&str], input: &str) -> Output {
    let mut ferry = Command::new(env!("CARGO_BIN_EXE_ferry"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ferry starts");
    ferry.stdin.take().expect("piped").write_all(input.as_bytes()).expect("ferry reads");
    ferry.wait_with_output().expect("ferry ends")
}

fn check(arguments: &[&str], input: &str, code: i32, stdout: &str) {
    let output = ferry(arguments, input);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout), stdout, "stderr: {}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(code));
}

const GOOD: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: good}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i}]
";

#[test]
fn a_good_job_is_ok() {
    check(&["check", "-"], GOOD, 0, "-: Job good: ok\n");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/job.yaml");
    check(&["check", example], "", 0, &format!("{example}: Job render: ok\n"));
}

#[test]
fn every_error_is_named_with_its_field() {
    let bad = GOOD.replace("Never", "Always").replace("  template", "  managedBy: nobody\n  template");
    let says = concat!(
        "-: Job good: refused\n",
        "  spec.managedBy: Invalid value: \"nobody\": must be a domain-prefixed path (such as \"acme.io/foo\")\n",
        "  spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"\n",
    );
    check(&["check", "-"], &bad, 1, says);
}

#[test]
fn unknown_fields_are_warned_of() {
    let odd = GOOD.replace("spec:\n  template", "spec:\n  colour: red\n  template");
    check(&["check", "-"], &odd, 0, "-: Job good: ok\n  warning: unknown field \"spec.colour\"\n");
}

#[test]
fn other_kinds_are_passed_over() {
    let both = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\n---{GOOD}");
    let says = "-: ConfigMap m: passed over, only batch/v1 Jobs are judged\n-: Job good: ok\n";
    check(&["check", "-"], &both, 0, says);
}

#[test]
fn a_cluster_may_refuse_the_reserved_value() {
    let reserved = GOOD.replace("  template", "  managedBy: kubernetes.io/job-controller\n  template");
    check(&["check", "-"], &reserved, 0, "-: Job good: ok\n");
    let output = ferry(&["check", "--refuse-reserved-managed-by", "-"], &reserved);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_cannot_be_read_is_an_error() {
    for (arguments, input, says) in [
        (["check", "/nowhere/at/all"], "", "failed to read /nowhere/at/all"),
        (["check", "-"], "a: [", "failed to read -"),
    ] {
        let output = ferry(&arguments, input);
        assert_eq!(output.status.code(), Some(2));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.starts_with(&format!("error: {says}")), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}
