//! Pods of an embedded cluster that pretend to run, and a witness of where they do.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use reconcile::{Cache, Key, Next, Queue, Tasks};
use serde_json::json;

/// How long a pod runs whose annotation `seconds` does not say otherwise.
const RUNS: Duration = Duration::from_millis(200);

/// Lets the pods of a cluster run and end.
pub(crate) fn play(client: &Client, tasks: &mut Tasks) {
    let queue: Queue<Key> = Queue::new();
    let changed = queue.clone();
    let pods = Cache::new(Api::<Pod>::all(client.clone()))
        .on_change(move |change| changed.add(change.key.clone()))
        .start(tasks);
    let client = client.clone();
    tasks.spawn("pods", async move {
        queue.run(32, |key| step(&client, &pods, key)).await;
    });
}

async fn step(client: &Client, pods: &Cache<Pod>, key: Key) -> Result<Next, kube::Error> {
    let Some(pod) = pods.get(&key) else { return Ok(Next::Done) };
    let api: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    if pod.metadata.deletion_timestamp.is_some() {
        let gone = api
            .delete(&key.name, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() })
            .await;
        return match gone {
            Err(kube::Error::Api(status)) if status.code != 404 => Err(kube::Error::Api(status)),
            _ => Ok(Next::Done),
        };
    }
    let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
    if gates.is_some_and(|gates| !gates.is_empty()) {
        return Ok(Next::Done);
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
    let annotation = |name: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
    let status = match phase {
        "Pending" => json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
        "Running" if annotation("seconds").as_deref() != Some("forever") => {
            tokio::time::sleep(RUNS).await;
            let fails = annotation("fails").is_some();
            json!({"phase": if fails { "Failed" } else { "Succeeded" }, "conditions": [{"type": "Ready", "status": "False"}]})
        }
        _ => return Ok(Next::Done),
    };
    let patch = Patch::Merge(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}));
    match api.patch_status(&key.name, &PatchParams::default(), &patch).await {
        Ok(answer) => pods.put(answer),
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
        Err(error) => return Err(error),
    }
    Ok(Next::Done)
}

/// Sees on which clusters the pods of each Job are, all the time.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    where_pods_are: BTreeMap<(String, String), BTreeMap<String, BTreeSet<String>>>,
    twice: Vec<String>,
}

impl Witness {
    /// Watches a cluster's pods.
    pub(crate) fn watch(&self, cluster: &str, client: &Client, tasks: &mut Tasks) {
        let (cluster, seen) = (cluster.to_owned(), Arc::clone(&self.seen));
        Cache::new(Api::<Pod>::all(client.clone()))
            .on_change(move |change| {
                let Some(pod) = change.latest() else { return };
                let labels = pod.metadata.labels.as_ref();
                let Some(job) = labels.and_then(|labels| labels.get("batch.kubernetes.io/job-name")) else {
                    return;
                };
                let phase =
                    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
                let runs = change.new.is_some() && ["Pending", "Running"].contains(&phase);
                let mut seen = seen.lock().expect("nobody panics here");
                let here =
                    seen.where_pods_are.entry((change.key.namespace.clone(), job.clone())).or_default();
                let pods = here.entry(cluster.clone()).or_default();
                if runs {
                    pods.insert(change.key.name.clone());
                } else {
                    pods.remove(&change.key.name);
                }
                let clusters: Vec<&String> =
                    here.iter().filter(|(_, pods)| !pods.is_empty()).map(|(name, _)| name).collect();
                if clusters.len() > 1 {
                    let what = format!("{}/{job} on {clusters:?}", change.key.namespace);
                    seen.twice.push(what);
                }
            })
            .start(tasks);
    }

    /// Forgets what it saw of a Job.
    pub(crate) fn forgive(&self, job: &str) {
        self.seen.lock().expect("nobody panics here").twice.retain(|what| !what.starts_with(job));
    }

    /// Jobs that had pods on more than one cluster at once.
    pub(crate) fn twice(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panics here").twice.clone()
    }
}
