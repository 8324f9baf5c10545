//! Making a snapshot and dropping what it replaces, on a thread of its own.
//!
//! The newest two snapshots are kept, and the log since the older one: if the newer is damaged, nothing is lost.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tracing::warn;

use crate::disk::Disk;
use crate::preamble::Preamble;
use crate::segment::Sealed;
use crate::snapshot;
use crate::state::State;

pub(crate) struct Job {
    /// On a full disk, what keeps others from using up the room that the snapshot needs.
    pub(crate) room: Option<Arc<Mutex<()>>>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) preamble: Preamble,
    pub(crate) state: State,
    /// Bytes of log since the last snapshot.
    pub(crate) grown: u64,
    /// How many snapshots are kept, the new one included.
    pub(crate) keep: usize,
    /// Oldest first, the current one last.
    pub(crate) segments: Vec<Sealed>,
    /// Oldest first.
    pub(crate) snapshots: Vec<Sealed>,
}

/// What a compaction has left.
pub(crate) struct Compacted {
    /// Oldest first.
    pub(crate) snapshots: Vec<Sealed>,
    pub(crate) removed: Vec<PathBuf>,
}

impl Job {
    pub(crate) fn run(self) -> io::Result<Compacted> {
        let Job { room, disk, dir, preamble, state, grown: _, keep, segments, mut snapshots } = self;
        let _room = room.as_ref().map(|room| room.lock().expect("nothing panics while it makes room"));
        let path = snapshot::write(&*disk, &dir, &preamble, &state)?;
        snapshots.retain(|snapshot| snapshot.path != path);
        snapshots.push(Sealed { path, preamble });

        let mut removed = Vec::new();
        while snapshots.len() > keep && remove(&*disk, &snapshots[0].path) {
            removed.push(snapshots.remove(0).path);
        }
        // A segment is needed unless the next one starts at or before the first batch after the oldest snapshot. Until
        // there are as many snapshots as are kept, the beginning of the log stands in for the missing one.
        let needed = if snapshots.len() < keep { 1 } else { snapshots[0].preamble.sequence + 1 };
        for pair in segments.windows(2) {
            if pair[1].preamble.sequence > needed || !remove(&*disk, &pair[0].path) {
                break;
            }
            removed.push(pair[0].path.clone());
        }
        Ok(Compacted { snapshots, removed })
    }
}

fn remove(disk: &dyn Disk, path: &Path) -> bool {
    match disk.remove(path) {
        Ok(()) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => {
            warn!(file = %path.display(), %error, "failed to remove a file that is no longer needed");
            false
        }
    }
}
