//! From single probes to what they mean for a container.

use std::time::Duration;

use k8s_openapi::api::core::v1::Probe;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// Whether the container has come up; the other probes wait for it.
    Startup,
    /// Whether it should be started again.
    Liveness,
    /// Whether it can serve.
    Readiness,
}

impl Purpose {
    /// As events name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Startup => "Startup",
            Purpose::Liveness => "Liveness",
            Purpose::Readiness => "Readiness",
        }
    }
}

/// When a probe is made, and how many equal answers it takes. Defaults are those of the API, for probes that come from
/// somewhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Before the first one.
    pub initial_delay: Duration,
    /// Between two.
    pub period: Duration,
    /// For one.
    pub timeout: Duration,
    /// Equal failures in a row until they count.
    pub failures: u32,
    /// Equal successes in a row until they count.
    pub successes: u32,
}

impl Schedule {
    /// As a probe says.
    pub fn of(probe: &Probe) -> Schedule {
        let seconds = |value: Option<i32>, default: i32| {
            let value = value.filter(|value| *value >= 0).unwrap_or(default);
            Duration::from_secs(u64::from(value.unsigned_abs()))
        };
        let count = |value: Option<i32>, default: i32| {
            value.filter(|value| *value > 0).unwrap_or(default).unsigned_abs()
        };
        Schedule {
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds.filter(|period| *period > 0), 10),
            timeout: seconds(probe.timeout_seconds.filter(|timeout| *timeout > 0), 1),
            failures: count(probe.failure_threshold, 3),
            successes: count(probe.success_threshold, 1),
        }
    }
}

/// The answers of one probe of one instance, in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Run {
    last: Option<bool>,
    length: u32,
}

impl Run {
    /// Takes one answer; `Some` when there were enough of the same for it to count.
    pub fn add(&mut self, success: bool, schedule: &Schedule) -> Option<bool> {
        if self.last == Some(success) {
            self.length = self.length.saturating_add(1);
        } else {
            (self.last, self.length) = (Some(success), 1);
        }
        let enough = if success { schedule.successes } else { schedule.failures };
        (self.length >= enough).then_some(success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_when_there_are_enough_of_them() {
        let probe = Probe { failure_threshold: Some(2), success_threshold: Some(3), ..Probe::default() };
        let schedule = Schedule::of(&probe);
        assert_eq!((schedule.period.as_secs(), schedule.timeout.as_secs()), (10, 1));
        let mut run = Run::default();
        let answers = [true, false, true, true, true, true, false, false, false];
        let counted: Vec<Option<bool>> = answers.iter().map(|answer| run.add(*answer, &schedule)).collect();
        let (yes, no) = (Some(true), Some(false));
        assert_eq!(counted, [None, None, None, None, yes, yes, None, no, no]);
    }
}
