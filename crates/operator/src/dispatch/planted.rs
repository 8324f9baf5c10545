//! Bugs, planted to see whether the simulation finds them. Not built into what ships.

use jiff::Timestamp;
use rules::dispatch::{ORIGIN_UID, Observed, PREBUILT_WORKLOAD, Plan, Step, adapter, plan::Pods};
use std::sync::Arc;

/// A bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Planted {
    /// What has ended on a worker is removed there, whether its end was recorded or not.
    CleansUpFirst,
    /// What a watch has not told of is taken not to be there.
    TrustsAStaleWatch,
    /// An object is taken for that of an earlier one of its name.
    IgnoresUids,
}

/// What is seen with a bug.
pub(super) fn seen(planted: Option<Planted>, seen: &mut Observed, now: Timestamp) {
    let name = seen.local.as_deref().and_then(|local| local.metadata.name.clone());
    for remote in seen.remotes.values_mut() {
        match planted {
            Some(Planted::TrustsAStaleWatch) => remote.read_at = Some(now),
            Some(Planted::IgnoresUids) => {
                let (Some(job), Some(name)) = (&mut remote.job, &name) else { continue };
                let annotations = Arc::make_mut(job).metadata.annotations.get_or_insert_default();
                annotations.remove(ORIGIN_UID);
                annotations.insert(PREBUILT_WORKLOAD.to_owned(), name.clone());
            }
            Some(Planted::CleansUpFirst) | None => {}
        }
    }
}

/// What is planned with a bug.
pub(super) fn plan(planted: Option<Planted>, seen: &Observed, plan: &mut Plan) {
    if planted != Some(Planted::CleansUpFirst) {
        return;
    }
    for (cluster, remote) in seen.connected() {
        if remote.job.as_deref().is_some_and(|mirror| adapter::job().is_finished(&mirror.data)) {
            plan.steps.push(Step::Delete(cluster.clone(), Pods::After));
        }
    }
}
