//! Base64 with Go's idea of what is wrong with it.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Decodes standard base64 with padding. Line breaks are skipped; the error is Go's sentence.
pub(crate) fn decode(text: &str) -> Result<Vec<u8>, String> {
    let text = text.as_bytes();
    let corrupt = |at: usize| format!("illegal base64 data at input byte {at}");
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let mut at = 0;
    let skip_breaks = |mut at: usize| {
        while let Some(b'\r' | b'\n') = text.get(at) {
            at += 1;
        }
        at
    };
    loop {
        let mut group = 0_u32;
        let mut digits = 0;
        while digits < 4 {
            let Some(&byte) = text.get(at) else {
                // Go counts line breaks of an unfinished group as if they were its digits.
                return if digits == 0 { Ok(bytes) } else { Err(corrupt(at - digits)) };
            };
            at += 1;
            if let Some(digit) = value(byte) {
                group = group << 6 | digit;
                digits += 1;
            } else if byte == b'=' {
                break;
            } else if !matches!(byte, b'\r' | b'\n') {
                return Err(corrupt(at - 1));
            }
        }
        if digits == 4 {
            bytes.extend_from_slice(&group.to_be_bytes()[1..]);
            continue;
        }
        // A padding character was read: this is the last group.
        match digits {
            0 | 1 => return Err(corrupt(at - 1)),
            2 => {
                at = skip_breaks(at);
                match text.get(at) {
                    Some(b'=') => at += 1,
                    Some(_) => return Err(corrupt(at - 1)),
                    None => return Err(corrupt(text.len())),
                }
                bytes.extend_from_slice(&(group >> 4).to_be_bytes()[3..]);
            }
            _ => bytes.extend_from_slice(&(group >> 2).to_be_bytes()[2..]),
        }
        at = skip_breaks(at);
        return if at < text.len() { Err(corrupt(at)) } else { Ok(bytes) };
    }
}

/// Encodes as standard base64 with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |place: usize| u32::from(group.get(place).copied().unwrap_or(0));
        let joined = at(0) << 16 | at(1) << 8 | at(2);
        for digit in 0..4 {
            let value = (joined >> (18 - 6 * digit) & 63) as usize;
            text.push(if digit <= group.len() { char::from(ALPHABET[value]) } else { '=' });
        }
    }
    text
}

fn value(byte: u8) -> Option<u32> {
    match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decodes_as_go_does() {
        for (text, bytes) in [("", &b""[..]), ("Zg==", b"f"), ("Zm8=", b"fo"), ("Zm9v\r\nYg=\n=\n", b"foob")]
        {
            assert_eq!(decode(text).as_deref(), Ok(bytes), "{text}");
        }
        for (text, at) in
            [("Z", 0), ("Zg", 0), ("Zg=", 3), ("Zg=x", 2), ("Zm9vZ", 4), ("a*==", 1), ("=", 0), ("Zm8=Zg", 4)]
        {
            assert_eq!(decode(text), Err(format!("illegal base64 data at input byte {at}")), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }
    }
}
