//! Secrets: what was sent as text is kept as bytes, and a type is never missing (3.12).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::meta::system::Identity;
use rules::write::{Accepted, Refused};
use serde_json::{Value, json};

use super::Strategy;
use super::generic::Generic;
use crate::object;

pub(super) struct Secrets(pub(super) Generic);

impl Strategy for Secrets {
    fn with_defaults(&self, body: &Value) -> Value {
        let mut secret = body.clone();
        if object::text(&secret, &["type"]).is_empty() {
            secret["type"] = json!("Opaque");
        }
        let texts = secret.as_object_mut().and_then(|secret| secret.remove("stringData"));
        for (key, text) in texts.iter().filter_map(Value::as_object).flatten() {
            secret["data"][key] = json!(STANDARD.encode(text.as_str().unwrap_or("")));
        }
        secret
    }

    fn create(&self, body: &Value, namespace: &str, identity: Identity) -> Result<Accepted, Refused> {
        self.0.create(&self.with_defaults(body), namespace, identity)
    }

    fn update(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        self.0.update(&self.with_defaults(body), stored)
    }

    fn update_status(&self, body: &Value, stored: &Value) -> Result<Accepted, Refused> {
        self.0.update_status(body, stored)
    }

    fn fields(&self, object: &Value) -> Vec<(&'static str, String)> {
        vec![("type", object::text(object, &["type"]).to_owned())]
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["type"]
    }
}
