//! The values of an expression: a view of JSON that is read only where the expression looks, and what was computed.

use std::{borrow::Cow, cmp::Ordering, net::IpAddr, rc::Rc};

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map as JsonMap, Value as Json};
use types::quantity::Quantity;

use super::{
    authorizer::{Check, Decision},
    library::{Cidr, Format, Semver, Url},
    time,
    types::{Library, ListKind, Object as ObjectType, Type},
};

static ATOMIC: ListKind = ListKind::Atomic;

/// A value, borrowing from the object it is a part of.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// `null`
    Null,
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    String(Cow<'a, str>),
    /// Binary data.
    Bytes(Rc<[u8]>),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A point in time.
    Timestamp(Timestamp),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// A structure.
    Object(Object<'a>),
    /// A value that may be absent.
    Optional(Option<Rc<Value<'a>>>),
    /// A type, as `type()` gives it.
    Type(Type),
    /// `kubernetes.Quantity`
    Quantity(Rc<Quantity>),
    /// `net.IP`
    Ip(IpAddr),
    /// `net.CIDR`
    Cidr(Cidr),
    /// `kubernetes.URL`
    Url(Rc<Url>),
    /// `kubernetes.Semver`
    Semver(Rc<Semver>),
    /// `kubernetes.NamedFormat`
    Format(Format),
    /// A question to the authorizer.
    Check(Check<'a>),
    /// Its answer.
    Decision(Rc<Decision>),
}

/// A list: of JSON, or computed.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// A list of the object.
    Json(&'a [Json], &'a Type, &'a ListKind),
    /// A list that the expression made.
    Owned(Rc<Vec<Value<'a>>>),
}

/// A map: of JSON, or computed.
#[derive(Debug, Clone)]
pub enum Map<'a> {
    /// A map of the object, with the type of its values.
    Json(&'a JsonMap<String, Json>, &'a Type),
    /// A map that the expression made.
    Owned(Rc<Vec<(Value<'a>, Value<'a>)>>),
}

/// A structure of the object, with its declared fields.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    json: &'a JsonMap<String, Json>,
    r#type: &'a ObjectType,
}

/// Why an evaluation gave no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The values met do not fit the function.
    #[error("no such overload")]
    NoOverload,
    /// What cel-go says.
    #[error("{0}")]
    Failed(String),
    /// The expression does more work than it may.
    #[error("operation cancelled: actual cost limit exceeded")]
    Budget,
}

impl Error {
    pub(super) fn failed(message: impl Into<String>) -> Error {
        Error::Failed(message.into())
    }
}

/// What evaluating gives.
pub type Outcome<'a> = Result<Value<'a>, Error>;

impl<'a> Value<'a> {
    /// The view of `json` that its declared type allows. What is of another type, as an object may be that was stored
    /// under another schema, is an error where it is looked at.
    pub fn view(json: &'a Json, r#type: &'a Type) -> Outcome<'a> {
        let other_than = |expected: &str| {
            Err(Error::failed(format!(
                "invalid data, expected {expected}, got {}",
                crate::crd::go::type_name(json)
            )))
        };
        match (r#type, json) {
            (_, Json::Null) => Ok(Value::Null),
            (Type::Wrong, json) => Ok(Value::any(json)),
            (Type::Object(object), Json::Object(json)) => Ok(Value::Object(Object { json, r#type: object })),
            (Type::Map(entry), Json::Object(json)) => Ok(Value::Map(Map::Json(json, &entry.1))),
            (Type::Object(_) | Type::Map(_), _) => {
                Err(Error::failed("invalid data, expected a map for the provided schema with type=object"))
            }
            (Type::List(list), Json::Array(items)) => {
                Ok(Value::List(List::Json(items, &list.item, &list.kind)))
            }
            (Type::List(_), _) => {
                Err(Error::failed("invalid data, expected an array for the provided schema with type=array"))
            }
            (Type::String | Type::Bytes | Type::Duration | Type::Timestamp, Json::String(text)) => {
                view_text(text, r#type)
            }
            (Type::String | Type::Bytes | Type::Duration | Type::Timestamp, _) => other_than("string"),
            (Type::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
            (Type::Bool, _) => other_than("bool"),
            (Type::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
            (Type::Double, _) => other_than("float"),
            (Type::Int, Json::Number(number)) if number.is_i64() => {
                Ok(Value::Int(number.as_i64().unwrap_or_default()))
            }
            (Type::Int, _) => other_than("int"),
            // Of the types that a schema declares, only int-or-string is left.
            (_, Json::String(text)) => Ok(Value::String(Cow::Borrowed(text))),
            (_, Json::Number(number)) if number.is_i64() => {
                Ok(Value::Int(number.as_i64().unwrap_or_default()))
            }
            _ => Err(Error::failed(
                "invalid data, expected XIntOrString value to be either a string or integer",
            )),
        }
    }

    /// The view of `json` about which nothing is declared.
    pub fn any(json: &'a Json) -> Value<'a> {
        static ANY: Type = Type::Wrong;
        static KIND: ListKind = ListKind::Atomic;
        match json {
            Json::Null => Value::Null,
            Json::Bool(value) => Value::Bool(*value),
            Json::Number(number) => match number.as_i64() {
                Some(integer) => Value::Int(integer),
                None => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Value::String(Cow::Borrowed(text)),
            Json::Array(items) => Value::List(List::Json(items, &ANY, &KIND)),
            Json::Object(map) => Value::Map(Map::Json(map, &ANY)),
        }
    }

    /// Text that was computed.
    pub(super) fn text(text: impl Into<String>) -> Value<'a> {
        Value::String(Cow::Owned(text.into()))
    }

    /// A list that was computed.
    pub(super) fn list(items: Vec<Value<'a>>) -> Value<'a> {
        Value::List(List::Owned(Rc::new(items)))
    }

    /// An optional that holds a value.
    pub(super) fn some(value: Value<'a>) -> Value<'a> {
        Value::Optional(Some(Rc::new(value)))
    }

    /// An optional, or the error if it is one other than "not there".
    pub(super) fn optional(value: Option<Value<'a>>) -> Value<'a> {
        Value::Optional(value.map(Rc::new))
    }

    /// The type, as `type()` tells it.
    pub(super) fn type_of(&self) -> Type {
        match self {
            Value::Null => Type::Null,
            Value::Bool(_) => Type::Bool,
            Value::Int(_) => Type::Int,
            Value::Uint(_) => Type::Uint,
            Value::Double(_) => Type::Double,
            Value::String(_) => Type::String,
            Value::Bytes(_) => Type::Bytes,
            Value::Duration(_) => Type::Duration,
            Value::Timestamp(_) => Type::Timestamp,
            Value::List(_) => Type::list(Type::Dyn),
            Value::Map(_) | Value::Object(_) => Type::map(Type::Dyn, Type::Dyn),
            Value::Optional(_) => Type::optional(Type::Dyn),
            Value::Type(_) => Type::of(Type::Dyn),
            Value::Quantity(_) => Type::Library(Library::Quantity),
            Value::Ip(_) => Type::Library(Library::Ip),
            Value::Cidr(_) => Type::Library(Library::Cidr),
            Value::Url(_) => Type::Library(Library::Url),
            Value::Semver(_) => Type::Library(Library::Semver),
            Value::Format(_) => Type::Library(Library::Format),
            Value::Check(check) => Type::Library(check.stage),
            Value::Decision(_) => Type::Library(Library::Decision),
        }
    }

    /// Whether it is what a value is before anything is put in: `optional.ofNonZeroValue`.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Value::Null => true,
            Value::Bool(value) => !value,
            Value::Int(value) => *value == 0,
            Value::Uint(value) => *value == 0,
            Value::Double(value) => *value == 0.0,
            Value::String(text) => text.is_empty(),
            Value::Bytes(bytes) => bytes.is_empty(),
            Value::Duration(nanos) => *nanos == 0,
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            Value::Object(object) => object.json.is_empty(),
            Value::Optional(inner) => inner.is_none(),
            _ => false,
        }
    }

    /// Equality as the language has it: numbers by value whatever their type, everything else within its type.
    pub fn equals(&self, other: &Value<'_>) -> bool {
        match (self, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(a), Value::Bool(b)) => a == b,
            (Value::String(a), Value::String(b)) => a == b,
            (Value::Bytes(a), Value::Bytes(b)) => a == b,
            (Value::Duration(a), Value::Duration(b)) => a == b,
            (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
            (Value::List(a), Value::List(b)) => a.equals(b),
            (Value::Map(a), Value::Map(b)) => {
                a.len() == b.len()
                    && a.entries().all(|(key, value)| {
                        matches!((value, b.get(&key)), (Ok(value), Some(Ok(other))) if value.equals(&other))
                    })
            }
            (Value::Object(a), Value::Object(b)) => a.equals(*b),
            (Value::Optional(a), Value::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => a.equals(b),
                (a, b) => a.is_none() && b.is_none(),
            },
            (Value::Type(a), Value::Type(b)) => same_type(a, b),
            (Value::Quantity(a), Value::Quantity(b)) => a == b,
            (Value::Ip(a), Value::Ip(b)) => a == b,
            (Value::Cidr(a), Value::Cidr(b)) => a == b,
            (Value::Url(a), Value::Url(b)) => a == b,
            (Value::Semver(a), Value::Semver(b)) => a == b,
            (Value::Format(a), Value::Format(b)) => a == b,
            (a, b) => a.compare_numbers(b) == Some(Ordering::Equal),
        }
    }

    /// The order of two values that have one.
    pub(super) fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
            (Value::Bytes(a), Value::Bytes(b)) => Some(a.cmp(b)),
            (Value::Duration(a), Value::Duration(b)) => Some(a.cmp(b)),
            (Value::Timestamp(a), Value::Timestamp(b)) => Some(a.cmp(b)),
            (a, b) => a.compare_numbers(b),
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a double next to an integer is compared as a double, as in cel-go"
    )]
    fn compare_numbers(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
            (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
            (Value::Int(a), Value::Uint(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Uint(a), Value::Int(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Value::Int(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
            (Value::Uint(a), Value::Double(b)) => (*a as f64).partial_cmp(b),
            (Value::Double(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)),
            (Value::Double(a), Value::Uint(b)) => a.partial_cmp(&(*b as f64)),
            _ => None,
        }
    }
}

/// Text of a string that stands for something else.
fn view_text<'a>(text: &'a str, r#type: &Type) -> Outcome<'a> {
    Ok(match r#type {
        Type::Timestamp => {
            let read = || time::timestamp(text).or_else(|| time::date(text));
            let at = if text.is_empty() { Some(Timestamp::UNIX_EPOCH) } else { read() };
            Value::Timestamp(
                at.ok_or_else(|| Error::failed(format!("Invalid date-time formatted string {text}")))?,
            )
        }
        Type::Duration => {
            let nanos = crate::crd::formats::duration(text);
            let wrong =
                || Error::failed(format!("Invalid duration {text}: unable to parse {text} as duration"));
            Value::Duration(nanos.ok_or_else(wrong)?)
        }
        Type::Bytes => {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            Value::Bytes(
                bytes.map_err(|_| Error::failed(format!("Invalid byte formatted string {text}")))?.into(),
            )
        }
        _ => Value::String(Cow::Borrowed(text)),
    })
}

/// Types compare by their outermost name: `type([1]) == list`.
fn same_type(a: &Type, b: &Type) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
        && match (a, b) {
            (Type::Library(a), Type::Library(b)) => a == b,
            _ => true,
        }
}

impl<'a> List<'a> {
    /// How many items.
    pub fn len(&self) -> usize {
        match self {
            List::Json(items, ..) => items.len(),
            List::Owned(items) => items.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item at a place.
    pub fn get(&self, index: usize) -> Option<Outcome<'a>> {
        match self {
            List::Json(items, item, _) => items.get(index).map(|json| Value::view(json, item)),
            List::Owned(items) => items.get(index).cloned().map(Ok),
        }
    }

    /// All items in order.
    pub fn items(&self) -> impl Iterator<Item = Outcome<'a>> + use<'a> {
        let list = self.clone();
        (0..self.len()).filter_map(move |index| list.get(index))
    }

    /// All items, or the first that cannot be read.
    pub(super) fn values(&self) -> Result<Vec<Value<'a>>, Error> {
        self.items().collect()
    }

    fn kind(&self) -> &'a ListKind {
        match self {
            List::Json(_, _, kind) => kind,
            List::Owned(_) => &ATOMIC,
        }
    }

    fn equals(&self, other: &List<'_>) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let pairs = || self.items().zip(other.items());
        let same = |a: &Outcome<'_>, b: &Outcome<'_>| matches!((a, b), (Ok(a), Ok(b)) if a.equals(b));
        match self.kind() {
            ListKind::Atomic => pairs().all(|(a, b)| same(&a, &b)),
            // Both are free of duplicates, or validation would not have come this far.
            ListKind::Set | ListKind::Map(_) => {
                self.items().all(|mine| other.items().any(|other| same(&mine, &other)))
            }
        }
    }

    /// `a + b`: sets grow, map lists are merged by key, other lists are put one after the other.
    pub(super) fn plus(&self, other: &List<'a>) -> Result<List<'a>, Error> {
        let mut items = self.values()?;
        for added in other.values()? {
            let place = match self.kind() {
                ListKind::Atomic => None,
                ListKind::Set => items.iter().position(|item| item.equals(&added)),
                ListKind::Map(keys) => items.iter().position(|item| same_keys(item, &added, keys)),
            };
            match place {
                Some(place) => items[place] = added,
                None => items.push(added),
            }
        }
        Ok(List::Owned(Rc::new(items)))
    }
}

fn same_keys(a: &Value<'_>, b: &Value<'_>, keys: &[String]) -> bool {
    let (Value::Object(a), Value::Object(b)) = (a, b) else { return false };
    keys.iter().all(|key| a.json.get(key) == b.json.get(key))
}

impl<'a> Map<'a> {
    /// How many entries.
    pub fn len(&self) -> usize {
        match self {
            Map::Json(json, _) => json.len(),
            Map::Owned(entries) => entries.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a key.
    pub fn get(&self, key: &Value<'_>) -> Option<Outcome<'a>> {
        match self {
            Map::Json(json, value) => {
                let Value::String(key) = key else { return None };
                json.get(key.as_ref()).map(|json| Value::view(json, value))
            }
            Map::Owned(entries) => {
                entries.iter().find(|(known, _)| known.equals(key)).map(|(_, value)| Ok(value.clone()))
            }
        }
    }

    /// All keys with their values.
    pub fn entries(&self) -> Box<dyn Iterator<Item = (Value<'a>, Outcome<'a>)> + 'a> {
        match self {
            Map::Json(json, r#type) => {
                let (json, r#type) = (*json, *r#type);
                Box::new(
                    json.iter().map(move |(key, json)| {
                        (Value::String(Cow::Borrowed(key)), Value::view(json, r#type))
                    }),
                )
            }
            Map::Owned(entries) => {
                let entries = Rc::clone(entries);
                Box::new((0..entries.len()).map(move |i| (entries[i].0.clone(), Ok(entries[i].1.clone()))))
            }
        }
    }
}

impl<'a> Object<'a> {
    /// A field by the name an expression uses; none if the object does not have it. A `null` is not there either.
    pub fn get(&self, field: &str) -> Option<Outcome<'a>> {
        let declared = self.r#type.field(field)?;
        let json = self.json.get(&declared.name).filter(|json| !json.is_null())?;
        Some(Value::view(json, &declared.r#type))
    }

    fn equals(&self, other: Object<'_>) -> bool {
        let declared = |name: &str| self.r#type.fields.values().any(|field| field.name == name);
        self.json.len() == other.json.len()
            && self.r#type.fields.keys().all(|name| match (self.get(name), other.get(name)) {
                (None, None) => true,
                (Some(Ok(mine)), Some(Ok(other))) => mine.equals(&other),
                _ => false,
            })
            && self
                .json
                .iter()
                .filter(|(name, _)| !declared(name))
                .all(|(name, mine)| other.json.get(name).is_none_or(|other| mine == other))
    }
}
