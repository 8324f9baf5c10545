//! What operators and functions do. Their signatures, by which they were checked, stand in [`signatures`].
//!
//! [`signatures`]: super::signatures

use std::{borrow::Cow, cmp::Ordering, net::IpAddr, rc::Rc};

use regex::Regex;
use types::quantity::{Format as QuantityFormat, Quantity};

use super::{
    authorizer,
    eval::Budget,
    library::{Cidr, Format, Semver, Url, ip},
    lists, strings, time,
    value::{Error, List, Map, Outcome, Value},
};

/// An operator with one operand.
pub(super) fn unary<'a>(name: &str, value: &Value<'a>) -> Outcome<'a> {
    match (name, value) {
        ("!_", Value::Bool(value)) => Ok(Value::Bool(!value)),
        ("-_", Value::Int(value)) => value.checked_neg().map(Value::Int).ok_or_else(overflow),
        ("-_", Value::Double(value)) => Ok(Value::Double(-value)),
        _ => Err(Error::NoOverload),
    }
}

/// An operator with two operands.
pub(super) fn binary<'a>(
    name: &str,
    left: &Value<'a>,
    right: &Value<'a>,
    budget: &mut Budget,
) -> Outcome<'a> {
    spend_on(left, budget)?;
    spend_on(right, budget)?;
    match name {
        "_==_" => Ok(Value::Bool(left.equals(right))),
        "_!=_" => Ok(Value::Bool(!left.equals(right))),
        "_<_" => ordered(left, right, Ordering::is_lt),
        "_<=_" => ordered(left, right, Ordering::is_le),
        "_>_" => ordered(left, right, Ordering::is_gt),
        "_>=_" => ordered(left, right, Ordering::is_ge),
        "@in" => contains(left, right),
        "_[_]" => match left {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => Ok(Value::optional(at(inner, right)?.ok())),
            container => at(container, right)?,
        },
        "_[?_]" => match left {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => Ok(Value::optional(at(inner, right)?.ok())),
            container => Ok(Value::optional(at(container, right)?.ok())),
        },
        name => arithmetic(name, left, right),
    }
}

/// Comparing and combining long values costs by their length.
fn spend_on(value: &Value<'_>, budget: &mut Budget) -> Result<(), Error> {
    match value {
        Value::String(text) => budget.spend_on_text(text),
        Value::List(list) => budget.spend(list.len()),
        Value::Map(map) => budget.spend(map.len()),
        _ => Ok(()),
    }
}

fn ordered<'a>(left: &Value<'a>, right: &Value<'a>, holds: fn(Ordering) -> bool) -> Outcome<'a> {
    match left.compare(right) {
        Some(order) => Ok(Value::Bool(holds(order))),
        None if matches!((left, right), (Value::Double(_), _) | (_, Value::Double(_))) => {
            Ok(Value::Bool(false))
        }
        None => Err(Error::NoOverload),
    }
}

fn contains<'a>(item: &Value<'a>, container: &Value<'a>) -> Outcome<'a> {
    match container {
        Value::List(list) => {
            for other in list.items() {
                if other?.equals(item) {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        Value::Map(map) => Ok(Value::Bool(map.get(item).is_some())),
        _ => Err(Error::NoOverload),
    }
}

/// The inner result is an error if there is nothing at that place; the outer one if there cannot be.
fn at<'a>(container: &Value<'a>, index: &Value<'a>) -> Result<Outcome<'a>, Error> {
    let missing = || match container {
        Value::List(_) => Error::failed(format!("index out of bounds: {}", print(index))),
        _ => Error::failed(format!("no such key: {}", print(index))),
    };
    match (container, index) {
        (Value::List(list), index) => {
            let place = match index {
                Value::Int(place) => usize::try_from(*place).ok(),
                Value::Uint(place) => usize::try_from(*place).ok(),
                _ => return Err(Error::NoOverload),
            };
            Ok(place.and_then(|place| list.get(place)).unwrap_or_else(|| Err(missing())))
        }
        (Value::Map(map), key) => Ok(map.get(key).unwrap_or_else(|| Err(missing()))),
        (Value::Object(object), Value::String(key)) => Ok(object.get(key).unwrap_or_else(|| Err(missing()))),
        _ => Err(Error::NoOverload),
    }
}

pub(super) fn overflow() -> Error {
    Error::failed("integer overflow")
}

fn unsigned_overflow() -> Error {
    Error::failed("unsigned integer overflow")
}

fn duration_overflow() -> Error {
    Error::failed("duration overflow")
}

pub(super) fn arithmetic<'a>(name: &str, left: &Value<'a>, right: &Value<'a>) -> Outcome<'a> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => integers(name, *a, *b),
        (Value::Uint(a), Value::Uint(b)) => unsigned(name, *a, *b),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(match name {
            "_+_" => a + b,
            "_-_" => a - b,
            "_*_" => a * b,
            "_/_" => a / b,
            _ => return Err(Error::NoOverload),
        })),
        (Value::String(a), Value::String(b)) if name == "_+_" => Ok(Value::text(format!("{a}{b}"))),
        (Value::Bytes(a), Value::Bytes(b)) if name == "_+_" => {
            Ok(Value::Bytes([&a[..], &b[..]].concat().into()))
        }
        (Value::List(a), Value::List(b)) if name == "_+_" => a.plus(b).map(Value::List),
        (Value::Duration(a), Value::Duration(b)) => {
            let nanos = match name {
                "_+_" => a.checked_add(*b),
                "_-_" => a.checked_sub(*b),
                _ => return Err(Error::NoOverload),
            };
            nanos.map(Value::Duration).ok_or_else(duration_overflow)
        }
        (Value::Timestamp(at), Value::Duration(nanos)) if matches!(name, "_+_" | "_-_") => {
            let nanos = i128::from(*nanos) * if name == "_+_" { 1 } else { -1 };
            time::moved(*at, nanos).map(Value::Timestamp).ok_or_else(|| Error::failed("timestamp overflow"))
        }
        (Value::Duration(nanos), Value::Timestamp(at)) if name == "_+_" => {
            let moved = time::moved(*at, i128::from(*nanos));
            moved.map(Value::Timestamp).ok_or_else(|| Error::failed("timestamp overflow"))
        }
        (Value::Timestamp(a), Value::Timestamp(b)) if name == "_-_" => {
            time::between(*a, *b).map(Value::Duration).ok_or_else(duration_overflow)
        }
        _ => Err(Error::NoOverload),
    }
}

fn integers<'a>(name: &str, a: i64, b: i64) -> Outcome<'a> {
    let result = match name {
        "_+_" => a.checked_add(b),
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(Error::failed("division by zero")),
        "_%_" if b == 0 => return Err(Error::failed("modulus by zero")),
        "_/_" => a.checked_div(b),
        "_%_" => a.checked_rem(b),
        _ => return Err(Error::NoOverload),
    };
    result.map(Value::Int).ok_or_else(overflow)
}

fn unsigned<'a>(name: &str, a: u64, b: u64) -> Outcome<'a> {
    let result = match name {
        "_+_" => a.checked_add(b),
        "_-_" => a.checked_sub(b),
        "_*_" => a.checked_mul(b),
        "_/_" if b == 0 => return Err(Error::failed("division by zero")),
        "_%_" if b == 0 => return Err(Error::failed("modulus by zero")),
        "_/_" => a.checked_div(b),
        "_%_" => a.checked_rem(b),
        _ => return Err(Error::NoOverload),
    };
    result.map(Value::Uint).ok_or_else(unsigned_overflow)
}

/// A function; a method's first argument is what it is called on.
pub(super) fn call<'a>(name: &str, args: &[Value<'a>], budget: &mut Budget) -> Outcome<'a> {
    for arg in args {
        spend_on(arg, budget)?;
    }
    match args {
        [Value::Check(check), rest @ ..] => return authorizer::call(check, name, rest, budget),
        [Value::Decision(decision)] => return authorizer::told(decision, name),
        [Value::String(text), rest @ ..] => {
            if let Some(outcome) = strings::call(name, text, rest, budget) {
                return outcome;
            }
        }
        [Value::List(list), rest @ ..] => {
            if let Some(outcome) = lists::call(name, list, rest, budget) {
                return outcome;
            }
        }
        _ => {}
    }
    match name {
        "type" | "dyn" | "int" | "uint" | "double" | "bool" | "string" | "bytes" | "timestamp"
        | "duration" => convert(name, args),
        name if name.starts_with("optional.") => optional(name, args),
        name if name.starts_with("format.") => format(name, args),
        name => method(name, args),
    }
}

fn optional<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    match (name, args) {
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.of", [value]) => Ok(Value::some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => {
            Ok(Value::optional((!value.is_zero()).then(|| value.clone())))
        }
        _ => Err(Error::NoOverload),
    }
}

fn format<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    match (name, args) {
        ("format.named", [Value::String(name)]) => {
            Ok(Value::optional(Format::named(name).map(Value::Format)))
        }
        (name, []) => {
            let known = name.strip_prefix("format.").and_then(Format::named);
            known.map(Value::Format).ok_or(Error::NoOverload)
        }
        _ => Err(Error::NoOverload),
    }
}

/// `int(x)` and the like.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounds are checked first, and a double is as precise as it is"
)]
fn convert<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    let [value] = args else { return Err(Error::NoOverload) };
    let wrong =
        |from: &str, to: &str| Error::failed(format!("type conversion error from '{from}' to '{to}'"));
    Ok(match (name, value) {
        ("type", value) => Value::Type(value.type_of()),
        ("dyn", value)
        | ("int", value @ Value::Int(_))
        | ("uint", value @ Value::Uint(_))
        | ("double", value @ Value::Double(_))
        | ("bool", value @ Value::Bool(_))
        | ("string", value @ Value::String(_))
        | ("bytes", value @ Value::Bytes(_))
        | ("timestamp", value @ Value::Timestamp(_))
        | ("duration", value @ Value::Duration(_)) => value.clone(),
        ("int", Value::Uint(value)) => Value::Int(i64::try_from(*value).map_err(|_| overflow())?),
        ("int", Value::Double(value)) if *value > -(2_f64.powi(63)) && *value < 2_f64.powi(63) => {
            Value::Int(value.trunc() as i64)
        }
        ("int", Value::Double(_)) => return Err(overflow()),
        ("int", Value::String(text)) => Value::Int(text.parse().map_err(|_| wrong("string", "int"))?),
        ("int", Value::Timestamp(at)) => Value::Int(at.as_second()),
        ("int", Value::Duration(nanos)) => Value::Int(*nanos),
        ("uint", Value::Int(value)) => Value::Uint(u64::try_from(*value).map_err(|_| unsigned_overflow())?),
        ("uint", Value::Double(value)) if *value >= 0.0 && *value < 2_f64.powi(64) => {
            Value::Uint(value.trunc() as u64)
        }
        ("uint", Value::Double(_)) => return Err(unsigned_overflow()),
        ("uint", Value::String(text)) => Value::Uint(text.parse().map_err(|_| wrong("string", "uint"))?),
        ("double", Value::Int(value)) => Value::Double(*value as f64),
        ("double", Value::Uint(value)) => Value::Double(*value as f64),
        ("double", Value::String(text)) => {
            Value::Double(text.parse().map_err(|_| wrong("string", "double"))?)
        }
        ("bool", Value::String(text)) => match text.as_ref() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Value::Bool(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Value::Bool(false),
            _ => return Err(wrong("string", "bool")),
        },
        ("bytes", Value::String(text)) => Value::Bytes(text.as_bytes().into()),
        ("string", Value::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes);
            Value::text(text.map_err(|_| Error::failed("invalid UTF-8 in bytes, cannot convert to string"))?)
        }
        (
            "string",
            value @ (Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
            | Value::Ip(_)
            | Value::Cidr(_)),
        ) => Value::text(print(value)),
        ("timestamp", Value::String(text)) => Value::Timestamp(
            time::timestamp(text).ok_or_else(|| wrong("string", "google.protobuf.Timestamp"))?,
        ),
        ("timestamp", Value::Int(seconds)) => {
            let at = jiff::Timestamp::from_second(*seconds);
            Value::Timestamp(at.map_err(|_| Error::failed("timestamp overflow"))?)
        }
        ("duration", Value::String(text)) => {
            Value::Duration(time::duration(text).ok_or_else(|| wrong("string", "google.protobuf.Duration"))?)
        }
        ("duration", Value::Int(nanos)) => Value::Duration(*nanos),
        _ => return Err(Error::NoOverload),
    })
}

/// Functions of everything that is neither text nor a list.
fn method<'a>(name: &str, args: &[Value<'a>]) -> Outcome<'a> {
    match args {
        [Value::Bytes(bytes)] if name == "size" => Ok(size(bytes.len())),
        [Value::Map(map)] if name == "size" => Ok(size(map.len())),
        [Value::Int(count)] if name == "lists.range" => lists::range(*count),
        [Value::Optional(inner)] => match (name, inner) {
            ("hasValue", inner) => Ok(Value::Bool(inner.is_some())),
            ("value", Some(inner)) => Ok((**inner).clone()),
            ("value", None) => Err(Error::failed("optional.none() dereference")),
            _ => Err(Error::NoOverload),
        },
        [Value::Timestamp(at), zone @ ..] => timestamp(name, *at, zone),
        [Value::Duration(nanos)] => match name {
            "getHours" => Ok(Value::Int(nanos / 3_600_000_000_000)),
            "getMinutes" => Ok(Value::Int(nanos / 60_000_000_000)),
            "getSeconds" => Ok(Value::Int(nanos / 1_000_000_000)),
            "getMilliseconds" => Ok(Value::Int(nanos / 1_000_000 % 1000)),
            _ => Err(Error::NoOverload),
        },
        [Value::Quantity(quantity), rest @ ..] => quantities(name, quantity, rest),
        [Value::Ip(address)] => addresses(name, *address),
        [Value::Cidr(block), rest @ ..] => blocks(name, *block, rest),
        [Value::Url(url)] => urls(name, url),
        [Value::Semver(version), rest @ ..] => versions(name, version, rest),
        [Value::Format(format), Value::String(text)] if name == "validate" => {
            let problems = format.validate(text);
            let problems =
                (!problems.is_empty()).then(|| Value::list(problems.into_iter().map(Value::text).collect()));
            Ok(Value::optional(problems))
        }
        _ => Err(Error::NoOverload),
    }
}

pub(super) fn size<'a>(len: usize) -> Value<'a> {
    Value::Int(i64::try_from(len).unwrap_or(i64::MAX))
}

fn timestamp<'a>(name: &str, at: jiff::Timestamp, zone: &[Value<'a>]) -> Outcome<'a> {
    let zone = match zone {
        [] => None,
        [Value::String(zone)] => Some(zone.as_ref()),
        _ => return Err(Error::NoOverload),
    };
    let unknown = || Error::failed(format!("unknown time zone {}", zone.unwrap_or_default()));
    let at = time::in_zone(at, zone).ok_or_else(unknown)?;
    Ok(Value::Int(i64::from(match name {
        "getFullYear" => at.year(),
        "getMonth" => i16::from(at.month()) - 1,
        "getDayOfYear" => at.day_of_year() - 1,
        "getDayOfMonth" => i16::from(at.day()) - 1,
        "getDate" => i16::from(at.day()),
        "getDayOfWeek" => i16::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i16::from(at.hour()),
        "getMinutes" => i16::from(at.minute()),
        "getSeconds" => i16::from(at.second()),
        "getMilliseconds" => at.millisecond(),
        _ => return Err(Error::NoOverload),
    })))
}

fn sign<'a>(order: Ordering) -> Value<'a> {
    Value::Int(order as i64)
}

/// Reads a quantity.
pub(super) fn quantity<'a>(text: &str) -> Outcome<'a> {
    let parsed: Result<Quantity, _> = text.parse();
    parsed
        .map(|quantity| Value::Quantity(Rc::new(quantity)))
        .map_err(|error| Error::failed(error.to_string()))
}

fn quantities<'a>(name: &str, quantity: &Quantity, rest: &[Value<'a>]) -> Outcome<'a> {
    let wrap = |quantity: Quantity| Value::Quantity(Rc::new(quantity));
    Ok(match (name, rest) {
        ("sign", []) => Value::Int(i64::from(quantity.is_positive()) - i64::from(quantity.is_negative())),
        ("isInteger", []) => Value::Bool(quantity.is_integer() && quantity.units().is_some()),
        ("asInteger", []) => {
            let units = quantity.units().filter(|_| quantity.is_integer());
            Value::Int(units.ok_or_else(|| Error::failed("cannot convert value to integer"))?)
        }
        ("asApproximateFloat", []) => Value::Double(approximate(quantity)),
        ("isGreaterThan", [Value::Quantity(other)]) => Value::Bool(quantity > other),
        ("isLessThan", [Value::Quantity(other)]) => Value::Bool(quantity < other),
        ("compareTo", [Value::Quantity(other)]) => sign(quantity.cmp(other)),
        ("add", [Value::Quantity(other)]) => wrap(quantity + other),
        ("sub", [Value::Quantity(other)]) => wrap(quantity - other),
        ("add", [Value::Int(other)]) => {
            wrap(quantity + &Quantity::from_units(*other, QuantityFormat::DecimalExponent))
        }
        ("sub", [Value::Int(other)]) => {
            wrap(quantity - &Quantity::from_units(*other, QuantityFormat::DecimalExponent))
        }
        _ => return Err(Error::NoOverload),
    })
}

#[expect(clippy::cast_precision_loss, reason = "approximate by name")]
fn approximate(quantity: &Quantity) -> f64 {
    match quantity.millis() {
        Some(millis) => millis as f64 / 1000.0,
        None => quantity.units_saturating() as f64,
    }
}

fn addresses<'a>(name: &str, address: IpAddr) -> Outcome<'a> {
    let link_local_multicast = match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => matches!(address.segments(), [first, ..] if first & 0xff0f == 0xff02),
    };
    let link_local_unicast = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    Ok(Value::Bool(match name {
        "family" => return Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => address.is_unspecified(),
        "isLoopback" => address.is_loopback(),
        "isLinkLocalMulticast" => link_local_multicast,
        "isLinkLocalUnicast" => link_local_unicast,
        "isGlobalUnicast" => {
            let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
            !(special || link_local_unicast || broadcast)
        }
        _ => return Err(Error::NoOverload),
    }))
}

/// Reads an address.
pub(super) fn address<'a>(text: &str) -> Outcome<'a> {
    let unreadable = || {
        let why = format!("ParseAddr({text:?}): unable to parse IP");
        Error::failed(format!("IP Address {text:?} parse error during conversion from string: {why}"))
    };
    ip(text).map(Value::Ip).ok_or_else(unreadable)
}

/// Reads a block.
pub(super) fn block<'a>(text: &str) -> Outcome<'a> {
    let unreadable =
        || Error::failed(format!("network address parse error during conversion from string: {text:?}"));
    Cidr::parse(text).map(Value::Cidr).ok_or_else(unreadable)
}

fn blocks<'a>(name: &str, cidr: Cidr, rest: &[Value<'a>]) -> Outcome<'a> {
    Ok(match (name, rest) {
        ("ip", []) => Value::Ip(cidr.address),
        ("prefixLength", []) => Value::Int(cidr.prefix.into()),
        ("masked", []) => Value::Cidr(cidr.masked()),
        ("containsIP", [Value::Ip(address)]) => Value::Bool(cidr.contains(*address)),
        ("containsIP", [Value::String(text)]) => match address(text)? {
            Value::Ip(address) => Value::Bool(cidr.contains(address)),
            _ => return Err(Error::NoOverload),
        },
        ("containsCIDR", [Value::Cidr(other)]) => Value::Bool(cidr.contains_block(*other)),
        ("containsCIDR", [Value::String(text)]) => match block(text)? {
            Value::Cidr(other) => Value::Bool(cidr.contains_block(other)),
            _ => return Err(Error::NoOverload),
        },
        _ => return Err(Error::NoOverload),
    })
}

fn urls<'a>(name: &str, url: &Url) -> Outcome<'a> {
    Ok(Value::text(match name {
        "getScheme" => url.scheme.as_str(),
        "getHost" => url.host.as_str(),
        "getHostname" => url.hostname(),
        "getPort" => url.port(),
        "getEscapedPath" => url.path.as_str(),
        "getQuery" => {
            let list = |values: Vec<String>| Value::list(values.into_iter().map(Value::text).collect());
            let entries =
                url.query().into_iter().map(|(key, values)| (Value::text(key), list(values))).collect();
            return Ok(Value::Map(Map::Owned(Rc::new(entries))));
        }
        _ => return Err(Error::NoOverload),
    }))
}

fn versions<'a>(name: &str, version: &Semver, rest: &[Value<'a>]) -> Outcome<'a> {
    let number = |index: usize| Value::Int(i64::try_from(version.numbers[index]).unwrap_or(i64::MAX));
    Ok(match (name, rest) {
        ("major", []) => number(0),
        ("minor", []) => number(1),
        ("patch", []) => number(2),
        ("isGreaterThan", [Value::Semver(other)]) => Value::Bool(version.compare(other).is_gt()),
        ("isLessThan", [Value::Semver(other)]) => Value::Bool(version.compare(other).is_lt()),
        ("compareTo", [Value::Semver(other)]) => sign(version.compare(other)),
        _ => return Err(Error::NoOverload),
    })
}

/// The items in the order of their keys; what has no order is an error.
pub(super) fn sorted<'a>(
    mut keyed: Vec<(Value<'a>, Value<'a>)>,
    budget: &mut Budget,
) -> Result<Vec<Value<'a>>, Error> {
    budget.spend(keyed.len() * keyed.len().checked_ilog2().unwrap_or(0) as usize)?;
    if keyed.windows(2).any(|pair| pair[0].0.compare(&pair[1].0).is_none()) {
        return Err(Error::NoOverload);
    }
    keyed.sort_by(|a, b| a.0.compare(&b.0).unwrap_or(Ordering::Equal));
    Ok(keyed.into_iter().map(|(_, item)| item).collect())
}

/// Compiles a pattern.
pub(super) fn pattern(text: &str) -> Result<Regex, Error> {
    crate::crd::pattern::compile(text).map_err(Error::Failed)
}

/// A value as text, as `string()` and `%s` have it.
pub(super) fn print(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => crate::crd::go::float(*value),
        Value::String(text) => text.clone().into_owned(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Duration(nanos) => time::print_duration(*nanos),
        Value::Timestamp(at) => at.to_string(),
        Value::List(list) => print_list(list),
        Value::Map(map) => {
            let mut entries: Vec<String> = map
                .entries()
                .map(|(key, value)| {
                    format!("{}: {}", print(&key), value.map_or_else(|e| e.to_string(), |v| print(&v)))
                })
                .collect();
            entries.sort_unstable();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Object(_) => "object".to_owned(),
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::Optional(Some(inner)) => format!("optional({})", print(inner)),
        Value::Type(r#type) => r#type.to_string().split('(').next().unwrap_or_default().to_owned(),
        Value::Quantity(quantity) => quantity.to_string(),
        Value::Ip(address) => address.to_string(),
        Value::Cidr(cidr) => cidr.to_string(),
        Value::Url(url) => format!("{}://{}{}", url.scheme, url.host, url.path),
        Value::Semver(version) => version.numbers.map(|number| number.to_string()).join("."),
        Value::Format(format) => format.to_string(),
        Value::Check(_) | Value::Decision(_) => value.type_of().to_string(),
    }
}

fn print_list(list: &List<'_>) -> String {
    let items: Vec<String> =
        list.items().map(|item| item.map_or_else(|error| error.to_string(), |item| print(&item))).collect();
    format!("[{}]", items.join(", "))
}

/// Text that borrows where it can.
pub(super) fn part<'a>(text: &Cow<'a, str>, start: usize, end: usize) -> Value<'a> {
    Value::String(match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[start..end]),
        Cow::Owned(text) => Cow::Owned(text[start..end].to_owned()),
    })
}
