//! Whatever goes wrong, the exit status says how and the last line what to do about it.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::json;

use crate::verbs::{Said, command, said};

/// That it failed with this status and said this, and at last what to do about it.
#[track_caller]
fn check(said: &Said, code: i32, error: &str, hint: &str) {
    said.refused(code, error, hint);
    let last = said.stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("hint: "), "{}", said.stderr);
    assert_eq!(said.stdout, "");
}

fn write(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path.to_str().expect("a path").to_owned()
}

/// A kubeconfig of a cluster that nobody serves.
fn nowhere(directory: &Path) -> String {
    let cluster = json!([{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }]);
    let contexts = json!([{ "name": "c", "context": { "cluster": "c", "user": "u" } }]);
    let users = json!([{ "name": "u", "user": {} }]);
    let config = json!({ "clusters": cluster, "contexts": contexts, "current-context": "c", "users": users });
    write(directory, "kubeconfig", &config.to_string())
}

#[test]
fn arguments_and_files() {
    let home = tempfile::tempdir().expect("a directory");
    let images = write(home.path(), "images", "no image\n");
    let config = write(home.path(), "config", "kind: Something\n");
    let kubeconfig = nowhere(home.path());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let listener = std::net::TcpListener::bind(taken).expect("the same port");
    let (taken, port) = (taken.to_string(), taken.port().to_string());
    let operator = |more: &[&str]| [&["operator", "--kubeconfig", &kubeconfig], more].concat().join(" ");
    for (arguments, error, hint) in [
        ("frobnicate".to_owned(), "unrecognized subcommand", "--help"),
        ("logs".to_owned(), "required arguments", "--help"),
        ("get jobs -o xml".to_owned(), "invalid value 'xml'", "--help"),
        ("wait a --timeout soon".to_owned(), "\"soon\" is no time span", "--help"),
        ("completion tcsh".to_owned(), "invalid value 'tcsh'", "--help"),
        ("cluster".to_owned(), "--data <DIR>", "--help"),
        ("cluster --ephemeral --name Lab".to_owned(), "invalid value 'Lab' for '--name <NAME>'", "--help"),
        (
            "up --worker nodes --data d".to_owned(),
            "\"nodes\" cannot be the name of a worker",
            "--worker NAME",
        ),
        ("up --worker kubeconfig --data d".to_owned(), "\"kubeconfig\" cannot be", "--worker NAME"),
        ("check nowhere.yaml".to_owned(), "failed to read nowhere.yaml", "standard input"),
        ("cluster --ephemeral --image-file nowhere".to_owned(), "the images in nowhere", "--image-file FILE"),
        (format!("cluster --ephemeral --image-file {images}"), "failed to read the images", "NAME=PATH"),
        (
            format!("cluster --ephemeral --requestheader-client-ca-file {images}"),
            "no certificate of an authority",
            "--requestheader-client-ca-file FILE",
        ),
        (format!("cluster --ephemeral --port {port}"), "Address already in use", "another --port"),
        (operator(&["--config", "nowhere"]), "failed to read nowhere", "--config names"),
        (operator(&["--config", &config]), "failed to use", "config.kueue.x-k8s.io"),
        (operator(&["--listen", &taken]), "failed to listen on", "--listen ADDRESS"),
        (operator(&["--visibility-service", "x"]), "--visibility-listen <ADDRESS>", "--help"),
    ] {
        let mut ferry = command(home.path());
        ferry.args(arguments.split(' ')).env("TMPDIR", home.path());
        check(&said(&mut ferry, ""), 2, error, hint);
    }
    drop(listener);

    let mut homeless = command(home.path());
    homeless.arg("up").env_remove("HOME").env_remove("XDG_DATA_HOME");
    check(&said(&mut homeless, ""), 2, "found no place for data", "--data DIR");
    let mut astray = command(home.path());
    astray.args(["up", "--ephemeral"]).env("TMPDIR", home.path().join("nowhere"));
    check(&said(&mut astray, ""), 2, "failed to make a temporary directory", "TMPDIR");
}

/// A kubeconfig that is there is meant, also by who could do without one.
#[test]
fn what_is_wrong_with_a_kubeconfig() {
    let home = tempfile::tempdir().expect("a directory");
    let no_yaml = write(home.path(), "no-yaml", "a: [");
    let no_context = write(home.path(), "no-context", "{apiVersion: v1, kind: Config}");
    let missing = home.path().join("missing").display().to_string();
    for (file, error, hint) in [
        (&missing, format!("failed to read {missing}: No such file"), "--kubeconfig and KUBECONFIG"),
        (&no_yaml, format!("failed to read {no_yaml}"), "--kubeconfig and KUBECONFIG"),
        (&no_context, "failed to use the kubeconfig of the environment".to_owned(), "--context NAME"),
    ] {
        let mut operator = command(home.path());
        check(&said(operator.arg("operator").env("KUBECONFIG", file), ""), 2, &error, hint);
    }
    let kube = home.path().join(".kube");
    std::fs::create_dir(&kube).expect("a directory");
    let config = write(&kube, "config", "a: [");
    let mut operator = command(home.path());
    operator.arg("operator").env_remove("KUBECONFIG").env("HOME", home.path());
    check(&said(&mut operator, ""), 2, &format!("failed to read {config}"), "--kubeconfig and KUBECONFIG");
}

#[test]
fn manifests() {
    let home = tempfile::tempdir().expect("a directory");
    let kubeconfig = nowhere(home.path());
    for (manifest, error, hint) in [
        ("{", "failed to read -", "YAML or JSON"),
        ("---", "nothing in it", "apiVersion"),
        ("[]", "no apiVersion or no kind", "names both"),
        ("{kind: Job}", "no apiVersion or no kind (Job)", "names both"),
        ("{apiVersion: batch/v1, kind: Job, metadata: a}", "a document has no name (Job)", "metadata.name"),
        (
            "{apiVersion: batch/v1, kind: Job, metadata: {name: a, labels: b}}",
            "are no labels",
            "team: vision",
        ),
    ] {
        let mut submit = command(home.path());
        submit.args(["submit", "-", "--queue", "fleet", "--kubeconfig", &kubeconfig]);
        check(&said(&mut submit, manifest), 2, error, hint);
    }
}

/// A disk may be full.
#[test]
fn answers_that_cannot_be_written() {
    let home = tempfile::tempdir().expect("a directory");
    let full = PathBuf::from("/dev/full");
    let full = std::fs::OpenOptions::new().write(true).open(full).expect("a device");
    let output =
        command(home.path()).arg("crds").stdin(Stdio::null()).stdout(full).output().expect("ferry runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("No space left on device")
            && said.ends_with("hint: make room on the disk, or write elsewhere\n"),
        "{said}"
    );
}
