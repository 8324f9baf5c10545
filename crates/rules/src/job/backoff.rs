//! How long a failed pod's replacement waits.

use jiff::{SignedDuration, Timestamp};

const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(10);

/// What is remembered of a Job's failures, for as long as the controller runs (B-01). It changes only once the status
/// that accounts for the pods is written, so that a failed write does not count a failure twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Pods that failed after the last one that succeeded.
    pub failures: i32,
    /// When the last of them ended.
    pub last_failure: Option<Timestamp>,
}

impl Backoff {
    /// The record after more pods ended at these times (B-02): a success forgets every failure that does not come
    /// after it.
    pub fn after(self, succeeded: &[Timestamp], failed: &[Timestamp]) -> Self {
        let Some(last_success) = succeeded.iter().max() else {
            return Backoff {
                failures: self.failures.saturating_add(i32::try_from(failed.len()).unwrap_or(i32::MAX)),
                last_failure: failed.iter().max().copied().or(self.last_failure),
            };
        };
        let later: Vec<Timestamp> = failed.iter().filter(|at| *at > last_success).copied().collect();
        Backoff {
            failures: i32::try_from(later.len()).unwrap_or(i32::MAX),
            last_failure: later.into_iter().max(),
        }
    }

    /// When the next pod may be created; `None` when nothing has failed.
    pub fn ready_at(self) -> Option<Timestamp> {
        self.last_failure.map(|at| ready_at(self.failures, at))
    }
}

/// The delay after this many failures (B-03): ten seconds, doubling, at most ten minutes.
pub fn delay(failures: i32) -> SignedDuration {
    let Ok(doublings) = u32::try_from(i64::from(failures) - 1) else { return SignedDuration::ZERO };
    let factor = 2i32.saturating_pow(doublings.min(30));
    FIRST_DELAY.checked_mul(factor).unwrap_or(LONGEST_DELAY).min(LONGEST_DELAY)
}

/// When a pod may be created after this many failures, the last of which was at `last_failure`.
pub fn ready_at(failures: i32, last_failure: Timestamp) -> Timestamp {
    last_failure.checked_add(delay(failures)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn times(seconds: &[i64]) -> Vec<Timestamp> {
        seconds.iter().copied().map(at).collect()
    }

    #[test]
    fn b_03_delays() {
        let delays: Vec<i64> = (0..9).map(|failures| delay(failures).as_secs()).collect();
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 320, 600, 600]);
        assert_eq!(delay(i32::MAX), LONGEST_DELAY);
        assert_eq!(delay(-1), SignedDuration::ZERO);
    }

    #[test]
    fn b_02_after() {
        let old = Backoff { failures: 3, last_failure: Some(at(10)) };
        for (rule, succeeded, failed, expected) in [
            ("nothing new", &[][..], &[][..], (3, Some(10))),
            ("only failures", &[], &[20, 30, 25], (5 + 1, Some(30))),
            ("only successes", &[15], &[], (0, None)),
            ("failures after the last success", &[20, 25], &[15, 30, 40], (2, Some(40))),
            ("a failure at the same time is forgotten", &[20], &[20], (0, None)),
            ("all failures before", &[20], &[11, 19], (0, None)),
        ] {
            let got = old.after(&times(succeeded), &times(failed));
            assert_eq!((got.failures, got.last_failure), (expected.0, expected.1.map(at)), "{rule}");
        }
        let first = Backoff::default().after(&[], &times(&[7]));
        assert_eq!(first, Backoff { failures: 1, last_failure: Some(at(7)) });
    }

    #[test]
    fn b_03_is_measured_from_the_last_failure() {
        assert_eq!(Backoff::default().ready_at(), None);
        assert_eq!(Backoff { failures: 1, last_failure: Some(at(100)) }.ready_at(), Some(at(110)));
        assert_eq!(Backoff { failures: 3, last_failure: Some(at(100)) }.ready_at(), Some(at(140)));
        assert_eq!(
            Backoff { failures: 1, last_failure: Some(Timestamp::MAX) }.ready_at(),
            Some(Timestamp::MAX)
        );
    }
}
