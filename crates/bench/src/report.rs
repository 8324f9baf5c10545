//! Results: both sides of every measure, and how many times better the better one is.

use std::{fmt, time::Duration};

use serde::Serialize;

use crate::machine::Machine;

/// What a benchmark has found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    name: &'static str,
    /// What was done, and on what.
    about: String,
    /// Who is compared.
    ours: String,
    theirs: String,
    measures: Vec<Measure>,
    /// What a reader must know in order not to read too much into it.
    notes: Vec<String>,
    machine: Option<Machine>,
}

/// One thing that was measured on both sides.
#[derive(Debug, Serialize)]
struct Measure {
    what: &'static str,
    unit: Unit,
    ours: f64,
    theirs: f64,
    /// How many times better ours is.
    ratio: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Unit {
    Seconds,
    PerSecond,
    Bytes,
}

impl Unit {
    fn better(self, ours: f64, theirs: f64) -> f64 {
        match self {
            Unit::Seconds | Unit::Bytes => theirs / ours,
            Unit::PerSecond => ours / theirs,
        }
    }

    fn print(self, value: f64) -> String {
        match self {
            Unit::Seconds => time(value),
            Unit::PerSecond => format!("{value:.0}/s"),
            Unit::Bytes => format!("{:.1} MiB", value / f64::from(1 << 20)),
        }
    }
}

impl Report {
    pub(crate) fn new(name: &'static str, about: String, ours: &str, theirs: &str) -> Report {
        let (ours, theirs) = (ours.to_owned(), theirs.to_owned());
        Report { name, about, ours, theirs, measures: Vec::new(), notes: Vec::new(), machine: None }
    }

    pub(crate) fn measure(self, what: &'static str, ours: Duration, theirs: Duration) -> Report {
        self.with(what, Unit::Seconds, ours.as_secs_f64(), theirs.as_secs_f64())
    }

    /// How often something was done in a second.
    pub(crate) fn rate(self, what: &'static str, ours: f64, theirs: f64) -> Report {
        self.with(what, Unit::PerSecond, ours, theirs)
    }

    /// Bytes of memory.
    #[expect(clippy::cast_precision_loss, reason = "shown with one decimal of a MiB")]
    pub(crate) fn memory(self, what: &'static str, ours: u64, theirs: u64) -> Report {
        self.with(what, Unit::Bytes, ours as f64, theirs as f64)
    }

    fn with(mut self, what: &'static str, unit: Unit, ours: f64, theirs: f64) -> Report {
        self.measures.push(Measure { what, unit, ours, theirs, ratio: unit.better(ours, theirs) });
        self
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Report {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn on(mut self, machine: Machine) -> Report {
        self.machine = Some(machine);
        self
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}\n", self.name, self.about)?;
        writeln!(f, "  ours    {}\n  theirs  {}\n", self.ours, self.theirs)?;
        writeln!(f, "  {:<38}{:>12}{:>12}{:>10}", "", "ours", "theirs", "ratio")?;
        for Measure { what, unit, ours, theirs, ratio } in &self.measures {
            let (ours, theirs) = (unit.print(*ours), unit.print(*theirs));
            writeln!(f, "  {what:<38}{ours:>12}{theirs:>12}{:>10}", format!("{ratio:.1}x"))?;
        }
        writeln!(f)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        self.machine.as_ref().map_or(Ok(()), |machine| writeln!(f, "  {machine}"))
    }
}

/// A time with three figures: `12.3 µs`.
fn time(seconds: f64) -> String {
    let (value, unit) = match seconds {
        _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// How long each of many repetitions took.
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    /// At least one of them.
    pub(crate) fn new(mut samples: Vec<Duration>) -> Samples {
        assert!(!samples.is_empty(), "nothing was measured");
        samples.sort_unstable();
        Samples(samples)
    }

    /// The time that this many of a hundred stay within.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        let check = |seconds: f64, text: &str| assert_eq!(time(seconds), text);
        check(0.000_012_34, "12.3 µs");
        check(0.001_234, "1.23 ms");
        check(0.1234, "123 ms");
        check(2.0, "2.00 s");
    }

    #[test]
    fn percentiles() {
        let samples = Samples::new((1..=100).rev().map(Duration::from_secs).collect());
        assert_eq!((samples.percentile(50).as_secs(), samples.percentile(99).as_secs()), (51, 100));
        assert_eq!(Samples::new(vec![Duration::from_secs(7)]).percentile(99).as_secs(), 7);
    }

    #[test]
    fn a_report_shows_both_sides_and_their_ratio() {
        let report = Report::new("name", "about".to_owned(), "us", "them").note("nota bene");
        let text = report.measure("work", Duration::from_millis(2), Duration::from_millis(50)).to_string();
        for part in ["2.00 ms", "50.0 ms", "25.0x", "nota bene"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn more_is_better_of_rates_and_less_of_memory() {
        let report = Report::new("name", "about".to_owned(), "us", "them");
        let text = report.rate("work", 600.0, 200.0).memory("kept", 10 << 20, 25 << 20).to_string();
        for part in ["600/s", "200/s", "3.0x", "10.0 MiB", "25.0 MiB", "2.5x"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
