//! ConfigMaps and Secrets: data under keys, not too much of it, and for good if somebody says so (3.12).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::field::{Errors, Path};
use crate::kind::{It, Kind, at, text};
use crate::{names, pem};

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

/// Why a certificate and a key cannot be a pair, as far as their PEM tells. Whether the key is the certificate's is not
/// judged.
fn key_pair(certificate: &[u8], key: &[u8]) -> Option<String> {
    let labels = |text: &[u8]| pem::blocks(text).map(|block| block.label).collect::<Vec<_>>();
    let is_key = |label: &String| label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY");
    let certificates = labels(certificate);
    let why = if certificates.iter().any(|label| label == "CERTIFICATE") {
        let keys = labels(key);
        match keys.as_slice() {
            keys if keys.iter().any(is_key) => return None,
            [] => "failed to find any PEM data in key input".to_owned(),
            [only] if only == "CERTIFICATE" => {
                "found a certificate rather than a key in the PEM for the private key".to_owned()
            }
            others => format!(
                "failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks \
                 of the following types: [{}]",
                others.join(" ")
            ),
        }
    } else {
        match certificates.as_slice() {
            [] => "failed to find any PEM data in certificate input".to_owned(),
            [only] if only.ends_with("PRIVATE KEY") => {
                "failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may \
                 have been switched"
                    .to_owned()
            }
            others => format!(
                "failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the \
                 following types: [{}]",
                others.join(" ")
            ),
        }
    };
    Some(format!("tls: {why}"))
}

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

    fn warn(&self, new: &Value) -> Vec<String> {
        if text(new, "type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        let pem = |key: &str| STANDARD.decode(new["data"][key].as_str().unwrap_or("")).unwrap_or_default();
        key_pair(&pem("tls.crt"), &pem("tls.key")).into_iter().collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_and_keys_are_told_apart() {
        let block = |label: &str| format!("-----BEGIN {label}-----\nAQID\n-----END {label}-----\n");
        let (certificate, key, other) = (block("CERTIFICATE"), block("RSA PRIVATE KEY"), block("X"));
        let pem = "PEM block";
        for (of_certificate, of_key, expected) in [
            (certificate.clone(), key.clone(), None),
            (format!("{other}{certificate}"), format!("{other}{key}"), None),
            (
                "x".to_owned(),
                key.clone(),
                Some("tls: failed to find any PEM data in certificate input".to_owned()),
            ),
            (
                key.clone(),
                certificate.clone(),
                Some("tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned()),
            ),
            (
                format!("{other}{key}"),
                key.clone(),
                Some(format!("tls: failed to find \"CERTIFICATE\" {pem} in certificate input after skipping {pem}s of the following types: [X RSA PRIVATE KEY]")),
            ),
            (
                certificate.clone(),
                String::new(),
                Some("tls: failed to find any PEM data in key input".to_owned()),
            ),
            (
                certificate.clone(),
                certificate.clone(),
                Some("tls: found a certificate rather than a key in the PEM for the private key".to_owned()),
            ),
            (
                certificate.clone(),
                other.clone(),
                Some(format!("tls: failed to find {pem} with type ending in \"PRIVATE KEY\" in key input after skipping {pem}s of the following types: [X]")),
            ),
        ] {
            assert_eq!(key_pair(of_certificate.as_bytes(), of_key.as_bytes()), expected);
        }
    }
}
