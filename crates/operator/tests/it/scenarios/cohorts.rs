//! What queues lend each other, and what they keep.

use serde_json::{Value, json};

use super::World;
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
const WAITS: [&str; 1] = ["QuotaReserved=False/Pending"];

/// So much cpu, and at most so much of it and of that of others.
fn quota(nominal: &str, borrowing: Option<&str>, lending: Option<&str>) -> Value {
    let mut cpu = json!({ "name": "cpu", "nominalQuota": nominal });
    for (limit, value) in [("borrowingLimit", borrowing), ("lendingLimit", lending)] {
        if let Some(value) = value {
            cpu[limit] = value.into();
        }
    }
    json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [cpu] }] }])
}

/// A queue in a cohort, once it is known. Returns the name of the ClusterQueue.
async fn queue(world: &World, name: &str, cohort: &str, groups: Value) -> anyhow::Result<String> {
    let more = json!({ "cohortName": world.name_of(cohort), "resourceGroups": groups });
    let queue = world.queue(name, "0", more).await?;
    world
        .sees_queue(&queue, "ready", |queue| {
            queue.status.as_ref().is_some_and(|it| it.conditions.iter().any(|it| it.reason == "Ready"))
        })
        .await?;
    Ok(queue)
}

fn cohort(world: &World, name: &str, parent: Option<&str>, groups: Option<Value>) -> Value {
    let (parent, name) = (parent.map(|parent| world.name_of(parent)), world.name_of(name));
    let mut cohort = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Cohort", "metadata": { "name": name }, "spec": {},
    });
    if let Some(parent) = parent {
        cohort["spec"]["parentName"] = parent.into();
    }
    if let Some(groups) = groups {
        cohort["spec"]["resourceGroups"] = groups;
    }
    cohort
}

/// QM-4, QM-5, QM-6, QM-V1: what a queue lends, and what it may borrow, has limits.
pub(super) async fn qm_v1_limits(world: &World) -> anyhow::Result<()> {
    let borrower = queue(world, "a", "cohort", quota("10", Some("5"), None)).await?;
    queue(world, "b", "cohort", quota("10", None, Some("4"))).await?;
    queue(world, "c", "cohort", quota("0", None, None)).await?;
    let too_much = world.job("too-much", "a", "15", json!({})).await?;
    let waiting = world.shows(&too_much, &WAITS).await?;
    let why = message(&waiting, "QuotaReserved");
    assert!(why.ends_with("current podset request (15) > maximum capacity (14)"), "{why}");
    for (name, queue, cpu) in [("twelve", "a", "12"), ("five", "b", "5"), ("three", "b", "3")] {
        let workload = world.job(name, queue, cpu, json!({})).await?;
        world.shows(&workload, &ADMITTED).await?;
        world.runs(name).await?;
    }
    let one = world.job("one", "c", "1", json!({})).await?;
    let waiting = world.shows(&one, &WAITS).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 1 more needed"
    );
    world
        .sees_queue(&borrower, "borrowing", |queue| {
            let usage = queue.status.as_ref().map(|it| serde_json::to_value(&it.flavors_usage).ok());
            let used = json!({ "name": "cpu", "total": "12", "borrowed": "2" });
            usage.flatten().is_some_and(|usage| usage[0]["resources"][0] == used)
        })
        .await?;
    world.completes("three").await?;
    world.shows(&one, &ADMITTED).await?;
    Ok(())
}

/// CO-1, CO-2, QM-V2: the same through several levels, each with quota and limits of its own.
pub(super) async fn qm_v2_parents(world: &World) -> anyhow::Result<()> {
    let limited = quota("0", Some("2"), Some("3"));
    for cohort in [
        cohort(world, "root", None, Some(quota("4", None, None))),
        cohort(world, "org-1", Some("root"), Some(limited)),
        cohort(world, "org-2", Some("root"), Some(quota("6", None, None))),
    ] {
        world.create(cohort).await?;
    }
    for (name, cohort, cpu) in [("t1", "org-1", "5"), ("t2", "org-1", "5"), ("t3", "org-2", "2")] {
        queue(world, name, cohort, quota(cpu, None, None)).await?;
    }
    let too_much = world.job("too-much", "t1", "13", json!({})).await?;
    let waiting = world.shows(&too_much, &WAITS).await?;
    let why = message(&waiting, "QuotaReserved");
    assert!(why.ends_with("current podset request (13) > maximum capacity (12)"), "{why}");
    let nine = world.job("nine", "t1", "9", json!({})).await?;
    world.shows(&nine, &ADMITTED).await?;
    world.runs("nine").await?;
    let four = world.job("four", "t2", "4", json!({})).await?;
    let waiting = world.shows(&four, &WAITS).await?;
    let why = message(&waiting, "QuotaReserved");
    assert!(why.ends_with("insufficient unused quota for cpu in flavor default, 1 more needed"), "{why}");
    let thirteen = world.job("thirteen", "t3", "13", json!({})).await?;
    world.shows(&thirteen, &ADMITTED).await?;
    world.completes("nine").await?;
    world.shows(&four, &ADMITTED).await?;
    Ok(())
}

/// SC-9, SC-V1: who waits for what others have borrowed, and may not drive them out, keeps what is left of it from being
/// borrowed, too.
pub(super) async fn sc_9_what_is_left_is_kept(world: &World) -> anyhow::Result<()> {
    let strict = json!({
        "cohortName": world.name_of("cohort"), "queueingStrategy": "StrictFIFO",
        "preemption": { "reclaimWithinCohort": "LowerPriority" },
    });
    world.queue("owner", "4", strict).await?;
    queue(world, "borrower", "cohort", quota("0", None, None)).await?;
    world.class("high", 10).await?;
    let running = world.job("running", "borrower", "3", world.priority("high")).await?;
    world.shows(&running, &ADMITTED).await?;
    world.runs("running").await?;
    let owed = world.job("owed", "owner", "4", json!({})).await?;
    let waiting = world.shows(&owed, &WAITS).await?;
    let why = message(&waiting, "QuotaReserved");
    assert!(why.ends_with("insufficient unused quota for cpu in flavor default, 3 more needed"), "{why}");
    let late = world.job("late", "borrower", "1", json!({})).await?;
    let waiting = world.shows(&late, &WAITS).await?;
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        "Workload no longer fits after processing another workload"
    );
    world.delete("Job", "owed").await?;
    world.shows(&late, &ADMITTED).await?;
    Ok(())
}

/// CO-4, CQ-6: who waits in a queue whose cohorts become their own parents is told that the queue does nothing, and gets in
/// when the circle is broken.
pub(super) async fn co_4_told_of_a_circle(world: &World) -> anyhow::Result<()> {
    world.create(cohort(world, "one", Some("two"), None)).await?;
    world.create(cohort(world, "two", None, None)).await?;
    let queue = queue(world, "a", "one", quota("1", None, None)).await?;
    let closes = json!({ "spec": { "parentName": world.name_of("one") } });
    world.patch("Cohort", &world.name_of("two"), closes).await?;
    let workload = world.job("job", "a", "1", json!({})).await?;
    let waiting = world.shows(&workload, &WAITS).await?;
    assert_eq!(message(&waiting, "QuotaReserved"), format!("ClusterQueue {queue} is inactive"));
    world.patch("Cohort", &world.name_of("two"), json!({ "spec": { "parentName": null } })).await?;
    world.shows(&workload, &ADMITTED).await?;
    Ok(())
}
