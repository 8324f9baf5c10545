//! Pods that were sent to a worker, played: its Kueue lets them through their gate or deletes them, its nodes run them.

use jiff::Timestamp;
use rules::framework::pod::{ADMISSION_GATE, GROUP_NAME, GROUP_TOTAL_COUNT, MANAGED};
use serde_json::{Value, json};

use super::{
    memory::{Memory, PODS, Place, WORKLOADS},
    random::Random,
    worker::{Pods, condition, set, time},
};

/// One step in the life of a pod. Says whether it has just been started.
pub(super) fn run(
    memory: &mut Memory,
    running: &mut Pods,
    place: &Place,
    pod: &Value,
    of: &str,
    random: &mut Random,
    now: Timestamp,
) -> bool {
    let metadata = &pod["metadata"];
    let uid = metadata["uid"].as_str().unwrap_or("").to_owned();
    if metadata["deletionTimestamp"].is_string() {
        leave(memory, running, place, pod, random, now);
        return false;
    }
    let copy = metadata["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"].as_str().unwrap_or("");
    let copy = (WORKLOADS.to_owned(), place.1.clone(), copy.to_owned());
    if has_ended(pod) {
        count_end(memory, &copy, place, pod, now);
        return false;
    }
    if own(memory, &copy, place, pod, &uid) {
        return false;
    }
    let admitted = memory.get(&copy).is_some_and(|copy| {
        is_owner(copy, &uid)
            && condition(copy, "Admitted") == Some("True")
            && condition(copy, "Finished") != Some("True")
    });
    let gates = pod["spec"]["schedulingGates"].as_array();
    let gated = gates.into_iter().flatten().any(|gate| gate["name"] == ADMISSION_GATE);
    match (admitted, gated) {
        (true, true) => {
            memory.change(place, |pod| {
                pod["spec"].as_object_mut().map(|spec| spec.remove("schedulingGates"));
            });
            false
        }
        (false, true) => false,
        (false, false) => {
            // It is there: it was just listed.
            let _ = memory.delete(place, &json!({}), running.contains_key(&uid));
            false
        }
        (true, false) if !running.contains_key(&uid) => {
            running.insert(uid, (place.clone(), of.to_owned()));
            let conditions =
                json!([{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(now)}]);
            memory.change(place, |pod| {
                pod["status"] = json!({"phase": "Running", "startTime": time(now), "conditions": conditions});
            });
            true
        }
        (true, false) => {
            if random.happens(60) {
                running.remove(&uid);
                let phase = if random.happens(200) { "Failed" } else { "Succeeded" };
                memory.change(place, |pod| end(pod, phase, now));
            }
            false
        }
    }
}

/// Its node ends a pod that is deleted, and then its Kueue lets go of it.
fn leave(
    memory: &mut Memory,
    running: &mut Pods,
    place: &Place,
    pod: &Value,
    random: &mut Random,
    now: Timestamp,
) {
    if !random.happens(500) {
        return;
    }
    if running.remove(pod["metadata"]["uid"].as_str().unwrap_or("")).is_some() {
        memory.change(place, |pod| {
            end(pod, "Failed", now);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        });
    } else {
        release(memory, place);
    }
}

/// Nobody holds a pod any more: one that was deleted is gone.
fn release(memory: &mut Memory, place: &Place) {
    memory.change(place, |pod| {
        pod["metadata"].as_object_mut().map(|metadata| metadata.remove("finalizers"));
    });
}

/// A pod that has ended is let go once it is counted: alone, or when all pods of its group have succeeded.
fn count_end(memory: &mut Memory, copy: &Place, place: &Place, pod: &Value, now: Timestamp) {
    let held = pod["metadata"]["finalizers"].as_array().into_iter().flatten().any(|it| it == MANAGED);
    let Some(workload) = memory.get(copy).cloned() else { return };
    if !is_owner(&workload, pod["metadata"]["uid"].as_str().unwrap_or("")) {
        return;
    }
    if condition(&workload, "Finished") == Some("True") {
        if held {
            release(memory, place);
        }
        return;
    }
    let group = &pod["metadata"]["labels"][GROUP_NAME];
    let total = pod["metadata"]["annotations"][GROUP_TOTAL_COUNT].as_str().and_then(|it| it.parse().ok());
    let is_done = |(_, it): &&(Place, std::sync::Arc<Value>)| {
        it["metadata"]["labels"][GROUP_NAME] == *group && it["status"]["phase"] == "Succeeded"
    };
    let is_over = group.is_null() || total == Some(memory.all(PODS).iter().filter(is_done).count());
    if is_over {
        let failed = group.is_null() && pod["status"]["phase"] == "Failed";
        let reason = if failed { "Failed" } else { "Succeeded" };
        memory.change(copy, |object| set(object, "Finished", "True", reason, now));
    }
}

/// A pod that is alone owns its copy unless another does; pods of a group own theirs together. Says whether it came to.
fn own(memory: &mut Memory, copy: &Place, place: &Place, pod: &Value, uid: &str) -> bool {
    let is_alone = pod["metadata"]["labels"][GROUP_NAME].is_null();
    let Some(workload) = memory.get(copy) else { return false };
    let mut owners = workload["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    if is_owner(workload, uid) || is_alone && !owners.is_empty() {
        return false;
    }
    let mut owner = json!({"apiVersion": "v1", "kind": "Pod", "name": place.2, "uid": uid});
    if is_alone {
        owner["controller"] = json!(true);
    }
    owners.push(owner);
    memory.change(copy, |object| object["metadata"]["ownerReferences"] = json!(owners));
    true
}

fn is_owner(copy: &Value, uid: &str) -> bool {
    let owners = copy["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

/// Whether a pod has ended.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn end(pod: &mut Value, phase: &str, now: Timestamp) {
    pod["status"]["phase"] = json!(phase);
    let terminated = json!({"exitCode": i32::from(phase == "Failed"), "finishedAt": time(now)});
    let state = json!({"terminated": terminated});
    pod["status"]["containerStatuses"] = json!([
        {"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state},
    ]);
}
