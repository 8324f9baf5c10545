//! The way of a write, from a decoded body to the object that is stored, in the order of an API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schema::pack::Shape;
use serde_json::{Value, json};

use super::{Counts, It, Kind, at, defaults, keep, metadata, set_metadata};
use crate::field::{self, Errors};
use crate::meta::system::{Identity, begin_create, match_namespace, match_stored};
use crate::semantic;
use crate::write::{Accepted, Refused};

/// What the pipeline has to know of a kind besides its rules.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The type of its objects.
    pub of: schema::Type,
    /// Their version.
    pub api_version: String,
    /// Their kind.
    pub kind: String,
    /// Whether they live in namespaces.
    pub namespaced: bool,
    /// Whether their status is written by itself.
    pub has_status: bool,
    /// Whether containers may be privileged.
    pub allow_privileged: bool,
}

/// The body with what nobody said. `stored` is what it changes, if it does.
pub fn with_defaults(kind: &dyn Kind, facts: &Facts, body: &Value, stored: Option<&Value>) -> Value {
    let mut object = body.clone();
    if let Some(stored) = stored.filter(|_| kind.keeps_defaults()) {
        settle(kind, facts, &mut object, Some(stored));
        if is_defaulted(&object, stored) {
            kind.default(&mut object);
            return object;
        }
        object.clone_from(body);
    }
    defaults::apply(facts.of, &mut object);
    kind.default(&mut object);
    object
}

/// Whether an object in canonical form has its defaults because the stored one has them.
fn is_defaulted(object: &Value, stored: &Value) -> bool {
    ["spec", "metadata.annotations"].iter().all(|path| at(object, path) == at(stored, path))
}

/// A new object. `body` is what [`schema::decode`] left, `expressions` is what is wrong with the expressions in it.
pub fn create(
    kind: &dyn Kind,
    facts: &Facts,
    body: &Value,
    namespace: &str,
    identity: Identity,
    expressions: &Errors,
) -> Result<Accepted, Refused> {
    let mut new = with_defaults(kind, facts, body, None);
    let mut meta = metadata(&new);
    begin_create(&mut meta, identity);
    match_namespace(&mut meta, if facts.namespaced { namespace } else { "" })?;
    if !matches!(kind.counts(), Counts::Nothing) {
        meta.generation = Some(1);
    }
    set_metadata(&mut new, &meta);
    schema::settle(facts.of, &mut new);
    if facts.has_status && kind.resets_status() {
        new["status"] = json!({});
    }
    let mut warnings = kind.prepare_create(&mut new);
    schema::settle(facts.of, &mut new);

    let it = judged(kind, facts, [&new, &Value::Null, body], ObjectMeta::default(), expressions);
    invalid_if_any(kind.validate(&it))?;
    invalid_if_any(it.common())?;
    if has_version(&it.meta) {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Refused::Internal(why.to_owned()));
    }
    warnings.extend(kind.warn(&new));
    new["metadata"].as_object_mut().map(|meta| meta.remove("resourceVersion"));
    kind.canonicalize(&mut new);
    Ok(Accepted { object: as_read(kind, facts, new, None), warnings })
}

/// A changed object.
pub fn update(
    kind: &dyn Kind,
    facts: &Facts,
    body: &Value,
    stored: &Value,
    expressions: &Errors,
) -> Result<Accepted, Refused> {
    let (mut new, old_meta) = begin(kind, facts, body, stored)?;
    if facts.has_status {
        keep(&mut new, stored, "status");
    }
    kind.prepare_update(&mut new, stored);
    settle(kind, facts, &mut new, Some(stored));
    count(kind, facts, &mut new, stored, body);

    let it = judged(kind, facts, [&new, stored, body], old_meta, expressions);
    let mut errors = it.common();
    errors.extend(kind.validate_update(&it));
    invalid_if_any(errors)?;
    let warnings = kind.warn_update(&new, stored);
    kind.canonicalize(&mut new);
    Ok(Accepted { object: as_read(kind, facts, new, Some(stored)), warnings })
}

/// A change through a subresource, such as `status`.
pub fn update_subresource(
    kind: &dyn Kind,
    facts: &Facts,
    subresource: &str,
    body: &Value,
    stored: &Value,
    expressions: &Errors,
) -> Result<Accepted, Refused> {
    let (mut new, old_meta) = begin(kind, facts, body, stored)?;
    let found_good = kind.prepare_good(subresource, &mut new, stored, facts.allow_privileged);
    settle(kind, facts, &mut new, Some(stored));
    if subresource != "status" {
        count(kind, facts, &mut new, stored, body);
    }
    let it = judged(kind, facts, [&new, stored, body], old_meta, expressions);
    let mut errors = it.common();
    if found_good.is_none() {
        errors.extend(kind.validate_subresource(subresource, &it));
    }
    invalid_if_any(errors)?;
    let warnings = found_good.unwrap_or_else(|| kind.warn_subresource(subresource, &new));
    kind.canonicalize(&mut new);
    Ok(Accepted { object: as_read(kind, facts, new, Some(stored)), warnings })
}

/// The body of a change, once it is clear that it speaks of the stored object; and the metadata of that.
fn begin(
    kind: &dyn Kind,
    facts: &Facts,
    body: &Value,
    stored: &Value,
) -> Result<(Value, ObjectMeta), Refused> {
    let mut new = with_defaults(kind, facts, body, Some(stored));
    let (mut meta, old_meta) = (metadata(&new), metadata(stored));
    match_stored(&mut meta, &old_meta)?;
    set_metadata(&mut new, &meta);
    settle(kind, facts, &mut new, Some(stored));
    Ok((new, old_meta))
}

/// Brings an object into canonical form.
fn settle(kind: &dyn Kind, facts: &Facts, new: &mut Value, stored: Option<&Value>) {
    beside_stored_spec(kind, new, stored, |new| schema::settle(facts.of, new));
}

/// Does something to all of an object but a spec that is as it is stored: that went through the same before it was.
fn beside_stored_spec(
    kind: &dyn Kind,
    new: &mut Value,
    stored: Option<&Value>,
    change: impl FnOnce(&mut Value),
) {
    let stored = stored.filter(|_| kind.keeps_defaults()).and_then(|stored| stored.get("spec"));
    let fields = new.as_object_mut().filter(|new| stored.is_some() && new.get("spec") == stored);
    let spec = fields.and_then(|new| new.remove("spec"));
    change(new);
    if let Some(spec) = spec {
        new["spec"] = spec;
    }
}

/// A change that counts makes a new generation.
fn count(kind: &dyn Kind, facts: &Facts, new: &mut Value, old: &Value, sent: &Value) {
    let differs = |fields: &[&str]| {
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let are_same = |field: &str| {
            let (new, old) = (at(new, field), at(old, field));
            let of = || field.split('.').try_fold(facts.of, schema::Type::member);
            new == old
                || is_empty(new) && is_empty(old)
                || of().is_some_and(|of| semantic::same(of, new, old))
        };
        fields.iter().any(|field| !are_same(field))
    };
    let grows = match kind.counts() {
        Counts::Nothing | Counts::Once => false,
        Counts::Spec => differs(&["spec"]),
        Counts::Fields(fields) => differs(fields),
        Counts::Exactly(fields) => {
            differs(fields) || fields.iter().any(|field| has_lost(at(sent, field), at(new, field)))
        }
    };
    if grows {
        new["metadata"]["generation"] = json!(old["metadata"]["generation"].as_i64().unwrap_or(0) + 1);
    }
}

/// Whether a list or a map without items was sent that nothing is left of.
fn has_lost(sent: &Value, kept: &Value) -> bool {
    match (sent, kept) {
        (Value::Array(items), Value::Null) => items.is_empty(),
        (Value::Object(fields), Value::Null) => fields.is_empty(),
        // Of the texts, only those that stand for bytes tell nothing from none.
        (Value::Object(sent), Value::Object(kept))
            if sent.get("caBundle").is_some_and(|sent| sent == "") && !kept.contains_key("caBundle") =>
        {
            true
        }
        (Value::Array(sent), Value::Array(kept)) => sent.iter().zip(kept).any(|(a, b)| has_lost(a, b)),
        (Value::Object(sent), kept @ Value::Object(_)) => {
            sent.iter().any(|(name, value)| has_lost(value, kept.get(name).unwrap_or(&Value::Null)))
        }
        _ => false,
    }
}

fn judged<'a>(
    kind: &dyn Kind,
    facts: &Facts,
    [new, old, sent]: [&'a Value; 3],
    old_meta: ObjectMeta,
    expressions: &'a [field::Error],
) -> It<'a> {
    It {
        new,
        old,
        sent,
        meta: metadata(new),
        old_meta,
        allow_privileged: facts.allow_privileged,
        // Of several errors at a path the first.
        expressions: expressions.iter().rev().map(|error| (error.path.as_str(), error)).collect(),
        namespaced: facts.namespaced,
        name: kind.name(),
    }
}

/// What is stored gets its defaults once more when it is read. Storing forgets that a list was there if it was empty.
fn as_read(kind: &dyn Kind, facts: &Facts, new: Value, stored: Option<&Value>) -> Value {
    let mut object = new;
    beside_stored_spec(kind, &mut object, stored, |object| {
        forget_empty_lists(facts.of, object);
        schema::settle(facts.of, object);
    });
    if !stored.is_some_and(|stored| kind.keeps_defaults() && is_defaulted(&object, stored)) {
        defaults::apply(facts.of, &mut object);
    }
    kind.default(&mut object);
    object["apiVersion"] = json!(facts.api_version);
    object["kind"] = json!(facts.kind);
    settle(kind, facts, &mut object, stored);
    object
}

/// Nothing tells a list without items from one that is not there, once both were stored.
fn forget_empty_lists(of: schema::Type, value: &mut Value) {
    match of.shape() {
        Shape::Pointer(inner) => forget_empty_lists(inner, value),
        Shape::List(inner) => match value.as_array_mut() {
            Some(items) if items.is_empty() => *value = Value::Null,
            items => items.into_iter().flatten().for_each(|item| forget_empty_lists(inner, item)),
        },
        Shape::Map(inner) => {
            let items = value.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut);
            items.for_each(|item| forget_empty_lists(inner, item));
        }
        Shape::Struct => {
            for (name, inner) in value.as_object_mut().into_iter().flatten() {
                if let Some(of) = of.member(name) {
                    forget_empty_lists(of, inner);
                }
            }
        }
        _ => {}
    }
}

fn has_version(meta: &ObjectMeta) -> bool {
    let version = meta.resource_version.as_deref().unwrap_or("");
    version.parse::<u64>().is_ok_and(|version| version != 0)
}

fn invalid_if_any(errors: Errors) -> Result<(), Refused> {
    if errors.is_empty() { Ok(()) } else { Err(Refused::Invalid(errors)) }
}
