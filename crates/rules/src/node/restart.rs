//! Whether a container that has ended runs again, and when.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod, PodSpec};

use super::container::{self, Exit, Kind};

/// The first wait.
const FIRST: Duration = Duration::from_secs(10);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(5 * 60);
/// An instance that ran so long is forgiven all that was before.
const FORGIVEN: Duration = Duration::from_secs(10 * 60);

/// How long a container waits before it is started again: not at all the first time, and then longer and longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    wait: Duration,
    /// When the wait was decided last.
    since: Option<Timestamp>,
}

impl Backoff {
    /// The wait that counts from the end of the latest instance.
    pub fn wait(self, ended: Timestamp) -> Duration {
        if self.is_forgiven(ended) { Duration::ZERO } else { self.wait }
    }

    /// The container, whose latest instance ended then, is being started again.
    pub fn next(&mut self, ended: Timestamp) {
        self.wait =
            if self.is_forgiven(ended) || self.wait.is_zero() { FIRST } else { (self.wait * 2).min(LONGEST) };
        self.since = Some(ended);
    }

    fn is_forgiven(self, ended: Timestamp) -> bool {
        self.since.is_some_and(|since| {
            let after = ended.duration_since(since);
            after > jiff::SignedDuration::try_from(FORGIVEN).expect("ten minutes are not too long")
        })
    }
}

/// The reason of a container that waits before it is started again.
pub const CRASH_LOOP: &str = "CrashLoopBackOff";

/// And what it tells people.
pub fn message(pod: &Pod, container: &str, seconds: u64) -> String {
    let wait = match (seconds / 60, seconds % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    };
    format!("back-off {wait} restarting failed container={container} pod={}", called(pod))
}

/// The same as an event.
pub fn told(pod: &Pod, container: &str) -> String {
    format!("Back-off restarting failed container {container} in pod {}", called(pod))
}

/// A pod as kubelets call it.
fn called(pod: &Pod) -> String {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (name, namespace) = (text(&pod.metadata.name), text(&pod.metadata.namespace));
    format!("{name}_{namespace}({})", text(&pod.metadata.uid))
}

/// Whether a container is to run again after this end: the first of its own rules that matches, else its own policy, else
/// the pod's. An init container that has succeeded is done.
pub fn is_wanted(spec: &PodSpec, of: &container::Container, exit: &Exit) -> bool {
    let specified = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let Some(container) = specified.into_iter().find(|one| one.name == of.name) else { return false };
    match of.kind {
        Kind::Ephemeral => false,
        Kind::Init if exit.code == 0 => false,
        Kind::Init | Kind::Main if of.unhealthy => policy_of(spec) != "Never",
        _ => wants(spec, container, exit.code),
    }
}

fn wants(spec: &PodSpec, container: &Container, code: i32) -> bool {
    if let Some(policy) = &container.restart_policy {
        let rules = container.restart_policy_rules.iter().flatten();
        if rules.into_iter().any(|rule| rule.action == "Restart" && matches(rule, code)) {
            return true;
        }
        return by_policy(policy, code);
    }
    by_policy(policy_of(spec), code)
}

/// The pod's own policy.
fn policy_of(spec: &PodSpec) -> &str {
    spec.restart_policy.as_deref().unwrap_or("Always")
}

fn by_policy(policy: &str, code: i32) -> bool {
    match policy {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn matches(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let listed = codes.values.iter().flatten().any(|value| *value == code);
    match codes.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn waits_longer_and_longer_and_forgives_after_ten_minutes() {
        let mut backoff = Backoff::default();
        let mut ended = 1_000;
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(backoff.wait(at(ended)).as_secs());
            backoff.next(at(ended));
            ended += 301; // fails as soon as it was started
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff.wait(at(ended + 601)), Duration::ZERO, "it ran for ten minutes");
        backoff.next(at(ended + 601));
        assert_eq!(backoff.wait(at(ended + 602)), FIRST);
    }

    #[test]
    fn a_pod_that_waits_is_called_the_same_wherever_it_is_told() {
        let metadata = serde_json::json!({ "name": "p", "namespace": "n", "uid": "u" });
        let pod = serde_json::from_value(serde_json::json!({ "metadata": metadata })).expect("a pod");
        assert_eq!(message(&pod, "c", 80), "back-off 1m20s restarting failed container=c pod=p_n(u)");
        assert_eq!(told(&pod, "c"), "Back-off restarting failed container c in pod p_n(u)");
    }

    #[test]
    fn own_rules_come_before_own_policy_and_that_before_the_pods() {
        let spec: PodSpec = serde_json::from_value(serde_json::json!({
            "restartPolicy": "Never",
            "containers": [
                { "name": "plain" },
                { "name": "own", "restartPolicy": "OnFailure" },
                { "name": "rules", "restartPolicy": "Never", "restartPolicyRules": [
                    { "action": "Restart", "exitCodes": { "operator": "In", "values": [42] } } ] },
            ],
            "initContainers": [{ "name": "sidecar", "restartPolicy": "Always" }, { "name": "init" }],
        }))
        .expect("a spec");
        let wanted = |name: &str, kind, code| {
            let exit = Exit::with_code(code, at(0), at(1));
            is_wanted(&spec, &container::Container::new(name, "", kind), &exit)
        };
        assert!(!wanted("plain", Kind::Main, 1));
        assert!(wanted("own", Kind::Main, 1));
        assert!(!wanted("own", Kind::Main, 0));
        assert!(wanted("rules", Kind::Main, 42));
        assert!(!wanted("rules", Kind::Main, 1));
        assert!(wanted("sidecar", Kind::Sidecar, 0));
        assert!(!wanted("init", Kind::Init, 1));
    }
}
