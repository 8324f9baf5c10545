//! A real process on a real disk, killed in the middle of writing, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use store::{Options, Revision, Store, Write};

use crate::fixture::{draft, job, stored};

/// Tells the child where its store is, and which round it is.
const DIR: &str = "FERRY_STORE_KILL_DIR";
const ROUND: &str = "FERRY_STORE_KILL_ROUND";

const WRITERS: usize = 6;

/// Small enough that the log rolls and snapshots are made while the child lives.
fn options(dir: impl AsRef<Path>) -> Options {
    let mut options = Options::disk(dir.as_ref());
    options.segment_bytes = (8 << 10, 32 << 10);
    options.snapshot_after = 40 << 10;
    options
}

/// What a writer does in its n-th step: puts, and now and then a deletion of what the step before put.
fn step(round: &str, n: usize) -> Option<String> {
    (n % 5 != 4).then(|| format!("{round}-{n}"))
}

#[test]
#[ignore = "is the child of the test below"]
fn child() {
    let (Ok(dir), Ok(round)) = (std::env::var(DIR), std::env::var(ROUND)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let store = Store::open(options(dir)).expect("it opens after every kill");
        let writers = (0..WRITERS).map(|writer| {
            let (store, round) = (store.clone(), round.clone());
            async move {
                for n in 0.. {
                    let key = job(&writer.to_string());
                    let write = match step(&round, n) {
                        Some(text) => Write::put(key, draft(&text)),
                        None => Write::delete(key),
                    };
                    let revision = store.commit(write).await.expect("the write is taken").revision();
                    let mut out = std::io::stdout().lock();
                    writeln!(out, "acknowledged {writer} {n} {revision}").expect("the parent listens");
                    out.flush().expect("the parent listens");
                }
            }
        });
        futures::future::join_all(writers).await;
    });
}

#[test]
fn c_8_7_kill_9_loses_no_acknowledged_write_and_repeats_no_revision() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut revisions = BTreeSet::new();
    for (round, kill_after) in [1, 2, 150, 37, 700, 400, 9, 1000].into_iter().enumerate() {
        let round = round.to_string();
        let acknowledged = run_and_kill(dir.path(), &round, kill_after, &mut revisions);
        assert!(acknowledged.values().map(|(n, _)| n + 1).sum::<usize>() >= kill_after);

        let store = Store::open(options(dir.path())).expect("it opens after every kill");
        let last = revisions.last().copied().expect("something was acknowledged");
        assert!(store.revision() > last);
        for (writer, (n, revision)) in acknowledged {
            let found = store.get(&job(&writer));
            let is = |n: usize| match (&found, step(&round, n)) {
                (None, None) => true,
                (Some(object), Some(text)) => object.value == stored(&text, object.revision),
                _ => false,
            };
            // The step after the acknowledged one was under way: it happened or not.
            let exact = is(n) && found.as_ref().is_none_or(|object| object.revision == revision);
            let later = is(n + 1) && found.as_ref().is_none_or(|object| object.revision > revision);
            assert!(
                exact || later,
                "round {round}: writer {writer} was told {n} at {revision}, found {found:?}"
            );
        }
    }
}

/// The last acknowledged step of each writer, and its revision.
type Acknowledged = BTreeMap<String, (usize, Revision)>;

fn run_and_kill(dir: &Path, round: &str, after: usize, revisions: &mut BTreeSet<Revision>) -> Acknowledged {
    let mut child = Command::new(std::env::current_exe().expect("a test has a binary"))
        .args(["kill::child", "--exact", "--ignored", "--nocapture"])
        .env(DIR, dir)
        .env(ROUND, round)
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut acknowledged = Acknowledged::new();
    let mut count = 0;
    let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut line = String::new();
    while out.read_line(&mut line).expect("text") > 0 {
        // The kill may cut the last line off.
        if line.ends_with('\n')
            && let Some(words) = line.trim_end().split_once("acknowledged ").map(|(_, words)| words)
        {
            let [writer, n, revision] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            let revision: Revision = revision.parse().expect("a number");
            assert!(revisions.insert(revision), "{revision} was given twice");
            acknowledged.insert(writer.to_owned(), (n.parse().expect("a number"), revision));
            count += 1;
            if count == after {
                child.kill().expect("it lives");
            }
        }
        line.clear();
    }
    let status = child.wait().expect("it has ended");
    assert!(!status.success(), "it was killed");
    acknowledged
}
