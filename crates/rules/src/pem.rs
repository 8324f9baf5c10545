//! PEM as Go's `encoding/pem` reads it: what is no block is passed over, and only where nothing is left is there an end.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const START: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";
/// Go does not ask that the bits after the last byte are zero.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// What stands between two lines that say what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Such as `CERTIFICATE`.
    pub label: String,
    /// Whether lines with a colon stand before the contents.
    pub has_headers: bool,
    /// What it holds.
    pub contents: Vec<u8>,
}

/// The next block, and what follows it.
pub fn decode(data: &[u8]) -> Option<(Block, &[u8])> {
    let (mut at, mut after_end) = (0, 0);
    loop {
        // Lines that were taken for headers can reach beyond the end.
        if after_end < at {
            return None;
        }
        at = after_end;
        let end = at + find(&data[at..], END)?;
        after_end = end + END.len();
        // The last beginning before the end: one without an end of its own is passed over.
        let Some(begin) = data[at..end].windows(START.len()).rposition(|part| part == START) else {
            continue;
        };
        let begin = at + begin;
        if begin > at && data[begin - 1] != b'\n' {
            continue;
        }
        at = begin + START.len();
        let (first, next) = line(data, at);
        at = next;
        let Some(label) = first.strip_suffix(DASHES) else { continue };
        let mut has_headers = false;
        loop {
            if at >= data.len() {
                return None;
            }
            let (header, next) = line(data, at);
            if !header.contains(&b':') {
                break;
            }
            (has_headers, at) = (true, next);
        }
        if has_headers && end < at {
            continue;
        }
        let trailer = data[after_end..].strip_prefix(label).and_then(|rest| rest.strip_prefix(DASHES));
        if !trailer.is_some_and(|rest| line(rest, 0).0.is_empty()) {
            continue;
        }
        let text: Vec<u8> = data.get(at..end).unwrap_or_default().to_vec();
        let text: Vec<u8> = text.into_iter().filter(|byte| !b" \t\r\n".contains(byte)).collect();
        let Ok(contents) = BASE64.decode(text) else { continue };
        let label = String::from_utf8_lossy(label).into_owned();
        return Some((Block { label, has_headers, contents }, &data[line(data, after_end - 1).1..]));
    }
}

/// All blocks.
pub fn blocks(data: &[u8]) -> impl Iterator<Item = Block> {
    let mut rest = data;
    std::iter::from_fn(move || {
        let (block, after) = decode(rest)?;
        rest = after;
        Some(block)
    })
}

/// The line that starts at a place, without spaces at its end, and where the next one starts.
fn line(data: &[u8], at: usize) -> (&[u8], usize) {
    let rest = &data[at..];
    let (line, next) = match rest.iter().position(|byte| *byte == b'\n') {
        Some(end) => (rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]), at + end + 1),
        None => (rest, data.len()),
    };
    let spaces = line.iter().rev().take_while(|byte| b" \t".contains(byte)).count();
    (&line[..line.len() - spaces], next)
}

fn find(data: &[u8], wanted: &[u8]) -> Option<usize> {
    data.windows(wanted.len()).position(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_as_go_reads_them() {
        let good = "-----BEGIN A-----\nAQID\n-----END A-----\n";
        let check = |text: &str, expected: &[(&str, bool, &[u8])]| {
            let found: Vec<Block> = blocks(text.as_bytes()).collect();
            let found: Vec<_> = found
                .iter()
                .map(|block| (block.label.as_str(), block.has_headers, block.contents.as_slice()))
                .collect();
            assert_eq!(found, expected, "{text}");
        };
        let one: (&str, bool, &[u8]) = ("A", false, &[1, 2, 3]);
        check(good, &[one]);
        check(&format!("words\n{good}more\n{good}"), &[one, one]);
        check(&good.replace('\n', "\r\n"), &[one]);
        check(&good.replace("AQID", "AQ\n ID "), &[one]);
        check(good.trim_end(), &[one]);
        check(&format!("-----BEGIN B-----\nAQID\n{good}"), &[one]);
        check("-----BEGIN A-----\nK: v\n\nAQID\n-----END A-----", &[("A", true, &[1, 2, 3])]);
        check("-----BEGIN A-----\n-----END A-----", &[("A", false, &[])]);
        check(&format!("-----BEGIN A-----\nA$\n-----END A-----\n{good}"), &[one]);
        check(&format!("-----BEGIN A-----\nAQID\n-----END B-----\n{good}"), &[one]);
        check(&format!("-----BEGIN A-----\nAQID\n-----END A-----x\n{good}"), &[one]);
        check("x-----BEGIN A-----\nAQID\n-----END A-----\n", &[]);
        check("-----BEGIN A-----\nK: v\n-----END A:-----", &[]);
        check("-----BEGIN A-----\nAQID", &[]);
        check("", &[]);
    }
}
