//! Who gets in: quota, flavors, queues and preemption, as Kueue decides them.
//!
//! [`decide`] is one scheduling cycle as a value: from a [`Snapshot`] and the heads of all queues to a [`Plan`] that
//! says for every one of them what it gets, who has to go for it, or what it waits for. The parts, from the bottom:
//!
//! - [`tree`]: who has how much and who uses how much, through hierarchical cohorts.
//! - [`affinity`]: whether a flavor's nodes take a pod.
//! - [`fit`] and [`flavors`]: which flavor a resource gets, and what it takes; [`considered`]: which it could have had.
//! - [`topology`] and [`placing`]: where pods go that are placed by how nodes are arranged.
//! - [`preempt`], [`fair`] and [`share`]: who has to go.
//! - [`queue`]: who waits, in which order, and who is tried again when.
//! - [`usage`] and [`ledger`]: what LocalQueues used of late, where that decides who comes first.
//! - [`readiness`], [`status`] and [`standing`]: whether a queue admits, and what is shown of it and of cohorts.
//! - [`cycle`] and [`plan`]: all of it together, and what comes of it.
//!
//! None of these knows objects of an API. What those say is reduced to [`config`] and [`workload`] first, by [`wire`],
//! and by [`requests`] for what a pod asks for.

pub mod affinity;
pub mod config;
pub mod considered;
pub mod cycle;
pub mod fair;
pub mod fit;
pub mod flavors;
pub mod ledger;
pub mod names;
pub mod partial;
pub mod placing;
pub mod plan;
pub mod preempt;
pub mod queue;
pub mod readiness;
pub mod requests;
pub mod share;
pub mod snapshot;
pub mod standing;
pub mod status;
#[cfg(test)]
mod tests;
pub mod topology;
pub mod tree;
pub mod usage;
pub mod why;
pub mod wire;
pub mod workload;

pub use cycle::{Moment, Policy, decide};
pub use plan::{Decision, Outcome, Plan};
pub use snapshot::Snapshot;
