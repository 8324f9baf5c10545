//! The life of one pod, as a value: what is known of it, and what comes next.
//!
//! Nothing here does IO or reads a clock. A step is asked for, taken, and only then written; writing the same status twice
//! does no harm, so a write whose answer was lost is simply repeated.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Pod, PodSpec},
    apimachinery::pkg::apis::meta::v1::Time,
};
use tokio::time::Instant;

use super::behaviour::{Behaviour, Course, KILLED};

/// What Kubernetes assumes if neither pod nor deletion says it.
const GRACE: Duration = Duration::from_secs(30);

/// Between the end of a container and its next start. A kubelet would wait for 10 s and longer.
const RESTART: Duration = Duration::from_millis(100);

/// A pod, its behaviour and how far it has come.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) pod: Pod,
    pub(super) stage: Stage,
    pub(super) containers: Vec<Container>,
    pub(super) started: Option<Time>,
    pub(super) ip: String,
    /// The reason of the condition `DisruptionTarget`, once it has one.
    pub(super) disruption: Option<String>,
    behaviour: Behaviour,
    /// Since when the behaviour holds.
    since: Instant,
    /// When the deletion was seen.
    deleted: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stage {
    /// No node yet; `said` if the pod's status says why.
    Unbound { said: bool },
    /// On our node, with nothing running.
    Bound,
    /// Containers run.
    Running { ready: bool },
    /// Every container has ended for good.
    Ended { failed: bool },
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    /// An init container that runs beside the others, and counts for nothing when they end.
    pub(super) sidecar: bool,
    pub(super) restarts: i32,
    pub(super) state: State,
    pub(super) last: Option<Exit>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    Waiting,
    Running { since: Time },
    Exited(Exit),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exit {
    pub(super) code: i32,
    pub(super) from: Time,
    pub(super) to: Time,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Bind the pod to the node, and say so by [`Life::bound`].
    Bind,
    /// Take the change by [`Life::change`], and write the status.
    Change(Change),
    /// Delete the pod, now without grace.
    Delete,
    /// Nothing, until this moment or until something is heard of the pod.
    Wait(Option<Instant>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    Unschedulable,
    Run { ready: bool },
    Exit,
    Disrupt { reason: String },
    Terminate { code: i32 },
}

impl Life {
    /// The life of a pod first seen at `now`, which may have begun under another simulator.
    pub(super) fn new(pod: Pod, behaviour: Behaviour, ip: String, now: Instant) -> Life {
        let status = pod.status.clone().unwrap_or_default();
        let started = status.start_time;
        let stage = match status.phase.as_deref() {
            Some("Succeeded") => Stage::Ended { failed: false },
            Some("Failed") => Stage::Ended { failed: true },
            Some("Running") => Stage::Running { ready: true },
            _ if is_bound(&pod) => Stage::Bound,
            _ => Stage::Unbound { said: false },
        };
        let ip = status.pod_ip.unwrap_or(ip);
        let mut containers = containers(&pod);
        if let (Stage::Running { .. }, Some(started)) = (stage, &started) {
            for container in &mut containers {
                container.state = State::Running { since: started.clone() };
            }
        }
        let deleted = pod.metadata.deletion_timestamp.is_some().then_some(now);
        Life { pod, stage, containers, started, ip, disruption: None, behaviour, since: now, deleted }
    }

    /// Takes note of the pod as it is on the server. The answer to a write may be newer than what the watch says next.
    pub(super) fn see(&mut self, pod: Pod, now: Instant) {
        if version(&pod) < version(&self.pod) {
            return;
        }
        if pod.metadata.deletion_timestamp.is_some() {
            self.deleted.get_or_insert(now);
        }
        if is_bound(&pod) && matches!(self.stage, Stage::Unbound { .. }) {
            self.stage = Stage::Bound;
        }
        // Somebody else, a test most likely, may end a pod too.
        match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Succeeded") => self.stage = Stage::Ended { failed: false },
            Some("Failed") => self.stage = Stage::Ended { failed: true },
            _ => {}
        }
        self.pod = pod;
    }

    /// Behaves so from `now` on.
    pub(super) fn behave(&mut self, behaviour: Behaviour, now: Instant) {
        (self.behaviour, self.since) = (behaviour, now);
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self.stage, Stage::Ended { .. })
    }

    /// Whether the pod has done all that its behaviour says.
    pub(super) fn is_settled(&self) -> bool {
        match (&self.behaviour.course, self.stage) {
            (Course::Unschedulable, Stage::Unbound { said }) => said,
            (Course::Creating, stage) => stage == Stage::Bound,
            (Course::Running { ready }, stage) => stage == Stage::Running { ready: *ready },
            _ => self.has_ended(),
        }
    }

    pub(super) fn next(&self, now: Instant) -> Step {
        match self.stage {
            Stage::Unbound { said } => self.next_unbound(said),
            Stage::Ended { .. } if self.deleted.is_some() => Step::Delete,
            Stage::Ended { .. } => Step::Wait(None),
            Stage::Bound | Stage::Running { .. } => match self.deleted {
                Some(deleted) => self.next_deleted(deleted, now),
                None => self.next_bound(now),
            },
        }
    }

    fn next_unbound(&self, said: bool) -> Step {
        let spec = self.spec();
        let gated = spec.scheduling_gates.iter().flatten().next().is_some();
        let ours = matches!(spec.scheduler_name.as_deref(), None | Some("default-scheduler"));
        if gated || !ours || self.deleted.is_some() {
            return Step::Wait(None);
        }
        match self.behaviour.course {
            Course::Unschedulable if said => Step::Wait(None),
            Course::Unschedulable => Step::Change(Change::Unschedulable),
            _ => Step::Bind,
        }
    }

    fn next_bound(&self, now: Instant) -> Step {
        let (end, ready) = match &self.behaviour.course {
            Course::Unschedulable | Course::Creating => return Step::Wait(None),
            Course::Running { ready } => (None, *ready),
            Course::Exiting { .. } => (Some(Change::Exit), true),
            Course::Disrupted { reason } => (Some(Change::Disrupt { reason: reason.clone() }), true),
        };
        // What ends at once is never seen running, by a kubelet neither; and every write costs.
        let at_once = end.is_some() && self.behaviour.after.is_zero();
        if self.stage != (Stage::Running { ready }) && !at_once {
            return Step::Change(Change::Run { ready });
        }
        let Some(end) = end else { return Step::Wait(None) };
        let restarted = self.containers.iter().any(|one| one.restarts > 0);
        let due = self.since + self.behaviour.after + if restarted { RESTART } else { Duration::ZERO };
        if now < due { Step::Wait(Some(due)) } else { Step::Change(end) }
    }

    fn next_deleted(&self, deleted: Instant, now: Instant) -> Step {
        let seconds =
            self.pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let grace = seconds.map_or(GRACE, Duration::from_secs);
        let (wait, code) = match self.stage {
            Stage::Bound => (Duration::ZERO, KILLED),
            _ if self.behaviour.deleted_after > grace => (grace, KILLED),
            _ => (self.behaviour.deleted_after, self.behaviour.deleted_code),
        };
        if now < deleted + wait {
            Step::Wait(Some(deleted + wait))
        } else {
            Step::Change(Change::Terminate { code })
        }
    }

    /// The pod is bound to our node.
    pub(super) fn bound(&mut self, now: Instant) {
        (self.stage, self.since) = (Stage::Bound, now);
    }

    /// Makes the change. True if containers were started again, which asks for a new decision.
    pub(super) fn change(&mut self, change: &Change, now: Instant, at: Timestamp) -> bool {
        let at = Time(at);
        match change {
            Change::Unschedulable => self.stage = Stage::Unbound { said: true },
            Change::Run { ready } => {
                if self.stage == Stage::Bound {
                    self.since = now;
                }
                self.started.get_or_insert_with(|| at.clone());
                for container in &mut self.containers {
                    if container.state == State::Waiting {
                        container.state = State::Running { since: at.clone() };
                    }
                }
                self.stage = Stage::Running { ready: *ready };
            }
            Change::Exit => {
                self.started.get_or_insert_with(|| at.clone());
                self.exit(None, &at);
                return self.restart(now, &at);
            }
            Change::Disrupt { reason } => {
                self.started.get_or_insert_with(|| at.clone());
                self.disruption = Some(reason.clone());
                self.exit(Some(KILLED), &at);
                self.stage = Stage::Ended { failed: true };
            }
            Change::Terminate { code } => {
                self.started.get_or_insert_with(|| at.clone());
                self.exit(Some(*code), &at);
                self.end();
            }
        }
        false
    }

    /// Ends every container, with `code` or as its behaviour says.
    fn exit(&mut self, code: Option<i32>, at: &Time) {
        let usual = match self.behaviour.course {
            Course::Exiting { code } => code,
            _ => 0,
        };
        for container in &mut self.containers {
            let from = match &container.state {
                State::Running { since } => since.clone(),
                State::Waiting => at.clone(),
                State::Exited(_) => continue,
            };
            let own = self.behaviour.codes.get(&container.name).copied();
            let code = code.unwrap_or(if container.sidecar { 0 } else { own.unwrap_or(usual) });
            container.state = State::Exited(Exit { code, from, to: at.clone() });
        }
    }

    /// Starts again what the restart policy wants to run, or else ends the pod.
    fn restart(&mut self, now: Instant, at: &Time) -> bool {
        let always = self.spec().restart_policy.as_deref().unwrap_or("Always") == "Always";
        let never = self.spec().restart_policy.as_deref() == Some("Never");
        let restarts = |exit: &Exit| always || (!never && exit.code != 0);
        let mains = || self.containers.iter().filter(|one| !one.sidecar);
        if !mains().any(|one| matches!(&one.state, State::Exited(exit) if restarts(exit))) {
            self.end();
            return false;
        }
        for container in &mut self.containers {
            if let State::Exited(exit) = &container.state
                && (container.sidecar || restarts(exit))
            {
                if !container.sidecar {
                    (container.restarts, container.last) = (container.restarts + 1, Some(exit.clone()));
                }
                container.state = State::Running { since: at.clone() };
            }
        }
        (self.stage, self.since) = (Stage::Running { ready: true }, now);
        true
    }

    fn end(&mut self) {
        let failed =
            |one: &Container| !one.sidecar && matches!(&one.state, State::Exited(exit) if exit.code != 0);
        self.stage = Stage::Ended { failed: self.containers.iter().any(failed) };
    }

    fn spec(&self) -> &PodSpec {
        self.pod.spec.as_ref().expect("a pod from an API server has a spec")
    }
}

fn version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_ref()?.parse().ok()
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

fn containers(pod: &Pod) -> Vec<Container> {
    let spec = pod.spec.clone().unwrap_or_default();
    let inits = spec.init_containers.into_iter().flatten();
    let sidecars = inits.filter(|one| one.restart_policy.as_deref() == Some("Always")).map(|one| (one, true));
    let mains = spec.containers.into_iter().map(|one| (one, false));
    let new = |(one, sidecar): (k8s_openapi::api::core::v1::Container, bool)| Container {
        name: one.name,
        image: one.image.unwrap_or_default(),
        sidecar,
        restarts: 0,
        state: State::Waiting,
        last: None,
    };
    sidecars.chain(mains).map(new).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{super::status, *};

    /// Plays a behaviour, second by second, until nothing more happens, and tells what was done.
    fn play(life: &mut Life, behaviour: impl Fn(&Pod) -> Behaviour) -> String {
        let (start, mut seconds, mut told) = (Instant::now(), 0, Vec::new());
        loop {
            let now = start + Duration::from_secs(seconds);
            match life.next(now) {
                Step::Wait(Some(until)) => seconds = (until - start + Duration::from_millis(999)).as_secs(),
                Step::Wait(None) => return told.join(", "),
                Step::Delete => {
                    told.push(format!("{seconds}: delete"));
                    return told.join(", ");
                }
                Step::Bind => {
                    life.bound(now);
                    told.push(format!("{seconds}: bind"));
                }
                Step::Change(change) => {
                    let restarted = life.change(&change, now, Timestamp::UNIX_EPOCH);
                    let patch = status::patch(life, &Time(Timestamp::UNIX_EPOCH));
                    told.push(format!("{seconds}: {}", tell(&patch["status"])));
                    assert!(told.len() < 20, "{told:?}");
                    let mut pod = life.pod.clone();
                    pod.status = serde_json::from_value(patch["status"].clone()).expect("a pod status");
                    life.see(pod, now);
                    if restarted {
                        life.behave(behaviour(&life.pod), now);
                    }
                }
            }
        }
    }

    /// `Running main+1 Ready`: the phase, the containers with restarts and exit codes, and what is true.
    fn tell(status: &Value) -> String {
        let mut words = vec![status["phase"].as_str().unwrap_or("-").to_owned()];
        let list = |key: &str| status[key].as_array().cloned().unwrap_or_default();
        for one in list("initContainerStatuses").iter().chain(&list("containerStatuses")) {
            let name = one["name"].as_str().unwrap_or_default();
            let restarts =
                if one["restartCount"] == 0 { String::new() } else { format!("+{}", one["restartCount"]) };
            let code = one["state"]["terminated"]["exitCode"].as_i64().map(|code| format!("={code}"));
            words.push(format!("{name}{restarts}{}", code.unwrap_or_default()));
        }
        for condition in list("conditions") {
            let name = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            match (&*name("type"), &*name("status")) {
                ("Ready", "True") => words.push("Ready".to_owned()),
                ("PodScheduled", "False") | ("DisruptionTarget", _) => words.push(name("reason")),
                _ => {}
            }
        }
        words.join(" ")
    }

    fn pod(spec: &Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "pod", "namespace": "default", "uid": "1" },
            "spec": { "containers": [{ "name": "main", "image": "any" }], "restartPolicy": "Never" },
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            pod["spec"][key] = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    fn check(spec: &Value, behaviour: impl Fn(&Pod) -> Behaviour, told: &str) {
        let pod = pod(spec);
        let first = behaviour(&pod);
        let mut life = Life::new(pod, first, "10.0.0.1".to_owned(), Instant::now());
        assert_eq!(play(&mut life, behaviour), told);
    }

    const LONG: Duration = Duration::from_secs(5);

    #[test]
    fn courses() {
        let none = json!({});
        check(&none, |_| Behaviour::runs(), "0: bind, 0: Running main Ready");
        check(&none, |_| Behaviour::never_ready(), "0: bind, 0: Running main");
        check(&none, |_| Behaviour::creating(), "0: bind");
        check(&none, |_| Behaviour::unschedulable(), "0: - Unschedulable");
        check(&none, |_| Behaviour::exits(0), "0: bind, 0: Succeeded main=0");
        check(&none, |_| Behaviour::exits(3).after(LONG), "0: bind, 0: Running main Ready, 5: Failed main=3");
        check(
            &none,
            |_| Behaviour::disrupted("PreemptionByScheduler").after(LONG),
            "0: bind, 0: Running main Ready, 5: Failed main=137 PreemptionByScheduler",
        );
    }

    #[test]
    fn pods_that_are_not_ours_to_bind() {
        check(&json!({ "schedulingGates": [{ "name": "wait" }] }), |_| Behaviour::exits(0), "");
        check(&json!({ "schedulerName": "another" }), |_| Behaviour::exits(0), "");
    }

    #[test]
    fn several_containers() {
        let two = json!({ "containers": [{ "name": "one" }, { "name": "two" }] });
        let course = "0: bind, 0: Failed one=0 two=4";
        check(&two, |_| Behaviour::exits(0).container("two", 4), course);
        let helped =
            json!({ "initContainers": [{ "name": "init" }, { "name": "side", "restartPolicy": "Always" }] });
        let course = "0: bind, 0: Running init=0 side main Ready, 5: Failed init=0 side=0 main=1";
        check(&helped, |_| Behaviour::exits(1).after(LONG), course);
    }

    #[test]
    fn restarts() {
        let fails_twice = |pod: &Pod| {
            let status = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
            Behaviour::exits(i32::from(status.is_none_or(|all| all[0].restart_count < 2)))
        };
        check(
            &json!({ "restartPolicy": "OnFailure" }),
            fails_twice,
            "0: bind, 0: Running main+1 Ready, 1: Running main+2 Ready, 2: Succeeded main+2=0",
        );
        check(&json!({ "restartPolicy": "Never" }), fails_twice, "0: bind, 0: Failed main=1");
    }

    #[test]
    fn deletion() {
        let check = |stage: Option<Behaviour>, behaviour: Behaviour, grace: i64, told: &str| {
            let mut life = Life::new(pod(&json!({})), behaviour.clone(), String::new(), Instant::now());
            if let Some(before) = stage {
                life.behave(before, Instant::now());
                play(&mut life, |_| Behaviour::runs());
                life.behave(behaviour, Instant::now());
            }
            let mut deleted = life.pod.clone();
            deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
            deleted.metadata.deletion_grace_period_seconds = Some(grace);
            life.see(deleted, Instant::now());
            assert_eq!(play(&mut life, |_| Behaviour::runs()), told);
        };
        let (running, ended) = (|| Some(Behaviour::runs()), || Some(Behaviour::exits(0)));
        check(running(), Behaviour::runs(), 30, "0: Failed main=143, 0: delete");
        check(running(), Behaviour::runs().on_delete(0, LONG), 30, "5: Succeeded main=0, 5: delete");
        check(running(), Behaviour::runs().on_delete(0, LONG), 2, "2: Failed main=137, 2: delete");
        check(Some(Behaviour::creating()), Behaviour::creating(), 30, "0: Failed main=137, 0: delete");
        check(ended(), Behaviour::runs(), 30, "0: delete");
        check(None, Behaviour::runs(), 30, ""); // never bound: the API server itself removes it
    }

    #[test]
    fn a_condition_keeps_its_time_while_it_holds() {
        let mut life = Life::new(pod(&json!({})), Behaviour::runs(), String::new(), Instant::now());
        play(&mut life, |_| Behaviour::runs());
        let later = Time(Timestamp::UNIX_EPOCH + Duration::from_secs(60));
        life.change(&Change::Run { ready: false }, Instant::now(), later.0);
        let patch = status::patch(&life, &later);
        let time = |kind: &str| {
            let conditions = patch["status"]["conditions"].as_array().expect("conditions");
            let condition =
                conditions.iter().find(|condition| condition["type"] == kind).expect("the condition");
            condition["lastTransitionTime"].as_str().expect("a time").to_owned()
        };
        assert_eq!(
            (&*time("Initialized"), &*time("Ready")),
            ("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z")
        );
    }
}
