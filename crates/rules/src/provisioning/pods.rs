//! For which pods of a Workload nodes are asked for, and what they are.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use types::kueue::{PodSet, PodSetMergePolicy, ProvisioningRequestConfigSpec, ResourceFlavor, Workload};

use crate::framework::pod_set::{self, Missing};

/// Pods that are asked for as one.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// Their pod sets. The first says what they are.
    pub(super) pod_sets: Vec<&'a PodSet>,
    /// How many pods there are.
    pub(super) count: i32,
}

impl Group<'_> {
    /// The name that the group goes by.
    pub(super) fn name(&self) -> &str {
        self.pod_sets.first().map_or("", |first| first.name())
    }
}

/// The pods for which nodes are asked for (PRC-3): of pod sets that got quota for any, and ask for a resource that
/// matters.
pub(super) fn groups<'a>(workload: &'a Workload, config: &ProvisioningRequestConfigSpec) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for pod_set in &workload.spec.pod_sets {
        let count = admitted(workload, pod_set);
        if pod_set.count <= 0 || count <= 0 || !matters(pod_set, &config.managed_resources) {
            continue;
        }
        let alike = |group: &&mut Group<'a>| {
            config.pod_set_merge_policy.is_some_and(|policy| are_alike(policy, group.pod_sets[0], pod_set))
        };
        match groups.iter_mut().find(alike) {
            Some(group) => {
                group.pod_sets.push(pod_set);
                group.count = group.count.saturating_add(count);
            }
            None => groups.push(Group { pod_sets: vec![pod_set], count }),
        }
    }
    groups
}

/// For how many pods of a pod set there is quota.
fn admitted(workload: &Workload, pod_set: &PodSet) -> i32 {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assigned = admission
        .and_then(|admission| admission.pod_set_assignments.iter().find(|it| it.name == pod_set.name()));
    assigned.map_or(0, |assigned| assigned.count.unwrap_or(pod_set.count))
}

fn matters(pod_set: &PodSet, resources: &[String]) -> bool {
    let Some(spec) = pod_set.template.spec.as_ref().filter(|_| !resources.is_empty()) else {
        return resources.is_empty();
    };
    let asks = |container: &Container| {
        let of = container.resources.iter();
        let mut names = of.flat_map(|it| [&it.requests, &it.limits]).flatten().flat_map(|list| list.keys());
        names.any(|name| resources.contains(name))
    };
    containers(spec).any(asks)
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// Whether nodes for one pod set are nodes for another.
fn are_alike(policy: PodSetMergePolicy, one: &PodSet, other: &PodSet) -> bool {
    let (one, other) = (&*one.template, &*other.template);
    match policy {
        PodSetMergePolicy::IdenticalPodTemplates => one == other,
        PodSetMergePolicy::IdenticalWorkloadSchedulingRequirements => need(one) == need(other),
    }
}

/// What the pods of a template need of nodes.
fn need(template: &PodTemplateSpec) -> impl PartialEq + use<> {
    let spec = template.spec.clone().unwrap_or_default();
    let requests = |containers: &[Container]| -> Vec<_> {
        containers.iter().map(|it| it.resources.as_ref().and_then(|it| it.requests.clone())).collect()
    };
    (
        requests(&spec.containers),
        requests(&spec.init_containers.unwrap_or_default()),
        spec.resources,
        spec.node_selector,
        spec.tolerations,
        spec.affinity,
        spec.resource_claims,
    )
}

/// What the pods of a group will be, where flavors have their say (PRC-2).
pub(super) fn template(
    workload: &Workload,
    group: &Group<'_>,
    flavor: &dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
) -> Result<PodTemplateSpec, Missing> {
    let first = group.pod_sets[0];
    let mut template = (*first.template).clone();
    pod_set::of_flavors(workload, first, flavor)?.merge_into(&mut template).map_err(Missing::Conflict)?;
    let spec = template.spec.get_or_insert_default();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        ask_for_limits(container);
    }
    Ok(template)
}

/// What is limited and not asked for is asked for, as it will be of the pods themselves.
fn ask_for_limits(container: &mut Container) {
    let Some(resources) = &mut container.resources else { return };
    for (name, limit) in resources.limits.clone().unwrap_or_default() {
        resources.requests.get_or_insert_default().entry(name).or_insert(limit);
    }
}
