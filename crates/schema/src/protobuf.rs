//! Kubernetes' protobuf, table-driven: the same pack, the same values, another spelling.
//!
//! Go clients send protobuf by default and have no other way if it is refused. A body is four magic bytes and a
//! message that names the type and holds the object as another message. Reading one gives the value that
//! [`crate::decode`] gives for the same object in JSON, except that protobuf cannot tell an empty list or map from none.

mod read;
mod wire;
mod write;

use serde_json::Value;

use crate::pack::Type;
use wire::Reader;

pub use wire::Error;

/// How a body begins.
pub const MAGIC: [u8; 4] = *b"k8s\0";

/// A body, opened but not yet read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// For example `batch/v1`; may be empty where the request says what is sent.
    pub api_version: String,
    /// For example `Job`; may be empty, too.
    pub kind: String,
    /// The object's message.
    pub message: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Opens a body.
    pub fn open(body: &'a [u8]) -> Result<Self, Error> {
        if body.is_empty() {
            return Err(Error::NoData);
        }
        let content = body.strip_prefix(&MAGIC).ok_or(Error::NoMagic)?;
        if content.is_empty() {
            return Err(Error::NoBody);
        }
        let mut envelope = Envelope { api_version: String::new(), kind: String::new(), message: &[] };
        let mut reader = Reader::new(content);
        while let Some(tag) = reader.tag("Unknown")? {
            match tag.number {
                1 => envelope.read_type(reader.bytes_of(tag, "TypeMeta")?)?,
                2 => envelope.message = reader.bytes_of(tag, "Raw")?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, message: &[u8]) -> Result<(), Error> {
        let mut reader = Reader::new(message);
        while let Some(tag) = reader.tag("TypeMeta")? {
            match tag.number {
                1 => self.api_version = wire::text(reader.bytes_of(tag, "APIVersion")?),
                2 => self.kind = wire::text(reader.bytes_of(tag, "Kind")?),
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }
}

/// Reads a body as a value of a type; the envelope's `apiVersion` and `kind` become the object's.
pub fn decode(of: Type, body: &[u8]) -> Result<Value, Error> {
    let envelope = Envelope::open(body)?;
    let mut value = decode_message(of, envelope.message)?;
    if let Value::Object(members) = &mut value {
        for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
            if !text.is_empty() {
                members.insert(key.to_owned(), Value::String(text));
            }
        }
    }
    Ok(value)
}

/// Reads a message, without an envelope, as a value of a type.
pub fn decode_message(of: Type, message: &[u8]) -> Result<Value, Error> {
    read::root(of.pack(), of.id(), message)
}

/// Writes a value of a type as a body: byte for byte what Kubernetes writes.
pub fn encode(of: Type, value: &Value) -> Vec<u8> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut type_meta = Vec::new();
    wire::write_bytes(&mut type_meta, 1, text("apiVersion").as_bytes());
    wire::write_bytes(&mut type_meta, 2, text("kind").as_bytes());
    let mut body = MAGIC.to_vec();
    wire::write_bytes(&mut body, 1, &type_meta);
    wire::write_bytes(&mut body, 2, &encode_message(of, value));
    wire::write_bytes(&mut body, 3, b""); // the content's encoding
    wire::write_bytes(&mut body, 4, b""); // and type, which are protobuf's own
    body
}

/// Writes a value of a type as a message, without an envelope.
pub fn encode_message(of: Type, value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    write::message(of.pack(), of.id(), value, &mut message);
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::encode_text;
    use crate::pack::{Field, Pack};

    fn kind(group: &str, version: &str, kind: &str) -> Type {
        Pack::v1_35().of_kind(group, version, kind).expect("the pack has the kind")
    }

    /// A message of one field.
    fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut message = Vec::new();
        wire::write_bytes(&mut message, number, bytes);
        message
    }

    #[test]
    fn spec_1_30_a_body_has_magic_and_envelope() {
        let job = kind("batch", "v1", "Job");
        let value =
            json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"parallelism": 0, "suspend": false}});
        let body = encode(job, &value);
        assert_eq!(&body[..4], b"k8s\0");
        assert_eq!(decode(job, &body), Ok(value));
        for (body, error) in [
            (&b""[..], "empty data"),
            (b"{}", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"),
            (b"k8s\0", "empty body"),
            (b"k8s\0\x0a", "unexpected EOF"),
            (b"k8s\0\x08\x01", "proto: wrong wireType = 0 for field TypeMeta"),
            (b"k8s\0\x0c", "proto: Unknown: wiretype end group for non-group"),
            (b"k8s\0\x00\x01", "proto: Unknown: illegal tag 0 (wire type 0)"),
            (b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "proto: integer overflow"),
        ] {
            assert_eq!(decode(job, body).expect_err("no body").to_string(), error, "{body:?}");
        }
    }

    #[test]
    fn spec_1_25_zero_of_what_is_no_pointer_vanishes() {
        let container = Pack::v1_35().named("io.k8s.api.core.v1.Container").expect("the pack has Container");
        let message = encode_message(container, &json!({"name": "c"}));
        assert!(message.len() > 10, "Go writes fields that say nothing, too");
        assert_eq!(decode_message(container, &message), Ok(json!({"name": "c"})));
        let spec = Pack::v1_35().named("io.k8s.api.batch.v1.JobSpec").expect("the pack has JobSpec");
        assert_eq!(decode_message(spec, &[8, 0, 80, 0]), Ok(json!({"parallelism": 0, "suspend": false})));
    }

    #[test]
    fn spec_1_31_inlined_and_special_messages() {
        for (name, value) in [
            ("io.k8s.api.core.v1.Volume", json!({"name": "v", "emptyDir": {"sizeLimit": "1Gi"}})),
            ("io.k8s.api.core.v1.Probe", json!({"httpGet": {"port": "http"}, "periodSeconds": 3})),
            ("io.k8s.api.core.v1.EnvFromSource", json!({"configMapRef": {"name": "a", "optional": true}})),
            ("io.k8s.api.batch.v1.JobStatus", json!({"startTime": "2024-01-01T00:00:00Z", "ready": 0})),
            ("io.k8s.api.coordination.v1.LeaseSpec", json!({"renewTime": "2024-01-01T00:00:00.000123Z"})),
            ("io.k8s.api.authentication.v1.UserInfo", json!({"extra": {"a": ["b", "c"]}})),
            ("io.k8s.api.core.v1.Secret", json!({"data": {"a": "Zm9v", "b": ""}})),
            ("io.k8s.api.apps.v1.ControllerRevision", json!({"data": {"a": [1, null]}, "revision": -1})),
            (
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
                json!({
                    "$ref": "r", "default": [1], "maximum": 1.5, "x-kubernetes-int-or-string": true,
                    "items": {"type": "string"}, "additionalProperties": false,
                    "dependencies": {"a": ["b"], "c": {"type": "object"}},
                }),
            ),
        ] {
            let of = Pack::v1_35().named(name).expect("the pack has the type");
            assert_eq!(decode_message(of, &encode_message(of, &value)), Ok(value), "{name}");
        }
    }

    #[test]
    fn a_list_in_a_map_is_written_even_if_it_is_none() {
        let user =
            Pack::v1_35().named("io.k8s.api.authentication.v1.UserInfo").expect("the pack has UserInfo");
        let message = encode_message(user, &json!({"extra": {"a": null}}));
        assert!(message.ends_with(&[34, 5, 10, 1, b'a', 18, 0]), "{message:?}");
    }

    #[test]
    fn numbers_may_be_packed() {
        let name = "io.k8s.api.batch.v1.PodFailurePolicyOnExitCodesRequirement";
        let of = Pack::v1_35().named(name).expect("the pack has the type");
        assert_eq!(decode_message(of, &[24, 1, 24, 2]), Ok(json!({"values": [1, 2]})));
        assert_eq!(decode_message(of, &[26, 2, 1, 2, 24, 3]), Ok(json!({"values": [1, 2, 3]})));
    }

    #[test]
    fn a_message_given_twice_is_merged() {
        let job = kind("batch", "v1", "Job");
        let twice = [field(2, &[8, 1]), field(2, &[16, 2])].concat();
        assert_eq!(decode_message(job, &twice), Ok(json!({"spec": {"parallelism": 1, "completions": 2}})));
    }

    #[test]
    fn unknown_fields_are_skipped() {
        let job = kind("batch", "v1", "Job");
        let unknown =
            [field(99, b"x"), vec![0xa0, 6, 1], vec![0xa3, 6, 8, 1, 0xa4, 6], field(2, &[8, 1])].concat();
        assert_eq!(decode_message(job, &unknown), Ok(json!({"spec": {"parallelism": 1}})));
    }

    #[test]
    fn entries_of_maps_end_where_they_say() {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let schema = Pack::v1_35().named(name).expect("the pack has the type");
        let properties = schema.field("properties").and_then(Field::proto).expect("schemas have them").number;
        // Each entry claims all that follows for its value, so that the last is read as often as there are subsets of the
        // others.
        let mut message = Vec::new();
        for _ in 0..100 {
            let mut value = vec![18];
            wire::write_varint(&mut value, message.len() as u64);
            message = [field(properties, &value), message].concat();
        }
        assert_eq!(decode_message(schema, &message), Err(Error::End));
    }

    #[test]
    fn refuses_what_nests_without_end() {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let schema = Pack::v1_35().named(name).expect("the pack has the type");
        let not = schema.field("not").and_then(Field::proto).expect("a schema can be negated").number;
        let nest = |depth: usize| (0..depth).fold(Vec::new(), |inner, _| field(not, &inner));
        assert!(decode_message(schema, &nest(100)).is_ok());
        assert_eq!(decode_message(schema, &nest(1000)), Err(Error::TooDeep));
        // Two levels of JSON each: the list, and what is in it.
        let all = schema.field("allOf").and_then(Field::proto).expect("schemas can be combined").number;
        let nest = |depth: usize| (0..depth).fold(Vec::new(), |inner, _| field(all, &inner));
        assert!(decode_message(schema, &nest(50)).is_ok());
        assert_eq!(decode_message(schema, &nest(100)), Err(Error::TooDeep));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        /// Whatever comes in, there is an answer, and what was read can be written.
        #[test]
        fn any_bytes_give_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..60), cut in any::<prop::sample::Index>()) {
            let pod = kind("", "v1", "Pod");
            let full = encode_message(pod, &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"overhead": {"cpu": "1"}}}));
            let mut message = full.clone();
            message.splice(cut.index(full.len()).., bytes);
            if let Ok(value) = decode_message(pod, &message) {
                encode_text(pod, &value);
            }
        }
    }
}
