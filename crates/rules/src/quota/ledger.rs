//! The books of what LocalQueues used: one account for each, with what those may run hold now.
//!
//! What a restart may not forget is in the status of the LocalQueues, from which accounts are opened (SM-43). Penalties of
//! those that are not admitted yet are forgotten.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::{
    names::{LocalQueueKey, WorkloadKey},
    requests::List,
    usage::{Settings, Usage, less, sum},
};

/// What all LocalQueues used.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    accounts: BTreeMap<LocalQueueKey, Account>,
    /// In which account each penalty is that does not count as used yet.
    penalized: HashMap<WorkloadKey, LocalQueueKey>,
    /// What those hold together that came by a LocalQueue and may run.
    held: BTreeMap<LocalQueueKey, List>,
    /// What each of them holds.
    holders: HashMap<WorkloadKey, (LocalQueueKey, List)>,
}

/// What one LocalQueue used.
#[derive(Debug, Clone)]
struct Account {
    /// Which object it is about.
    uid: String,
    weight: f64,
    /// What it used, faded.
    consumed: List,
    /// As of when.
    as_of: Timestamp,
    /// When that was last written down.
    shown_at: Option<Timestamp>,
    /// What those count that got in and are not admitted yet.
    penalties: BTreeMap<WorkloadKey, List>,
    /// The same together.
    pending: List,
}

/// What becomes of the penalty of a Workload (QU-22).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is as it was: the Workload may still be admitted.
    Pending,
    /// It becomes use: the Workload is admitted.
    Settled,
    /// It is dropped: the Workload will not be admitted, or nobody asks what it uses.
    Dropped,
}

/// How a LocalQueue begins: as its object says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Opening {
    /// Which object it is.
    pub uid: String,
    /// Its weight.
    pub weight: f64,
    /// What it used, as was written down last.
    pub consumed: List,
    /// When that was.
    pub shown_at: Option<Timestamp>,
}

impl Account {
    fn drop_penalty(&mut self, workload: &WorkloadKey) -> List {
        let penalty = self.penalties.remove(workload).unwrap_or_default();
        self.pending = less(&self.pending, &penalty);
        penalty
    }

    /// Lets use fade until now. Time does not run backwards, whatever clocks say.
    fn fade(&mut self, held: &List, settings: &Settings, now: Timestamp) {
        let elapsed = now.duration_since(self.as_of).max(SignedDuration::ZERO);
        self.consumed = settings.faded(&self.consumed, held, elapsed);
        self.as_of = self.as_of.max(now);
    }
}

impl Ledger {
    /// Whether there is an account for this object.
    pub fn knows(&self, queue: &LocalQueueKey, uid: &str) -> bool {
        self.accounts.get(queue).is_some_and(|account| account.uid == uid)
    }

    /// Opens the account of a LocalQueue, or takes note of its weight. What happened before it was opened is not counted: use
    /// that was written down counts from now on. Another object of the same name begins anew.
    pub fn open(&mut self, queue: &LocalQueueKey, opening: Opening, now: Timestamp) {
        let Opening { uid, weight, consumed, shown_at } = opening;
        if self.knows(queue, &uid) {
            if let Some(account) = self.accounts.get_mut(queue) {
                account.weight = weight;
            }
            return;
        }
        self.close(queue);
        let (penalties, pending) = (BTreeMap::new(), List::new());
        let account = Account { uid, weight, consumed, as_of: now, shown_at, penalties, pending };
        self.accounts.insert(queue.clone(), account);
    }

    /// Forgets what a LocalQueue used that is gone. Those who run hold what they hold.
    pub fn close(&mut self, queue: &LocalQueueKey) {
        if let Some(account) = self.accounts.remove(queue) {
            account.penalties.keys().for_each(|workload| drop(self.penalized.remove(workload)));
        }
    }

    /// A Workload may run and holds this, in place of what it held before.
    pub fn hold(&mut self, workload: &WorkloadKey, queue: &LocalQueueKey, amounts: List) {
        if self.holders.get(workload).is_some_and(|(at, held)| at == queue && *held == amounts) {
            return;
        }
        self.release(workload);
        let held = self.held.entry(queue.clone()).or_default();
        *held = sum(held, &amounts);
        self.holders.insert(workload.clone(), (queue.clone(), amounts));
    }

    /// A Workload holds nothing any more, or may not run.
    pub fn release(&mut self, workload: &WorkloadKey) {
        let Some((queue, amounts)) = self.holders.remove(workload) else { return };
        let Some(held) = self.held.get_mut(&queue) else { return };
        *held = less(held, &amounts);
        if held.is_empty() {
            self.held.remove(&queue);
        }
    }

    /// A Workload got in that asks for this: it counts at once, and once (QU-22).
    pub fn penalize(
        &mut self,
        workload: &WorkloadKey,
        queue: &LocalQueueKey,
        requests: &List,
        settings: &Settings,
    ) {
        self.spare(workload);
        let Some(account) = self.accounts.get_mut(queue) else { return };
        let penalty = settings.penalty(requests);
        account.pending = sum(&account.pending, &penalty);
        account.penalties.insert(workload.clone(), penalty);
        self.penalized.insert(workload.clone(), queue.clone());
    }

    /// The LocalQueue in whose account there is a penalty of a Workload.
    pub fn penalized(&self, workload: &WorkloadKey) -> Option<&LocalQueueKey> {
        self.penalized.get(workload)
    }

    /// Takes back the penalty of a Workload that did not get in after all, or will not use anything. Returns whose it was.
    pub fn spare(&mut self, workload: &WorkloadKey) -> Option<LocalQueueKey> {
        let queue = self.penalized.remove(workload)?;
        self.accounts.get_mut(&queue)?.drop_penalty(workload);
        Some(queue)
    }

    /// A Workload is admitted: its penalty counts as used. Returns whose it was.
    pub fn settle(
        &mut self,
        workload: &WorkloadKey,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<LocalQueueKey> {
        let queue = self.penalized.remove(workload)?;
        let account = self.accounts.get_mut(&queue)?;
        account.fade(self.held.get(&queue).unwrap_or(&List::new()), settings, now);
        let penalty = account.drop_penalty(workload);
        account.consumed = sum(&account.consumed, &penalty);
        Some(queue)
    }

    /// What a LocalQueue used until now, to be written down (QU-21).
    pub fn sample(&mut self, queue: &LocalQueueKey, settings: &Settings, now: Timestamp) -> Option<List> {
        let account = self.accounts.get_mut(queue)?;
        account.fade(self.held.get(queue).unwrap_or(&List::new()), settings, now);
        Some(account.consumed.clone())
    }

    /// What a LocalQueue used is written down.
    pub fn shown(&mut self, queue: &LocalQueueKey, at: Timestamp) {
        if let Some(account) = self.accounts.get_mut(queue) {
            account.shown_at = Some(at);
        }
    }

    /// When it is to be written down next; `None` where there is nothing to write down.
    pub fn due(&self, queue: &LocalQueueKey, settings: &Settings) -> Option<Timestamp> {
        let account = self.accounts.get(queue)?;
        let Some(shown_at) = account.shown_at else { return Some(account.as_of) };
        Some(shown_at.saturating_add(settings.interval).unwrap_or(Timestamp::MAX))
    }

    /// What a LocalQueue used, with what those count that are not admitted yet, as one number (QU-20).
    pub fn usage(&self, queue: &LocalQueueKey, settings: &Settings) -> Option<Usage> {
        let account = self.accounts.get(queue)?;
        Some(settings.usage(&sum(&account.consumed, &account.pending), account.weight))
    }
}
