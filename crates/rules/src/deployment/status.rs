//! What a Deployment's status says.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DeploymentStatus, ReplicaSet};

use super::{Rollout, condition, name, new_condition, seconds, set_condition};

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
    let before = rollout.deployment.status.clone().unwrap_or_default();
    let mut status = counts(rollout);
    let enough = status.available_replicas.unwrap_or(0) >= rollout.replicas - rollout.most_unavailable();
    let available = if enough {
        ("MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    set_condition(&mut status, new_condition("Available", enough, available.0, available.1.to_owned(), now));
    let spec = rollout.deployment.spec.clone().unwrap_or_default();
    let Some(deadline) = spec.progress_deadline_seconds.filter(|deadline| *deadline != i32::MAX) else {
        return (status, None);
    };
    let mut look_again = None;
    let set = rollout.new.as_ref().map(|new| name(&new.metadata));
    let whom = match &set {
        Some(set) => format!("ReplicaSet {set:?}"),
        None => format!("Deployment {:?}", name(&rollout.deployment.metadata)),
    };
    if spec.paused == Some(true) {
        let known = condition(&status, "Progressing").and_then(|condition| condition.reason.as_deref());
        if known != Some("ProgressDeadlineExceeded") {
            let mut paused = new_condition(
                "Progressing",
                true,
                "DeploymentPaused",
                "Deployment is paused".to_owned(),
                now,
            );
            "Unknown".clone_into(&mut paused.status);
            set_condition(&mut status, paused);
        }
        return (status, None);
    }
    let known = condition(&before, "Progressing").cloned();
    let reason = known.as_ref().and_then(|condition| condition.reason.clone()).unwrap_or_default();
    let number = |number: Option<i32>| number.unwrap_or(0);
    let complete = number(status.updated_replicas) == rollout.replicas
        && number(status.replicas) == rollout.replicas
        && number(status.available_replicas) == rollout.replicas
        && set.is_some()
        && !rollout.created;
    let old = |status: &DeploymentStatus| number(status.replicas) - number(status.updated_replicas);
    let progressing = number(status.updated_replicas) > number(before.updated_replicas)
        || old(&status) < old(&before)
        || number(status.ready_replicas) > number(before.ready_replicas)
        || number(status.available_replicas) > number(before.available_replicas);
    if rollout.created {
        let message = format!("Created new replica set {:?}", set.unwrap_or_default());
        set_condition(&mut status, new_condition("Progressing", true, "NewReplicaSetCreated", message, now));
    } else if complete {
        let message = format!("{whom} has successfully progressed.");
        set_condition(
            &mut status,
            new_condition("Progressing", true, "NewReplicaSetAvailable", message, now),
        );
    } else if progressing {
        let message = format!("{whom} is progressing.");
        let mut progress = new_condition("Progressing", true, "ReplicaSetUpdated", message, now);
        // Each step begins the deadline anew.
        if let Some(known) = &known {
            if known.status == "True" {
                progress.last_transition_time.clone_from(&known.last_transition_time);
            }
            status.conditions.get_or_insert_default().retain(|condition| condition.type_ != "Progressing");
        }
        status.conditions.get_or_insert_default().push(progress);
    } else if known.is_none() && set.is_some() {
        let message = format!("Found new replica set {:?}", set.unwrap_or_default());
        set_condition(&mut status, new_condition("Progressing", true, "FoundNewReplicaSet", message, now));
    } else if let Some(known) = known.filter(|_| reason != "NewReplicaSetAvailable" || !complete) {
        let since = known.last_update_time.as_ref().map_or(now, |time| time.0);
        let until = since.checked_add(seconds(deadline)).unwrap_or(Timestamp::MAX);
        // One that was complete once lacks something now; that is not a rollout.
        let over = matches!(reason.as_str(), "ProgressDeadlineExceeded" | "NewReplicaSetAvailable");
        if over {
            return (status, None);
        }
        if until <= now {
            let message = format!("{whom} has timed out progressing.");
            set_condition(
                &mut status,
                new_condition("Progressing", false, "ProgressDeadlineExceeded", message, now),
            );
        } else {
            look_again = Some(until);
        }
    }
    (status, look_again)
}
