//! When two objects are the same to Kubernetes: an absent and an empty list or map are, a quantity is its value and a
//! time its instant; but an absent structure is not an empty one.

use serde::Serialize;

use crate::wire;

/// Whether two values of a wire type are the same to Kubernetes.
pub fn equal<T: Serialize>(wire_type: &str, a: &T, b: &T) -> bool {
    let of = wire::named(wire_type);
    let canonical = |value: &T| {
        let value = serde_json::to_value(value).expect("wire types have string keys and finite numbers");
        schema::encode(of, &value)
    };
    canonical(a) == canonical(b)
}
