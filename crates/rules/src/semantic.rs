//! When two objects are the same to Kubernetes: an absent and an empty list or map are, a quantity is its value and a
//! time its instant; but an absent structure is not an empty one.

use schema::Type;
use schema::pack::Shape;
use serde::Serialize;
use serde_json::Value;
use types::Quantity;

use crate::wire;

/// Whether two values of a wire type are the same to Kubernetes.
pub fn equal<T: Serialize>(wire_type: &str, a: &T, b: &T) -> bool {
    let of = wire::named(wire_type);
    let canonical = |value: &T| {
        let value = serde_json::to_value(value).expect("wire types have string keys and finite numbers");
        schema::encode(of, &value)
    };
    same(of, &canonical(a), &canonical(b))
}

/// Whether two trees of a type are the same to Kubernetes, if both are in canonical form: that leaves an amount in the notation
/// in which it was written.
pub fn same(of: Type, a: &Value, b: &Value) -> bool {
    match (of.shape(), a, b) {
        (Shape::Pointer(inner), _, _) => same(inner, a, b),
        (Shape::List(inner), Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(inner, a, b))
        }
        (Shape::Map(_) | Shape::Struct, Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|((name, a), (other, b))| name == other && same_member(of, name, a, b))
        }
        (Shape::Quantity, Value::String(a), Value::String(b)) => a == b || is_same_amount(a, b),
        _ => a == b,
    }
}

fn same_member(of: Type, name: &str, a: &Value, b: &Value) -> bool {
    let of = if let Shape::Map(inner) = of.shape() { Some(inner) } else { of.member(name) };
    of.map_or_else(|| a == b, |of| same(of, a, b))
}

fn is_same_amount(a: &str, b: &str) -> bool {
    matches!((a.parse::<Quantity>(), b.parse::<Quantity>()), (Ok(a), Ok(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_the_same_by_their_value() {
        let check = |a: &str, b: &str, expected: bool| {
            let spec = |amount: &str| -> PodSpec {
                let resources = json!({"requests": {"memory": amount}, "limits": {"cpu": "1"}});
                wire::typed(&json!({"containers": [{"name": "c", "resources": resources}]}))
            };
            assert_eq!(equal(wire::POD_SPEC, &spec(a), &spec(b)), expected, "{a} {b}");
        };
        for (a, b) in [
            ("1Gi", "1073741824"),
            ("129M", "129e6"),
            ("123Mi", "128974848000m"),
            ("1.5", "1500m"),
            ("0", "0Ki"),
        ] {
            check(a, b, true);
        }
        for (a, b) in [("1Gi", "1G"), ("1", "1m"), ("0", "1n")] {
            check(a, b, false);
        }
    }

    #[test]
    fn what_is_empty_is_the_same_as_what_is_absent() {
        let check = |a: Value, b: Value, expected: bool| {
            let spec = |spec: Value| -> PodSpec { wire::typed(&spec) };
            assert_eq!(equal(wire::POD_SPEC, &spec(a), &spec(b)), expected);
        };
        check(json!({"containers": [], "nodeSelector": {}}), json!({"containers": []}), true);
        check(json!({"containers": [], "nodeSelector": {"a": ""}}), json!({"containers": []}), false);
        check(json!({"containers": [], "securityContext": {}}), json!({"containers": []}), false);
    }
}
