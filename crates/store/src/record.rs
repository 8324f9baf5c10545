//! How a change, and a batch of changes, looks as bytes. All numbers are little-endian.
//!
//! ```text
//! batch    magic u32 | header crc u32 | sequence u64 | durable u64 | length u32 | count u32 | body crc u32 | 0 u32 | body
//! body     count records, then zeros up to a multiple of 8
//! record   op u8 | revision u64 | resource | namespace | name | of a put: created u64, revision_at u32 + 1 or 0,
//!          token, labels, fields, value            each text and each list of bytes with a u32 length before it
//! ```
//!
//! A batch is one commit: all of it happened or nothing. `durable` is the last batch that was known to be synced when
//! this one was written; it is how a reader tells a write that was cut off (nobody was told it succeeded) from damage to
//! one that was acknowledged.

use std::ops::Range;

use bytes::Bytes;

use crate::key::Key;
use crate::object::{Index, Object, Pairs};
use crate::revision::Revision;

const MAGIC: u32 = u32::from_le_bytes(*b"\xf5bat");

/// The bytes before the records of a batch.
const HEADER: usize = 40;

/// Batches start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// A change as read back from the log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Put(Object),
    Delete { key: Key, revision: Revision },
}

/// Adds a put record to a buffer.
pub(crate) fn encode_put(object: &Object, out: &mut Vec<u8>) {
    encode_start(PUT, object.revision, &object.key, out);
    out.extend(object.created.0.to_le_bytes());
    out.extend(object.revision_at.map_or(0, |at| at + 1).to_le_bytes());
    encode_bytes(object.index.token.as_bytes(), out);
    encode_bytes(object.index.labels.as_bytes(), out);
    encode_bytes(object.index.fields.as_bytes(), out);
    encode_bytes(&object.value, out);
}

/// Adds a delete record to a buffer.
pub(crate) fn encode_delete(key: &Key, revision: Revision, out: &mut Vec<u8>) {
    encode_start(DELETE, revision, key, out);
}

fn encode_start(op: u8, revision: Revision, key: &Key, out: &mut Vec<u8>) {
    out.push(op);
    out.extend(revision.0.to_le_bytes());
    for part in [key.resource(), key.namespace(), key.name()] {
        encode_bytes(part.as_bytes(), out);
    }
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let length = u32::try_from(bytes.len()).expect("the size of a write was checked before");
    out.extend(length.to_le_bytes());
    out.extend(bytes);
}

/// Reads numbers and lengths off the front of a slice; `None` when there is not enough left.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(length as usize)
    }

    fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.sized()?).ok()
    }

    pub(crate) fn record(&mut self) -> Option<Record> {
        let op = self.u8()?;
        let revision = Revision(self.u64()?);
        let key = Key::new(self.text()?, self.text()?, self.text()?);
        match op {
            DELETE => Some(Record::Delete { key, revision }),
            PUT => {
                let created = Revision(self.u64()?);
                let revision_at = self.u32()?.checked_sub(1);
                let index = Index {
                    token: self.text()?.into(),
                    labels: Pairs::from_bytes(self.sized()?)?,
                    fields: Pairs::from_bytes(self.sized()?)?,
                };
                let value = Bytes::copy_from_slice(self.sized()?);
                let object = Object { key, revision, created, value, index, revision_at };
                object.holds_its_revision().then_some(Record::Put(object))
            }
            _ => None,
        }
    }
}

impl Record {
    pub(crate) fn revision(&self) -> Revision {
        match self {
            Record::Put(object) => object.revision,
            Record::Delete { revision, .. } => *revision,
        }
    }
}

/// A batch in the making. Reused from commit to commit.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    count: u32,
}

impl Batch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(HEADER, 0);
        self.count = 0;
    }

    pub(crate) fn put(&mut self, object: &Object) {
        encode_put(object, &mut self.bytes);
        self.count += 1;
    }

    pub(crate) fn delete(&mut self, key: &Key, revision: Revision) {
        encode_delete(key, revision, &mut self.bytes);
        self.count += 1;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes it will take in the log.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len().next_multiple_of(ALIGNMENT)
    }

    /// Fills in the header. `seed` is the store's own, so that no bytes from elsewhere pass for a batch.
    pub(crate) fn seal(&mut self, seed: u32, sequence: u64, durable: u64) -> &[u8] {
        let length = u32::try_from(self.bytes.len() - HEADER).expect("a batch is far shorter than 4 GiB");
        self.bytes.resize(self.size(), 0);
        let body_crc = crc32c::crc32c(&self.bytes[HEADER..]);
        let header = Header { sequence, durable, length, count: self.count, body_crc };
        self.bytes[..HEADER].copy_from_slice(&header.encode(seed));
        &self.bytes
    }
}

/// What a batch says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
    length: u32,
    pub(crate) count: u32,
    body_crc: u32,
}

impl Header {
    fn encode(&self, seed: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.durable.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.count.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.body_crc.to_le_bytes());
        let crc = crc32c::crc32c_append(seed, &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of some bytes, if there is an intact one.
    pub(crate) fn decode(bytes: &[u8], seed: u32) -> Option<Self> {
        let mut reader = Reader(bytes.get(..HEADER)?);
        let (magic, crc) = (reader.u32()?, reader.u32()?);
        if magic != MAGIC || crc != crc32c::crc32c_append(seed, reader.0) {
            return None;
        }
        Some(Header {
            sequence: reader.u64()?,
            durable: reader.u64()?,
            length: reader.u32()?,
            count: reader.u32()?,
            body_crc: reader.u32()?,
        })
    }

    /// Where the records of the batch stand, relative to its start.
    fn body(&self) -> Range<usize> {
        HEADER..HEADER + self.length as usize
    }

    /// How many bytes the batch takes, padding included.
    pub(crate) fn size(&self) -> usize {
        self.body().end.next_multiple_of(ALIGNMENT)
    }
}

/// The whole batch at the start of some bytes, if there is an intact one: its header and its records.
pub(crate) fn decode_batch(bytes: &[u8], seed: u32) -> Option<(Header, Vec<Record>)> {
    let header = Header::decode(bytes, seed)?;
    let padded = bytes.get(HEADER..header.size())?;
    if crc32c::crc32c(padded) != header.body_crc {
        return None;
    }
    let mut reader = Reader(&bytes[header.body()]);
    let records = (0..header.count).map(|_| reader.record()).collect::<Option<Vec<_>>>()?;
    reader.0.is_empty().then_some((header, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, value: &'static str, revision_at: Option<u32>) -> Object {
        Object {
            key: Key::new("batch/jobs", "default", name),
            revision: Revision(12),
            created: Revision(3),
            value: Bytes::from_static(value.as_bytes()),
            index: Index {
                token: "t".into(),
                labels: [("app", name)].into_iter().collect(),
                fields: Pairs::default(),
            },
            revision_at,
        }
    }

    fn sample() -> Vec<u8> {
        let mut batch = Batch::default();
        batch.clear();
        batch.put(&object("a", r#"{"v":"12"}"#, Some(6)));
        batch.put(&object("b", "", None));
        batch.delete(&Key::new("nodes", "", "n"), Revision(13));
        batch.seal(77, 5, 4).to_vec()
    }

    #[test]
    fn a_batch_reads_back_as_it_was_written() {
        let bytes = sample();
        assert_eq!(bytes.len() % ALIGNMENT, 0);
        let (header, records) = decode_batch(&bytes, 77).expect("the batch is intact");
        assert_eq!((header.sequence, header.durable, header.size()), (5, 4, bytes.len()));
        assert_eq!(
            records,
            [
                Record::Put(object("a", r#"{"v":"12"}"#, Some(6))),
                Record::Put(object("b", "", None)),
                Record::Delete { key: Key::new("nodes", "", "n"), revision: Revision(13) },
            ]
        );
        assert!(decode_batch(&bytes, 78).is_none(), "a batch of another store is none of ours");
    }

    #[test]
    fn no_cut_and_no_flipped_bit_goes_unnoticed() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(decode_batch(&bytes[..length], 77).is_none(), "cut to {length}");
        }
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(decode_batch(&flipped, 77).is_none(), "bit {at} flipped");
        }
    }

    #[test]
    fn an_object_that_does_not_hold_its_revision_where_it_says_is_refused() {
        let mut bytes = Vec::new();
        encode_put(&object("a", r#"{"v":"12"}"#, Some(7)), &mut bytes);
        assert_eq!(Reader(&bytes).record(), None);
        bytes.clear();
        encode_put(&object("a", "1", Some(0)), &mut bytes);
        assert_eq!(Reader(&bytes).record(), None);
    }
}
