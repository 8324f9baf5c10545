//! `ferry cluster`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// A running `ferry cluster`, killed when it is dropped.
struct Ferry(Child);

impl Drop for Ferry {
    fn drop(&mut self) {
        self.0.kill().ok(); // it may have ended already
        self.0.wait().expect("ferry ends");
    }
}

impl Ferry {
    /// Starts it and waits for the line that says it can be used.
    fn start(arguments: &[&str]) -> (Ferry, String) {
        Ferry::start_in(arguments, &std::env::temp_dir())
    }

    /// The same with another directory for temporary files.
    fn start_in(arguments: &[&str], temporary: &Path) -> (Ferry, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .arg("cluster")
            .args(arguments)
            .env("TMPDIR", temporary)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ferry starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("ferry says something");
        (Ferry(child), line)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a signal");
    }

    fn stderr(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        (self.0.wait().expect("ferry ends").code(), text)
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn maps(kubeconfig: &Path) -> Api<ConfigMap> {
    Api::default_namespaced(client(kubeconfig).await)
}

/// Waits until `look` finds something, and returns it.
async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn job(managed_by: Option<&str>, container: &Value) -> Job {
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let spec = json!({"managedBy": managed_by, "template": template});
    serde_json::from_value(json!({"metadata": {"name": "job"}, "spec": spec})).expect("a Job")
}

fn map() -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn keeps_what_it_acknowledged_through_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("a plain path");
    let (ferry, line) = Ferry::start(&["--name", "lab", "--data", data]);
    assert!(line.starts_with("cluster lab is ready at https://127.0.0.1:"), "{line}");
    let kubeconfig = dir.path().join("kubeconfig");
    let made = maps(&kubeconfig).await.create(&PostParams::default(), &map()).await.expect("created");

    let second = Ferry::start(&["--data", data]).0;
    let (code, stderr) = second.stderr();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("is in use by"), "{stderr}");

    ferry.signal(Signal::KILL);
    drop(ferry);
    let (ferry, _) = Ferry::start(&["--data", data]);
    assert_eq!(maps(&kubeconfig).await.get("a").await.expect("still there"), made);
    ferry.signal(Signal::TERM);
    assert_eq!(ferry.stderr().0, Some(0), "it ends cleanly");
}

/// What pods are told is below the directories of nodes, and the keys of administrators are in the data.
#[test]
fn nobody_else_enters_what_a_cluster_keeps() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    // As whoever has made them before, or an earlier version.
    let nodes = data.join("nodes");
    std::fs::create_dir_all(nodes.join("ferry-node-0")).expect("directories");
    for open in [&data, &nodes, &nodes.join("ferry-node-0")] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    }
    let (_ferry, line) = Ferry::start(&["--data", data.to_str().expect("a plain path")]);
    assert!(line.starts_with("cluster ferry is ready"), "{line}");
    for (path, expected) in [
        ("nodes", 0o700),
        ("nodes/ferry-node-0", 0o700),
        ("store", 0o700),
        ("credentials.json", 0o600),
        ("kubeconfig", 0o600),
    ] {
        let mode = std::fs::metadata(data.join(path)).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, expected, "{path}");
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).expect("permissions");
    let second = Ferry::start(&["--data", data.to_str().expect("a plain path")]).0;
    let (code, stderr) = second.stderr();
    assert!(code == Some(2) && stderr.contains("everybody may write there"), "{stderr}");
}

#[tokio::test]
async fn an_ephemeral_cluster_keeps_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("config");
    let path = kubeconfig.to_str().expect("a plain path");
    let (ferry, _) = Ferry::start(&["--ephemeral", "--kubeconfig", path]);
    maps(&kubeconfig).await.create(&PostParams::default(), &map()).await.expect("created");
    ferry.signal(Signal::INT);
    assert_eq!(ferry.stderr().0, Some(0));
    let (_ferry, _) = Ferry::start(&["--ephemeral", "--kubeconfig", path]);
    assert!(maps(&kubeconfig).await.get("a").await.is_err());
}

#[tokio::test]
async fn what_its_controllers_count_is_told() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("config");
    let path = kubeconfig.to_str().expect("a plain path");
    // A list of names is what kube-controller-manager takes.
    let controllers = "job-controller,serviceaccount-controller";
    let (_ferry, _) = Ferry::start(&["--ephemeral", "--kubeconfig", path, "--controllers", controllers]);
    let client = client(&kubeconfig).await;
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let theirs = job(Some("example.com/x"), &json!({"name": "main", "image": "x"}));
    jobs.create(&PostParams::default(), &theirs).await.expect("created");
    let wanted = [
        "job_controller_jobs_by_external_controller_total{controller_name=\"example.com/x\"} 1",
        "job_controller_jobs_without_status_from_external_controller{controller_name=\"example.com/x\"} 0",
    ];
    eventually("the Job is counted", async || {
        let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
        let told = client.request_text(request).await.expect("metrics");
        wanted.iter().all(|line| told.lines().any(|told| told == *line)).then_some(())
    })
    .await;
}

/// A cluster behind a tunnel is known by the name of that, and by no other.
#[tokio::test]
async fn a_cluster_is_known_by_the_names_that_it_is_given() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("config");
    let path = kubeconfig.to_str().expect("a plain path");
    let (_ferry, _) =
        Ferry::start(&["--ephemeral", "--nodes", "0", "--tls-san", "east.example.net", "--kubeconfig", path]);
    for (name, is_known) in [("east.example.net", true), ("west.example.net", false)] {
        let config = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(config, &options).await.expect("a config");
        config.tls_server_name = Some(name.to_owned());
        let asked = Client::try_from(config).expect("a client").apiserver_version().await;
        assert_eq!(asked.is_ok(), is_known, "{name}: {asked:?}");
    }
}

/// The nodes that were asked for, pods of the images that were named, and all controllers but one.
#[tokio::test]
async fn a_cluster_is_made_of_what_was_asked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("config");
    let path = kubeconfig.to_str().expect("a plain path");
    let common = ["--ephemeral", "--kubeconfig", path, "--nodes", "3", "--controllers", "*,-job"];
    let process = ["--runtime", "process", "--image", "tools/*=/bin/sh"];
    for runtime in [&process[..], &["--runtime", "simulated"]] {
        let (_ferry, _) = Ferry::start(&[&common[..], runtime].concat());
        let client = client(&kubeconfig).await;
        let jobs: Api<Job> = Api::default_namespaced(client.clone());
        let container = json!({"name": "main", "image": "tools/sh:1", "args": ["-c", "exit 0"]});
        jobs.create(&PostParams::default(), &job(None, &container)).await.expect("created");
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let pod = json!({
            "metadata": {"name": "alone"}, "spec": {"restartPolicy": "Never", "containers": [container]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        pods.create(&PostParams::default(), &pod).await.expect("created");
        let node = eventually("the pod succeeds", async || {
            let pod = pods.get("alone").await.expect("a pod");
            let succeeded = pod.status.as_ref()?.phase.as_deref() == Some("Succeeded");
            pod.spec?.node_name.filter(|_| succeeded)
        })
        .await;
        let nodes: Api<Node> = Api::all(client.clone());
        let nodes = nodes.list(&ListParams::default()).await.expect("nodes").items;
        let names: Vec<&str> = nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
        assert!(names.len() == 3 && names.contains(&node.as_str()), "{node} of {names:?}");
        let all = pods.list(&ListParams::default()).await.expect("pods").items;
        assert_eq!(all.len(), 1, "nobody makes pods for Jobs");
    }
}

/// Who is allowed to ask for others is believed (6.12).
#[tokio::test]
async fn a_front_proxy_asks_for_others() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name).to_str().expect("a plain path").to_owned();
    let (kubeconfig, authority) = (file("config"), file("proxies.crt"));
    let proxies = apiserver::credentials::Credentials::ephemeral().expect("an authority");
    std::fs::write(&authority, proxies.authority_pem()).expect("written");
    let believed = ["--requestheader-client-ca-file", &authority, "--requestheader-allowed-names", "x,proxy"];
    let (_ferry, _) = Ferry::start(
        &[&["--ephemeral", "--nodes", "0", "--kubeconfig", &kubeconfig], &believed[..]].concat(),
    );
    let ours = std::fs::read(&kubeconfig).expect("a kubeconfig");
    let mut ours: Value = serde_json::from_slice(&ours).expect("JSON");
    let theirs = proxies.kubeconfig_for("c", "", "proxy", "g").expect("a certificate");
    ours["users"][0]["user"] = theirs["users"][0]["user"].clone();
    std::fs::write(&kubeconfig, ours.to_string()).expect("written");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("Content-Type", "application/json")
        .header("X-Remote-User", "jane")
        .body(review.to_string().into_bytes())
        .expect("a request");
    let client = client(Path::new(&kubeconfig)).await;
    let told = client.request_text(request).await.expect("a review");
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["status"]["userInfo"]["username"], "jane", "{told}");
}

/// A cluster that keeps nothing leaves nothing: neither when it is told to stop, nor once the next one has started.
#[tokio::test]
async fn an_ephemeral_cluster_leaves_nothing() {
    let temporary = tempfile::tempdir().expect("a directory");
    let images = temporary.path().join("images");
    std::fs::write(&images, "shell=/bin/sh\n").expect("a table of images");
    let arguments = ["--ephemeral", "--image-file", images.to_str().expect("a plain path")];
    let left = || {
        let entries = std::fs::read_dir(temporary.path()).expect("entries");
        entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
    };
    let mut uids = Vec::new();
    for signal in [Signal::KILL, Signal::TERM] {
        let (ferry, line) = Ferry::start_in(&arguments, temporary.path());
        let (_, kubeconfig) = line.trim_end().split_once("KUBECONFIG=").expect("it says how it is reached");
        let client = client(Path::new(kubeconfig)).await;
        let container = json!({
            "name": "main", "image": "shell", "args": ["-c", "echo x > /fast/x; sleep 3600"],
            "volumeMounts": [{"name": "v", "mountPath": "/fast"}],
        });
        let mut wanted = job(None, &container);
        let volumes = json!([{"name": "v", "emptyDir": {"medium": "Memory"}}]);
        wanted.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a spec").volumes =
            serde_json::from_value(volumes).expect("volumes");
        let jobs: Api<Job> = Api::default_namespaced(client.clone());
        jobs.create(&PostParams::default(), &wanted).await.expect("created");
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        let uid = eventually("its pod runs", async || {
            let pod = pods.list(&ListParams::default()).await.expect("pods").items.pop()?;
            let runs = pod.status.as_ref()?.phase.as_deref() == Some("Running");
            pod.metadata.uid.filter(|_| runs)
        })
        .await;
        uids.push(uid);
        assert_eq!(left(), 1, "what the one before left is gone");
        ferry.signal(signal);
        ferry.stderr();
    }
    assert_eq!(left(), 0);
    for uid in uids {
        assert!(!Path::new("/dev/shm").join(format!("ferry-{uid}")).exists(), "{uid}");
    }
}

#[test]
fn data_or_ephemeral_must_be_said() {
    let (code, stderr) = Ferry::start(&[]).0.stderr();
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--data <DIR>"), "{stderr}");
}
