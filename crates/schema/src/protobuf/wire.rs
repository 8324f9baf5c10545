//! Protobuf's wire format, and the sentences of Kubernetes' generated code about broken messages.

use crate::json::lossy;

/// Why bytes are no message of their type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no body at all.
    #[error("empty data")]
    NoData,
    /// The body is something else.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// There is nothing after the magic bytes.
    #[error("empty body")]
    NoBody,
    /// The message ends too early.
    #[error("unexpected EOF")]
    End,
    /// A number is longer than 64 bits.
    #[error("proto: integer overflow")]
    Overflow,
    /// A length does not fit into memory.
    #[error("proto: negative length found during unmarshaling")]
    Length,
    /// A group ends that never began.
    #[error("proto: unexpected end of group")]
    EndOfGroup,
    /// A group ends outside of groups.
    #[error("proto: {0}: wiretype end group for non-group")]
    GroupIn(&'static str),
    /// Field numbers start at one.
    #[error("proto: {message}: illegal tag {number} (wire type {tag})")]
    Tag {
        /// The Go name of the message.
        message: &'static str,
        /// The number.
        number: i32,
        /// All of the tag.
        tag: u64,
    },
    /// There are wire types 0 to 5.
    #[error("proto: illegal wireType {0}")]
    NoWireType(u8),
    /// The field is written in another way.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WireType {
        /// The wire type found.
        wire: u8,
        /// The Go name of the field.
        field: &'static str,
    },
    /// A quantity is malformed; Kubernetes' sentence.
    #[error("{0}")]
    Quantity(String),
    /// Raw JSON in the message is none; Go's sentence.
    #[error("{0}")]
    Json(String),
    /// It is neither a number nor a string.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// Go would go on; who sends this means no good.
    #[error("proto: messages nest too deep")]
    TooDeep,
}

/// What stands before a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) number: u32,
    pub(super) wire: u8,
}

pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const BYTES: u8 = 2;
const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
const FIXED32: u8 = 5;

/// A place in a message.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { message, at: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.message.len()
    }

    /// The next field's tag; `None` at the end.
    pub(super) fn tag(&mut self, message: &'static str) -> Result<Option<Tag>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let wire = wire_type(tag);
        if wire == GROUP_END {
            return Err(Error::GroupIn(message));
        }
        // Go cuts the number to 32 bits with a sign.
        let number = u32::try_from(tag >> 3 & 0xffff_ffff).expect("cut to 32 bits").cast_signed();
        match u32::try_from(number) {
            Ok(number) if number > 0 => Ok(Some(Tag { number, wire })),
            _ => Err(Error::Tag { message, number, tag }),
        }
    }

    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let &byte = self.message.get(self.at).ok_or(Error::End)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::Overflow)
    }

    /// A length and as many bytes.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        let end = self.length()?;
        let bytes = &self.message[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// The same, if they do not reach beyond a place.
    fn bytes_until(&mut self, end: usize) -> Result<&'a [u8], Error> {
        let bytes = self.bytes()?;
        if self.at > end { Err(Error::End) } else { Ok(bytes) }
    }

    /// A length; gives the place to which it reaches.
    fn length(&mut self) -> Result<usize, Error> {
        let length = i64::try_from(self.varint()?).map_err(|_| Error::Length)?;
        let here = i64::try_from(self.at).map_err(|_| Error::Length)?;
        let end = here.checked_add(length).ok_or(Error::Length)?;
        usize::try_from(end).ok().filter(|&end| end <= self.message.len()).ok_or(Error::End)
    }

    pub(super) fn fixed64(&mut self) -> Result<u64, Error> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes were taken")))
    }

    /// The bytes of a field that has to have some.
    pub(super) fn bytes_of(&mut self, tag: Tag, field: &'static str) -> Result<&'a [u8], Error> {
        need(tag, BYTES, field)?;
        self.bytes()
    }

    /// A map's entry: gives its value to a function, as often as there is one, and its key back. Like Go's reader, it
    /// takes both for bytes whatever their tags say. Go would read them beyond the entry's end, should they reach there,
    /// and then again what it has read: entries in entries that do so would take for ever.
    pub(super) fn entry(
        &mut self,
        mut value: impl FnMut(&'a [u8]) -> Result<(), Error>,
    ) -> Result<&'a [u8], Error> {
        let end = self.length()?;
        let mut key = &[][..];
        while self.at < end {
            let start = self.at;
            let tag = self.varint()?;
            match tag >> 3 & 0xffff_ffff {
                1 => key = self.bytes_until(end)?,
                2 => value(self.bytes_until(end)?)?,
                _ => {
                    self.at = start;
                    self.skip_field()?;
                    if self.at > end {
                        return Err(Error::End);
                    }
                }
            }
        }
        self.at = end;
        Ok(key)
    }

    /// Steps over a field that the type does not know.
    pub(super) fn skip(&mut self, tag: Tag) -> Result<(), Error> {
        self.skip_content(tag.wire)
    }

    fn skip_field(&mut self) -> Result<(), Error> {
        let wire = wire_type(self.varint()?);
        self.skip_content(wire)
    }

    fn skip_content(&mut self, mut wire: u8) -> Result<(), Error> {
        let mut depth = 0_usize;
        loop {
            match wire {
                VARINT => {
                    self.varint()?;
                }
                FIXED64 => {
                    self.take(8)?;
                }
                BYTES => {
                    self.bytes()?;
                }
                GROUP => depth += 1,
                GROUP_END => depth = depth.checked_sub(1).ok_or(Error::EndOfGroup)?,
                FIXED32 => {
                    self.take(4)?;
                }
                other => return Err(Error::NoWireType(other)),
            }
            if depth == 0 {
                return Ok(());
            }
            wire = wire_type(self.varint()?);
        }
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let bytes = self.message.get(self.at..self.at + length).ok_or(Error::End)?;
        self.at += length;
        Ok(bytes)
    }
}

fn wire_type(tag: u64) -> u8 {
    u8::try_from(tag & 7).expect("three bits fit")
}

/// Checks how a field is written.
pub(super) fn need(tag: Tag, wire: u8, field: &'static str) -> Result<(), Error> {
    if tag.wire == wire { Ok(()) } else { Err(Error::WireType { wire: tag.wire, field }) }
}

/// A string; what is no Unicode becomes U+FFFD when Go writes it.
pub(super) fn text(bytes: &[u8]) -> String {
    lossy(bytes)
}

pub(super) fn write_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).expect("seven bits fit") | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("less than 0x80"));
}

/// A field that is a number. Negative ones are written with 64 bits.
pub(super) fn write_number(out: &mut Vec<u8>, number: u32, value: i64) {
    write_tag(out, number, VARINT);
    write_varint(out, value.cast_unsigned());
}

pub(super) fn write_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    write_tag(out, number, BYTES);
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn write_fixed64(out: &mut Vec<u8>, number: u32, value: u64) {
    write_tag(out, number, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn write_tag(out: &mut Vec<u8>, number: u32, wire: u8) {
    write_varint(out, u64::from(number) << 3 | u64::from(wire));
}
