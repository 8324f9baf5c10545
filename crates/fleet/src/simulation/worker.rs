//! A worker's own Kueue, Job controller and nodes, played: Workloads are admitted and evicted, Jobs start, run and end.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    memory::{JOBS, Memory, PODS, Place, WORKLOADS},
    pods,
    random::Random,
};

/// The pods of a worker that run, by the uid of their mirror, which is a Job or the pod itself: where it is or was, and the
/// uid of what it mirrors.
pub(super) type Pods = BTreeMap<String, (Place, String)>;

/// How often a pod whose mirror is gone ends, in a thousand moments.
const ENDS: u64 = 30;

/// What happens on a worker in one moment, in which so many in a thousand Workloads are evicted. Returns the Jobs, by uid,
/// whose pods have just been started.
pub(super) fn play(
    memory: &mut Memory,
    running: &mut Pods,
    random: &mut Random,
    now: Timestamp,
    evictions: u64,
) -> BTreeSet<String> {
    let mut started = BTreeSet::new();
    for (place, copy) in memory.all(WORKLOADS) {
        if copy["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"].is_null() {
            continue;
        }
        if is_orphan(memory, &copy) && random.happens(500) {
            memory.remove(&place);
            continue;
        }
        admit(memory, &place, &copy, random, now, evictions);
    }
    for (place, mirror) in [memory.all(JOBS), memory.all(PODS)].concat() {
        let Some(of) = mirror["metadata"]["annotations"]["kueue.x-k8s.io/multikueue-origin-uid"].as_str()
        else {
            continue;
        };
        if random.happens(300) {
            continue;
        }
        let run = if place.0 == PODS { pods::run } else { run };
        if run(memory, running, &place, &mirror, of, random, now) {
            started.insert(of.to_owned());
        }
    }
    // Pods of mirrors that are gone take their time to end.
    let is_there =
        |uid: &str, place: &Place| memory.get(place).is_some_and(|mirror| mirror["metadata"]["uid"] == *uid);
    running.retain(|uid, (place, _)| is_there(uid, place) || !random.happens(ENDS));
    started
}

/// Whether all mirrors that a copy belongs to are gone, so that the worker's garbage collector takes the copy too.
fn is_orphan(memory: &Memory, copy: &Value) -> bool {
    let owners = copy["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    !owners.is_empty() && owners.iter().all(|owner| !memory.has(owner, &copy["metadata"]["namespace"]))
}

/// The mirror that a copy belongs to: the first that named it.
fn owner(copy: &Value) -> Option<&str> {
    copy["metadata"]["ownerReferences"][0]["uid"].as_str()
}

fn admit(
    memory: &mut Memory,
    place: &Place,
    copy: &Value,
    random: &mut Random,
    now: Timestamp,
    evictions: u64,
) {
    let is = |kind: &str| condition(copy, kind) == Some("True");
    if is("Finished") {
        return;
    }
    let evicts = is("Admitted") && (is("DeactivationTarget") || random.happens(evictions));
    if evicts {
        let deactivated = is("DeactivationTarget");
        memory.change(place, |object| {
            set(object, "Evicted", "True", "Preempted", now);
            set(object, "Admitted", "False", "Evicted", now);
            if deactivated {
                object["spec"]["active"] = json!(false);
                set(object, "DeactivationTarget", "False", "Deactivated", now);
            }
        });
        return;
    }
    if !is("Admitted") && copy["spec"]["active"] != false && random.happens(200) {
        memory.change(place, |object| {
            set(object, "Evicted", "False", "QuotaReserved", now);
            set(object, "QuotaReserved", "True", "QuotaReserved", now);
            set(object, "Admitted", "True", "Admitted", now);
        });
    }
}

/// One step in the life of a mirror. Says whether its pods have just been started.
fn run(
    memory: &mut Memory,
    pods: &mut Pods,
    place: &Place,
    mirror: &Value,
    of: &str,
    random: &mut Random,
    now: Timestamp,
) -> bool {
    let uid = mirror["metadata"]["uid"].as_str().unwrap_or("").to_owned();
    let is_deleted = mirror["metadata"]["deletionTimestamp"].is_string();
    let finished = ["Complete", "Failed"].iter().any(|kind| condition(mirror, kind) == Some("True"));
    let suspended = mirror["spec"]["suspend"] == true;
    let copy =
        mirror["metadata"]["annotations"]["kueue.x-k8s.io/prebuilt-workload-name"].as_str().unwrap_or("");
    let copy = (WORKLOADS.to_owned(), place.1.clone(), copy.to_owned());
    if is_deleted {
        if random.happens(500) {
            pods.remove(&uid);
            memory.remove(place);
        }
        return false;
    }
    if memory.get(&copy).is_some_and(|copy| owner(copy).is_none()) {
        let reference = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": place.2, "uid": uid, "controller": true}]);
        memory.change(&copy, |object| object["metadata"]["ownerReferences"] = reference);
        return false;
    }
    // What belongs to another mirror, which may be gone by now, starts nothing (JF-22).
    let admitted = memory.get(&copy).is_some_and(|copy| {
        owner(copy) == Some(&uid)
            && condition(copy, "Admitted") == Some("True")
            && condition(copy, "Finished") != Some("True")
    });
    if finished {
        if let Some(ended) = memory.get(&copy)
            && owner(ended) == Some(&uid)
            && condition(ended, "Finished").is_none()
        {
            let failed = condition(mirror, "Failed") == Some("True");
            memory.change(&copy, |object| {
                set(object, "Finished", "True", if failed { "Failed" } else { "Succeeded" }, now);
            });
        }
        return false;
    }
    match (admitted, suspended) {
        (true, true) => {
            memory.change(place, |object| object["spec"]["suspend"] = json!(false));
            false
        }
        (false, false) => {
            memory.change(place, |object| object["spec"]["suspend"] = json!(true));
            false
        }
        (true, false) if !pods.contains_key(&uid) => {
            pods.insert(uid, (place.clone(), of.to_owned()));
            memory.change(place, |object| {
                object["status"] = json!({"active": 1, "ready": 0, "terminating": 0, "startTime": time(now)});
            });
            true
        }
        (true, false) => {
            if random.happens(60) {
                pods.remove(&uid);
                let failed = random.happens(200);
                memory.change(place, |object| end(object, failed, now));
            } else if mirror["status"]["ready"] != 1 {
                memory.change(place, |object| object["status"]["ready"] = json!(1));
            }
            false
        }
        (false, true) => {
            if random.happens(500) {
                pods.remove(&uid);
                memory.change(place, |object| {
                    if object["status"]["active"] == 1 {
                        object["status"] = json!({"active": 0, "ready": 0, "terminating": 0});
                        set(object, "Suspended", "True", "JobSuspended", now);
                    }
                });
            }
            false
        }
    }
}

fn end(object: &mut Value, failed: bool, now: Timestamp) {
    let started = object["status"]["startTime"].clone();
    object["status"] = json!({"active": 0, "ready": 0, "terminating": 0, "startTime": started});
    if failed {
        object["status"]["failed"] = json!(1);
        set(object, "FailureTarget", "True", "BackoffLimitExceeded", now);
        set(object, "Failed", "True", "BackoffLimitExceeded", now);
    } else {
        object["status"]["succeeded"] = json!(1);
        object["status"]["completionTime"] = json!(time(now));
        set(object, "SuccessCriteriaMet", "True", "CompletionsReached", now);
        set(object, "Complete", "True", "CompletionsReached", now);
    }
}

/// The value of an object's condition.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == *kind)?["status"].as_str()
}

/// Sets an object's condition.
pub(super) fn set(object: &mut Value, kind: &str, status: &str, reason: &str, now: Timestamp) {
    let mut conditions: Vec<Value> = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != *kind);
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": "so it goes", "lastTransitionTime": time(now),
    }));
    object["status"]["conditions"] = json!(conditions);
}

/// A time as objects carry it.
pub(super) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
