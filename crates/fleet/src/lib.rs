//! The embedded set-up: clusters in this process, each with its API server, controllers and nodes, and the operator
//! that carries Jobs between them.
//!
//! Wiring only. A cluster's parts reach it through a client of their own, which is no more than a client; that it needs
//! no socket is all that tells it from one of a real cluster.

mod cluster;
mod error;
mod fleet;
mod layout;
mod neighbour;
mod nodes;
mod plugin;
pub mod simulation;

pub use cluster::{Cluster, Settings as ClusterSettings};
pub use error::{Error, Open};
pub use fleet::{Fleet, KEPT_LOGS, MANAGER, Runtime, Settings, context, expect_names, node_of};
pub use layout::{QUEUE, Quota};
