//! When news of running jobs are to be shown: not at once, because the next may follow, and then one write does for both.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reconcile::Key;
use tokio::time::Instant;

/// So many jobs with news make each of them wait once more as long.
const CROWD: usize = 4;
/// But never longer than so many times: with the usual tenth of a second, as long as Kueue collects (section 3.3 of the rules).
const LONGEST: u32 = 10;

/// When the news of each job are due. What is due stays so until it is forgotten: whoever fails to show it comes back
/// later each time, as with any other failure, and does not begin to collect again.
#[derive(Default)]
pub(super) struct Due(Mutex<BTreeMap<Key, Instant>>);

impl Due {
    /// How long news are still collected: for `collect`, and the longer the more jobs have news, since then there is more to
    /// do than to show what may be over as soon as it is shown.
    pub(super) fn wait(&self, key: &Key, collect: Duration, now: Instant) -> Option<Duration> {
        let mut due = self.lock();
        let times = u32::try_from(due.len() / CROWD).unwrap_or(u32::MAX).saturating_add(1).min(LONGEST);
        let at = *due.entry(key.clone()).or_insert(now + collect.saturating_mul(times));
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

    #[test]
    fn where_many_have_news_they_are_collected_for_longer_but_not_for_ever() {
        let (due, collect, now) = (Due::default(), Duration::from_millis(100), Instant::now());
        let wait = |index: usize| due.wait(&Key::new("ns", format!("w{index}")), collect, now);
        let waits: Vec<u128> = (0..48).filter_map(wait).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits.len(), 48);
        assert_eq!([waits[0], waits[3], waits[4], waits[39], waits[47]], [100, 100, 200, 1000, 1000]);
        (0..48).for_each(|index| due.forget(&Key::new("ns", format!("w{index}"))));
        assert_eq!(wait(48), Some(collect));
    }
}
