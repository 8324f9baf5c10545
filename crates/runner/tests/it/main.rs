//! Nodes on the API server of this workspace and, if `FERRY_TEST_SERVER` is `real`, on a real one.

mod bed;
mod containers;
mod isolation;
mod leftovers;
mod network;
mod nobody;
mod probes;
mod sessions;
mod simulated;
mod stopping;
mod volumes;
