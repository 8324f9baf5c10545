//! What time it is.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// The time of day, as the machine tells it or as tokio's clock moves it.
#[derive(Debug, Clone)]
pub enum Clock {
    /// The machine's.
    System,
    /// One that began at `start` and moves with tokio's, which tests can pause and advance.
    Manual {
        /// What time it was at the beginning.
        start: Timestamp,
        /// When that was.
        since: Instant,
    },
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Clock::System
    }

    /// A clock that shows `start` now and moves with tokio's.
    pub fn manual(start: Timestamp) -> Self {
        Clock::Manual { start, since: Instant::now() }
    }

    /// The time of day.
    pub fn now(&self) -> Timestamp {
        match self {
            Clock::System => Timestamp::now(),
            Clock::Manual { start, since } => {
                let passed = SignedDuration::try_from(since.elapsed()).unwrap_or(SignedDuration::MAX);
                start.saturating_add(passed).unwrap_or(Timestamp::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_manual_clock_moves_with_tokios() {
        let clock = Clock::manual("2026-01-01T00:00:00Z".parse().expect("a time"));
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.now().to_string(), "2026-01-01T00:01:30Z");
    }
}
