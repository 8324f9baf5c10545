//! What is told about Jobs and Workloads on their way: events, as `kubectl describe` shows them.

use serde_json::json;

use super::World;

fn words<'a>(told: &'a [String], reason: &str) -> Vec<&'a str> {
    let of_reason = |told: &'a String| told.strip_prefix(reason)?.strip_prefix(": ");
    told.iter().filter_map(of_reason).collect()
}

/// OB-2: from the first to the last, about the Job and about its Workload.
pub(super) async fn ob_2_a_whole_life(world: &World) -> anyhow::Result<()> {
    let queue = world.queue("a", "1", json!({})).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    world.runs("job").await?;
    world.completes("job").await?;
    let key = format!("{}/{workload}", world.namespace);
    let told = world.told("Job", "job", &["CreatedWorkload", "Started", "FinishedWorkload"]).await?;
    assert_eq!(words(&told, "CreatedWorkload"), [format!("Created Workload: {key}")]);
    assert_eq!(words(&told, "Started"), [format!("Admitted by clusterQueue {queue}")]);
    assert_eq!(words(&told, "FinishedWorkload"), [format!("Workload '{key}' is declared finished")]);
    let told = world.told("Workload", &workload, &["QuotaReserved", "Admitted"]).await?;
    let [reserved] = words(&told, "QuotaReserved")[..] else { anyhow::bail!("{told:#?}") };
    let start = format!("Quota reserved in ClusterQueue {queue}, wait time since queued was ");
    anyhow::ensure!(reserved.starts_with(&start), "{reserved}");
    let [admitted] = words(&told, "Admitted")[..] else { anyhow::bail!("{told:#?}") };
    let start = format!("Admitted by ClusterQueue {queue}, wait time since reservation was ");
    anyhow::ensure!(admitted.starts_with(&start), "{admitted}");
    let tellers = async |kind: &str, name: &str| {
        anyhow::Ok(world.tellers(kind, name).await?.into_iter().collect::<Vec<_>>())
    };
    assert_eq!(tellers("Job", "job").await?, ["batch/job-kueue-controller"]);
    assert_eq!(tellers("Workload", &workload).await?, ["kueue-admission"]);
    Ok(())
}

/// SC-10: who does not get the first flavor is told why not.
pub(super) async fn sc_10_which_flavors_were_considered(world: &World) -> anyhow::Result<()> {
    let flavor = world.name_of("large");
    world
        .create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": flavor },
            "spec": {},
        }))
        .await?;
    let quota = |flavor: &str, cpu: &str| json!({ "name": flavor, "resources": [{ "name": "cpu", "nominalQuota": cpu }] });
    let group =
        json!({ "coveredResources": ["cpu"], "flavors": [quota("default", "1"), quota(&flavor, "3")] });
    world.queue("a", "1", json!({ "resourceGroups": [group] })).await?;
    let workload = world.job("job", "a", "2", json!({})).await?;
    world.runs("job").await?;
    let told = world.told("Workload", &workload, &["QuotaReserved"]).await?;
    let [reserved] = words(&told, "QuotaReserved")[..] else { anyhow::bail!("{told:#?}") };
    let (_, considered) = reserved.split_once("; Flavors considered: ").unwrap_or_default();
    assert_eq!(
        considered,
        "main: default(NoFit;insufficient quota for cpu in flavor default, previously considered podsets requests (0) + \
         current podset request (2) > maximum capacity (1))",
    );
    Ok(())
}

/// OB-2: who waits is warned, and who changes while it waits is told so.
pub(super) async fn ob_2_who_waits(world: &World) -> anyhow::Result<()> {
    world.queue("a", "1", json!({})).await?;
    let three = json!({ "spec": { "parallelism": 3, "completions": 3 } });
    let workload = world.job("job", "a", "1", three).await?;
    let told = world.told("Workload", &workload, &["Pending"]).await?;
    assert_eq!(
        words(&told, "Pending"),
        ["couldn't assign flavors to pod set main: insufficient quota for cpu in flavor default, \
          previously considered podsets requests (0) + current podset request (3) > maximum capacity (1)"]
    );
    world.patch("Job", "job", json!({ "spec": { "parallelism": 2 } })).await?;
    let key = format!("{}/{workload}", world.namespace);
    let told = world.told("Job", "job", &["UpdatedWorkload"]).await?;
    assert_eq!(
        words(&told, "UpdatedWorkload"),
        [format!("Updated not matching Workload for suspended job: {key}")]
    );
    Ok(())
}

/// OB-2: who has to go is told why, on both sides.
pub(super) async fn ob_2_who_has_to_go(world: &World) -> anyhow::Result<()> {
    let queue =
        world.queue("a", "1", json!({ "preemption": { "withinClusterQueue": "LowerPriority" } })).await?;
    world.class("low", 1).await?;
    world.class("high", 100).await?;
    let lesser = world.job("lesser", "a", "1", world.priority("low")).await?;
    world.runs("lesser").await?;
    let greater = world.job("greater", "a", "1", world.priority("high")).await?;
    let evicted = world.workload(&lesser, "evicted", rules::workload::is_evicted).await?;
    let why = crate::world::message(&evicted, "Evicted");
    let told = world.told("Workload", &lesser, &["EvictedDueToPreempted", "Preempted"]).await?;
    let priorities = "; preemptor effective priority: 100 (base: 100, boost: 0); \
                      preemptee effective priority: 1 (base: 1, boost: 0)";
    assert_eq!(words(&told, "EvictedDueToPreempted"), [why.as_str()]);
    assert_eq!(words(&told, "Preempted"), [format!("{why}{priorities}")]);
    world.stops("lesser").await?;
    let told = world.told("Job", "lesser", &["Stopped"]).await?;
    assert_eq!(words(&told, "Stopped"), [why]);
    let told = world.told("Workload", &greater, &["PreemptedWorkload"]).await?;
    let uid = evicted.metadata.uid.unwrap_or_default();
    let preempted = format!(
        "Preempted workload {}/{lesser} (UID: {uid}) in ClusterQueue {queue}{priorities}",
        world.namespace
    );
    assert_eq!(words(&told, "PreemptedWorkload"), [preempted]);
    world.runs("greater").await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": { "stopPolicy": "HoldAndDrain" } })).await?;
    let told = world.told("Workload", &greater, &["EvictedDueToClusterQueueStopped"]).await?;
    assert_eq!(words(&told, "EvictedDueToClusterQueueStopped"), ["The ClusterQueue is stopped"]);
    world.stops("greater").await?;
    Ok(())
}

/// JF-2, OB-2: a Job that is part of too many others is left as it is, and told so.
pub(super) async fn jf_2_nested_too_deep(world: &World) -> anyhow::Result<()> {
    let mut owner = None;
    for depth in 0..=11 {
        let owners = owner.as_ref().map(|(name, uid)| {
            json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": true }])
        });
        let name = format!("job-{depth}");
        let part = json!({ "metadata": { "labels": null, "ownerReferences": owners } });
        world.job(&name, "", "1", part).await?;
        let uid = world.jobs().get(&name).await?.metadata.uid;
        owner = Some((name, uid));
    }
    let told = world.told("Job", "job-11", &["JobNestingTooDeep"]).await?;
    let why = "Terminated search for Kueue-managed Job because ancestor depth exceeded limit of 10";
    assert!(words(&told, "JobNestingTooDeep").iter().all(|told| *told == why), "{told:#?}");
    assert!(world.tellers("Job", "job-10").await?.is_empty(), "ten are not too many");
    Ok(())
}
