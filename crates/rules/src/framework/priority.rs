//! How important a Job is (JF-14).

use types::kueue::{GROUP, PodSet, PriorityClassRef, Workload};

use super::{Observed, PRIORITY_CLASS_LABEL, label};
use crate::workload::{has_quota, state};

/// The classes that there are.
#[derive(Clone, Copy)]
pub struct Classes<'a> {
    /// The value of a WorkloadPriorityClass.
    pub workload: &'a dyn Fn(&str) -> Option<i32>,
    /// The value of a PriorityClass.
    pub pod: &'a dyn Fn(&str) -> Option<i32>,
    /// The PriorityClass for those who name none: of several the least.
    pub default: Option<(&'a str, i32)>,
}

/// A class that is named and does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSuchClass(pub String);

/// A priority, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Priority {
    /// Where it comes from.
    pub class: Option<PriorityClassRef>,
    /// The more, the more important.
    pub value: i32,
}

/// The priority of a Job (JF-14): its label first, then its class as a whole, then that of its pods, then the default.
pub fn of(job: &dyn Observed, pod_sets: &[PodSet], classes: Classes<'_>) -> Result<Priority, NoSuchClass> {
    if let Some(name) = label(job.metadata(), PRIORITY_CLASS_LABEL) {
        let value = (classes.workload)(name)
            .ok_or_else(|| NoSuchClass(format!("WorkloadPriorityClass {name} not found")))?;
        return Ok(Priority { class: Some(reference(GROUP, "WorkloadPriorityClass", name)), value });
    }
    let named = job.priority_class().unwrap_or_else(|| {
        let specs = pod_sets.iter().filter_map(|pod_set| pod_set.template.spec.as_ref());
        specs
            .filter_map(|spec| spec.priority_class_name.clone())
            .find(|name| !name.is_empty())
            .unwrap_or_default()
    });
    let (name, value) = match (named.as_str(), classes.default) {
        ("", None) => return Ok(Priority::default()),
        ("", Some((name, value))) => (name, value),
        (name, _) => {
            let missing = || NoSuchClass(format!("PriorityClass {name} not found"));
            (name, (classes.pod)(name).ok_or_else(missing)?)
        }
    };
    Ok(Priority { class: Some(reference("scheduling.k8s.io", "PriorityClass", name)), value })
}

fn reference(group: &str, kind: &str, name: &str) -> PriorityClassRef {
    PriorityClassRef { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
}

/// Whether the priority of a Workload follows the label of its Job and has to change (JF-33). One that comes from its
/// pods does not, and one that holds quota without any cannot be given one.
pub fn follows(job: &dyn Observed, workload: &Workload) -> bool {
    let class = workload.spec.priority_class_ref.as_ref();
    let own = class.is_none_or(|class| class.group == GROUP && class.kind == "WorkloadPriorityClass");
    let possible = own && !(class.is_none() && has_quota(workload));
    possible
        && state::priority_class(workload) != label(job.metadata(), PRIORITY_CLASS_LABEL).unwrap_or_default()
}
