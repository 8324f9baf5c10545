//! Nodes on a real kube-apiserver, and on the API server of this workspace.

mod bed;
mod simulated;
