//! What a Deployment's status says.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};

use super::{Rollout, condition, name, new_condition, remove_condition, seconds, set_condition};

const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
/// The rollout has come to its end.
const COMPLETE: &str = "NewReplicaSetAvailable";
/// It has made no progress for too long.
const EXCEEDED: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// The numbers of the status.
pub(super) fn counts(rollout: &Rollout<'_>) -> DeploymentStatus {
    let old = rollout.deployment.status.clone().unwrap_or_default();
    let sum = |of: fn(&ReplicaSet) -> i32| rollout.all().map(of).sum::<i32>();
    let replicas = sum(|set| set.status.as_ref().map_or(0, |status| status.replicas));
    let ready = sum(|set| set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or(0));
    let available = sum(super::available);
    let terminating =
        sum(|set| set.status.as_ref().and_then(|status| status.terminating_replicas).unwrap_or(0));
    let updated =
        rollout.new.as_ref().and_then(|new| new.status.as_ref()).map_or(0, |status| status.replicas);
    let total: i32 = rollout.all().map(super::replicas).sum();
    let some = |number: i32| Some(number).filter(|number| *number != 0);
    DeploymentStatus {
        observed_generation: rollout.deployment.metadata.generation,
        replicas: some(replicas),
        updated_replicas: some(updated),
        ready_replicas: some(ready),
        available_replicas: some(available),
        unavailable_replicas: some((total - available).max(0)),
        terminating_replicas: Some(terminating),
        collision_count: old.collision_count,
        conditions: old.conditions,
    }
}

/// The next status, and when it has to be looked at again.
pub(super) fn next(rollout: &Rollout<'_>, now: Timestamp) -> (DeploymentStatus, Option<Timestamp>) {
    let mut status = counts(rollout);
    let enough = status.available_replicas.unwrap_or(0) >= rollout.replicas - rollout.most_unavailable();
    let available = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, new_condition("Available", enough, available.0, available.1.to_owned(), now));
    let deadline = deadline(rollout.deployment);
    if deadline.is_some() {
        begin(rollout, &mut status, now);
    }
    if !rollout.rolls {
        return (status, None);
    }
    let look_again = deadline.and_then(|deadline| progress(rollout, &mut status, deadline, now));
    if deadline.is_none() {
        remove_condition(&mut status, PROGRESSING);
    }
    match failure(rollout) {
        Some(failure) => set_condition(&mut status, failure),
        None => remove_condition(&mut status, REPLICA_FAILURE),
    }
    (status, look_again)
}

/// The status of a Deployment whose new set cannot be created. `None` if it says so, or says nothing of progress.
pub fn not_created(deployment: &Deployment, why: String, now: Timestamp) -> Option<DeploymentStatus> {
    deadline(deployment)?;
    let mut status = deployment.status.clone().unwrap_or_default();
    set_condition(&mut status, new_condition(PROGRESSING, false, "ReplicaSetCreateError", why, now));
    Some(status).filter(|status| Some(status) != deployment.status.as_ref())
}

/// How long a rollout may make no progress, if that matters.
fn deadline(deployment: &Deployment) -> Option<i32> {
    let deadline = deployment.spec.as_ref()?.progress_deadline_seconds;
    deadline.filter(|deadline| *deadline != i32::MAX)
}

/// What the condition `Progressing` says before anybody asks how far the rollout is: when the deadline begins, and whether
/// it does.
fn begin(rollout: &Rollout<'_>, status: &mut DeploymentStatus, now: Timestamp) {
    let known = condition(status, PROGRESSING).and_then(|condition| condition.reason.clone());
    let deleting = rollout.deployment.metadata.deletion_timestamp.is_some();
    let paused = rollout.deployment.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
    let turn = match known.as_deref() {
        _ if deleting => None,
        Some(PAUSED) if !paused => Some(("DeploymentResumed", "Deployment is resumed")),
        Some(PAUSED | EXCEEDED) => None,
        _ => Some((PAUSED, "Deployment is paused")).filter(|_| paused),
    };
    if let Some((reason, message)) = turn {
        let mut turn = new_condition(PROGRESSING, true, reason, message.to_owned(), now);
        "Unknown".clone_into(&mut turn.status);
        set_condition(status, turn);
    }
    let Some(new) = rollout.new.as_ref().map(|new| name(&new.metadata)) else { return };
    if rollout.created {
        let message = format!("Created new replica set {new:?}");
        set_condition(status, new_condition(PROGRESSING, true, "NewReplicaSetCreated", message, now));
    } else if condition(status, PROGRESSING).is_none() {
        let message = format!("Found new replica set {new:?}");
        set_condition(status, new_condition(PROGRESSING, true, "FoundNewReplicaSet", message, now));
    }
}

/// Says how far the rollout is. Returns when the deadline is over, if nothing happens until then.
fn progress(
    rollout: &Rollout<'_>,
    status: &mut DeploymentStatus,
    deadline: i32,
    now: Timestamp,
) -> Option<Timestamp> {
    let before = rollout.deployment.status.clone().unwrap_or_default();
    let number = |number: Option<i32>| number.unwrap_or(0);
    let known = condition(status, PROGRESSING).cloned();
    let reason = known.as_ref().and_then(|condition| condition.reason.clone()).unwrap_or_default();
    // What was rolled out once is no rollout because it is scaled, or because pods go and others come.
    if reason == COMPLETE && number(status.replicas) == number(status.updated_replicas) {
        return None;
    }
    let whom = match &rollout.new {
        Some(set) => format!("ReplicaSet {:?}", name(&set.metadata)),
        None => format!("Deployment {:?}", name(&rollout.deployment.metadata)),
    };
    let complete = number(status.updated_replicas) == rollout.replicas
        && number(status.replicas) == rollout.replicas
        && number(status.available_replicas) == rollout.replicas
        && rollout.new.is_some();
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    let progressing = number(status.updated_replicas) > number(before.updated_replicas)
        || old(status) < old(&before)
        || number(status.ready_replicas) > number(before.ready_replicas)
        || number(status.available_replicas) > number(before.available_replicas);
    if complete {
        let message = format!("{whom} has successfully progressed.");
        set_condition(status, new_condition(PROGRESSING, true, COMPLETE, message, now));
    } else if progressing {
        let message = format!("{whom} is progressing.");
        let mut progress = new_condition(PROGRESSING, true, "ReplicaSetUpdated", message, now);
        // Each step begins the deadline anew.
        if let Some(known) = known.filter(|known| known.status == "True") {
            progress.last_transition_time = known.last_transition_time;
        }
        remove_condition(status, PROGRESSING);
        set_condition(status, progress);
    } else if let Some(known) = known.filter(|_| !matches!(reason.as_str(), EXCEEDED | COMPLETE)) {
        let since = known.last_update_time.as_ref().map_or(now, |time| time.0);
        let until = since.checked_add(seconds(deadline)).unwrap_or(Timestamp::MAX);
        if until > now {
            return Some(until);
        }
        let message = format!("{whom} has timed out progressing.");
        set_condition(status, new_condition(PROGRESSING, false, EXCEEDED, message, now));
    }
    None
}

/// Why the pods of a set cannot be created or deleted: of the new one, or else of another.
fn failure(rollout: &Rollout<'_>) -> Option<DeploymentCondition> {
    let conditions = rollout.new.iter().chain(&rollout.old).filter_map(|set| set.status.as_ref());
    let mut conditions = conditions.flat_map(|status| status.conditions.iter().flatten());
    let failure = conditions.find(|condition| condition.type_ == REPLICA_FAILURE)?.clone();
    Some(DeploymentCondition {
        type_: failure.type_,
        status: failure.status,
        reason: failure.reason,
        message: failure.message,
        last_transition_time: failure.last_transition_time.clone(),
        last_update_time: failure.last_transition_time,
    })
}
