//! When news of running jobs are to be shown: not at once, because the next may follow, and then one write does for both.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reconcile::Key;
use tokio::time::Instant;

/// When the news of each job are due. What is due stays so until it is forgotten: whoever fails to show it comes back
/// later each time, as with any other failure, and does not begin to collect again.
#[derive(Default)]
pub(super) struct Due(Mutex<BTreeMap<Key, Instant>>);

impl Due {
    /// How long news are still collected.
    pub(super) fn wait(&self, key: &Key, collect: Duration, now: Instant) -> Option<Duration> {
        let at = *self.lock().entry(key.clone()).or_insert(now + collect);
        (at > now).then(|| at - now)
    }

    /// They were shown, or there is more to say than news.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Instant>> {
        // Every holder makes one change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_stays_due_until_it_was_shown() {
        let (due, key, collect) = (Due::default(), Key::new("ns", "w"), Duration::from_millis(100));
        let began = Instant::now();
        let wait = |after: u64| due.wait(&key, collect, began + Duration::from_millis(after));
        assert_eq!(wait(0), Some(collect));
        assert_eq!(wait(60), Some(Duration::from_millis(40)), "more news do not put it off");
        assert_eq!(wait(100), None);
        assert_eq!(wait(120), None, "it could not be shown");
        due.forget(&key);
        assert_eq!(wait(150), Some(collect));
    }
}
