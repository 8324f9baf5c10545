//! Whether a pod may be evicted: disruption budgets have a say as long as it runs (2.75).

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::meta::selector;

/// As many evictions as may wait for the budget's controller to see them.
const MAX_UNCONFIRMED: usize = 2000;
const ALLOWED: &str = "DisruptionAllowed";

/// What stands between a pod and its eviction.
#[derive(Debug, Clone, PartialEq)]
pub enum Guard {
    /// Nothing.
    None,
    /// Nothing as long as the pod stays as it is: it does no work that could be disrupted.
    IfUnchanged,
    /// This budget, which has to give one of its disruptions.
    Budget(String),
    /// More budgets than one, which is one too many.
    Several,
}

/// Why a budget does not give a disruption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// 429: not now. The second is the cause, the last when to come back.
    TooManyRequests(&'static str, String, Option<u32>),
    /// 403: the budget is in no state to be asked.
    Forbidden(&'static str),
}

const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// What guards a pod.
pub fn guard(pod: &Pod, budgets: &[PodDisruptionBudget]) -> Guard {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or("");
    if matches!(phase, "Succeeded" | "Failed") || pod.metadata.deletion_timestamp.is_some() {
        return Guard::None;
    }
    if phase == "Pending" {
        return Guard::IfUnchanged;
    }
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let mut matching = budgets.iter().filter(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some() && selector::matches(selector, &labels) == Some(true)
    });
    let (Some(budget), None) = (matching.next(), matching.next()) else {
        return if budgets.is_empty() || !guards_any(pod, budgets) { Guard::None } else { Guard::Several };
    };
    if !is_ready(pod) {
        let spec = budget.spec.as_ref();
        let policy = spec.and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
        let (healthy, desired) =
            budget.status.as_ref().map_or((0, 0), |status| (status.current_healthy, status.desired_healthy));
        if policy == Some("AlwaysAllow") || healthy >= desired && desired > 0 {
            return Guard::IfUnchanged;
        }
    }
    Guard::Budget(budget.metadata.name.clone().unwrap_or_default())
}

fn guards_any(pod: &Pod, budgets: &[PodDisruptionBudget]) -> bool {
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    budgets.iter().any(|budget| {
        let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
        selector.is_some() && selector::matches(selector, &labels) == Some(true)
    })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Why a pod's version matters to its removal although its client did not say so.
pub fn changed_meanwhile(budget: &str) -> Denied {
    Denied::TooManyRequests(VIOLATES, still_processed(budget), Some(10))
}

fn still_processed(budget: &str) -> String {
    format!("The disruption budget {budget} is still being processed by the server.")
}

/// Takes a disruption from a budget for a pod.
pub fn take(budget: &mut PodDisruptionBudget, pod: &str, now: &Time) -> Result<(), Denied> {
    let name = budget.metadata.name.clone().unwrap_or_default();
    let generation = budget.metadata.generation.unwrap_or(0);
    let status: &mut PodDisruptionBudgetStatus = budget.status.get_or_insert_default();
    if status.observed_generation.unwrap_or(0) < generation {
        return Err(changed_meanwhile(&name));
    }
    if status.disruptions_allowed < 0 {
        return Err(Denied::Forbidden("pdb disruptions allowed is negative"));
    }
    if status.disrupted_pods.as_ref().is_some_and(|pods| pods.len() > MAX_UNCONFIRMED) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Denied::Forbidden(why));
    }
    if status.disruptions_allowed == 0 {
        return Err(Denied::TooManyRequests(VIOLATES, why_none_left(&name, status), None));
    }
    status.disruptions_allowed -= 1;
    if status.disruptions_allowed == 0 {
        none_left(status, generation, now);
    }
    status.disrupted_pods.get_or_insert_default().insert(pod.to_owned(), now.clone());
    Ok(())
}

fn why_none_left(name: &str, status: &PodDisruptionBudgetStatus) -> String {
    let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == ALLOWED);
    let refusing = condition.filter(|condition| condition.status == "False" && !condition.message.is_empty());
    match refusing {
        Some(condition) if condition.reason == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            condition.message
        ),
        _ if status.current_healthy <= status.desired_healthy => format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            status.desired_healthy, status.current_healthy
        ),
        Some(condition) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            condition.reason, condition.message
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn none_left(status: &mut PodDisruptionBudgetStatus, generation: i64, now: &Time) {
    let conditions = status.conditions.get_or_insert_default();
    let before = conditions.iter().position(|condition| condition.type_ == ALLOWED);
    let since = before.map(|at| &conditions[at]).filter(|condition| condition.status == "False");
    let condition = Condition {
        type_: ALLOWED.to_owned(),
        status: "False".to_owned(),
        reason: "InsufficientPods".to_owned(),
        message: String::new(),
        observed_generation: Some(generation),
        last_transition_time: since.map_or_else(|| now.clone(), |known| known.last_transition_time.clone()),
    };
    match before {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn pod(status: serde_json::Value) -> Pod {
        let pod = json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"containers": []}, "status": status});
        serde_json::from_value(pod).expect("a test's pod")
    }

    fn budget(spec: serde_json::Value, status: serde_json::Value) -> PodDisruptionBudget {
        let budget = json!({"metadata": {"name": "b", "generation": 1}, "spec": spec, "status": status});
        serde_json::from_value(budget).expect("a test's budget")
    }

    #[test]
    fn rule_2_75_who_is_guarded() {
        let selector = json!({"selector": {"matchLabels": {"a": "1"}}});
        let healthy =
            json!({"currentHealthy": 1, "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 2});
        let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let ours = budget(selector.clone(), healthy.clone());
        let check = |status: serde_json::Value, budgets: &[PodDisruptionBudget], expected: Guard| {
            assert_eq!(guard(&pod(status), budgets), expected);
        };
        check(json!({"phase": "Succeeded"}), std::slice::from_ref(&ours), Guard::None);
        check(json!({"phase": "Pending"}), std::slice::from_ref(&ours), Guard::IfUnchanged);
        check(running.clone(), &[], Guard::None);
        check(
            running.clone(),
            &[budget(json!({"selector": {"matchLabels": {"a": "2"}}}), healthy.clone())],
            Guard::None,
        );
        check(running.clone(), std::slice::from_ref(&ours), Guard::Budget("b".to_owned()));
        check(running, &[ours.clone(), ours.clone()], Guard::Several);
        check(json!({"phase": "Running"}), &[ours], Guard::Budget("b".to_owned()));
        let mut always = selector;
        always["unhealthyPodEvictionPolicy"] = json!("AlwaysAllow");
        check(json!({"phase": "Running"}), &[budget(always, healthy)], Guard::IfUnchanged);
    }

    #[test]
    fn rule_2_75_what_a_budget_gives() {
        let now = Time("2025-01-01T00:00:00Z".parse().expect("a time"));
        let status = |allowed: i32| {
            json!({"currentHealthy": 3, "desiredHealthy": 2, "disruptionsAllowed": allowed, "expectedPods": 3,
                "observedGeneration": 1})
        };
        let mut one = budget(json!({}), status(1));
        assert_eq!(take(&mut one, "p", &now), Ok(()));
        let left = one.status.as_ref().expect("a status");
        assert_eq!((left.disruptions_allowed, left.disrupted_pods.as_ref().map(BTreeMap::len)), (0, Some(1)));
        assert_eq!(left.conditions.as_ref().map(|all| all[0].reason.as_str()), Some("InsufficientPods"));
        let Err(Denied::TooManyRequests(_, why, None)) = take(&mut one, "q", &now) else {
            panic!("given twice")
        };
        assert_eq!(why, "The disruption budget b does not allow evicting pods currently");
        let mut new = budget(
            json!({}),
            json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 1, "expectedPods": 0}),
        );
        assert!(matches!(take(&mut new, "p", &now), Err(Denied::TooManyRequests(_, _, Some(10)))));
    }
}
