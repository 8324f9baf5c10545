//! Do a flavor's nodes take a pod set's pods? Taints, node selectors, required node affinity and topology.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint, Toleration};

use super::{
    config::{Flavor, ResourceGroup, Topology},
    why::Why,
    workload::PodSet,
};

/// Why the flavor's nodes do not take the pods (FA-3), or nothing if they do. `topology_implied` says that all flavors
/// of the ClusterQueue place by topology, so that nobody has to ask for it.
pub fn mismatch(
    pod_set: &PodSet,
    flavor: &Flavor,
    group: &ResourceGroup,
    topology_implied: bool,
) -> Option<Why> {
    topology_mismatch(pod_set, flavor, group, topology_implied)
        .or_else(|| untolerated_taint(pod_set, flavor))
        .or_else(|| {
            (!matches_labels(pod_set, &flavor.labels)).then(|| Why::NodeAffinity(flavor.name.clone()))
        })
}

/// Whether pods that ask for a topology meet a flavor that has it, and only those (TA-2).
fn topology_mismatch(pod_set: &PodSet, flavor: &Flavor, group: &ResourceGroup, implied: bool) -> Option<Why> {
    let name = || flavor.name.clone();
    match (&pod_set.topology, &flavor.topology) {
        (None, None) => None,
        (None, Some(_)) => (!implied).then(|| Why::OnlyTopology(name())),
        (Some(_), None) => {
            let needed = pod_set.pod_requests().keys().any(|resource| group.covered.contains(resource));
            needed.then(|| Why::NoTopology(name()))
        }
        (Some(_), Some(topology)) if topology.levels.is_empty() => Some(Why::UnknownTopology(name())),
        (Some(request), Some(Topology { levels, .. })) => {
            let is_known = |level: &str| levels.iter().any(|known| known == level);
            let known = request.level(levels).is_some_and(is_known)
                && request.slices.iter().all(|layer| is_known(&layer.level));
            (!known).then(|| Why::NoTopologyLevel(name()))
        }
    }
}

fn untolerated_taint(pod_set: &PodSet, flavor: &Flavor) -> Option<Why> {
    let tolerated =
        |taint: &Taint| pod_set.tolerations.iter().chain(&flavor.tolerations).any(|it| tolerates(it, taint));
    let taint = flavor.taints.iter().filter(|taint| keeps_out(taint)).find(|taint| !tolerated(taint))?;
    Some(Why::UntoleratedTaint { flavor: flavor.name.clone(), taint: taint.clone() })
}

/// Whether a taint keeps pods out that do not tolerate it.
pub(crate) fn keeps_out(taint: &Taint) -> bool {
    taint.effect == "NoSchedule" || taint.effect == "NoExecute"
}

pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if given(&toleration.effect).is_some_and(|effect| effect != taint.effect)
        || given(&toleration.key).is_some_and(|key| key != taint.key)
    {
        return false;
    }
    let value = toleration.value.as_deref().unwrap_or_default();
    let tainted = taint.value.as_deref().unwrap_or_default();
    match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => value == tainted,
        "Exists" => true,
        "Lt" => integers(tainted, value).is_some_and(|(tainted, value)| tainted < value),
        "Gt" => integers(tainted, value).is_some_and(|(tainted, value)| tainted > value),
        _ => false,
    }
}

/// Both texts as integers, if both are ones.
fn integers(one: &str, other: &str) -> Option<(i64, i64)> {
    Some((one.parse().ok()?, other.parse().ok()?))
}

/// Whether labels satisfy selector and affinity, as far as these speak of keys that the flavor defines (FA-4): a flavor
/// says nothing about other labels that its nodes may have.
fn matches_labels(pod_set: &PodSet, labels: &BTreeMap<String, String>) -> bool {
    let selected =
        pod_set.node_selector.iter().all(|(key, value)| labels.get(key).is_none_or(|label| label == value));
    selected && matches_affinity(&pod_set.node_affinity, labels)
}

fn matches_affinity(terms: &[NodeSelectorTerm], labels: &BTreeMap<String, String>) -> bool {
    let mut any = terms.is_empty();
    for term in terms {
        let expressions = term.match_expressions.iter().flatten();
        let mut known = expressions.filter(|expression| labels.contains_key(&expression.key)).peekable();
        // One term of which the flavor knows nothing may be the one that its nodes satisfy.
        if known.peek().is_none() {
            return true;
        }
        any |= known.all(|expression| matches(expression, labels));
    }
    any
}

/// Whether a node of this name, with these labels, is what a term describes. An empty term describes none.
pub(crate) fn describes(term: &NodeSelectorTerm, name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let named = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    expressions.iter().all(|expression| matches(expression, labels))
        && fields.iter().all(|field| matches(field, &named))
}

pub(crate) fn matches(expression: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let label = labels.get(&expression.key);
    let values = expression.values.as_deref().unwrap_or_default();
    let one_of = label.is_some_and(|label| values.contains(label));
    let bound = || integers(label?, values.first()?);
    match expression.operator.as_str() {
        "In" => one_of,
        "NotIn" => !one_of,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => bound().is_some_and(|(label, bound)| label > bound),
        "Lt" => bound().is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}
