//! A whole state in one file, so that the log before it can go.
//!
//! ```text
//! preamble | blocks | an empty block | count u64 | crc32c u32
//! block      length u32 | stored length u32 | crc32c of all else u32 | stored bytes, LZ4
//! ```
//!
//! The content of the blocks is put records as in the log, in key order. A snapshot is written from a state that nobody
//! changes while others go on writing, and gets its name when it is whole and durable.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, File};
use crate::error;
use crate::preamble::{self, Content, Preamble};
use crate::record::{Reader, Record, encode_put};
use crate::state::State;

/// How much is compressed together.
const BLOCK: usize = 256 << 10;

/// What a block that a snapshot really has never exceeds by far: one object, more than a block long, fills one alone.
const LARGEST_BLOCK: u32 = 1 << 30;

/// The name under which a snapshot is written.
pub(crate) const UNFINISHED: &str = "snapshot.tmp";

/// The name of the snapshot that ends with a batch; names sort as sequences do.
pub(crate) fn name(sequence: u64) -> String {
    format!("{sequence:020}.snapshot")
}

/// Writes a snapshot of a state, the result of all batches up to the preamble's sequence.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, preamble: &Preamble, state: &State) -> io::Result<PathBuf> {
    let unfinished = dir.join(UNFINISHED);
    let path = dir.join(name(preamble.sequence));
    let written = (|| {
        let mut out = Writer { file: disk.create(&unfinished)?, offset: 0 };
        out.write(&preamble.encode())?;
        let mut block = Vec::with_capacity(BLOCK + BLOCK / 4);
        for object in state.iter() {
            encode_put(object, &mut block);
            if block.len() >= BLOCK {
                out.write_block(&block)?;
                block.clear();
            }
        }
        if !block.is_empty() {
            out.write_block(&block)?;
        }
        out.write_block(&[])?;
        let count = (state.len() as u64).to_le_bytes();
        out.write(&count)?;
        out.write(&crc32c::crc32c(&count).to_le_bytes())?;
        out.file.sync()?;
        disk.rename(&unfinished, &path)?;
        disk.sync_dir(dir)
    })();
    if written.is_err() {
        // The space is wanted back; if even that fails, the next start removes the file.
        let _ = disk.remove(&unfinished);
    }
    written.map(|()| path)
}

struct Writer {
    file: Box<dyn File>,
    offset: u64,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_at(bytes, self.offset)?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn write_block(&mut self, block: &[u8]) -> io::Result<()> {
        let stored = if block.is_empty() { Vec::new() } else { lz4_flex::block::compress(block) };
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).expect("a block is far shorter than 4 GiB");
        let mut header = Vec::with_capacity(12);
        header.extend(length(block).to_le_bytes());
        header.extend(length(&stored).to_le_bytes());
        header.extend(checksum(&header, &stored).to_le_bytes());
        self.write(&header)?;
        self.write(&stored)
    }
}

/// The checksum of a block: of its two lengths and of its stored bytes.
fn checksum(lengths: &[u8], stored: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(lengths), stored)
}

/// Reads a snapshot back.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<(Preamble, State), error::Open> {
    let bytes = disk.read(path, u64::MAX).map_err(|source| error::Open::Io {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    let preamble = Preamble::decode(Content::Snapshot, &bytes, path)?;
    let mut reader = Reader(&bytes[preamble::LENGTH..]);
    let mut state = State::empty(preamble.revision);
    match read_objects(&mut reader, &mut state) {
        Ok(()) => {
            state.revision = preamble.revision;
            Ok((preamble, state))
        }
        Err(what) => Err(error::Open::Corrupt {
            file: path.to_owned(),
            offset: (bytes.len() - reader.0.len()) as u64,
            what: what.to_owned(),
            hint: Content::Snapshot.hint(),
        }),
    }
}

fn read_objects(reader: &mut Reader<'_>, state: &mut State) -> Result<(), &'static str> {
    const CUT: &str = "the file ends too early";
    loop {
        let lengths = reader.0.get(..8).ok_or(CUT)?;
        let (length, stored, crc) =
            (reader.u32().ok_or(CUT)?, reader.u32().ok_or(CUT)?, reader.u32().ok_or(CUT)?);
        let block = reader.bytes(stored as usize).ok_or(CUT)?;
        if checksum(lengths, block) != crc || length > LARGEST_BLOCK {
            return Err("the checksum of a block is wrong");
        }
        if length == 0 {
            break;
        }
        let block = lz4_flex::block::decompress(block, length as usize)
            .map_err(|_| "a block cannot be decompressed")?;
        let mut records = Reader(&block);
        while !records.0.is_empty() {
            match records.record() {
                Some(Record::Put(object)) => state.load(Arc::new(object)),
                _ => return Err("a block holds something else than objects"),
            };
        }
    }
    let count = reader.bytes(8).ok_or(CUT)?;
    if reader.u32().ok_or(CUT)? != crc32c::crc32c(count) || count != (state.len() as u64).to_le_bytes() {
        return Err("the number of objects is wrong");
    }
    Ok(())
}
