//! What LocalQueues used, as the admission loop keeps it where use decides who comes first (QU-20 to QU-23).
//!
//! Without `admissionFairSharing` in the configuration nothing of this is kept.

use jiff::Timestamp;
use reconcile::Key;
use rules::{
    quota::{
        cycle::Undeclared,
        ledger::Fate,
        names::{ClusterQueueName, LocalQueueKey, WorkloadKey},
        requests::List,
        usage::{self, Settings, Usage},
        wire,
        workload::{Reservation, Workload as Asking},
    },
    workload::is_admitted,
};
use types::kueue::Workload;

use super::State;
use crate::Context;

/// What a LocalQueue used, for whoever shows it.
pub(crate) struct Sample {
    /// As one number, with what those count that are not admitted yet.
    pub(crate) usage: Usage,
    /// What it used, if it is time to write that down.
    pub(crate) consumed: Option<List>,
    /// When it is time again.
    pub(crate) again_at: Timestamp,
}

impl Context {
    /// What a LocalQueue used, if that is kept at all. Who comes first may change by it.
    pub(crate) fn sample_usage(&self, key: &Key, now: Timestamp) -> Option<Sample> {
        let settings = self.settings.quota.by_usage.as_ref()?;
        let mut state = self.admission.state();
        let queue = queue_key(key);
        state.local_queue_changed(self, key, now);
        let due = state.ledger.due(&queue, settings)?;
        if now < due {
            let usage = state.ledger.usage(&queue, settings)?;
            return Some(Sample { usage, consumed: None, again_at: due });
        }
        let consumed = state.ledger.sample(&queue, settings, now);
        let usage = state.ledger.usage(&queue, settings)?;
        let reordered = state.weigh(self, &queue, settings);
        drop(state);
        if reordered {
            self.work.inbox.note(|_| {});
        }
        let again_at = now.saturating_add(settings.interval).unwrap_or(Timestamp::MAX);
        Some(Sample { usage, consumed, again_at })
    }

    /// What a LocalQueue used is written down.
    pub(crate) fn usage_shown(&self, key: &Key, at: Timestamp) {
        self.admission.state().ledger.shown(&queue_key(key), at);
    }
}

impl State {
    /// Takes in that a LocalQueue came, changed or went.
    pub(super) fn local_queue_changed(&mut self, context: &Context, key: &Key, now: Timestamp) {
        let Some(settings) = &context.settings.quota.by_usage else { return };
        let queue = queue_key(key);
        match context.caches.local_queues.get(key) {
            Some(object) => self.ledger.open(&queue, wire::opening(&object), now),
            None => self.ledger.close(&queue),
        }
        self.weigh(context, &queue, settings);
    }

    /// Takes in how a Workload stands: what it holds counts as used if it may run, and its penalty becomes use when it is
    /// admitted. If that will not be, the penalty is dropped (QU-22).
    pub(super) fn account(
        &mut self,
        context: &Context,
        key: &WorkloadKey,
        object: Option<&Workload>,
        held: Option<&Reservation>,
        now: Timestamp,
    ) {
        let Some(settings) = &context.settings.quota.by_usage else { return };
        match held.filter(|_| object.is_some_and(is_admitted)) {
            Some(held) => {
                let used = usage::list(held.usage.iter().map(|(fr, amount)| (&fr.resource, *amount)));
                self.ledger.hold(key, &held.local_queue, used);
            }
            None => self.ledger.release(key),
        }
        let Some(penalized) = self.ledger.penalized(key) else { return };
        let changed = match wire::fate(object, penalized, |queue| self.goes_by_usage(&queue.into())) {
            Fate::Pending => None,
            Fate::Settled => self.ledger.settle(key, settings, now),
            Fate::Dropped => self.ledger.spare(key),
        };
        if let Some(queue) = changed {
            self.weigh(context, &queue, settings);
        }
    }

    /// A Workload gets in: it counts as used at once, as far as is counted what it asks for (QU-22).
    pub(super) fn penalize(&mut self, context: &Context, workload: &Asking, into: &ClusterQueueName) {
        let Some(settings) = &context.settings.quota.by_usage else { return };
        let Some(queue) = self.snapshot.queue(into).filter(|queue| queue.config.by_usage) else { return };
        let every = context.settings.quota.undeclared == Undeclared::Block;
        let mut requests = workload.total_requests();
        requests.retain(|resource, _| every || queue.config.group_of(resource).is_some());
        let requests = usage::list(requests.iter().map(|(resource, amount)| (resource, *amount)));
        self.ledger.penalize(&workload.key, &workload.local_queue, &requests, settings);
        self.weigh(context, &workload.local_queue, settings);
    }

    /// A Workload did not get in after all.
    pub(super) fn spare(&mut self, context: &Context, key: &WorkloadKey) {
        let Some(settings) = &context.settings.quota.by_usage else { return };
        if let Some(queue) = self.ledger.spare(key) {
            self.weigh(context, &queue, settings);
        }
    }

    /// Lets count what a LocalQueue used. Says whether others may come first by that.
    fn weigh(&mut self, context: &Context, key: &LocalQueueKey, settings: &Settings) -> bool {
        let usage = self.ledger.usage(key, settings);
        let news = self.snapshot.set_usage(key, usage);
        let object = context.caches.local_queues.get(&Key::new(&*key.namespace, &*key.name));
        let leads_to = object.map(|object| ClusterQueueName::from(object.spec.cluster_queue.as_str()));
        let Some(leads_to) = leads_to else {
            self.queues.values_mut().for_each(|queue| queue.set_usage(key, None));
            return false;
        };
        if let Some(queue) = self.queues.get_mut(&leads_to) {
            queue.set_usage(key, usage);
        }
        let reorders = news && self.goes_by_usage(&leads_to);
        self.changed |= reorders;
        reorders
    }

    fn goes_by_usage(&self, queue: &ClusterQueueName) -> bool {
        self.snapshot.queue(queue).is_some_and(|queue| queue.config.by_usage)
    }
}

fn queue_key(key: &Key) -> LocalQueueKey {
    LocalQueueKey::new(&key.namespace, &key.name)
}
