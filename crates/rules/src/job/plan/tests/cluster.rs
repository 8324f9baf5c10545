//! A cluster of one Job, small enough to try every misfortune on: an API server that keeps the rules, pods that end as
//! they please, and a controller that carries out plans, sees pods late, and may be refused, left without an answer or
//! killed at any write.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::super::conditions::{finished, wire_time};
use super::super::super::memory::{Memory, Seen};
use super::super::super::pods::{INDEX_KEY, PodRef, has_tracking_finalizer, phase};
use super::super::super::status::validate_transition;
use super::super::super::{SUCCESS_CRITERIA_MET, Settings, is_true, spec, status};
use super::super::{Fate, Observed, Plan, PodStep, decide, slow_start};
use super::fixture::at;
use super::truth::Truth;

/// What befalls a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It is refused.
    Refused,
    /// It is done, but nobody hears of it.
    Unanswered,
    /// The controller dies before it.
    CrashBefore,
    /// The controller dies after it.
    CrashAfter,
}

/// What befalls a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodEvent {
    Schedule,
    Start,
    Ready,
    Succeed,
    Fail(i32),
    Restart,
    Delete,
    /// The node is lost: the pod is told to go, and says why.
    Evict,
    /// A terminating pod comes to its end.
    Stop,
    /// The pod is gone, finalizer or not.
    Vanish,
}

/// The controller died, or has to come back later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    Crash,
    Retry,
}

pub(super) struct Cluster {
    pub(super) job: Job,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) now: Timestamp,
    memory: Memory,
    /// The pods as the controller sees them, and what it has not seen yet.
    cache: BTreeMap<String, Pod>,
    unseen: VecDeque<(Seen, Pod)>,
    faults: VecDeque<Fault>,
    created: usize,
    writes: usize,
    truth: Truth,
}

impl Cluster {
    pub(super) fn new(job: Job) -> Self {
        Cluster {
            job,
            pods: BTreeMap::new(),
            now: at(1_000_000),
            memory: Memory::default(),
            cache: BTreeMap::new(),
            unseen: VecDeque::new(),
            faults: VecDeque::new(),
            created: 0,
            writes: 0,
            truth: Truth::default(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        finished(&self.job).is_some()
    }

    pub(super) fn pass(&mut self, seconds: i64) {
        // The controller sees everything within minutes; it does not act on older views for longer than that.
        self.deliver(usize::MAX);
        self.now += SignedDuration::from_secs(seconds);
    }

    /// The controller sees up to so many changes of pods.
    pub(super) fn deliver(&mut self, count: usize) {
        for _ in 0..count.min(self.unseen.len()) {
            let (seen, pod) = self.unseen.pop_front().unwrap();
            let name = pod.metadata.name.clone().unwrap();
            self.memory.observe(seen, &pod);
            if seen == Seen::Deleted {
                self.cache.remove(&name)
            } else {
                self.cache.insert(name, pod)
            };
        }
    }

    /// Decides and carries out one plan. Returns how many writes that took.
    pub(super) fn sync(&mut self, faults: &[Fault]) -> usize {
        self.faults = faults.iter().copied().collect();
        let before = self.writes;
        let plan = self.decide();
        let result = self.carry_out(&plan);
        self.faults.clear();
        match result {
            Ok(()) => {}
            // What failed is tried again after a while, and by then everything was seen.
            Err(Stop::Retry) => self.deliver(usize::MAX),
            Err(Stop::Crash) => self.restart(),
        }
        if self.is_finished() {
            let held: Vec<_> = self.pods.values().filter(|pod| has_tracking_finalizer(pod)).collect();
            assert!(held.is_empty(), "a finished Job leaves no finalizer behind: {held:?}");
        }
        self.writes - before
    }

    pub(super) fn decide(&self) -> Plan {
        let seen = Observed {
            job: &self.job,
            pods: self.cache.values().collect(),
            memory: &self.memory,
            settings: Settings::default(),
        };
        decide(&seen, self.now)
    }

    fn restart(&mut self) {
        self.memory = Memory::default();
        self.cache = self.pods.clone();
        self.unseen.clear();
    }

    fn carry_out(&mut self, plan: &Plan) -> Result<(), Stop> {
        assert!(plan.claims.is_empty(), "every pod has its owner from the start");
        self.memory.begin(&plan.pods, self.now);
        let fates = self.carry_out_pods(&plan.pods)?;
        self.memory.end(&plan.pods, &fates);
        let record = plan.record(&fates);
        if let Some(status) = &record.status {
            self.write_status(status)?;
            self.memory.backoff = record.backoff;
        }
        self.memory.begin_release(&record.release);
        let mut released = Vec::new();
        for pod in &record.release {
            self.excuse(pod);
            released.push(self.write(|cluster| cluster.take_finalizer(pod))?);
        }
        self.memory.end_release(&record.release, &released);
        let settled = record.settle(&released);
        if let Some(status) = &settled.status {
            self.write_status(status)?;
            self.memory.finished |= settled.finished;
        }
        if fates.iter().chain(&released).any(|fate| *fate == Fate::Failed) {
            Err(Stop::Retry)
        } else {
            Ok(())
        }
    }

    /// Pods that are freed without being counted, whatever they do later or did unseen: those of an index that an
    /// elastic Job has lost, though it may get it back, those that a Job ends because it succeeded, and those that it
    /// ends when its policy ignores them.
    fn excuse(&mut self, pod: &PodRef) {
        let Some(seen) = self.cache.get(&pod.name) else { return };
        let index = seen.metadata.annotations.as_ref().and_then(|annotations| annotations.get(INDEX_KEY));
        let in_range = |index: &String| index.parse::<i32>().unwrap() < spec(&self.job).completions.unwrap();
        let out_of_range = index.is_some_and(|index| !in_range(index));
        let ignored = spec(&self.job).pod_failure_policy.is_some() && is_disrupted(seen);
        let uncounted = ignored || is_true(status(&self.job), SUCCESS_CRITERIA_MET);
        if out_of_range || (!is_ended(seen) && uncounted) {
            self.truth.excuse(pod);
        }
    }

    fn carry_out_pods(&mut self, step: &PodStep) -> Result<Vec<Fate>, Stop> {
        let mut fates = Vec::new();
        match step {
            PodStep::Nothing => {}
            PodStep::Refuse(why) => panic!("{why}"),
            PodStep::Create(pods) => {
                fates = vec![Fate::Skipped; pods.len()];
                for batch in slow_start(pods.len()) {
                    for place in batch.clone() {
                        fates[place] = self.write(|cluster| cluster.create(&pods[place]))?;
                    }
                    if fates[batch].contains(&Fate::Failed) {
                        break;
                    }
                }
                let active = self.pods.values().filter(|pod| is_active(pod)).count();
                let parallelism = spec(&self.job).parallelism.unwrap_or(1);
                assert!(
                    i32::try_from(active).unwrap() <= parallelism,
                    "{active} active pods after creating some, {parallelism} wanted"
                );
            }
            PodStep::End(pods) => {
                for pod in pods {
                    fates.push(self.write(|cluster| cluster.delete(pod))?);
                }
            }
            PodStep::Remove(pods) => {
                for pod in pods {
                    self.truth.excuse(pod);
                    let fate = self.write(|cluster| cluster.take_finalizer(pod))?;
                    let fate =
                        if fate == Fate::Done { self.write(|cluster| cluster.delete(pod))? } else { fate };
                    fates.push(fate);
                }
            }
        }
        Ok(fates)
    }

    /// One write, and what befalls it.
    fn write(&mut self, write: impl FnOnce(&mut Self) -> Fate) -> Result<Fate, Stop> {
        self.writes += 1;
        match self.faults.pop_front().unwrap_or(Fault::None) {
            Fault::None => Ok(write(self)),
            Fault::Refused => Ok(Fate::Failed),
            Fault::Unanswered => {
                write(self);
                Ok(Fate::Failed)
            }
            Fault::CrashBefore => Err(Stop::Crash),
            Fault::CrashAfter => {
                write(self);
                Err(Stop::Crash)
            }
        }
    }

    fn write_status(&mut self, status: &JobStatus) -> Result<(), Stop> {
        let status = status.clone();
        match self.write(|cluster| cluster.store_status(status))? {
            Fate::Done => Ok(()),
            _ => Err(Stop::Retry),
        }
    }

    // The API server.

    fn store_status(&mut self, status: JobStatus) -> Fate {
        let old = self.job.clone();
        self.job.status = Some(status);
        let errors = validate_transition(&self.job, &old);
        assert!(
            errors.is_empty(),
            "the status is refused: {errors:?}\nold {:?}\nnew {:?}",
            old.status,
            self.job.status
        );
        assert_ne!(self.job.status, old.status, "a write that changes nothing");
        self.truth.check_status(&self.job);
        Fate::Done
    }

    fn create(&mut self, pod: &Pod) -> Fate {
        assert!(!self.is_finished(), "a finished Job gets no pods");
        let mut pod = pod.clone();
        let name = format!("p{:03}", self.created);
        self.created += 1;
        pod.metadata.uid = Some(name.clone());
        pod.metadata.creation_timestamp = Some(wire_time(self.now));
        pod.status = Some(PodStatus { phase: Some("Pending".to_owned()), ..PodStatus::default() });
        pod.metadata.name = Some(name);
        self.store(Seen::Added, pod);
        Fate::Done
    }

    fn delete(&mut self, pod: &PodRef) -> Fate {
        let Some(mut pod) = self.pods.get(&pod.name).cloned() else { return Fate::Gone };
        if pod.metadata.deletion_timestamp.is_none() {
            // A pod that nobody runs goes at once.
            let unscheduled = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_none());
            let grace = if unscheduled || is_ended(&pod) { 0 } else { 30 };
            pod.metadata.deletion_timestamp = Some(wire_time(self.now + SignedDuration::from_secs(grace)));
            pod.metadata.deletion_grace_period_seconds = Some(grace);
            self.store(Seen::Updated, pod);
        }
        Fate::Done
    }

    fn take_finalizer(&mut self, pod: &PodRef) -> Fate {
        let Some(mut pod) = self.pods.get(&pod.name).cloned() else { return Fate::Gone };
        pod.metadata.finalizers = None;
        self.store(Seen::Updated, pod);
        Fate::Done
    }

    /// Stores a pod, or removes it when it is told to go and nothing holds it.
    fn store(&mut self, seen: Seen, pod: Pod) {
        let name = pod.metadata.name.clone().unwrap();
        self.truth.saw(&pod);
        let held = has_tracking_finalizer(&pod) || pod.metadata.deletion_grace_period_seconds != Some(0);
        let goes = pod.metadata.deletion_timestamp.is_some() && !held;
        if goes {
            self.pods.remove(&name);
        } else {
            self.pods.insert(name, pod.clone());
        }
        self.unseen.push_back((if goes { Seen::Deleted } else { seen }, pod));
    }

    // The node.

    pub(super) fn befall(&mut self, choice: usize, event: PodEvent) {
        if self.pods.is_empty() {
            return;
        }
        let mut pod = self.pods.values().nth(choice % self.pods.len()).unwrap().clone();
        let pod_ref =
            PodRef { name: pod.metadata.name.clone().unwrap(), uid: pod.metadata.uid.clone().unwrap() };
        let now = wire_time(self.now);
        let scheduled = pod.spec.as_ref().unwrap().node_name.is_some();
        let status = pod.status.as_mut().unwrap();
        match event {
            PodEvent::Delete => {
                self.delete(&pod_ref);
                return;
            }
            PodEvent::Vanish => {
                self.truth.excuse(&pod_ref);
                self.pods.remove(&pod_ref.name);
                self.unseen.push_back((Seen::Deleted, pod));
                return;
            }
            _ if is_ended(&self.pods[&pod_ref.name]) => return,
            PodEvent::Schedule => pod.spec.as_mut().unwrap().node_name = Some("node".to_owned()),
            _ if !scheduled => return,
            PodEvent::Start => status.phase = Some("Running".to_owned()),
            PodEvent::Ready => {
                status.phase = Some("Running".to_owned());
                status.conditions = Some(vec![condition("Ready", now)]);
            }
            PodEvent::Succeed => end(status, "Succeeded", 0, now),
            PodEvent::Fail(code) => end(status, "Failed", code, now),
            PodEvent::Restart => {
                status.phase = Some("Running".to_owned());
                let mut main =
                    status.container_statuses.take().and_then(|mut list| list.pop()).unwrap_or_default();
                main.restart_count += 1;
                status.container_statuses = Some(vec![main]);
            }
            PodEvent::Evict => {
                status.conditions = Some(vec![condition("DisruptionTarget", now)]);
                self.store(Seen::Updated, pod);
                self.delete(&pod_ref);
                return;
            }
            PodEvent::Stop => {
                if pod.metadata.deletion_timestamp.is_none() {
                    return;
                }
                end(status, "Failed", 143, now);
                pod.metadata.deletion_grace_period_seconds = Some(0);
            }
        }
        self.store(Seen::Updated, pod);
    }

    /// A node that does its work, as long as it takes: everything that runs succeeds, everything that is told to go goes.
    pub(super) fn run_all(&mut self) {
        for choice in 0..self.pods.len() {
            self.befall(choice, PodEvent::Schedule);
        }
        let names: Vec<String> = self.pods.keys().cloned().collect();
        for name in names {
            let Some(choice) = self.pods.keys().position(|other| *other == name) else { continue };
            let terminating = self.pods[&name].metadata.deletion_timestamp.is_some();
            self.befall(choice, if terminating { PodEvent::Stop } else { PodEvent::Succeed });
        }
        // A deleted pod that ended before is gone, unless something holds it.
        let ended: Vec<Pod> = self.pods.values().filter(|pod| is_ended(pod)).cloned().collect();
        for mut pod in ended.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            pod.metadata.deletion_grace_period_seconds = Some(0);
            self.store(Seen::Updated, pod);
        }
    }

    /// To be asked once the Job is finished.
    pub(super) fn check_nothing_lost(&self) {
        self.truth.check_nothing_lost(&self.job);
    }
}

fn end(status: &mut PodStatus, phase: &str, exit_code: i32, now: Time) {
    let terminated = ContainerStateTerminated { exit_code, finished_at: Some(now), ..Default::default() };
    let state = ContainerState { terminated: Some(terminated), ..ContainerState::default() };
    let main = ContainerStatus { name: "main".to_owned(), state: Some(state), ..ContainerStatus::default() };
    status.container_statuses = Some(vec![main]);
    status.phase = Some(phase.to_owned());
    status.conditions.get_or_insert_default().retain(|condition| condition.type_ != "Ready");
}

fn condition(kind: &str, now: Time) -> PodCondition {
    PodCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        last_transition_time: Some(now),
        ..Default::default()
    }
}

pub(super) fn is_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

pub(super) fn is_disrupted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "DisruptionTarget")
}

fn is_active(pod: &Pod) -> bool {
    !is_ended(pod) && pod.metadata.deletion_timestamp.is_none()
}
