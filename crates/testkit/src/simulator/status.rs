//! The status of a pod in the words of a kubelet, as a patch.
//!
//! A patch says everything, and what is not there explicitly so (`null`): computed as the difference from a copy that is
//! not the latest, it would leave out what only seems unchanged.

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::Time};
use serde_json::{Value, json};

use super::life::{Container, Exit, Life, Stage, State};

const HOST: &str = "127.0.0.1";

/// The strategic merge patch that makes the pod's status what `life` has come to at `now`.
pub(super) fn patch(life: &Life, now: &Time) -> Value {
    let conditions: Vec<Value> =
        conditions(life).into_iter().map(|condition| condition.render(&life.pod, now)).collect();
    let mut status = json!({ "conditions": conditions, "observedGeneration": life.pod.metadata.generation });
    if !matches!(life.stage, Stage::Unbound { .. }) {
        let (sidecars, mains): (Vec<_>, Vec<_>) = life.containers.iter().partition(|one| one.sidecar);
        let render = |one: &Container| container(one, life);
        let inits = finished_inits(life).chain(sidecars.into_iter().map(render));
        status["phase"] = json!(phase(life.stage));
        status["startTime"] = json!(life.started);
        status["hostIP"] = json!(HOST);
        status["hostIPs"] = json!([{ "ip": HOST }]);
        status["podIP"] = json!(life.ip);
        status["podIPs"] = json!([{ "ip": life.ip }]);
        status["initContainerStatuses"] = inits.collect();
        status["containerStatuses"] = mains.into_iter().map(render).collect();
    }
    json!({ "metadata": { "uid": life.pod.metadata.uid }, "status": status })
}

fn phase(stage: Stage) -> &'static str {
    match stage {
        Stage::Unbound { .. } | Stage::Bound => "Pending",
        Stage::Running { .. } => "Running",
        Stage::Ended { failed: true } => "Failed",
        Stage::Ended { failed: false } => "Succeeded",
    }
}

struct Condition {
    kind: &'static str,
    status: bool,
    reason: Option<String>,
    message: Option<String>,
}

impl Condition {
    fn new(kind: &'static str, status: bool, reason: Option<&str>) -> Condition {
        Condition { kind, status, reason: reason.map(str::to_owned), message: None }
    }

    /// The time of the last transition stays as long as the status does.
    fn render(self, pod: &Pod, now: &Time) -> Value {
        let status = if self.status { "True" } else { "False" };
        let old = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        let old = old.into_iter().flatten().find(|old| old.type_ == self.kind && old.status == status);
        let since = old.and_then(|old| old.last_transition_time.as_ref()).unwrap_or(now);
        json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": since,
        })
    }
}

fn conditions(life: &Life) -> Vec<Condition> {
    let all = |up: bool, initialized: Option<&str>, ready: bool, reason: Option<&str>| {
        vec![
            Condition::new("PodReadyToStartContainers", up, None),
            Condition::new("Initialized", true, initialized),
            Condition::new("ContainersReady", ready, reason),
            Condition::new("Ready", ready, reason),
            Condition::new("PodScheduled", true, None),
        ]
    };
    let mut conditions = match life.stage {
        Stage::Unbound { .. } => {
            let mut unscheduled = Condition::new("PodScheduled", false, Some("Unschedulable"));
            unscheduled.message = Some("0/1 nodes are available: the simulator was told so.".to_owned());
            vec![unscheduled]
        }
        Stage::Bound => all(false, None, false, Some("ContainersNotReady")),
        Stage::Running { ready: false } => all(true, None, false, Some("ContainersNotReady")),
        Stage::Running { ready: true } => all(true, None, true, None),
        Stage::Ended { failed: true } => all(false, None, false, Some("PodFailed")),
        Stage::Ended { failed: false } => all(false, Some("PodCompleted"), false, Some("PodCompleted")),
    };
    if let Some(reason) = &life.disruption {
        conditions.push(Condition::new("DisruptionTarget", true, Some(reason)));
    }
    conditions
}

fn container(one: &Container, life: &Life) -> Value {
    let running = matches!(one.state, State::Running { .. });
    let state = match &one.state {
        State::Waiting => json!({ "waiting": { "reason": "ContainerCreating" } }),
        State::Running { since } => json!({ "running": { "startedAt": since } }),
        State::Exited(exit) => json!({ "terminated": terminated(exit, one, life) }),
    };
    let last =
        one.last.as_ref().map_or(json!({}), |exit| json!({ "terminated": terminated(exit, one, life) }));
    json!({
        "name": one.name,
        "image": one.image,
        "imageID": if one.state == State::Waiting { "" } else { &one.image },
        "containerID": (one.state != State::Waiting).then(|| id(one, life)),
        "ready": running && life.stage == Stage::Running { ready: true },
        "started": running,
        "restartCount": one.restarts,
        "state": state,
        "lastState": last,
    })
}

fn terminated(exit: &Exit, one: &Container, life: &Life) -> Value {
    json!({
        "exitCode": exit.code,
        "reason": if exit.code == 0 { "Completed" } else { "Error" },
        "startedAt": exit.from,
        "finishedAt": exit.to,
        "containerID": id(one, life),
    })
}

fn id(one: &Container, life: &Life) -> String {
    let uid = life.pod.metadata.uid.as_deref().unwrap_or_default();
    format!("simulated://{uid}-{}-{}", one.name, one.restarts)
}

/// Init containers that end have ended well, and at once.
fn finished_inits(life: &Life) -> impl Iterator<Item = Value> {
    let inits = life.pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let ending = inits.filter(|one| one.restart_policy.as_deref() != Some("Always"));
    ending.map(|one| {
        let exit = json!({
            "exitCode": 0, "reason": "Completed", "startedAt": life.started, "finishedAt": life.started,
        });
        json!({
            "name": one.name, "image": one.image, "imageID": one.image, "ready": true, "started": false,
            "restartCount": 0, "state": { "terminated": exit },
        })
    })
}
