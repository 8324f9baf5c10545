//! A namespace with one Job, everything that its status has been, and its pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::Client;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use crate::scenarios::Scenario;

/// The name of every Job, so that everything made from it is called alike.
pub(crate) const JOB: &str = "job";

/// Pods may change without the Job's status: then this is how long that goes unnoticed.
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct World {
    pub(crate) jobs: Api<Job>,
    pub(crate) pods: Api<Pod>,
    pub(crate) quotas: Api<ResourceQuota>,
    events: Api<Event>,
    namespace: String,
    watch: Arc<Watch>,
    watching: tokio::task::JoinHandle<()>,
}

/// Everything that the Job's status has been, as the API server tells it: every version of it.
#[derive(Default)]
struct Watch {
    statuses: Mutex<Vec<Value>>,
    failure: Mutex<Option<String>>,
    changed: Notify,
}

/// What two worlds have in common when they are alike.
#[derive(Debug, PartialEq)]
pub(crate) struct Snapshot {
    status: Value,
    pods: BTreeMap<String, usize>,
}

impl World {
    /// Creates the scenario's Job, managed by somebody or by the cluster's own controller.
    pub(crate) async fn create(
        client: Client,
        namespace: String,
        scenario: &Scenario,
        manager: Option<&str>,
    ) -> anyhow::Result<World> {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        for pod in &scenario.pods_before {
            pods.create(&PostParams::default(), &serde_json::from_value(pod.clone())?).await?;
        }
        let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
        let mut job = json!({"metadata": {"name": JOB}, "spec": scenario.spec});
        if let Some(manager) = manager {
            job["spec"]["managedBy"] = json!(manager);
        }
        let job = jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
        let watch = Arc::new(Watch::default());
        let version = job.metadata.resource_version.context("a stored Job has a version")?;
        let watching = tokio::spawn(record(jobs.clone(), version, watch.clone()));
        let quotas = Api::namespaced(client.clone(), &namespace);
        let events = Api::namespaced(client, &namespace);
        Ok(World { jobs, pods, quotas, events, namespace, watch, watching })
    }

    /// Waits until the Job's status changes, or for a short while.
    pub(crate) async fn changed(&self) {
        let _ = timeout(POLL, self.watch.changed.notified()).await;
    }

    /// All statuses so far, in the order in which they were written.
    pub(crate) async fn statuses(&self) -> anyhow::Result<Vec<Value>> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            // Read anew each time: another one may follow while the watch is behind.
            let last = status_of(&self.jobs.get(JOB).await?)?;
            let failure = self.watch.failure.lock().expect("no test panics with it").clone();
            anyhow::ensure!(failure.is_none(), "the watch ended: {failure:?}");
            let statuses = self.watch.statuses.lock().expect("no test panics with it").clone();
            if statuses.last().unwrap_or(&json!({})) == &last {
                return Ok(statuses.iter().map(|status| self.normal(status)).collect());
            }
            anyhow::ensure!(Instant::now() < deadline, "the watch does not show the last status {last}");
            self.changed().await;
        }
    }

    pub(crate) async fn snapshot(&self) -> anyhow::Result<Snapshot> {
        let status = status_of(&self.jobs.get(JOB).await?)?;
        let mut pods = BTreeMap::new();
        for pod in self.pods.list(&ListParams::default()).await? {
            *pods.entry(Self::print_pod(&pod)?).or_default() += 1;
        }
        Ok(Snapshot { status: self.normal(&status), pods })
    }

    /// The events about the Job, sorted, once there are as many as expected; or more, or after a while.
    pub(crate) async fn events(&self, expected: usize) -> anyhow::Result<Vec<String>> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let mut events = Vec::new();
            for event in self.events.list(&ListParams::default()).await? {
                let count = event.count.unwrap_or(1).try_into()?;
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let message = self.mask(&text(&event.message));
                let line = format!("{} {}: {message}", text(&event.type_), text(&event.reason));
                events.extend(std::iter::repeat_n(line, count));
            }
            if events.len() >= expected || Instant::now() > deadline {
                events.sort();
                return Ok(events);
            }
            sleep(POLL).await;
        }
    }

    /// A status without what must differ: times become what they mean, uids of pods their number.
    fn normal(&self, status: &Value) -> Value {
        let mut normal = status.clone();
        let resumed_at = status["conditions"].as_array().into_iter().flatten().find_map(|condition| {
            let resumed = condition["type"] == "Suspended" && condition["status"] == "False";
            resumed.then(|| condition["lastTransitionTime"].as_str()).flatten()
        });
        if let Some(start) = status["startTime"].as_str() {
            let since_resumed = resumed_at.is_some_and(|resumed| start >= resumed);
            normal["startTime"] = json!(if since_resumed { "when resumed" } else { "when started" });
        }
        if let Some(end) = status["completionTime"].as_str() {
            let after_start = status["startTime"].as_str().is_none_or(|start| start <= end);
            normal["completionTime"] =
                json!(if after_start { "after the start" } else { "before the start" });
        }
        for list in ["succeeded", "failed"] {
            if let Some(uids) = status["uncountedTerminatedPods"][list].as_array() {
                normal["uncountedTerminatedPods"][list] = json!(uids.len());
            }
        }
        for condition in normal["conditions"].as_array_mut().into_iter().flatten() {
            for time in ["lastProbeTime", "lastTransitionTime"] {
                condition[time] = json!(condition[time].is_string());
            }
            if let Some(message) = condition["message"].as_str() {
                condition["message"] = json!(self.mask(message));
            }
        }
        normal
    }

    /// A pod without what must differ: everything that was asked for, and where it is in its life.
    fn print_pod(pod: &Pod) -> anyhow::Result<String> {
        let mut value = serde_json::to_value(pod)?;
        let job_uid = value["metadata"]["ownerReferences"][0]["uid"].clone();
        for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            owner["uid"] = json!("the Job's");
        }
        for label in
            value["metadata"]["labels"].as_object_mut().into_iter().flat_map(|labels| labels.values_mut())
        {
            if *label == job_uid {
                *label = json!("the Job's");
            }
        }
        let metadata = &value["metadata"];
        let mut spec = value["spec"].clone();
        spec["volumes"] = json!(spec["volumes"].as_array().map(Vec::len));
        for list in ["containers", "initContainers"] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                container["volumeMounts"] = json!(container["volumeMounts"].as_array().map(Vec::len));
            }
        }
        let phase = &value["status"]["phase"];
        let (labels, annotations, owners) =
            (&metadata["labels"], &metadata["annotations"], &metadata["ownerReferences"]);
        let deleting = metadata["deletionTimestamp"].is_string();
        Ok(format!(
            "{phase} deleting={deleting} finalizers={} generateName={} labels={labels} annotations={annotations} \
             owners={owners} spec={spec}",
            metadata["finalizers"], metadata["generateName"]
        ))
    }

    /// A message without the namespace and the random ends of pods' names.
    pub(crate) fn mask(&self, message: &str) -> String {
        let message = message.replace(&self.namespace, "<namespace>");
        let word = |word: &str| {
            let name = word.trim_matches('"');
            match name.rsplit_once('-') {
                Some((start, end)) if start.starts_with(JOB) && end.len() == 5 => {
                    word.replace(name, &format!("{start}-*"))
                }
                _ => word.to_owned(),
            }
        };
        let path = |path: &str| path.split('/').map(word).collect::<Vec<_>>().join("/");
        message.split(' ').map(path).collect::<Vec<_>>().join(" ")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Records every distinct status of the Job from a version on.
async fn record(jobs: Api<Job>, version: String, watch: Arc<Watch>) {
    let params = WatchParams::default().fields(&format!("metadata.name={JOB}"));
    let failure = match jobs.watch(&params, &version).await {
        Ok(events) => {
            let mut events = events.boxed();
            loop {
                match events.try_next().await {
                    Ok(Some(WatchEvent::Modified(job) | WatchEvent::Deleted(job))) => {
                        let status = status_of(&job).expect("a status is JSON");
                        let mut statuses = watch.statuses.lock().expect("no test panics with it");
                        if statuses.last().unwrap_or(&json!({})) != &status {
                            statuses.push(status);
                        }
                        watch.changed.notify_waiters();
                    }
                    Ok(Some(WatchEvent::Added(_) | WatchEvent::Bookmark(_))) => {}
                    Ok(Some(WatchEvent::Error(error))) => break format!("{error:?}"),
                    Ok(None) => break "the API server ended it".to_owned(),
                    Err(error) => break error.to_string(),
                }
            }
        }
        Err(error) => error.to_string(),
    };
    *watch.failure.lock().expect("no test panics with it") = Some(failure);
}

fn status_of(job: &Job) -> anyhow::Result<Value> {
    Ok(job.status.as_ref().map(serde_json::to_value).transpose()?.unwrap_or(json!({})))
}
