//! Pods that only pretend to run.
//!
//! A life is a value in a table: there is no task per pod, and the queue's one timer wakes those whose time has come. A
//! life moves on as far as it can before anything is written, so that a pod that ends at once costs one write.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use reconcile::Next;
use reconcile::{Cache, Clock, Key, Queue};
use rules::node::{
    Container, Ending, Exit, Kind, State, Step, container, ending, plan, restart,
    script::{self, KILLED, Script},
    status,
};

use crate::{
    admission::Admission,
    registration::Host,
    writes::{self, Written},
};

/// Writes in flight: enough to keep an API server busy, few enough for it to stay fair to others.
const IN_FLIGHT: usize = 32;

/// How many addresses there are.
const ADDRESSES: usize = 1 << 24;

/// How long the API server has to remove a pod that goes at once. Times of deletion are told in whole seconds.
const LEFT_TO_SERVER: Duration = Duration::from_secs(2);

/// The simulated pods of a cluster's nodes.
pub(crate) struct Simulated {
    client: Client,
    pods: Cache<Pod>,
    admission: Arc<Admission>,
    clock: Clock,
    hosts: BTreeMap<String, Arc<Host>>,
    lives: Mutex<Lives>,
}

#[derive(Default)]
struct Lives {
    by_key: HashMap<Key, Life>,
    addresses: Addresses,
}

/// The addresses of simulated pods, in the range that many networks use.
#[derive(Debug, Default)]
struct Addresses {
    last: u32,
    /// Who has each, by uid.
    taken: HashMap<Ipv4Addr, String>,
}

impl Addresses {
    /// The address that a pod has, or one that nobody has.
    fn of(&mut self, pod: &Pod) -> Ipv4Addr {
        if let Some(known) = self.keep(pod) {
            return known;
        }
        loop {
            self.last = self.last.wrapping_add(1);
            let [_, high, middle, low] = self.last.to_be_bytes();
            let address = Ipv4Addr::new(10, 244_u8.wrapping_sub(high), middle, low);
            // When there are no others, somebody has to share.
            if !self.taken.contains_key(&address) || self.taken.len() >= ADDRESSES {
                self.taken.insert(address, uid(pod).to_owned());
                return address;
            }
        }
    }

    /// Lets a pod keep the address that it has.
    fn keep(&mut self, pod: &Pod) -> Option<Ipv4Addr> {
        let known = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
        self.taken.entry(known).or_insert_with(|| uid(pod).to_owned());
        Some(known)
    }

    /// A pod has no address any more.
    fn leave(&mut self, life: &Life) {
        if self.taken.get(&life.ip) == life.uid.as_ref() {
            self.taken.remove(&life.ip);
        }
    }
}

impl Simulated {
    pub(crate) fn new(
        client: Client,
        pods: Cache<Pod>,
        admission: Arc<Admission>,
        clock: Clock,
        hosts: BTreeMap<String, Arc<Host>>,
    ) -> Simulated {
        Simulated { client, pods, admission, clock, hosts, lives: Mutex::default() }
    }

    pub(crate) async fn run(&self, queue: &Queue<Key>) {
        self.admission.ready().await;
        // Pods that were here before keep their addresses, whoever of them comes first.
        for pod in self.pods.all() {
            self.lives().addresses.keep(&pod);
        }
        queue.run(IN_FLIGHT, |key| self.work(key)).await;
    }

    /// Leads one pod on. The queue works on no key twice at once, so the life may be out of the table meanwhile.
    async fn work(&self, key: Key) -> kube::Result<Next> {
        let pod = self.pods.get(&key);
        let known = self.life_of(&key, pod.as_deref());
        let Some(pod) = pod else { return Ok(Next::Done) };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let Some(host) = self.hosts.get(node) else { return Ok(Next::Done) };
        let mut life = match known {
            Some(life) => life,
            None => Life::new(&pod, self.lives().addresses.of(&pod), self.clock.now()),
        };
        let next = self.lead(&mut life, &pod, host).await;
        let mut lives = self.lives();
        if matches!(next, Ok(None)) {
            lives.addresses.leave(&life);
        } else {
            lives.by_key.insert(key, life);
        }
        next.map(|next| next.unwrap_or(Next::Done))
    }

    /// The life of this pod, out of the table. That of another one of its name is over.
    fn life_of(&self, key: &Key, pod: Option<&Pod>) -> Option<Life> {
        let mut lives = self.lives();
        let life = lives.by_key.remove(key)?;
        if pod.is_some_and(|pod| pod.metadata.uid == life.uid) {
            return Some(life);
        }
        lives.addresses.leave(&life);
        None
    }

    /// `None` when the pod is gone.
    async fn lead(&self, life: &mut Life, pod: &Pod, host: &Host) -> kube::Result<Option<Next>> {
        if !life.admitted {
            life.ending = self.admission.refusal(pod).await?;
            life.admitted = true;
        }
        let now = self.clock.now();
        let next = life.advance(pod, now);
        if life.changed {
            let status = life.status(pod, host, now);
            match writes::status(&self.client, pod, &status).await? {
                Written::Gone => return Ok(None),
                Written::Pod(pod) => self.pods.put(*pod),
            }
            life.changed = false;
        }
        if let Some(wait) = removed_within(pod, now).filter(|_| life.over) {
            return Ok(Some(Next::After(wait)));
        }
        if life.over && pod.metadata.deletion_timestamp.is_some() {
            if let Written::Pod(pod) = writes::delete(&self.client, pod).await?
                && pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)
            {
                self.pods.removed(&pod);
            }
            return Ok(None);
        }
        Ok(Some(match next {
            Some(at) => {
                Next::After(Duration::try_from(at.duration_since(self.clock.now())).unwrap_or_default())
            }
            None => Next::Done,
        }))
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, Lives> {
        // Every change of the table is one insertion or removal; a panic elsewhere leaves it whole.
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// One simulated pod.
struct Life {
    uid: Option<String>,
    ip: Ipv4Addr,
    script: Result<Script, String>,
    containers: Vec<Container>,
    /// When each container will do what: become ready, end, or have stopped.
    acts: Vec<Act>,
    /// When we saw it first.
    seen: Timestamp,
    started: Option<Timestamp>,
    /// Whether it may begin is known; it has to end if not.
    admitted: bool,
    ending: Option<Ending>,
    over: bool,
    /// Something happened that the status does not say yet.
    changed: bool,
}

/// What a running container will do.
#[derive(Clone, Copy, Debug, Default)]
struct Act {
    ready: Option<Timestamp>,
    end: Option<(Timestamp, i32)>,
    stopping: bool,
}

impl Life {
    /// The life of a pod that may have begun under another node.
    fn new(pod: &Pod, ip: Ipv4Addr, now: Timestamp) -> Life {
        let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map(|time| time.0);
        let containers = container::of_pod(pod);
        Life {
            uid: pod.metadata.uid.clone(),
            ip,
            script: script::of_pod(pod),
            acts: vec![Act::default(); containers.len()],
            containers,
            seen: now,
            started,
            admitted: false,
            ending: None,
            over: false,
            changed: false,
        }
    }

    /// Moves on as far as `now` allows; returns when there is something to do again.
    fn advance(&mut self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        if ending::is_final(pod) {
            self.over = true;
            return None;
        }
        let script = match &self.script {
            Ok(script) => script.clone(),
            Err(message) => {
                let reason = "InvalidSimulation".to_owned();
                self.ending = Some(Ending::Rejected { reason, message: message.clone() });
                (self.changed, self.over) = (!self.over, true);
                return None;
            }
        };
        let begin = after(self.seen, script.start);
        if self.started.is_none() && pod.metadata.deletion_timestamp.is_none() {
            if now < begin && self.ending.is_none() {
                return Some(begin);
            }
            (self.started, self.changed) = (Some(now), true);
        }
        self.resize(pod);
        loop {
            let mut again = self.act(&script, now);
            if self.ending.is_none() {
                match ending::of_pod(pod, self.started, now) {
                    Ok(ending) => self.ending = Some(ending),
                    Err(deadline) => again = earlier(again, deadline),
                }
            }
            let seen = plan::Seen { pod, containers: &self.containers, ending: self.ending.as_ref(), now };
            let plan = plan::decide(&seen);
            if plan.over {
                self.changed |= !self.over;
                self.over = true;
                return None;
            }
            let mut moved = false;
            for step in plan.steps {
                moved |= self.step(pod, &script, step, now);
            }
            if !moved {
                return earlier(again, plan.again);
            }
        }
    }

    /// Lets happen what is due; returns when something will be next.
    fn act(&mut self, script: &Script, now: Timestamp) -> Option<Timestamp> {
        let mut again = None;
        for (container, act) in self.containers.iter_mut().zip(&mut self.acts) {
            if !container.is_running() {
                continue;
            }
            if let Some((due, code)) = act.end {
                if due <= now {
                    let State::Running { since } = container.state else { continue };
                    container.end(Exit::with_code(code, since, now));
                    *act = Act::default();
                    self.changed = true;
                    if let Some(reason) = script.disruption.as_ref().filter(|_| container.kind == Kind::Main)
                    {
                        let message = "The simulation says so".to_owned();
                        self.ending.get_or_insert(Ending::Disrupted { reason: reason.clone(), message });
                    }
                    continue;
                }
                again = earlier(again, Some(due));
            }
            if let Some(due) = act.ready {
                if due <= now {
                    (container.ready, act.ready, self.changed) = (true, None, true);
                } else {
                    again = earlier(again, Some(due));
                }
            }
        }
        again
    }

    /// Takes a step; true if there is more to decide now.
    fn step(&mut self, pod: &Pod, script: &Script, step: Step, now: Timestamp) -> bool {
        match step {
            Step::Start(index) => {
                self.start(script, index, now);
                self.resize(pod);
                true
            }
            Step::BackOff { container, seconds } => {
                let container = &mut self.containers[container];
                container.wait(restart::CRASH_LOOP, restart::message(pod, &container.name, seconds));
                self.changed = true;
                false
            }
            Step::PreStop(_) => false,
            Step::Stop(index) => self.stop(pod, script, index, now),
        }
    }

    fn start(&mut self, script: &Script, index: usize, now: Timestamp) {
        let container = &mut self.containers[index];
        if let Some(ended) = container.latest_exit().map(|exit| exit.to.unwrap_or(now)) {
            container.backoff.next(ended);
        }
        let uid = self.uid.as_deref().unwrap_or_default();
        let number = container.restarts + i32::from(container.latest_exit().is_some());
        let id = format!("simulated://{uid}-{}-{number}", container.name);
        container.start(id, container.image.clone(), now);
        container.started = true;
        let part = script.part(&container.name, container.restarts);
        let code = if script.disruption.is_some() { KILLED } else { part.code };
        let end = match container.kind {
            Kind::Main => part.duration.map(|duration| (after(now, duration), code)),
            // Init containers cost no time, and sidecars none of their own.
            Kind::Init => Some((now, 0)),
            Kind::Sidecar | Kind::Ephemeral => None,
        };
        let ready = match container.kind {
            Kind::Init | Kind::Ephemeral => None,
            Kind::Main | Kind::Sidecar => script.ready.map(|wait| after(now, wait)),
        };
        self.acts[index] = Act { ready, end, stopping: false };
        self.changed = true;
    }

    /// A simulation has whatever its pod says, at once.
    fn resize(&mut self, pod: &Pod) {
        let specified = || {
            let all = pod.spec.iter();
            all.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()))
        };
        for container in self.containers.iter_mut().filter(|container| container.is_running()) {
            let wanted =
                specified().find(|one| one.name == container.name).and_then(|one| one.resources.as_ref());
            if container.resources.as_ref() != wanted {
                container.resources = wanted.cloned();
                self.changed = true;
            }
        }
    }

    fn stop(&mut self, pod: &Pod, script: &Script, index: usize, now: Timestamp) -> bool {
        if self.acts[index].stopping {
            return false;
        }
        let ending = self.ending.as_ref();
        let grace = ending.map_or(Duration::MAX, |ending| ending::grace(pod, ending));
        let (wait, code) = match (ending, self.containers[index].kind) {
            // What has cut the pod short gives no grace.
            (Some(Ending::Disrupted { .. }), _) => (Duration::ZERO, KILLED),
            (_, Kind::Sidecar) => (Duration::ZERO, 0),
            _ if script.stop > grace => (grace, KILLED),
            _ => (script.stop, script.stop_code),
        };
        let act = &mut self.acts[index];
        act.stopping = true;
        let due = after(now, wait);
        // It may come to its end before the order is carried out.
        if act.end.is_none_or(|(end, _)| end > due) {
            act.end = Some((due, code));
        }
        true
    }

    fn status(&self, pod: &Pod, host: &Host, now: Timestamp) -> k8s_openapi::api::core::v1::PodStatus {
        let (ip, host_ip) = (self.ip.to_string(), host.settings.address.to_string());
        status::of(&status::Seen {
            pod,
            containers: &self.containers,
            ending: self.ending.as_ref(),
            resize: None,
            over: self.over,
            started: self.started,
            ip: self.started.is_some().then_some(ip.as_str()),
            host_ip: &host_ip,
            sandboxed: true,
            now,
        })
    }
}

/// How long to leave the removal of a pod to the API server: what it marks to go at once, and nobody holds, it removes
/// itself, unless it ends in between.
fn removed_within(pod: &Pod, now: Timestamp) -> Option<Duration> {
    let marked = pod.metadata.deletion_timestamp.as_ref()?.0;
    let is_held = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    if is_held || pod.metadata.deletion_grace_period_seconds != Some(0) {
        return None;
    }
    Duration::try_from(after(marked, LEFT_TO_SERVER).duration_since(now)).ok().filter(|wait| !wait.is_zero())
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn after(time: Timestamp, wait: Duration) -> Timestamp {
    time.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn nobody_gets_an_address_that_somebody_has() {
        let pod = |uid: &str, ip: Option<&str>| -> Pod {
            let pod = json!({ "metadata": { "uid": uid }, "status": { "podIP": ip } });
            serde_json::from_value(pod).expect("a pod")
        };
        let mut addresses = Addresses::default();
        assert_eq!(addresses.keep(&pod("a", None)), None);
        assert!(addresses.keep(&pod("b", Some("10.244.0.2"))).is_some());
        assert_eq!(addresses.of(&pod("a", None)).to_string(), "10.244.0.1");
        assert_eq!(addresses.of(&pod("c", None)).to_string(), "10.244.0.3");
        assert_eq!(addresses.of(&pod("b", Some("10.244.0.2"))).to_string(), "10.244.0.2");
        addresses.last = u32::MAX; // all of them, many times
        assert_eq!(addresses.of(&pod("d", None)).to_string(), "10.244.0.0");
        // What was given to somebody else meanwhile is not given back.
        let life = |uid: &str, ip: &str| {
            Life::new(&pod(uid, None), ip.parse().expect("an address"), Timestamp::UNIX_EPOCH)
        };
        addresses.leave(&life("b", "10.244.0.1"));
        addresses.leave(&life("b", "10.244.0.2"));
        assert_eq!(addresses.of(&pod("e", None)).to_string(), "10.244.0.2");
    }

    #[test]
    fn only_what_goes_at_once_and_is_not_held_is_left_to_the_server() {
        let check = |metadata: Value, seconds: i64, expected: Option<u64>| {
            let pod: Pod = serde_json::from_value(json!({"metadata": metadata})).expect("a pod");
            let marked: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
            let now = marked + jiff::SignedDuration::from_secs(seconds);
            assert_eq!(removed_within(&pod, now), expected.map(Duration::from_secs), "{metadata} {seconds}");
        };
        let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        check(gone.clone(), 0, Some(2));
        check(gone.clone(), 1, Some(1));
        check(gone.clone(), 2, None);
        check(gone.clone(), 60, None);
        let mut held = gone.clone();
        held["finalizers"] = json!(["a/b"]);
        check(held, 0, None);
        let mut patient = gone;
        patient["deletionGracePeriodSeconds"] = json!(30);
        check(patient, 0, None);
        check(json!({}), 0, None);
    }
}
