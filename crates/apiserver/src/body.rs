//! Request bodies: what forms are read, and how a body that cannot be read is refused (1.26, 2.24, 2.65).

pub mod yaml;

use http::{HeaderMap, header};
use rules::field::Path;
use rules::wire;
use serde_json::Value;
use types::go;

use crate::registry::Resource;
use crate::request::Query;
use crate::status::{About, Refusal};

/// What bodies may be written in.
const ACCEPTED: [&str; 3] = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// What Go says to something else than an object where it looks for what that is.
fn no_type_meta(found: &Value) -> String {
    let found = match found {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        _ => "bool",
    };
    format!(
        "json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \
         \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
    )
}

/// A body that was read.
pub struct Read {
    /// The object, as [`schema::decode`] leaves it.
    pub object: Value,
    /// Unknown and repeated fields, to be warned of.
    pub warnings: Vec<String>,
}

/// Reads an object of a resource.
pub fn read(resource: &Resource, headers: &HeaderMap, query: &Query, body: &[u8]) -> Result<Read, Refusal> {
    if let Some(custom) = &resource.custom {
        return custom.read_body(headers, query, body);
    }
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let content = content.to_ascii_lowercase();
    let of = resource.of_type();
    match content.split(';').next().unwrap_or("").trim() {
        "" | "application/json" => read_json(resource, of, query, body),
        "application/yaml" => {
            let (tree, repeated) = yaml::read_all(body)
                .map_err(|why| Refusal::bad_request(wire::unreadable(&resource.kind, &why, body)))?;
            let cannot = |why: String| Refusal::bad_request(cannot_be_handled(resource, &why));
            if !tree.is_object() && !tree.is_null() {
                let why = no_type_meta(&tree);
                return Err(Refusal::bad_request(wire::unrecognized(&resource.kind, &why, body)));
            }
            wire::expect_readable(&resource.kind, &tree, body).map_err(Refusal::bad_request)?;
            let (object, unknown) = decoded(resource, of, yaml::print(&tree).as_bytes(), body)?;
            let is_strict = query.get("fieldValidation") == Some("Strict");
            if is_strict && !unknown.is_empty() && !repeated.is_empty() {
                let yaml = format!("yaml: unmarshal errors:\n  {}", repeated.join("\n  "));
                told(query, unknown.into_iter().chain([yaml]).collect(), cannot)?;
                return Err(Refusal::internal("a strict reader refuses what it was told".to_owned()));
            }
            let mut warnings = told_of_yaml(query, repeated, cannot)?;
            warnings.extend(told(query, unknown, cannot)?);
            Ok(Read { object, warnings })
        }
        "application/vnd.kubernetes.protobuf" => {
            let unreadable = |why: schema::protobuf::Error| {
                let why = why.to_string();
                let is_other = why.starts_with("provided data does not appear to be a protobuf message");
                let why = if is_other { wire::unreadable(&resource.kind, &why, body) } else { why };
                Refusal::bad_request(why)
            };
            let object = schema::protobuf::decode(of, body).map_err(unreadable)?;
            expect_kind(resource, &object, body)?;
            Ok(Read { object, warnings: Vec::new() })
        }
        _ => Err(Refusal::unsupported_media_type(&ACCEPTED)),
    }
}

fn read_json(resource: &Resource, of: schema::Type, query: &Query, body: &[u8]) -> Result<Read, Refusal> {
    let (object, strict) = decoded(resource, of, body, body)?;
    let cannot = |why: String| Refusal::bad_request(cannot_be_handled(resource, &why));
    Ok(Read { object, warnings: told(query, strict, cannot)? })
}

/// An object, and what a strict reader finds wrong with it. It was sent in this form or another one.
fn decoded(
    resource: &Resource,
    of: schema::Type,
    body: &[u8],
    sent: &[u8],
) -> Result<(Value, Vec<String>), Refusal> {
    let decoded =
        schema::decode(of, body).map_err(|why| undecodable(resource, body, sent, &why.to_string()))?;
    expect_kind(resource, &decoded.value, sent)?;
    Ok((decoded.value, decoded.strict.iter().map(ToString::to_string).collect()))
}

/// Why a body is none of its type. What it says it is comes first, if it can be heard.
fn undecodable(resource: &Resource, body: &[u8], sent: &[u8], why: &str) -> Refusal {
    let unrecognized = |why: &str| Refusal::bad_request(wire::unrecognized(&resource.kind, why, body));
    match head(body) {
        // What is no JSON does not tell what it is.
        None => unrecognized(why),
        Some(head) if !head.is_object() && !head.is_null() => unrecognized(&no_type_meta(&head)),
        Some(head) => match expect_kind(resource, &head, sent) {
            Err(refusal) => refusal,
            Ok(()) => Refusal::bad_request(cannot_be_handled(resource, why)),
        },
    }
}

/// A body as far as it tells what it is. Numbers that nobody can hold do not matter to that.
fn head(body: &[u8]) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct Head {
        #[serde(default, rename = "apiVersion")]
        api_version: Value,
        #[serde(default)]
        kind: Value,
    }
    serde_json::from_slice(body).ok().or_else(|| {
        schema::check_syntax(body).ok()?;
        let Head { api_version, kind } = serde_json::from_slice(body).ok()?;
        Some(serde_json::json!({"apiVersion": api_version, "kind": kind}))
    })
}

/// A patched document as an object again; what does not fit its type is the patch's fault (2.38). `strict` is what a strict
/// server finds wrong with the patch itself, and `shown` what it shows of it.
pub fn reread(
    resource: &Resource,
    query: &Query,
    document: &Value,
    strict: &[String],
    shown: impl Fn() -> String,
) -> Result<Read, Refusal> {
    let invalid = |why: String| {
        let error = Path::new("patch").invalid(shown().as_str(), why);
        Refusal::invalid(About { group: "", resource: "", name: "" }, &vec![error])
    };
    if let Some(custom) = &resource.custom {
        let mut read = custom.reread_body(query, document.clone(), invalid)?;
        read.warnings = told(query, [strict, &read.warnings].concat(), invalid)?;
        return Ok(read);
    }
    if document.is_array() {
        let why = no_type_meta(document);
        return Err(invalid(format!("couldn't get version/kind; json parse error: {why}")));
    }
    if let Some(other) = other_kind(resource, document) {
        // It is read as what it says it is before anybody finds that it should be something else.
        schema::decode_value(other, document).map_err(|why| invalid(why.to_string()))?;
    }
    // Only a version that says nothing but its group is told of with all of the document.
    let version = document["apiVersion"].as_str().and_then(|version| version.strip_suffix('/'));
    let text = if version.is_some_and(|group| !group.contains('/')) { shown() } else { String::new() };
    let (group, version, kind) = (&resource.group, &resource.version, &resource.kind);
    if let Err(why) = wire::expect_kind(group, version, kind, document, text.as_bytes()) {
        // The reason alone: what could not be handled as what is clear from the request, and there is no body to show.
        let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why);
        return Err(invalid(why.strip_suffix(" (<empty>)").unwrap_or(why).to_owned()));
    }
    let decoded =
        schema::decode_value(resource.of_type(), document).map_err(|why| invalid(why.to_string()))?;
    let own = decoded.strict.iter().map(ToString::to_string);
    let warnings = told(query, strict.iter().cloned().chain(own).collect(), invalid)?;
    Ok(Read { object: decoded.value, warnings })
}

/// The type that a document says it is of, if that is another one than the resource's.
fn other_kind(resource: &Resource, document: &Value) -> Option<schema::Type> {
    let said = |field: &str| document[field].as_str().unwrap_or("");
    let (group, version) = said("apiVersion").split_once('/').unwrap_or(("", said("apiVersion")));
    let own = (resource.group.as_str(), resource.version.as_str(), resource.kind.as_str());
    if (group, version, said("kind")) == own {
        return None;
    }
    schema::Pack::v1_35().of_kind(group, version, said("kind"))
}

/// What becomes of keys that are repeated in YAML; as [`told`], in other words (2.65).
pub(crate) fn told_of_yaml(
    query: &Query,
    repeated: Vec<String>,
    refuse: impl Fn(String) -> Refusal,
) -> Result<Vec<String>, Refusal> {
    if query.get("fieldValidation") == Some("Strict") && !repeated.is_empty() {
        let lines = repeated.join("\n  ");
        return Err(refuse(format!("strict decoding error: yaml: unmarshal errors:\n  {lines}")));
    }
    told(query, repeated, refuse)
}

/// What becomes of what a strict server refuses: warnings, nothing, or a refusal (2.65).
pub(crate) fn told(
    query: &Query,
    strict: Vec<String>,
    refuse: impl Fn(String) -> Refusal,
) -> Result<Vec<String>, Refusal> {
    match query.get("fieldValidation").unwrap_or("Warn") {
        "Strict" if !strict.is_empty() => {
            Err(refuse(format!("strict decoding error: {}", strict.join(", "))))
        }
        "Ignore" => Ok(Vec::new()),
        _ => Ok(strict),
    }
}

/// The body must say the kind and the version that the path says, or nothing.
fn expect_kind(resource: &Resource, object: &Value, sent: &[u8]) -> Result<(), Refusal> {
    let Resource { group, version, kind, .. } = resource;
    wire::expect_kind(group, version, kind, object, sent).map_err(Refusal::bad_request)
}

fn cannot_be_handled(resource: &Resource, why: &str) -> String {
    let Resource { kind, version, .. } = resource;
    format!("{kind} in version {} cannot be handled as a {kind}: {why}", go::quote(version))
}

/// What a DELETE is asked to do (2.52).
#[derive(Debug, Default)]
pub struct DeleteOptions {
    /// All of it, as it was said.
    pub value: Value,
    /// How long the object may take, in seconds.
    pub grace: Option<i64>,
    /// What becomes of owned objects.
    pub policy: Option<String>,
    /// The same in older words.
    pub orphan: Option<bool>,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// The code of an answer when the object is not gone yet. Old clients that wait for owned objects hear of it.
    pub fn code_if_held(&self) -> http::StatusCode {
        if self.orphan == Some(false) { http::StatusCode::ACCEPTED } else { http::StatusCode::OK }
    }

    /// Judges options that were read.
    pub fn of(value: Value) -> Result<Self, Refusal> {
        let dry_run: Vec<&str> =
            value["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let policy = value["propagationPolicy"].as_str();
        let mut errors = Vec::new();
        if let (Some(policy), false) = (policy, value["orphanDependents"].is_null()) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(Path::new("propagationPolicy").invalid(policy, why));
        }
        if let Some(policy) = policy.filter(|policy| !["Foreground", "Background", "Orphan"].contains(policy))
        {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            errors.push(Path::new("propagationPolicy").not_supported(policy, &known));
        }
        errors.extend(crate::options::dry_run_errors(&dry_run));
        if !errors.is_empty() {
            let about = About { group: "meta.k8s.io", resource: "DeleteOptions", name: "" };
            return Err(Refusal::invalid(about, &errors));
        }
        Ok(DeleteOptions {
            grace: value["gracePeriodSeconds"].as_i64(),
            policy: policy.map(str::to_owned),
            orphan: value["orphanDependents"].as_bool(),
            dry_run: !dry_run.is_empty(),
            value,
        })
    }
}

/// The options of a DELETE: from the body, or else from the query (2.52).
pub fn delete_options(headers: &HeaderMap, query: &Query, body: &[u8]) -> Result<DeleteOptions, Refusal> {
    if body.is_empty() {
        return DeleteOptions::of(delete_options_of(query)?);
    }
    let of = wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let bad = |why: String| Refusal::bad_request(why);
    let value = match content.split(';').next().unwrap_or("").trim() {
        "application/vnd.kubernetes.protobuf" => {
            schema::protobuf::decode(of, body).map_err(|why| bad(why.to_string()))?
        }
        "application/yaml" => {
            let tree = yaml::read(body).map_err(bad)?;
            schema::decode_value(of, &tree).map_err(|why| bad(why.to_string()))?.value
        }
        "" | "application/json" => {
            let found = serde_json::from_slice::<Value>(body);
            if let Some(found) = found.as_ref().ok().filter(|found| !found.is_object() && !found.is_null()) {
                let why = no_type_meta(found);
                return Err(bad(format!("couldn't get version/kind; json parse error: {why}")));
            }
            if let Some(why) = found.ok().and_then(|found| unknown_version(&found, body)) {
                return Err(bad(why));
            }
            if let Err(why) = schema::check_syntax(body) {
                return Err(bad(format!("couldn't get version/kind; json parse error: {why}")));
            }
            schema::decode(of, body).map_err(|why| bad(why.to_string()))?.value
        }
        _ => return Err(Refusal::unsupported_media_type(&ACCEPTED)),
    };
    if let Some(kind) = value["kind"].as_str().filter(|kind| !["", "DeleteOptions"].contains(kind)) {
        let (kind, version) = (go::quote(kind), go::quote(value["apiVersion"].as_str().unwrap_or("v1")));
        let scheme = "in scheme \"pkg/runtime/scheme.go:111\"";
        return Err(bad(format!("no kind {kind} is registered for version {version} {scheme}")));
    }
    DeleteOptions::of(value)
}

/// Why nobody knows of what version options are.
fn unknown_version(options: &Value, sent: &[u8]) -> Option<String> {
    for field in ["apiVersion", "kind"] {
        if let Some(found) = options.get(field).filter(|found| !found.is_string() && !found.is_null()) {
            let found = crate::crd::go::json_type(found);
            let why = format!("json: cannot unmarshal {found} into Go struct field .{field} of type string");
            return Some(format!("couldn't get version/kind; json parse error: {why}"));
        }
    }
    let version = options["apiVersion"].as_str().unwrap_or("");
    if version.matches('/').count() > 1 {
        return Some(format!("unexpected GroupVersion string: {version}"));
    }
    let is_group = version.len() > 1 && version.ends_with('/');
    is_group.then(|| format!("Object 'apiVersion' is missing in '{}'", String::from_utf8_lossy(sent)))
}

fn delete_options_of(query: &Query) -> Result<Value, Refusal> {
    let mut options = serde_json::Map::new();
    if let Some(text) = query.get("gracePeriodSeconds") {
        options.insert("gracePeriodSeconds".to_owned(), crate::options::integer(text)?.into());
    }
    if query.get("orphanDependents").is_some() {
        options.insert("orphanDependents".to_owned(), query.is_on("orphanDependents").into());
    }
    if let Some(policy) = query.get("propagationPolicy") {
        options.insert("propagationPolicy".to_owned(), policy.into());
    }
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if !dry_run.is_empty() {
        options.insert("dryRun".to_owned(), dry_run.into());
    }
    Ok(Value::Object(options))
}
