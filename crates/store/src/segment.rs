//! One file of the log: made and filled with zeros ahead of need, named when it is taken into use, then only appended to.
//!
//! The zeros matter. Appending to a file that grows makes every sync write the file's metadata too, which halves the
//! number of commits per second.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, File};
use crate::error;
use crate::preamble::{self, Content, Preamble};
use crate::record::{ALIGNMENT, Header, Record, decode_batch};

/// A file of zeros that waits to become a segment.
pub(crate) struct Blank {
    path: PathBuf,
    file: Box<dyn File>,
    capacity: u64,
}

/// The segment that is appended to.
pub(crate) struct Segment {
    path: PathBuf,
    file: Box<dyn File>,
    capacity: u64,
    end: u64,
    preamble: Preamble,
}

/// A segment that is only kept to be read.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub(crate) path: PathBuf,
    pub(crate) preamble: Preamble,
}

/// A failed sync is never "the disk is full, try again later": the system may have dropped what it could not write and
/// report success the next time.
fn unsynced(error: &io::Error) -> io::Error {
    io::Error::other(format!("sync failed: {error}"))
}

/// The name of the segment with an index; names sort as indexes do.
pub(crate) fn name(index: u64) -> String {
    format!("{index:020}.log")
}

impl Blank {
    /// Makes a file of zeros. What is left of a failed attempt is removed.
    pub(crate) fn make(disk: &dyn Disk, path: &Path, capacity: u64) -> io::Result<Self> {
        const ZEROS: &[u8] = &[0; 1 << 18];
        let fill = |file: &mut dyn File| {
            let mut offset = 0;
            while offset < capacity {
                let length = (capacity - offset).min(ZEROS.len() as u64);
                file.write_at(&ZEROS[..usize::try_from(length).unwrap_or(ZEROS.len())], offset)?;
                offset += length;
            }
            file.sync()
        };
        let mut file = disk.create(path)?;
        match fill(&mut *file) {
            Ok(()) => Ok(Blank { path: path.to_owned(), file, capacity }),
            Err(error) => {
                drop(file);
                // The space is wanted back; if even that fails, the next start removes the file.
                let _ = disk.remove(path);
                Err(error)
            }
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Takes the file into use. It gets its name only when everything it must hold is durable, so a segment with a name
    /// always has an intact start.
    pub(crate) fn begin(
        mut self,
        disk: &dyn Disk,
        dir: &Path,
        preamble: Preamble,
        batches: &[u8],
    ) -> io::Result<Segment> {
        let path = dir.join(name(preamble.index));
        let start = [&preamble.encode(), batches].concat();
        self.file.write_at(&start, 0)?;
        self.file.sync().map_err(|error| unsynced(&error))?;
        disk.rename(&self.path, &path)?;
        disk.sync_dir(dir).map_err(|error| unsynced(&error))?;
        Ok(Segment {
            path,
            file: self.file,
            capacity: self.capacity.max(start.len() as u64),
            end: start.len() as u64,
            preamble,
        })
    }

    /// Gives the space back.
    pub(crate) fn discard(self, disk: &dyn Disk) -> io::Result<()> {
        drop(self.file);
        disk.remove(&self.path)
    }
}

impl Segment {
    pub(crate) fn fits(&self, batch: usize) -> bool {
        self.end + batch as u64 <= self.capacity
    }

    /// Whether a batch that fits would use up a part of the second half.
    pub(crate) fn leaves_less_than_half(&self, batch: usize) -> bool {
        self.end + batch as u64 > self.capacity / 2
    }

    /// Appends a batch. After an error the place is free again: whatever of the batch was written will be overwritten,
    /// or be found incomplete.
    pub(crate) fn append(&mut self, batch: &[u8]) -> io::Result<()> {
        self.file.write_at(batch, self.end)?;
        self.end += batch.len() as u64;
        Ok(())
    }

    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.file.sync().map_err(|error| unsynced(&error))
    }

    /// Gives back the space that is not used, except for this many bytes.
    pub(crate) fn trim(&mut self, keep: u64) -> io::Result<()> {
        let capacity = self.capacity.min(self.end + keep);
        self.file.truncate(capacity)?;
        self.capacity = capacity;
        Ok(())
    }

    /// How many bytes are left.
    pub(crate) fn unused(&self) -> u64 {
        self.capacity - self.end
    }

    pub(crate) fn sealed(&self) -> Sealed {
        Sealed { path: self.path.clone(), preamble: self.preamble }
    }
}

/// A segment being read back, from its start to the first place where no intact batch stands.
pub(crate) struct Reading {
    pub(crate) path: PathBuf,
    pub(crate) preamble: Preamble,
    bytes: Vec<u8>,
    offset: usize,
}

impl Reading {
    pub(crate) fn open(disk: &dyn Disk, path: PathBuf) -> Result<Self, error::Open> {
        let bytes = read(disk, &path, u64::MAX)?;
        let preamble = Preamble::decode(Content::Segment, &bytes, &path)?;
        Ok(Reading { path, preamble, bytes, offset: preamble::LENGTH })
    }

    /// Where the next batch should stand.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// What was read, from an offset on.
    pub(crate) fn read_since(&self, offset: usize) -> &[u8] {
        &self.bytes[offset..self.offset]
    }

    /// The next batch, if an intact one follows.
    pub(crate) fn next_batch(&mut self) -> Option<(Header, Vec<Record>)> {
        let rest = self.bytes.get(self.offset..)?;
        let (header, records) = decode_batch(rest, Preamble::seed(self.preamble.store))?;
        self.offset += header.size();
        Some((header, records))
    }

    /// Whether anything in the rest of the file proves that batch `sequence`, which should stand here, was durable.
    pub(crate) fn proves_durable(&self, sequence: u64) -> bool {
        let seed = Preamble::seed(self.preamble.store);
        (self.offset..self.bytes.len())
            .step_by(ALIGNMENT)
            .filter_map(|offset| Header::decode(&self.bytes[offset..], seed))
            .any(|header| header.sequence > sequence && header.durable >= sequence)
    }

    /// How many bytes follow that are neither a batch nor unused.
    pub(crate) fn leftover(&self) -> usize {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
    }

    pub(crate) fn corrupt(&self, what: String) -> error::Open {
        let (file, offset) = (self.path.clone(), self.offset as u64);
        error::Open::Corrupt { file, offset, what, hint: Content::Segment.hint() }
    }
}

/// The start of a segment alone.
pub(crate) fn read_preamble(disk: &dyn Disk, path: &Path) -> Result<Preamble, error::Open> {
    Preamble::decode(Content::Segment, &read(disk, path, preamble::LENGTH as u64)?, path)
}

fn read(disk: &dyn Disk, path: &Path, most: u64) -> Result<Vec<u8>, error::Open> {
    disk.read(path, most).map_err(|source| error::Open::Io { doing: "read", path: path.to_owned(), source })
}
