//! Jobs that run on other clusters.

mod choices;
mod faults;
pub(crate) mod fleet;
mod interop;
mod kinds;
mod outages;
mod pods;
mod scenarios;
