//! The characters of a body, as far as they are some.

use super::Failure;

/// So many bytes are looked at together: what is wrong with one of them is found before any of them is read.
const PIECE: usize = 512;

/// The characters of a text.
pub(super) struct Text {
    characters: Vec<char>,
    /// From which character on nothing can be read, and why.
    unreadable: Option<(usize, &'static str)>,
}

impl Text {
    /// Reads UTF-8, or UTF-16 that begins with a mark.
    pub(super) fn read(bytes: &[u8]) -> Self {
        match bytes {
            [0xff, 0xfe, rest @ ..] => Text::of(rest, |bytes| utf_16(bytes, u16::from_le_bytes)),
            [0xfe, 0xff, rest @ ..] => Text::of(rest, |bytes| utf_16(bytes, u16::from_be_bytes)),
            [0xef, 0xbb, 0xbf, rest @ ..] => Text::of(rest, utf_8),
            _ => Text::of(bytes, utf_8),
        }
    }

    fn of(mut bytes: &[u8], next: impl Fn(&[u8]) -> Result<(char, usize), &'static str>) -> Self {
        let mut characters = Vec::with_capacity(bytes.len());
        // Where the piece begins, and how many of its bytes are read.
        let (mut piece, mut length) = (0, 0);
        while !bytes.is_empty() {
            let read = next(bytes).and_then(|(c, width)| expect_printable(c).map(|()| (c, width)));
            let width = read.map_or(1, |(_, width)| width);
            if length + width > PIECE {
                (piece, length) = (characters.len(), 0);
            }
            match read {
                Ok((c, width)) => {
                    characters.push(c);
                    length += width;
                    bytes = &bytes[width..];
                }
                Err(why) => {
                    // That more should follow is known at the end.
                    let from = if why.starts_with("incomplete") { characters.len() } else { piece };
                    return Text { characters, unreadable: Some((from, why)) };
                }
            }
        }
        Text { characters, unreadable: None }
    }

    /// A character; 0 behind the last one.
    pub(super) fn at(&self, index: usize) -> char {
        self.characters.get(index).copied().unwrap_or('\0')
    }

    /// That a character can be read, or that the text has ended there.
    pub(super) fn expect(&self, index: usize) -> Result<(), Failure> {
        match self.unreadable {
            Some((from, why)) if index >= from => Err(Failure::new(why)),
            _ => Ok(()),
        }
    }
}

/// The first character, and how many bytes it has.
fn utf_8(bytes: &[u8]) -> Result<(char, usize), &'static str> {
    let width = match bytes[0] {
        0..=0x7f => return Ok((char::from(bytes[0]), 1)),
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => return Err("invalid leading UTF-8 octet"),
    };
    let Some(all) = bytes.get(..width) else { return Err("incomplete UTF-8 octet sequence") };
    if all[1..].iter().any(|byte| byte & 0xc0 != 0x80) {
        return Err("invalid trailing UTF-8 octet");
    }
    let first = u32::from(all[0]) & (0x7f >> width);
    let code = all[1..].iter().fold(first, |code, byte| (code << 6) + u32::from(byte & 0x3f));
    if code < [0x80, 0x800, 0x1_0000][width - 2] {
        return Err("invalid length of a UTF-8 sequence");
    }
    char::from_u32(code).map(|c| (c, width)).ok_or("invalid Unicode character")
}

fn utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<(char, usize), &'static str> {
    let at = |from: usize| bytes.get(from..from + 2).map(|bytes| unit([bytes[0], bytes[1]]));
    match at(0).ok_or("incomplete UTF-16 character")? {
        0xdc00..=0xdfff => Err("unexpected low surrogate area"),
        high @ 0xd800..=0xdbff => {
            let low = at(2).ok_or("incomplete UTF-16 surrogate pair")?;
            match char::decode_utf16([high, low]).next() {
                Some(Ok(c)) => Ok((c, 4)),
                _ => Err("expected low surrogate area"),
            }
        }
        other => char::from_u32(u32::from(other)).map(|c| (c, 2)).ok_or("invalid Unicode character"),
    }
}

fn expect_printable(c: char) -> Result<(), &'static str> {
    let is_printable = matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..='\u{10ffff}');
    if is_printable { Ok(()) } else { Err("control characters are not allowed") }
}
