//! The scale subresource: an `autoscaling/v1` Scale made of three paths into an object (2.72).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceSubresourceScale;
use rules::field::{Errors, Path};
use serde_json::{Map, Value, json};

use super::go::{number, type_name};

/// Why there is no Scale of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A value on the way is of another type.
    #[error("{0}")]
    WrongType(String),
    /// The object does not say how many replicas it wants.
    #[error("the spec replicas field {0:?} does not exist")]
    Missing(String),
}

/// The Scale of an object.
pub fn get(object: &Value, paths: &CustomResourceSubresourceScale) -> Result<Value, Error> {
    let replicas = |path: &str| integer(object, path).map_err(Error::WrongType);
    let spec = replicas(&paths.spec_replicas_path)?;
    let status = replicas(&paths.status_replicas_path)?.unwrap_or(0);
    let selector = match paths.label_selector_path.as_deref().filter(|path| !path.is_empty()) {
        None => None,
        Some(path) => text(object, path).map_err(Error::WrongType)?,
    };
    let spec = spec.ok_or_else(|| Error::Missing(paths.spec_replicas_path.clone()))?;
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
    let metadata: Map<String, Value> = metadata
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut status = json!({"replicas": status});
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    let spec = if spec == 0 { json!({}) } else { json!({"replicas": spec}) };
    Ok(
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": spec, "status": status}),
    )
}

/// Writes the replicas that a Scale wants into an object.
pub fn set(object: &mut Value, paths: &CustomResourceSubresourceScale, replicas: i64) {
    let mut at = object;
    for name in steps(&paths.spec_replicas_path) {
        if !at.is_object() {
            *at = json!({});
        }
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(name).or_insert(Value::Null);
    }
    *at = replicas.into();
}

/// Replicas are counted in 32 bits; with `spec`, the wanted ones are judged too.
pub(crate) fn validate(object: &Value, paths: &CustomResourceSubresourceScale, spec: bool) -> Errors {
    let mut errors = Errors::new();
    let spec = spec.then_some(&paths.spec_replicas_path);
    for path in spec.into_iter().chain([&paths.status_replicas_path]) {
        let at = Path::new(path);
        match integer(object, path) {
            Err(why) => errors.push(at.invalid(0, why)),
            Ok(Some(count)) if count < 0 => {
                errors.push(at.invalid(count, "should be a non-negative integer"));
            }
            Ok(Some(count)) if count > i64::from(i32::MAX) => {
                errors.push(at.invalid(count, format!("should be less than or equal to {}", i32::MAX)));
            }
            Ok(_) => {}
        }
    }
    if let Some(path) = &paths.label_selector_path
        && let Err(why) = text(object, path)
    {
        errors.push(Path::new(path).invalid("", why));
    }
    errors
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

/// The value at a path; an error if something on the way is no object, as Go says it.
fn find<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    let mut gone = String::new();
    for name in steps(path) {
        gone = format!("{gone}.{name}");
        let Some(fields) = at.as_object() else {
            return Err(format!(
                "{gone} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                print(at),
                type_name(at)
            ));
        };
        match fields.get(name) {
            Some(value) => at = value,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

fn integer(object: &Value, path: &str) -> Result<Option<i64>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(value) if value.is_i64() => Ok(value.as_i64()),
        Some(other) => Err(format!(
            "{path} accessor error: {} is of the type {}, expected int64",
            print(other),
            type_name(other)
        )),
    }
}

fn text(object: &Value, path: &str) -> Result<Option<String>, String> {
    match find(object, path)? {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(format!(
            "{path} accessor error: {} is of the type {}, expected string",
            print(other),
            type_name(other)
        )),
    }
}

fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => self::number(number),
        Value::Bool(value) => value.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> CustomResourceSubresourceScale {
        CustomResourceSubresourceScale {
            spec_replicas_path: ".spec.replicas".into(),
            status_replicas_path: ".status.replicas".into(),
            label_selector_path: Some(".status.selector".into()),
        }
    }

    #[test]
    fn scale_2_72() {
        let mut object = json!({"metadata": {"name": "a", "labels": {}}, "spec": {"replicas": 6}, "status": {"replicas": 4, "selector": "a=b"}});
        let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"},
            "spec": {"replicas": 6}, "status": {"replicas": 4, "selector": "a=b"}});
        assert_eq!(get(&object, &paths()), Ok(scale));
        set(&mut object, &paths(), 7);
        assert_eq!(object["spec"]["replicas"], 7);
        let missing = get(&json!({}), &paths()).expect_err("nothing is wanted").to_string();
        assert_eq!(missing, "the spec replicas field \".spec.replicas\" does not exist");
    }

    #[test]
    fn replicas_are_judged() {
        let errors = |object: Value| -> Vec<String> {
            validate(&object, &paths(), true).iter().map(ToString::to_string).collect()
        };
        assert!(errors(json!({"spec": {"replicas": 1}})).is_empty());
        assert_eq!(
            errors(json!({"spec": {"replicas": -1}})),
            [".spec.replicas: Invalid value: -1: should be a non-negative integer"]
        );
        assert_eq!(
            errors(json!({"spec": {"replicas": "x"}, "status": {"replicas": 3_000_000_000_i64}})),
            [
                ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
                ".status.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"
            ]
        );
    }
}
