//! The next steps of a pod: what to start, what to stop, and when to look again.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::{
    container::{Container, Kind, State},
    ending::Ending,
    restart,
};

/// Everything one decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The pod as the API server has it.
    pub pod: &'a Pod,
    /// Its containers, in the order in which they start.
    pub containers: &'a [Container],
    /// Why it has to end, if it has to.
    pub ending: Option<&'a Ending>,
    /// The time.
    pub now: Timestamp,
}

/// What to do next. Prints as one line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// In this order; what can be done at once may be.
    pub steps: Vec<Step>,
    /// When to decide again, if nothing happens before.
    pub again: Option<Timestamp>,
    /// Nothing runs, and nothing will again.
    pub over: bool,
}

/// One step. Containers are named by their place in [`Seen::containers`].
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Start an instance of this container.
    Start(usize),
    /// Let this container, which has ended, wait before it starts again; its status says so.
    BackOff {
        /// Which.
        container: usize,
        /// The wait, counted from its end.
        seconds: u64,
    },
    /// Let this container, whose turn to be stopped comes later, do what it does before.
    PreStop(usize),
    /// Stop this container.
    Stop(usize),
}

/// Decides what comes next for the pod.
pub fn decide(seen: &Seen<'_>) -> Plan {
    let Some(spec) = &seen.pod.spec else { return Plan { over: true, ..Plan::default() } };
    if seen.ending.is_some() || is_finished(spec, seen.containers) {
        return stop(seen.containers);
    }
    let mut plan = Plan::default();
    if advance_inits(spec, seen, &mut plan) {
        let all = seen.containers.iter().enumerate();
        for (index, container) in all.filter(|(_, one)| matches!(one.kind, Kind::Main | Kind::Ephemeral)) {
            run(spec, seen, index, container, &mut plan);
        }
    }
    plan
}

/// Whether the containers have said all that the pod will come to: the main ones have ended for good, or an init
/// container has, badly.
pub fn is_finished(spec: &PodSpec, containers: &[Container]) -> bool {
    let ended = |container: &Container| {
        container.latest_exit().is_some_and(|exit| !restart::is_wanted(spec, container, exit))
    };
    let failed = |container: &&Container| {
        container.kind == Kind::Init
            && ended(container)
            && container.latest_exit().is_some_and(|exit| exit.code != 0)
    };
    containers.iter().any(|container| failed(&container))
        || mains(containers).all(|(_, container)| ended(container))
}

/// Whether a main container has ever been started, which the init containers had to allow.
pub fn is_initialized(containers: &[Container]) -> bool {
    mains(containers).any(|(_, one)| has_begun(one))
}

fn has_begun(one: &Container) -> bool {
    one.is_running() || one.exit().is_some() || one.last.is_some()
}

fn mains(containers: &[Container]) -> impl Iterator<Item = (usize, &Container)> {
    containers.iter().enumerate().filter(|(_, container)| container.kind == Kind::Main)
}

/// Stops what runs: sidecars last, in the reverse order of their start, each when nothing that came later runs any more. What
/// they do before, they do while the others stop, as those may leave them no time.
fn stop(containers: &[Container]) -> Plan {
    let running: Vec<usize> = (0..containers.len()).filter(|index| containers[*index].is_running()).collect();
    let is_sidecar = |index: &usize| containers[*index].kind == Kind::Sidecar;
    let others = running.iter().any(|index| !is_sidecar(index));
    let is_its_turn = |index: &usize| {
        if others { !is_sidecar(index) } else { running.last() == Some(index) }
    };
    let step = |index: &usize| if is_its_turn(index) { Step::Stop(*index) } else { Step::PreStop(*index) };
    Plan { steps: running.iter().map(step).collect(), again: None, over: running.is_empty() }
}

/// Leads the init containers on; true when the main ones may run. Those of a pod that goes on after its node was started
/// again run again, all in their order: what they did is gone with the pod's surroundings, wholly or in part.
fn advance_inits(spec: &PodSpec, seen: &Seen<'_>, plan: &mut Plan) -> bool {
    let initialized = mains(seen.containers).any(|(_, one)| has_begun(one) && !one.before);
    for (index, container) in seen.containers.iter().enumerate() {
        match container.kind {
            Kind::Main | Kind::Ephemeral => {}
            // Once initialized, it is over with them, even if nobody remembers how they ended.
            Kind::Init if initialized => {}
            Kind::Init => {
                if container.before || container.exit().is_none_or(|exit| exit.code != 0) {
                    run(spec, seen, index, container, plan);
                    return false;
                }
            }
            Kind::Sidecar => {
                run(spec, seen, index, container, plan);
                let is_up = container.is_running() && container.started;
                if !initialized && !is_up {
                    return false;
                }
            }
        }
    }
    true
}

/// Sees to it that the container runs, unless it has done what it should.
fn run(spec: &PodSpec, seen: &Seen<'_>, index: usize, container: &Container, plan: &mut Plan) {
    let Some(exit) = container.latest_exit() else {
        if !container.is_running() {
            plan.steps.push(Step::Start(index));
        }
        return;
    };
    let is_anew = container.before && container.kind == Kind::Init;
    if !is_anew && !restart::is_wanted(spec, container, exit) {
        return;
    }
    // A container that nobody saw ending has waited long enough.
    let ended = exit.to.unwrap_or(Timestamp::UNIX_EPOCH);
    let wait = container.backoff.wait(ended);
    let due = ended.saturating_add(wait).unwrap_or(Timestamp::MAX);
    if due <= seen.now {
        plan.steps.push(Step::Start(index));
        return;
    }
    if matches!(container.state, State::Exited(_)) {
        plan.steps.push(Step::BackOff { container: index, seconds: wait.as_secs() });
    }
    plan.again = Some(plan.again.map_or(due, |again| again.min(due)));
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for step in &self.steps {
            match step {
                Step::Start(index) => write!(f, "{separator}start {index}")?,
                Step::BackOff { container, seconds } => {
                    write!(f, "{separator}back off {container} {seconds}s")?;
                }
                Step::PreStop(index) => write!(f, "{separator}pre-stop {index}")?,
                Step::Stop(index) => write!(f, "{separator}stop {index}")?,
            }
            separator = ", ";
        }
        match (self.over, self.again) {
            (true, _) => write!(f, "{separator}over"),
            (false, Some(again)) => write!(f, "{separator}again at {again}"),
            (false, None) if self.steps.is_empty() => write!(f, "wait"),
            (false, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::{Exit, container};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(policy: &str) -> Pod {
        serde_json::from_value(json!({ "spec": {
            "restartPolicy": policy,
            "initContainers": [
                { "name": "first" }, { "name": "side", "restartPolicy": "Always" }, { "name": "second" },
            ],
            "containers": [{ "name": "one" }, { "name": "two" }],
        } }))
        .expect("a pod")
    }

    /// `-` new, `r` running and not started, `R` started, `0`/`1` exited so at second 100.
    fn containers(pod: &Pod, states: &str) -> Vec<Container> {
        let mut containers = container::of_pod(pod);
        for (container, state) in containers.iter_mut().zip(states.chars()) {
            match state {
                'r' | 'R' => container.start("id".to_owned(), String::new(), at(90)),
                '0' => container.end(Exit::with_code(0, at(90), at(100))),
                '1' => container.end(Exit::with_code(1, at(90), at(100))),
                _ => {}
            }
            container.started = state == 'R';
        }
        containers
    }

    fn check(policy: &str, states: &str, ending: Option<&Ending>, expected: &str) {
        let pod = pod(policy);
        let seen = Seen { pod: &pod, containers: &containers(&pod, states), ending, now: at(101) };
        assert_eq!(decide(&seen).to_string(), expected, "{policy} {states}");
    }

    #[test]
    fn init_containers_come_one_after_another_and_sidecars_stay() {
        check("Never", "-----", None, "start 0");
        check("Never", "r----", None, "wait");
        check("Never", "0----", None, "start 1");
        check("Never", "0r---", None, "wait");
        check("Never", "0R---", None, "start 2");
        check("Never", "0R0--", None, "start 3, start 4");
        check("Never", "0R0RR", None, "wait");
        check("Never", "0R00R", None, "wait");
        check("Never", "0R000", None, "stop 1");
        check("Never", "00000", None, "over");
    }

    /// What init containers did is gone with the surroundings of their pod.
    #[test]
    fn init_containers_run_again_after_their_node_was_started_again() {
        let check = |policy: &str, states: &str, here: &str, expected: &str| {
            let pod = pod(policy);
            let mut containers = containers(&pod, states);
            for container in &mut containers {
                if container.is_running() {
                    container.end(Exit::lost("")); // as what a status says of it is remembered
                }
                container.before = true;
            }
            let mut plans = Vec::new();
            for (index, state) in here.chars().enumerate() {
                let seen = Seen { pod: &pod, containers: &containers, ending: None, now: at(101) };
                plans.push(decide(&seen).to_string());
                let container = &mut containers[index];
                container.start("id".to_owned(), String::new(), at(101));
                container.started = true;
                if state == '0' {
                    container.end(Exit::with_code(0, at(101), at(101)));
                }
            }
            let seen = Seen { pod: &pod, containers: &containers, ending: None, now: at(101) };
            plans.push(decide(&seen).to_string());
            assert_eq!(plans.join("; "), expected, "{policy} {states}");
            containers.iter().map(|one| one.restarts).collect::<Vec<_>>()
        };
        let all = "start 0; start 1; start 2; start 3, start 4; start 4; wait";
        assert_eq!(check("Always", "0R0RR", "0R0RR", all), [1; 5]);
        // One that has done what it should does not run again, and neither does a pod that is done.
        let one = "start 0; start 1; start 2; start 4";
        assert_eq!(check("OnFailure", "0R00R", "0R0", one), [1, 1, 1, 0, 0]);
        check("Never", "0R0RR", "", "over");
        check("OnFailure", "0R000", "", "over");
        // So do those of a pod that had not come further.
        assert_eq!(
            check("Always", "0R0--", "0R0", "start 0; start 1; start 2; start 3, start 4"),
            [1, 1, 1, 0, 0]
        );
        check("Always", "0r---", "0R", "start 0; start 1; start 2");
    }

    #[test]
    fn failures_end_the_pod_or_are_tried_again() {
        check("Never", "1----", None, "over");
        check("Never", "0R1--", None, "stop 1");
        check("OnFailure", "1----", None, "start 0");
        check("OnFailure", "0R001", None, "start 4");
        check("Always", "0R001", None, "start 3, start 4");
        check("Never", "01-rr", None, "start 1");
    }

    #[test]
    fn a_pod_that_has_to_end_stops_its_sidecars_last() {
        check("Always", "0R0RR", Some(&Ending::Deleted), "pre-stop 1, stop 3, stop 4");
        check("Always", "0R01R", Some(&Ending::Deleted), "pre-stop 1, stop 4");
        check("Always", "0R011", Some(&Ending::DeadlineExceeded), "stop 1");
        check("Always", "00011", Some(&Ending::DeadlineExceeded), "over");
        check("Always", "-----", Some(&Ending::Deleted), "over");
    }

    #[test]
    fn an_ephemeral_container_runs_once_and_keeps_nobody_from_ending() {
        let mut pod = pod("Always");
        let spec = pod.spec.as_mut().expect("a spec");
        let added = serde_json::from_value(json!([{ "name": "look" }]));
        spec.ephemeral_containers = Some(added.expect("containers"));
        let seen = |states: &str, policy: &str| {
            let mut pod = pod.clone();
            pod.spec.as_mut().expect("a spec").restart_policy = Some(policy.to_owned());
            let containers = containers(&pod, states);
            decide(&Seen { pod: &pod, containers: &containers, ending: None, now: at(101) }).to_string()
        };
        assert_eq!(seen("------", "Always"), "start 0");
        assert_eq!(seen("0R0RR-", "Always"), "start 5");
        assert_eq!(seen("0R0RR1", "Always"), "wait");
        assert_eq!(seen("0R000R", "Never"), "pre-stop 1, stop 5");
    }

    #[test]
    fn sidecars_stop_one_after_another_and_do_what_comes_before_at_once() {
        let side = |name: &str| json!({ "name": name, "restartPolicy": "Always" });
        let pod: Pod = serde_json::from_value(json!({ "spec": {
            "initContainers": [side("first"), side("second")], "containers": [{ "name": "main" }],
        } }))
        .expect("a pod");
        let plan = |states: &str| {
            let (containers, ending) = (containers(&pod, states), Some(&Ending::Deleted));
            decide(&Seen { pod: &pod, containers: &containers, ending, now: at(101) }).to_string()
        };
        assert_eq!(plan("RRR"), "pre-stop 0, pre-stop 1, stop 2");
        assert_eq!(plan("RR0"), "pre-stop 0, stop 1");
        assert_eq!(plan("R00"), "stop 0");
        assert_eq!(plan("000"), "over");
    }

    #[test]
    fn a_second_failure_waits() {
        let pod = pod("OnFailure");
        let mut containers = containers(&pod, "0R001");
        containers[4].backoff.next(at(80));
        let seen = |containers: &[Container]| {
            decide(&Seen { pod: &pod, containers, ending: None, now: at(101) }).to_string()
        };
        let due = at(110);
        assert_eq!(seen(&containers), format!("back off 4 10s, again at {due}"));
        containers[4].wait("CrashLoopBackOff", String::new());
        assert_eq!(seen(&containers), format!("again at {due}"), "said once");
        let plan = decide(&Seen { pod: &pod, containers: &containers, ending: None, now: due });
        assert_eq!(plan.to_string(), "start 4");
        containers[4].start("id".to_owned(), String::new(), due);
        assert_eq!((containers[4].restarts, containers[4].last.as_ref().map(|exit| exit.code)), (1, Some(1)));
    }
}
