//! What is left of a store when its files are cut off or damaged, at every byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use store::{At, Revision, Store, Write, error};

use crate::fixture::{DIR, content, job, jobs, put, small};
use crate::sim::Sim;

type Content = BTreeMap<String, (Revision, String)>;

/// The bytes of a file before its batches.
const PREAMBLE: usize = 64;

/// A closed store, its last segment, and what was there after each batch of that segment with the batch's end.
struct Written {
    disk: Sim,
    segment: PathBuf,
    bytes: Vec<u8>,
    states: Vec<(usize, Content)>,
}

impl Written {
    async fn new() -> Self {
        let disk = Sim::default();
        let store = Store::open(small(&disk)).expect("it opens");
        let segment = Path::new(DIR).join("00000000000000000001.log");
        let mut states = vec![(PREAMBLE, Content::new())];
        for (name, text) in
            [("a", "one"), ("b", "two"), ("c", "x"), ("a", "again"), ("c", ""), ("d", "a longer value")]
        {
            if text.is_empty() {
                store.commit(Write::delete(job(name))).await.expect("it is there");
            } else {
                put(&store, name, text).await;
            }
            let used =
                disk.content(&segment).iter().rposition(|byte| *byte != 0).expect("something is written");
            states.push(((used + 1).next_multiple_of(8), content(&store)));
        }
        store.close().await;
        let bytes = disk.content(&segment);
        Written { disk, segment, bytes, states }
    }

    /// What was there after the last batch that ends at or before an offset.
    fn state_at(&self, offset: usize) -> &Content {
        let intact = self.states.iter().rev().find(|(end, _)| *end <= offset);
        &intact.expect("the first one ends where the preamble does").1
    }
}

/// Opens twice, because what the first start makes of the damage has to last.
async fn check_opens(disk: Sim, expected: &Content, what: &str) {
    let store = Store::open(small(&disk)).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(content(&store), *expected, "{what}");
    let known = expected.values().map(|(revision, _)| *revision).max().unwrap_or_default();
    let revision = put(&store, "new", "value").await;
    assert!(revision.0 > known.0 + 1000, "{what}: {revision} may have been given before");
    drop(store);
    let store = Store::open(small(&disk)).unwrap_or_else(|error| panic!("{what}, second start: {error}"));
    let mut after = content(&store);
    assert!(after.remove("new").is_some(), "{what}");
    assert_eq!(after, *expected, "{what}, second start");
}

fn check_refuses(disk: &Sim, file: &Path, at: Option<usize>, what: &str) {
    let before: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
    match Store::open(small(disk)) {
        Err(error @ error::Open::Corrupt { .. }) => {
            let error::Open::Corrupt { file: named, offset, .. } = &error else { unreachable!() };
            assert_eq!(named, file, "{what}");
            assert!(at.is_none_or(|at| *offset == at as u64), "{what}: {error}");
            assert!(error.to_string().contains("backup"), "{what}: it says what to do");
        }
        Err(error::Open::Version { .. }) => {}
        other => panic!("{what}: {other:?}"),
    }
    let after: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
    assert!(before == after, "{what}: nothing was changed");
}

#[tokio::test]
async fn c_8_7_a_log_cut_off_at_any_byte_keeps_what_is_whole() {
    let written = Written::new().await;
    for length in 0..=written.bytes.len() {
        let disk = written.disk.with(&written.segment, written.bytes[..length].to_vec());
        let what = format!("cut to {length} bytes");
        if length < PREAMBLE {
            // The preamble is synced before the segment has a name: no crash cuts it.
            check_refuses(&disk, &written.segment, None, &what);
        } else {
            check_opens(disk, written.state_at(length), &what).await;
        }
    }
}

#[tokio::test]
async fn c_8_7_zeros_from_any_byte_on_keep_what_is_whole() {
    let written = Written::new().await;
    for length in PREAMBLE..written.bytes.len() {
        let mut bytes = written.bytes.clone();
        bytes[length..].fill(0);
        // A batch whose last bytes are zeros anyway is whole.
        let same = bytes.iter().zip(&written.bytes).take_while(|(now, before)| now == before);
        let whole = same.count();
        let disk = written.disk.with(&written.segment, bytes);
        check_opens(disk, written.state_at(whole), &format!("zeros from {length}")).await;
    }
}

#[tokio::test]
async fn c_8_7_a_flipped_bit_in_the_last_batch_loses_that_batch_and_one_before_it_is_told() {
    let written = Written::new().await;
    let starts: Vec<usize> = written.states.iter().map(|(end, _)| *end).collect();
    let last = starts[starts.len() - 2];
    for at in 0..written.bytes.len() {
        // Every bit of the last batch, one of each byte before it.
        for bit in if at < last { at % 8..at % 8 + 1 } else { 0..8 } {
            let mut bytes = written.bytes.clone();
            bytes[at] ^= 1 << bit;
            let disk = written.disk.with(&written.segment, bytes);
            let what = format!("bit {bit} of byte {at} flipped");
            if at < PREAMBLE {
                check_refuses(&disk, &written.segment, None, &what);
            } else if at < last {
                let batch = starts.iter().rev().find(|start| **start <= at).copied();
                check_refuses(&disk, &written.segment, batch, &what);
            } else {
                check_opens(disk, written.state_at(last), &what).await;
            }
        }
    }
}

#[tokio::test]
async fn damage_before_the_last_segment_is_told() {
    let written = Written::new().await;
    let store = Store::open(small(&written.disk)).expect("it opens");
    put(&store, "later", "value").await;
    store.close().await;
    // The last batch of the first segment was written again into the second, so the first may lack it.
    let last = written.states[written.states.len() - 2].0;
    let whole = content(&store);
    for length in PREAMBLE..written.bytes.len() {
        let disk = written.disk.with(&written.segment, written.bytes[..length].to_vec());
        let what = format!("first of two segments cut to {length}");
        if length < last {
            let batch = written.states.iter().rev().map(|(end, _)| *end).find(|end| *end <= length);
            check_refuses(&disk, &written.segment, batch, &what);
        } else {
            check_opens(disk, &whole, &what).await;
        }
    }
    let store = Store::open(small(&written.disk)).expect("it opens");
    drop(store);
    let second = Path::new(DIR).join("00000000000000000002.log");
    check_refuses(&written.disk.without(&second), &second, Some(0), "the middle one of three is missing");
}

/// A store with two snapshots and a log after them, on this disk.
async fn with_snapshots(disk: &Sim) -> Content {
    let mut options = small(disk);
    options.snapshot_after = 2 << 10;
    options.segment_bytes = (1 << 10, 1 << 10);
    let store = Store::open(options).expect("it opens");
    let mut n = 0;
    while store.metrics().snapshots < 3 {
        put(&store, &format!("job-{}", n % 10), &format!("value {n}")).await;
        n += 1;
    }
    put(&store, "last", "of all").await;
    let whole = content(&store);
    store.close().await;
    whole
}

fn files(disk: &Sim, extension: &str) -> Vec<PathBuf> {
    let mut names = disk.names();
    names.retain(|name| name.extension() == Some(extension.as_ref()));
    names
}

#[tokio::test]
async fn c_5_5_snapshots_replace_the_log_before_the_older_of_two() {
    let disk = Sim::default();
    let whole = with_snapshots(&disk).await;
    assert_eq!(files(&disk, "snapshot").len(), 2);
    let first = &files(&disk, "log")[0];
    assert!(!first.ends_with("00000000000000000001.log"), "{} is left of the log", first.display());
    assert_eq!(files(&disk, "tmp"), Vec::<PathBuf>::new());
    check_opens(disk, &whole, "intact").await;
}

/// Found by the model: what is removed without a sync may come back after a power loss, any part of it.
#[tokio::test]
async fn a_segment_that_should_be_gone_does_no_harm() {
    let written = Written::new().await;
    let whole = with_snapshots(&written.disk).await;
    assert!(!written.disk.names().contains(&written.segment), "it is no longer needed");
    let back = written.disk.with(&written.segment, written.bytes.clone());
    check_opens(back, &whole, "the first segment is back, the second is not").await;
}

#[tokio::test]
async fn a_damaged_snapshot_is_made_up_for_by_the_older_one_and_the_log() {
    let disk = Sim::default();
    let whole = with_snapshots(&disk).await;
    let snapshots = files(&disk, "snapshot");
    let newest = disk.content(&snapshots[1]);
    for at in (0..newest.len()).filter(|at| !(8..12).contains(at)) {
        let mut bytes = newest.clone();
        bytes[at] ^= 1 << (at % 8);
        let damaged = disk.with(&snapshots[1], bytes);
        let store = Store::open(small(&damaged)).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert_eq!(content(&store), whole, "byte {at}");
        assert_eq!(store.recovery().damaged_snapshots, [snapshots[1].clone()]);
    }
    let both = disk.with(&snapshots[1], newest[..70].to_vec()).with(&snapshots[0], vec![0; 5]);
    check_refuses(&both, &snapshots[1], None, "both snapshots damaged");
}

#[tokio::test]
async fn many_starts_make_a_snapshot_due() {
    let disk = Sim::default();
    let mut options = small(&disk);
    options.snapshot_after = 10 * options.segment_bytes.0;
    let mut starts = 0;
    while files(&disk, "snapshot").is_empty() {
        let store = Store::open(options.clone()).expect("it opens");
        put(&store, "a", "one").await;
        store.close().await;
        starts += 1;
        assert!(starts < 20, "the log has {} segments", files(&disk, "log").len());
    }
    assert!(starts > 8, "{starts}");
}

#[tokio::test]
async fn the_last_batch_is_written_again_at_each_start() {
    // A failed sync can leave a batch in memory that never reaches the disk. Whoever reads it there must not rely on it.
    let written = Written::new().await;
    let torn = written.disk.clone();
    let store = Store::open(small(&torn)).expect("it opens");
    let whole = content(&store);
    drop(store);
    let last = written.states[written.states.len() - 2].0;
    let without = torn.with(&written.segment, written.bytes[..last].to_vec());
    let store = Store::open(small(&without)).expect("the second segment has it");
    assert_eq!(content(&store), whole);
    let list = store.list(&jobs(), At::Latest).expect("latest");
    assert!(list.revision > whole.values().map(|(revision, _)| *revision).max().expect("not empty"));
}

#[tokio::test]
async fn files_of_another_store_are_refused() {
    let (one, other) = (Written::new().await, Written::new().await);
    let store = Store::open(small(&one.disk)).expect("it opens");
    drop(store);
    let mixed = one.disk.with(&one.segment, other.bytes.clone());
    assert!(matches!(Store::open(small(&mixed)), Err(error::Open::Corrupt { .. })));
}

/// A change to the bytes of a file.
#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Cut(usize),
    Insert(usize, Vec<u8>),
    /// Repeats a piece of the file elsewhere, so that intact batches stand where they should not.
    Copy(usize, usize, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Edit::Set(at, byte)),
        any::<usize>().prop_map(Edit::Cut),
        (any::<usize>(), prop::collection::vec(any::<u8>(), 1..100))
            .prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
        (any::<usize>(), any::<usize>(), 1..300_usize)
            .prop_map(|(from, to, length)| Edit::Copy(from, to, length)),
    ]
}

fn apply(edit: Edit, bytes: &mut Vec<u8>) {
    let length = bytes.len();
    match edit {
        Edit::Set(at, byte) if length > 0 => bytes[at % length] = byte,
        Edit::Set(..) => {}
        Edit::Cut(at) => bytes.truncate(at % (length + 1)),
        Edit::Insert(at, more) => drop(bytes.splice(at % (length + 1)..at % (length + 1), more)),
        Edit::Copy(from, to, most) => {
            // Batches start at multiples of eight.
            let (from, to) = ((from % (length + 1)) / 8 * 8, (to % (length + 1)) / 8 * 8);
            let piece = bytes[from..(from + most).min(length)].to_vec();
            let end = (to + piece.len()).min(length);
            drop(bytes.splice(to..end, piece));
        }
    }
}

proptest! {
    #![proptest_config(crate::fixture::config(200))]

    /// Whatever is in the files, opening them ends in a store or in an error; and a store has only what was written.
    #[test]
    fn no_content_of_a_file_is_too_strange(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec(edit(), 1..4),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let disk = Sim::default();
            let whole = with_snapshots(&disk).await;
            let files = disk.names();
            let file = which.get(&files);
            let mut bytes = disk.content(file);
            for edit in edits {
                apply(edit, &mut bytes);
            }
            let damaged = disk.with(file, bytes);
            if let Ok(store) = Store::open(small(&damaged)) {
                let last = whole.values().map(|(revision, _)| *revision).max().expect("not empty");
                for (name, (revision, text)) in content(&store) {
                    assert!(text.contains(&format!(r#""rv":"{revision}""#)), "{name}: {text}");
                    assert!(revision <= last, "{name} was never at {revision}");
                }
            }
        });
    }
}
