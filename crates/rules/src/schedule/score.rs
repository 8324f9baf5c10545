//! Which of the nodes that take a pod is the best one.

use super::affinity::matches_term;
use super::filters::term_matches;
use super::read::Pod;
use super::snapshot::{Node, Snapshot};
use super::spread;
use crate::quota::affinity::tolerates;

/// The best score that a rule gives.
const MOST: f64 = 100.0;

/// The best node for a pod; the first of equals.
pub(super) fn best<'a>(snapshot: &Snapshot, pod: &Pod, nodes: &[&'a Node]) -> Option<&'a Node> {
    if nodes.len() <= 1 {
        return nodes.first().copied();
    }
    let mut totals = vec![0.0; nodes.len()];
    let mut add = |weight: f64, scores: Vec<f64>| {
        for (total, score) in totals.iter_mut().zip(scores) {
            *total += weight * score;
        }
    };
    add(1.0, nodes.iter().map(|node| least_allocated(pod, node)).collect());
    add(1.0, nodes.iter().map(|node| balanced(pod, node)).collect());
    if nodes.iter().any(|node| node.taints.iter().any(|taint| taint.effect == "PreferNoSchedule")) {
        add(3.0, reversed(nodes.iter().map(|node| unwelcome(pod, node)).collect()));
    }
    if !pod.preferred_nodes.is_empty() {
        add(2.0, scaled(nodes.iter().map(|node| preferred(pod, node)).collect()));
    }
    if let Some(scores) = neighbours(snapshot, pod, nodes) {
        add(2.0, between(scores));
    }
    for (key, domains) in spread::wishes(snapshot, pod) {
        let there = |node: &&&Node| {
            let value = node.labels.get(key);
            value.map_or(f64::MAX, |value| to_f64(domains.get(value.as_str()).copied().unwrap_or(0)))
        };
        let counts: Vec<f64> = nodes.iter().map(|node| there(&node)).collect();
        let most = counts.iter().copied().filter(|count| *count < f64::MAX).fold(0.0, f64::max);
        add(2.0, reversed(counts.into_iter().map(|count| count.min(most + 1.0)).collect()));
    }
    let mut best = 0;
    for (place, total) in totals.iter().enumerate() {
        if *total > totals[best] {
            best = place;
        }
    }
    nodes.get(best).copied()
}

#[expect(clippy::cast_precision_loss, reason = "scores are compared roughly")]
fn to_f64(number: i64) -> f64 {
    number as f64
}

/// The parts of CPU and memory that are used once the pod is there.
fn used(pod: &Pod, node: &Node) -> [f64; 2] {
    let part = |used: i64, has: i64| if has <= 0 { 1.0 } else { (to_f64(used) / to_f64(has)).min(1.0) };
    [
        part(node.used_for_score.0 + pod.for_score.0, node.allocatable.milli_cpu),
        part(node.used_for_score.1 + pod.for_score.1, node.allocatable.memory),
    ]
}

fn least_allocated(pod: &Pod, node: &Node) -> f64 {
    let [cpu, memory] = used(pod, node);
    // Whole points, as Kubernetes counts: smaller differences are none.
    let points = |used: f64| ((1.0 - used) * MOST).floor();
    f64::midpoint(points(cpu), points(memory)).floor()
}

fn balanced(pod: &Pod, node: &Node) -> f64 {
    let [cpu, memory] = used(pod, node);
    ((1.0 - (cpu - memory).abs() / 2.0) * MOST).floor()
}

fn unwelcome(pod: &Pod, node: &Node) -> f64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == "PreferNoSchedule");
    let tolerated = |taint| pod.tolerations.iter().any(|it| tolerates(it, taint));
    to_f64(i64::try_from(soft.filter(|taint| !tolerated(taint)).count()).unwrap_or(0))
}

fn preferred(pod: &Pod, node: &Node) -> f64 {
    let matching = pod.preferred_nodes.iter().filter(|term| term_matches(&term.preference, node));
    to_f64(matching.map(|term| i64::from(term.weight)).sum())
}

/// What the pod wishes of its neighbours, and they of it; `None` if nobody wishes anything.
fn neighbours(snapshot: &Snapshot, pod: &Pod, nodes: &[&Node]) -> Option<Vec<f64>> {
    let mut domains: std::collections::BTreeMap<(&str, &str), i64> = std::collections::BTreeMap::new();
    if !pod.rather_near.is_empty() || !pod.rather_apart.is_empty() {
        for (other, node) in snapshot.pods() {
            for (terms, sign) in [(&pod.rather_near, 1), (&pod.rather_apart, -1)] {
                for weighted in terms {
                    let term = &weighted.pod_affinity_term;
                    if let Some(value) = node.labels.get(&term.topology_key)
                        && matches_term(snapshot, term, &pod.namespace, other)
                    {
                        *domains.entry((&term.topology_key, value)).or_default() +=
                            sign * i64::from(weighted.weight);
                    }
                }
            }
        }
    }
    for (other, node) in snapshot.opinionated() {
        let wishes = other.rather_near.iter().map(|it| (&it.pod_affinity_term, i64::from(it.weight)));
        let wishes =
            wishes.chain(other.rather_apart.iter().map(|it| (&it.pod_affinity_term, -i64::from(it.weight))));
        // What was a must for them is a wish here.
        for (term, weight) in wishes.chain(other.near.iter().map(|term| (term, 1))) {
            if let Some(value) = node.labels.get(&term.topology_key)
                && matches_term(snapshot, term, &other.namespace, pod)
            {
                *domains.entry((&term.topology_key, value)).or_default() += weight;
            }
        }
    }
    if domains.is_empty() {
        return None;
    }
    let score = |node: &&Node| {
        let of = |(key, value): &(&str, &str)| node.labels.get(*key).is_some_and(|label| label == value);
        to_f64(domains.iter().filter(|(domain, _)| of(domain)).map(|(_, weight)| weight).sum())
    };
    Some(nodes.iter().map(score).collect())
}

/// The largest becomes the most.
fn scaled(scores: Vec<f64>) -> Vec<f64> {
    let most = scores.iter().copied().fold(0.0, f64::max);
    scores.into_iter().map(|score| if most > 0.0 { score * MOST / most } else { 0.0 }).collect()
}

/// The smallest becomes the most.
fn reversed(scores: Vec<f64>) -> Vec<f64> {
    scaled(scores).into_iter().map(|score| MOST - score).collect()
}

/// The smallest becomes nothing and the largest the most.
fn between(scores: Vec<f64>) -> Vec<f64> {
    let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
    scaled(scores.into_iter().map(|score| score - least).collect())
}
