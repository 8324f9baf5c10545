//! How a copy of a Workload differs from what it is a copy of.

use types::kueue::{Workload, WorkloadSpec};

use super::{mirror, observed::is_elastic};

/// How a copy's spec differs.
#[derive(Debug, PartialEq)]
pub(super) enum Drift {
    /// Not at all.
    None,
    /// In a way that can be mended by giving it this spec.
    Update(Box<WorkloadSpec>),
    /// In another way.
    Other,
}

impl Drift {
    /// How a copy's spec differs from what it is a copy of (MK-FLOW-18, MK-FLOW-19).
    pub(super) fn of(local: &Workload, copy: &Workload) -> Drift {
        let (ours, theirs) = (&local.spec, &copy.spec);
        if is_same(ours, theirs) {
            return Drift::None;
        }
        let gates = theirs.preemption_gates.clone();
        if is_elastic(local) && is_smaller(ours, theirs) {
            return Drift::Update(Box::new(WorkloadSpec { preemption_gates: gates, ..ours.clone() }));
        }
        let is_class = |spec: &WorkloadSpec, kind: &str| {
            spec.priority_class_ref.as_ref().is_some_and(|it| it.kind == kind)
        };
        let named = |spec: &WorkloadSpec| spec.priority_class_ref.as_ref().map(|class| class.name.clone());
        let may_change = !is_class(ours, "PriorityClass") && is_class(theirs, "WorkloadPriorityClass");
        if may_change && (named(ours) != named(theirs) || ours.priority != theirs.priority) {
            let (class, priority) = (ours.priority_class_ref.clone(), ours.priority);
            let spec = WorkloadSpec { priority_class_ref: class, priority, ..theirs.clone() };
            return Drift::Update(Box::new(spec));
        }
        Drift::Other
    }
}

/// Whether two specs say the same, gates aside: those are each cluster's own business (MK-PRE-04).
fn is_same(ours: &WorkloadSpec, theirs: &WorkloadSpec) -> bool {
    let rest = |spec: &WorkloadSpec| {
        (
            spec.queue_name.clone(),
            spec.priority_class_ref.clone(),
            spec.priority.unwrap_or(0),
            spec.active.unwrap_or(true),
            spec.maximum_execution_time_seconds,
        )
    };
    // Most copies are equal as they stand; JSON is made only to see that an absent field and an empty one differ.
    let are_pods_same = ours.pod_sets == theirs.pod_sets
        || match (serde_json::to_value(&ours.pod_sets), serde_json::to_value(&theirs.pod_sets)) {
            (Ok(ours), Ok(theirs)) => mirror::is_same(&ours, &theirs),
            _ => false,
        };
    rest(ours) == rest(theirs) && are_pods_same
}

/// Whether pod sets have fewer pods somewhere and more nowhere.
fn is_smaller(ours: &WorkloadSpec, theirs: &WorkloadSpec) -> bool {
    ours.pod_sets.len() == theirs.pod_sets.len()
        && ours.pod_sets.iter().zip(&theirs.pod_sets).all(|(ours, theirs)| ours.count <= theirs.count)
        && ours.pod_sets.iter().zip(&theirs.pod_sets).any(|(ours, theirs)| ours.count < theirs.count)
}
