//! When what could not be made is tried again: soon at first, and then less and less often.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

/// After the first failure.
pub(super) const FIRST: SignedDuration = SignedDuration::from_secs(2);
/// After many of them, as a kubelet waits before it looks at a pod again.
pub(super) const LONGEST: SignedDuration = SignedDuration::from_secs(10);
/// The same for what others have to be asked for.
pub(super) const LONGEST_PULL: SignedDuration = SignedDuration::from_mins(5);

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Attempt {
    Network,
    Sandbox,
    Volumes,
    Container(usize),
}

/// What has failed, how long it waits and until when.
#[derive(Debug, Default)]
pub(super) struct Retries(BTreeMap<Attempt, (SignedDuration, Timestamp)>);

impl Retries {
    /// When something may be tried, if not now.
    pub(super) fn waits(&self, what: Attempt, now: Timestamp) -> Option<Timestamp> {
        self.0.get(&what).map(|(_, until)| *until).filter(|until| *until > now)
    }

    /// It has failed. Returns when it is tried again.
    pub(super) fn failed(&mut self, what: Attempt, longest: SignedDuration, now: Timestamp) -> Timestamp {
        let wait = self.0.get(&what).map_or(FIRST, |(wait, _)| (*wait * 2).min(longest));
        let until = now.saturating_add(wait).unwrap_or(Timestamp::MAX);
        self.0.insert(what, (wait, until));
        until
    }

    pub(super) fn succeeded(&mut self, what: Attempt) {
        self.0.remove(&what);
    }

    /// The pod is not what it was: what failed may do now.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_waits_longer() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut retries = Retries::default();
        let one = Attempt::Container(1);
        assert_eq!(retries.waits(one, at(0)), None);
        for (now, until) in [(0, 2), (2, 6), (6, 14), (14, 24), (24, 34)] {
            assert_eq!(retries.failed(one, LONGEST, at(now)), at(until));
            assert_eq!(retries.waits(one, at(now)), Some(at(until)));
            assert_eq!(retries.waits(one, at(until)), None);
        }
        assert_eq!(retries.failed(Attempt::Volumes, LONGEST, at(34)), at(36), "each waits for itself");
        retries.succeeded(one);
        assert_eq!(retries.failed(one, LONGEST, at(40)), at(42));
        retries.forget();
        assert_eq!(retries.waits(Attempt::Volumes, at(34)), None);
    }
}
