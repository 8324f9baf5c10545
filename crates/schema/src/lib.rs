//! What Kubernetes' built-in types look like on the wire, and what follows from that alone.
//!
//! A [`Pack`] holds facts about every type of one Kubernetes version: fields, Go tags, protobuf numbers, merge keys,
//! defaults, enumerations, and the shape of the internal type that error messages print. With these facts
//! - [`decode`] reads JSON as an API server does, errors included,
//! - [`encode`] writes what an API server would write, [`settle`] changes a value into that, and [`encode_text`] writes the
//!   very bytes,
//! - [`protobuf`] does both for Kubernetes' other format,
//! - [`internal::json`] prints a value as error messages do, and [`internal::round_trip`] gives what an API server keeps.
//!
//! ```
//! use schema::{Pack, decode, encode, internal};
//! use serde_json::json;
//!
//! let job = Pack::v1_35().of_kind("batch", "v1", "Job").expect("Kubernetes has Jobs");
//! let read = decode(job, br#"{"spec": {"parallelism": 2, "suspend": null, "wings": 2}}"#).expect("a Job");
//! assert_eq!(read.value, json!({"spec": {"parallelism": 2}}));
//! assert_eq!(read.strict[0].to_string(), r#"unknown field "spec.wings""#);
//! let written = json!({
//!     "metadata": {},
//!     "spec": {"parallelism": 2, "template": {"metadata": {}, "spec": {"containers": null}}},
//!     "status": {},
//! });
//! assert_eq!(encode(job, &read.value), written);
//!
//! let error = decode(job, br#"{"spec": {"parallelism": "2"}}"#).expect_err("no Job");
//! let words = "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32";
//! assert_eq!(error.to_string(), words);
//!
//! let policy = Pack::v1_35().named("io.k8s.api.batch.v1.SuccessPolicy").expect("Jobs have success policies");
//! assert_eq!(internal::json(policy, &json!({"rules": []})).as_deref(), Some(r#"{"Rules":[]}"#));
//! ```
//!
//! Nothing here does IO or reads a clock, and no kind is treated specially: defaults, rules and what a kind means are
//! other crates' business.

mod base64;
mod decode;
mod encode;
pub mod internal;
mod json;
pub mod pack;
pub mod protobuf;
mod quantity;
mod time;
mod value;

pub use decode::{DecodeError, Decoded, Mismatch, StrictError, decode, decode_value};
pub use encode::{encode, encode_text, settle};
pub use json::{MAX_DEPTH, check as check_syntax};
pub use pack::{Pack, Type};
pub use value::nests_within;
