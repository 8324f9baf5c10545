//! Reads JSON into a type, as a Kubernetes API server does.
//!
//! The result stands for exactly one Go value: what Go would hold as the zero value of a field that is no pointer is
//! absent, wherever that came from (`0`, `""`, `null`, `{}` or nothing at all), while empty lists and maps, which Go
//! tells from nil ones, stay. Quantities and times are in their canonical form; times keep their fraction.
//!
//! Defaults are not applied here, and nothing is judged but types and spelling.

mod error;
mod special;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

pub use error::{DecodeError, Mismatch, StrictError};

use crate::json::{self, Scan, unquote};
use crate::pack::{Id, Pack, Shape, Type};
use crate::value::{float, is_zero, zero};

/// What a document became, and what a strict reader holds against it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object.
    pub value: Value,
    /// Unknown and duplicate fields, in the order of the document.
    pub strict: Vec<StrictError>,
}

/// Reads a JSON text as a value of a type.
pub fn decode(of: Type, text: &[u8]) -> Result<Decoded, DecodeError> {
    json::check(text).map_err(DecodeError::Syntax)?;
    let mut decoder = Decoder::new(of.pack(), Scan::new(text));
    decoder.strict = Some(Strict::default());
    let mut value = Value::Null;
    decoder.read(of.id(), &mut value)?;
    decoder.complete(of.id(), &mut value);
    Ok(Decoded { value, strict: decoder.strict.map_or_else(Vec::new, |strict| strict.errors) })
}

/// Reads a tree as a value of a type. Nothing is reported twice in a tree, and its members are in the tree's order.
pub fn decode_value(of: Type, tree: &Value) -> Result<Decoded, DecodeError> {
    match tree::read(of.pack(), of.id(), tree) {
        Some(value) => Ok(Decoded { value, strict: Vec::new() }),
        None => decode(of, tree.to_string().as_bytes()),
    }
}

struct Decoder<'a> {
    pack: &'static Pack,
    scan: Scan<'a>,
    /// The first error that did not end the reading.
    saved: Option<DecodeError>,
    /// The struct whose field is being read; empty at the root.
    inside: &'static str,
    /// The fields on the way there, names of inlined structs included.
    fields: Vec<&'static str>,
    /// `None` where Kubernetes calls a second, lenient reader for a part of the document.
    strict: Option<Strict<'a>>,
}

/// Strict errors, and the path on which the next one would lie.
#[derive(Default)]
struct Strict<'a> {
    errors: Vec<StrictError>,
    /// How many bytes of paths were looked at.
    seen: usize,
    path: Vec<Step<'a>>,
}

enum Step<'a> {
    Key(Cow<'a, str>),
    Index(usize),
}

impl<'a> Decoder<'a> {
    fn new(pack: &'static Pack, scan: Scan<'a>) -> Self {
        Self { pack, scan, saved: None, inside: "", fields: Vec::new(), strict: None }
    }

    /// Reads a whole document: an error that ends the reading counts more than one before it that did not.
    fn read(&mut self, id: Id, slot: &mut Value) -> Result<(), DecodeError> {
        self.value(id, slot).map_err(|error| self.locate(error))?;
        self.saved.take().map_or(Ok(()), Err)
    }

    /// Reads the next value into a slot. The slot holds what the same field was given before, or null.
    fn value(&mut self, id: Id, slot: &mut Value) -> Result<(), DecodeError> {
        let first = self.scan.peek();
        let mut id = id;
        while let Shape::Pointer(to) = self.pack.def(id).shape {
            if first == b'n' {
                self.scan.literal();
                *slot = Value::Null;
                return Ok(());
            }
            id = to;
        }
        match (self.pack.def(id).shape, first) {
            (
                Shape::Time
                | Shape::MicroTime
                | Shape::Quantity
                | Shape::IntOrString
                | Shape::Raw
                | Shape::Any
                | Shape::SchemaOrBool(_)
                | Shape::SchemaOrArray(_)
                | Shape::SchemaOrStrings(_),
                _,
            ) => return self.special(id, slot),
            (Shape::Struct, b'{') => return self.structure(id, slot),
            (Shape::Map(item), b'{') => return self.map(item, slot),
            (Shape::List(item), b'[') => return self.list(item, slot),
            (Shape::Bytes, b'[') => self.bytes(slot),
            (_, b'{' | b'[') => {
                let text = self.scan.skip();
                self.mismatch(Mismatch::new(text, self.pack.def(id).go));
            }
            _ => self.literal(id, slot),
        }
        Ok(())
    }

    fn structure(&mut self, id: Id, slot: &mut Value) -> Result<(), DecodeError> {
        let def = self.pack.def(id);
        let mut members = into_object(slot);
        let fresh = members.is_empty();
        let mut seen = 0_u128;
        let (outside, depth) = (self.inside, self.fields.len());
        let mut more = self.scan.enter();
        while more {
            let key = self.scan.key();
            if let Some(place) = def.member(&key) {
                let member = &def.members[place];
                let again = seen & 1 << place != 0;
                seen |= 1 << place;
                if again {
                    self.strict_error(StrictError::duplicate, member.name);
                }
                self.inside = def.go_short();
                self.fields.extend_from_slice(&member.through);
                self.fields.push(member.name);
                self.enter(|| Step::Key(Cow::Borrowed(member.name)));
                let known = if fresh && !again { None } else { members.remove(member.name) };
                let mut slot = known.unwrap_or(Value::Null);
                self.value(member.id, &mut slot)?;
                if !is_zero(self.pack, member.id, &slot) {
                    members.insert(member.name.to_owned(), slot);
                }
                self.leave();
                self.fields.truncate(depth);
                self.inside = outside;
            } else {
                self.strict_error(StrictError::unknown, &key);
                self.scan.skip();
            }
            more = self.scan.more();
        }
        *slot = Value::Object(members);
        Ok(())
    }

    fn map(&mut self, item: Id, slot: &mut Value) -> Result<(), DecodeError> {
        let mut members = into_object(slot);
        // Only where an earlier occurrence of the whole map left something, its keys are no evidence of duplicates.
        let mut seen = (!members.is_empty()).then(BTreeSet::new);
        let mut more = self.scan.enter();
        while more {
            let key = self.scan.key();
            let again = match &mut seen {
                Some(seen) => !seen.insert(key.clone()),
                None => members.contains_key(&*key),
            };
            if again {
                self.strict_error(StrictError::duplicate, &key);
            }
            self.enter(|| Step::Key(key.clone()));
            let mut slot = Value::Null;
            self.value(item, &mut slot)?;
            self.complete(item, &mut slot);
            self.leave();
            members.insert(key.into_owned(), slot);
            more = self.scan.more();
        }
        *slot = Value::Object(members);
        Ok(())
    }

    fn list(&mut self, item: Id, slot: &mut Value) -> Result<(), DecodeError> {
        let mut items = match slot.take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let mut length = 0;
        let mut more = self.scan.enter();
        while more {
            if length == items.len() {
                items.push(Value::Null);
            }
            self.enter(|| Step::Index(length));
            self.value(item, &mut items[length])?;
            self.complete(item, &mut items[length]);
            self.leave();
            length += 1;
            more = self.scan.more();
        }
        items.truncate(length);
        *slot = Value::Array(items);
        Ok(())
    }

    /// Go takes a list of small numbers for bytes, too.
    fn bytes(&mut self, slot: &mut Value) {
        let mut bytes = Vec::new();
        let mut more = self.scan.enter();
        while more {
            let text = self.scan.skip();
            let byte = str::from_utf8(text).ok().and_then(|text| text.parse::<u8>().ok());
            match (byte, text[0]) {
                (Some(byte), _) => bytes.push(byte),
                (None, b'n') => bytes.push(0),
                (None, b'-' | b'0'..=b'9') => self.mismatch(Mismatch::number(text, "uint8")),
                (None, _) => self.mismatch(Mismatch::new(text, "uint8")),
            }
            more = self.scan.more();
        }
        *slot = Value::String(crate::base64::encode(&bytes));
    }

    /// A string, number, truth value or null where none of Kubernetes' own readers is in charge.
    fn literal(&mut self, id: Id, slot: &mut Value) {
        let def = self.pack.def(id);
        let text = self.scan.literal();
        match (def.shape, text[0]) {
            (Shape::List(_) | Shape::Map(_) | Shape::Bytes, b'n') => *slot = Value::Null,
            (_, b'n') => {} // Go leaves what is no pointer as it is.
            (Shape::Bool, b't') => *slot = Value::Bool(true),
            (Shape::Bool, b'f') => *slot = Value::Bool(false),
            (Shape::String, b'"') => *slot = Value::String(unquote(text).into_owned()),
            (Shape::Bytes, b'"') => match crate::base64::decode(&unquote(text)) {
                Ok(bytes) => *slot = Value::String(crate::base64::encode(&bytes)),
                Err(why) => self.save(DecodeError::Other(why)),
            },
            (Shape::Int32, b'-' | b'0'..=b'9') => match number::<i32>(text) {
                Some(number) => *slot = number.into(),
                None => self.mismatch(Mismatch::number(text, def.go)),
            },
            (Shape::Int64, b'-' | b'0'..=b'9') => match number::<i64>(text) {
                Some(number) => *slot = number.into(),
                None => self.mismatch(Mismatch::number(text, def.go)),
            },
            (Shape::Float64, b'-' | b'0'..=b'9') => {
                match number::<f64>(text).filter(|number| number.is_finite()) {
                    Some(number) => *slot = float(number),
                    None => self.mismatch(Mismatch::number(text, def.go)),
                }
            }
            _ => self.mismatch(Mismatch::new(text, def.go)),
        }
    }

    /// Gives a slot that was filled by `null`, or not at all, what Go shows for it: the zero value of what is no
    /// pointer.
    fn complete(&self, id: Id, slot: &mut Value) {
        if slot.is_null() {
            *slot = zero(self.pack.def(id).shape);
        }
    }

    fn mismatch(&mut self, mismatch: Mismatch) {
        self.save(DecodeError::Mismatch(mismatch));
    }

    fn save(&mut self, error: DecodeError) {
        if self.saved.is_none() {
            self.saved = Some(self.locate(error));
        }
    }

    fn locate(&self, mut error: DecodeError) -> DecodeError {
        if let DecodeError::Mismatch(mismatch) = &mut error
            && !self.fields.is_empty()
        {
            mismatch.locate(self.inside, &self.fields);
        }
        error
    }

    fn enter(&mut self, step: impl FnOnce() -> Step<'a>) {
        if let Some(strict) = &mut self.strict {
            strict.path.push(step());
        }
    }

    fn leave(&mut self) {
        if let Some(strict) = &mut self.strict {
            strict.path.pop();
        }
    }

    fn strict_error(&mut self, error: fn(String) -> StrictError, key: &str) {
        if let Some(strict) = self.strict.as_mut().filter(|strict| strict.has_room()) {
            let path = strict.path_to(key);
            strict.seen += path.len();
            strict.add(error(path));
        }
    }
}

impl Strict<'_> {
    /// As many as Kubernetes reports.
    const MAX: usize = 100;

    /// A field may stand there very often, in a place with a long name.
    const MAX_SEEN: usize = 16 * 1024 * 1024;

    fn has_room(&self) -> bool {
        self.errors.len() < Self::MAX && self.seen < Self::MAX_SEEN
    }

    fn add(&mut self, error: StrictError) {
        if !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    fn path_to(&self, key: &str) -> String {
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => {
                    path.push_str(key);
                    path.push('.');
                }
                Step::Index(index) => {
                    path.truncate(path.trim_end_matches('.').len());
                    path.push('[');
                    path.push_str(&index.to_string());
                    path.push_str("].");
                }
            }
        }
        path + key
    }
}

fn into_object(slot: &mut Value) -> Map<String, Value> {
    match slot.take() {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: [&str; 3], text: &str) -> Result<Decoded, String> {
        let [group, version, kind] = kind;
        let of = Pack::v1_35().of_kind(group, version, kind).expect("the pack has the kind");
        decode(of, text.as_bytes()).map_err(|error| error.to_string())
    }

    const JOB: [&str; 3] = ["batch", "v1", "Job"];
    const POD: [&str; 3] = ["", "v1", "Pod"];
    const SECRET: [&str; 3] = ["", "v1", "Secret"];
    const LEASE: [&str; 3] = ["coordination.k8s.io", "v1", "Lease"];

    #[test]
    fn keeps_what_go_tells_apart_and_nothing_else() {
        for (kind, text, value) in [
            (JOB, "null", json!({})),
            (
                JOB,
                r#"{"metadata":{"name":"","labels":{}},"status":{"active":0}}"#,
                json!({"metadata": {"labels": {}}}),
            ),
            (
                JOB,
                r#"{"spec":{"backoffLimit":0,"suspend":false}}"#,
                json!({"spec": {"backoffLimit": 0, "suspend": false}}),
            ),
            (JOB, r#"{"spec":{"backoffLimit":null,"selector":null,"template":{"spec":{}}}}"#, json!({})),
            (JOB, r#"{"spec":{"selector":{}}}"#, json!({"spec": {"selector": {}}})),
            (POD, r#"{"spec":{"containers":[],"volumes":null}}"#, json!({"spec": {"containers": []}})),
            (
                POD,
                r#"{"spec":{"containers":[null,{"stdin":false,"image":"i"}]}}"#,
                json!({"spec": {"containers": [{}, {"image": "i"}]}}),
            ),
            (POD, r#"{"metadata":{"labels":{"a":null}}}"#, json!({"metadata": {"labels": {"a": ""}}})),
            (
                SECRET,
                r#"{"data":{"a":null,"b":"","c":"Zg=="}}"#,
                json!({"data": {"a": null, "b": "", "c": "Zg=="}}),
            ),
            (
                POD,
                r#"{"spec":{"overhead":{"cpu":0.5,"memory":"1024Ki"}}}"#,
                json!({"spec": {"overhead": {"cpu": "500m", "memory": "1Mi"}}}),
            ),
            (
                JOB,
                r#"{"status":{"startTime":"2024-01-01T01:00:00.5+01:00"}}"#,
                json!({"status": {"startTime": "2024-01-01T00:00:00.5Z"}}),
            ),
            (
                LEASE,
                r#"{"spec":{"renewTime":"2024-01-01T00:00:00.000001Z"}}"#,
                json!({"spec": {"renewTime": "2024-01-01T00:00:00.000001Z"}}),
            ),
            // Of a field that is given twice, Go reads the second into the first.
            (
                JOB,
                r#"{"spec":{"parallelism":1},"spec":{"completions":2}}"#,
                json!({"spec": {"parallelism": 1, "completions": 2}}),
            ),
        ] {
            assert_eq!(check(kind, text).map(|read| read.value), Ok(value), "{text}");
        }
    }

    #[test]
    fn refuses_in_gos_words() {
        let regular =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        for (kind, text, error) in [
            (
                JOB,
                r#"{"spec":{"managedBy":1}}"#,
                "json: cannot unmarshal number into Go struct field JobSpec.spec.managedBy of type string",
            ),
            (
                JOB,
                r#"{"spec":{"parallelism":"1"}}"#,
                "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
            ),
            (
                JOB,
                r#"{"spec":{"parallelism":2147483648}}"#,
                "json: cannot unmarshal number 2147483648 into Go struct field JobSpec.spec.parallelism of type int32",
            ),
            (
                JOB,
                r#"{"spec":{"activeDeadlineSeconds":1.5}}"#,
                "json: cannot unmarshal number 1.5 into Go struct field JobSpec.spec.activeDeadlineSeconds of type int64",
            ),
            (
                JOB,
                r#"{"spec":{"suspend":"true"}}"#,
                "json: cannot unmarshal string into Go struct field JobSpec.spec.suspend of type bool",
            ),
            (JOB, "[]", "json: cannot unmarshal array into Go value of type v1.Job"),
            (
                JOB,
                r#"{"spec":{"template":{"spec":{"restartPolicy":{}}}}}"#,
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.restartPolicy of type v1.RestartPolicy",
            ),
            (
                POD,
                r#"{"spec":{"containers":{}}}"#,
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (
                POD,
                r#"{"metadata":{"labels":{"a":1}}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            // The name of the Go struct that is inlined is part of the path.
            (
                POD,
                r#"{"spec":{"volumes":[{"emptyDir":1}]}}"#,
                "json: cannot unmarshal number into Go struct field Volume.spec.volumes.VolumeSource.emptyDir of type v1.EmptyDirVolumeSource",
            ),
            (
                POD,
                r#"{"metadata":{"creationTimestamp":1}}"#,
                "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                POD,
                r#"{"metadata":{"creationTimestamp":"x"}}"#,
                r#"parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006""#,
            ),
            (POD, r#"{"spec":{"overhead":{"cpu":"one"}}}"#, regular),
            (SECRET, r#"{"data":{"a":"Zg"}}"#, "illegal base64 data at input byte 0"),
            (JOB, r#"{"spec":{},}"#, "invalid character '}' looking for beginning of object key string"),
            // The first one counts, unless a later one ends the reading.
            (
                JOB,
                r#"{"spec":{"parallelism":"1","suspend":1}}"#,
                "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
            ),
            (POD, r#"{"kind":1,"spec":{"overhead":{"cpu":"one"}}}"#, regular),
        ] {
            assert_eq!(check(kind, text), Err(error.to_owned()), "{text}");
        }
    }

    #[test]
    fn reports_what_a_strict_reader_holds_against_it() {
        for (kind, text, errors) in [
            (
                JOB,
                r#"{"foo":1,"spec":{"foo":{"a":1,"a":1},"Suspend":true}}"#,
                vec![
                    r#"unknown field "foo""#,
                    r#"unknown field "spec.foo""#,
                    r#"unknown field "spec.Suspend""#,
                ],
            ),
            (
                JOB,
                r#"{"spec":{"parallelism":1,"parallelism":2}}"#,
                vec![r#"duplicate field "spec.parallelism""#],
            ),
            (
                POD,
                r#"{"spec":{"containers":[{},{"x":1},{"x":1}]}}"#,
                vec![r#"unknown field "spec.containers[1].x""#, r#"unknown field "spec.containers[2].x""#],
            ),
            (
                POD,
                r#"{"metadata":{"labels":{"a":"1","a":"2"}}}"#,
                vec![r#"duplicate field "metadata.labels.a""#],
            ),
            (POD, r#"{"a\"b":1}"#, vec![r#"unknown field "a\"b""#]),
            // Said once, however often it is wrong.
            (JOB, r#"{"x":1,"x":2}"#, vec![r#"unknown field "x""#]),
        ] {
            let read = check(kind, text).expect(text);
            let said: Vec<_> = read.strict.iter().map(ToString::to_string).collect();
            assert_eq!(said, errors, "{text}");
        }
    }

    #[test]
    fn strict_errors_end_at_a_hundred() {
        let many: Vec<_> = (0..150).map(|number| format!(r#""x{number}":0"#)).collect();
        let read = check(JOB, &format!("{{{}}}", many.join(","))).expect("a Job");
        assert_eq!(read.strict.len(), 100);
    }

    #[test]
    fn schemas_of_custom_resources_are_read_apart() {
        let crd = ["apiextensions.k8s.io", "v1", "CustomResourceDefinition"];
        let within = |schema: &str| {
            format!(r#"{{"spec":{{"versions":[{{"schema":{{"openAPIV3Schema":{schema}}}}}]}}}}"#)
        };
        let read =
            check(crd, &within(r#"{"items":{"type":"string","wings":2},"additionalProperties":false}"#));
        let read = read.expect("a schema");
        assert_eq!(read.strict, [], "unknown fields are passed over there");
        let schema = &read.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(schema, &json!({"items": {"type": "string"}, "additionalProperties": false}));
        let error = check(crd, &within(r#"{"items":{"type":1}}"#)).expect_err("a number");
        let place = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.items.type";
        assert_eq!(
            error,
            format!("json: cannot unmarshal number into Go struct field {place} of type string")
        );
        let error = check(crd, &within(r#"{"additionalProperties":1}"#)).expect_err("a number");
        assert_eq!(error, "boolean or JSON schema expected");
    }
}
