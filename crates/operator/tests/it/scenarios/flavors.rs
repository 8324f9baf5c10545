//! Which flavor a Job gets, and what becomes of it when flavors change or go.

use jiff::Timestamp;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::World;
use crate::world::{message, suspended};

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
const WAITS: [&str; 1] = ["QuotaReserved=False/Pending"];

/// A flavor of this scenario. Returns its name.
async fn flavor(world: &World, name: &str, spec: Value) -> anyhow::Result<String> {
    let name = world.name_of(name);
    let metadata = json!({ "name": name });
    let flavor = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": metadata, "spec": spec,
    });
    world.create(flavor).await?;
    Ok(name)
}

/// The part of a ClusterQueue that says how much cpu it has of which flavors.
fn of(flavors: &[(&str, &str)]) -> Value {
    let quota = |(name, cpu): &(&str, &str)| json!({ "name": name, "resources": [{ "name": "cpu", "nominalQuota": cpu }] });
    let flavors: Vec<Value> = flavors.iter().map(quota).collect();
    json!({ "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }] })
}

/// The same of a ClusterQueue of which there is more to say.
fn of_and(flavors: &[(&str, &str)], more: &Value) -> Value {
    let mut queue = of(flavors);
    json_patch::merge(&mut queue, more);
    queue
}

/// The part of a Job that says where its pods can run.
fn pods(spec: &Value) -> Value {
    json!({ "spec": { "template": { "spec": spec } } })
}

/// Waits until a Workload has quota, and returns the flavor that it is of.
async fn given(world: &World, workload: &str) -> anyhow::Result<String> {
    let workload = world.workload(workload, "given quota", rules::workload::has_quota).await?;
    let admission = serde_json::to_value(workload.status.unwrap_or_default().admission)?;
    Ok(admission["podSetAssignments"][0]["flavors"]["cpu"].as_str().unwrap_or_default().to_owned())
}

/// FA-3, RF-4: a flavor whose nodes repel a Job is not for it, unless one of them tolerates that; who waits gets in when the
/// nodes do so no longer.
pub(super) async fn fa_3_taints(world: &World) -> anyhow::Result<()> {
    let taints = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
    let tolerates = json!([{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }]);
    let closed = flavor(world, "closed", json!({ "nodeTaints": taints })).await?;
    let open = flavor(world, "open", json!({ "nodeTaints": taints, "tolerations": tolerates })).await?;
    world.queue("closed", "0", of(&[(&closed, "2")])).await?;
    world.queue("open", "0", of(&[(&open, "1")])).await?;
    let repelled = world.job("repelled", "closed", "1", json!({})).await?;
    let waiting = world.shows(&repelled, &WAITS).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        format!(
            "couldn't assign flavors to pod set main: untolerated taint {{gpu yes NoSchedule <nil>}} in flavor {closed}"
        )
    );
    let bold = world.job("bold", "closed", "1", pods(&json!({ "tolerations": tolerates }))).await?;
    world.shows(&bold, &ADMITTED).await?;
    let led = world.job("led", "open", "1", json!({})).await?;
    world.shows(&led, &ADMITTED).await?;
    let job = world.sees_job("led", "started", |job| !suspended(job)).await?;
    let template = serde_json::to_value(job.spec.unwrap_or_default().template)?;
    assert_eq!(template["spec"]["tolerations"], tolerates, "its flavor tolerates it for the Job (JF-50)");
    world.patch("ResourceFlavor", &closed, json!({ "spec": { "nodeTaints": null } })).await?;
    world.shows(&repelled, &ADMITTED).await?;
    Ok(())
}

/// FA-4, G-11: where a Job wants to run is held against what a flavor says of its nodes, and not against what it does not say.
pub(super) async fn fa_4_affinity(world: &World) -> anyhow::Result<()> {
    let east = flavor(world, "east", json!({ "nodeLabels": { "zone": "east" } })).await?;
    let west = flavor(world, "west", json!({ "nodeLabels": { "zone": "west" } })).await?;
    world.queue("a", "0", of(&[(&east, "5"), (&west, "5")])).await?;
    let affinity = |terms: Value| {
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        pods(&json!({ "affinity": { "nodeAffinity": required } }))
    };
    let within = |key: &str, value: &str| json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] });
    let selects = |key: &str, value: &str| pods(&json!({ "nodeSelector": { key: value } }));
    let chosen = [
        ("selects", selects("zone", "west"), &west),
        ("wants", affinity(json!([within("zone", "west")])), &west),
        ("asks-for-more", selects("rack", "one"), &east),
        ("one-or-other", affinity(json!([within("zone", "north"), within("rack", "one")])), &east),
    ];
    for (name, more, flavor) in chosen {
        let workload = world.job(name, "a", "1", more).await?;
        assert_eq!(given(world, &workload).await?, *flavor, "{name}");
    }
    let nowhere = world.job("nowhere", "a", "1", affinity(json!([within("zone", "north")]))).await?;
    let waiting = world.shows(&nowhere, &WAITS).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        format!(
            "couldn't assign flavors to pod set main: flavor {east} doesn't match node affinity, flavor {west} doesn't \
             match node affinity"
        )
    );
    Ok(())
}

/// FA-7, FA-V1, FA-V2, FA-V3: the first flavor in which there is room, by the queue's own idea of that.
pub(super) async fn fa_7_the_first_that_will_do(world: &World) -> anyhow::Result<()> {
    let spot = flavor(world, "spot", json!({})).await?;
    let demand = flavor(world, "demand", json!({})).await?;
    let both = [(spot.as_str(), "2"), (demand.as_str(), "4")];
    world.queue("alone", "0", of(&both)).await?;
    let alone = world.job("alone", "alone", "3", json!({})).await?;
    assert_eq!(given(world, &alone).await?, demand, "FA-V1: there is not enough of the first");

    let cohort = world.name_of("cohort");
    let lends = of_and(&[(&spot, "2")], &json!({ "cohortName": cohort }));
    world.cluster_queue("lender", "0", lends).await?;
    for (queue, when, flavor) in [("borrows", "MayStopSearch", &spot), ("shy", "TryNextFlavor", &demand)] {
        let more = json!({ "cohortName": cohort, "flavorFungibility": { "whenCanBorrow": when } });
        world.queue(queue, "0", of_and(&both, &more)).await?;
        let workload = world.job(queue, queue, "3", json!({})).await?;
        assert_eq!(given(world, &workload).await?, *flavor, "FA-V2: {when}");
    }

    world.class("low", 1).await?;
    world.class("high", 100).await?;
    for (queue, when, flavor) in [("mild", "TryNextFlavor", &demand), ("harsh", "MayStopSearch", &spot)] {
        let more = json!({
            "flavorFungibility": { "whenCanPreempt": when },
            "preemption": { "withinClusterQueue": "LowerPriority" },
        });
        world.queue(queue, "0", of_and(&both, &more)).await?;
        let lesser = format!("{queue}-lesser");
        let first = world.job(&lesser, queue, "2", world.priority("low")).await?;
        assert_eq!(given(world, &first).await?, spot);
        world.runs(&lesser).await?;
        let greater = world.job(queue, queue, "2", world.priority("high")).await?;
        if flavor == &spot {
            world.workload(&first, "evicted", rules::workload::is_evicted).await?;
            world.stops(&lesser).await?;
        }
        assert_eq!(given(world, &greater).await?, *flavor, "FA-V3: {when}");
    }
    Ok(())
}

/// FA-9, SC-7: whoever finds that another was faster goes on with the next flavor, and does not begin with the first again.
pub(super) async fn fa_9_where_the_search_stopped(world: &World) -> anyhow::Result<()> {
    let spot = flavor(world, "spot", json!({})).await?;
    let demand = flavor(world, "demand", json!({})).await?;
    let (cohort, check) = (world.name_of("cohort"), world.name_of("check"));
    world.queue("borrower", "0", of_and(&[(&spot, "0")], &json!({ "cohortName": cohort }))).await?;
    world.check(&check).await?;
    let opens = |is: bool| {
        let condition = json!({
            "type": "Active", "status": if is { "True" } else { "False" }, "reason": "Played", "message": "",
            "lastTransitionTime": Timestamp::now().to_string(),
        });
        world.patch_status("AdmissionCheck", &check, json!({ "conditions": [condition] }))
    };
    opens(false).await?;
    let more = json!({
        "cohortName": cohort, "preemption": { "reclaimWithinCohort": "Any" },
        "flavorFungibility": { "whenCanPreempt": "MayStopSearch" },
        "admissionChecksStrategy": { "admissionChecks": [{ "name": check }] },
    });
    for queue in ["first", "second"] {
        world.queue(queue, "0", of_and(&[(&spot, "2"), (&demand, "4")], &more)).await?;
    }
    let borrowed = world.job("borrowed", "borrower", "4", json!({})).await?;
    assert_eq!(given(world, &borrowed).await?, spot);
    world.runs("borrowed").await?;
    // Both are looked at in the same cycle, for both wait for the same check, and the one before the other.
    world.class("high", 100).await?;
    let first = world.job("first", "first", "2", world.priority("high")).await?;
    let second = world.job("second", "second", "2", json!({})).await?;
    for workload in [&first, &second] {
        world.shows(workload, &["QuotaReserved=False/Inadmissible"]).await?;
    }
    opens(true).await?;
    assert_eq!(given(world, &second).await?, demand);
    let waits =
        |it: &Workload| message(it, "QuotaReserved").ends_with("Pending the preemption of 1 workload(s)");
    world.workload(&first, "waiting for the borrower", waits).await?;
    world.stops("borrowed").await?;
    assert_eq!(given(world, &first).await?, spot);
    Ok(())
}

/// RF-3, QM-10: a flavor that is deleted goes when no queue names it any more, and drives nobody out who runs with it.
pub(super) async fn rf_3_a_flavor_goes(world: &World) -> anyhow::Result<()> {
    let old = flavor(world, "old", json!({})).await?;
    let queue = world.queue("a", "0", of(&[(&old, "1"), ("default", "1")])).await?;
    let first = world.job("first", "a", "1", json!({})).await?;
    assert_eq!(given(world, &first).await?, old);
    world.runs("first").await?;
    world.holds("ResourceFlavor", &old).await?;
    world.delete("ResourceFlavor", &old).await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": of(&[("default", "1")]) })).await?;
    world.gone("ResourceFlavor", &old).await?;
    let second = world.job("second", "a", "1", json!({})).await?;
    assert_eq!(given(world, &second).await?, "default", "what the first holds is of another flavor");
    let third = world.job("third", "a", "1", json!({})).await?;
    world.shows(&third, &WAITS).await?;
    world.shows(&first, &ADMITTED).await?;
    let shown = world
        .sees_queue(&queue, "used by both", |queue| {
            queue.status.as_ref().is_some_and(|it| it.admitted_workloads == 2 && it.pending_workloads == 1)
        })
        .await?;
    assert_eq!(
        serde_json::to_value(shown.status.unwrap_or_default().flavors_usage)?,
        json!([{ "name": "default", "resources": [{ "name": "cpu", "total": "1", "borrowed": "0" }] }])
    );
    world.completes("first").await?;
    world.workload(&first, "finished", rules::workload::is_finished).await?;
    world.shows(&third, &WAITS).await?;
    world.runs("second").await?;
    world.completes("second").await?;
    world.shows(&third, &ADMITTED).await?;
    Ok(())
}

/// QM-25: a resource that a queue no longer covers drives nobody out who has it, and lets nobody in who asks for it.
pub(super) async fn qm_25_a_resource_goes(world: &World) -> anyhow::Result<()> {
    let quota = |resources: &[(&str, &str)]| {
        let covered: Vec<&str> = resources.iter().map(|(name, _)| *name).collect();
        let resources: Vec<Value> =
            resources.iter().map(|(name, quota)| json!({ "name": name, "nominalQuota": quota })).collect();
        let flavors = json!([{ "name": "default", "resources": resources }]);
        json!({ "resourceGroups": [{ "coveredResources": covered, "flavors": flavors }] })
    };
    let queue = world.queue("a", "0", quota(&[("cpu", "2"), ("memory", "4Gi")])).await?;
    let requests = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
    let asks = pods(&json!({ "containers": [{ "name": "c", "image": "i", "resources": requests }] }));
    let first = world.job("first", "a", "", asks.clone()).await?;
    world.runs("first").await?;
    world.patch("ClusterQueue", &queue, json!({ "spec": quota(&[("cpu", "2")]) })).await?;
    let second = world.job("second", "a", "", asks).await?;
    let waiting = world.shows(&second, &WAITS).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue"
    );
    let modest = world.job("modest", "a", "1", json!({})).await?;
    world.shows(&modest, &ADMITTED).await?;
    world.shows(&first, &ADMITTED).await?;
    Ok(())
}
