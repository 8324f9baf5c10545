//! Kubernetes' own conformance tests, run against a cluster of a program that claims to be one.
//!
//! The tests are Kubernetes' end-to-end tests as they are ([`Suite`]), their pods run what they run everywhere as far as it
//! can be built or comes with Debian ([`images`]), and those that do not pass stand in a file with the reason ([`Known`]).

mod busybox;
mod cluster;
pub mod images;
mod known;
mod report;
mod suite;

pub use cluster::Cluster;
pub use known::Known;
pub use report::{Outcome, State, group_of};
pub use suite::Suite;
