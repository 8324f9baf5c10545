//! What a manager asks of its workers, and what it leaves there: all that they know of each other.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};

use super::fleet::{Fleet, NAMESPACE, delete_job, eventually};

const LINK: &str = "kueue.x-k8s.io/prebuilt-workload-name";
const ORIGIN: &str = "kueue.x-k8s.io/multikueue-origin";
const JOB_UID: &str = "kueue.x-k8s.io/job-uid";

/// MK-WIRE-01, MK-COPY-01, MK-COPY-02, MK-ADP-01, MK-QR-03, MK-WRK-01, MK-WRK-02, MK-WRK-04, MK-RUN-01, MK-RUN-03: the same names, the mark
/// of the manager, the link between the two, and nothing of what makes the manager's objects the manager's. What the
/// worker adds is the worker's: it takes both into its hands as if they had been made there.
pub(super) async fn what_workers_hold(fleet: &mut Fleet) -> anyhow::Result<()> {
    fleet.submit("held", json!({"seconds": "forever"})).await?;
    let cluster = fleet.running("held").await?;
    let worker = &fleet.workers[cluster.as_str()];
    let (job, workload) = (fleet.manager.job("held").await?, fleet.manager.workload("held").await?);
    let (job, workload) = (job.expect("a Job"), workload.expect("a Workload"));
    let name = workload.metadata.name.clone().expect("a name");
    let mirror = worker.job("held").await?.expect("a mirror");
    let copy = worker.workload("held").await?.expect("a copy");

    assert_eq!(copy.metadata.name, workload.metadata.name);
    assert_eq!(copy.spec.queue_name, workload.spec.queue_name);
    assert_eq!(copy.spec.pod_sets.len(), workload.spec.pod_sets.len());
    let labels = copy.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get(ORIGIN).map(String::as_str), Some("multikueue"));
    // MK-COPY-02, MK-WRK-02: the uid of the worker's own Job, not of the manager's, which nobody would find here.
    assert_eq!(labels.get(JOB_UID), mirror.metadata.uid.as_ref());
    let owners = copy.metadata.owner_references.clone().unwrap_or_default();
    assert_eq!(
        owners.iter().map(|owner| Some(&owner.uid)).collect::<Vec<_>>(),
        [mirror.metadata.uid.as_ref()]
    );

    let (labels, annotations) = (mirror.metadata.labels.clone(), mirror.metadata.annotations.clone());
    let (labels, annotations) = (labels.unwrap_or_default(), annotations.unwrap_or_default());
    assert_eq!(labels.get(ORIGIN).map(String::as_str), Some("multikueue"));
    assert_eq!(
        (labels.get(LINK), annotations.get(LINK)),
        (Some(&name), Some(&name)),
        "for all releases (MK-INT-02)"
    );
    assert_eq!(mirror.metadata.owner_references.unwrap_or_default(), []);
    let spec = mirror.spec.expect("a spec");
    assert_eq!((spec.managed_by, spec.ttl_seconds_after_finished), (None, None));
    assert_eq!(spec.suspend, Some(false), "the worker's Kueue has started it");

    // MK-RUN-01: the manager's own is started, too, and its controller leaves it alone.
    let spec = job.spec.expect("a spec");
    assert_eq!(spec.suspend, Some(false));
    assert_eq!(spec.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));
    let pods = |client: &kube::Client| Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let ours = ListParams::default().labels("batch.kubernetes.io/job-name=held");
    assert_eq!(pods(&fleet.manager.client).list(&ours).await?.items.len(), 0);
    // MK-WRK-05: whoever looks at pods on the worker sees where they come from.
    let there = pods(&worker.client).list(&ours).await?.items;
    let labels: BTreeMap<String, String> =
        there.into_iter().flat_map(|pod| pod.metadata.labels.unwrap_or_default()).collect();
    assert_eq!(labels.get("kueue.x-k8s.io/multikueue-worker-workload-pod").map(String::as_str), Some("true"));

    // MK-RUN-03.
    eventually("the Job tells that it was started", async || {
        let events: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(fleet.manager.client.clone(), NAMESPACE);
        let events = events.list(&ListParams::default()).await?;
        Ok(events.items.into_iter().find(|event| {
            let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
            about == Some("held")
                && event.reason.as_deref() == Some("Started")
                && event.note.as_deref() == Some("Admitted by clusterQueue team")
        }))
    })
    .await?;
    delete_job(&fleet.manager.client, "held").await?;
    fleet.clean().await
}

/// MK-INT-01, MK-INT-08, MK-CONN-18, MK-CONN-20, MK-FLOW-09, MK-RBAC-01, MK-DEL-03, MK-DEL-04: from its connection to the end of a Job a worker is
/// asked in one version, about what is ours by label, and about nothing else; what is known from a watch is not read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_asked_of_workers() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    fleet.submit("asked", json!({})).await?;
    fleet.condition("asked", "Complete").await?;
    fleet.clean().await?;
    let ours = "labelSelector=kueue.x-k8s.io%2Fmultikueue-origin%3Dmultikueue";
    for (name, worker) in &fleet.workers {
        let asked = worker.faults.asked();
        let mut writes = Vec::new();
        for request in &asked {
            let (method, address) = request.split_once(' ').expect("a method and an address");
            let (path, query) = address.split_once('?').unwrap_or((address, ""));
            // Which cluster it is, it is asked by its oldest namespace.
            if request == "GET /api/v1/namespaces/kube-system" {
                continue;
            }
            // Kinds of others, and pods, may be asked for; Secrets, nodes, older versions and the status of anything are not.
            let is_of_known_group = path.starts_with("/apis/") || path == "/api/v1/pods";
            let is_ours_to_ask =
                is_of_known_group && !path.contains("/v1beta1/") && !path.ends_with("/status");
            assert!(is_ours_to_ask, "{name}: {request}");
            if method == "GET" {
                assert!(query.contains(ours), "{name}: {request}");
                let is_watch = query.contains("watch=true");
                assert!(!is_watch || query.contains("allowWatchBookmarks=true"), "{name}: {request}");
                assert!(!path.contains("/namespaces/"), "{name}: {request}");
            } else {
                writes.push(format!(
                    "{method} {}",
                    path.rsplit('/').find(|it| !it.contains("asked")).unwrap_or(path)
                ));
            }
        }
        // The one that was too slow has its copy taken back, or got none, and hears nothing of a Job.
        let winner = ["POST workloads", "POST jobs", "DELETE jobs", "DELETE workloads"];
        let loser = ["POST workloads", "DELETE workloads"];
        assert!(writes == winner || writes == loser || writes.is_empty(), "{name}: {writes:?}");
    }
    Ok(())
}

/// MK-ORI-01, MK-GC-02, MK-DEL-01: another manager's objects on the same worker are nobody's business here, even if they
/// look as if they had been forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_managers_objects_are_left_alone() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    let east = &fleet.workers["east"];
    let metadata =
        |name: &str, origin: &str| json!({"name": name, "namespace": NAMESPACE, "labels": {ORIGIN: origin}});
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let pod_sets = json!([{"name": "main", "count": 1, "template": {"spec": pod}}]);
    let workload = |name: &str, origin: &str| -> Value {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata(name, origin),
            "spec": {"queueName": "nowhere", "podSets": pod_sets},
        })
    };
    let job = |name: &str, origin: &str| -> Value {
        let mut metadata = metadata(name, origin);
        metadata["annotations"] = json!({LINK: name});
        let spec = json!({"suspend": true, "template": {"spec": pod}});
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    };
    for (name, origin) in [("theirs", "another"), ("ours", "multikueue")] {
        east.create(workload(name, origin)).await?;
        east.create(job(name, origin)).await?;
    }
    // Ours have no counterpart: they go (MK-GC-01), the Job whose Workload is gone already, too (MK-GC-03).
    east.create(job("alone", "multikueue")).await?;
    eventually("ours are gone", async || {
        let gone = east.job("ours").await?.is_none() && east.job("alone").await?.is_none();
        let left = east.workloads().await?;
        let names: Vec<String> = left.into_iter().filter_map(|it| it.metadata.name).collect();
        Ok((gone && names == ["theirs"]).then_some(()))
    })
    .await?;
    assert!(east.job("theirs").await?.is_some());
    Ok(())
}

/// MK-CONN-01, MK-CONN-19: a Secret that changes in nothing that counts opens no connection anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_outlives_what_does_not_concern_it() -> anyhow::Result<()> {
    let fleet = Box::pin(Fleet::embedded()).await?;
    let watches =
        || fleet.workers["east"].faults.asked().iter().filter(|it| it.contains("watch=true")).count();
    fleet.submit("before", json!({})).await?;
    fleet.condition("before", "Complete").await?;
    let opened = watches();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east", "namespace": "kueue-system"}});
    fleet.manager.patch(secret, json!({"metadata": {"labels": {"seen": "yes"}}})).await?;
    fleet.submit("after", json!({})).await?;
    fleet.condition("after", "Complete").await?;
    assert_eq!(watches(), opened);
    Ok(())
}
