//! Many Workloads in few queues: everyone gets in, none of them twice, and never more at once than there is room for.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api,
    api::{Patch, PatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use rules::workload::{change, is_admitted, is_finished, patch};
use serde_json::json;
use types::kueue::Workload;

use crate::world::World;

/// How many there are, unless `WORKLOADS` says otherwise.
const WORKLOADS: usize = 150;
const QUEUES: usize = 6;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everyone_gets_in() -> anyhow::Result<()> {
    let number = std::env::var("WORKLOADS").ok().and_then(|it| it.parse().ok()).unwrap_or(WORKLOADS);
    let mut world = World::embedded().await?;
    world.begin("scale").await?;
    let cohort = json!({ "cohortName": "all", "preemption": { "reclaimWithinCohort": "Any" } });
    for queue in 0..QUEUES {
        world.queue(&format!("q{queue}"), "20", cohort.clone()).await?;
    }
    let api: Api<Workload> = Api::namespaced(world.client.clone(), "scale");
    let started = Instant::now();
    let creating = (0..number).map(|it| {
        let cpu = [1, 1, 1, 5, 20][it % 5].to_string();
        let pod = json!({ "restartPolicy": "Never", "containers": [{
            "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } },
        }] });
        world.create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": format!("w{it}") },
            "spec": {
                "queueName": format!("q{}", it % QUEUES),
                "podSets": [{ "name": "main", "count": 1, "template": { "spec": pod } }],
            },
        }))
    });
    futures::stream::iter(creating).buffered(16).try_collect::<Vec<_>>().await?;
    println!("created {number} in {:?}", started.elapsed());
    let (mut done, mut most) = (BTreeSet::new(), 0);
    let mut running = BTreeSet::new();
    let mut events = watcher::watcher(api.clone(), watcher::Config::default()).applied_objects().boxed();
    while done.len() < number {
        let event = tokio::time::timeout(PATIENCE, events.try_next()).await;
        let event = event.with_context(|| format!("only {} of {number} got in", done.len()))?;
        let workload = event?.context("a watch does not end")?;
        let name = workload.metadata.name.clone().unwrap_or_default();
        if is_finished(&workload) {
            running.remove(&name);
            done.insert(name);
        } else if is_admitted(&workload) && !rules::workload::is_evicted(&workload) {
            running.insert(name.clone());
            most = most.max(running.len());
            let mut next = workload.clone();
            change::finish(&mut next, "Succeeded", "played", jiff::Timestamp::now());
            let status = next.status.unwrap_or_default();
            let body = patch::one_condition(&workload, &status, "Finished", patch::Manner::Loose);
            let params = PatchParams::apply("played").force();
            api.patch_status(&name, &params, &Patch::Apply(&body)).await?;
        } else {
            running.remove(&name);
        }
    }
    println!("{number} in {:?}, at most {most} at once", started.elapsed());
    assert!(most <= QUEUES * 20, "there is room for so many of the smallest");
    world
        .sees_queue(&world.name_of("q0"), "empty", |queue| {
            let status = queue.status.clone().unwrap_or_default();
            status.pending_workloads == 0 && status.reserving_workloads == 0
        })
        .await?;
    Ok(())
}
