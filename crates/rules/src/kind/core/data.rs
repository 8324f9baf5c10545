//! ConfigMaps and Secrets: data under keys, not too much of it, and for good if somebody says so (3.12).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::field::{Errors, Path};
use crate::kind::{It, Kind, at, text};
use crate::names;

/// As much as fits into one object.
const MAX_BYTES: usize = 1024 * 1024;
const FIXED: &str = "field is immutable when `immutable` is set";

pub(super) struct ConfigMaps;

impl Kind for ConfigMaps {
    /// Bytes that are null are none.
    fn default(&self, object: &mut Value) {
        let bytes = object.get_mut("binaryData").and_then(Value::as_object_mut);
        for value in bytes.into_iter().flat_map(serde_json::Map::values_mut).filter(|value| value.is_null()) {
            *value = "".into();
        }
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let mut size = 0;
        for (key, value) in entries(it.new, "data") {
            errors.extend(key_of("data", key));
            if !it.new["binaryData"][key].is_null() {
                let why = "duplicate of key present in binaryData";
                errors.push(Path::new("data").key(key).invalid(key.as_str(), why));
            }
            size += value.as_str().map_or(0, str::len);
        }
        for (key, value) in entries(it.new, "binaryData") {
            errors.extend(key_of("binaryData", key));
            size += decoded_length(value);
        }
        if size > MAX_BYTES {
            errors.push(Path::new("[]").too_long(MAX_BYTES));
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(fixed(it, &["data", "binaryData"]));
        errors.extend(self.validate(it));
        errors
    }
}

pub(super) struct Secrets;

impl Kind for Secrets {
    /// What was sent as text is kept as bytes.
    fn default(&self, secret: &mut Value) {
        let texts = secret.as_object_mut().and_then(|secret| secret.remove("stringData"));
        for (key, text) in texts.iter().filter_map(Value::as_object).flatten() {
            secret["data"][key] = json!(STANDARD.encode(text.as_str().unwrap_or("")));
        }
    }

    fn validate(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata();
        let path = Path::new("data");
        let mut size = 0;
        for (key, value) in entries(it.new, "data") {
            errors.extend(key_of("data", key));
            size += decoded_length(value);
        }
        if size > MAX_BYTES {
            errors.push(path.too_long(MAX_BYTES));
        }
        let has = |key: &str| at(it.new, "data").get(key).is_some();
        match text(it.new, "type") {
            "kubernetes.io/service-account-token" => {
                const NAME: &str = "kubernetes.io/service-account.name";
                if it.new["metadata"]["annotations"][NAME].as_str().is_none_or(str::is_empty) {
                    errors.push(Path::new("metadata").child("annotations").key(NAME).required(""));
                }
            }
            "kubernetes.io/dockercfg" => errors.extend(docker(it.new, ".dockercfg", &path)),
            "kubernetes.io/dockerconfigjson" => errors.extend(docker(it.new, ".dockerconfigjson", &path)),
            "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
                errors.push(path.key("username").required(""));
                errors.push(path.key("password").required(""));
            }
            "kubernetes.io/ssh-auth" if decoded_length(&it.new["data"]["ssh-privatekey"]) == 0 => {
                errors.push(path.key("ssh-privatekey").required(""));
            }
            "kubernetes.io/tls" => {
                let missing = ["tls.crt", "tls.key"].into_iter().filter(|key| !has(key));
                errors.extend(missing.map(|key| path.key(key).required("")));
            }
            _ => {}
        }
        errors
    }

    fn validate_update(&self, it: &It<'_>) -> Errors {
        let mut errors = it.metadata_update();
        errors.extend(super::immutable(it, "type"));
        errors.extend(fixed(it, &["data"]));
        errors.extend(self.validate(it));
        errors
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["type"]
    }
}

/// Credentials of a registry are JSON; what they are is not shown.
fn docker(secret: &Value, key: &str, path: &Path) -> Errors {
    let Some(value) = secret["data"].get(key) else { return vec![path.key(key).required("")] };
    let bytes = STANDARD.decode(value.as_str().unwrap_or("")).unwrap_or_default();
    let why = match schema::check_syntax(&bytes) {
        Err(why) => why,
        Ok(()) => match serde_json::from_slice::<Value>(&bytes) {
            Ok(Value::Object(_) | Value::Null) | Err(_) => return Errors::new(),
            Ok(other) => {
                let found = match other {
                    Value::Bool(_) => "bool",
                    Value::Number(_) => "number",
                    Value::String(_) => "string",
                    _ => "array",
                };
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
            }
        },
    };
    vec![path.key(key).invalid("<secret contents redacted>", why)]
}

fn fixed(it: &It<'_>, fields: &[&str]) -> Errors {
    if at(it.old, "immutable") != &json!(true) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    if at(it.new, "immutable") != &json!(true) {
        errors.push(Path::new("immutable").forbidden(FIXED));
    }
    let changed = fields.iter().filter(|field| at(it.new, field) != at(it.old, field));
    errors.extend(changed.map(|field| Path::new(field).forbidden(FIXED)));
    errors
}

fn entries<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(field).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

fn key_of(field: &str, key: &str) -> Errors {
    let path = Path::new(field).key(key);
    names::config_map_key(key).into_iter().map(|problem| path.invalid(key, problem)).collect()
}

fn decoded_length(value: &Value) -> usize {
    STANDARD.decode(value.as_str().unwrap_or("")).map_or(0, |bytes| bytes.len())
}
