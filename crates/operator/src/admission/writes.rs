//! Writing what the admission loop decided, one Workload at a time.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;
use reconcile::{Key, Next};
use rules::{
    dispatch::local,
    quota::{
        names::{ClusterQueueName, WorkloadKey},
        plan::Victim,
    },
    workload::{
        self as life,
        change::{self, Eviction},
        checks,
        patch::Manner,
        plan::{Event, whole_seconds},
        reason, slice, state,
    },
};
use tokio::time::Instant;
use tracing::{debug, info};
use types::kueue::{Admission, PodSetRequest, Workload};

use super::{BEHIND, LEISURE};
use crate::{
    Context, Error,
    error::{is_not_found, is_outdated},
    events::ADMISSION,
};

/// What was decided about a Workload.
pub(super) enum Intent {
    /// It gets in.
    Admit {
        /// Which object was meant.
        uid: String,
        /// With this.
        admission: Admission,
        /// Which flavors it could not simply have.
        considered: String,
        /// Since when.
        at: Timestamp,
    },
    /// It waits.
    Wait(Verdict),
    /// It has to go.
    Evict {
        /// Who, and why.
        victim: Victim,
        /// For whom.
        by: WorkloadKey,
        /// Into which queue that one wants.
        into: ClusterQueueName,
    },
}

/// Why a Workload waits.
pub(super) struct Verdict {
    /// Which object was meant.
    pub(super) uid: String,
    /// The reason of its condition.
    pub(super) reason: &'static str,
    /// The same in words.
    pub(super) message: String,
    /// What it asks for.
    pub(super) requests: Vec<PodSetRequest>,
    /// Since when there is something to be said.
    pub(super) since: Instant,
}

impl Context {
    /// Writes what was decided about a Workload, in the order in which it was decided.
    pub(super) async fn write_intents(self: Arc<Self>, key: Key) -> Result<Next, Error> {
        while let Some(intent) = self.admission.next_intent(&key) {
            let workload = self.caches.workloads.get(&key);
            match intent {
                Intent::Admit { uid, admission, considered, at } => {
                    self.admit(&key, workload, &uid, (admission, &considered), at).await;
                    self.admission.pressing.fetch_sub(1, Ordering::Relaxed);
                }
                Intent::Wait(verdict) if !self.admission.is_due(&verdict) => {
                    self.admission.still_intend(&key, Intent::Wait(verdict));
                    return Ok(Next::After(LEISURE));
                }
                Intent::Wait(verdict) => {
                    if let Some(verdict) = self.keep_waiting(&key, workload, verdict).await? {
                        // The cache is behind. Unless something else is decided meanwhile, it is still to be said.
                        self.admission.still_intend(&key, Intent::Wait(verdict));
                        return Ok(Next::After(BEHIND));
                    }
                }
                Intent::Evict { victim, by, into } => {
                    self.evict(&key, workload, &victim, &by, &into).await;
                    self.admission.pressing.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Ok(Next::Done)
    }

    /// Writes that a Workload gets in, since it was decided (SM-10). Its checks are listed with it, and to which clusters
    /// it is offered, so that one write does.
    async fn admit(
        &self,
        key: &Key,
        workload: Option<Arc<Workload>>,
        uid: &str,
        (admission, considered): (Admission, &str),
        now: Timestamp,
    ) {
        let meant = workload.filter(|workload| {
            workload.metadata.uid.as_deref() == Some(uid) && life::is_admissible(workload)
        });
        // The cache knows more than whoever decided. What it knows is decided next.
        let Some(workload) = meant else { return self.take_back(key, Duration::ZERO) };
        let replaced = slice::replaces(&workload)
            .and_then(|name| self.caches.workloads.get(&Key::new(key.namespace.as_str(), name)))
            .filter(|slice| !life::is_finished(slice));
        if replaced.as_ref().is_some_and(|slice| !life::has_quota(slice) || life::is_evicted(slice)) {
            return self.take_back(key, BEHIND);
        }
        let cluster_queue = admission.cluster_queue.clone();
        let mut next = Workload::clone(&workload);
        let required = self.caches.cluster_queue(&cluster_queue);
        let required = required.map(|queue| checks::required(&queue, Some(&admission))).unwrap_or_default();
        change::reserve(&mut next, admission, now);
        if let Some(listed) = checks::synced(state::checks(&next), &required, now) {
            next.status.get_or_insert_default().admission_checks = listed;
        }
        change::sync_admitted(&mut next, now);
        if let Some(slice) = &replaced {
            local::follow(&mut next, slice, now);
        }
        let next = self.dispatch.offered(next);
        let status = next.status.clone().unwrap_or_default();
        // That a slice is of no use any more is not to be overwritten.
        let manner = if replaced.is_some() { Manner::Strict } else { Manner::Loose };
        let answer = match self.apply_admission(&workload, &status, manner).await {
            Ok(answer) => answer,
            Err(error) => return self.refused(key, "an admission", &error),
        };
        self.written(key);
        info!(workload = %key, %cluster_queue, "quota reserved");
        let waited = queued_for(&next, now);
        let considered =
            if considered.is_empty() { String::new() } else { format!("; Flavors considered: {considered}") };
        let message = format!(
            "Quota reserved in ClusterQueue {cluster_queue}, wait time since queued was {waited}s{considered}"
        );
        self.recorder.tell(ADMISSION, &answer, &Event::normal("QuotaReserved", &message));
        self.metrics.quota_reserved(&cluster_queue, &answer, now);
        if life::is_admitted(&answer) {
            let message =
                format!("Admitted by ClusterQueue {cluster_queue}, wait time since reservation was 0s");
            self.recorder.tell(ADMISSION, &answer, &Event::normal("Admitted", &message));
            self.metrics.admitted(&cluster_queue, &answer, now);
        }
    }

    /// Writes why a Workload waits, if that is news (SM-13). Returns what could not be said because the Workload changed
    /// since it was read.
    async fn keep_waiting(
        &self,
        key: &Key,
        workload: Option<Arc<Workload>>,
        verdict: Verdict,
    ) -> Result<Option<Verdict>, Error> {
        let meant = workload.filter(|workload| {
            workload.metadata.uid.as_deref() == Some(verdict.uid.as_str()) && life::is_admissible(workload)
        });
        let Some(workload) = meant else { return Ok(None) };
        let now = self.clock.now();
        let mut next = Workload::clone(&workload);
        let mut changed = change::unreserve(&mut next, verdict.reason, &verdict.message, now);
        let status = next.status.get_or_insert_default();
        if status.resource_requests != verdict.requests {
            status.resource_requests.clone_from(&verdict.requests);
            changed = true;
        }
        if !changed {
            return Ok(None);
        }
        // Its checks are listed with it, so that nobody writes once more for that (AC-4).
        let local_queue = self.caches.local_queue_of(&workload);
        let cluster_queue =
            local_queue.and_then(|queue| self.caches.cluster_queue(&queue.spec.cluster_queue));
        let required = cluster_queue.map(|queue| checks::required(&queue, None));
        if let Some(listed) = required.and_then(|it| checks::synced(&status.admission_checks, &it, now)) {
            status.admission_checks = listed;
        }
        let status = status.clone();
        match self.apply_admission(&workload, &status, Manner::Strict).await {
            Ok(answer) => {
                self.recorder.tell(ADMISSION, &answer, &Event::warning(verdict.reason, &verdict.message));
                debug!(workload = %key, message = %verdict.message, "waits");
                Ok(None)
            }
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) if is_outdated(&error) => Ok(Some(verdict)),
            Err(source) => {
                // It is tried again, and then there has to be something to say.
                self.admission.still_intend(key, Intent::Wait(verdict));
                let source = Box::new(source);
                Err(Error::Workload { doing: "write the status of", workload: key.clone(), source })
            }
        }
    }

    /// Writes that a Workload has to go for another (SM-20, PR-9).
    async fn evict(
        &self,
        key: &Key,
        workload: Option<Arc<Workload>>,
        victim: &Victim,
        by: &WorkloadKey,
        into: &ClusterQueueName,
    ) {
        let holds = workload.filter(|workload| life::has_quota(workload) && !life::is_evicted(workload));
        let Some(workload) = holds else { return self.take_back(key, Duration::ZERO) };
        let now = self.clock.now();
        let eviction =
            Eviction { reason: reason::PREEMPTED, cause: String::new(), message: victim.message.clone() };
        let mut next = Workload::clone(&workload);
        change::preempted(&mut next, victim.reason.as_str(), &victim.message, now);
        let first = change::evict(&mut next, &eviction, now);
        let status = next.status.clone().unwrap_or_default();
        // Not over what was written meanwhile: that a worker may run it must not be forgotten.
        let answer = match self.apply_admission(&workload, &status, Manner::Strict).await {
            Ok(answer) => answer,
            Err(error) => return self.refused(key, "an eviction", &error),
        };
        info!(workload = %key, preemptor = %by, reason = victim.reason.as_str(), "preempted");
        self.recorder.tell(ADMISSION, &answer, &Event::normal(eviction.event_reason(), &eviction.message));
        let preemptor = self.caches.workloads.get(&super::key_of(by));
        let priorities = preemptor.as_ref().map(|by| priorities(by, &workload)).unwrap_or_default();
        let message = format!("{}{priorities}", victim.message);
        self.recorder.tell(ADMISSION, &answer, &Event::normal("Preempted", &message));
        let from = &victim.cluster_queue;
        self.metrics.evicted(from.as_str(), &answer, &eviction, first);
        self.metrics.preempted(into.as_str(), victim.reason.as_str());
        if let Some(preemptor) = preemptor {
            let uid = workload.metadata.uid.as_deref().unwrap_or_default();
            let message = format!("Preempted workload {key} (UID: {uid}) in ClusterQueue {from}{priorities}");
            self.recorder.tell(ADMISSION, &*preemptor, &Event::normal("PreemptedWorkload", &message));
        }
    }
}

/// How important two Workloads are, as events tell it. Nothing adds to a priority here.
fn priorities(preemptor: &Workload, preemptee: &Workload) -> String {
    let of = |workload: &Workload| {
        let priority = workload.spec.priority.unwrap_or(0);
        format!("effective priority: {priority} (base: {priority}, boost: 0)")
    };
    format!("; preemptor {}; preemptee {}", of(preemptor), of(preemptee))
}

/// How many seconds a Workload queued.
fn queued_for(workload: &Workload, now: Timestamp) -> String {
    let created = workload.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let requeued = state::find(workload, life::REQUEUED).map(|it| it.last_transition_time.0);
    whole_seconds(requeued.or(created).unwrap_or(now), now)
}
