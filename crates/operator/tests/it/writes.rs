//! What is written for each Workload on its way: its admission, once; and why it waits, if it waits for long.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    client::Body,
    runtime::{WatchStreamExt as _, watcher},
};
use operator::Settings;
use rules::workload::{change, is_admitted, is_evicted, is_finished};
use serde_json::{Value, json};
use types::kueue::Workload;

use crate::{
    way::{Passed, through},
    world::World,
};

/// How many there are, unless `WORKLOADS` says otherwise.
const WORKLOADS: usize = 120;
const QUEUES: usize = 12;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts what is written on the way to a cluster, by what it is, and takes its time, as one over a network does.
#[derive(Clone, Default)]
struct Count(Arc<Mutex<BTreeMap<String, usize>>>);

impl Count {
    fn of(&self, what: &str) -> usize {
        self.0.lock().expect("nobody panics here").get(what).copied().unwrap_or(0)
    }
}

/// Counts a request, and passes it on after a while.
fn pass(count: Count, client: Client, takes: Duration, request: Request<Body>) -> Passed {
    Box::pin(async move {
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.map_err(std::io::Error::other)?;
        if head.method != http::Method::GET {
            let what = what(&head, &serde_json::from_slice(&bytes).unwrap_or_default());
            *count.0.lock().expect("nobody panics here").entry(what).or_default() += 1;
            tokio::time::sleep(takes).await;
        }
        let request = Request::from_parts(head, Body::from(bytes));
        client.send(request).await.map_err(std::io::Error::other)
    })
}

/// What a write is, in a few words.
fn what(head: &http::request::Parts, body: &Value) -> String {
    let path = head.uri.path();
    if !path.contains("/workloads/") {
        let kind = path.rsplit('/').find(|part| part.ends_with('s') && *part != "status").unwrap_or_default();
        return format!("{} {kind}", head.method);
    }
    let conditions = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let is = |kind: &str, status: &str| {
        conditions.iter().any(|condition| condition["type"] == kind && condition["status"] == status)
    };
    if is("Evicted", "True") && is("QuotaReserved", "True") {
        return "eviction".to_owned();
    }
    if is("Evicted", "True") && is("QuotaReserved", "False") {
        return "release".to_owned();
    }
    if is("QuotaReserved", "True") {
        return "admission".to_owned();
    }
    if is("QuotaReserved", "False") {
        return "verdict".to_owned();
    }
    format!("{} {body}", head.method)
}

fn workload(index: usize) -> Value {
    let (cpu, priority) = match index / QUEUES % 10 {
        0..7 => ("1", 50),
        7..9 => ("5", 100),
        _ => ("20", 200),
    };
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": format!("w{index}") },
        "spec": {
            "queueName": format!("q{}", index % QUEUES), "priority": priority,
            "podSets": [{ "name": "main", "count": 1, "template": { "spec": pod } }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_is_admitted_by_one_write() -> anyhow::Result<()> {
    let number = std::env::var("WORKLOADS").ok().and_then(|it| it.parse().ok()).unwrap_or(WORKLOADS);
    let takes = std::env::var("TAKES").ok().and_then(|it| it.parse().ok()).unwrap_or(10);
    let client = World::embedded_cluster().await?;
    let mut world = World::with(client.clone(), Settings::default()).await?;
    world.kill().await;
    world.begin("written").await?;
    for queue in 0..QUEUES {
        let cohort = json!({
            "cohortName": format!("cohort-{}", queue % 2),
            "preemption": { "reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority" },
        });
        world.queue(&format!("q{queue}"), "20", cohort).await?;
    }
    let creating = (0..number).map(|index| world.create(workload(index)));
    futures::stream::iter(creating).buffered(16).try_collect::<Vec<_>>().await?;

    let count = Count::default();
    let (counted, to, takes) = (count.clone(), client.clone(), Duration::from_millis(takes));
    world.way = through(move |request| pass(counted.clone(), to.clone(), takes, request));
    let began = Instant::now();
    world.start().await;
    let api: Api<Workload> = Api::namespaced(client, "written");
    let (mut ended, mut ending) = (BTreeSet::new(), BTreeSet::new());
    let mut events = watcher::watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
    while ended.len() < number {
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await;
        let event = event.with_context(|| format!("only {} of {number} ended", ended.len()))?;
        let workload = event?.context("a watch does not end")?;
        let name = workload.metadata.name.clone().unwrap_or_default();
        if is_finished(&workload) {
            ended.insert(name);
        } else if is_admitted(&workload) && !is_evicted(&workload) && ending.insert(name.clone()) {
            let mut next = workload.clone();
            change::finish(&mut next, "Succeeded", "played", jiff::Timestamp::now());
            let body = json!({ "status": { "conditions": next.status.unwrap_or_default().conditions } });
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(body)).await?;
        }
    }
    println!("{number} in {:?}: {:#?}", began.elapsed(), count.0.lock().expect("nobody panics here"));
    let most = number + count.of("release");
    assert!(count.of("admission") <= most, "admitted once, and again if evicted");
    Ok(())
}
