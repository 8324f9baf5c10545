//! What a scalar is: by its tag, or by what it looks like in YAML 1.1.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use types::go;

use super::Failure;
use crate::apply::go::write_float;

/// What all tags of YAML itself begin with.
pub(super) const TAGS: &str = "tag:yaml.org,2002:";

/// As Go decodes it: nobody looks at bits that are left over.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

/// A value that holds no others.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that is too large for the other kind.
    Uint(u64),
    Float(f64),
    Text(String),
}

/// The value of a scalar with this tag, or with none.
pub(super) fn resolve(tag: &str, text: &str) -> Result<Scalar, Failure> {
    let own = tag.strip_prefix(TAGS);
    let (found, scalar) = match own {
        Some("binary") => {
            let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
            let bytes = BASE64.decode(digits);
            let bytes = bytes.map_err(|_| Failure::new("!!binary value contains invalid base64 data"))?;
            return Ok(Scalar::Text(String::from_utf8_lossy(&bytes).into_owned()));
        }
        Some("timestamp") if is_timestamp(text) => ("timestamp", Scalar::Text(text.to_owned())),
        Some("bool" | "int" | "float" | "null" | "timestamp") => guessed(text),
        None if tag.is_empty() => return Ok(guessed(text).1),
        _ => return Ok(Scalar::Text(text.to_owned())),
    };
    match (own.unwrap_or_default(), found, scalar) {
        (wanted, found, scalar) if wanted == found => Ok(scalar),
        #[expect(clippy::cast_precision_loss, reason = "as Go does it")]
        ("float", _, Scalar::Int(integer)) => Ok(Scalar::Float(integer as f64)),
        (wanted, found, _) => Err(Failure::new(format!("cannot decode !!{found} `{text}` as a !!{wanted}"))),
    }
}

/// What a scalar looks like, and the name of that.
fn guessed(text: &str) -> (&'static str, Scalar) {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return ("null", Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return ("bool", Scalar::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return ("bool", Scalar::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return ("float", Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return ("float", Scalar::Float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return ("float", Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'.' => float(text),
        b'+' | b'-' | b'0'..=b'9' => {
            let plain = text.replace('_', "");
            integer(&plain).or_else(|| float(&plain)).or_else(|| binary(&plain))
        }
        _ => None,
    };
    match number {
        Some(number @ Scalar::Float(_)) => ("float", number),
        Some(number) => ("int", number),
        None => ("str", Scalar::Text(text.to_owned())),
    }
}

/// An integer in any of Go's notations: 0x for hexadecimal, 0o or 0 for octal, 0b for binary.
fn integer(plain: &str) -> Option<Scalar> {
    let (sign, rest) = match plain.strip_prefix(['+', '-']) {
        Some(rest) => (plain.get(..1), rest),
        None => (None, plain),
    };
    let (digits, radix) = match (rest.get(..2).map(str::to_ascii_lowercase).as_deref(), rest.get(2..)) {
        (Some("0x"), Some(digits)) => (digits, 16),
        (Some("0o"), Some(digits)) => (digits, 8),
        (Some("0b"), Some(digits)) => (digits, 2),
        (Some(octal), _) if octal.starts_with('0') => (&rest[1..], 8),
        _ => (rest, 10),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let size = u64::from_str_radix(digits, radix).ok()?;
    match sign {
        Some("-") => 0i64.checked_sub_unsigned(size).map(Scalar::Int),
        Some(_) => i64::try_from(size).ok().map(Scalar::Int),
        None => Some(i64::try_from(size).map_or(Scalar::Uint(size), Scalar::Int)),
    }
}

/// A number with a point or an exponent, or one that is too large for an integer.
fn float(plain: &str) -> Option<Scalar> {
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(plain);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_mantissa = is_digits(whole) && is_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let is_exponent = exponent.is_none_or(|exponent| !exponent.is_empty() && is_digits(exponent));
    let number = plain.parse::<f64>().ok().filter(|number| is_mantissa && is_exponent && number.is_finite());
    number.map(Scalar::Float)
}

/// Binary digits with a sign behind their mark.
fn binary(plain: &str) -> Option<Scalar> {
    let digits = match plain.strip_prefix("-0b") {
        Some(digits) => format!("-{digits}"),
        None => plain.strip_prefix("0b")?.to_owned(),
    };
    i64::from_str_radix(&digits, 2).ok().map(Scalar::Int)
}

/// A date, or a date and a time, in one of the forms that Go takes.
fn is_timestamp(text: &str) -> bool {
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some((&text[at..=at], &text[at + 1..]))),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let (Some(year), Some(month), Some(day), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let short = |text: &str| (1..=2).contains(&text.len()).then(|| text.parse::<i8>().ok()).flatten();
    let is_year = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit());
    let date = short(month).zip(short(day)).filter(|_| is_year);
    let is_date = date.is_some_and(|(month, day)| {
        year.parse().is_ok_and(|year| jiff::civil::Date::new(year, month, day).is_ok())
    });
    is_date && time.is_none_or(|(separator, time)| is_time(time, separator != " "))
}

/// Hours, minutes and seconds, with parts of them and, if that is wanted, where that is.
fn is_time(text: &str, is_zoned: bool) -> bool {
    let zone = text.find(['Z', '+', '-']);
    let (clock, zone) = zone.map_or((text, ""), |at| text.split_at(at));
    let is_number = |text: &str, below: u8| {
        (1..=2).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && text.parse::<u8>().is_ok_and(|number| number < below)
    };
    let is_zone = match zone.strip_prefix(['+', '-']).map(|offset| offset.split_once(':')) {
        None => zone == if is_zoned { "Z" } else { "" },
        Some(Some((hours, minutes))) => {
            is_zoned
                && hours.len() == 2
                && minutes.len() == 2
                && is_number(hours, 25)
                && is_number(minutes, 61)
        }
        Some(None) => false,
    };
    let mut parts = clock.split(':');
    let (Some(hour), Some(minute), Some(second), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (second, fraction) = second.split_once(['.', ',']).unwrap_or((second, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_zone && is_number(hour, 24) && is_number(minute, 60) && is_number(second, 60) && is_fraction
}

/// A scalar as Go shows it with its type.
pub(super) fn shown(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Null => "<nil>".to_owned(),
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Uint(value) => format!("{value:#x}"),
        Scalar::Float(value) if value.is_nan() => "NaN".to_owned(),
        Scalar::Float(value) if value.is_infinite() => if *value > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        Scalar::Float(value) => short(*value),
        Scalar::Text(text) => go::quote(text),
    }
}

/// A number as the key of an object. It has lost half of its digits, as Go's has.
pub(super) fn float_key(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "as Go does it")]
    let less = value as f32;
    if value.is_nan() {
        ".nan".to_owned()
    } else if less.is_infinite() {
        if value > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        // The shortest digits that it still has.
        short(less.to_string().parse().unwrap_or(value))
    }
}

fn short(value: f64) -> String {
    let mut text = String::new();
    write_float(&mut text, value, -4..6);
    text
}
