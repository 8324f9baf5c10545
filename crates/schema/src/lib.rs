//! What Kubernetes' built-in types look like on the wire, and what follows from that alone.
//!
//! A [`Pack`] holds facts about every type of one Kubernetes version: fields, Go tags, protobuf numbers, merge keys,
//! defaults, enumerations, and the shape of the internal type that error messages print.

pub mod pack;

pub use pack::{Pack, Type};
