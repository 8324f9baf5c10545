//! Jobs that run on other clusters.

mod choices;
mod faults;
pub(crate) mod fleet;
mod kinds;
mod fleet;
mod interop;
mod outages;
mod pods;
mod scenarios;
