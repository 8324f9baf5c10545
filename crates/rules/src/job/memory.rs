//! What the Job controller remembers between two decisions, because its view of the cluster lags behind its writes.
//!
//! None of it is needed to be right in the end: a controller that starts anew remembers nothing, and the worst is a
//! replacement that comes without delay. It is kept per Job uid, so that a Job re-created under the same name starts
//! afresh (J-05, J-10).

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;

use super::backoff::Backoff;
use super::plan::{Fate, PodStep};
use super::pods::{PodRef, has_tracking_finalizer};

/// After this time a creation or deletion that was never seen is not waited for any more.
const EXPECTATIONS_EXPIRE: SignedDuration = SignedDuration::from_mins(5);

/// What the controller remembers of one Job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The failures that delay the next pod.
    pub backoff: Backoff,
    /// The terminal status was written; the Job may not show it yet (J-13).
    pub finished: bool,
    expectations: Expectations,
    /// Pods whose finalizer was taken off; they may still show it.
    released: BTreeSet<String>,
}

/// Writes whose result was not seen yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Expectations {
    creations: i64,
    deletions: i64,
    since: Option<Timestamp>,
}

/// Something the controller saw of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is new.
    Added,
    /// It has changed.
    Updated,
    /// It is gone.
    Deleted,
}

impl Memory {
    /// Until when to wait for writes to be seen; `None` when all were.
    pub(crate) fn up_to_date_at(&self) -> Option<Timestamp> {
        let Expectations { creations, deletions, since } = self.expectations;
        let since = since.filter(|_| creations > 0 || deletions > 0)?;
        Some(since.checked_add(EXPECTATIONS_EXPIRE).unwrap_or(Timestamp::MAX))
    }

    /// Whether the pod's finalizer is off, whatever the pod shows.
    pub(crate) fn has_released(&self, uid: &str) -> bool {
        self.released.contains(uid)
    }

    /// To be called before a pod step is carried out. Deletions that leave the finalizer are not expected: such a pod
    /// stays visible until it is counted.
    pub fn begin(&mut self, step: &PodStep, now: Timestamp) {
        let count = i64::try_from(step.len()).unwrap_or(i64::MAX);
        match step {
            PodStep::Create(_) => {
                self.expectations = Expectations { creations: count, deletions: 0, since: Some(now) };
            }
            PodStep::Remove(_) => {
                self.expectations = Expectations { creations: 0, deletions: count, since: Some(now) };
            }
            PodStep::Nothing | PodStep::End(_) | PodStep::Refuse(_) => {}
        }
    }

    /// To be called once a pod step was carried out: what did not happen will not be seen.
    pub fn end(&mut self, step: &PodStep, fates: &[Fate]) {
        let unseen = fates.iter().filter(|fate| **fate != Fate::Done).count();
        let unseen = i64::try_from(unseen).unwrap_or(i64::MAX);
        match step {
            PodStep::Create(_) => self.expectations.creations -= unseen,
            PodStep::Remove(_) => self.expectations.deletions -= unseen,
            PodStep::Nothing | PodStep::End(_) | PodStep::Refuse(_) => {}
        }
    }

    /// To be called before finalizers are taken off.
    pub fn begin_release(&mut self, pods: &[PodRef]) {
        self.released.extend(pods.iter().map(|pod| pod.uid.clone()));
    }

    /// To be called once finalizers were taken off: where it failed, no change will be seen. A pod that was gone is
    /// still remembered, because it may be seen for a while, finalizer and all, and must not be counted again.
    pub fn end_release(&mut self, pods: &[PodRef], fates: &[Fate]) {
        for (pod, fate) in pods.iter().zip(fates) {
            if !fate.is_past() {
                self.released.remove(&pod.uid);
            }
        }
    }

    /// To be called when a pod of the Job is seen to change (J-06). A pod that is being deleted counts as deleted.
    pub fn observe(&mut self, seen: Seen, pod: &Pod) {
        let deleting = pod.metadata.deletion_timestamp.is_some();
        if seen == Seen::Added {
            self.expectations.creations -= 1;
        }
        if seen == Seen::Deleted || deleting {
            self.expectations.deletions -= 1;
        }
        if (seen == Seen::Deleted || !has_tracking_finalizer(pod))
            && let Some(uid) = &pod.metadata.uid
        {
            self.released.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(uid: &str, deleting: bool, finalizer: bool) -> Pod {
        let finalizers = if finalizer { vec![super::super::pods::TRACKING_FINALIZER] } else { vec![] };
        let deleted = deleting.then(|| at(0).to_string());
        serde_json::from_value(
            json!({"metadata": {"uid": uid, "deletionTimestamp": deleted, "finalizers": finalizers}}),
        )
        .unwrap()
    }

    fn refs(uids: &[&str]) -> Vec<PodRef> {
        uids.iter().map(|uid| PodRef { name: (*uid).to_owned(), uid: (*uid).to_owned() }).collect()
    }

    #[test]
    fn j_06_creations_are_waited_for() {
        let mut memory = Memory::default();
        assert!(memory.up_to_date_at().is_none());
        let step = PodStep::Create(vec![Pod::default(); 4]);
        memory.begin(&step, at(0));
        assert!(memory.up_to_date_at().is_some());
        memory.end(&step, &[Fate::Done, Fate::Failed, Fate::Done, Fate::Skipped]);
        memory.observe(Seen::Added, &pod("a", false, true));
        memory.observe(Seen::Updated, &pod("a", false, true));
        assert!(memory.up_to_date_at().is_some(), "one of two was seen");
        memory.observe(Seen::Added, &pod("b", true, true));
        assert!(memory.up_to_date_at().is_none());
    }

    #[test]
    fn j_06_a_pod_seen_deleting_counts_as_deleted() {
        let mut memory = Memory::default();
        let step = PodStep::Remove(refs(&["a", "b", "c"]));
        memory.begin(&step, at(0));
        memory.end(&step, &[Fate::Done, Fate::Done, Fate::Gone]);
        memory.observe(Seen::Updated, &pod("a", true, false));
        assert!(memory.up_to_date_at().is_some());
        memory.observe(Seen::Deleted, &pod("b", true, false));
        assert!(memory.up_to_date_at().is_none());
        memory.begin(&PodStep::End(refs(&["d"])), at(0));
        assert!(memory.up_to_date_at().is_none(), "deletions that leave the finalizer are not waited for");
    }

    #[test]
    fn expectations_expire_after_five_minutes() {
        let mut memory = Memory::default();
        memory.begin(&PodStep::Create(vec![Pod::default()]), at(100));
        assert_eq!(memory.up_to_date_at(), Some(at(400)));
    }

    #[test]
    fn released_pods_are_known_until_they_show_it() {
        let mut memory = Memory::default();
        let pods = refs(&["a", "b", "c", "d"]);
        memory.begin_release(&pods);
        assert!(memory.has_released("a"));
        memory.end_release(&pods, &[Fate::Done, Fate::Failed, Fate::Gone, Fate::Done]);
        assert_eq!(memory.released, ["a", "c", "d"].map(str::to_owned).into());
        memory.observe(Seen::Deleted, &pod("c", false, true));
        memory.observe(Seen::Updated, &pod("a", false, true));
        assert!(memory.has_released("a"), "an older state of the pod");
        memory.observe(Seen::Updated, &pod("a", false, false));
        memory.observe(Seen::Deleted, &pod("d", true, true));
        assert!(memory.released.is_empty());
    }
}
