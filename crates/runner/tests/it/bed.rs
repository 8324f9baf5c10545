//! What a test stands on: a cluster, a namespace of its own in it, and names that no other test uses.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::{
    Api, Client,
    api::{
        ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch,
        PatchParams, PostParams,
    },
    runtime::wait::{Condition, await_condition},
};
use reconcile::{Clock, Key, Tasks};
use runner::{LogOptions, Node, Process, Runtime, Settings, Streams};
use serde_json::{Value, json};
use store::Store;
use testkit::{Borrowed, ControlPlane, Shared};
use tokio::io::AsyncReadExt as _;
use tracing_subscriber::EnvFilter;

/// No wait in these tests is longer: what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

static REAL: Shared = Shared::new(ControlPlane::builder);

/// Shows what `RUST_LOG` asks for.
fn log() {
    let filter = EnvFilter::from_default_env();
    // A second test finds the first one's in place.
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
}

/// A namespace of a cluster.
pub(crate) struct Bed {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    /// `None` if the cluster is our own, in this process.
    real: Option<Borrowed>,
}

/// Names are not to be used twice even by tests in different clusters: processes of this machine are looked for by them.
static NUMBER: AtomicU32 = AtomicU32::new(0);

impl Bed {
    /// A namespace of a cluster: of our own, or of a real one if `FERRY_TEST_SERVER` is `real`; `None` where that cannot
    /// be had.
    pub(crate) async fn new(prefix: &str) -> Option<Bed> {
        if std::env::var("FERRY_TEST_SERVER").is_ok_and(|server| server == "real") {
            return Bed::real(prefix).await;
        }
        log();
        let store = Store::open(store::Options::ephemeral()).expect("a store");
        let settings = rules::job::Settings { allow_privileged: true, ..rules::job::Settings::default() };
        let cluster = apiserver::Cluster::open(store, settings).await.expect("a cluster");
        let client = Client::new(cluster, "default");
        let namespace = format!("{prefix}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let bed = Bed { client, namespace, real: None };
        let metadata = ObjectMeta { name: Some(bed.namespace.clone()), ..ObjectMeta::default() };
        let namespaces: Api<Namespace> = Api::all(bed.client.clone());
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.expect("a namespace");
        // Pods need one, and no controller makes it here.
        bed.make("v1", "ServiceAccount", json!({ "metadata": { "name": "default" } })).await;
        Some(bed)
    }

    /// A namespace of a real cluster.
    pub(crate) async fn real(prefix: &str) -> Option<Bed> {
        log();
        let real = REAL.for_test().await?;
        let namespace = real.namespace(prefix).await.expect("a namespace");
        Some(Bed { client: real.client(), namespace, real: Some(real) })
    }

    /// The name of a node that belongs to this test alone.
    pub(crate) fn node(&self, name: &str) -> String {
        format!("{name}-{}", self.namespace)
    }

    /// Starts simulated nodes.
    pub(crate) async fn simulated(&self, names: &[&str]) -> Tasks {
        let mut tasks = Tasks::new();
        let settings = names.iter().map(|name| Settings::simulated(&self.node(name))).collect();
        runner::start(self.client.clone(), settings, Clock::system(), &mut tasks).await.expect("nodes");
        tasks
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a pod from its JSON.
    pub(crate) async fn create(&self, pod: Value) -> Pod {
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("a new pod")
    }

    /// Asks for other resources for the container of a pod that runs.
    pub(crate) async fn resize(&self, name: &str, resources: Value) {
        let patch = json!({ "spec": { "containers": [{ "name": "main", "resources": resources }] } });
        let patch = Patch::Strategic(patch);
        let asked = self.pods().patch_subresource("resize", name, &PatchParams::default(), &patch).await;
        asked.expect("a pod that can be resized");
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.expect("deletion");
    }

    /// Waits until `condition` holds of the pod, and returns it as it then is; `None` if it is gone.
    pub(crate) async fn until(&self, name: &str, condition: impl Condition<Pod>) -> Option<Pod> {
        let pods = self.pods();
        let wait = tokio::time::timeout(PATIENCE, await_condition(pods.clone(), name, condition));
        if let Ok(pod) = wait.await {
            return pod.expect("the watch goes on");
        }
        let pod = pods.get_opt(name).await.expect("an answer");
        panic!("{name} did not come that far: {:#?}", pod.and_then(|pod| pod.status));
    }

    /// Waits until the pod has this phase.
    pub(crate) async fn until_phase(&self, name: &str, expected: &str) -> Pod {
        let has = |pod: Option<&Pod>| pod.is_some_and(|pod| phase(pod) == expected);
        self.until(name, has).await.expect("a pod with a phase")
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(name, |pod: Option<&Pod>| pod.is_none()).await;
    }
}

/// The phase that a pod's status gives.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The status of one container, as JSON; null if there is none.
pub(crate) fn container(pod: &Pod, name: &str) -> Value {
    let status = pod.status.as_ref();
    let mains = status.and_then(|status| status.container_statuses.as_ref());
    let inits = status.and_then(|status| status.init_container_statuses.as_ref());
    let all = mains.into_iter().flatten().chain(inits.into_iter().flatten());
    let found = all.into_iter().find(|status| status.name == name);
    serde_json::to_value(found).expect("JSON")
}

/// The conditions of a pod, each as `Type=Status Reason`, in order.
pub(crate) fn conditions(pod: &Pod) -> Vec<String> {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let mut lines: Vec<String> = conditions
        .into_iter()
        .flatten()
        .map(|one| format!("{}={} {}", one.type_, one.status, one.reason.as_deref().unwrap_or_default()))
        .collect();
    lines.sort();
    lines
}

/// A node of a test that runs processes.
pub(crate) struct Local {
    pub(crate) node: Node,
    pub(crate) directory: tempfile::TempDir,
    tasks: Tasks,
}

/// The settings of a node that runs processes, by this crate's own first process of containers.
pub(crate) fn process_settings(name: &str, directory: &Path, change: impl FnOnce(&mut Process)) -> Settings {
    let mut settings = Settings::process(name, directory.to_owned());
    if let Runtime::Process(process) = &mut settings.runtime {
        process.init = vec![env!("CARGO_BIN_EXE_pod-init").into(), runner::init::COMMAND.into()];
        change(process);
    }
    settings
}

impl Local {
    /// Stops the node, and returns its directory.
    pub(crate) async fn stop(mut self) -> tempfile::TempDir {
        self.tasks.stop().await;
        self.directory
    }
}

impl Bed {
    /// A way to the cluster for another process.
    pub(crate) fn kubeconfig(&self) -> std::path::PathBuf {
        self.real.as_ref().expect("only a real cluster has one").kubeconfig()
    }

    /// Starts a node called `local` that runs processes.
    pub(crate) async fn local(&self, change: impl FnOnce(&mut Process)) -> Local {
        let directory = tempfile::Builder::new().prefix("ferry-node-").tempdir().expect("a directory");
        self.local_in(directory, self.client.clone(), change).await
    }

    /// The same in a directory where one may have been before, by another way to the cluster.
    pub(crate) async fn local_in(
        &self,
        directory: tempfile::TempDir,
        client: Client,
        change: impl FnOnce(&mut Process),
    ) -> Local {
        let mut tasks = Tasks::new();
        let settings = process_settings(&self.node("local"), directory.path(), change);
        let node = Node::start(client, settings, Clock::system(), &mut tasks).await.expect("a node");
        Local { node, directory, tasks }
    }

    /// A pod of one container that runs a script, on the node called `local`; `more` is merged into its spec, and
    /// `container` into its container.
    pub(crate) fn script(&self, name: &str, script: &str, container: Value, more: Value) -> Value {
        let mut main = json!({ "name": "main", "image": "any", "command": ["sh", "-c", script] });
        merge(&mut main, container);
        let mut spec = json!({
            "nodeName": self.node("local"), "restartPolicy": "Never", "containers": [main],
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 5,
        });
        merge(&mut spec, more);
        json!({ "metadata": { "name": name }, "spec": spec })
    }

    /// The key of a pod of this test.
    pub(crate) fn key(&self, name: &str) -> Key {
        Key::new(&self.namespace, name)
    }

    /// Runs a script to its end; returns the pod and what its container wrote.
    pub(crate) async fn output(&self, local: &Local, pod: Value) -> (Pod, String) {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        self.create(pod).await;
        let ended = |pod: Option<&Pod>| pod.is_some_and(|pod| matches!(phase(pod), "Succeeded" | "Failed"));
        let pod = self.until(&name, ended).await.expect("a pod that has ended");
        let text = self.log(local, &name, "main", LogOptions::default()).await;
        (pod, text)
    }

    pub(crate) async fn log(
        &self,
        local: &Local,
        name: &str,
        container: &str,
        options: LogOptions,
    ) -> String {
        let stream = local.node.logs(&self.key(name), container, options).expect("a log");
        let pieces: Vec<bytes::Bytes> = stream.try_collect().await.expect("a log");
        String::from_utf8(pieces.concat()).expect("text")
    }

    /// Runs a command in a container; returns its exit code and what it wrote.
    pub(crate) async fn exec(&self, local: &Local, name: &str, script: &str) -> (i32, String) {
        let command: Vec<String> = ["sh", "-c", script].map(str::to_owned).into();
        let (output, mut written) = tokio::io::duplex(1 << 20);
        let streams = Streams { output: Some(Box::new(output)), ..Streams::default() };
        let key = self.key(name);
        let running = local.node.exec(&key, "main", &command, streams);
        let mut text = String::new();
        let (code, read) = tokio::join!(running, written.read_to_string(&mut text));
        read.expect("text");
        (code.expect("a command that ran"), text)
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Waits until this is so.
pub(crate) async fn eventually(is_so: impl Fn() -> bool) {
    eventually_is(is_so, true).await;
}

/// Waits until this is what is expected.
pub(crate) async fn eventually_is<T: PartialEq + std::fmt::Debug>(what: impl Fn() -> T, expected: T) {
    let began = std::time::Instant::now();
    loop {
        let now = what();
        if now == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "it is {now:?} and never came to {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until `look` finds something, and returns it.
pub(crate) async fn found<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "it never came");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Bed {
    fn objects(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Creates an object in the test's namespace, unless it is there.
    pub(crate) async fn make(&self, version: &str, kind: &str, mut object: Value) {
        merge(&mut object, json!({ "apiVersion": version, "kind": kind }));
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        match self.objects(version, kind).create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            made => drop(made.expect("a new object")),
        }
    }

    pub(crate) async fn patch(&self, version: &str, kind: &str, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.objects(version, kind).patch(name, &PatchParams::default(), &patch).await.expect("a change");
    }

    /// The message of an event about a pod that gives this reason, if there is one by now.
    pub(crate) async fn told(&self, name: &str, reason: &str) -> Option<String> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let about = ListParams::default().fields(&format!("involvedObject.name={name},reason={reason}"));
        events.list(&about).await.expect("events").items.pop()?.message
    }

    /// Takes the finalizers off a pod.
    pub(crate) async fn release(&self, name: &str) {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        self.pods().patch(name, &PatchParams::default(), &patch).await.expect("a change");
    }
}
