//! The testkit, tested with the real thing.

mod control_plane;

use testkit::{ControlPlane, Shared};

/// For tests that do nothing to it.
static CLUSTER: Shared = Shared::new(ControlPlane::builder);
