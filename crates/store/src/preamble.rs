//! The first bytes of every file: what it is, in which format, of which store, and where in the log's order it stands.

use std::path::Path;

use crate::error;
use crate::record::Reader;
use crate::revision::Revision;

/// The format that this program reads and writes.
const VERSION: u32 = 1;

/// The bytes of a file before its content.
pub(crate) const LENGTH: usize = 64;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Segment,
    Snapshot,
}

impl Content {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Content::Segment => b"ferrylog",
            Content::Snapshot => b"ferrysnp",
        }
    }

    /// What to do when such a file is damaged.
    pub(crate) fn hint(self) -> &'static str {
        match self {
            Content::Segment => {
                "Restore the data directory from a backup; or, to go on without the writes at and after this place, \
                 keep a copy of the directory, then remove this file and every .log file after it."
            }
            Content::Snapshot => "Restore the data directory from a backup.",
        }
    }
}

/// The start of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preamble {
    pub(crate) content: Content,
    /// The store that the file belongs to.
    pub(crate) store: u64,
    /// Of a segment its place in the order of segments; of a snapshot 0.
    pub(crate) index: u64,
    /// Of a segment the sequence of its first batch; of a snapshot that of the last batch it contains.
    pub(crate) sequence: u64,
    /// Of a segment the revision with which the store went on; of a snapshot that of the state it contains.
    pub(crate) revision: Revision,
}

impl Preamble {
    pub(crate) fn encode(&self) -> [u8; LENGTH] {
        let mut bytes = [0; LENGTH];
        bytes[..8].copy_from_slice(self.content.magic());
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        for (at, number) in [self.store, self.index, self.sequence, self.revision.0].into_iter().enumerate() {
            bytes[16 + 8 * at..24 + 8 * at].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the start of a file that must hold `content`.
    pub(crate) fn decode(content: Content, bytes: &[u8], file: &Path) -> Result<Self, error::Open> {
        let corrupt = |offset, what: &str| error::Open::Corrupt {
            file: file.to_owned(),
            offset,
            what: what.to_owned(),
            hint: content.hint(),
        };
        let Some(start) = bytes.get(..LENGTH) else {
            return Err(corrupt(bytes.len() as u64, "the file ends within its first bytes"));
        };
        let mut reader = Reader(start);
        let fields = (|| Some((reader.bytes(8)?, reader.u32()?, reader.u32()?, reader.0)))();
        let (magic, version, crc, rest) = fields.expect("the length was checked");
        if magic != content.magic() {
            return Err(corrupt(0, "it does not start like a file of this kind"));
        }
        if version != VERSION {
            return Err(error::Open::Version { file: file.to_owned(), found: version, known: VERSION });
        }
        if crc != crc32c::crc32c(rest) {
            return Err(corrupt(12, "the checksum of its first bytes is wrong"));
        }
        let mut number = || reader.u64().expect("the length was checked");
        Ok(Preamble {
            content,
            store: number(),
            index: number(),
            sequence: number(),
            revision: Revision(number()),
        })
    }

    /// What the checksums of the store's batches start from, so that bytes of another store never pass for its own.
    pub(crate) fn seed(store: u64) -> u32 {
        crc32c::crc32c(&store.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_named_and_another_version_is_not_called_damage() {
        let preamble =
            Preamble { content: Content::Segment, store: 1, index: 2, sequence: 3, revision: Revision(4) };
        let bytes = preamble.encode();
        let decode = |bytes: &[u8]| Preamble::decode(Content::Segment, bytes, Path::new("x.log"));
        assert_eq!(decode(&bytes).expect("it is intact"), preamble);
        for at in 0..LENGTH {
            let mut flipped = bytes;
            flipped[at] ^= 1;
            match decode(&flipped) {
                Err(error::Open::Version { found, .. }) => assert!((8..12).contains(&at), "version {found}"),
                Err(error::Open::Corrupt { .. }) => assert!(!(8..12).contains(&at)),
                other => panic!("byte {at}: {other:?}"),
            }
            assert!(matches!(decode(&bytes[..at]), Err(error::Open::Corrupt { .. })));
        }
        assert!(Preamble::decode(Content::Snapshot, &bytes, Path::new("x.snapshot")).is_err());
    }
}
