//! Nodes on a real kube-apiserver.

mod bed;
mod containers;
mod isolation;
mod leftovers;
mod probes;
mod sessions;
mod simulated;
mod stopping;
mod volumes;
