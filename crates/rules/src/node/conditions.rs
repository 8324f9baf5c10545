//! The conditions that a node sets on its pods, and how they are kept.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::{
    container::{Container, Kind},
    phase::Phase,
    plan,
    resize::{self, Unsettled},
    status,
};

/// Conditions that this node owns; all others on a pod are kept as they are.
const OWNED: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    resize::PENDING,
    resize::IN_PROGRESS,
];

/// Whether a node says on its own what a condition is.
pub fn is_owned(kind: &str) -> bool {
    OWNED.contains(&kind)
}

/// Says that a pod was cut short by something that was no fault of its own.
const DISRUPTION: &str = "DisruptionTarget";

/// What the conditions follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) pod: &'a Pod,
    pub(super) containers: &'a [Container],
    pub(super) phase: Phase,
    /// Reason and message of what has cut the pod short.
    pub(super) disruption: Option<(&'a str, &'a str)>,
    /// What keeps the pod from the resources that it asks for.
    pub(super) resize: Option<&'a Unsettled>,
    /// The pod's own surroundings (namespaces, volumes) are there.
    pub(super) sandboxed: bool,
    pub(super) now: Timestamp,
}

/// All conditions of the pod: those of others first, then ours.
pub(super) fn of(facts: &Facts<'_>) -> Vec<PodCondition> {
    let old = facts.pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let mut all: Vec<PodCondition> = old.iter().filter(|one| !is_owned(&one.type_)).cloned().collect();
    let ready = containers_ready(facts);
    let mut ours = vec![
        ("PodReadyToStartContainers", Word::new(facts.sandboxed)),
        ("Initialized", initialized(facts)),
        ("Ready", with_gates(facts, &all, ready.clone())),
        ("ContainersReady", ready),
        ("PodScheduled", Word::new(true)),
    ];
    if let Some((reason, message)) = facts.disruption {
        all.retain(|one| one.type_ != DISRUPTION);
        ours.insert(0, (DISRUPTION, Word::because(true, reason, message.to_owned())));
    }
    if let Some(resize) = facts.resize {
        ours.push((resize.condition, Word::because(true, resize.reason, resize.message.clone())));
    }
    for (kind, word) in ours {
        let holds = if word.holds { "True" } else { "False" };
        let since = old
            .iter()
            .find(|one| one.type_ == kind && one.status == holds)
            .and_then(|one| one.last_transition_time.clone());
        all.push(PodCondition {
            type_: kind.to_owned(),
            status: holds.to_owned(),
            reason: word.reason.map(str::to_owned),
            message: Some(word.message).filter(|message| !message.is_empty()),
            observed_generation: facts.pod.metadata.generation,
            last_probe_time: None,
            last_transition_time: Some(since.unwrap_or_else(|| status::seconds(facts.now))),
        });
    }
    all
}

/// What a condition says.
#[derive(Clone, Debug)]
struct Word<'a> {
    holds: bool,
    reason: Option<&'a str>,
    message: String,
}

impl<'a> Word<'a> {
    fn new(holds: bool) -> Word<'a> {
        Word { holds, reason: None, message: String::new() }
    }

    fn because(holds: bool, reason: &'a str, message: String) -> Word<'a> {
        Word { holds, reason: Some(reason), message }
    }
}

fn containers_ready<'a>(facts: &Facts<'a>) -> Word<'a> {
    match facts.phase {
        Phase::Succeeded => return Word::because(false, "PodCompleted", String::new()),
        Phase::Failed => return Word::because(false, "PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    let unready = facts.containers.iter().filter(|one| matches!(one.kind, Kind::Main | Kind::Sidecar));
    let unready: Vec<&str> = unready.filter(|one| !is_ready(one)).map(|one| one.name.as_str()).collect();
    if unready.is_empty() {
        return Word::new(true);
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Word::because(false, "ContainersNotReady", message)
}

/// Whether a container that is to keep running is ready.
pub(super) fn is_ready(container: &Container) -> bool {
    container.is_running() && container.started && container.ready
}

/// Readiness gates are conditions that others set.
fn with_gates<'a>(facts: &Facts<'a>, others: &[PodCondition], ready: Word<'a>) -> Word<'a> {
    if !ready.holds {
        return ready;
    }
    let gates = facts.pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let missing: Vec<String> = gates
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match others.iter().find(|one| one.type_ == *kind) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate {kind:?} does not exist."))
                }
                Some(one) if one.status != "True" => Some(format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    one.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if missing.is_empty() {
        ready
    } else {
        Word::because(false, "ReadinessGatesNotReady", missing.join(", "))
    }
}

fn initialized<'a>(facts: &Facts<'a>) -> Word<'a> {
    if facts.phase == Phase::Succeeded {
        return Word::because(true, "PodCompleted", String::new());
    }
    if plan::is_initialized(facts.containers) {
        return Word::new(true);
    }
    let incomplete: Vec<&str> = facts
        .containers
        .iter()
        .filter(|one| match one.kind {
            Kind::Main | Kind::Ephemeral => false,
            Kind::Sidecar => !one.started,
            Kind::Init => one.exit().is_none_or(|exit| exit.code != 0),
        })
        .map(|one| one.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return Word::new(true);
    }
    let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
    Word::because(false, "ContainersNotInitialized", message)
}
