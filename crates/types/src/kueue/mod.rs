//! Kueue's API, `kueue.x-k8s.io/v1beta2`.
//!
//! Field for field what is on the wire: what was absent stays absent when it is written again, since a manager compares
//! the specs of its Workloads with those on the workers. What a field means is decided elsewhere; what may stand in it
//! is checked by the API server.

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod multikueue_cluster;
mod multikueue_config;
mod object;
mod provisioning_request_config;
mod resource_flavor;
mod topology;
mod workload;
mod workload_priority_class;

pub use admission_check::*;
pub use cluster_queue::*;
pub use cohort::*;
pub use local_queue::*;
pub use multikueue_cluster::*;
pub use multikueue_config::*;
pub use object::{ApiVersion, Kind};
pub use provisioning_request_config::*;
pub use resource_flavor::*;
pub use topology::*;
pub use workload::*;
pub use workload_priority_class::*;

/// The API group.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The version that these types are of.
pub const VERSION: &str = "v1beta2";
/// Group and version as objects carry them.
pub const API_VERSION: &str = "kueue.x-k8s.io/v1beta2";
/// The finalizer of objects that others still use.
pub const RESOURCE_IN_USE: &str = "kueue.x-k8s.io/resource-in-use";

/// Whether a field that is a plain value in Go is left out when it is written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests;
