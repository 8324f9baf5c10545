//! What a ClusterQueue, a Cohort and a ResourceFlavor must be, beyond what their definitions say.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use types::Quantity;
use types::kueue::{
    AdmissionChecksStrategy, BorrowWithinCohortPolicy, ClusterQueue, Cohort, FairSharing,
    FlavorFungibilityPolicy, FlavorQuotas, PreemptionPolicy, ResourceFlavor, ResourceGroup,
};

use crate::field::{Errors, Path, Value};
use crate::meta::{self, NEGATIVE};
use crate::names;

/// Flavors, and resources, that a queue may have over all its groups.
const MAX_TOTAL: usize = 256;
/// Pairs of flavor and resource that one group may have.
const MAX_PAIRS: usize = 512;

/// A new or changed ClusterQueue (CQ-1 to CQ-3).
pub fn cluster_queue(new: &ClusterQueue, old: Option<&ClusterQueue>) -> Errors {
    let (spec, path) = (&new.spec, Path::new("spec"));
    let groups_path = path.child("resourceGroups");
    let limits = Limits {
        parent: spec.cohort_name.as_deref().is_some_and(|name| !name.is_empty()),
        parent_word: "cohort",
        lend_within_nominal: true,
    };
    let mut errors = resource_groups(&spec.resource_groups, &limits, &groups_path);
    if let Some(selector) = &spec.namespace_selector {
        errors.extend(meta::selector::validate(selector, false, &path.child("namespaceSelector")));
    }
    if let Some(preemption) = &spec.preemption {
        let never_reclaims = matches!(preemption.reclaim_within_cohort, None | Some(PreemptionPolicy::Never));
        let policy = preemption.borrow_within_cohort.as_ref().and_then(|borrow| borrow.policy);
        if never_reclaims && policy == Some(BorrowWithinCohortPolicy::LowerPriority) {
            let why = "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never";
            errors.push(path.child("preemption").invalid(Value::json(preemption), why));
        }
    }
    if let Some(fungibility) = &spec.flavor_fungibility
        && let Some(preference) = fungibility.preference
    {
        let next = Some(FlavorFungibilityPolicy::TryNextFlavor);
        if fungibility.when_can_borrow != next || fungibility.when_can_preempt != next {
            let value = Value::json(&preference);
            let why = format!(
                "preference {:?} requires both whenCanBorrow and whenCanPreempt to be TryNextFlavor",
                format!("{preference:?}")
            );
            errors.push(path.child("flavorFungibility").child("preference").invalid(value, why));
        }
    }
    errors.extend(fair_sharing(spec.fair_sharing.as_ref(), &path.child("fairSharing")));
    errors.extend(totals(&spec.resource_groups, &groups_path));
    errors.extend(on_flavors(new, old));
    if let Some(old) = old
        && old.spec.concurrent_admission_policy != spec.concurrent_admission_policy
    {
        let value = Value::json(&spec.concurrent_admission_policy);
        errors.push(path.child("concurrentAdmissionPolicy").invalid(value, meta::IMMUTABLE));
    }
    errors
}

/// A new or changed Cohort (CO-1).
pub fn cohort(new: &Cohort) -> Errors {
    let (spec, path) = (&new.spec, Path::new("spec"));
    let limits = Limits {
        parent: spec.parent_name.as_deref().is_some_and(|name| !name.is_empty()),
        parent_word: "parent",
        lend_within_nominal: false,
    };
    let mut errors = fair_sharing(spec.fair_sharing.as_ref(), &path.child("fairSharing"));
    errors.extend(resource_groups(&spec.resource_groups, &limits, &path.child("resourceGroups")));
    errors
}

/// A new or changed ResourceFlavor.
pub fn resource_flavor(new: &ResourceFlavor) -> Errors {
    let (spec, path) = (&new.spec, Path::new("spec"));
    let mut errors = meta::labels(Some(&spec.node_labels), &path.child("nodeLabels"));
    errors.extend(taints(&spec.node_taints, &path.child("nodeTaints")));
    errors.extend(tolerations(&spec.tolerations, &path.child("tolerations")));
    errors
}

/// The keys of tolerations; their definition says the rest.
pub(super) fn tolerations(tolerations: &[Toleration], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, toleration) in tolerations.iter().enumerate() {
        if let Some(key) = toleration.key.as_deref().filter(|key| !key.is_empty()) {
            errors.extend(meta::qualified(key, &path.index(i).child("key")));
        }
    }
    errors
}

fn taints(taints: &[Taint], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, taint) in taints.iter().enumerate() {
        let path = path.index(i);
        errors.extend(meta::qualified(&taint.key, &path.child("key")));
        let value = taint.value.as_deref().unwrap_or_default();
        let problems = names::label_value(value);
        if !problems.is_empty() {
            errors.push(path.child("value").invalid(value, problems.join(";")));
        }
        if !seen.insert((&taint.effect, &taint.key)) {
            let duplicate = path.duplicate(Value::json(taint));
            errors.push(duplicate.with_detail("taints must be unique by key and effect pair"));
        }
    }
    errors
}

/// What borrowing and lending limits may be.
struct Limits {
    /// Whether there is anybody to borrow from or lend to.
    parent: bool,
    /// What that would be called.
    parent_word: &'static str,
    /// Whether no more can be lent than there is.
    lend_within_nominal: bool,
}

fn resource_groups(groups: &[ResourceGroup], limits: &Limits, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (mut resources, mut flavors) = (BTreeSet::new(), BTreeSet::new());
    for (i, group) in groups.iter().enumerate() {
        let path = path.index(i);
        for (j, name) in group.covered_resources.iter().enumerate() {
            let path = path.child("coveredResources").index(j);
            errors.extend(meta::qualified(name, &path));
            if !resources.insert(name) {
                errors.push(path.duplicate(name));
            }
        }
        for (j, flavor) in group.flavors.iter().enumerate() {
            let path = path.child("flavors").index(j);
            errors.extend(flavor_quotas(flavor, &group.covered_resources, limits, &path));
            if !flavors.insert(&flavor.name) {
                errors.push(path.child("name").duplicate(&flavor.name));
            }
        }
    }
    errors
}

fn flavor_quotas(flavor: &FlavorQuotas, covered: &[String], limits: &Limits, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, (quota, covered)) in flavor.resources.iter().zip(covered).enumerate() {
        let path = path.child("resources").index(i);
        if quota.name != *covered {
            errors.push(path.child("name").invalid(&quota.name, "must match the name in coveredResources"));
        }
        errors.extend(not_negative(&quota.nominal_quota, &path.child("nominalQuota")));
        let needs_parent = |limit: &Quantity, path: &Path| {
            let why = format!("must be nil when {} is empty", limits.parent_word);
            (!limits.parent).then(|| path.invalid(&limit.to_string(), why))
        };
        if let Some(limit) = &quota.borrowing_limit {
            let path = path.child("borrowingLimit");
            errors.extend(needs_parent(limit, &path));
            errors.extend(not_negative(limit, &path));
        }
        if let Some(limit) = &quota.lending_limit {
            let path = path.child("lendingLimit");
            errors.extend(not_negative(limit, &path));
            errors.extend(needs_parent(limit, &path));
            if limits.lend_within_nominal && *limit > quota.nominal_quota {
                let why = "must be less than or equal to the nominalQuota";
                errors.push(path.invalid(&limit.to_string(), why));
            }
        }
    }
    errors
}

/// An amount that cannot be less than nothing.
pub(super) fn not_negative(amount: &Quantity, path: &Path) -> Errors {
    if amount.is_negative() { vec![path.invalid(&amount.to_string(), NEGATIVE)] } else { Errors::new() }
}

fn fair_sharing(sharing: Option<&FairSharing>, path: &Path) -> Errors {
    let Some(weight) = sharing.and_then(|sharing| sharing.weight.as_ref()) else { return Errors::new() };
    let mut errors = not_negative(weight, path);
    let least: Quantity = "1n".parse().expect("a quantity");
    if weight.is_positive() && *weight <= least {
        errors.push(path.invalid(&weight.to_string(), "When not 0, weight must be > 10e-9"));
    }
    errors
}

fn totals(groups: &[ResourceGroup], path: &Path) -> Errors {
    let mut errors = Errors::new();
    let flavors: usize = groups.iter().map(|group| group.flavors.len()).sum();
    let resources: usize = groups.iter().map(|group| group.covered_resources.len()).sum();
    for (total, of) in [(flavors, "flavors"), (resources, "covered resources")] {
        if total > MAX_TOTAL {
            let why =
                format!("total number of {of} across all resourceGroups must be ≤ {MAX_TOTAL}, got {total}");
            errors.push(path.invalid(total, why));
        }
    }
    for (i, group) in groups.iter().enumerate() {
        let pairs: usize = group.flavors.iter().map(|flavor| flavor.resources.len()).sum();
        if pairs > MAX_PAIRS {
            let why = format!(
                "number of flavor-resource combinations in a resourceGroup must be ≤ {MAX_PAIRS}, got {pairs}"
            );
            errors.push(path.index(i).invalid(pairs, why));
        }
    }
    errors
}

/// A check can only be for flavors that the queue has. What was wrong before and is not touched stays (CQ-3).
fn on_flavors(new: &ClusterQueue, old: Option<&ClusterQueue>) -> Errors {
    let flavors = |queue: &ClusterQueue| -> BTreeSet<String> {
        let groups = queue.spec.resource_groups.iter();
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.clone()).collect()
    };
    let known = flavors(new);
    let supported: Vec<&String> = known.iter().collect();
    let checks = |strategy: Option<&AdmissionChecksStrategy>| {
        strategy.map(|strategy| strategy.admission_checks.clone()).unwrap_or_default()
    };
    let untouched = old.filter(|old| flavors(old) == known);
    let before = checks(untouched.and_then(|old| old.spec.admission_checks_strategy.as_ref()));
    let path = Path::new("spec").child("admissionChecksStrategy").child("admissionChecks");
    let mut errors = Errors::new();
    for (i, check) in checks(new.spec.admission_checks_strategy.as_ref()).iter().enumerate() {
        let set = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>();
        let same = before.iter().find(|old| old.name == check.name);
        if same.is_some_and(|old| set(&old.on_flavors) == set(&check.on_flavors)) {
            continue;
        }
        for (j, flavor) in check.on_flavors.iter().enumerate() {
            if !known.contains(flavor) {
                errors.push(path.index(i).child("onFlavors").index(j).not_supported(flavor, &supported));
            }
        }
    }
    errors
}
