//! Why a pod set did not get its flavors, in Kueue's words.
//!
//! The texts are read by users in `status.conditions` and by tools that match on them: they are part of the API.

use std::fmt;

use k8s_openapi::api::core::v1::Taint;
use types::Amount;

use super::{
    names::{FlavorName, FlavorResource, ResourceName},
    tree::NodeName,
};

/// One reason why a flavor could not be assigned, or not yet.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// The ClusterQueue has no quota for the resource at all.
    NotCovered(ResourceName),
    /// The ClusterQueue lists a flavor that does not exist.
    FlavorNotFound(FlavorName),
    /// The flavor's nodes have a taint that the pods do not tolerate.
    UntoleratedTaint {
        /// The flavor.
        flavor: FlavorName,
        /// The taint.
        taint: Taint,
    },
    /// The flavor's nodes are not those that the pods ask for.
    NodeAffinity(FlavorName),
    /// The pods ask for a topology, which the flavor does not have.
    NoTopology(FlavorName),
    /// The pods ask for a level that the flavor's topology does not have.
    NoTopologyLevel(FlavorName),
    /// The pods ask for a topology, and what the flavor's is like is not known.
    UnknownTopology(FlavorName),
    /// The flavor is only for pods that ask for a topology.
    OnlyTopology(FlavorName),
    /// Pods of the same Job have another flavor already.
    OtherFlavor {
        /// The flavor.
        flavor: FlavorName,
        /// Theirs.
        theirs: FlavorName,
    },
    /// It is more than there would be if nobody else used anything.
    ExceedsCapacity {
        /// Of what.
        fr: FlavorResource,
        /// What pod sets before this one ask for.
        earlier: Amount,
        /// What this pod set asks for.
        request: Amount,
        /// What there would be.
        capacity: Amount,
    },
    /// It is more than is left.
    Short {
        /// Of what.
        fr: FlavorResource,
        /// How much more would be needed.
        missing: Amount,
        /// Who has nothing left to give: the ClusterQueue or Cohort whose limit or quota is exhausted.
        at: NodeName,
    },
    /// There is no place for the pods, as the text says.
    NoPlace(String),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::NoPlace(why) => f.write_str(why),
            Why::NotCovered(resource) => write!(f, "resource {resource} unavailable in ClusterQueue"),
            Why::FlavorNotFound(flavor) => write!(f, "flavor {flavor} not found"),
            Why::UntoleratedTaint { flavor, taint } => {
                // Kueue prints the Go struct; `timeAdded` is never set on a flavor.
                let value = taint.value.as_deref().unwrap_or_default();
                write!(
                    f,
                    "untolerated taint {{{} {value} {} <nil>}} in flavor {flavor}",
                    taint.key, taint.effect
                )
            }
            Why::NodeAffinity(flavor) => write!(f, "flavor {flavor} doesn't match node affinity"),
            Why::OtherFlavor { flavor, theirs } => {
                write!(
                    f,
                    "could not assign {flavor} flavor since the original workload is assigned: {theirs}"
                )
            }
            Why::NoTopology(flavor) => {
                write!(f, "Flavor \"{flavor}\" does not support TopologyAwareScheduling")
            }
            Why::NoTopologyLevel(flavor) => {
                write!(f, "Flavor \"{flavor}\" does not contain the requested level")
            }
            Why::UnknownTopology(flavor) => write!(f, "Flavor \"{flavor}\" information missing in TAS cache"),
            Why::OnlyTopology(flavor) => {
                write!(f, "Flavor \"{flavor}\" supports only TopologyAwareScheduling")
            }
            Why::ExceedsCapacity { fr: FlavorResource { flavor, resource }, earlier, request, capacity } => {
                write!(
                    f,
                    "insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests ({}) + \
                 current podset request ({}) > maximum capacity ({})",
                    earlier.text(resource.as_str()),
                    request.text(resource.as_str()),
                    capacity.text(resource.as_str()),
                )
            }
            Why::Short { fr: FlavorResource { flavor, resource }, missing, .. } => write!(
                f,
                "insufficient unused quota for {resource} in flavor {flavor}, {} more needed",
                missing.text(resource.as_str()),
            ),
        }
    }
}

/// Why pods that ask for a topology cannot have it, although flavors were found. Such a pod set fails as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TopologyError {
    /// The ClusterQueue has no flavor with a topology at all.
    NoTopology,
    /// None of the flavors that were found has a topology.
    NoFlavor,
    /// More than one of them has.
    SeveralFlavors(Vec<FlavorName>),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TopologyError::NoTopology => {
                f.write_str("workload requires Topology, but there is no TAS cache information")
            }
            TopologyError::NoFlavor => f.write_str("no TAS flavor assigned"),
            TopologyError::SeveralFlavors(flavors) => {
                let names: Vec<&str> = flavors.iter().map(FlavorName::as_str).collect();
                write!(f, "more than one TAS flavor assigned: {}", names.join(", "))
            }
        }
    }
}
