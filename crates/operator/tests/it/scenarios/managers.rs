//! Under whose names a Workload is written: whoever comes after another takes back what that one wrote, and no more.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::World;
use crate::world::suspended;

/// What of the status was applied, by its manager: fields, and conditions by their type.
type Applied = BTreeMap<String, BTreeSet<String>>;
/// The same of one manager, as it is to be.
type Written = (&'static str, &'static [&'static str]);

const QUOTA: Written = ("kueue-admission", &["admission", "Admitted", "QuotaReserved"]);
const END: Written = ("kueue-admission", &["admission", "Admitted", "Finished", "QuotaReserved"]);
const READY: Written = ("kueue-job-controller-PodsReady", &["PodsReady"]);
const DONE: Written = ("kueue-reclaimable-pods", &["reclaimablePods"]);

/// SM-14, JF-60, JF-63, G-19: quota and all that belongs to it, whether pods are ready and which are done are applied to the
/// status, each under a name of its own, and nothing of it is written in another way.
pub(super) async fn sm_14_names_under_which_is_written(world: &World) -> anyhow::Result<()> {
    world.queue("a", "3", json!({})).await?;
    let plain = world.job("plain", "a", "1", json!({})).await?;
    world.runs("plain").await?;
    let started = world.workload(&plain, "started", is_started).await?;
    assert_eq!(applied(&started), names(&[QUOTA, READY]));
    world.completes("plain").await?;
    let finished = world.workload(&plain, "finished", rules::workload::is_finished).await?;
    assert_eq!(applied(&finished), names(&[END, READY]));

    let both = json!({ "spec": { "parallelism": 2, "completions": 2 } });
    let workload = world.job("both", "a", "1", both).await?;
    world.sees_job("both", "started", |job| !suspended(job)).await?;
    let now = Timestamp::now().to_string();
    world.patch_status("Job", "both", json!({ "active": 2, "ready": 2, "startTime": now })).await?;
    world.workload(&workload, "started", is_started).await?;
    let half = json!({ "active": 1, "ready": 1, "succeeded": 1, "uncountedTerminatedPods": {} });
    world.patch_status("Job", "both", half).await?;
    let has_less = |it: &Workload| it.status.as_ref().is_some_and(|it| !it.reclaimable_pods.is_empty());
    let less = world.workload(&workload, "reclaimed from", has_less).await?;
    assert_eq!(applied(&less), names(&[QUOTA, READY, DONE]));
    Ok(())
}

fn is_started(workload: &Workload) -> bool {
    rules::workload::state::find(workload, "PodsReady").is_some_and(|it| it.reason == "Started")
}

fn names(names: &[Written]) -> Applied {
    let one = |(manager, fields): &Written| {
        ((*manager).to_owned(), fields.iter().map(|field| (*field).to_owned()).collect())
    };
    names.iter().map(one).collect()
}

/// What was applied to the status of a Workload, and by whom. Who wrote it in another way is there with all of it.
fn applied(workload: &Workload) -> Applied {
    let of_status = workload.metadata.managed_fields.iter().flatten();
    let of_status = of_status.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let mut applied = Applied::new();
    for entry in of_status {
        let manager = entry.manager.clone().unwrap_or_default();
        let manager = match entry.operation.as_deref() {
            Some("Apply") => manager,
            other => format!("{manager} by {}", other.unwrap_or_default()),
        };
        let fields = entry.fields_v1.as_ref().map(|fields| fields.0["f:status"].clone()).unwrap_or_default();
        applied.entry(manager).or_default().extend(fields_of(&fields));
    }
    // Whoever gives quota repeats what was said of the pods by then.
    if let Some(fields) = applied.get_mut(QUOTA.0) {
        fields.remove("PodsReady");
    }
    applied
}

fn fields_of(status: &Value) -> BTreeSet<String> {
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let mut fields = BTreeSet::new();
    for field in keys(status) {
        if field != "f:conditions" {
            fields.insert(field.trim_start_matches("f:").to_owned());
            continue;
        }
        // Each is a key like `k:{"type":"Admitted"}`.
        let of_type = |key: &String| {
            let key: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
            Some(key["type"].as_str()?.to_owned())
        };
        fields.extend(keys(&status[&field]).iter().filter_map(of_type));
    }
    fields
}
