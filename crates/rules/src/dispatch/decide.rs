//! What to do about one Workload.

use jiff::{SignedDuration, Timestamp};
use kube_core::DynamicObject;
use types::kueue::{CheckState, Workload};

use super::{
    ADMITTED, Adapter, Because, Check, ClusterName, DEACTIVATION_TARGET, Dispatcher, EVICTED, FINISHED, Link,
    ORIGIN_UID, Observed, Owner, Plan, REPLACEMENT_FOR, Remote, Step, adapter, condition,
    drift::Drift,
    forward, group, mirror,
    nominate::can_be_asked,
    observed::{annotation, has_quota, held, held_identity, is_elastic, is_evicted, is_finished, link},
    plan::Pods,
    same,
};
use crate::workload::slice::REPLACED;

/// What a decision may depend on besides what was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// How clusters are chosen.
    pub dispatcher: Dispatcher,
    /// How long a cluster that holds a job may be out of reach before the job is started elsewhere. Pods that still run
    /// there run twice then; without a value, and by default, nothing is started elsewhere until the cluster is back or
    /// its administrator gives it up.
    pub worker_lost_timeout: Option<SignedDuration>,
}

/// How soon to read again what should have been told by a watch.
pub(super) const SOON: SignedDuration = SignedDuration::from_secs(5);

/// Reasons for which a worker ends a copy that never ran: a refusal, not an end (MK-FLOW-12, MK-FLOW-15).
pub(super) const OUT_OF_SYNC: [&str; 2] = ["OutOfSync", "OwnerNotFound"];

/// What to do now.
pub fn decide(seen: &Observed, policy: &Policy, now: Timestamp) -> Plan {
    match same::each_once(seen) {
        Some(seen) => decide_on(&seen, policy, now),
        None => decide_on(seen, policy, now),
    }
}

fn decide_on(seen: &Observed, policy: &Policy, now: Timestamp) -> Plan {
    let Some(local) = seen.local.as_deref() else { return remove_all(seen, Because::Gone, now) };
    if local.metadata.deletion_timestamp.is_some() {
        return deleted(seen, local, policy, now);
    }
    if seen.check.is_none() && held(local).is_none() {
        return Plan::wait(Because::NotDelegated);
    }
    if is_replaced(local) {
        return replaced(seen, local, now);
    }
    if is_finished(local) {
        return finished(seen, local, now);
    }
    let Some(check) = &seen.check else { return unchecked(seen, local, policy, now) };
    if check.state == CheckState::Rejected {
        return rejected(seen, local, policy, now);
    }
    let adapter = match owner(seen, local, check) {
        Ok(Some(adapter)) => adapter,
        Ok(None) => return Plan::wait(Because::NoJob),
        Err(refusal) => return Plan::of(vec![refusal], Because::Unmanaged),
    };
    let case = Case { seen, local, check, adapter, policy, now };
    let holder = seen.holder();
    let plan = match (has_quota(local), &holder) {
        (false, None) if annotation(&local.metadata, REPLACEMENT_FOR).is_some() => case.waits_to_follow(),
        (false, _) => case.withdraw(holder.as_ref()),
        (true, Some(holder)) => case.held(holder),
        (true, None) => case.open(),
    };
    let leftover = match &plan.because {
        Because::Leftover(cluster) => Some(cluster.clone()),
        _ => None,
    };
    case.told(plan, holder.or(leftover).as_ref())
}

fn is_replaced(local: &Workload) -> bool {
    is_elastic(local) && condition::of(local, FINISHED).is_some_and(|end| end.reason == REPLACED)
}

/// A slice that another one took over: what it had on the worker is the other one's now (MK-FLOW-10), until their job has
/// ended.
fn replaced(seen: &Observed, local: &Workload, now: Timestamp) -> Plan {
    let adapter = Owner::of(local).and_then(|owner| owner.adapter());
    match (&seen.job, adapter) {
        (Some(job), Some(adapter)) if adapter.is_finished(&job.data) => {
            remove_all(seen, Because::Finished, now)
        }
        _ => Plan::wait(Because::Slice),
    }
}

/// Everything goes from every cluster that can be reached, as soon as nothing can come back; the others are asked when they
/// can be again.
fn remove_all(seen: &Observed, because: Because, now: Timestamp) -> Plan {
    let adapter = seen.local.as_deref().and_then(Owner::of).and_then(|owner| owner.adapter());
    let mut plan = Plan::wait(because);
    for (cluster, remote) in seen.connected().filter(|(_, remote)| remote.holds_anything()) {
        match remote.kept_until(adapter, now) {
            None => plan.steps.push(Step::Delete(cluster.clone(), remote.leaves(Pods::After))),
            until => plan = plan.again_at(until),
        }
    }
    plan
}

/// A Workload goes and its job stays, which may run again by another one: so it is taken back first, and the record keeps
/// the Workload until then. Nobody waits for pods of a job that goes, too.
fn deleted(seen: &Observed, local: &Workload, policy: &Policy, now: Timestamp) -> Plan {
    if is_replaced(local) {
        return replaced(seen, local, now);
    }
    let job = seen.job.as_deref().filter(|job| job.metadata.deletion_timestamp.is_none());
    match (Case::of_record(seen, local, policy, now), held(local), job) {
        (Some(case), Some(holder), Some(job)) if !case.adapter.is_finished(&job.data) => {
            let plan = case.withdraw(Some(&holder));
            Plan { because: Because::Deleted, ..case.told(plan, Some(&holder)) }
        }
        _ => remove_all(seen, Because::Deleted, now),
    }
}

/// The check refuses for good, whoever says so. Its user may have it tried again later: what has ended is recorded, and what
/// runs is gone before that, as where quota is taken back.
fn rejected(seen: &Observed, local: &Workload, policy: &Policy, now: Timestamp) -> Plan {
    match (Case::of_record(seen, local, policy, now), seen.holder()) {
        (Some(case), Some(holder)) => Plan { because: Because::Rejected, ..case.withdraw(Some(&holder)) },
        _ => remove_all(seen, Because::Rejected, now),
    }
}

/// Its queue no longer asks for a check. What runs already is shown to its end, and taken back if it is to stop.
fn unchecked(seen: &Observed, local: &Workload, policy: &Policy, now: Timestamp) -> Plan {
    let plan = Plan::wait(Because::NotDelegated);
    let (Some(case), Some(holder)) = (Case::of_record(seen, local, policy, now), held(local)) else {
        return plan;
    };
    if !has_quota(local) {
        return case.withdraw(Some(&holder));
    }
    let Some(remote) = seen.remotes.get(&holder).filter(|remote| remote.link == Link::Connected) else {
        return plan;
    };
    let copy = remote.copy_of(local).map(|copy| &**copy);
    let mirror = remote.mirror_of(local, seen.job.as_deref()).map(|mirror| &**mirror);
    if let Some(plan) = case.ended(&holder, remote, copy, mirror) {
        return plan;
    }
    if is_evicted(local) {
        return case.evicted(&holder, remote, copy, mirror);
    }
    Plan { steps: case.mirrored(&holder, mirror).into_iter().collect(), ..plan }
}

/// What is said of a Workload that has a record and no check.
static UNASKED: Check = Check { name: String::new(), state: CheckState::Ready };

/// The end is recorded on the manager before anything is removed from a worker.
fn finished(seen: &Observed, local: &Workload, now: Timestamp) -> Plan {
    let mut plan = remove_all(seen, Because::Finished, now);
    let (Some(holder), Some(job)) = (seen.holder(), seen.job.as_deref()) else { return plan };
    let Some(adapter) = Owner::of(local).and_then(|owner| owner.adapter()) else { return plan };
    let mirror = seen.remotes.get(&holder).and_then(|remote| remote.mirror_of(local, Some(job)));
    if let Some(mirror) = mirror.filter(|mirror| adapter.is_finished(&mirror.data))
        && let Some(status) = mirror::status(adapter, job, mirror, now)
        && !adapter.is_finished(&job.data)
    {
        plan.steps.retain(|step| step.cluster() != Some(&holder));
        plan.steps.push(Step::Mirror { cluster: holder, status });
    }
    plan
}

/// The kind of the job, if it is one that is run elsewhere and the job asks for it (MK-FLOW-03…06).
fn owner(seen: &Observed, local: &Workload, check: &Check) -> Result<Option<&'static Adapter>, Step> {
    let reject = |why: String| Step::Reject(previously(&why, check));
    let Some(owner) = Owner::of(local) else { return Err(reject("No multikueue adapter found".to_owned())) };
    let Some(adapter) = owner.adapter().filter(|_| seen.is_enabled) else {
        let gvk = adapter::gvk(&owner.api_version, &owner.kind);
        return Err(reject(format!("No multikueue adapter found for owner kind {gvk:?}")));
    };
    let Some(job) = &seen.job else { return Ok(None) };
    match adapter.refuses(&job.data) {
        Some(why) => Err(reject(format!("The owner is not managed by Kueue: {why}"))),
        None => Ok(Some(adapter)),
    }
}

/// A message of a check with what it said before (MK-SM-01).
fn previously(message: &str, check: &Check) -> String {
    format!("{message}, Previously: \"{:?}\"", check.state)
}

/// A Workload that is to run somewhere else, and what is known about it.
pub(super) struct Case<'a> {
    pub(super) seen: &'a Observed,
    pub(super) local: &'a Workload,
    pub(super) check: &'a Check,
    pub(super) adapter: &'static Adapter,
    pub(super) policy: &'a Policy,
    pub(super) now: Timestamp,
}

impl<'a> Case<'a> {
    /// A Workload of which only the record counts, whatever its check says.
    fn of_record(
        seen: &'a Observed,
        local: &'a Workload,
        policy: &'a Policy,
        now: Timestamp,
    ) -> Option<Case<'a>> {
        let adapter = Owner::of(local)?.adapter()?;
        Some(Case { seen, local, check: seen.check.as_ref().unwrap_or(&UNASKED), adapter, policy, now })
    }
}

impl Case<'_> {
    /// Without quota nothing of it stays anywhere, and when that is certain it can be tried anew (MK-FLOW-11).
    fn withdraw(&self, holder: Option<&ClusterName>) -> Plan {
        // What has ended has ended, also if nobody wanted it to run any more.
        if let Some((holder, remote)) = holder.and_then(|holder| self.seen.remotes.get_key_value(holder))
            && remote.link == Link::Connected
            && let Some(mirror) = self.mirror(remote)
            && let Some(plan) =
                self.ended(holder, remote, remote.copy_of(self.local).map(|copy| &**copy), Some(mirror))
        {
            return plan;
        }
        let mut plan = Plan::wait(Because::NoQuota);
        for (cluster, remote) in self.seen.connected().filter(|(_, remote)| remote.holds_anything()) {
            plan.steps.push(self.delete(cluster, remote));
        }
        let Some(holder) = holder else { return plan };
        self.let_go(plan, holder)
    }

    /// A slice that is to follow another one has no quota, and the job is the other one's. A copy that came to be although it
    /// was given up, because the answer was lost, goes where no job is beside it.
    fn waits_to_follow(&self) -> Plan {
        let mut plan = Plan::wait(Because::Slice);
        let left = |remote: &Remote| remote.workload.is_some() && remote.job.is_none();
        for (cluster, remote) in self.seen.connected().filter(|(_, remote)| left(remote)) {
            plan.steps.push(self.delete(cluster, remote));
        }
        plan
    }

    /// The record goes once its cluster is certainly empty, or given up.
    fn let_go(&self, mut plan: Plan, holder: &ClusterName) -> Plan {
        match self.seen.remotes.get(holder) {
            Some(remote) if remote.is_certainly_empty() => self.forget(plan),
            Some(remote) if remote.link == Link::Connected && !remote.holds_anything() => {
                plan.steps.push(Step::Look(holder.clone()));
                plan.again_at(Some(self.soon()))
            }
            Some(remote) if remote.link == Link::Connected => plan,
            remote => match self.given_up_at(remote) {
                Some(at) if at <= self.now => self.forget(plan),
                at => plan.again_at(at),
            },
        }
    }

    /// No cluster has anything of it any more: that is shown, and then the record goes.
    fn forget(&self, mut plan: Plan) -> Plan {
        if let Some(status) =
            self.seen.job.as_deref().and_then(|job| mirror::settled(self.adapter, job, self.now))
        {
            plan.steps.push(Step::Settle(status));
        }
        plan.steps.push(if self.cluster_name().is_some() { Step::Unassign } else { Step::Forget });
        plan
    }

    /// A cluster may hold a job of it: that cluster and no other (MK-FLOW-21).
    fn held(&self, holder: &ClusterName) -> Plan {
        let mut others = Vec::new();
        let there = self.seen.remotes.get(holder);
        for (cluster, remote) in self.seen.connected() {
            let is_another = cluster != holder && !same::may_be(there, held_identity(self.local), remote);
            if is_another && remote.holds_anything() {
                others.push(self.delete(cluster, remote));
            }
        }
        let mut plan = match there {
            Some(remote) if remote.link == Link::Connected => self.at_holder(holder, remote),
            remote => self.lost(holder, self.given_up_at(remote)),
        };
        others.append(&mut plan.steps);
        plan.steps = others;
        plan
    }

    /// The cluster cannot be reached (MK-FLOW-22, MK-LOST-01…03).
    fn lost(&self, holder: &ClusterName, given_up_at: Option<Timestamp>) -> Plan {
        let plan = Plan::wait(Because::Lost(holder.clone()));
        if given_up_at.is_some_and(|at| at <= self.now) {
            return self.give_up(plan, "Admitting remote lost");
        }
        plan.again_at(given_up_at)
    }

    /// Nothing is expected of the cluster any more: another attempt, by way of an eviction if it counted as admitted.
    fn give_up(&self, mut plan: Plan, why: &str) -> Plan {
        match self.check.state {
            CheckState::Ready => plan.steps.push(self.retry(why)),
            CheckState::Pending => return self.forget(plan),
            CheckState::Retry | CheckState::Rejected => {}
        }
        plan
    }

    fn at_holder(&self, holder: &ClusterName, remote: &Remote) -> Plan {
        let copy = remote.copy_of(self.local).map(|copy| &**copy);
        let mirror = remote.mirror_of(self.local, self.seen.job.as_deref()).map(|mirror| &**mirror);
        if let Some(plan) = self.ended(holder, remote, copy, self.mirror(remote)) {
            return plan;
        }
        if is_evicted(self.local) {
            return self.evicted(holder, remote, copy, mirror);
        }
        // A configuration has one cluster at least. Without any there is none to go by, and what runs goes on (MK-FLOW-07).
        if !self.seen.configured.is_empty() && !self.seen.configured.contains(holder) {
            return self.clear(holder, remote, Because::NotConfigured(holder.clone()));
        }
        if let Some(plan) = self.next_slice(holder, remote, copy) {
            return plan;
        }
        let Some(copy) = copy else { return self.clear(holder, remote, Because::Missing(holder.clone())) };
        if self.cluster_name().is_none() {
            return self.clear(holder, remote, Because::Leftover(holder.clone()));
        }
        // A pod that is evicted is gone, and its Workload with it: that is no refusal.
        let is_pod = matches!(self.adapter.back, adapter::Back::Pod | adapter::Back::Group);
        let goes_on = is_pod && is_evicted(copy) || self.is_to_get_its_job(holder, remote, mirror);
        if is_out_of_sync(copy) && !goes_on {
            return self.out_of_sync(holder, remote);
        }
        if is_evicted(copy) {
            return self.evicted_there(holder, remote, mirror);
        }
        match Drift::of(self.local, copy) {
            Drift::None => {}
            Drift::Update(spec) => {
                let waits = !condition::is_true(copy, ADMITTED) && self.of_another_slice(remote).is_some();
                let mut plan = if waits {
                    Plan::wait(Because::Nominated)
                } else {
                    self.admitted(holder, remote, copy, mirror)
                };
                // The copy first: the worker compares the mirror with it.
                plan.steps.insert(0, Step::Update(holder.clone(), spec));
                return plan;
            }
            Drift::Other => return self.clear(holder, remote, Because::OutOfSync(holder.clone())),
        }
        if !condition::is_true(copy, ADMITTED) {
            return self.clear(holder, remote, Because::Missing(holder.clone()));
        }
        self.admitted(holder, remote, copy, mirror)
    }

    /// The manager takes it back: the worker is asked to stop it, and its pods are shown until they are gone
    /// (MK-FLOW-16, MK-FLOW-25, MK-EVI-01).
    fn evicted(
        &self,
        holder: &ClusterName,
        remote: &Remote,
        copy: Option<&Workload>,
        mirror: Option<&DynamicObject>,
    ) -> Plan {
        let mut plan = Plan::wait(Because::Evicted);
        plan.steps.extend(self.mirrored(holder, self.mirror(remote)));
        // A job that another slice was to be replaced for is not stopped by a word to this one.
        let is_its_job = mirror.is_some() || self.of_another_slice(remote).is_none();
        let Some(copy) = copy.filter(|copy| !is_out_of_sync(copy) && is_its_job) else {
            return self.evicted_without_copy(plan, holder, remote);
        };
        // Its pods are gone with it, and nobody else can say so.
        let there = remote.job.as_deref();
        let settled = |job| mirror::settled_without(self.adapter, job, there, self.now);
        match self.seen.job.as_deref().and_then(settled) {
            Some(status) if remote.read_at.is_some() => plan.steps.push(Step::Settle(status)),
            Some(_) => {
                plan.steps.push(Step::Look(holder.clone()));
                plan = plan.again_at(Some(self.soon()));
            }
            None => {}
        }
        let stops = is_evicted(copy) || copy.spec.active == Some(false) || asked_to_stop(copy);
        if !stops {
            let why = condition::of(self.local, EVICTED).map_or("", |evicted| evicted.message.as_str());
            let message = condition::truncated(&format!("Evicted on manager: {why}"));
            plan.steps.push(Step::Deactivate(holder.clone(), message));
        }
        plan
    }

    fn evicted_without_copy(&self, mut plan: Plan, holder: &ClusterName, remote: &Remote) -> Plan {
        if remote.holds_anything() {
            plan.steps.push(self.delete(holder, remote));
            return plan;
        }
        self.let_go(plan, holder)
    }

    /// The worker took it back (MK-FLOW-17): what is there goes, and a new attempt is asked for.
    fn evicted_there(&self, holder: &ClusterName, remote: &Remote, mirror: Option<&DynamicObject>) -> Plan {
        let mut plan = Plan::wait(Because::EvictedThere(holder.clone()));
        plan.steps.extend(self.mirrored(holder, mirror));
        match self.check.state {
            CheckState::Ready => {
                let message = format!(
                    "Workload evicted on worker cluster: \"{holder}\", resetting for re-admission. Previously: \"Ready\""
                );
                plan.steps.push(Step::Retry { message, warn: false });
                plan
            }
            CheckState::Pending => self.clear(holder, remote, Because::EvictedThere(holder.clone())),
            CheckState::Retry | CheckState::Rejected => plan,
        }
    }

    /// Whether the mirror is another slice's, or not as large as this one yet: a slice whose copy does not fit it is about to
    /// be given it (MK-ELA-08).
    fn is_to_get_its_job(
        &self,
        holder: &ClusterName,
        remote: &Remote,
        mirror: Option<&DynamicObject>,
    ) -> bool {
        let is_to_change = mirror.is_some_and(|mirror| self.forwarded(holder, mirror).is_some());
        is_elastic(self.local) && (is_to_change || self.of_another_slice(remote).is_some())
    }

    fn out_of_sync(&self, holder: &ClusterName, remote: &Remote) -> Plan {
        let because = Because::OutOfSync(holder.clone());
        let mut plan = Plan::of(vec![self.delete(holder, remote)], because);
        plan.steps.push(Step::Refuse(holder.clone(), "out of sync with its job".to_owned()));
        if self.check.state == CheckState::Ready {
            let message = format!(
                "Remote workload on worker cluster \"{holder}\" is out of sync with its user job, resetting for re-dispatch"
            );
            plan.steps.push(Step::Retry { message: previously(&message, self.check), warn: true });
        }
        plan
    }

    /// What is there is not what should be: it goes, and when that is certain, a new attempt is asked for.
    fn clear(&self, holder: &ClusterName, remote: &Remote, because: Because) -> Plan {
        let mut plan = Plan::wait(because);
        if remote.holds_anything() {
            plan.steps.push(self.delete(holder, remote));
            return plan;
        }
        if !remote.is_certainly_empty() {
            plan.steps.push(Step::Look(holder.clone()));
            return plan.again_at(Some(self.soon()));
        }
        self.give_up(plan, "Admitting remote no longer exists")
    }

    /// The worker admitted it: the mirror is there, or is created; then the check is passed, and its status comes back.
    fn admitted(
        &self,
        holder: &ClusterName,
        remote: &Remote,
        copy: &Workload,
        mirror: Option<&DynamicObject>,
    ) -> Plan {
        let mut plan = Plan::wait(Because::Admitted(holder.clone()));
        if self.check.state == CheckState::Retry {
            plan.because = Because::Retrying;
            plan.steps.extend(self.mirrored(holder, mirror));
            return plan;
        }
        let Some(mirror) = mirror else { return self.without_mirror(plan, holder, remote) };
        plan.steps.extend(self.mirrored(holder, Some(mirror)));
        if self.check.state == CheckState::Pending || !self.says_admitted(holder) {
            plan.steps.push(Step::Ready(holder.clone()));
        } else if held(self.local).is_none() {
            // Another manager has chosen, and keeps no record of that: an eviction would take back all that says where it runs.
            plan.steps.push(Step::Hold(holder.clone()));
        }
        plan.steps.extend(self.placed(copy));
        plan.steps.extend(self.forwarded(holder, mirror));
        plan.steps.extend(self.joined(holder, remote, mirror));
        plan
    }

    /// Pods that joined a group or left it since (MK-POD-02, MK-POD-05).
    fn joined(&self, holder: &ClusterName, remote: &Remote, mirror: &DynamicObject) -> Vec<Step> {
        let Some(job) = self.seen.job.as_deref().filter(|_| self.adapter.back == adapter::Back::Group) else {
            return Vec::new();
        };
        let starts = !group::missing(job, Some(mirror)).is_empty() && can_be_asked(remote, self.now);
        let start = starts.then(|| Step::Start(holder.clone()));
        let prune = (!group::surplus(mirror).is_empty()).then(|| Step::Prune(holder.clone()));
        start.into_iter().chain(prune).collect()
    }

    fn without_mirror(&self, mut plan: Plan, holder: &ClusterName, remote: &Remote) -> Plan {
        if let Some(stale) = &remote.job {
            if let Some(step) = self.repointed(holder, stale) {
                plan.steps.push(step);
                return plan;
            }
            if self.of_another_slice(remote).is_some() {
                return Plan::wait(Because::Slice);
            }
            // The mirror of an earlier job of this name; the copy goes with it and is offered again.
            return self.clear(holder, remote, Because::Leftover(holder.clone()));
        }
        // What has ended is not started again: its Workload follows it.
        if self.seen.job.as_deref().is_some_and(|job| self.adapter.is_finished(&job.data)) {
            return Plan::wait(Because::Finished);
        }
        if !can_be_asked(remote, self.now) {
            return self.clear(holder, remote, Because::Refused(holder.clone()));
        }
        plan.steps.push(Step::Start(holder.clone()));
        plan
    }

    /// The check's message.
    pub(super) fn says(&self) -> Option<&str> {
        let mut checks = self.local.status.iter().flat_map(|status| &status.admission_checks);
        checks.find(|state| state.name == self.check.name).map(|state| state.message.as_str())
    }

    fn mirrored(&self, holder: &ClusterName, mirror: Option<&DynamicObject>) -> Option<Step> {
        let mirror = mirror.filter(|mirror| !self.adapter.is_killed(mirror))?;
        let status = mirror::status(self.adapter, self.seen.job.as_deref()?, mirror, self.now)?;
        Some(Step::Mirror { cluster: holder.clone(), status })
    }

    /// Pod sets whose places the worker has decided on, while the manager waits for that (MK-FLOW-26, MK-TAS-01).
    fn placed(&self, copy: &Workload) -> Option<Step> {
        use types::kueue::DelayedTopologyRequestState::Pending;
        let assignments = |workload: &Workload| {
            let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
            admission.map(|admission| admission.pod_set_assignments.clone()).unwrap_or_default()
        };
        let theirs = assignments(copy);
        let placed = assignments(self.local).into_iter().filter(|ours| {
            ours.delayed_topology_request == Some(Pending)
                && theirs.iter().any(|there| there.name == ours.name && there.topology_assignment.is_some())
        });
        let names: Vec<String> = placed.map(|ours| ours.name).collect();
        (!names.is_empty()).then_some(Step::Place(names))
    }

    /// What is passed on of later changes of the job (MK-ADP-03).
    fn forwarded(&self, holder: &ClusterName, mirror: &DynamicObject) -> Option<Step> {
        let patch = forward::changes(self.adapter, self.seen.job.as_deref()?, mirror, self.local)?;
        Some(Step::Forward(holder.clone(), patch))
    }

    /// A slice that follows another one is offered to the cluster of that one, where its job runs, and to no other; until
    /// it is admitted there, the job is the other one's (MK-DISP-05, MK-ELA-02, MK-ELA-03).
    fn next_slice(&self, holder: &ClusterName, remote: &Remote, copy: Option<&Workload>) -> Option<Plan> {
        annotation(&self.local.metadata, REPLACEMENT_FOR)?;
        let is_waiting = self.check.state == CheckState::Pending && self.cluster_name().is_some();
        if !is_waiting || remote.mirror_of(self.local, self.seen.job.as_deref()).is_some() {
            return None;
        }
        let mut plan = Plan::wait(Because::Nominated);
        plan.steps.extend(self.mirrored(holder, self.of_another_slice(remote)));
        match copy {
            None if remote.workload.is_none() && can_be_asked(remote, self.now) => {
                plan.steps.push(Step::Create(holder.clone()));
                Some(plan)
            }
            Some(copy)
                if !condition::is_true(copy, ADMITTED) && Drift::of(self.local, copy) == Drift::None =>
            {
                Some(plan)
            }
            None | Some(_) => None,
        }
    }

    /// The mirror of this job, whichever of its slices it belongs to.
    fn mirror<'r>(&self, remote: &'r Remote) -> Option<&'r DynamicObject> {
        let own = remote.mirror_of(self.local, self.seen.job.as_deref()).map(|mirror| &**mirror);
        own.or_else(|| self.of_another_slice(remote))
    }

    /// The mirror, if it is of this job and belongs to another slice of it.
    pub(super) fn of_another_slice<'r>(&self, remote: &'r Remote) -> Option<&'r DynamicObject> {
        let uid = self.seen.job.as_deref().and_then(|job| job.metadata.uid.as_deref())?;
        let mirror = remote.job.as_deref().filter(|_| is_elastic(self.local))?;
        let is_own = link(&mirror.metadata) == self.local.metadata.name.as_deref();
        (!is_own && annotation(&mirror.metadata, ORIGIN_UID) == Some(uid)).then_some(mirror)
    }

    /// The mirror of an elastic job that belongs to the slice before this one is given to this one (MK-ELA-03).
    pub(super) fn repointed(&self, holder: &ClusterName, mirror: &DynamicObject) -> Option<Step> {
        let before = annotation(&self.local.metadata, REPLACEMENT_FOR)?;
        let before = before.rsplit_once('/').map_or(before, |(_, name)| name);
        if link(&mirror.metadata) != Some(before) {
            return None;
        }
        let patch = forward::repoint(self.adapter, self.seen.job.as_deref()?, mirror, self.local)?;
        Some(Step::Forward(holder.clone(), patch))
    }

    /// The mirror goes, and then the copy. If the Workload may run again elsewhere, the pods go before the mirror does, so
    /// that what is seen to be gone is gone. That a mirror has no pods is no reason to do otherwise: by now it may. Pods of a
    /// group that have ended are recorded first, so that they do not run again with the others.
    pub(super) fn delete(&self, cluster: &ClusterName, remote: &Remote) -> Step {
        let (job, mirror) = (self.seen.job.as_deref(), remote.job.as_deref());
        if let Some(status) =
            job.zip(mirror).and_then(|(job, mirror)| mirror::ends(self.adapter, job, mirror))
        {
            return Step::Mirror { cluster: cluster.clone(), status };
        }
        let may_run = remote.job.as_deref().is_some_and(|mirror| !self.adapter.is_finished(&mirror.data));
        Step::Delete(cluster.clone(), remote.leaves(if may_run { Pods::Before } else { Pods::After }))
    }

    pub(super) fn retry(&self, why: &str) -> Step {
        Step::Retry { message: previously(why, self.check), warn: false }
    }

    fn cluster_name(&self) -> Option<&str> {
        self.local.status.as_ref()?.cluster_name.as_deref()
    }

    pub(super) fn given_up_at(&self, remote: Option<&Remote>) -> Option<Timestamp> {
        remote.and_then(|remote| remote.link.given_up_at(self.policy.worker_lost_timeout))
    }

    pub(super) fn soon(&self) -> Timestamp {
        self.now.saturating_add(SOON).unwrap_or(self.now)
    }
}

fn is_out_of_sync(copy: &Workload) -> bool {
    condition::of(copy, FINISHED)
        .is_some_and(|end| end.status == "True" && OUT_OF_SYNC.contains(&end.reason.as_str()))
}

fn asked_to_stop(copy: &Workload) -> bool {
    condition::is_true(copy, DEACTIVATION_TARGET)
}
