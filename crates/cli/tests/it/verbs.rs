//! The verbs for users, on an embedded fleet whose pods are processes. One fleet for all of them, since it is what takes
//! time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

mod rights;

/// A running `ferry up` in a directory of its own, told to stop when this is dropped.
pub(crate) struct Fleet {
    pub(crate) home: tempfile::TempDir,
    up: Child,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.up), Signal::TERM);
        self.up.wait().expect("ferry ends");
    }
}

/// What a command said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}\n{}", self.stdout, self.stderr);
        self.stdout
    }

    /// That it failed with this status, and said this, and what to do about it.
    #[track_caller]
    pub(crate) fn refused(&self, code: i32, error: &str, hint: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        let (said, hinted) = self.stderr.split_once("hint: ").unwrap_or((&self.stderr, ""));
        assert!(said.contains(error) && hinted.contains(hint), "{}", self.stderr);
    }
}

impl Fleet {
    pub(crate) fn start() -> Fleet {
        let home = tempfile::tempdir().expect("a directory");
        let mut up = command(home.path());
        up.args(["up", "--worker", "east", "--worker", "west"]).stdout(Stdio::piped());
        let mut up = up.spawn().expect("ferry starts");
        let lines = BufReader::new(up.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.starts_with("fleet is ready"));
        assert!(ready, "ferry up ended");
        Fleet { home, up }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.path().join("ferry/kubeconfig")
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.with_input(arguments, "")
    }

    pub(crate) fn with_input(&self, arguments: &[&str], input: &str) -> Said {
        let mut command = command(self.home.path());
        said(command.args(arguments), input)
    }

    /// The exit status, where nobody reads the answer.
    fn unread(&self, arguments: &[&str]) -> Option<i32> {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = command(self.home.path());
        command.args(arguments).stdin(Stdio::null()).stdout(writer).status().expect("ferry ends").code()
    }

    /// Submits a Job of one pod.
    pub(crate) fn submit(&self, name: &str, cpu: &str, script: &str) {
        let manifest = job(name, cpu, script, json!({ "backoffLimit": 0 }));
        let said = self.with_input(&["submit", "-", "--queue", "fleet"], &manifest);
        assert!(said.expect(0).contains(&format!("job {name} submitted to queue fleet")));
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["-o", "json"]].concat()).expect(0)).expect("JSON")
    }

    fn status(&self, job: &str) -> String {
        self.json(&["get", "jobs", job])["items"][0]["status"].as_str().expect("a status").to_owned()
    }
}

/// The command, with a fleet of its own if there is one, and without anything of the user's.
pub(crate) fn command(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
    command.env("XDG_DATA_HOME", home).env("HOME", home).env_remove("KUBECONFIG");
    command
}

pub(crate) fn said(command: &mut Command, input: &str) -> Said {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("ferry starts");
    // Whoever reads no input has closed it.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("ferry ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

pub(crate) fn job(name: &str, cpu: &str, script: &str, mut spec: Value) -> String {
    let failures = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']";
    let container = json!({
        "name": "main", "image": "busybox", "command": ["sh", "-c", script],
        "env": [{ "name": "FAILURES", "valueFrom": { "fieldRef": { "fieldPath": failures } } }],
        "resources": { "requests": { "cpu": cpu } },
    });
    // A shell does not hear that it is to end, and would be waited for.
    let pod =
        json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container] });
    spec["template"] = json!({ "spec": pod });
    json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name }, "spec": spec }).to_string()
}

#[test]
fn the_verbs_of_users() {
    let fleet = Fleet::start();
    let replaced = follow_replacement(&fleet);
    to_the_end(&fleet);
    a_job_that_fails(&fleet);
    waiting_for_quota(&fleet);
    what_is_not_there(&fleet);
    rights::without_leave_to_read_secrets(&fleet);
    asked_at_once(&fleet);
    gone_everywhere(&fleet);
    many_at_once(&fleet);
    pods_that_wait(&fleet);
    as_yaml(&fleet);
    let output = replaced.wait_with_output().expect("ferry ends");
    let lines = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success());
    assert!(lines.contains("] the first attempt") && lines.contains("] the second attempt"), "{lines}");
    let pods: Vec<&str> = lines.lines().filter_map(|line| line.split(']').next()).collect();
    assert_ne!(pods.first(), pods.last(), "each attempt is a pod of its own: {lines}");
}

/// Begins to follow a Job whose pod fails once and is replaced some ten seconds later.
fn follow_replacement(fleet: &Fleet) -> Child {
    let script = "test \"$FAILURES\" != 0 || { echo the first attempt; exit 1; }; echo the second attempt";
    let spec = json!({ "completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3 });
    let manifest = job("replaced", "100m", script, spec);
    fleet.with_input(&["submit", "-", "-q", "fleet"], &manifest).expect(0);
    let mut follow = command(fleet.home.path());
    follow.args(["logs", "replaced", "-f"]).stdout(Stdio::piped()).spawn().expect("ferry starts")
}

/// Submitted, followed, and looked at when its pods are gone.
fn to_the_end(fleet: &Fleet) {
    let spec = json!({ "completions": 3, "parallelism": 3, "completionMode": "Indexed" });
    let manifest = job("frames", "100m", "echo frame $JOB_COMPLETION_INDEX; echo done", spec);
    let would = fleet.with_input(&["submit", "-", "--dry-run"], &manifest).expect(0);
    assert_eq!(would, "job frames would be submitted\n");
    fleet.run(&["get", "jobs", "frames"]).refused(
        3,
        "there is no Job frames in namespace default",
        "replaced",
    );

    let stdout = fleet.with_input(&["submit", "-", "--queue", "fleet", "--logs"], &manifest).expect(0);
    for index in 0..3 {
        let line = format!("] frame {index}");
        let written = stdout.lines().find(|it| it.ends_with(&line));
        assert!(written.is_some_and(|it| it.starts_with(&format!("[frames-{index}-"))), "{stdout}");
    }
    assert!(stdout.ends_with("frames is Complete\n"), "{stdout}");

    let after = fleet.run(&["logs", "frames", "--no-prefix"]).expect(0);
    assert_eq!(after, "frame 0\ndone\nframe 1\ndone\nframe 2\ndone\n", "logs outlive the mirror");
    assert_eq!(
        fleet.run(&["logs", "frames", "--index", "1", "--tail", "1", "--no-prefix"]).expect(0),
        "done\n"
    );

    fleet.run(&["logs", "frames", "--index", "3"]).refused(3, "frames has no index 3", "0 to 2");
    fleet.run(&["logs", "frames", "-c", "mian"]).refused(3, "have no container mian", "did you mean main?");
    let item = fleet.json(&["get", "jobs", "frames"])["items"][0].clone();
    assert_eq!((&item["status"], &item["queue"]), (&json!("Complete"), &json!("fleet")));
    assert_eq!(item["progress"]["completedIndexes"], "0-2");
    let cluster = item["cluster"].as_str().expect("a cluster");
    assert!(["east", "west"].contains(&cluster));
    let table = fleet.run(&["get", "jobs", "frames"]).expect(0);
    let words: Vec<&str> = table.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(words[..5], ["frames", "Complete", "3/3", "fleet", cluster]);
    assert!(fleet.run(&["get", "jobs", "-A", "-o", "wide"]).expect(0).starts_with("NAMESPACE"));
    assert!(fleet.run(&["get", "jobs", "-o", "name"]).expect(0).lines().any(|line| line == "frames"));
    assert!(fleet.run(&["get", "queues"]).expect(0).contains("cpu "), "queues show what is used");
    assert!(fleet.run(&["get", "clusters"]).expect(0).lines().any(|line| line.starts_with("east   yes")));
    assert_eq!(fleet.run(&["wait", "frames"]).expect(0), "frames is Complete\n");
    fleet.run(&["hold", "frames"]).refused(1, "frames has ended", "another name");
}

fn a_job_that_fails(fleet: &Fleet) {
    let manifest = job("broken", "100m", "echo it breaks; exit 7", json!({ "backoffLimit": 0 }));
    let stdout = fleet.with_input(&["submit", "-", "--queue", "fleet", "--wait"], &manifest).expect(1);
    assert!(stdout.contains("broken is Failed (BackoffLimitExceeded"), "{stdout}");
    assert!(fleet.run(&["logs", "broken"]).expect(0).ends_with("] it breaks\n"));
    fleet.run(&["wait", "broken", "--for", "finished"]).expect(0);
    fleet.run(&["wait", "broken"]).expect(1);
    assert_eq!(fleet.unread(&["wait", "broken"]), Some(1));

    let page = fleet.run(&["describe", "broken"]).expect(0);
    for expected in
        ["Status:      Failed: BackoffLimitExceeded", "Queue:       fleet", "Conditions:", "Events:"]
    {
        assert!(page.contains(expected), "{expected} is missing: {page}");
    }
    let told = fleet.run(&["events", "broken"]).expect(0);
    let has = |cluster: &str, reason: &str| {
        told.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[1] == cluster && words[3] == reason
        })
    };
    let cluster = fleet.json(&["get", "jobs", "broken"])["items"][0]["cluster"].clone();
    assert!(has("manager", "CreatedWorkload"), "{told}");
    assert!(has(cluster.as_str().expect("a cluster"), "SuccessfulCreate"), "{told}");
    assert!(!told.contains("frames"), "{told}");
}

/// Two Jobs take most of each worker; a third one waits, is explained, held and released, and runs when there is room.
fn waiting_for_quota(fleet: &Fleet) {
    // Whoever still runs holds quota.
    fleet.run(&["wait", "replaced", "--timeout", "60s"]).expect(0);
    fleet.submit("filler1", "7", "sleep 300");
    fleet.submit("filler2", "7", "sleep 300");
    fleet.run(&["wait", "filler1", "filler2", "--for", "running", "--timeout", "60s"]).expect(0);
    fleet.submit("later", "4", "sleep 300");
    fleet.run(&["wait", "later", "--timeout", "1s"]).refused(4, "it took longer than 1s", "ferry explain");
    assert_eq!(fleet.status("later"), "Queued");

    let explained = fleet.json(&["explain", "later"]);
    let clusters = explained["clusters"].as_array().expect("clusters");
    let names: Vec<&str> = clusters.iter().filter_map(|it| it["cluster"].as_str()).collect();
    assert_eq!(names, ["manager", "east", "west"]);
    for cluster in clusters {
        assert_eq!(
            (&cluster["answer"], &cluster["needs"]["cpu"]),
            (&json!("Waits"), &json!("4")),
            "{explained}"
        );
        let why = cluster["why"].as_str().expect("a reason");
        assert!(why.contains("more needed: when filler"), "{why}");
    }
    assert_eq!((&clusters[0]["free"]["cpu"], &clusters[0]["position"]), (&json!("2"), &json!(1)));
    assert_eq!(clusters[1]["largestHole"], json!({ "node": "east-node", "free": { "cpu": "1" }, "pods": 0 }));
    let text = fleet.run(&["explain", "later"]).expect(0);
    assert!(text.starts_with("later is Queued, 1 of 1 in ClusterQueue fleet, waiting for "), "{text}");

    let top = fleet.run(&["top"]).expect(0);
    assert!(top.contains("cpu 14/16 87%") && top.contains("cpu 7/8 87%"), "{top}");
    assert!(top.lines().any(|line| line.starts_with("filler1 ") && line.contains("cpu 7")), "{top}");

    assert_eq!(fleet.run(&["hold", "later"]).expect(0), "later is held\n");
    assert_eq!(fleet.status("later"), "Held");
    assert!(fleet.run(&["explain", "later"]).expect(0).contains("ferry release later"));
    assert_eq!(fleet.run(&["cancel", "filler1"]).expect(0), "filler1 is gone\n");
    assert_eq!(fleet.status("later"), "Held", "room does not help who is held");
    fleet.run(&["release", "later"]).expect(0);
    fleet.run(&["wait", "later", "--for", "running", "--timeout", "60s"]).expect(0);
    fleet.run(&["hold", "later"]).expect(0);
    let stopped = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        fleet.status("later") == "Held"
    });
    assert!(stopped, "a Job that runs is stopped: {}", fleet.status("later"));
    fleet.run(&["cancel", "later", "filler2", "--no-wait"]).expect(0);
    fleet.run(&["wait", "later", "filler2", "--for", "deleted", "--timeout", "60s"]).expect(0);
}

fn what_is_not_there(fleet: &Fleet) {
    for verb in ["describe", "explain", "logs", "wait", "hold", "release", "cancel", "events"] {
        fleet.run(&[verb, "nothing"]).refused(3, "there is no Job nothing in namespace default", "frames");
    }
    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "a" } });
    fleet.with_input(&["submit", "-"], &unknown.to_string()).refused(2, "does not know Thing", "definition");
    let invalid = job("Invalid_Name", "1", "true", json!({}));
    fleet.with_input(&["submit", "-"], &invalid).refused(2, "metadata.name", "ferry check");
    let again = job("frames", "200m", "true", json!({}));
    let there = "job frames is there already, and cannot become this one: ferry cancel frames first";
    fleet.with_input(&["submit", "-"], &again).refused(2, "field is immutable", there);
    let elsewhere = fleet.with_input(&["submit", "-", "--queue", "other"], &again);
    elsewhere.refused(2, "field is immutable", there);
    let astray = fleet.with_input(&["submit", "-", "-n", "nowhere"], &again);
    astray.refused(3, "namespaces \"nowhere\" not found", "kubectl create namespace nowhere");
    let lost = job("lost", "1", "true", json!({}));
    fleet.with_input(&["submit", "-", "--queue", "nowhere"], &lost).expect(0);
    let text = fleet.run(&["explain", "lost"]).expect(0);
    assert!(text.contains("there is no queue nowhere in namespace default; there is fleet"), "{text}");
    fleet.run(&["cancel", "lost"]).expect(0);
    fleet.run(&["describe", "framse"]).refused(3, "there is no Job framse", "did you mean frames?");
    fleet.run(&["get", "queues", "fleat"]).refused(3, "there is no queue fleat in", "did you mean fleet?");
    fleet.run(&["get", "clusters", "north"]).refused(3, "there is no cluster north", "east, west");
    fleet.run(&["get", "jobs", "framse", "-w"]).refused(3, "there is no Job framse", "did you mean frames?");
    fleet.run(&["get", "queues", "-w"]).refused(2, "only Jobs can be watched", "ferry top -w");
    fleet.run(&["get", "jobs", "--context", "ferry-eest"]).refused(
        3,
        "ferry-eest",
        "did you mean ferry-east?",
    );
    fleet.run(&["submit", "nowhere.yaml"]).refused(2, "failed to read nowhere.yaml", "standard input");
    fleet.run(&["man", "lgos"]).refused(3, "there is no verb lgos", "did you mean logs?");
    contexts_that_lead_nowhere(fleet);
}

/// What is wrong with a kubeconfig is found in it.
fn contexts_that_lead_nowhere(fleet: &Fleet) {
    let cluster = |name: &str, cluster: Value| json!({ "name": name, "cluster": cluster });
    let server = "https://127.0.0.1:1";
    let clusters = json!([
        cluster("no-authority", json!({ "server": server, "certificate-authority": "/nowhere" })),
        cluster("no-server", json!({})),
        cluster("unsafe", json!({ "server": server, "insecure-skip-tls-verify": true })),
    ]);
    let context = |name: &str| json!({ "name": name, "context": { "cluster": name, "user": "u" } });
    let contexts = json!([context("no-authority"), context("no-server"), context("unsafe")]);
    let users = json!([{ "name": "u", "user": {} }]);
    let file = fleet.home.path().join("nowhere");
    let config = json!({ "clusters": clusters, "contexts": contexts, "users": users });
    std::fs::write(&file, config.to_string()).expect("a file");
    let both = std::env::join_paths([fleet.kubeconfig(), file]).expect("paths");
    let run =
        |arguments: &[&str]| said(command(fleet.home.path()).env("KUBECONFIG", &both).args(arguments), "");
    run(&["join", "no-authority"]).refused(
        2,
        "the authority of no-authority, /nowhere",
        "certificate-authority",
    );
    run(&["join", "no-server"]).refused(2, "no-server leads to no server", "kubectl config set-cluster");
    run(&["join", "unsafe"]).refused(2, "does not check the certificate", "authority");
    run(&["get", "jobs", "--context", "no-authority"]).refused(2, "/nowhere", "certificates");
}

/// What is asked right after a Job was submitted waits until the operator has seen it.
fn asked_at_once(fleet: &Fleet) {
    for round in 0..3 {
        let name = format!("soon{round}");
        fleet.submit(&name, "100", "true");
        let text = fleet.run(&["explain", &name]).expect(0);
        assert!(text.starts_with(&format!("{name} is Queued")) && text.contains("cpu 100"), "{text}");
        let name = format!("kept{round}");
        fleet.submit(&name, "100m", "sleep 300");
        assert_eq!(fleet.run(&["hold", &name]).expect(0), format!("{name} is held\n"));
        fleet.run(&["cancel", &name, "--no-wait"]).expect(0);
    }
    // What nobody will queue is not waited for.
    let elsewhere = job("elsewhere", "1", "true", json!({ "managedBy": "example.com/nobody" }));
    fleet.with_input(&["submit", "-"], &elsewhere).expect(0);
    assert!(fleet.run(&["explain", "elsewhere"]).expect(0).starts_with("elsewhere is External"));
    fleet.run(&["hold", "elsewhere", "nothing"]).refused(3, "there is no Job nothing", "frames");
    assert_eq!(fleet.status("elsewhere"), "External", "all or none");
    for (arguments, error) in [
        (["logs", "frames", "--index", "-1"], "-1 is not in 0.."),
        (["logs", "frames", "--tail", "-1"], "-1 is not in 0.."),
    ] {
        let said = fleet.run(&arguments);
        assert!(said.code == Some(2) && said.stderr.contains(error), "{said:?}");
    }
    for what in ["queues", "clusters"] {
        let shown = fleet.json(&["get", what]);
        let metadata = &shown["items"][0]["metadata"];
        assert!(metadata["name"].is_string() && metadata["managedFields"].is_null(), "{shown}");
    }
}

/// Who is told that a Job is gone, or a worker empty, can rely on it: no pods of it are left on the worker.
fn gone_everywhere(fleet: &Fleet) {
    fleet.submit("stubborn", "100m", "trap '' TERM; sleep 300");
    let place = || {
        fleet.run(&["wait", "stubborn", "--for", "running", "--timeout", "120s"]).expect(0);
        let shown = fleet.json(&["get", "jobs", "stubborn"]);
        shown["items"][0]["cluster"].as_str().expect("a cluster").to_owned()
    };
    let pods = |cluster: &str| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let pods: kube::Api<k8s_openapi::api::core::v1::Pod> =
                kube::Api::default_namespaced(client_of(fleet, Some(format!("ferry-{cluster}"))).await);
            let params = kube::api::ListParams::default().labels("batch.kubernetes.io/job-name=stubborn");
            pods.list(&params).await.expect("a list").items.len()
        })
    };
    let first = place();
    assert_eq!(pods(&first), 1);
    let drained = fleet.run(&["drain", &first]);
    assert_eq!(pods(&first), 0, "{drained:?}");
    assert!(drained.expect(0).ends_with(&format!("{first} is empty\n")));
    let second = place();
    assert_ne!(first, second);
    fleet.run(&["uncordon", &first]).expect(0);
    assert_eq!(pods(&second), 1);
    let cancelled = fleet.run(&["cancel", "stubborn"]);
    assert_eq!(pods(&second), 0, "{cancelled:?}");
    assert_eq!(cancelled.expect(0), "stubborn is gone\n");
}

/// Jobs chosen by what they are like, where naming each would be tedious.
fn many_at_once(fleet: &Fleet) {
    for (name, team) in [("cats", "vision"), ("dogs", "vision"), ("words", "speech")] {
        let mut manifest: Value =
            serde_json::from_str(&job(name, "100m", "sleep 300", json!({}))).expect("JSON");
        manifest["metadata"]["labels"] = json!({ "team": team });
        fleet.with_input(&["submit", "-", "--queue", "fleet"], &manifest.to_string()).expect(0);
    }
    let names = |arguments: &[&str]| {
        let shown = fleet.run(&[&["get", "jobs", "-o", "name"], arguments].concat()).expect(0);
        shown.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let running = fleet.run(&["wait", "-l", "team", "--for", "running", "--timeout", "120s"]).expect(0);
    assert_eq!(running.lines().count(), 3, "{running}");
    assert_eq!(names(&["-l", "team=vision"]), ["cats", "dogs"]);
    assert_eq!(names(&["-l", "team!=vision,team", "--queue", "fleet"]), ["words"]);
    assert!(names(&["-l", "team", "--queue", "another"]).is_empty());
    assert_eq!(names(&["--status", "running,starting", "-l", "team"]), ["cats", "dogs", "words"]);
    let cluster = fleet.json(&["get", "jobs", "words"])["items"][0]["cluster"].clone();
    let there = names(&["--cluster", cluster.as_str().expect("a cluster")]);
    assert!(there.contains(&"words".to_owned()), "{there:?}");
    for (name, at) in
        there.iter().map(|name| (name, fleet.json(&["get", "jobs", name])["items"][0]["cluster"].clone()))
    {
        assert_eq!(at, cluster, "{name}");
    }

    assert_eq!(fleet.run(&["hold", "-l", "team=vision"]).expect(0), "cats is held\ndogs is held\n");
    assert_eq!(names(&["-l", "team", "--status", "running"]), ["words"]);
    fleet.run(&["release", "-l", "team=vision"]).expect(0);
    fleet.run(&["wait", "-l", "team", "--for", "running", "--timeout", "120s"]).expect(0);

    // What is not read is done all the same.
    assert_eq!(fleet.unread(&["hold", "-l", "team"]), Some(0));
    assert!(names(&["-l", "team", "--status", "running"]).is_empty());
    assert_eq!(fleet.unread(&["release", "-l", "team"]), Some(0));
    fleet.run(&["wait", "-l", "team", "--for", "running", "--timeout", "120s"]).expect(0);

    fleet.run(&["wait", "-l", "team=none"]).refused(3, "no Jobs with labels team=none in", "ferry get jobs");
    fleet.run(&["cancel", "-l", "team in ("]).refused(
        2,
        "failed to look for labels team in (",
        "team=vision",
    );
    fleet.run(&["get", "queues", "-l", "a=b"]).refused(2, "only Jobs can be chosen", "by name");
    for arguments in [&["cancel"][..], &["hold", "cats", "--all"], &["wait", "cats", "-l", "team"]] {
        assert_eq!(fleet.run(arguments).code, Some(2), "{arguments:?}");
    }
    let mut gone: Vec<String> =
        fleet.run(&["cancel", "-l", "team"]).expect(0).lines().map(str::to_owned).collect();
    gone.sort();
    assert_eq!(gone, ["cats is gone", "dogs is gone", "words is gone"]);
    let again = fleet.run(&["cancel", "-l", "team"]);
    assert_eq!(again.stderr, "no Jobs with labels team in namespace default\n");
    assert_eq!(again.expect(0), "");
    assert_eq!(fleet.run(&["wait", "cats", "--for", "deleted"]).expect(0), "cats is not there\n");
    let nowhere = fleet.run(&["wait", "cats", "--for", "deleted", "--kubeconfig", "nowhere"]);
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (Some(2), ""), "who was not asked has not answered");

    // A namespace comes before what is in it; one that is refused keeps nothing else back.
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    let documents = [
        namespace.to_string(),
        job("ends", "100m", "true", json!({})),
        job("Refused", "100m", "true", json!({})),
        job("stays", "100m", "sleep 300", json!({})),
    ];
    let some = fleet.with_input(&["submit", "-", "-n", "other", "--wait"], &documents.join("\n---\n"));
    some.refused(2, "failed to submit job Refused: ", "ferry check");
    assert_eq!(some.stdout, "namespace other submitted\njob ends submitted\njob stays submitted\n");
    fleet.run(&["wait", "ends", "-n", "other", "--timeout", "120s"]).expect(0);
    // Hints find the Job where it is, and quota that is counted everywhere stands beside Jobs that are.
    let hinted = fleet.with_input(&["submit", "-", "-n", "other"], &documents[3]);
    assert!(hinted.stderr.contains("ferry wait stays -n other; ferry logs stays -n other -f"), "{hinted:?}");
    fleet.run(&["wait", "stays", "-n", "other", "--for", "running", "--timeout", "120s"]).expect(0);
    let counted = |arguments: &[&str]| {
        let top = fleet.run(arguments).expect(0);
        let row = top.lines().find(|line| line.starts_with("manager ")).expect("a row").to_owned();
        row.split_whitespace().nth(1).expect("a number").to_owned()
    };
    assert_eq!(counted(&["top"]), counted(&["top", "-A"]));
    assert_ne!(counted(&["top"]), "0");
    assert_eq!(
        fleet.run(&["hold", "--all", "-n", "other"]).expect(0),
        "stays is held\n",
        "what has ended is left"
    );
    let gone = fleet.run(&["cancel", "--all", "-n", "other"]).expect(0);
    assert_eq!(gone.lines().count(), 2, "{gone}");
}

/// A pod that has not begun keeps nobody from reading the others.
fn pods_that_wait(fleet: &Fleet) {
    // Without a queue it runs where it is, and only one of its pods has room there.
    let spec = json!({ "completions": 2, "parallelism": 2 });
    fleet.with_input(&["submit", "-"], &job("half", "5", "echo one of two; sleep 300", spec)).expect(0);
    fleet.run(&["wait", "half", "--for", "running", "--timeout", "120s"]).expect(0);
    let shown = (0..600).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let said = fleet.run(&["logs", "half", "--no-prefix"]);
        (said.stdout == "one of two\n" && said.stderr.contains(" waits for a node")).then_some(said)
    });
    assert_eq!(shown.expect("what the one wrote, and why the other did not").code, Some(0));

    fleet.with_input(&["submit", "-"], &job("none", "100", "true", json!({}))).expect(0);
    fleet.run(&["wait", "none", "--for", "running", "--timeout", "120s"]).expect(0);
    let nothing = fleet.run(&["logs", "none"]);
    nothing.refused(3, "no pod of none has begun to write yet", "ferry logs none -f waits for them");

    // What is not gone in time is said, and so is a worker that nobody waits for.
    let mut kept: Value = serde_json::from_str(&job("kept", "100m", "true", json!({}))).expect("JSON");
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    fleet.with_input(&["submit", "-"], &kept.to_string()).expect(0);
    fleet.run(&["cancel", "kept", "--timeout", "1s"]).refused(4, "it took longer than 1s", "ferry describe");
    kept["metadata"]["finalizers"] = json!([]);
    fleet.with_input(&["submit", "-"], &kept.to_string()).expect(0);
    fleet.run(&["cancel", "half", "none", "--timeout", "120s"]).expect(0);
}

/// Every answer that is JSON is YAML as well.
fn as_yaml(fleet: &Fleet) {
    for arguments in [
        &["get", "jobs", "frames"][..],
        &["get", "queues"],
        &["get", "clusters"],
        &["clusters"],
        &["explain", "frames"],
    ] {
        let shown = fleet.run(&[arguments, &["-o", "yaml"]].concat()).expect(0);
        let yaml: Value = serde_saphyr::from_str(&shown).expect("YAML");
        let mut json = fleet.json(arguments);
        // How long a worker took to answer differs.
        for item in json["items"].as_array_mut().into_iter().flatten() {
            if item["lastContact"].is_string() {
                item["lastContact"] = yaml["items"][0]["lastContact"].clone();
            }
        }
        assert_eq!(yaml["items"][0]["name"], json["items"][0]["name"], "{arguments:?}");
        assert_eq!(yaml["status"], json["status"], "{arguments:?}");
    }
    let clusters = fleet.json(&["clusters"]);
    assert!(clusters["items"][0]["lastContact"].is_string(), "{clusters}");
}

async fn client(fleet: &Fleet) -> kube::Client {
    client_of(fleet, None).await
}

async fn client_of(fleet: &Fleet, context: Option<String>) -> kube::Client {
    let config = kube::config::Kubeconfig::read_from(fleet.kubeconfig()).expect("a kubeconfig");
    let options = kube::config::KubeConfigOptions { context, ..kube::config::KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(config, &options).await.expect("a config");
    kube::Client::try_from(config).expect("a client")
}

#[test]
fn nobody_answers() {
    let home = tempfile::tempdir().expect("a directory");
    let nothing = said(command(home.path()).args(["get", "jobs"]), "");
    nothing.refused(2, "found no cluster", "ferry up");
    let file = home.path().join("config");
    let cluster = json!([{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }]);
    let contexts = json!([{ "name": "c", "context": { "cluster": "c", "user": "" } }]);
    let config = json!({ "clusters": cluster, "contexts": contexts, "current-context": "c", "users": [] });
    std::fs::write(&file, config.to_string()).expect("a file");
    let there = format!("failed to reach https://127.0.0.1:1 (context c of {})", file.display());
    for verb in [
        "get",
        "clusters",
        "describe a",
        "explain a",
        "logs a",
        "top",
        "events",
        "wait a",
        "hold a",
        "release a",
        "cancel a",
        "install",
        "join c",
        "leave a",
        "cordon a",
        "uncordon a",
        "drain a",
        "doctor",
    ] {
        let arguments = verb.split(' ');
        let refused = said(command(home.path()).args(arguments).env("KUBECONFIG", &file), "");
        refused.refused(2, &there, "is the cluster up, and its address right?");
        assert_eq!(refused.stderr.lines().count(), 2, "an error and a hint: {}", refused.stderr);
        assert_eq!(refused.stdout, "", "{verb}");
    }
    for missing in ["nowhere", "."] {
        let file = home.path().join(missing);
        let refused = said(command(home.path()).arg("get").env("KUBECONFIG", &file), "");
        refused.refused(2, &format!("failed to read {}: ", file.display()), "say which file to use");
    }
    let operator = |arguments: &[&str]| said(command(home.path()).arg("operator").args(arguments), "");
    operator(&["--kubeconfig", "nowhere"]).refused(2, "failed to read nowhere: No such file", "--kubeconfig");
    let path = file.to_str().expect("a path");
    operator(&["--kubeconfig", path, "--context", "d"]).refused(2, "failed to use", "--context NAME");
    operator(&[]).refused(2, "found no cluster", "--kubeconfig");
}

/// A server that takes connections and says nothing is named as well, and not waited for.
#[test]
fn nobody_says_anything() {
    let home = tempfile::tempdir().expect("a directory");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = format!("https://{}", silent.local_addr().expect("an address"));
    let file = home.path().join("config");
    let contexts = json!([{ "name": "ferry-manager", "context": { "cluster": "c", "user": "" } }]);
    let clusters = json!([{ "name": "c", "cluster": { "server": server } }]);
    let config = json!({ "clusters": clusters, "contexts": contexts, "current-context": "ferry-manager", "users": [] });
    std::fs::write(&file, config.to_string()).expect("a file");
    let refused = said(command(home.path()).args(["get", "jobs"]).env("KUBECONFIG", &file), "");
    refused.refused(2, &format!("failed to reach {server} (context ferry-manager of "), "ferry up starts it");
}

/// As a plugin it asks the cluster that kubectl asks, whatever fleet once ran here.
#[test]
fn a_plugin_looks_where_kubectl_looks() {
    let home = tempfile::tempdir().expect("a directory");
    let write = |path: &str, context: &str| {
        let path = home.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        let cluster = json!([{ "name": "c", "cluster": { "server": "https://127.0.0.1:1" } }]);
        let contexts = json!([{ "name": context, "context": { "cluster": "c", "user": "" } }]);
        let config =
            json!({ "clusters": cluster, "contexts": contexts, "current-context": context, "users": [] });
        std::fs::write(path, config.to_string()).expect("a file");
    };
    write("ferry/kubeconfig", "ferry-manager");
    let as_plugin = || said(command(home.path()).arg0("kubectl-ferry").arg("get"), "");
    as_plugin().refused(2, "(context ferry-manager of ", "ferry up");
    write(".kube/config", "prod");
    as_plugin().refused(2, "(context prod of ", "is the cluster up");
    said(command(home.path()).arg("get"), "").refused(2, "(context ferry-manager of ", "ferry up");
    // Files that are not there are passed over, if there are others.
    let named = |files: &[&str]| {
        let files = std::env::join_paths(files.iter().map(|file| home.path().join(file))).expect("paths");
        said(command(home.path()).arg("get").env("KUBECONFIG", files), "")
    };
    named(&["nowhere", ".kube/config"]).refused(2, "(context prod of ", "is the cluster up");
    named(&["nowhere", "nor-here"]).refused(2, "nowhere", "KUBECONFIG");
}

#[test]
fn a_plugin_of_kubectl() {
    let home = tempfile::tempdir().expect("a directory");
    let help = said(command(home.path()).arg0("kubectl-ferry").args(["get", "--help"]), "").expect(0);
    assert!(help.contains("Usage: kubectl ferry get"), "{help}");
    if let Ok(kubectl) = testkit::Binary::Kubectl.ensure() {
        let bin = env!("CARGO_BIN_EXE_ferry");
        std::os::unix::fs::symlink(bin, home.path().join("kubectl-ferry")).expect("a link");
        let help = said(Command::new(kubectl).args(["ferry", "logs", "--help"]).env("PATH", home.path()), "");
        assert!(help.expect(0).contains("Usage: kubectl ferry logs"), "kubectl finds it");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = said(command(home.path()).args(["completion", shell]), "").expect(0);
        assert!(script.contains("explain"), "verbs are completed in {shell}");
    }
    let page = said(command(home.path()).args(["man", "logs"]), "").expect(0);
    assert!(page.starts_with(".ie") && page.contains("ferry\\-logs"), "{page}");
}
