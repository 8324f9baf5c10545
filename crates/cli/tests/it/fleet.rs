//! `ferry demo` and `ferry up`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, Config};
use serde_json::json;

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
        let mut child = up(data).stdout(Stdio::piped()).spawn().expect("ferry starts");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.starts_with("fleet is ready"));
        assert!(ready, "ferry up ended");
        Up(child)
    }
}

async fn jobs(data: &Path, context: &str) -> Api<Job> {
    let config = Kubeconfig::read_from(data.join("kubeconfig")).expect("a kubeconfig");
    let options = KubeConfigOptions { context: Some(context.to_owned()), ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(config, &options).await.expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

#[tokio::test]
async fn a_fleet_is_kept_through_kill_9() {
    let data = tempfile::tempdir().expect("a directory");
    let fleet = Up::start(data.path());
    let manager = jobs(data.path(), "ferry-manager").await;
    let container = json!({ "name": "c", "image": "i", "command": ["true"] });
    let job = json!({
        "metadata": { "name": "kept", "labels": { "kueue.x-k8s.io/queue-name": "fleet" } },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } },
    });
    manager
        .create(&PostParams::default(), &serde_json::from_value(job).expect("a Job"))
        .await
        .expect("created");
    let done = await_condition(manager.clone(), "kept", conditions::is_job_completed());
    tokio::time::timeout(Duration::from_secs(60), done).await.expect("in time").expect("a watch");
    assert!(
        jobs(data.path(), "ferry-east").await.get_opt("missing").await.expect("the worker answers").is_none()
    );

    let second = up(data.path()).output().expect("ferry runs");
    assert_eq!(second.status.code(), Some(2));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is in use"), "{said}");

    drop(fleet);
    let _again = Up::start(data.path());
    let kept = jobs(data.path(), "ferry-manager").await.get("kept").await.expect("it is still there");
    assert_eq!(kept.status.and_then(|status| status.succeeded), Some(1));
}
