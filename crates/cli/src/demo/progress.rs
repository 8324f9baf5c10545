//! How the Jobs of the demonstration stand: a bar for each on a terminal, a line for each change elsewhere.

use std::io::{IsTerminal as _, Write as _};

use jiff::{SpanRound, Unit};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use reconcile::{Cache, Key};
use types::kueue::Workload;

/// How wide a bar is.
const WIDTH: usize = 24;

/// How a Job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is shown, or expected, by itself")]
pub(super) struct Seen {
    name: String,
    done: usize,
    wanted: usize,
    active: usize,
    failed: usize,
    seconds: Option<i64>,
    pub(super) cluster: Option<String>,
    pub(super) is_created: bool,
    pub(super) is_queued: bool,
    pub(super) is_complete: bool,
    pub(super) has_status: bool,
}

impl Seen {
    /// What the caches show of a Job that was submitted.
    pub(super) fn of(submitted: &Job, jobs: &Cache<Job>, workloads: &Cache<Workload>) -> Self {
        let name = submitted.metadata.name.clone().unwrap_or_default();
        let job = jobs.get(&Key::new("default", name.as_str()));
        let workload = workloads.in_namespace("default").into_iter().find(|workload| {
            workload.metadata.owner_references.iter().flatten().any(|owner| owner.name == name)
        });
        let status = job.as_ref().and_then(|job| job.status.clone()).unwrap_or_default();
        let wanted = submitted.spec.as_ref().and_then(|spec| spec.completions).unwrap_or(1);
        let count = |count: Option<i32>| usize::try_from(count.unwrap_or(0)).unwrap_or(0);
        let is_complete =
            status.conditions.iter().flatten().any(|it| it.type_ == "Complete" && it.status == "True");
        let took = status.start_time.as_ref().zip(status.completion_time.as_ref()).map(|(from, to)| {
            let span = to.0.since(from.0).and_then(|span| span.round(SpanRound::new().largest(Unit::Second)));
            span.map_or(0, |span| span.get_seconds())
        });
        Seen {
            done: count(status.succeeded),
            wanted: count(Some(wanted)),
            active: count(status.active),
            failed: count(status.failed),
            seconds: took,
            cluster: workload.as_ref().and_then(|it| it.status.as_ref()?.cluster_name.clone()),
            is_created: job.is_some(),
            is_queued: workload.is_some(),
            is_complete,
            has_status: job
                .and_then(|job| job.status.clone())
                .is_some_and(|status| status != JobStatus::default()),
            name,
        }
    }

    /// A row of the summary.
    pub(super) fn row(&self) -> String {
        let ended = match (self.is_complete, self.has_status) {
            (true, _) => "Complete",
            (false, true) => "not yet",
            (false, false) => "untouched",
        };
        let place = match (&self.cluster, self.is_complete) {
            (Some(cluster), _) => cluster.as_str(),
            (None, true) => "manager",
            (None, false) => "-",
        };
        let took = self.seconds.map_or("-".to_owned(), |seconds| format!("{seconds} s"));
        format!("{:<12} {ended:<12} {place:<10} {took:>6}", self.name)
    }

    fn bar(&self) -> String {
        let full = (WIDTH * self.done).checked_div(self.wanted).unwrap_or(WIDTH).min(WIDTH);
        format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full))
    }

    fn line(&self) -> String {
        let place = match (&self.cluster, self.is_queued) {
            (Some(cluster), _) => format!("on {cluster}"),
            (None, true) => "waits for a worker".to_owned(),
            (None, false) if self.has_status => "on manager".to_owned(),
            (None, false) => "nobody's here".to_owned(),
        };
        let failed = if self.failed > 0 { format!(", {} failed", self.failed) } else { String::new() };
        format!(
            "{:<12} {}/{} done, {} running{failed}, {place}",
            self.name, self.done, self.wanted, self.active
        )
    }
}

/// Shows how Jobs stand, on standard error.
#[derive(Debug, Default)]
pub(super) struct Progress {
    shown: Vec<Seen>,
}

impl Progress {
    pub(super) fn show(&mut self, seen: &[Seen]) {
        if self.shown == seen {
            return;
        }
        let mut out = std::io::stderr().lock();
        let is_terminal = out.is_terminal();
        if is_terminal && !self.shown.is_empty() {
            // Back to the first bar; what is longer than its line is cleared below.
            let _ = write!(out, "\x1b[{}A", self.shown.len());
        }
        for (i, now) in seen.iter().enumerate() {
            // Whoever closes standard error misses the progress and nothing else.
            let _ = if is_terminal {
                writeln!(out, "\x1b[2K{} {}", now.bar(), now.line())
            } else if self.shown.get(i) != Some(now) {
                writeln!(out, "{}", now.line())
            } else {
                Ok(())
            };
        }
        self.shown = seen.to_vec();
    }
}
