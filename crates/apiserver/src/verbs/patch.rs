//! PATCH of an object or of its status (2.36–2.40).

use http::{StatusCode, header};
use rules::wire;
use schema::pack::Shape;
use serde_json::Value;

use crate::answer::Answer;
use crate::apply::Tracked;
use crate::apply::go::plain;
use crate::body::{self, Read};
use crate::cluster::Context;
use crate::crd::decode;
use crate::managed::Followed;
use crate::patch::json::{Patch, Reading};
use crate::patch::text::{self, Reached};
use crate::patch::{self, Error};
use crate::registry::Resource;
use crate::request::Verb;
use crate::status::{About, Refusal};
use crate::verbs::create;
use crate::verbs::update::{Wanted, change};
use crate::{auth, managed, object, options, verbs};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

/// The first number that is too large for 64 bits with a sign.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
/// What is said to a merge patch that is none.
const NO_PATCH: &str = "Invalid JSON Patch";

pub(crate) const ACCEPTED: [&str; 4] = [
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

pub(crate) const ACCEPTED_CUSTOM: [&str; 3] =
    ["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];

pub(crate) async fn patch(context: &Context<'_>, bytes: &[u8], status: bool) -> Result<Answer, Refusal> {
    // Strategic merge needs a Go type, which custom resources have not; the garbage collector relies on hearing so (2.36).
    let accepted: &[&str] = if context.resource.custom.is_some() { &ACCEPTED_CUSTOM } else { &ACCEPTED };
    let patch = match Patching::read(context, accepted, bytes).map_err(|why| missing_first(context, why))? {
        Patching::Apply(config, repeated) => return apply(context, config, repeated, bytes, status).await,
        Patching::Document(patch) => patch,
    };
    change(context, status, |old| {
        let Read { object, warnings } = patch.read_again(context, context.resource, old)?;
        Ok(Wanted::of(managed::followed(context, Some(old), object, status), warnings))
    })
    .await
}

/// Whether the object is there is asked before a patch is read, unless that is applied and could make it.
pub(crate) fn missing_first(context: &Context<'_>, refusal: Refusal) -> Refusal {
    let key = object::key(context.resource, context.namespace(), context.name());
    let is_unread = refusal.code() == StatusCode::BAD_REQUEST && content_type(context) != APPLY;
    if is_unread && context.cluster.store().get(&key).is_none() {
        return verbs::absent(context, context.name());
    }
    refusal
}

/// Whether a configuration is applied.
pub(crate) fn is_apply(context: &Context<'_>) -> bool {
    context.target.verb == Verb::Patch && content_type(context) == APPLY
}

fn content_type<'a>(context: &'a Context<'_>) -> &'a str {
    let content = context.head.headers.get(header::CONTENT_TYPE);
    let content = content.and_then(|value| value.to_str().ok()).unwrap_or("");
    content.split(';').next().unwrap_or("").trim()
}

/// What a patch makes of an object.
pub(crate) enum Patching {
    /// A configuration is applied to it; which keys stand twice in that.
    Apply(Value, Vec<String>),
    /// Its JSON is changed.
    Document(SentPatch),
}

impl Patching {
    /// Reads a patch of one of the kinds that are accepted.
    pub(crate) fn read(context: &Context<'_>, accepted: &[&str], bytes: &[u8]) -> Result<Self, Refusal> {
        let content = content_type(context);
        if !accepted.contains(&content) {
            // In front of built-in resources there is a router that is short of words.
            return Err(if accepted.contains(&STRATEGIC) {
                Refusal::unsupported_media_type_here()
            } else {
                Refusal::unsupported_media_type(accepted)
            });
        }
        options::expect_of_patch(context.query, content == APPLY)?;
        if content == APPLY {
            let (config, repeated) = configuration(bytes)?;
            Ok(Patching::Apply(config, repeated))
        } else {
            SentPatch::read(context, content, bytes).map(Patching::Document)
        }
    }
}

/// What an operation adds with a field twice has it twice, wherever it is added; nobody looks into what is not known.
fn repeated_below(resource: &Resource, operations: &Value, field: &str) -> Option<String> {
    let (index, inner) = field.strip_prefix('[')?.split_once("].value.")?;
    let path = operations[index.parse::<usize>().ok()?]["path"].as_str()?;
    let first = path.trim_start_matches('/').split('/').next()?;
    if resource.custom.is_none() && resource.of_type().field(first).is_none() {
        return None;
    }
    let place = path.trim_start_matches('/').replace('/', ".");
    Some(format!("duplicate field {}", types::go::quote(&format!("{place}.{inner}"))))
}

/// A patch that was read.
pub(crate) struct SentPatch {
    kind: Kind,
    patch: Value,
    /// What a strict server finds wrong with the patch itself.
    strict: Vec<String>,
}

enum Kind {
    Operations(Patch),
    Merge,
    Strategic,
}

impl SentPatch {
    fn read(context: &Context<'_>, content: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        let is_lenient = context.query.get("fieldValidation") == Some("Ignore");
        let bad = |why: String| match content {
            STRATEGIC => Refusal::bad_request(why),
            _ => Refusal::bad_request(format!("error decoding patch: {why}")),
        };
        schema::check_syntax(bytes).map_err(|why| match content {
            // Only a strict reader says why.
            MERGE if is_lenient => Refusal::bad_request(NO_PATCH),
            _ => bad(why),
        })?;
        let (patch, repeated) = decode::json(bytes).map_err(|why| {
            let Some(number) = decode::beyond(bytes) else { return bad(why.to_string()) };
            let place =
                if matches!(content, MERGE | STRATEGIC) { "value" } else { "struct field jsonPatchOp.value" };
            bad(format!("json: cannot unmarshal number {number} into Go {place} of type float64"))
        })?;
        let mut strict: Vec<String> =
            repeated.iter().map(|field| format!("duplicate field {}", types::go::quote(field))).collect();
        let kind = match content {
            MERGE | STRATEGIC => {
                if let Some(found) = other_than_map(&patch).filter(|_| !is_lenient) {
                    return Err(bad(found));
                }
                if content == MERGE && !patch.is_object() && !patch.is_array() {
                    return Err(Refusal::bad_request(NO_PATCH));
                }
                if content == MERGE { Kind::Merge } else { Kind::Strategic }
            }
            _ => {
                let reading = if is_lenient { Reading::Lenient } else { Reading::Checked };
                let (operations, unknown) = Patch::read(patch.clone(), reading).map_err(refusal)?;
                strict = strict.iter().map(|why| format!("json patch {why}")).collect();
                strict.extend(unknown);
                let below =
                    repeated.iter().filter_map(|field| repeated_below(context.resource, &patch, field));
                strict.extend(below);
                Kind::Operations(operations)
            }
        };
        Ok(SentPatch { kind, patch, strict: if is_lenient { Vec::new() } else { strict } })
    }

    /// What the patch makes of an object of a resource, read again as one. Managers that it does not speak of may be left
    /// out: they stay who they were.
    pub(crate) fn read_again(
        &self,
        context: &Context<'_>,
        resource: &Resource,
        old: &Tracked,
    ) -> Result<Read, Refusal> {
        if !self.may_reach_managers() {
            let read = self.read_document(context, resource, &old.object);
            if read.is_ok() {
                return read;
            }
        }
        // Refusals show the document with all of it.
        self.read_document(context, resource, &old.whole())
    }

    /// Whether the patch may look at `metadata.managedFields` or change it.
    fn may_reach_managers(&self) -> bool {
        const MANAGERS: &str = "/metadata/managedFields";
        match &self.kind {
            Kind::Merge | Kind::Strategic => {
                let meta = self.patch.get("metadata");
                meta.is_some_and(|meta| {
                    meta.as_object().is_none_or(|meta| {
                        meta.keys().any(|key| key == "managedFields" || key.starts_with('$'))
                    })
                })
            }
            Kind::Operations(_) => {
                let reaches = |path: &str| path.starts_with(MANAGERS) || MANAGERS.starts_with(path);
                let operations = self.patch.as_array().into_iter().flatten();
                let mut paths = operations.flat_map(|operation| [&operation["path"], &operation["from"]]);
                paths.any(|path| path.as_str().is_some_and(reaches))
            }
        }
    }

    fn read_document(
        &self,
        context: &Context<'_>,
        resource: &Resource,
        old: &Value,
    ) -> Result<Read, Refusal> {
        let mut document = self.applied(resource, old).map_err(refusal)?;
        if matches!(self.kind, Kind::Strategic) {
            for field in ["apiVersion", "kind"] {
                if let Value::Number(number) = &document[field] {
                    let found = if number.is_f64() { "float64" } else { "int64" };
                    let why = format!("cannot convert {found} to string");
                    let path = rules::field::Path::new("patch");
                    let error = path.invalid(self.shown(resource, old, &document).as_str(), why);
                    let about = About { group: "", resource: "", name: "" };
                    return Err(Refusal::invalid(about, &vec![error]));
                }
            }
            // It is not asked what it says it is.
            document["apiVersion"] = resource.api_version().into();
            document["kind"] = resource.kind.clone().into();
        }
        let is_text = document["apiVersion"].is_string() || document["apiVersion"].is_null();
        let has_version = !is_text || wire::says_version(&resource.group, &document);
        if resource.custom.is_none() && document.is_object() && !has_version {
            return Err(without_version(context, &document, || self.shown(resource, old, &document)));
        }
        let reread = |document: &Value| {
            let shown = || self.shown(resource, old, document);
            body::reread(resource, context.query, document, &self.strict, shown)
        };
        let read = reread(&document);
        if read.is_ok() || !matches!(self.kind, Kind::Strategic) {
            return read;
        }
        wrap(resource.of_type(), &mut document);
        expect_convertible(resource, &document, || self.shown(resource, old, &document))?;
        reread(&document)
    }

    fn applied(&self, resource: &Resource, old: &Value) -> Result<Value, Error> {
        match &self.kind {
            Kind::Operations(operations) => operations.apply(old.clone()),
            Kind::Merge => patch::merge::apply(old.clone(), self.patch.clone()),
            Kind::Strategic => patch::strategic::apply(resource.of_type(), old.clone(), self.patch.clone()),
        }
    }

    /// What a refusal shows: the document that came out, or the patch as Go prints it.
    fn shown(&self, resource: &Resource, old: &Value, document: &Value) -> String {
        let of = || resource.custom.is_none().then(|| resource.of_type());
        match self.kind {
            Kind::Operations(_) => {
                text::print(of(), old, document, &Reached::by_operations(&self.patch, document))
            }
            Kind::Merge => text::print(of(), old, document, &Reached::by_merge(&self.patch)),
            Kind::Strategic => plain(&self.patch),
        }
    }
}

/// A strategic patch does not go through JSON once more, and what does not fit is told in other words.
fn expect_convertible(
    resource: &Resource,
    document: &Value,
    shown: impl Fn() -> String,
) -> Result<(), Refusal> {
    let Err(refused) = schema::decode_value(resource.of_type(), document) else { return Ok(()) };
    let Some(why) = converting(resource, document, &refused) else { return Ok(()) };
    let error = rules::field::Path::new("patch").invalid(shown().as_str(), why);
    Err(Refusal::invalid(About { group: "", resource: "", name: "" }, &vec![error]))
}

/// Integers that are too large lose their first digits, and whole numbers are integers, where no JSON is read.
fn wrap(of: schema::Type, value: &mut Value) {
    match (of.shape(), value) {
        (Shape::Pointer(inner), value) => wrap(inner, value),
        (Shape::List(inner), Value::Array(items)) => items.iter_mut().for_each(|item| wrap(inner, item)),
        (Shape::Map(inner), Value::Object(members)) => {
            members.values_mut().for_each(|member| wrap(inner, member));
        }
        (Shape::Struct, value @ Value::Object(_)) => {
            for field in of.fields() {
                if field.is_inline() {
                    wrap(field.of_type(), value);
                } else if let Some(member) = value.get_mut(field.name()) {
                    wrap(field.of_type(), member);
                }
            }
        }
        (shape @ (Shape::Int32 | Shape::Int64), Value::Number(number)) => {
            // Beyond 64 bits, all are the least.
            let is_beyond = number.as_i64().is_none()
                && number.as_f64().is_some_and(|float| float.fract() == 0.0 && float.abs() >= TWO_TO_63);
            let whole = if is_beyond { Some(i64::MIN) } else { whole(number) };
            if let Some(whole) = whole {
                #[expect(clippy::cast_possible_truncation, reason = "as Go does it")]
                let kept = if shape == Shape::Int32 { i64::from(whole as i32) } else { whole };
                *number = kept.into();
            }
        }
        (Shape::IntOrString, Value::Number(number)) => {
            if let Some(whole) = whole(number) {
                *number = whole.into();
            }
        }
        _ => {}
    }
}

/// The integer that a number is, however it is written.
fn whole(number: &serde_json::Number) -> Option<i64> {
    let is_whole = |float: &f64| float.fract() == 0.0 && float.abs() < TWO_TO_63;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and within 64 bits")]
    let of_float = || number.as_f64().filter(is_whole).map(|float| float as i64);
    number.as_i64().or_else(of_float)
}

/// Why a tree does not become an object, where that is told in other words than of a body.
fn converting(resource: &Resource, document: &Value, refused: &schema::DecodeError) -> Option<String> {
    const SCALARS: [&str; 5] = ["string", "bool", "int32", "int64", "float64"];
    Some(match refused {
        schema::DecodeError::Mismatch(mismatch) => {
            // What reads itself does so from JSON, and does not know where it stands.
            let (found, expected) = (mismatch.found(), mismatch.expected());
            match shape_at(resource.of_type(), mismatch.field()) {
                Some(Shape::IntOrString) => {
                    return Some(format!("json: cannot unmarshal {found} into Go value of type {expected}"));
                }
                Some(Shape::Time | Shape::MicroTime) => {
                    let found = found.split(' ').next().unwrap_or_default();
                    return Some(format!("json: cannot unmarshal {found} into Go value of type string"));
                }
                _ => {}
            }
            let (found, expected) = (mismatch.found(), mismatch.expected());
            let is_integer = number_at(document, mismatch.field()).is_some_and(serde_json::Number::is_i64);
            let found = match found.split(' ').next().unwrap_or("") {
                "object" => "map",
                "array" => "slice",
                "number" if is_integer => "int64",
                "number" => "float64",
                other => other,
            };
            match (expected, found) {
                ("string", "int64") | ("int32" | "int64", "float64") => {
                    format!("cannot convert {found} to {expected}")
                }
                (named, "int64") if shape_at(resource.of_type(), mismatch.field()) == Some(Shape::String) => {
                    format!("cannot convert int64 to {named}")
                }
                (list, _) if list.starts_with("[]") => format!("cannot restore slice from {found}"),
                (map, _) if map.starts_with("map[") => format!("cannot restore map from {found}"),
                (expected, _) if SCALARS.contains(&expected) => format!("unrecognized type: {expected}"),
                _ if shape_at(resource.of_type(), mismatch.field()) == Some(Shape::Struct) => {
                    format!("cannot restore struct from: {found}")
                }
                _ => return None,
            }
        }
        other if other.to_string().starts_with("illegal base64") => {
            format!("error decoding from json: {other}")
        }
        _ => return None,
    })
}

/// The first number at a path of field names, whatever lists and maps are on the way.
fn number_at<'a>(value: &'a Value, path: &str) -> Option<&'a serde_json::Number> {
    let (name, rest) = path.split_once('.').unwrap_or((path, ""));
    match value {
        Value::Number(number) => path.is_empty().then_some(number),
        Value::Array(items) => items.iter().find_map(|item| number_at(item, path)),
        Value::Object(members) => match members.get(name) {
            Some(member) => number_at(member, rest),
            None => members.values().find_map(|member| number_at(member, path)),
        },
        _ => None,
    }
}

/// The type of a field, which may stand in an inlined struct.
fn member(of: schema::Type, name: &str) -> Option<schema::Type> {
    if let Some(field) = of.field(name) {
        return Some(field.of_type());
    }
    of.fields().filter(|field| field.is_inline()).find_map(|field| member(field.of_type(), name))
}

/// What is at a path of field names, whatever lists and maps are on the way.
fn shape_at(of: schema::Type, path: &str) -> Option<Shape> {
    let unwrapped = |mut of: schema::Type| loop {
        match of.shape() {
            Shape::Pointer(inner) | Shape::List(inner) | Shape::Map(inner) => of = inner,
            _ => return of,
        }
    };
    let found = path.split('.').try_fold(of, |of, name| member(unwrapped(of), name));
    found.map(|mut of| {
        while let Shape::Pointer(inner) = of.shape() {
            of = inner;
        }
        of.shape()
    })
}

/// A patch that takes the version away leaves a document of no known type, in which no field is known and no name found.
fn without_version(context: &Context<'_>, document: &Value, shown: impl Fn() -> String) -> Refusal {
    let fields = document.as_object().into_iter().flatten().map(|(field, _)| field.as_str());
    let unknown = fields.filter(|field| !["apiVersion", "kind"].contains(field));
    let unknown = unknown.map(|field| format!("unknown field {}", types::go::quote(field))).collect();
    let invalid = |why: String| {
        let error = rules::field::Path::new("patch").invalid(shown().as_str(), why);
        Refusal::invalid(About { group: "", resource: "", name: "" }, &vec![error])
    };
    let name = context.name();
    let why =
        format!("the name of the object ({name} based on URL) was undeterminable: name must be provided");
    match body::told(context.query, unknown, invalid) {
        Err(refusal) => refusal,
        Ok(warnings) => Refusal::bad_request(why).warning(&warnings),
    }
}

/// What Go's reader says to anything that is no object.
fn other_than_map(value: &Value) -> Option<String> {
    let found = match value {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Object(_) | Value::Null => return None,
    };
    Some(format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"))
}

/// The configuration that is applied, and what is told of keys that stand twice in it: YAML, or JSON under YAML's name.
fn configuration(bytes: &[u8]) -> Result<(Value, Vec<String>), Refusal> {
    let bad = |why: String| Refusal::bad_request(format!("error decoding YAML: {why}"));
    let (config, repeated) = match decode::exactly(bytes) {
        Ok((config, fields)) if fields.is_empty() => (config, Vec::new()),
        // Whatever it is, it is read as YAML, which tells repeated keys by their lines.
        _ => {
            body::yaml::read_all(bytes).map_err(|why| bad(format!("error converting YAML to JSON: {why}")))?
        }
    };
    if let Some(why) = other_than_map(&config) {
        return Err(bad(format!("error unmarshaling JSON: while decoding JSON: {why}")));
    }
    let config = if config.is_null() { Value::Object(serde_json::Map::new()) } else { config };
    Ok((config, repeated))
}

/// Warns of keys that stand twice, or refuses them. They are looked for once the configuration was applied.
fn repeated_keys(context: &Context<'_>, repeated: &[String]) -> Result<Vec<String>, Refusal> {
    body::told_of_yaml(context.query, repeated.to_vec(), |why| {
        let why = why.replacen(
            "strict decoding error",
            "error strict decoding YAML: error converting YAML to JSON",
            1,
        );
        Refusal::bad_request(why)
    })
}

/// Server-side apply: makes the object if it is not there yet (2.41).
async fn apply(
    context: &Context<'_>,
    config: Value,
    repeated: Vec<String>,
    bytes: &[u8],
    status: bool,
) -> Result<Answer, Refusal> {
    let sent = || String::from_utf8_lossy(bytes).into_owned();
    let key = object::key(context.resource, context.namespace(), context.name());
    if !status && context.cluster.store().get(&key).is_none() {
        verbs::expect_segment(context.name())?;
        auth::expect_create(context)?;
        let applied = managed::apply(context, None, config.clone(), status)?;
        let told = repeated_keys(context, &repeated)?;
        let mut wanted = reread_applied(context, applied, told, sent)?;
        // Whoever names a version makes the object all the same (as measured).
        if let Some(meta) = wanted.object["metadata"].as_object_mut() {
            meta.remove("resourceVersion");
        }
        let Wanted { object: body, managers, warnings } = wanted;
        expect_unnamed_uid(context, &body).map_err(|why| why.or_warning(&warnings))?;
        verbs::expect_name(context, &body).map_err(|why| why.or_warning(&warnings))?;
        create::expect_place(context, context.name())?;
        let followed = Followed { body, canonical: None, managers };
        match create::attempt(context, &followed, &warnings).await {
            // Another client was quicker; its object is changed then.
            Err(refusal) if refusal.is_already_exists() => {}
            done => return done.map_err(|why| why.or_warning(&warnings)),
        }
    }
    change(context, status, |old| {
        let applied = managed::apply(context, Some(old), config.clone(), status)?;
        let told = repeated_keys(context, &repeated)?;
        // What a configuration leaves as it is does not get the defaults either that a definition has come to have.
        if context.resource.custom.is_some() && applied.object == old.object {
            return Ok(Wanted::applied(applied, told));
        }
        reread_applied(context, applied, told, sent)
    })
    .await
}

/// Whoever says which object is meant does not want another one made in its place (2.41).
fn expect_unnamed_uid(context: &Context<'_>, body: &Value) -> Result<(), Refusal> {
    let uid = object::text(body, &["metadata", "uid"]);
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    Err(Refusal::conflict(context.about(), &why))
}

/// What was applied as an object again, after what was told of the configuration. A custom resource is one already and only
/// gets its defaults.
fn reread_applied(
    context: &Context<'_>,
    applied: Tracked,
    told: Vec<String>,
    sent: impl Fn() -> String,
) -> Result<Wanted, Refusal> {
    let Tracked { object: mut applied, managers } = applied;
    let wanted = |object| Tracked { object, managers };
    if let Some(custom) = &context.resource.custom {
        return Ok(Wanted::applied(wanted(custom.version().with_defaults(applied)), told));
    }
    let reread = |applied: &Value| body::reread(context.resource, context.query, applied, &[], &sent);
    let read = reread(&applied).or_else(|_| {
        wrap(context.resource.of_type(), &mut applied);
        expect_object(context, &applied)?;
        reread(&applied)
    });
    let Read { object, warnings } = read.map_err(|why| why.or_warning(&told))?;
    Ok(Wanted::applied(wanted(object), [told, warnings].concat()))
}

/// What is applied becomes an object before it is read; times, amounts or bytes that are none are found then.
fn expect_object(context: &Context<'_>, applied: &Value) -> Result<(), Refusal> {
    let Err(refused) = schema::decode_value(context.resource.of_type(), applied) else { return Ok(()) };
    let why = converting(context.resource, applied, &refused).unwrap_or_else(|| refused.to_string());
    let (group, version) = (&context.resource.group, &context.resource.version);
    let kind = format!("{group}/{version}, Kind={}", context.resource.kind);
    let name = context.name();
    Err(Refusal::unknown(format!(
        "failed to convert new object (/{name}; {kind}) to proper version: unable to convert unstructured object to {kind}: \
         {why}"
    )))
}

fn refusal(error: Error) -> Refusal {
    match error {
        Error::BadRequest(why) => Refusal::bad_request(why),
        Error::TooLarge(why) => Refusal::too_many_operations(why),
        Error::Unprocessable(_) => Refusal::unprocessable(Error::UNPROCESSABLE),
        Error::Failed(why) => Refusal::unknown(why),
    }
}
