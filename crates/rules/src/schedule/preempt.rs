//! Which pods of lower priority have to go so that a pod fits.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

use super::filters::Filters;
use super::message::{Failure, Reason, Reasons};
use super::read::Pod;
use super::snapshot::{Node, Snapshot};
use crate::meta::selector;

/// Pods that have to go from one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preemption {
    /// The node.
    pub node: String,
    /// Uids of the pods, the most important first.
    pub victims: Vec<String>,
}

/// What can be done for a pod that fits nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Room {
    /// These pods have to go, and their node is promised to it.
    Made(Preemption),
    /// Nobody's end would help: what it was promised before is off.
    Nowhere,
    /// It may not ask for room, or has done so and waits.
    NotAsked,
}

struct Candidate<'a> {
    node: &'a Node,
    victims: Vec<&'a Pod>,
    violations: usize,
}

/// Decides whom to make go, for a pod that [`decide`](super::decide) found no place for. What is said about it is added
/// to the failure when nobody has to.
pub fn decide(
    snapshot: &Snapshot,
    pod: &Pod,
    budgets: &[&PodDisruptionBudget],
    failure: &mut Failure,
) -> Room {
    if snapshot.is_empty() {
        return Room::Nowhere;
    }
    if let Some(why) = not_eligible(snapshot, pod, failure) {
        failure.with_preemption(why.to_owned());
        return Room::NotAsked;
    }
    let mut reasons = Reasons::new(snapshot.len());
    let mut candidates = Vec::new();
    let resolvable: Vec<&str> = failure.resolvable().collect();
    for node in snapshot.nodes() {
        if !resolvable.contains(&node.name()) {
            reasons.add(node.name(), Reason::resolvable("Preemption is not helpful for scheduling"));
            continue;
        }
        match victims(snapshot, pod, node, budgets) {
            Ok(candidate) => candidates.push(candidate),
            Err(reason) => reasons.add(node.name(), reason),
        }
    }
    let Some(best) = candidates.into_iter().min_by_key(Candidate::cost) else {
        failure.with_preemption(reasons.to_string());
        return Room::Nowhere;
    };
    let victims = best.victims.iter().map(|victim| victim.uid.clone()).collect();
    Room::Made(Preemption { node: best.node.name().to_owned(), victims })
}

fn not_eligible(snapshot: &Snapshot, pod: &Pod, failure: &Failure) -> Option<&'static str> {
    if !pod.preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let nominated = pod.nominated_node.as_deref()?;
    if failure.is_unresolvable(nominated) {
        return None;
    }
    let node = snapshot.node(nominated)?;
    let going = node.pods.values().any(|other| other.priority < pod.priority && other.preempted);
    going.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// The fewest pods that have to leave a node, after all that could were gone and the most important came back.
fn victims<'a>(
    snapshot: &'a Snapshot,
    pod: &Pod,
    node: &'a Node,
    budgets: &[&PodDisruptionBudget],
) -> Result<Candidate<'a>, Reason> {
    let mut lower: Vec<&Pod> = node.pods.values().filter(|other| other.priority < pod.priority).collect();
    if lower.is_empty() {
        return Err(Reason::unresolvable("No preemption victims found for incoming pod"));
    }
    lower.sort_by_key(|pod| importance(pod));
    let mut left = node.clone();
    for victim in &lower {
        left.remove(&victim.uid);
    }
    Filters::prepare_with(snapshot, pod, &left).check(&left)?;
    let (violating, others) = violations(&lower, budgets);
    let mut victims = Vec::new();
    let mut violated = 0;
    for (back, counts) in
        violating.into_iter().map(|pod| (pod, true)).chain(others.into_iter().map(|pod| (pod, false)))
    {
        left.add(back.clone());
        if Filters::prepare_with(snapshot, pod, &left).check(&left).is_err() {
            left.remove(&back.uid);
            victims.push(back);
            violated += usize::from(counts);
        }
    }
    victims.sort_by_key(|pod| importance(pod));
    Ok(Candidate { node, victims, violations: violated })
}

/// The most important pod comes first: the higher priority, then the one that has run for longer.
fn importance(pod: &Pod) -> (std::cmp::Reverse<i32>, Option<jiff::Timestamp>, String) {
    (std::cmp::Reverse(pod.priority), pod.started, pod.uid.clone())
}

/// Pods whose end would break a budget, and those whose would not.
fn violations<'a>(pods: &[&'a Pod], budgets: &[&PodDisruptionBudget]) -> (Vec<&'a Pod>, Vec<&'a Pod>) {
    let status = |budget: &PodDisruptionBudget| budget.status.clone().unwrap_or_default();
    let mut allowed: Vec<i32> = budgets.iter().map(|budget| status(budget).disruptions_allowed).collect();
    let mut violates = |pod: &&Pod| {
        let mut violated = false;
        for (budget, allowed) in budgets.iter().zip(&mut allowed) {
            let wanted = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let guards = budget.metadata.namespace.as_deref() == Some(&pod.namespace)
                && !pod.labels.is_empty()
                && selector::matches(wanted, &pod.labels) == Some(true);
            let going = status(budget).disrupted_pods.is_some_and(|pods| pods.contains_key(&pod.name));
            if guards && !going {
                *allowed -= 1;
                violated |= *allowed < 0;
            }
        }
        violated
    };
    pods.iter().partition(|pod| violates(pod))
}

impl Candidate<'_> {
    /// The least comes first: fewer broken budgets, a lower highest priority, a lower sum of them, fewer pods, and pods
    /// that have run for less time.
    fn cost(&self) -> (usize, i32, i64, usize, std::cmp::Reverse<Option<jiff::Timestamp>>) {
        let highest = self.victims.iter().map(|pod| pod.priority).max().unwrap_or(i32::MIN);
        let weight = |pod: &&Pod| i64::from(pod.priority) + i64::from(i32::MAX) + 1;
        let sum = self.victims.iter().map(weight).sum();
        let of_highest = self.victims.iter().filter(|pod| pod.priority == highest);
        let earliest = of_highest.filter_map(|pod| pod.started).min();
        (self.violations, highest, sum, self.victims.len(), std::cmp::Reverse(earliest))
    }
}
