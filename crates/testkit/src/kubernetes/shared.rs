//! One control plane for all tests of a binary, because starting one takes longer than most tests do.

use std::{ops::Deref, thread};

use tokio::sync::OnceCell;

use super::{Builder, ControlPlane, Error, for_test};

/// A control plane that is started when the first test asks for it and ends with the test process.
///
/// Namespaces keep the tests apart: each makes its own with [`ControlPlane::namespace`]. A test that freezes or kills a
/// control plane starts one for itself.
///
/// ```no_run
/// use testkit::{ControlPlane, Shared};
///
/// static CLUSTER: Shared = Shared::new(ControlPlane::builder);
///
/// # async fn example() {
/// let Some(cluster) = CLUSTER.for_test().await else { return };
/// let namespace = cluster.namespace("demo").await.expect("a namespace");
/// # }
/// ```
#[derive(Debug)]
pub struct Shared {
    builder: fn() -> Builder,
    started: OnceCell<ControlPlane>,
}

impl Shared {
    /// To be put into a `static`.
    pub const fn new(builder: fn() -> Builder) -> Shared {
        Shared { builder, started: OnceCell::const_new() }
    }

    /// The control plane, started if this is the first call.
    pub async fn start(&'static self) -> Result<Borrowed, Error> {
        let plane = self.started.get_or_try_init(|| (self.builder)().start()).await?;
        Ok(Borrowed { plane })
    }

    /// The control plane for a test, which returns early on `None`: see [`Builder::for_test`].
    pub async fn for_test(&'static self) -> Option<Borrowed> {
        for_test(self.start().await)
    }
}

/// A test's hold on a shared control plane. If the test panics, the logs are kept.
#[derive(Debug)]
pub struct Borrowed {
    plane: &'static ControlPlane,
}

impl Deref for Borrowed {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.plane
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if thread::panicking() {
            self.plane.keep_directory();
        }
    }
}
