//! Tables of Kueue's behaviour, and what holds for every decision.

mod cycle;
mod fair;
mod flavors;
mod preempt;
mod properties;
mod queue;
mod requests;
pub(super) mod scenario;
mod slices;
mod topology;
mod tree;
mod usage;
mod wire;
