//! A Kubernetes API server in a process: the store over HTTP.
//!
//! One generic pipeline serves every kind. What differs from kind to kind is data (the [`registry`] and the schema
//! pack) and a few small strategies.
//!
//! - [`cluster`]: a store, what is served from it, and how a request finds its way;
//! - [`request`]: what a method and a path ask for; [`body`]: what a client sends; [`answer`]: what it gets;
//! - [`registry`]: what is served; [`strategy`]: what differs from kind to kind; `verbs`: what can be done;
//!   `subresources`: what else can be done with some kinds;
//! - [`auth`]: who asks, and whether that is allowed; [`admission`]: who has a say in a write;
//! - [`apply`]: server-side apply, and who manages which fields; [`patch`]: the other ways to change a part;
//! - [`crd`]: kinds that users define, and what their objects may hold; [`cel`]: the language of their rules;
//!   [`jsonpath`]: the language of their columns;
//! - `deadline`: how long a request may take; `expiry`: events go when they are old; `kept`: what nobody can do without comes
//!   back; `health`: whether the server is well;
//! - [`serve`]: a cluster on a port; [`credentials`]: who it is and who may talk to it;
//! - `aggregator`: API servers of others behind this one, and beside it in its process;
//! - `table`: objects as rows;
//! - [`node`]: the seam to the nodes, for output of containers and processes in them;
//! - [`selector`]: label and field selectors;
//! - [`status`]: errors, and how a client sees them.

pub mod admission;
mod aggregator;
pub mod answer;
pub mod apply;
pub mod auth;
pub mod body;
mod bootstrap;
pub mod cel;
pub mod cluster;
pub mod crd;
pub mod credentials;
mod deadline;
mod discovery;
mod expiry;
mod flow_schemas;
mod health;
pub mod jsonpath;
mod kept;
mod managed;
mod metrics;
pub mod node;
pub mod object;
mod openapi;
mod options;
pub mod patch;
mod published;
pub mod registry;
pub mod request;
pub mod selector;
pub mod serve;
mod service;
pub mod status;
pub mod strategy;
mod subresources;
mod table;
mod verbs;
mod webhook;

pub use aggregator::Neighbour;
pub use cluster::{Cluster, Setup};
pub use metrics::Counts;
pub use service::WithoutManagers;
