//! From the files of a directory to the state that they stand for.
//!
//! The newest intact snapshot is loaded and the batches after it are replayed. The log may end in a batch that was cut
//! off by a crash: nobody was told that it succeeded, and it is left out. Anything else that is not as it was written is
//! an error, because leaving it out would lose what somebody relies on. Nothing is changed on disk, save that files
//! without a final name are removed.

use std::path::{Path, PathBuf};

use tracing::warn;

use crate::disk::Disk;
use crate::error;
use crate::preamble::{Content, Preamble};
use crate::present::Present;
use crate::record::Record;
use crate::revision::Revision;
use crate::segment::{self, Reading, Sealed};
use crate::snapshot;
use crate::state::State;

/// What was found when a store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The revision of the snapshot that was loaded.
    pub snapshot: Option<Revision>,
    /// How many batches of the log were replayed after it.
    pub batches: u64,
    /// How many bytes at the end of the log were left out, because they are a batch that was cut off.
    pub discarded: u64,
    /// Snapshots that are damaged. Nothing is lost, older ones and the log made up for them.
    pub damaged_snapshots: Vec<PathBuf>,
}

/// What is needed to go on.
pub(crate) struct Recovered {
    pub(crate) store: u64,
    pub(crate) state: State,
    /// The last batch.
    pub(crate) sequence: u64,
    pub(crate) unconfirmed: Unconfirmed,
    pub(crate) segments: Vec<Sealed>,
    /// Oldest first, after those that are damaged.
    pub(crate) snapshots: Vec<Sealed>,
    /// How many bytes of log there are since the newest snapshot, and in how many segments.
    pub(crate) replayed: (u64, usize),
    pub(crate) report: Recovery,
}

impl Recovered {
    /// A store in which nothing ever happened.
    pub(crate) fn nothing(store: u64) -> Self {
        Recovered {
            store,
            state: State::empty(Revision::default()),
            sequence: 0,
            unconfirmed: Unconfirmed { first: 1, bytes: Vec::new() },
            segments: Vec::new(),
            snapshots: Vec::new(),
            replayed: (0, 0),
            report: Recovery::default(),
        }
    }
}

/// The batches at the end of the log of which nothing says that they were synced. They may have been read from memory
/// that a failed sync left behind, so whoever goes on has to write them again.
pub(crate) struct Unconfirmed {
    /// The sequence of the first one, or of the next one to come.
    pub(crate) first: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Reads a directory and shows `present` all that happened. `None` if nothing ever was in it.
pub(crate) fn recover(
    disk: &dyn Disk,
    dir: &Path,
    present: &Present,
) -> Result<Option<Recovered>, error::Open> {
    let files = Files::list(disk, dir)?;
    if files.segments.is_empty() && files.snapshots.is_empty() {
        return Ok(None);
    }
    let mut report = Recovery::default();
    let segments = read_preambles(disk, files.segments)?;
    let (snapshots, state) = load_snapshot(disk, files.snapshots, &segments, &mut report)?;
    let store = snapshots.last().or(segments.first()).map_or(0, |file| file.preamble.store);
    if let Some(stranger) = segments.iter().chain(&snapshots).find(|file| file.preamble.store != store) {
        return Err(corrupt(&stranger.path, "it belongs to another store".to_owned()));
    }

    let covered = snapshots.last().map_or(0, |snapshot| snapshot.preamble.sequence);
    present.begin(state.clone());
    let mut replay = Replay { present, state, sequence: covered, starts: Vec::new(), bytes: 0 };
    let unconfirmed = replay.segments(disk, &segments, &mut report)?;
    let Replay { state, sequence, bytes, .. } = replay;
    let newer = segments.iter().filter(|segment| segment.preamble.sequence > covered).count();
    let damaged = report.damaged_snapshots.iter().map(|path| Sealed {
        path: path.clone(),
        preamble: Preamble {
            content: Content::Snapshot,
            store,
            index: 0,
            sequence: 0,
            revision: Revision(0),
        },
    });
    let snapshots = damaged.chain(snapshots).collect();
    let replayed = (bytes, newer);
    Ok(Some(Recovered { store, state, sequence, unconfirmed, segments, snapshots, replayed, report }))
}

/// The files of a store by what their names say, each kind in order.
struct Files {
    segments: Vec<PathBuf>,
    snapshots: Vec<PathBuf>,
}

impl Files {
    fn list(disk: &dyn Disk, dir: &Path) -> Result<Self, error::Open> {
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| error::Open::Io { doing, path, source }
        };
        let mut names = disk.list(dir).map_err(io("list", dir))?;
        names.sort();
        let mut files = Files { segments: Vec::new(), snapshots: Vec::new() };
        for name in names {
            let path = dir.join(&name);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("log") => files.segments.push(path),
                Some("snapshot") => files.snapshots.push(path),
                Some("tmp") => disk.remove(&path).map_err(io("remove", &path))?,
                _ => {}
            }
        }
        Ok(files)
    }
}

fn read_preambles(disk: &dyn Disk, paths: Vec<PathBuf>) -> Result<Vec<Sealed>, error::Open> {
    let read = |path: PathBuf| {
        let preamble = segment::read_preamble(disk, &path)?;
        Ok(Sealed { path, preamble })
    };
    paths.into_iter().map(read).collect()
}

/// Loads the newest intact snapshot, and returns it as the last of the list.
fn load_snapshot(
    disk: &dyn Disk,
    mut paths: Vec<PathBuf>,
    segments: &[Sealed],
    report: &mut Recovery,
) -> Result<(Vec<Sealed>, State), error::Open> {
    let mut damage = None;
    while let Some(path) = paths.pop() {
        match snapshot::read(disk, &path) {
            Ok((preamble, state)) => {
                report.snapshot = Some(preamble.revision);
                let mut snapshots = Vec::new();
                for path in paths {
                    // Older ones only serve if this one is damaged some day; whether they are intact shows then.
                    let preamble = Preamble { sequence: sequence_of(&path).unwrap_or(0), ..preamble };
                    snapshots.push(Sealed { path, preamble });
                }
                snapshots.push(Sealed { path, preamble });
                return Ok((snapshots, state));
            }
            Err(error @ error::Open::Corrupt { .. }) => {
                warn!(file = %path.display(), %error, "snapshot is damaged, trying an older one");
                report.damaged_snapshots.push(path);
                damage.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    // Without any snapshot the log must be there from its beginning.
    match (damage, segments.first()) {
        (Some(error), Some(first)) if first.preamble.sequence > 1 => Err(error),
        (Some(error), None) => Err(error),
        _ => Ok((Vec::new(), State::empty(Revision::default()))),
    }
}

fn sequence_of(snapshot: &Path) -> Option<u64> {
    snapshot.file_stem()?.to_str()?.parse().ok()
}

fn corrupt(file: &Path, what: String) -> error::Open {
    error::Open::Corrupt { file: file.to_owned(), offset: 0, what, hint: Content::Segment.hint() }
}

struct Replay<'a> {
    present: &'a Present,
    state: State,
    /// The last batch that is in the state.
    sequence: u64,
    /// Revisions with which the store went on after a start and which the state has not come to yet.
    starts: Vec<Revision>,
    /// How much was replayed.
    bytes: u64,
}

impl Replay<'_> {
    fn segments(
        &mut self,
        disk: &dyn Disk,
        segments: &[Sealed],
        report: &mut Recovery,
    ) -> Result<Unconfirmed, error::Open> {
        let needed = self.sequence + 1;
        let start = segments.partition_point(|segment| segment.preamble.sequence <= needed);
        if let (0, Some(first)) = (start, segments.first()) {
            let has = first.preamble.sequence;
            return Err(corrupt(
                &first.path,
                format!("it starts with batch {has}, but batch {needed} is missing"),
            ));
        }
        // Of what lies before, some may be missing: power was lost while it was being removed.
        for pair in segments[start.saturating_sub(1)..].windows(2) {
            let next = pair[0].preamble.index + 1;
            if pair[1].preamble.index != next {
                let missing = pair[0].path.with_file_name(segment::name(next));
                return Err(corrupt(&missing, "the file is missing".to_owned()));
            }
        }
        let mut unconfirmed = None;
        for at in start.saturating_sub(1)..segments.len() {
            let until = segments.get(at + 1).map(|next| next.preamble.sequence);
            unconfirmed = self.segment(Reading::open(disk, segments[at].path.clone())?, until, report)?;
        }
        self.settle(None);
        Ok(unconfirmed.unwrap_or(Unconfirmed { first: self.sequence + 1, bytes: Vec::new() }))
    }

    /// Replays one segment, up to the batch with which the next one goes on, or to its end if it is the last.
    fn segment(
        &mut self,
        mut reading: Reading,
        until: Option<u64>,
        report: &mut Recovery,
    ) -> Result<Option<Unconfirmed>, error::Open> {
        self.starts.push(reading.preamble.revision);
        let mut next = reading.preamble.sequence;
        let mut durable = 0;
        let mut offsets = Vec::new();
        while until.is_none_or(|until| next < until) {
            let offset = reading.offset();
            let Some((header, records)) = reading.next_batch() else {
                if until.is_some() || reading.proves_durable(next) {
                    return Err(reading.corrupt(format!("batch {next} is damaged, and later ones follow it")));
                }
                report.discarded = reading.leftover() as u64;
                if report.discarded > 0 {
                    let file = reading.path.display();
                    warn!(%file, offset, bytes = report.discarded, "the log ends in a batch that was cut off");
                }
                break;
            };
            if header.sequence != next {
                return Err(reading.corrupt(format!("batch {} follows where {next} should", header.sequence)));
            }
            if next > self.sequence {
                self.batch(records).map_err(|what| reading.corrupt(what))?;
                self.sequence = next;
                self.bytes += header.size() as u64;
                report.batches += 1;
            }
            offsets.push((next, offset));
            durable = durable.max(header.durable);
            next += 1;
        }
        let first = offsets.into_iter().find(|(sequence, _)| *sequence > durable);
        // A log that ends before the snapshot has nothing that the snapshot has not.
        let unconfirmed = first.filter(|_| next == self.sequence + 1);
        Ok(unconfirmed
            .map(|(first, offset)| Unconfirmed { first, bytes: reading.read_since(offset).to_vec() }))
    }

    fn batch(&mut self, records: Vec<Record>) -> Result<(), String> {
        let mut events = Vec::with_capacity(records.len());
        for record in records {
            let revision = record.revision();
            self.settle(Some(revision));
            if revision <= self.state.revision {
                return Err(format!("revision {revision} follows {}", self.state.revision));
            }
            let Some(event) = self.state.replay(record) else {
                return Err(format!("revision {revision} deletes an object that is not there"));
            };
            events.push(event);
        }
        self.present.publish(self.state.clone(), events);
        Ok(())
    }

    /// Repeats the starts that came before a revision, or all.
    fn settle(&mut self, before: Option<Revision>) {
        while let Some(start) = self.starts.first().copied()
            && before.is_none_or(|before| start < before)
        {
            self.starts.remove(0);
            if start > self.state.revision {
                self.state = self.present.leap(self.state.clone(), start);
            }
        }
    }
}
