//! The phase of a pod, from what its containers do.

use k8s_openapi::api::core::v1::PodSpec;

use super::{
    container::{Container, Kind, State},
    plan, restart,
};

/// The simple, high-level summary of where a pod is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not everything has been started.
    Pending,
    /// Something runs, or will again.
    Running,
    /// All main containers have ended, well.
    Succeeded,
    /// All have ended, and one of them badly.
    Failed,
}

impl Phase {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
        }
    }

    /// Reads what the API says; `None` for what it does not know.
    pub fn parse(phase: &str) -> Option<Phase> {
        [Phase::Pending, Phase::Running, Phase::Succeeded, Phase::Failed]
            .into_iter()
            .find(|one| one.as_str() == phase)
    }

    /// Whether it can never change again.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

/// The phase of a pod. If `over`, nothing of it will be started again, whatever its restart policy says.
pub fn of(spec: &PodSpec, containers: &[Container], over: bool) -> Phase {
    let waits = |one: &&Container| one.latest_exit().is_none() && !one.is_running();
    let inits = || containers.iter().filter(|one| one.kind == Kind::Init);
    let sidecars = || containers.iter().filter(|one| one.kind == Kind::Sidecar);
    let mains = || containers.iter().filter(|one| one.kind == Kind::Main);

    let failed_for_good = |one: &Container| {
        one.latest_exit().is_some_and(|exit| exit.code != 0 && !restart::is_wanted(spec, one, exit))
    };
    if inits().any(failed_for_good) {
        return Phase::Failed;
    }
    let init_pending = inits().any(|one| one.is_running() || waits(&one));
    let sidecar_pending = sidecars().any(|one| (one.is_running() && !one.started) || waits(&one));
    if init_pending || (sidecar_pending && !plan::is_initialized(containers)) {
        return Phase::Pending;
    }
    if mains().chain(sidecars()).any(|one| waits(&one)) {
        return Phase::Pending;
    }
    if mains().chain(sidecars()).any(Container::is_running) {
        return Phase::Running;
    }
    let mut ends = mains().filter_map(|one| one.latest_exit().map(|exit| (one, exit))).peekable();
    if ends.peek().is_none() {
        return Phase::Pending;
    }
    let again = |(one, exit): (&Container, _)| restart::is_wanted(spec, one, exit);
    if !over && mains().filter_map(|one| one.latest_exit().map(|exit| (one, exit))).any(again) {
        return Phase::Running;
    }
    // One that ended well and then could not be started again has not succeeded.
    let succeeded = |one: &Container| matches!(&one.state, State::Exited(exit) if exit.code == 0);
    if ends.all(|(one, _)| succeeded(one)) { Phase::Succeeded } else { Phase::Failed }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::node::{Exit, container};

    fn check(policy: &str, states: &str, over: bool, expected: Phase) {
        let pod = serde_json::from_value(json!({ "spec": {
            "restartPolicy": policy,
            "initContainers": [{ "name": "init" }, { "name": "side", "restartPolicy": "Always" }],
            "containers": [{ "name": "one" }, { "name": "two" }],
        } }));
        let pod: k8s_openapi::api::core::v1::Pod = pod.expect("a pod");
        let now = Timestamp::UNIX_EPOCH;
        let mut containers = container::of_pod(&pod);
        for (container, state) in containers.iter_mut().zip(states.chars()) {
            match state {
                'r' | 'R' => container.start("id".to_owned(), String::new(), now),
                '0' => container.end(Exit::with_code(0, now, now)),
                '1' => container.end(Exit::with_code(1, now, now)),
                'w' => {
                    container.end(Exit::with_code(1, now, now));
                    container.wait("CrashLoopBackOff", String::new());
                }
                _ => {}
            }
            container.started = state == 'R';
        }
        assert_eq!(of(&pod.spec.expect("a spec"), &containers, over), expected, "{policy} {states}");
    }

    #[test]
    fn phases() {
        check("Never", "----", false, Phase::Pending);
        check("Never", "r---", false, Phase::Pending);
        check("Never", "1---", false, Phase::Failed);
        check("OnFailure", "1---", false, Phase::Pending);
        check("Never", "0r--", false, Phase::Pending);
        check("Never", "0R--", false, Phase::Pending);
        check("Never", "0Rr-", false, Phase::Pending);
        check("Never", "0RRR", false, Phase::Running);
        check("Never", "0rRR", false, Phase::Running);
        check("Never", "0R0R", false, Phase::Running);
        check("Never", "0R00", false, Phase::Running);
        check("Never", "0000", false, Phase::Succeeded);
        check("Never", "0100", false, Phase::Succeeded);
        check("Never", "0001", false, Phase::Failed);
        check("OnFailure", "0001", false, Phase::Running);
        check("OnFailure", "000w", false, Phase::Running);
        check("OnFailure", "0001", true, Phase::Failed);
        check("Always", "0000", false, Phase::Running);
        check("Always", "0000", true, Phase::Succeeded);
        check("Always", "000w", true, Phase::Failed);
    }
}
