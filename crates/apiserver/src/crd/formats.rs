//! The string formats that Kubernetes checks: those of go-openapi's registry, and its own names.
//!
//! A format that is not known here is not checked at all, whatever the schema says.

use std::{net::IpAddr, sync::LazyLock};

use base64::Engine as _;
use regex::Regex;

use crate::cel;

/// Formats that are checked, without dashes: `date-time` and `datetime` are one format.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

/// Whether values are checked against the format.
pub fn is_known(format: &str) -> bool {
    checked(format).is_some()
}

/// The format as [`is_of`] knows it, if values are checked against it.
pub fn checked(format: &str) -> Option<&'static str> {
    let normal = normal(format);
    KNOWN.into_iter().find(|known| *known == normal)
}

fn normal(format: &str) -> String {
    format.replace('-', "")
}

macro_rules! pattern {
    ($regex:expr) => {{
        static PATTERN: LazyLock<Regex> = LazyLock::new(|| Regex::new($regex).expect("a pattern of ours"));
        &*PATTERN
    }};
}

/// Whether `text` has the format; everything has a format that is not known.
pub fn matches(format: &str, text: &str) -> bool {
    is_of(&normal(format), text)
}

/// Whether `text` has a format of [`checked`].
pub fn is_of(checked: &str, text: &str) -> bool {
    match checked {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "uri" => is_request_uri(text),
        "email" => is_email(text),
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && sloppy_ip(text).is_some(),
        "ipv6" => text.contains(':') && sloppy_ip(text).is_some(),
        "cidr" => is_cidr(text),
        "mac" => is_mac(text),
        "uuid" => {
            pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$").is_match(text)
        }
        "uuid3" => {
            pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$").is_match(text)
        }
        "uuid4" => pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
            .is_match(text),
        "uuid5" => pattern!("(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$")
            .is_match(text),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "creditcard" => is_credit_card(text),
        "ssn" => pattern!(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$").is_match(text),
        "hexcolor" => pattern!("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").is_match(text),
        "rgbcolor" => is_rgb(text),
        "byte" => is_base64(text),
        "date" => cel::date(text).is_some(),
        "duration" => duration(text).is_some(),
        "datetime" => is_date_time(text),
        "k8sshortname" => text.len() <= 63 && rules::names::dns_label(text).is_empty(),
        "k8slongname" => text.len() <= 253 && text.split('.').all(is_name_segment),
        _ => true,
    }
}

fn is_name_segment(text: &str) -> bool {
    pattern!("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$").is_match(text)
}

/// Go's `url.ParseRequestURI`: an absolute URL or an absolute path.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    let scheme = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(0);
    let has_scheme = text[scheme..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic());
    text.starts_with('/') || (has_scheme && text.len() > scheme + 1)
}

/// The part of RFC 5322 that people use: an optional name, and an address with one `@`.
fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(rest) => match rest.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| !c.is_control() && !c.is_whitespace() && !"()<>[]:;@\\,\"".contains(c))
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || local.split('.').all(atom)) && (literal || domain.split('.').all(atom))
}

fn is_hostname(text: &str) -> bool {
    let shaped = pattern!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}([a-zA-Z\p{L}]){2,63})$"
    );
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && shaped.is_match(text)
}

/// An address in which leading zeros are forgiven, as Go once did.
fn sloppy_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse().ok();
    }
    let octets: Vec<u8> = text
        .split('.')
        .map(|octet| {
            if octet.len() <= 3 && octet.bytes().all(|b| b.is_ascii_digit()) {
                octet.parse().ok()
            } else {
                None
            }
        })
        .collect::<Option<_>>()?;
    <[u8; 4]>::try_from(octets).ok().map(IpAddr::from)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, prefix)) = text.split_once('/') else { return false };
    let Some(address) = sloppy_ip(address) else { return false };
    let digits = !prefix.is_empty() && prefix.bytes().all(|b| b.is_ascii_digit());
    digits && prefix.parse::<u8>().is_ok_and(|prefix| prefix <= if address.is_ipv4() { 32 } else { 128 })
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        let hex = |part: &&str| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
        counts.contains(&parts.len()) && parts.iter().all(hex)
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

fn digits_of(text: &str) -> Vec<u32> {
    text.chars()
        .filter(|c| !matches!(c, ' ' | '-'))
        .filter_map(|c| c.to_digit(10).or((c == 'X').then_some(10)))
        .collect()
}

fn is_isbn10(text: &str) -> bool {
    let stripped: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let digits = digits_of(&stripped);
    pattern!("^[0-9]{9}[0-9X]$").is_match(&stripped)
        && digits.iter().zip(1..).map(|(digit, weight)| digit * weight).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let stripped: String = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let digits = digits_of(&stripped);
    let weighted =
        digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, weight)| digit * weight).sum::<u32>();
    pattern!("^[0-9]{13}$").is_match(&stripped) && weighted % 10 == 0
}

fn is_credit_card(text: &str) -> bool {
    let stripped: String = text.chars().filter(char::is_ascii_digit).collect();
    let shaped = pattern!(
        r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
    );
    let luhn = |(place, digit): (usize, u32)| match (place % 2 == 1, digit * 2) {
        (false, _) => digit,
        (true, doubled) if doubled > 9 => doubled - 9,
        (true, doubled) => doubled,
    };
    let reversed = stripped.chars().rev().filter_map(|c| c.to_digit(10));
    shaped.is_match(&stripped) && reversed.enumerate().map(luhn).sum::<u32>() % 10 == 0
}

fn is_rgb(text: &str) -> bool {
    const PART: &str = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])\s*";
    pattern!(&format!(r"^rgb\({PART},{PART},{PART}\)$")).is_match(text)
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// `2006-01-02T15:04:05`, a fraction, and a zone, in either case.
fn is_date_time(text: &str) -> bool {
    if is_plain_time(text) {
        return true;
    }
    let Some((day, clock)) = text.split_once(['T', 't']) else { return false };
    let shaped = pattern!(r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
    let Some(parts) =
        shaped.captures(&clock.to_lowercase()).map(|found| [1, 2, 3].map(|i| found[i].parse::<u8>()))
    else {
        return false;
    };
    let [Ok(hours), Ok(minutes), Ok(seconds)] = parts else { return false };
    cel::date(day).is_some() && hours <= 23 && minutes <= 59 && seconds <= 59
}

/// Whether a text is a time as Kubernetes itself writes it, `2006-01-02T15:04:05Z`, on a day that every month has. Nearly
/// all are; the others have to be looked at more closely.
pub(super) fn is_plain_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_shaped = bytes.len() == 20
        && bytes.iter().zip(b"dddd-dd-ddTdd:dd:ddZ").all(|(byte, like)| match like {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        });
    let is_within = |at: usize, least: &str, most: &str| {
        text.get(at..at + 2).is_some_and(|digits| least <= digits && digits <= most)
    };
    is_shaped
        && is_within(5, "01", "12")
        && is_within(8, "01", "28")
        && is_within(11, "00", "23")
        && is_within(14, "00", "59")
        && is_within(17, "00", "59")
}

/// Reads `1h30m` as Go does, or `22 days` as Scala does, in nanoseconds.
pub fn duration(text: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    const UNITS: [(&[&str], i64); 8] = [
        (&["ns", "nano"], 1),
        (&["us", "µs", "micro"], 1_000),
        (&["ms", "milli"], 1_000_000),
        (&["s", "sec"], SECOND),
        (&["m", "min"], 60 * SECOND),
        (&["h", "hr", "hour"], 3600 * SECOND),
        (&["d", "day"], 86400 * SECOND),
        (&["w", "wk", "week"], 604_800 * SECOND),
    ];
    if let Some(nanos) = cel::duration(text) {
        return Some(nanos);
    }
    let mut total: Option<i64> = None;
    for found in pattern!(r"([0-9]+)\s*([A-Za-zµ]+)").captures_iter(text) {
        let factor: i64 = found[1].parse().ok()?;
        let unit = found[2].to_lowercase();
        for (variants, nanos) in UNITS {
            let fits = |(i, variant): (usize, &&str)| {
                unit == *variant || (i + 1 == variants.len() && unit.starts_with(variant))
            };
            if variants.iter().enumerate().any(fits) {
                total = Some(total.unwrap_or(0).wrapping_add(factor.wrapping_mul(nanos)));
            }
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_3_25() {
        for (format, good, bad) in [
            ("date", "2026-01-02", "2026-1-2"),
            ("date-time", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05"),
            ("duration", "22 days", "soon"),
            ("byte", "aGk=", "a"),
            ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
            ("ipv4", "010.0.0.1", "::1"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("uri", "https://example.com/x", "example"),
            ("email", "a@example.com", "a.example.com"),
            ("hostname", "a.example.com", "a_b"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
            ("isbn", "978-0321751041", "978-0321751042"),
            ("creditcard", "4111 1111 1111 1111", "4111 1111 1111 1112"),
            ("hexcolor", "#FFFFFF", "#FFF0"),
            ("rgbcolor", "rgb(1, 2, 255)", "rgb(1, 2, 256)"),
            ("k8s-short-name", "a-b", "A"),
            ("k8s-long-name", "a.b-c", "a..b"),
            ("ssn", "123-45-6789", "123"),
        ] {
            assert!(is_known(format) && matches(format, good) && !matches(format, bad), "{format}");
        }
        assert!(!is_known("int32") && matches("int32", "anything") && matches("password", "anything"));
    }
}
