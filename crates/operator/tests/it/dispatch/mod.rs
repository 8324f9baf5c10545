//! Jobs that run on other clusters.

mod faults;
pub(crate) mod fleet;
mod kinds;
mod pods;
mod scenarios;
