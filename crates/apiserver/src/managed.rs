//! Who manages which fields: every write is followed, and configurations are applied (2.41–2.50).

use std::borrow::Cow;

use http::{HeaderValue, header};
use jiff::Timestamp;
use rules::field::Path;
use serde_json::{Value, json};

use crate::apply::managers::manager_name;
use crate::apply::{
    ApplyError, BuiltIn, Entries, FieldManager, Filters, Schema, Tracked, TypeId, Versions, empty,
    remove_managed_fields, set_managed_fields,
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
    /// As it was sent, because refusals show it so.
    pub(crate) body: Value,
    /// As it would be stored, where that is another form and known already.
    pub(crate) canonical: Option<Value>,
    /// Who manages its fields.
    pub(crate) managers: Managers,
}

/// Who manages the fields of what is written.
#[derive(Clone, Default)]
pub(crate) struct Managers {
    pub(crate) entries: Entries,
    /// Whether the client, or a webhook, has said who does. What others say is judged with the rest of the object.
    pub(crate) are_given: bool,
}

impl Managers {
    /// An object as the rules see it: with who was said to manage its fields.
    pub(crate) fn judged<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        if !self.are_given {
            return Cow::Borrowed(object);
        }
        let mut object = object.clone();
        set_managed_fields(&mut object, self.entries.tree());
        Cow::Owned(object)
    }
}

/// The body of a write and the managers of its fields, which are worked out on the body as it would be stored. There is no
/// `live` when an object is created.
pub(crate) fn followed(
    context: &Context<'_>,
    live: Option<&Tracked>,
    mut body: Value,
    status: bool,
) -> Followed {
    let given = remove_managed_fields(&mut body);
    let canonical = context.canonical(&body, live.map(|live| &live.object));
    let manager = manager(context);
    let followed = with_field_manager(context, status, live.is_none(), |fields, empty| {
        let new = canonical.as_ref().unwrap_or(&body);
        fields.update(live.unwrap_or(empty), new, given.as_ref(), &manager, Timestamp::now())
    });
    // Upstream does not refuse a write because it cannot tell who manages its fields, and takes the managers away; so do we.
    let entries = followed.unwrap_or_else(|error| {
        tracing::debug!(%error, "fields of a write are managed by nobody");
        Entries::default()
    });
    Followed { body, canonical, managers: Managers { entries, are_given: given.is_some() } }
}

/// What a configuration makes of `live`, or of nothing.
pub(crate) fn apply(
    context: &Context<'_>,
    live: Option<&Tracked>,
    config: Value,
    status: bool,
) -> Result<Tracked, Refusal> {
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

/// Acts with the managers of the kind, and with an object of it that is empty; null if that is not needed.
fn with_field_manager<T>(
    context: &Context<'_>,
    status: bool,
    from_nothing: bool,
    act: impl FnOnce(&FieldManager<'_>, &Tracked) -> T,
) -> T {
    let resource = context.resource;
    let version = resource.api_version();
    let built_in = Kind(resource);
    let (empty, versions): (Value, &dyn Versions) = match &resource.custom {
        None if !from_nothing => (Value::Null, &built_in),
        None => (empty(resource.of_type(), &version, &resource.kind), &built_in),
        Some(custom) => (json!({"apiVersion": version, "kind": resource.kind}), &**custom),
    };
    let subresource = context.target.subresource.as_deref().unwrap_or("");
    let part = if status { subresource } else { "" };
    let reset = Filters::from([(version.clone(), subresources::written(resource, part))]);
    let empty = Tracked { object: empty, managers: Entries::default() };
    let fields = FieldManager {
        versions,
        version: &version,
        kind: &resource.kind,
        subresource,
        reset: &reset,
        empty: &empty.object,
    };
    act(&fields, &empty)
}

/// Who writes: what the client says, or the first word of the program that it is.
fn manager(context: &Context<'_>) -> String {
    let agent = context.head.headers.get(header::USER_AGENT).map_or(&b""[..], HeaderValue::as_bytes);
    manager_name(context.query.get("fieldManager").unwrap_or(""), &String::from_utf8_lossy(agent))
}
