//! `ferry operator`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `ferry`, killed when it is dropped, and what it says.
struct Ferry {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Ferry {
    fn drop(&mut self) {
        self.child.kill().ok(); // it may have ended already
        self.child.wait().expect("ferry ends");
    }
}

impl Ferry {
    fn start(arguments: &[&str]) -> Ferry {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("ferry starts");
        let stdout = child.stdout.take().expect("piped");
        let (tell, lines) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Ferry { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("ferry says something")
    }

    /// Ends it by a signal, and returns its exit status.
    fn stop(mut self) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a signal");
        self.child.wait().expect("ferry ends").code()
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

async fn create(client: &Client, object: Value) {
    let text = |field: &str| object[field].as_str().expect("a name").to_owned();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = version.split_once('/').expect("a group");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &kind));
    let api: Api<DynamicObject> = match kind.as_str() {
        "Job" | "LocalQueue" => Api::namespaced_with(client.clone(), "default", &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("it is created");
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// Jobs in queues run on a cluster with an operator; a second operator takes over when the first one ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_take_turns() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig: PathBuf = dir.path().join("kubeconfig");
    let path = kubeconfig.to_str().expect("a path");
    let cluster = Ferry::start(&["cluster", "--ephemeral", "--kubeconfig", path, "--controllers", "none"]);
    cluster.line();
    let first = Ferry::start(&["operator", "--kubeconfig", path, "--listen", "127.0.0.1:0"]);
    let line = first.line();
    assert!(line.starts_with("operator is ready on https://127.0.0.1:"), "{line}");
    let address =
        line.split("http://").nth(1).and_then(|rest| rest.strip_suffix("/metrics")).expect("an address");
    let second = Ferry::start(&["operator", "--kubeconfig", path]);

    let client = client(&kubeconfig).await;
    let kueue = "kueue.x-k8s.io/v1beta2";
    create(&client, json!({ "apiVersion": kueue, "kind": "ResourceFlavor", "metadata": { "name": "f" } }))
        .await;
    let groups = json!([{ "coveredResources": ["cpu"], "flavors": [
        { "name": "f", "resources": [{ "name": "cpu", "nominalQuota": "2" }] },
    ] }]);
    let spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
    create(
        &client,
        json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec }),
    )
    .await;
    let spec = json!({ "clusterQueue": "q" });
    create(
        &client,
        json!({ "apiVersion": kueue, "kind": "LocalQueue", "metadata": { "name": "q" }, "spec": spec }),
    )
    .await;
    let job = |name: &str| {
        let labels = json!({ "kueue.x-k8s.io/queue-name": "q" });
        let containers = json!([{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }]);
        let template = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "labels": labels },
            "spec": { "suspend": true, "template": template },
        })
    };
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let starts = |name: &'static str| {
        let running = |job: Option<&Job>| {
            job.and_then(|job| job.spec.as_ref()).is_some_and(|spec| spec.suspend == Some(false))
        };
        tokio::time::timeout(PATIENCE, await_condition(jobs.clone(), name, running))
    };
    create(&client, job("one")).await;
    starts("one").await.expect("in time").expect("it runs");
    // The queue shows it later than it is counted.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "ClusterQueue"));
    let queues: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let used = |queue: Option<&DynamicObject>| {
        queue.is_some_and(|queue| queue.data["status"]["admittedWorkloads"] == 1)
    };
    let shown = await_condition(queues, "q", used);
    tokio::time::timeout(PATIENCE, shown).await.expect("in time").expect("it is shown");
    assert!(get(address, "/readyz").ends_with("ok"));
    let metrics = get(address, "/metrics");
    let counted =
        r#"kueue_admitted_workloads_total{cluster_queue="q",priority_class="",replica_role="leader"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");

    assert!(second.lines.try_recv().is_err(), "only one acts at a time");
    assert_eq!(first.stop(), Some(0));
    assert!(second.line().starts_with("operator is ready on"));
    create(&client, job("two")).await;
    starts("two").await.expect("in time").expect("it runs");
}

/// SM-44: who has lost the Lease writes nothing more, however long somebody keeps its webhooks from ending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sm_44_who_waits_for_its_webhooks_to_end_does_not_act() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig: PathBuf = dir.path().join("kubeconfig");
    let path = kubeconfig.to_str().expect("a path");
    let cluster = Ferry::start(&["cluster", "--ephemeral", "--kubeconfig", path, "--controllers", "none"]);
    cluster.line();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let mut operator =
        Ferry::start(&["operator", "--kubeconfig", path, "--webhook-listen", &free.to_string()]);
    operator.line();

    let client = client(&kubeconfig).await;
    let kueue = "kueue.x-k8s.io/v1beta2";
    let spec = json!({ "namespaceSelector": {} });
    create(
        &client,
        json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec }),
    )
    .await;
    let spec = json!({ "clusterQueue": "q", "stopPolicy": "Hold" });
    create(
        &client,
        json!({ "apiVersion": kueue, "kind": "LocalQueue", "metadata": { "name": "q" }, "spec": spec }),
    )
    .await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", "LocalQueue"));
    let queues: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let active = |queue: &DynamicObject| queue.data["status"]["conditions"][0]["status"].clone();
    let held = |queue: Option<&DynamicObject>| queue.is_some_and(|queue| active(queue) == "False");
    let shown = await_condition(queues.clone(), "q", held);
    tokio::time::timeout(PATIENCE, shown).await.expect("in time").expect("it is shown");

    let silent = TcpStream::connect(free).expect("it listens");
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kueue-system");
    let (params, taken) = (PatchParams::default(), json!({ "spec": { "holderIdentity": "another" } }));
    leases.patch(::operator::leader::LEASE, &params, &Patch::Merge(taken)).await.expect("it is taken");
    // It has seen that by then, and waits for the connection.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(operator.child.try_wait().expect("a process").is_none(), "it waits");
    let (params, goes_on) = (PatchParams::default(), json!({ "spec": { "stopPolicy": "None" } }));
    queues.patch("q", &params, &Patch::Merge(goes_on)).await.expect("it is written");
    assert_eq!(operator.child.wait().expect("ferry ends").code(), Some(2));
    assert_eq!(active(&queues.get("q").await.expect("the queue")), "False", "somebody else is to write this");
    drop(silent);
}

/// VI-3: an operator that waits for another one's Lease says who waits where, behind the API server of its cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vi_3_who_waits_is_said_by_who_does_not_lead() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig: PathBuf = dir.path().join("kubeconfig");
    let path = kubeconfig.to_str().expect("a path");
    let cluster = Ferry::start(&["cluster", "--ephemeral", "--kubeconfig", path, "--controllers", "none"]);
    cluster.line();
    let leads = Ferry::start(&["operator", "--kubeconfig", path]);
    leads.line();
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a port");
    let (at, service) = (free.to_string(), "who-waits");
    let _waits = Ferry::start(&[
        "operator",
        "--kubeconfig",
        path,
        "--visibility-listen",
        &at,
        "--visibility-service",
        service,
    ]);

    let client = client(&kubeconfig).await;
    let (group, home) = ("visibility.kueue.x-k8s.io", "kueue-system");
    let services: Api<k8s_openapi::api::core::v1::Service> = Api::namespaced(client.clone(), home);
    let spec = json!({ "type": "ExternalName", "externalName": "localhost" });
    let object = json!({ "metadata": { "name": service }, "spec": spec });
    let object = serde_json::from_value(object).expect("a Service");
    services.create(&PostParams::default(), &object).await.expect("it is created");
    let to = json!({ "namespace": home, "name": service, "port": free.port() });
    let spec = json!({
        "group": group, "version": "v1beta2", "groupPriorityMinimum": 100, "versionPriority": 100, "service": to,
    });
    create(
        &client,
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("v1beta2.{group}") }, "spec": spec,
        }),
    )
    .await;
    let kueue = "kueue.x-k8s.io/v1beta2";
    let spec = json!({ "namespaceSelector": {} });
    create(
        &client,
        json!({ "apiVersion": kueue, "kind": "ClusterQueue", "metadata": { "name": "q" }, "spec": spec }),
    )
    .await;
    let asked = async {
        loop {
            let request =
                http::Request::get(format!("/apis/{group}/v1beta2/clusterqueues/q/pendingworkloads"));
            let request = request.body(Vec::new()).expect("a request");
            // Until the server knows that it is there, and by which authority, it says so.
            if let Ok(answer) = client.request::<Value>(request).await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let answer = tokio::time::timeout(2 * PATIENCE, asked).await.expect("an answer");
    assert_eq!((&answer["kind"], &answer["items"]), (&json!("PendingWorkloadsSummary"), &json!([])));
    assert_eq!(leads.stop(), Some(0));
}
