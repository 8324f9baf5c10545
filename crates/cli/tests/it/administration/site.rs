//! Real clusters in one kubeconfig, with an operator on each, and `ferry` as an administrator uses it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};
use testkit::{Behaviour, ControlPlane, Simulator};

use super::kubelet::Kubelet;

/// How long anything may take, on a machine on which everything is being built at once.
const PATIENCE: Duration = Duration::from_secs(150);

/// Some clusters. Everything ends when this is dropped.
pub(crate) struct Sites {
    _kubelets: Vec<Kubelet>,
    operators: Vec<Child>,
    _pods: Vec<Simulator>,
    planes: Vec<ControlPlane>,
    names: Vec<&'static str>,
    directory: tempfile::TempDir,
}

impl Drop for Sites {
    fn drop(&mut self) {
        for operator in &mut self.operators {
            operator.kill().ok(); // it may have ended already
            operator.wait().ok();
        }
    }
}

impl Sites {
    /// Starts them, or none if there is no Kubernetes to be had here.
    pub(crate) async fn start(names: &[&'static str]) -> anyhow::Result<Option<Sites>> {
        let controllers = [
            "job-controller",
            "garbage-collector-controller",
            "serviceaccount-controller",
            "serviceaccount-token-controller",
        ];
        let (mut planes, mut pods, mut kubelets) = (Vec::new(), Vec::new(), Vec::new());
        for _ in names {
            let builder = ControlPlane::builder().controller_manager(controllers);
            let Some(plane) = builder.for_test().await else { return Ok(None) };
            let decide = |pod: &k8s_openapi::api::core::v1::Pod| {
                let annotations = pod.metadata.annotations.as_ref();
                let stays = annotations.is_some_and(|annotations| annotations.contains_key("stays"));
                if stays { Behaviour::runs() } else { Behaviour::exits(0) }
            };
            pods.push(plane.simulator().decide(decide).start().await?);
            kubelets.push(Kubelet::start(&plane.client()).await?);
            planes.push(plane);
        }
        let directory = tempfile::tempdir()?;
        let mut all = json!({ "apiVersion": "v1", "kind": "Config", "current-context": "manager" });
        for (name, plane) in names.iter().zip(&planes) {
            let one: Value = serde_json::from_str(&std::fs::read_to_string(plane.kubeconfig())?)?;
            push(&mut all, "clusters", json!({ "name": name, "cluster": one["clusters"][0]["cluster"] }));
            push(&mut all, "users", json!({ "name": name, "user": one["users"][0]["user"] }));
            push(&mut all, "contexts", json!({ "name": name, "context": { "cluster": name, "user": name } }));
        }
        std::fs::write(directory.path().join("kubeconfig"), all.to_string())?;
        Ok(Some(Sites {
            _kubelets: kubelets,
            operators: Vec::new(),
            _pods: pods,
            planes,
            names: names.to_vec(),
            directory,
        }))
    }

    /// A context for each.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    /// Starts an operator on each cluster.
    pub(crate) fn operate(&mut self) -> anyhow::Result<()> {
        for cluster in self.names.clone() {
            let mut command = ferry(&self.kubeconfig());
            command.args(["operator", "--context", cluster, "--webhook-listen", "127.0.0.1:0"]);
            self.operators.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
        }
        Ok(())
    }

    pub(crate) fn client(&self, cluster: &str) -> Client {
        self.plane(cluster).client()
    }

    pub(crate) fn plane(&self, cluster: &str) -> &ControlPlane {
        let index = self.names.iter().position(|name| *name == cluster).expect("a known cluster");
        &self.planes[index]
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        Ok(ferry(&self.kubeconfig()).args(arguments).output()?)
    }

    /// What a command says that has to succeed.
    pub(crate) fn said(&self, arguments: &[&str]) -> anyhow::Result<String> {
        succeeded(arguments, &self.run(arguments)?)
    }

    /// Lays out queues of a team on the manager, whose Jobs run on workers.
    pub(crate) async fn queues(&self) -> anyhow::Result<()> {
        let manager = self.client("manager");
        apply(&manager, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } }))
            .await?;
        apply(&manager, kueue("ResourceFlavor", "default", json!({}))).await?;
        let quota = json!([{ "name": "cpu", "nominalQuota": "4" }]);
        let groups =
            json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": quota }] }]);
        let checks = json!({ "admissionChecks": [{ "name": "ferry" }] });
        let spec =
            json!({ "namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": checks });
        apply(&manager, kueue("ClusterQueue", "team", spec)).await?;
        let mut queue = kueue("LocalQueue", "team", json!({ "clusterQueue": "team" }));
        queue["metadata"]["namespace"] = json!("team");
        apply(&manager, queue).await
    }

    pub(crate) fn jobs(&self, cluster: &str) -> Api<Job> {
        Api::namespaced(self.client(cluster), "team")
    }
}

fn push(all: &mut Value, list: &str, item: Value) {
    if all[list].is_null() {
        all[list] = json!([]);
    }
    all[list].as_array_mut().expect("a list").push(item);
}

/// `ferry`, for the clusters of a kubeconfig.
pub(crate) fn ferry(kubeconfig: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
    command.env("KUBECONFIG", kubeconfig);
    command
}

pub(crate) fn succeeded(arguments: &[&str], output: &Output) -> anyhow::Result<String> {
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        bail!("{arguments:?} ended with {}:\n{stdout}\n{stderr}", output.status);
    }
    Ok(stdout.into_owned())
}

pub(crate) fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

pub(crate) fn api(client: &Client, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
    let version = object["apiVersion"].as_str().context("an apiVersion")?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
    let resource = ApiResource::from_gvk(&kind);
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

pub(crate) async fn apply(client: &Client, object: Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let params = PatchParams::apply("test").force();
    // Webhooks come and go while operators start.
    eventually(&format!("{object} is applied"), async || {
        api(client, &object)?.patch(name, &params, &Patch::Apply(&object)).await?;
        Ok(Some(()))
    })
    .await
}

/// A Job of the team; one that stays runs until it is deleted.
pub(crate) fn job(name: &str, stays: bool) -> Value {
    let annotations =
        if stays { json!({ "stays": "", "sim.ferry.dev/duration-ms": "forever" }) } else { json!({}) };
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container],
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": "team", "labels": { "kueue.x-k8s.io/queue-name": "team" } },
        "spec": { "backoffLimit": 0, "template": { "metadata": { "annotations": annotations }, "spec": spec } },
    })
}

/// Waits until something is there.
pub(crate) async fn eventually<T>(
    what: &str,
    look: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let (begun, mut last) = (Instant::now(), None);
    while begun.elapsed() < PATIENCE {
        match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("waited in vain: {what} ({last:?})")
}
