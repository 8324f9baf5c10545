//! Bodies that hold custom resources: what forms are read, and what is said of fields that nobody knows (1.32, 2.65).

use http::{HeaderMap, header};
use rules::wire;
use serde_json::Value;
use types::go::quote;

use super::decode;
use super::kind::Custom;
use crate::body::Read;
use crate::request::Query;
use crate::status::Refusal;

const ACCEPTED: [&str; 2] = ["application/json", "application/yaml"];

impl Custom {
    /// Reads an object.
    pub fn read_body(&self, headers: &HeaderMap, query: &Query, body: &[u8]) -> Result<Read, Refusal> {
        let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let unreadable = |why: String| Refusal::bad_request(self.cannot_be_handled(&why));
        let (object, repeated) = match content.split(';').next().unwrap_or("").trim() {
            "" | "application/json" => decode::json(body).map_err(|why| {
                // Decoding it as anything gives the words that Go has for what is wrong with it.
                let of = wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
                let why =
                    schema::decode(of, body).err().map_or_else(|| why.to_string(), |why| why.to_string());
                Refusal::bad_request(wire::unrecognized(&self.version().names.kind, &why, body))
            })?,
            "application/yaml" => {
                let object = crate::body::yaml::read(body).map_err(unreadable)?;
                (object, Vec::new())
            }
            _ => return Err(Refusal::unsupported_media_type(&ACCEPTED)),
        };
        self.expect_type(&object, body)?;
        let cannot = |why: String| Refusal::bad_request(self.cannot_be_handled(&why));
        self.decoded(query, object, &repeated, cannot)
    }

    /// A patched document as an object again; what does not fit is the patch's fault (2.38).
    pub fn reread_body(
        &self,
        query: &Query,
        document: Value,
        invalid: impl Fn(&str, String) -> Refusal,
    ) -> Result<Read, Refusal> {
        let shown = types::go::json(&document);
        self.decoded(query, document, &[], |why| invalid(&shown, why))
    }

    fn decoded(
        &self,
        query: &Query,
        mut object: Value,
        repeated: &[String],
        refuse: impl Fn(String) -> Refusal,
    ) -> Result<Read, Refusal> {
        let unknown = self.version().decode(&mut object).map_err(|why| refuse(why.to_string()))?;
        let repeated = repeated.iter().map(|field| format!("duplicate field {}", quote(field)));
        let unknown = unknown.iter().map(|field| format!("unknown field {}", quote(field)));
        let strict: Vec<String> = repeated.chain(unknown).collect();
        let warnings = match query.get("fieldValidation").unwrap_or("Warn") {
            "Strict" if !strict.is_empty() => {
                return Err(refuse(format!("strict decoding error: {}", strict.join(", "))));
            }
            "Ignore" => Vec::new(),
            _ => strict,
        };
        Ok(Read { object, warnings })
    }

    /// A custom resource says itself what it is.
    fn expect_type(&self, object: &Value, sent: &[u8]) -> Result<(), Refusal> {
        let version = self.version();
        for (field, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
            let said = object.get(field).unwrap_or(&Value::Null);
            if !said.is_null() && !said.is_string() {
                let names = &version.names;
                return wire::expect_kind(&names.group, &version.version, &names.kind, object, sent)
                    .map_err(Refusal::bad_request);
            }
            if said.as_str().unwrap_or("").is_empty() {
                let sent = String::from_utf8_lossy(sent);
                return Err(Refusal::bad_request(format!(
                    "Object '{name}' is missing in '{}'",
                    sent.trim_end()
                )));
            }
        }
        Ok(())
    }

    fn cannot_be_handled(&self, why: &str) -> String {
        let version = self.version();
        let kind = &version.names.kind;
        format!("{kind} in version {} cannot be handled as a {kind}: {why}", quote(&version.version))
    }
}
