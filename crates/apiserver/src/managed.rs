//! Who manages which fields: every write is followed, and configurations are applied (2.41–2.50).

use http::header;
use jiff::Timestamp;
use rules::field::Path;
use serde_json::{Value, json};

pub(crate) use crate::apply::without_managed_fields;
use crate::apply::{
    ApplyError, BuiltIn, FieldManager, Filters, Schema, TypeId, Versions, empty, remove_managed_fields,
};
use crate::cluster::Context;
use crate::registry::Resource;
use crate::status::{About, Refusal};
use crate::subresources;

/// A built-in kind, which has one version as far as managers are concerned.
struct Kind<'a>(&'a Resource);

impl Versions for Kind<'_> {
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)> {
        let Kind(resource) = self;
        let is_served = version == resource.api_version();
        is_served.then(|| BuiltIn::v1_35().of_kind(&resource.group, &resource.version, &resource.kind))?
    }

    fn are_fixed(&self) -> bool {
        true
    }

    fn convert(&self, object: &Value, _version: &str) -> Result<Value, String> {
        Ok(object.clone())
    }
}

/// The body of a write whose managers are known.
pub(crate) struct Followed {
    /// As it was sent, because refusals show it so, but for the managers.
    pub(crate) body: Value,
    /// As it would be stored, without managers.
    pub(crate) canonical: Value,
}

/// The body of a write with the managers of its fields, which are worked out on the body as it would be stored. There is no
/// `live` when an object is created.
pub(crate) fn followed(
    context: &Context<'_>,
    live: Option<&Value>,
    mut body: Value,
    status: bool,
) -> Followed {
    let given = remove_managed_fields(&mut body);
    let mut canonical = context.canonical(&body, live);
    // An empty list of managers is a wish to have none (2.47); canonical JSON has no empty lists.
    if let Some(given) = given {
        canonical["metadata"]["managedFields"] = given;
    }
    let manager = manager(context);
    let followed = with_field_manager(context, status, live.is_none(), |fields, empty| {
        fields.update(live.unwrap_or(empty), &mut canonical, &manager, Timestamp::now())
    });
    // Upstream does not refuse a write because it cannot tell who manages its fields, and takes the managers away; so do we.
    if let Err(error) = followed {
        tracing::debug!(%error, "fields of a write are managed by nobody");
    }
    if let Some(managers) = remove_managed_fields(&mut canonical) {
        body["metadata"]["managedFields"] = managers;
    }
    Followed { body, canonical }
}

/// What a configuration makes of `live`, or of nothing.
pub(crate) fn apply(
    context: &Context<'_>,
    live: Option<&Value>,
    config: Value,
    status: bool,
) -> Result<Value, Refusal> {
    let manager = context.query.get("fieldManager").unwrap_or("");
    if manager.is_empty() {
        let error = Path::new("fieldManager").required("is required for apply patch");
        return Err(Refusal::invalid(
            About { group: "meta.k8s.io", resource: "PatchOptions", name: "" },
            &vec![error],
        ));
    }
    let force = context.query.is_on("force");
    let applied = with_field_manager(context, status, true, |fields, empty| {
        fields.apply(live.unwrap_or(empty), config, manager, force, Timestamp::now())
    });
    applied.map_err(|error| match error {
        ApplyError::BadRequest(why) => Refusal::bad_request(why),
        ApplyError::Conflicts(conflicts) => Refusal::apply_conflict(&conflicts),
        ApplyError::Failed(why) => Refusal::unknown(why),
    })
}

/// The fields of an object's managers, while its kind's rules look at the rest of it. They are the larger part of many
/// objects, and no rule looks into them.
pub(crate) struct Aside(Vec<Option<Value>>);

impl Aside {
    /// Takes them out of an object.
    pub(crate) fn taken(object: &mut Value) -> Self {
        Aside(entries(object).map(|entry| entry.as_object_mut()?.remove(FIELDS)).collect())
    }

    /// Puts them back, now that the rules have passed on the entries that they stood in.
    pub(crate) fn put_back(self, object: &mut Value) {
        for (entry, fields) in entries(object).zip(self.0) {
            if let (Some(entry), Some(fields)) = (entry.as_object_mut(), fields) {
                entry.insert(FIELDS.to_owned(), fields);
            }
        }
    }
}

const FIELDS: &str = "fieldsV1";

fn entries(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut).into_iter().flatten()
}

/// Acts with the managers of the kind, and with an object of it that is empty; null if that is not needed.
fn with_field_manager<T>(
    context: &Context<'_>,
    status: bool,
    from_nothing: bool,
    act: impl FnOnce(&FieldManager<'_>, &Value) -> T,
) -> T {
    let resource = context.resource;
    let version = resource.api_version();
    let built_in = Kind(resource);
    let (empty, versions): (_, &dyn Versions) = match &resource.custom {
        None if !from_nothing => (Value::Null, &built_in),
        None => (empty(resource.of_type(), &version, &resource.kind), &built_in),
        Some(custom) => (json!({"apiVersion": version, "kind": resource.kind}), &**custom),
    };
    let subresource = context.target.subresource.as_deref().unwrap_or("");
    let part = if status { subresource } else { "" };
    let reset = Filters::from([(version.clone(), subresources::written(resource, part))]);
    let fields = FieldManager {
        versions,
        version: &version,
        kind: &resource.kind,
        subresource,
        reset: &reset,
        empty: &empty,
    };
    act(&fields, &empty)
}

/// Who writes: what the client says, or the first word of the program that it is.
fn manager(context: &Context<'_>) -> String {
    if let Some(manager) = context.query.get("fieldManager").filter(|manager| !manager.is_empty()) {
        return manager.to_owned();
    }
    let agent =
        context.head.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
    let name = agent.split('/').next().unwrap_or("").chars().filter(|c| types::go::is_print(*c));
    name.take(128).collect()
}
