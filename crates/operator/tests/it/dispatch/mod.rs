//! Jobs that run on other clusters.

mod faults;
mod fleet;
mod pods;
mod scenarios;
