//! `"%s of %d".format([…])`: what a format asks for, whether a list can answer it, and the text that comes out.
//!
//! Texts and numbers are those of cel-go's first formatter, the one that Kubernetes uses: it writes for American readers,
//! with groups of digits and raised exponents.

use super::{
    functions::print,
    issue::Issue,
    syntax::{Expr, Kind},
    types::Type,
    value::{Error, List, Outcome, Value},
};
use crate::crd::go;

/// Digits after the point, if nobody says how many.
const USUAL_PRECISION: usize = 6;
/// More digits than anybody can mean.
const MAX_PRECISION: usize = 1000;

/// A piece of a format.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Clause(Clause),
    /// A clause that cannot be read, and why.
    Unreadable(String),
    /// A percent sign, and nothing behind it.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clause {
    verb: u8,
    precision: usize,
}

/// The pieces of a format, up to one that cannot be read.
fn pieces(format: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        pieces.push(Piece::Text(&rest[..at]));
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('%') {
            pieces.push(Piece::Text("%"));
            rest = tail;
            continue;
        }
        match clause(rest) {
            Ok(Some((clause, tail))) => {
                pieces.push(Piece::Clause(clause));
                rest = tail;
            }
            Ok(None) => {
                pieces.push(Piece::End);
                return pieces;
            }
            Err(why) => {
                pieces.push(Piece::Unreadable(why));
                return pieces;
            }
        }
    }
    pieces.push(Piece::Text(rest));
    pieces
}

/// The clause behind a percent sign, and what follows it.
fn clause(text: &str) -> Result<Option<(Clause, &str)>, String> {
    let (precision, rest) = match text.strip_prefix('.') {
        None => (USUAL_PRECISION, text),
        Some(tail) => {
            let Some(end) = tail.find(|c: char| !c.is_ascii_digit()) else {
                return Err(
                    "error while parsing precision: could not find end of precision specifier".to_owned()
                );
            };
            let wrong = |why: &str| {
                format!(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: \
                     parsing \"{}\": {why}",
                    &tail[..end]
                )
            };
            let precision = match &tail[..end] {
                "" => return Err(wrong("invalid syntax")),
                digits => digits.parse::<usize>().map_err(|_| wrong("value out of range"))?,
            };
            (precision.min(MAX_PRECISION), &tail[end..])
        }
    };
    let Some(verb) = rest.bytes().next() else { return Ok(None) };
    if !b"sdfebxXo".contains(&verb) {
        return Err(format!("unrecognized formatting clause \"{}\"", char::from(verb)));
    }
    Ok(Some((Clause { verb, precision }, &rest[1..])))
}

/// What is said to a value that a clause cannot write.
fn wrong(verb: u8, given: &str) -> String {
    let takes = match verb {
        b'd' => "decimal clause can only be used on integers",
        b'f' => "fixed-point clause can only be used on doubles",
        b'e' => "scientific clause can only be used on doubles",
        b'b' => "only integers and bools can be formatted as binary",
        b'x' | b'X' => "only integers, byte buffers, and strings can be formatted as hex",
        b'o' => "octal clause can only be used on integers",
        _ => {
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
             timestamps"
        }
    };
    format!("error during formatting: {takes}, was given {given}")
}

fn unreadable(why: &str) -> String {
    format!("could not parse formatting clause: {why}")
}

/// What is wrong with a call whose format and list of values are written out: those are judged before anything runs.
/// `types` are those of the values.
pub(super) fn check(format: &str, values: &[&Expr], types: &[Type], at: usize) -> Option<Issue> {
    let mut asked = 0;
    for piece in pieces(format) {
        if let Piece::Text(_) = piece {
            continue;
        }
        if piece == Piece::End {
            return Some(Issue::at(at, "unexpected end of string"));
        }
        let (Some(value), Some(r#type)) = (values.get(asked), types.get(asked)) else {
            return Some(Issue::at(at, format!("index {asked} out of range")));
        };
        match piece {
            Piece::Unreadable(why) => return Some(Issue::at(at, unreadable(&why))),
            Piece::Clause(clause) if !takes(clause.verb, r#type) => {
                return Some(Issue::at(value.at, wrong(clause.verb, &type_name(r#type))));
            }
            _ => asked += 1,
        }
    }
    let given = values.len();
    let why = format!("too many arguments supplied to string.format (expected {asked}, got {given})");
    (given > asked).then(|| Issue::at(at, why))
}

/// The format and the values of a call that has both written out.
pub(super) fn literal<'a>(target: Option<&'a Expr>, args: &'a [Expr]) -> Option<(&'a str, Vec<&'a Expr>)> {
    match (target.map(|target| &target.kind), args) {
        (Some(Kind::String(format)), [Expr { kind: Kind::List(items), .. }]) => {
            Some((format, items.iter().map(|item| &item.value).collect()))
        }
        _ => None,
    }
}

fn takes(verb: u8, r#type: &Type) -> bool {
    let is_integer = matches!(r#type, Type::Int | Type::Uint);
    let is_dyn = matches!(r#type, Type::Dyn | Type::Any | Type::Wrong);
    is_dyn
        || match verb {
            b'd' | b'o' => is_integer,
            // The names of what is no number are texts.
            b'f' | b'e' => matches!(r#type, Type::Double | Type::String),
            b'b' => is_integer || *r#type == Type::Bool,
            b'x' | b'X' => is_integer || matches!(r#type, Type::String | Type::Bytes),
            _ => !matches!(r#type, Type::Object(_) | Type::Optional(_) | Type::Library(_)),
        }
}

/// A type without what it holds, by its long name.
fn type_name(r#type: &Type) -> String {
    let name = match r#type {
        Type::Null => "null_type",
        Type::Bool => "bool",
        Type::Int => "int",
        Type::Uint => "uint",
        Type::Double => "double",
        Type::String => "string",
        Type::Bytes => "bytes",
        Type::Duration => "google.protobuf.Duration",
        Type::Timestamp => "google.protobuf.Timestamp",
        Type::List(_) => "list",
        Type::Map(_) => "map",
        Type::Optional(_) => "optional_type",
        Type::Type(_) => "type",
        Type::Library(_) => return r#type.to_string(),
        Type::Object(_) | Type::Param(_) | Type::Dyn | Type::Any | Type::Wrong => "object",
    };
    name.to_owned()
}

/// Writes `args` as `format` says.
pub(super) fn format<'a>(format: &str, args: &List<'a>) -> Outcome<'a> {
    let mut out = String::new();
    let mut next = 0;
    for piece in pieces(format) {
        if let Piece::Text(text) = piece {
            out.push_str(text);
            continue;
        }
        let missing = || Error::failed(format!("index {next} out of range"));
        let arg = args.get(next).ok_or_else(missing)??;
        match piece {
            Piece::Clause(clause) => out.push_str(&write(clause, &arg)?),
            Piece::Unreadable(why) => return Err(Error::failed(unreadable(&why))),
            _ => return Err(Error::failed("unexpected end of string")),
        }
        next += 1;
    }
    Ok(Value::text(out))
}

fn write(Clause { verb, precision }: Clause, arg: &Value<'_>) -> Result<String, Error> {
    Ok(match (verb, arg) {
        (b's', Value::List(_) | Value::Map(_)) => literal_of(arg)?,
        (b's', Value::Bytes(bytes)) => String::from_utf8(bytes.to_vec()).map_err(|_| {
            Error::failed("error during formatting: invalid UTF-8 in bytes, cannot convert to string")
        })?,
        (b's', Value::Object(_) | Value::Optional(_)) => return Err(refused(verb, arg)),
        (b's', arg) => print(arg),
        (b'd', Value::Int(_) | Value::Uint(_)) => print(arg),
        (b'f', arg) => fixed(double(arg).ok_or_else(|| refused(verb, arg))?, precision),
        // A slip of the formatter: it takes the precision for a width.
        (b'e', arg) => scientific(double(arg).ok_or_else(|| refused(verb, arg))?, precision),
        (b'b', Value::Int(value)) => signed(*value, |value| format!("{value:b}")),
        (b'b', Value::Uint(value)) => format!("{value:b}"),
        (b'b', Value::Bool(value)) => u8::from(*value).to_string(),
        (b'o', Value::Int(value)) => signed(*value, |value| format!("{value:o}")),
        (b'o', Value::Uint(value)) => format!("{value:o}"),
        (b'x' | b'X', arg) => {
            let digits = match arg {
                Value::Int(value) => signed(*value, |value| format!("{value:x}")),
                Value::Uint(value) => format!("{value:x}"),
                Value::String(text) => hex(text.as_bytes()),
                Value::Bytes(bytes) => hex(bytes),
                arg => return Err(refused(verb, arg)),
            };
            if verb == b'X' { digits.to_uppercase() } else { digits }
        }
        (verb, arg) => return Err(refused(verb, arg)),
    })
}

fn refused(verb: u8, arg: &Value<'_>) -> Error {
    Error::failed(wrong(verb, &type_name(&arg.type_of())))
}

fn double(arg: &Value<'_>) -> Option<f64> {
    match arg {
        Value::Double(value) => Some(*value),
        Value::String(text) => match text.as_ref() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// What is no number, as readers know it.
fn special(value: f64) -> Option<&'static str> {
    match value {
        value if value.is_nan() => Some("NaN"),
        value if value.is_infinite() => Some(if value > 0.0 { "∞" } else { "-∞" }),
        _ => None,
    }
}

/// `1,234.50`
fn fixed(value: f64, precision: usize) -> String {
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    let printed = format!("{value:.precision$}");
    let (sign, digits) = printed.strip_prefix('-').map_or(("", printed.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut grouped = String::with_capacity(printed.len() * 2);
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{sign}{grouped}{fraction}")
}

/// `1.500000×10⁰²`, at least `width` characters wide.
fn scientific(value: f64, width: usize) -> String {
    const RAISED: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    // What is no number is not padded.
    if let Some(special) = special(value) {
        return special.to_owned();
    }
    let printed = format!("{value:.USUAL_PRECISION$e}");
    let (digits, exponent) = printed.split_once('e').unwrap_or((&printed, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(("", exponent), |exponent| ("⁻", exponent));
    let exponent = format!("{exponent:0>2}");
    let raised = exponent.bytes().filter_map(|digit| RAISED.get(usize::from(digit.wrapping_sub(b'0'))));
    format!("{:>width$}", format!("{digits}×10{sign}{}", raised.collect::<String>()))
}

/// A value inside of a list or a map, as it would be written in an expression.
fn literal_of(value: &Value<'_>) -> Result<String, Error> {
    Ok(match value {
        Value::String(text) => types::go::quote(text),
        Value::Bytes(bytes) => format!("b{}", types::go::quote(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_nan() => "\"NaN\"".to_owned(),
        Value::Double(number) if number.is_infinite() => types::go::quote(&go::float(*number)),
        Value::Double(number) => format!("{number:.USUAL_PRECISION$}"),
        Value::Duration(_) => format!("duration({})", types::go::quote(&print(value))),
        Value::Timestamp(_) => format!("timestamp({})", types::go::quote(&print(value))),
        Value::List(list) => {
            let items: Result<Vec<String>, Error> = list.items().map(|item| literal_of(&item?)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Map(map) => {
            let entry =
                |(key, value): (Value<'_>, Outcome<'_>)| Ok((literal_of(&key)?, literal_of(&value?)?));
            let mut entries: Vec<(String, String)> =
                map.entries().map(entry).collect::<Result<_, Error>>()?;
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Object(_) | Value::Optional(_) => {
            let name = type_name(&value.type_of());
            return Err(Error::failed(format!("error during formatting: no formatting function for {name}")));
        }
        other => print(other),
    })
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

fn signed(value: i64, print: impl Fn(u64) -> String) -> String {
    format!("{}{}", if value < 0 { "-" } else { "" }, print(value.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_american_readers() {
        let check = |verb: u8, precision: usize, value: f64, expected: &str| {
            let written = write(Clause { verb, precision }, &Value::Double(value));
            assert_eq!(written.ok().as_deref(), Some(expected), "{value}");
        };
        check(b'f', 6, 1_234_567.891, "1,234,567.891000");
        check(b'f', 0, 1_234_567.5, "1,234,568");
        check(b'f', 6, -0.5, "-0.500000");
        check(b'f', 6, 123.0, "123.000000");
        check(b'f', 6, f64::NEG_INFINITY, "-∞");
        check(b'e', 6, 1_052.032_911_275, "1.052033×10⁰³");
        check(b'e', 2, 1_052.032_911_275, "1.052033×10⁰³");
        check(b'e', 6, -0.000_123, "-1.230000×10⁻⁰⁴");
        check(b'e', 6, 1e100, "1.000000×10¹⁰⁰");
        check(b'e', 6, f64::INFINITY, "∞");
        check(b's', 6, 1e21, "1e+21");
    }

    #[test]
    fn formats_are_read_to_their_end() {
        let clause = |verb, precision| Piece::Clause(Clause { verb, precision });
        let check = |format, expected: Vec<Piece<'_>>| {
            let found: Vec<Piece<'_>> =
                pieces(format).into_iter().filter(|piece| *piece != Piece::Text("")).collect();
            assert_eq!(found, expected, "{format}");
        };
        check(
            "a %% %.2f!",
            vec![Piece::Text("a "), Piece::Text("%"), Piece::Text(" "), clause(b'f', 2), Piece::Text("!")],
        );
        check("%", vec![Piece::End]);
        check("%z", vec![Piece::Unreadable("unrecognized formatting clause \"z\"".to_owned())]);
        let missing = "error while parsing precision: could not find end of precision specifier".to_owned();
        check("%.3", vec![Piece::Unreadable(missing)]);
    }
}
