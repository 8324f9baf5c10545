//! A Kubernetes API server in a process: the store over HTTP.
//!
//! One generic pipeline serves every kind. What differs from kind to kind is data (the [`registry`] and the schema
//! pack) and a few small strategies.
//!
//! - [`request`]: what a method and a path ask for;
//! - [`registry`]: what is served;
//! - [`selector`]: label and field selectors;
//! - [`status`]: errors, and how a client sees them.

pub mod registry;
pub mod request;
pub mod selector;
pub mod status;
