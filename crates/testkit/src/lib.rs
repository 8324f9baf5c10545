//! What tests of this workspace stand on: real Kubernetes control planes, recordings of their answers ([`corpus`]), and pods
//! that only pretend to run.
//!
//! ```no_run
//! # async fn example() -> Result<(), testkit::Error> {
//! use testkit::ControlPlane;
//!
//! let cluster = ControlPlane::builder().controller_manager(["job-controller"]).start().await?;
//! let client = cluster.client(); // kube::Client, user admin of system:masters
//! let namespace = cluster.namespace("demo").await?; // a new one, "demo-…"
//! println!("KUBECONFIG={}", cluster.kubeconfig().display());
//! # Ok(()) }
//! ```
//!
//! Its pods run by [`ControlPlane::simulator`]; it fails by [`ControlPlane::freeze`], [`ControlPlane::kill`] and
//! [`ControlPlane::proxy`]; and it ends, with all its processes and files, when it is dropped or its test process ends.
//!
//! A test asks for a control plane by [`Builder::for_test`], or for the one that its test binary shares by [`Shared`];
//! both answer `None`, loudly, where no Kubernetes can be had, unless `FERRY_REQUIRE_KUBERNETES` forbids that.
//!
//! This crate knows nothing of the rest of the workspace, so that every other crate can test itself with it.

pub mod conformance;
pub mod corpus;
pub mod go;
pub mod kubernetes;
mod process;
pub mod simulator;

use std::io::{self, Write as _};

use kubernetes::is_required;
pub use kubernetes::{
    Binary, BinaryError, Borrowed, Builder, ControlPlane, ControllerManager, Error, Fault, Kueue, Proxy,
    Shared,
};
pub use process::Process;
pub use simulator::{Behaviour, Simulator};

/// Speaks to the person at the terminal. Written to the handle itself, because `cargo test` hides what `eprintln!`
/// prints in tests that pass.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "testkit: {line}");
}
