//! Pods: what matters most of what their containers do, in one word.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::value::{NONE, age, at, filled, list, name, number, since, switch, text};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    let columns = "Name:name|Ready|Status|Restarts|Age|IP*|Node*|Nominated Node*|Readiness Gates*";
    ((group, kind) == ("", "Pod")).then_some((columns, cells as Cells))
}

/// What the row of a pod that ended says besides its cells.
pub(super) fn conditions(object: &Value) -> Option<Value> {
    if object["kind"] != "Pod" || object["apiVersion"] != "v1" {
        return None;
    }
    let (reason, message) = match text(object, "status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// What the containers of a pod show of themselves.
struct Seen {
    reason: String,
    ready: usize,
    restarts: i64,
    last: Option<Timestamp>,
}

impl Seen {
    fn restarted(&mut self, status: &Value) {
        self.restarts += number(status, "restartCount");
        let ended: Option<Timestamp> = text(status, "lastState/terminated/finishedAt").parse().ok();
        self.last = self.last.max(ended);
    }
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let init = list(pod, "spec/initContainers");
    let restartable = |name: &str| {
        init.iter()
            .any(|container| text(container, "name") == name && text(container, "restartPolicy") == "Always")
    };
    let sidecars = init.iter().filter(|container| text(container, "restartPolicy") == "Always").count();
    let total = list(pod, "spec/containers").len() + sidecars;
    let mut seen = Seen { reason: first_reason(pod).to_owned(), ready: 0, restarts: 0, last: None };
    let mut of_sidecars = Seen { reason: String::new(), ready: 0, restarts: 0, last: None };
    let mut is_initializing = false;
    for (i, status) in list(pod, "status/initContainerStatuses").iter().enumerate() {
        seen.restarted(status);
        let is_sidecar = restartable(text(status, "name"));
        if is_sidecar {
            of_sidecars.restarted(status);
        }
        let ended = at(status, "state/terminated");
        if !ended.is_null() && number(ended, "exitCode") == 0 {
            continue;
        }
        if is_sidecar && switch(status, "started", false) {
            seen.ready += usize::from(switch(status, "ready", false));
            continue;
        }
        let waiting = text(status, "state/waiting/reason");
        seen.reason = if !ended.is_null() {
            format!("Init:{}", ending(ended))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{i}/{}", init.len())
        };
        is_initializing = true;
        break;
    }
    if !is_initializing || has_condition(pod, "Initialized") {
        (seen.restarts, seen.last) = (of_sidecars.restarts, of_sidecars.last);
        look_at_containers(pod, &mut seen);
    }
    if !at(pod, "metadata/deletionTimestamp").is_null() {
        if text(pod, "status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut seen.reason);
        } else if !matches!(text(pod, "status/phase"), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut seen.reason);
        }
    }
    let restarts = match seen.last {
        Some(last) if seen.restarts != 0 => {
            format!("{} ({} ago)", seen.restarts, since(&json!(last.to_string()), now))
        }
        _ => seen.restarts.to_string(),
    };
    vec![
        name(pod),
        json!(format!("{}/{total}", seen.ready)),
        json!(seen.reason),
        json!(restarts),
        age(pod, now),
        json!(list(pod, "status/podIPs").first().map_or(NONE, |ip| filled(ip, "ip", NONE))),
        json!(filled(pod, "spec/nodeName", NONE)),
        json!(filled(pod, "status/nominatedNodeName", NONE)),
        json!(readiness_gates(pod)),
    ]
}

fn first_reason(pod: &Value) -> &str {
    let is_gated =
        |condition: &Value| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated";
    if list(pod, "status/conditions").iter().any(is_gated) {
        return "SchedulingGated";
    }
    filled(pod, "status/reason", text(pod, "status/phase"))
}

/// The last container that has something to say decides; one that still runs outweighs those that completed.
fn look_at_containers(pod: &Value, seen: &mut Seen) {
    let mut is_running = false;
    let mut failure = String::new();
    for status in list(pod, "status/containerStatuses").iter().rev() {
        seen.restarted(status);
        let ended = at(status, "state/terminated");
        let waiting = text(status, "state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut seen.reason);
        } else if !ended.is_null() {
            seen.reason = ending(ended);
            if number(ended, "exitCode") != 0 {
                failure.clone_from(&seen.reason);
            }
        } else if switch(status, "ready", false) && !at(status, "state/running").is_null() {
            is_running = true;
            seen.ready += 1;
        }
    }
    if seen.reason == "Completed" {
        if is_running && has_condition(pod, "Ready") {
            "Running".clone_into(&mut seen.reason);
        } else if !failure.is_empty() {
            seen.reason = failure;
        } else if is_running {
            "NotReady".clone_into(&mut seen.reason);
        }
    }
}

/// How a container ended.
fn ending(ended: &Value) -> String {
    match (text(ended, "reason"), number(ended, "signal")) {
        ("", 0) => format!("ExitCode:{}", number(ended, "exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    list(pod, "status/conditions")
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    let conditions = list(pod, "status/conditions");
    let is_open = |gate: &&Value| {
        let found = conditions.iter().find(|condition| condition["type"] == gate["conditionType"]);
        found.is_some_and(|condition| condition["status"] == "True")
    };
    format!("{}/{}", gates.iter().filter(is_open).count(), gates.len())
}
