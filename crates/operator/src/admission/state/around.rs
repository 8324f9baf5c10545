//! What the admission loop reads of objects, and what it tells of what it read.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::node::v1::RuntimeClass;
use rules::quota::{queue::Waiting, requests::List};
use tracing::warn;
use types::{Quantity, kueue::PodSetRequest};

use crate::caches::Caches;

/// What a Workload that waits asks for, as its status shows it (SM-13).
pub(super) fn requests(waiting: &Waiting) -> Vec<PodSetRequest> {
    let pod_sets = waiting.workload.pod_sets.iter();
    pod_sets
        .map(|pod_set| PodSetRequest {
            name: pod_set.name.to_string(),
            resources: pod_set
                .requests
                .iter()
                .map(|(resource, amount)| {
                    let total = amount.times(pod_set.remaining().into());
                    (resource.to_string(), total.to_quantity(resource.as_str()))
                })
                .collect(),
        })
        .collect()
}

/// What a pod of each RuntimeClass takes beside what it asks for.
pub(super) fn overheads(caches: &Caches) -> BTreeMap<String, List> {
    let classes = caches.runtime_classes.all();
    let read = |class: &Arc<RuntimeClass>| {
        let fixed = class.overhead.as_ref()?.pod_fixed.as_ref()?;
        let quantity =
            |(name, quantity): (&String, &_)| Quantity::try_from(quantity).map(|it| (name.clone(), it));
        let list: Result<List, _> = fixed.iter().map(quantity).collect();
        match list {
            Ok(list) => Some((class.metadata.name.clone()?, list)),
            Err(error) => {
                warn!(class = ?class.metadata.name, %error, "an overhead that is no quantity is ignored");
                None
            }
        }
    };
    classes.iter().filter_map(read).collect()
}

/// The node labels of the levels of a Topology.
pub(super) fn topology_levels(caches: &Caches, name: &str) -> Option<Vec<String>> {
    let topology = caches.topologies.get(&reconcile::Key::new("", name))?;
    Some(topology.spec.levels.iter().map(|level| level.node_label.clone()).collect())
}
