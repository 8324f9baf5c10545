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

/// Protobuf is named as well, and refused when it comes: a real server promises it too, and fails (§9, 1.32).
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What is said before the words of Go's decoder, and not where that had nothing to say.
const PARSE_ERROR: &str = "couldn't get version/kind; json parse error: ";

impl Custom {
    /// Reads an object.
    pub fn read_body(&self, headers: &HeaderMap, query: &Query, body: &[u8]) -> Result<Read, Refusal> {
        let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let kind = &self.version().names.kind;
        let unreadable = |why: String| Refusal::bad_request(wire::unreadable(kind, &why, body));
        let mut of_yaml = Vec::new();
        let (object, repeated) = match content.split(';').next().unwrap_or("").trim() {
            "" | "application/json" => decode::json(body).map_err(|why| {
                if let Some(number) = decode::beyond(body) {
                    let why = format!("json: cannot unmarshal number {number} into Go value of type float64");
                    return Refusal::bad_request(self.cannot_be_handled(&why));
                }
                // Decoding it as anything gives the words that Go has for what is wrong with it.
                let of = wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
                let why =
                    schema::decode(of, body).err().map_or_else(|| why.to_string(), |why| why.to_string());
                Refusal::bad_request(wire::unrecognized(&self.version().names.kind, &why, body))
            })?,
            "application/yaml" => {
                let (object, repeated) = crate::body::yaml::read_all(body).map_err(unreadable)?;
                of_yaml = repeated;
                (object, Vec::new())
            }
            _ => return Err(Refusal::unsupported_media_type(&ACCEPTED)),
        };
        self.expect_type(&object, body)?;
        let cannot = |why: String| Refusal::bad_request(self.cannot_be_handled(&why));
        // What is repeated in YAML comes after what is unknown.
        let also = match query.get("fieldValidation") {
            Some("Strict") if !of_yaml.is_empty() => {
                format!(", yaml: unmarshal errors:\n  {}", of_yaml.join("\n  "))
            }
            _ => String::new(),
        };
        let mut read = self.decoded(query, object, &repeated, |why| cannot(why + &also))?;
        read.warnings.splice(0..0, crate::body::told_of_yaml(query, of_yaml, cannot)?);
        Ok(read)
    }

    /// A patched document as an object again; what does not fit is the patch's fault (2.38).
    pub fn reread_body(
        &self,
        query: &Query,
        document: Value,
        invalid: impl Fn(String) -> Refusal,
    ) -> Result<Read, Refusal> {
        if !document.is_object() {
            let found = super::go::json_type(&document);
            let why =
                format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(invalid(why));
        }
        self.decoded(query, document, &[], invalid)
    }

    /// An object that somebody changed on its way in: what nobody knows is dropped again, what is left out is filled in.
    pub fn reread_admitted(&self, mut object: Value) -> Result<Value, Refusal> {
        if !object.is_object() {
            return Err(Refusal::internal("an object was replaced by something else"));
        }
        self.version().decode(&mut object).map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(object)
    }

    fn decoded(
        &self,
        query: &Query,
        mut object: Value,
        repeated: &[String],
        refuse: impl Fn(String) -> Refusal,
    ) -> Result<Read, Refusal> {
        let unknown = self.version().decode(&mut object).map_err(|error| {
            // Metadata of its own is decoded before anybody knows where it stands.
            let own = matches!(error.path.as_str(), "metadata");
            refuse(if own { error.detail } else { error.to_string() })
        })?;
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

    /// A custom resource says itself what it is, and that must be of the version in the path (2.24). Whether its kind is
    /// the right one is validated.
    fn expect_type(&self, object: &Value, sent: &[u8]) -> Result<(), Refusal> {
        let version = self.version();
        let kind = &version.names.kind;
        if !object.is_object() && !object.is_null() {
            let why = format!(
                "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                 Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                super::go::json_type(object)
            );
            return Err(Refusal::bad_request(wire::unrecognized(kind, &why, sent)));
        }
        let said = |field: &str| object.get(field).unwrap_or(&Value::Null);
        wire::expect_readable(kind, object, sent).map_err(Refusal::bad_request)?;
        if said("kind").as_str().unwrap_or("").is_empty() {
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(sent));
            return Err(Refusal::bad_request(wire::unrecognized(kind, &why, sent).replace(PARSE_ERROR, "")));
        }
        let (given, expected) = (said("apiVersion").as_str().unwrap_or(""), version.said_as.as_str());
        let given = if given == "/" { "" } else { given };
        if given != expected {
            return Err(Refusal::bad_request(format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        Ok(())
    }

    fn cannot_be_handled(&self, why: &str) -> String {
        let version = self.version();
        let kind = &version.names.kind;
        format!("{kind} in version {} cannot be handled as a {kind}: {why}", quote(&version.version))
    }
}
