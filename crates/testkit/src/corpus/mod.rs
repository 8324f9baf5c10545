//! Recorded conversations with an API server, and how they are played again.
//!
//! A recording holds a case a line: requests with the answers of a real kube-apiserver, freed of what differs between two
//! runs. [`play`] asks the same of any [`Server`] and tells where the answers differ; [`record`] makes a recording of
//! cases that have no answers yet.
//!
//! A step has a method, a path, a query, headers, and at most one of `body` (JSON), `raw` (text), `b64` (bytes), `many` (a
//! value and how often it stands in an array) and `from` with `merge` (a saved object and a merge patch for it). Texts may
//! hold `{ns}`, `{u}`, `{NAME}` for what was saved, `{NAME+5}` for saved numbers and `{pad:N}`. Further:
//! - `save` `{NAME: path}` keeps a part of the answer; `token` brings other credentials, or none if it is empty;
//! - `only: "code"` marks a set-up step: nothing else of it is compared, and the case ends if it fails;
//! - `wait` `{code, path, equals}` repeats the request until the answer is so;
//! - `watch` with `during` opens a stream, plays the steps and reads until the server ends it;
//! - `view` reduces the answer first; `want_headers` compares these headers too, `no_headers` none of the usual ones.
//!
//! A case may say `managed` (compare managedFields, too), `descriptions` (of table columns), `ignore` (paths) and `alone`.
//! Nothing here knows what an answer means; it only knows what differs from run to run.

mod diff;
mod names;
mod player;
mod server;
mod value;
mod view;

use std::io::{self, BufRead as _, Write};
use std::path::Path;

use futures::StreamExt as _;
use serde_json::Value;

pub use diff::difference;
pub use server::Server;

/// What came of a case.
#[derive(Debug)]
pub struct Outcome {
    /// The name of the case.
    pub id: String,
    /// The answers, step by step.
    pub answers: Vec<Value>,
    /// Where the answers differ from the recorded ones, a line each; empty if the case passed.
    pub differences: Vec<String>,
}

/// Reads a recording.
pub fn read(path: &Path) -> io::Result<Vec<Value>> {
    let lines = io::BufReader::new(std::fs::File::open(path)?).lines();
    let parse = |line: io::Result<String>| Ok(serde_json::from_str(&line?)?);
    lines.filter(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty())).map(parse).collect()
}

/// Plays cases, so many at once, and compares the answers. Cases that must be alone come last.
pub async fn play(server: &Server, cases: &[Value], at_once: usize) -> Vec<Outcome> {
    all(server, cases, at_once, true).await
}

/// Plays cases and writes them with the answers that they got. Returns the outcomes of those that could not be played.
pub async fn record(
    server: &Server,
    cases: &[Value],
    at_once: usize,
    mut to: impl Write,
) -> io::Result<Vec<Outcome>> {
    let mut outcomes = all(server, cases, at_once, false).await;
    for case in cases {
        let outcome = outcomes.iter().find(|outcome| case["id"] == outcome.id.as_str());
        if let Some(outcome) = outcome.filter(|outcome| outcome.differences.is_empty()) {
            writeln!(to, "{}", player::with_answers(case, &outcome.answers))?;
        }
    }
    outcomes.retain(|outcome| !outcome.differences.is_empty());
    Ok(outcomes)
}

async fn all(server: &Server, cases: &[Value], at_once: usize, compare: bool) -> Vec<Outcome> {
    let (alone, together): (Vec<&Value>, Vec<&Value>) =
        cases.iter().partition(|case| value::is_true(&case["alone"]));
    let run = |case: &'_ Value| {
        let (server, case) = (server.clone(), case.clone());
        async move { player::play(&server, &case, compare).await }
    };
    let mut outcomes: Vec<Outcome> =
        futures::stream::iter(together.into_iter().map(run)).buffer_unordered(at_once).collect().await;
    for case in alone {
        outcomes.push(run(case).await);
    }
    outcomes.sort_by(|a, b| a.id.cmp(&b.id));
    outcomes
}
