//! Jobs that run on other clusters.

mod choices;
mod connections;
mod elastic;
mod evictions;
mod faults;
pub(crate) mod fleet;
mod interop;
mod kinds;
mod outages;
mod parts;
mod pods;
mod refusals;
mod scenarios;
mod sets;
mod sharing;
mod wire;
mod writes;
pub(crate) mod written;
