//! `ferry demo` and `ferry up`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::verbs::{command, job as job_of, said};

#[test]
fn the_demonstration_ends_as_it_should() {
    let output = Command::new(env!("CARGO_BIN_EXE_ferry")).arg("demo").output().expect("ferry runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let row = |job: &str| {
        let line = stdout.lines().find(|line| line.split_whitespace().next() == Some(job));
        let words: Vec<&str> =
            line.unwrap_or_else(|| panic!("{job} is missing: {stdout}")).split_whitespace().collect();
        (words[1].to_owned(), words[2].to_owned())
    };
    for job in ["parallel", "indexed", "flaky"] {
        let (ended, place) = row(job);
        assert_eq!(ended, "Complete", "{job}");
        assert!(["east", "west"].contains(&place.as_str()), "{job} ran on {place}");
    }
    assert_eq!(row("local"), ("Complete".to_owned(), "manager".to_owned()));
    assert_eq!(row("elsewhere"), ("untouched".to_owned(), "-".to_owned()));
    assert!(stderr.contains("1 failed"), "the flaky Job failed once: {stderr}");
}

/// Who has no time for it hears so by the exit status, and nothing of it stays.
#[test]
fn a_demonstration_that_does_not_end_in_time_fails() {
    let (home, temporary) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let said =
        said(command(home.path()).args(["demo", "--timeout", "1"]).env("TMPDIR", temporary.path()), "");
    said.refused(1, "not everything ended as it should within 1 s", "--timeout");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A running `ferry up`, killed with -9 when it is dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        self.0.kill().ok(); // it may have ended already
        self.0.wait().expect("ferry ends");
    }
}

fn up(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
    command.args(["up", "--worker", "east", "--runtime", "simulated", "--data"]).arg(data);
    command
}

impl Up {
    /// Starts it and waits until it can be used.
    fn start(data: &Path) -> Up {
        Up::run(up(data))
    }

    fn run(mut command: Command) -> Up {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("ferry starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.starts_with("fleet is ready"));
        assert!(ready, "ferry up ended");
        Up(child)
    }
}

/// The first of two ports that are free, one after the other.
fn free_ports() -> u16 {
    let bind = |port: u16| std::net::TcpListener::bind(("127.0.0.1", port));
    (0..100)
        .find_map(|_| {
            let first = bind(0).expect("a port").local_addr().expect("an address").port();
            (first < u16::MAX && bind(first).is_ok() && bind(first + 1).is_ok()).then_some(first)
        })
        .expect("two ports in a row")
}

async fn jobs(data: &Path, context: &str) -> Api<Job> {
    let config = Kubeconfig::read_from(data.join("kubeconfig")).expect("a kubeconfig");
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(config, &options).await.expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

fn job(name: &str) -> Value {
    let container = json!({ "name": "c", "image": "i", "command": ["true"] });
    json!({
        "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": "fleet" } },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } },
    })
}

#[tokio::test]
async fn a_fleet_is_kept_through_kill_9() {
    let data = tempfile::tempdir().expect("a directory");
    let fleet = Up::start(data.path());
    let manager = jobs(data.path(), "ferry-manager").await;
    manager
        .create(&PostParams::default(), &serde_json::from_value(job("kept")).expect("a Job"))
        .await
        .expect("created");
    let done = await_condition(manager.clone(), "kept", conditions::is_job_completed());
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("in time").expect("a watch");
    assert!(
        jobs(data.path(), "ferry-east").await.get_opt("missing").await.expect("the worker answers").is_none()
    );

    let second = up(data.path()).output().expect("ferry runs");
    assert_eq!(second.status.code(), Some(2));
    let told = String::from_utf8_lossy(&second.stderr);
    assert!(told.contains("is in use") && told.contains("hint: if it runs already"), "{told}");

    // Something runs when the end comes.
    let mut running = job("running");
    running["spec"]["template"]["metadata"] =
        json!({ "annotations": { "sim.ferry.dev/duration-ms": "forever" } });
    let running = serde_json::from_value(running).expect("a Job");
    manager.create(&PostParams::default(), &running).await.expect("created");
    let mirror = |job: Option<&Job>| job.and_then(|job| job.status.as_ref()?.active) == Some(1);
    let worker = jobs(data.path(), "ferry-east").await;
    let runs = await_condition(worker, "running", mirror);
    let before =
        tokio::time::timeout(Duration::from_secs(60), runs).await.expect("in time").expect("a watch");

    drop(fleet);
    // It knows its workers by itself, and leaves none of them out.
    let mut fewer = command(data.path());
    fewer.args(["up", "--runtime", "simulated", "--workers", "2", "--data"]).arg(data.path());
    said(&mut fewer, "").refused(
        2,
        "worker east is in ",
        "without --worker and --workers all that are there run",
    );
    let base = free_ports();
    let mut again = Command::new(env!("CARGO_BIN_EXE_ferry"));
    again.args(["up", "--runtime", "simulated", "--port-base", &base.to_string(), "--data"]).arg(data.path());
    let _again = Up::run(again);
    let config = Kubeconfig::read_from(data.path().join("kubeconfig")).expect("a kubeconfig");
    let servers: Vec<&str> =
        config.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref()?.server.as_deref()).collect();
    assert_eq!(servers, [base, base + 1].map(|port| format!("https://127.0.0.1:{port}")));
    let contexts: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
    assert_eq!(contexts, ["ferry-manager", "ferry-east"]);
    let worker = jobs(data.path(), "ferry-east").await;
    let runs = await_condition(worker, "running", mirror);
    let after = tokio::time::timeout(Duration::from_secs(60), runs).await.expect("in time").expect("a watch");
    let uid = |job: Option<Job>| job.and_then(|job| job.metadata.uid).expect("a uid");
    assert_eq!(uid(before), uid(after), "what ran goes on, and is not started anew");
    let kept = jobs(data.path(), "ferry-manager").await.get("kept").await.expect("it is still there");
    assert_eq!(kept.status.and_then(|status| status.succeeded), Some(1));
}

/// A worker that was joined keeps the credentials that it gave for that, and is found on whatever port it is served.
#[tokio::test]
async fn a_worker_that_was_joined_is_found_on_other_ports() {
    let home = tempfile::tempdir().expect("a directory");
    let start = |port: u16| {
        let mut up = command(home.path());
        up.args(["up", "--worker", "east", "--runtime", "simulated", "--port-base", &port.to_string()]);
        Up::run(up)
    };
    let run = |arguments: &[&str]| said(command(home.path()).args(arguments), "").expect(0);
    let kubeconfig = async || -> Value {
        let config = Kubeconfig::read_from(home.path().join("ferry/kubeconfig")).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        let client = Client::try_from(config.expect("a config")).expect("a client");
        let secrets: Api<Secret> = Api::namespaced(client, "kueue-system");
        let data = secrets.get("east-kubeconfig").await.expect("a Secret").data.expect("data");
        serde_json::from_slice(&data["kubeconfig"].0).expect("a kubeconfig")
    };
    let fleet = start(0);
    assert!(run(&["join", "ferry-east", "--name", "east"]).ends_with("east is connected\n"));
    let before = kubeconfig().await;
    drop(fleet);

    let base = free_ports();
    let _again = start(base);
    let after = kubeconfig().await;
    assert_eq!(after["clusters"][0]["cluster"]["server"], format!("https://127.0.0.1:{}", base + 1));
    assert_eq!(after["users"], before["users"]);
    assert!(run(&["doctor", "-v"]).contains("the credentials for worker east suffice"));
    let shown = run(&["clusters"]);
    assert!(shown.lines().any(|line| line.starts_with("east   Connected")), "{shown}");
}

/// What keeps nothing leaves nothing: neither when it is told to stop, nor once the next one has started.
#[test]
fn an_ephemeral_fleet_leaves_nothing() {
    let (home, temporary) = (tempfile::tempdir().expect("one"), tempfile::tempdir().expect("another"));
    let left = || {
        let entries = std::fs::read_dir(temporary.path()).expect("entries");
        entries.map(|entry| entry.expect("an entry").file_name()).collect::<Vec<_>>()
    };
    // The demonstration is killed on its way.
    let mut demo = command(home.path());
    demo.arg("demo").env("TMPDIR", temporary.path()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut demo = demo.spawn().expect("ferry starts");
    let lines = BufReader::new(demo.stderr.take().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("are up after")), "ferry demo ended");
    drop(Up(demo));
    assert_eq!(left().len(), 1, "{:?}", left());

    let start = || {
        let mut up = command(home.path());
        up.args(["up", "--ephemeral", "--workers", "1"]).env("TMPDIR", temporary.path());
        Up::run(up)
    };
    let before = left();
    drop(start()); // killed as well
    assert_eq!(left().len(), 1, "what the one before left is gone: {:?}", left());
    assert_ne!(left(), before);
    let mut last = start();
    assert_eq!(left().len(), 1, "{:?}", left());
    kill_process(Pid::from_child(&last.0), Signal::TERM).expect("a signal");
    assert!(last.0.wait().expect("it ends").success());
    assert_eq!(left().len(), 0, "{:?}", left());

    // Nor does one that cannot start.
    let mut astray = command(home.path());
    astray.args(["up", "--ephemeral", "--workers", "0"]).env("TMPDIR", temporary.path());
    said(&mut astray, "").refused(2, "at least one worker", "--worker NAME");
    assert_eq!(left().len(), 0, "{:?}", left());
}

/// What keeps a fleet from starting is said with what to do about it, and nothing goes on running.
#[test]
fn a_fleet_that_cannot_start_says_why() {
    let home = tempfile::tempdir().expect("a directory");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").port().to_string();
    let file = home.path().join("file");
    std::fs::write(&file, "").expect("a file");
    let others = home.path().join("others");
    std::fs::write(&others, "{contexts: [{name: prod}]}").expect("a file");
    let (file, others) = (file.to_str().expect("a path"), others.to_str().expect("a path"));
    let inside = format!("{file}/kubeconfig");
    let ephemeral = ["--ephemeral", "--runtime", "simulated"];
    for (arguments, error, hint) in [
        (vec!["--workers", "0"], "at least one worker", "--worker NAME"),
        (vec!["--worker", "manager"], "already a cluster of this name", "--worker NAME"),
        (vec!["--port-base", "65534"], "there is no port 65536", "at most 65533"),
        (vec!["--port-base", &taken], "Address already in use", "another --port-base"),
        (vec!["--kubeconfig", &inside], "kubeconfig", "--kubeconfig FILE"),
        (vec!["--kubeconfig", others], "has contexts of other clusters: prod", "--merge"),
    ] {
        let said = said(command(home.path()).arg("up").args(ephemeral).args(arguments), "");
        said.refused(2, error, hint);
    }
    let cluster = said(command(home.path()).args(["cluster", "--ephemeral", "--kubeconfig", others]), "");
    cluster.refused(2, "has contexts of other clusters: prod", "--merge");
    let said = said(command(home.path()).args(["up", "--data", file]), "");
    said.refused(2, "Not a directory", "--data DIR");
}

#[test]
fn contexts_are_merged_only_on_request() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("config");
    std::fs::write(&file, "current-context: prod\ncontexts:\n- name: prod\n").expect("a file");
    let mut up = command(home.path());
    up.args(["up", "--ephemeral", "--runtime", "simulated", "--workers", "1", "--merge", "--kubeconfig"])
        .arg(&file);
    let mut child = up.stdout(Stdio::piped()).spawn().expect("ferry starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let ready = lines.map_while(Result::ok).find(|line| line.starts_with("fleet is ready"));
    let _up = Up(child);
    assert!(ready.is_some_and(|line| line.ends_with("--context ferry-manager")));
    let config = Kubeconfig::read_from(&file).expect("a kubeconfig");
    let contexts: Vec<&str> = config.contexts.iter().map(|context| context.name.as_str()).collect();
    assert_eq!(contexts, ["prod", "ferry-manager", "ferry-worker1"]);
    assert_eq!(config.current_context.as_deref(), Some("prod"));
    let path = file.to_str().expect("a path");
    let shown = said(
        command(home.path())
            .args(["get", "clusters", "-o", "name", "--context", "ferry-manager"])
            .args(["--kubeconfig", path]),
        "",
    );
    assert_eq!(shown.expect(0), "worker1\n");
}

/// Logs are found wherever the kubeconfig of a fleet is, and kept of as many pods as was asked for.
#[test]
fn logs_are_kept_away_from_the_kubeconfig() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("elsewhere/config");
    let mut up = command(home.path());
    up.args(["up", "--workers", "1", "--kept-logs", "1", "--data"]).arg(home.path().join("data"));
    up.arg("--kubeconfig").arg(&file).arg("--merge");
    let _up = Up::run(up);
    let run = |arguments: &[&str], input: &str| {
        said(command(home.path()).args(arguments).env("KUBECONFIG", &file), input)
    };
    for name in ["first", "second"] {
        let manifest = job_of(name, "100m", &format!("echo {name} speaks"), json!({}));
        run(&["submit", "-", "--queue", "fleet", "--wait"], &manifest).expect(0);
        assert_eq!(run(&["logs", name, "--no-prefix"], "").expect(0), format!("{name} speaks\n"));
    }
    run(&["logs", "first"], "").refused(3, "are gone, and their logs with them", "ferry logs -f");
}

/// A Job whose processes ended with the fleet goes on where it was when the fleet is back, and ends.
#[test]
fn processes_that_ran_are_started_again() {
    let home = tempfile::tempdir().expect("a directory");
    let start = || {
        let mut up = command(home.path());
        up.arg("up");
        Up::run(up)
    };
    let run = |arguments: &[&str], input: &str| said(command(home.path()).args(arguments), input);
    let script = "echo it begins; sleep 5; echo it ends";
    let fleet = start();
    run(&["submit", "-", "--queue", "fleet"], &job_of("resumed", "100m", script, json!({}))).expect(0);
    run(&["wait", "resumed", "--for", "running", "--timeout", "120s"], "").expect(0);
    let place = || {
        let shown: Value =
            serde_json::from_str(&run(&["get", "jobs", "resumed", "-o", "json"], "").expect(0))
                .expect("JSON");
        shown["items"][0]["cluster"].as_str().expect("a cluster").to_owned()
    };
    let before = place();
    drop(fleet);
    let _again = start();
    assert_eq!(run(&["wait", "resumed", "--timeout", "120s"], "").expect(0), "resumed is Complete\n");
    assert_eq!(place(), before, "on the worker that it was on");
    assert!(run(&["logs", "resumed", "--no-prefix"], "").expect(0).ends_with("it ends\n"));
}
