//! Where the pods of those pod sets go that are placed by topology.

use std::collections::BTreeSet;

use super::{Assigned, Outlook, Search};
use crate::quota::{
    names::FlavorName,
    placing::{self, ToPlace},
    tree::Tree,
    why::{TopologyError, Why},
    workload::PodSetAssignment,
};

impl Search<'_> {
    /// Whether a flavor places by topology.
    pub(super) fn places(&self, flavor: &FlavorName) -> bool {
        self.world.snapshot.flavor(flavor).is_some_and(|flavor| flavor.topology.is_some())
    }

    /// Finds a place for pods that ask for a topology, or leaves that to whoever does it (TA-8). Where there is none now,
    /// but would be one if others left, they have to.
    pub(super) fn place(&mut self, tree: &Tree) {
        let to_place = self.list_to_place();
        if self.assignment.outlook() == Outlook::Fit {
            match placing::find(tree.ground(), self.workload, &to_place, false) {
                Ok(placements) => self.assignment.set_placements(self.workload, placements),
                Err(misfit) => {
                    if let Some(assigned) = self.assigned(misfit.pod_set) {
                        assigned.why.push(Why::NoPlace(misfit.why));
                        assigned.contest();
                    }
                }
            }
        }
        if self.assignment.outlook() == Outlook::Preempt {
            match placing::find(tree.ground(), self.workload, &to_place, true) {
                // Quota may be there in sum, and yet no domain has all that pods need.
                Ok(_) => {
                    for it in &to_place {
                        self.assigned(it.pod_set).into_iter().for_each(Assigned::contest);
                    }
                }
                Err(misfit) => {
                    self.assigned(misfit.pod_set).into_iter().for_each(|assigned| assigned.failed = true);
                }
            }
        }
        self.assignment.to_place = to_place;
    }

    /// What a pod set was given.
    fn assigned(&mut self, pod_set: usize) -> Option<&mut Assigned> {
        let name = &self.workload.pod_sets[pod_set].name;
        self.assignment.pod_sets.iter_mut().find(|assigned| assigned.assignment.name == *name)
    }

    /// The pod sets that are to be placed here and now. Of the others that ask for it, it is written down who places them,
    /// or why nobody can.
    fn list_to_place(&mut self) -> Vec<ToPlace> {
        let mut to_place = Vec::new();
        for (index, pod_set) in self.workload.pod_sets.iter().enumerate() {
            let Some(assigned) =
                self.assignment.pod_sets.iter().position(|it| it.assignment.name == pod_set.name)
            else {
                continue;
            };
            let PodSetAssignment { count, flavors, .. } = &self.assignment.pod_sets[assigned].assignment;
            if (pod_set.topology.is_none() && !self.topology_implied) || *count == 0 {
                continue;
            }
            let flavors: BTreeSet<&FlavorName> =
                flavors.values().filter(|flavor| self.places(flavor)).collect();
            let misplaced = match flavors.iter().next() {
                None if !self.queue.config.flavors().any(|flavor| self.places(flavor)) => {
                    TopologyError::NoTopology
                }
                None => TopologyError::NoFlavor,
                Some(_) if flavors.len() > 1 => {
                    TopologyError::SeveralFlavors(flavors.into_iter().cloned().collect())
                }
                Some(_) if self.queue.config.defers_topology => {
                    self.assignment.pod_sets[assigned].assignment.topology_pending = true;
                    continue;
                }
                Some(flavor) => {
                    let placed = self.replaced.and_then(|slice| slice.placements.get(&pod_set.name)).cloned();
                    to_place.push(ToPlace {
                        pod_set: index,
                        flavor: (*flavor).clone(),
                        count: *count,
                        placed,
                    });
                    continue;
                }
            };
            self.assignment.pod_sets[assigned].misplaced = Some(misplaced);
        }
        to_place
    }
}
