//! Something that is not so, and then is.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// A fact that becomes true once. Those that wait for it are woken in the order in which they came: a `tokio::sync::watch` wakes in
/// random order, and then the same events would not give the same calls.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    is: AtomicBool,
    told: Notify,
}

impl Flag {
    /// It is not so yet.
    pub(crate) const fn new() -> Self {
        Flag { is: AtomicBool::new(false), told: Notify::const_new() }
    }

    /// Whether it is so.
    pub(crate) fn is_set(&self) -> bool {
        self.is.load(Ordering::SeqCst)
    }

    /// From now on it is.
    pub(crate) fn set(&self) {
        self.is.store(true, Ordering::SeqCst);
        self.told.notify_waiters();
    }

    /// Waits until it is.
    pub(crate) async fn wait(&self) {
        // Told of everything from here on, so that what happens before the look is not missed.
        let told = self.told.notified();
        if !self.is_set() {
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_woken_and_who_comes_later_does_not_wait() {
        let flag = Flag::default();
        tokio::join!(flag.wait(), async { flag.set() }, flag.wait());
        flag.wait().await;
        assert!(flag.is_set());
    }
}
