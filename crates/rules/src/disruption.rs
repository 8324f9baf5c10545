//! How many of the pods that a budget guards may be made to go, and which of those that were to go do not.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::replicas::ready_since;

/// A pod whose eviction was granted and that has not gone after this time stays.
const EVICTED_FOR: SignedDuration = SignedDuration::from_mins(2);
/// The condition of a pod that is to go.
const TARGET: &str = "DisruptionTarget";

/// Whether a budget depends on how many pods the controllers of its pods want.
pub fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let spec = budget.spec.as_ref();
    spec.is_some_and(|spec| {
        spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
    })
}

/// The next status of a budget, and when it has to be looked at again. `pods` are those that its selector matches;
/// `scale` says how many pods their controllers want, if the budget [needs it](needs_scale). `None` if the status says it all.
pub fn decide(
    budget: &PodDisruptionBudget,
    pods: &[&Pod],
    scale: i32,
    now: Timestamp,
) -> (Option<PodDisruptionBudgetStatus>, Option<Timestamp>) {
    let spec = budget.spec.clone().unwrap_or_default();
    let known = budget.status.clone().unwrap_or_default();
    let all = i32::try_from(pods.len()).unwrap_or(i32::MAX);
    let (expected, desired) = match (&spec.max_unavailable, &spec.min_available) {
        (Some(most), _) => (scale, (scale - scaled(most, scale)).max(0)),
        (None, Some(IntOrString::Int(least))) => (all, *least),
        (None, Some(least)) => (scale, scaled(least, scale)),
        (None, None) => (0, 0),
    };
    let mut evicted: BTreeMap<String, Time> = BTreeMap::new();
    let mut look_again: Option<Timestamp> = None;
    for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let Some(since) = known.disrupted_pods.as_ref().and_then(|pods| pods.get(&name)) else { continue };
        let until = since.0.checked_add(EVICTED_FOR).unwrap_or(Timestamp::MAX);
        if until >= now {
            look_again = Some(look_again.map_or(until, |at| at.min(until)));
            evicted.insert(name, since.clone());
        }
    }
    let healthy = pods.iter().filter(|pod| {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        pod.metadata.deletion_timestamp.is_none() && !evicted.contains_key(name) && ready_since(pod).is_some()
    });
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let status = PodDisruptionBudgetStatus {
        current_healthy: healthy,
        desired_healthy: desired,
        expected_pods: expected,
        disruptions_allowed: allowed,
        disrupted_pods: Some(evicted).filter(|evicted| !evicted.is_empty()),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions(&known, counted(allowed > 0), budget.metadata.generation, now)),
    };
    (Some(status).filter(|status| Some(status) != budget.status.as_ref()), look_again)
}

/// The next status of a budget when nobody can say how many pods there should be: none may be made to go. `None` if the
/// status says so.
pub fn fail_safe(
    budget: &PodDisruptionBudget,
    why: &str,
    now: Timestamp,
) -> Option<PodDisruptionBudgetStatus> {
    let known = budget.status.clone().unwrap_or_default();
    let failed = ("False", "SyncFailed", why);
    let conditions = Some(conditions(&known, failed, known.observed_generation, now));
    let status = PodDisruptionBudgetStatus { disruptions_allowed: 0, conditions, ..known };
    Some(status).filter(|status| Some(status) != budget.status.as_ref())
}

/// When it is clear that a pod which was to go does not: whoever said so has not deleted it. `None` if it was not to go, or
/// goes; its node may take as long as it likes.
pub fn stays_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let over = pod.metadata.deletion_timestamp.is_some()
        || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let target = status.conditions.iter().flatten().find(|condition| condition.type_ == TARGET)?;
    if over || target.status != "True" || target.reason.as_deref() == Some("TerminationByKubelet") {
        return None;
    }
    let since = target.last_transition_time.as_ref().map_or(Timestamp::MIN, |time| time.0);
    Some(since.checked_add(EVICTED_FOR).unwrap_or(Timestamp::MAX))
}

/// The pod without what said that it is to go.
pub fn stays(pod: &Pod, now: Timestamp) -> Pod {
    let mut pod = pod.clone();
    let generation = pod.metadata.generation;
    let conditions = pod.status.iter_mut().flat_map(|status| status.conditions.iter_mut().flatten());
    for condition in conditions.filter(|condition| condition.type_ == TARGET) {
        *condition = PodCondition {
            type_: TARGET.to_owned(),
            status: "False".to_owned(),
            observed_generation: generation,
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        };
    }
    pod
}

fn counted(allowed: bool) -> (&'static str, &'static str, &'static str) {
    if allowed { ("True", "SufficientPods", "") } else { ("False", "InsufficientPods", "") }
}

/// A number, or a percentage of another, rounded up.
fn scaled(value: &IntOrString, of: i32) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            i32::try_from((i64::from(of) * percent + 99) / 100).unwrap_or(i32::MAX)
        }
    }
}

fn conditions(
    known: &PodDisruptionBudgetStatus,
    (status, reason, message): (&str, &str, &str),
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = known.conditions.clone().unwrap_or_default();
    let mut new = Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
    conditions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(name: &str, ready: bool) -> Pod {
        let ready = if ready { "True" } else { "False" };
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    fn budget(spec: Value, evicted: Value) -> PodDisruptionBudget {
        let status = json!({"disruptedPods": evicted, "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
        serde_json::from_value(json!({"metadata": {"generation": 2}, "spec": spec, "status": status}))
            .unwrap()
    }

    #[test]
    fn how_many_may_go() {
        let pods = [pod("a", true), pod("b", true), pod("c", true), pod("d", false)];
        let pods: Vec<&Pod> = pods.iter().collect();
        let scale = 5;
        for (spec, expected) in [
            (json!({"minAvailable": 2}), (4, 2, 3, 1)),
            (json!({"minAvailable": 4}), (4, 4, 3, 0)),
            (json!({"minAvailable": "50%"}), (5, 3, 3, 0)),
            (json!({"maxUnavailable": 3}), (5, 2, 3, 1)),
            (json!({"maxUnavailable": "30%"}), (5, 3, 3, 0)),
            (json!({"maxUnavailable": 9}), (5, 0, 3, 3)),
        ] {
            let (status, _) = decide(&budget(spec.clone(), json!(null)), &pods, scale, at(100));
            let status = status.unwrap();
            let got = (
                status.expected_pods,
                status.desired_healthy,
                status.current_healthy,
                status.disruptions_allowed,
            );
            assert_eq!(got, expected, "{spec}");
            let needs = spec["maxUnavailable"] != json!(null) || spec["minAvailable"].is_string();
            assert_eq!(needs_scale(&budget(spec.clone(), json!(null))), needs, "{spec}");
        }
        let (status, look_again) = decide(
            &budget(json!({"minAvailable": 2}), json!({"a": at(50).to_string()})),
            &pods,
            scale,
            at(100),
        );
        assert_eq!(status.unwrap().disruptions_allowed, 0, "one is on its way out");
        assert_eq!(look_again, Some(at(170)));
        let stale = budget(json!({"minAvailable": 2}), json!({"a": at(50).to_string()}));
        let (status, _) = decide(&stale, &pods, scale, at(171));
        let status = status.unwrap();
        assert_eq!(
            (status.disruptions_allowed, status.disrupted_pods.clone()),
            (1, None),
            "it did not go after all"
        );
        let mut settled = stale;
        settled.status = Some(status);
        assert_eq!(decide(&settled, &pods, scale, at(172)), (None, None), "nothing new");
    }

    #[test]
    fn p_4_22_a_pod_that_was_to_go_and_does_not_says_so_no_more() {
        let pod = |more: Value| -> Pod {
            let mut pod = json!({"metadata": {"name": "p", "generation": 3}, "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "m",
                 "observedGeneration": 2, "lastTransitionTime": at(100).to_string()},
            ]}});
            for (path, value) in more.as_object().unwrap() {
                *pod.pointer_mut(path).unwrap() = value.clone();
            }
            serde_json::from_value(pod).unwrap()
        };
        for (more, expected) in [
            (json!({}), Some(at(220))),
            (json!({"/status/phase": "Pending"}), Some(at(220))),
            (
                json!({"/status/conditions/1/lastTransitionTime": null}),
                Timestamp::MIN.checked_add(EVICTED_FOR).ok(),
            ),
            (json!({"/status/conditions/1/reason": "TerminationByKubelet"}), None),
            (json!({"/status/conditions/1/status": "False"}), None),
            (json!({"/status/conditions/1/type": "Other"}), None),
            (json!({"/status/phase": "Succeeded"}), None),
            (json!({"/status/phase": "Failed"}), None),
            (json!({"/metadata": {"name": "p", "deletionTimestamp": at(101).to_string()}}), None),
        ] {
            assert_eq!(stays_at(&pod(more.clone())), expected, "{more}");
        }
        let stayed = stays(&pod(json!({})), at(220));
        assert_eq!(stays_at(&stayed), None);
        let conditions = serde_json::to_value(stayed.status.unwrap().conditions).unwrap();
        let target = json!({
            "type": "DisruptionTarget", "status": "False", "observedGeneration": 3, "lastTransitionTime": at(220).to_string(),
        });
        assert_eq!(conditions, json!([{"type": "Ready", "status": "True"}, target]));
    }

    #[test]
    fn none_may_go_when_nobody_knows_how_many_there_should_be() {
        let pods = [pod("a", true), pod("b", true)];
        let pods: Vec<&Pod> = pods.iter().collect();
        let mut budget = budget(json!({"maxUnavailable": 1}), json!(null));
        let (status, _) = decide(&budget, &pods, 2, at(100));
        budget.status = status;
        assert_eq!(budget.status.as_ref().unwrap().disruptions_allowed, 1);
        budget.metadata.generation = Some(3);
        let status = fail_safe(&budget, "why", at(101)).unwrap();
        let condition = &status.conditions.as_ref().unwrap()[0];
        assert_eq!(
            (status.disruptions_allowed, status.current_healthy, condition.observed_generation),
            (0, 2, Some(2)),
            "what was counted before stays"
        );
        assert_eq!(
            (&*condition.status, &*condition.reason, &*condition.message, condition.last_transition_time.0),
            ("False", "SyncFailed", "why", at(101))
        );
        budget.status = Some(status);
        assert_eq!(fail_safe(&budget, "why", at(102)), None);
        let (status, _) = decide(&budget, &pods, 2, at(103));
        let condition = &status.unwrap().conditions.unwrap()[0];
        assert_eq!((&*condition.reason, &*condition.message), ("SufficientPods", ""));
    }
}
