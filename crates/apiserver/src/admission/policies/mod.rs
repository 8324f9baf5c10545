//! ValidatingAdmissionPolicies: rules in the Common Expression Language that a cluster's administrators add (3.20).
//!
//! What is left out: audit annotations, for there is no audit log.

mod dispatch;
mod policy;

pub(super) use dispatch::Policies;
