//! How the Jobs of the demonstration stand: a bar for each on a terminal, a line for each change elsewhere.

use std::io::{IsTerminal as _, Write as _};

use crate::output::{self, Cell, Palette, Tone};
use crate::view::{Status, View};

/// How wide a bar is.
const WIDTH: usize = 24;

/// The part of a Job's work that is done, as a bar.
fn bar(view: &View) -> String {
    let done = usize::try_from(view.progress.succeeded).unwrap_or(0);
    let wanted = usize::try_from(view.progress.wanted.unwrap_or(1)).unwrap_or(0);
    let full = (WIDTH * done).checked_div(wanted).unwrap_or(WIDTH).min(WIDTH);
    format!("[{}{}]", "#".repeat(full), ".".repeat(WIDTH - full))
}

/// How a Job stands: pods, indexes, and where.
fn line(view: &View) -> String {
    let indexes = view.progress.completed_indexes.as_ref();
    let indexes = indexes.map(|indexes| format!(", indexes {indexes} done")).unwrap_or_default();
    let place = match view.place().as_str() {
        "" => String::new(),
        "local" => ", on the manager".to_owned(),
        cluster => format!(", on {cluster}"),
    };
    let status = view.status.text();
    format!("{:<10} {status:<11} {}{indexes}{place}", view.name, view.progress.text())
}

/// A row of the summary.
pub(super) fn row(view: &View, why: &str) -> Vec<Cell> {
    let (ended, tone) = match view.status {
        Status::External => ("untouched", Tone::Dim),
        status => (status.text(), status.tone()),
    };
    let place = if view.place() == "local" { fleet::MANAGER.to_owned() } else { view.place() };
    let took = view.ended.and(view.seconds(jiff::Timestamp::now())).map(output::duration);
    let failed = match view.progress.failed {
        0 => String::new(),
        failed => failed.to_string(),
    };
    vec![
        view.name.clone().into(),
        Cell::toned(tone, ended),
        place.into(),
        view.progress.text().split(',').next().unwrap_or_default().into(),
        failed.into(),
        took.unwrap_or_default().into(),
        why.into(),
    ]
}

/// Shows how Jobs stand, on standard error.
#[derive(Debug, Default)]
pub(super) struct Progress {
    shown: Vec<View>,
}

impl Progress {
    pub(super) fn show(&mut self, views: &[View]) {
        if self.shown == views {
            return;
        }
        let palette = Palette::stderr();
        let mut out = std::io::stderr().lock();
        let is_terminal = out.is_terminal();
        if is_terminal {
            // Back to the first bar. What is longer than a line is cut off: were it to go on in the next one, there would
            // be more lines than bars.
            let up =
                if self.shown.is_empty() { String::new() } else { format!("\x1b[{}A", self.shown.len()) };
            let _ = write!(out, "{up}\x1b[?7l");
        }
        for view in views {
            let before = self.shown.iter().find(|before| before.name == view.name);
            // Whoever closes standard error misses the progress and nothing else.
            let _ = if is_terminal {
                let bar = palette.paint(view.status.tone(), &bar(view));
                writeln!(out, "\x1b[2K{bar} {}", line(view))
            } else if before.map(line) != Some(line(view)) {
                writeln!(out, "{}", line(view))
            } else {
                Ok(())
            };
        }
        if is_terminal {
            let _ = write!(out, "\x1b[?7h");
        }
        self.shown = views.to_vec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    #[test]
    fn bars_and_lines() {
        let spec = json!({ "completions": 4, "parallelism": 2, "completionMode": "Indexed", "template": {} });
        let status = json!({
            "succeeded": 1, "active": 2, "failed": 1, "completedIndexes": "2", "startTime": "2026-01-01T00:00:00Z",
        });
        let job = json!({ "metadata": { "name": "frames" }, "spec": spec, "status": status });
        let view = View::of_job(&serde_json::from_value::<Job>(job).expect("a Job"), None);
        assert_eq!(bar(&view), "[######..................]");
        assert_eq!(
            line(&view),
            "frames     Running     1/4, 2 running, 1 failed, indexes 2 done, on the manager"
        );
    }
}
