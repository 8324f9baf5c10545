//! What can be done with objects, a file a verb.

pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod get;
pub(crate) mod list;
pub(crate) mod patch;
pub(crate) mod scale;
pub(crate) mod update;
pub(crate) mod watch;

use std::collections::HashSet;
use std::sync::Arc;

use http::{HeaderMap, StatusCode, header};
use rules::write::Refused;
use serde_json::Value;
use store::{Draft, Object};

use crate::answer::{self, Answer};
use crate::apply::{Entries, set_managed_fields};
use crate::cluster::Context;
use crate::object;
use crate::registry::Resource;
use crate::request::{Target, Verb};
use crate::service::LeavesOutManagers;
use crate::status::{About, Refusal};

/// A refusal by a kind's rules.
fn refused(context: &Context<'_>, object: &Value, name: &str, refused: Refused) -> Refusal {
    match refused {
        Refused::BadRequest(why) => Refusal::bad_request(why),
        Refused::Conflict(why) => Refusal::conflict(context.about_name(name), &why),
        Refused::Invalid(errors) => {
            // A custom resource is called what it says it is.
            let (group, kind) = match context.resource.custom {
                Some(_) => {
                    let version = object::text(object, &["apiVersion"]);
                    (version.split_once('/').map_or("", |(group, _)| group), object::text(object, &["kind"]))
                }
                None => (context.resource.group.as_str(), context.resource.kind.as_str()),
            };
            let about = About { group, resource: kind, name };
            Refusal::invalid(about, &errors)
        }
        Refused::Internal(why) => Refusal::unknown(why),
    }
}

/// About as much as the storage of a real server takes of one object (2.49).
const LARGEST: usize = 1536 * 1024;

/// An object ready to be stored. One that is too large goes without saying who manages its fields, or not at all; only
/// definitions may be as large as a body can be (8.24).
async fn draft_within(context: &Context<'_>, object: &Value, managers: &Entries) -> Result<Draft, Refusal> {
    let draft = context.draft(object, managers).await?;
    let is_small = |draft: &Draft, managers: &Entries| {
        draft.size() <= LARGEST || stored_size(context, whole(object, managers)) <= LARGEST
    };
    if is_small(&draft, managers) || context.resource.is_definition() {
        return Ok(draft);
    }
    let too_large = || Refusal::unknown("etcdserver: request is too large");
    if managers.text().is_none() || patch::is_apply(context) {
        return Err(too_large());
    }
    let unmanaged = Entries::default();
    let draft = context.draft(object, &unmanaged).await?;
    if is_small(&draft, &unmanaged) { Ok(draft) } else { Err(too_large()) }
}

/// How much an object takes where it is stored in the most compact form that its kind has.
fn stored_size(context: &Context<'_>, object: Value) -> usize {
    if context.resource.custom.is_some() {
        return serde_json::to_vec(&object).map_or(usize::MAX, |bytes| bytes.len());
    }
    schema::protobuf::encode(context.resource.of_type(), &object).len()
}

/// An object with its managers in it.
fn whole(object: &Value, managers: &Entries) -> Value {
    let mut object = object.clone();
    set_managed_fields(&mut object, managers.tree());
    object
}

/// A write that the store did not take.
pub(crate) fn not_committed(context: &Context<'_>, name: &str, error: store::error::Commit) -> Refusal {
    use store::error::Commit;
    match error {
        Commit::Exists { .. } => Refusal::already_exists(context.about_name(name), false),
        Commit::Absent { .. } => Refusal::not_found(context.about_name(name)),
        Commit::Conflict { .. } => Refusal::modified(context.about_name(name)),
        other => Refusal::unavailable(other.to_string()),
    }
}

/// Whether what is posted is in a form that nobody reads, which is said before anything about options.
pub(crate) fn is_unread(resource: &Resource, target: &Target, headers: &HeaderMap) -> bool {
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let content = content.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let is_read = match content.as_str() {
        "" | "application/json" | "application/yaml" => true,
        "application/vnd.kubernetes.protobuf" => resource.custom.is_none(),
        _ => false,
    };
    target.verb == Verb::Create && !is_read
}

/// The object as it is stored.
async fn stored(context: &Context<'_>, code: StatusCode, object: &Arc<Object>) -> Result<Answer, Refusal> {
    let shown = context.shown(std::slice::from_ref(object)).await?.pop().unwrap_or_default();
    if context.head.extensions.get::<LeavesOutManagers>().is_some()
        && let Some(at) = object.revision_at().filter(|_| shown.as_ptr() == object.value.as_ptr())
        && let Some((before, _, after)) = object::around_managers(&shown, at)
    {
        return Ok(answer::json(code, [before, after].concat()));
    }
    Ok(answer::json(code, shown))
}

/// The object as it would be stored, and is not.
fn unstored(code: StatusCode, object: &Value, managers: &Entries) -> Answer {
    answer::value(code, &whole(object, managers))
}

/// Whether an object names an owner twice.
fn repeats_owners(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let mut seen = HashSet::new();
    owners.iter().any(|owner| !seen.insert(owner.to_string()))
}

/// Owners are named once; whoever names one twice is warned (2.29).
fn without_repeated_owners(object: &mut Value, when: &str) -> Option<String> {
    let owners = object.get_mut("metadata")?.get_mut("ownerReferences")?.as_array_mut()?;
    let mut repeated: Vec<String> = Vec::new();
    let (mut seen, mut told) = (HashSet::new(), HashSet::new());
    owners.retain(|owner| {
        let is_new = seen.insert(owner.to_string());
        if !is_new {
            let uid = owner["uid"].as_str().unwrap_or("");
            if told.insert(uid.to_owned()) {
                repeated.push(uid.to_owned());
            }
        }
        is_new
    });
    (!repeated.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject \
             such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            repeated.join(", ")
        )
    })
}

/// What is said of an object that is not there. One whose name cannot stand in a path was not even looked for (2.5).
pub(crate) fn absent(context: &Context<'_>, name: &str) -> Refusal {
    expect_segment(name).err().unwrap_or_else(|| Refusal::not_found(context.about_name(name)))
}

/// Objects are looked for, and made, only by names that can stand in a path.
pub(crate) fn expect_segment(name: &str) -> Result<(), Refusal> {
    let problems = rules::names::path_segment(name);
    if problems.is_empty() {
        return Ok(());
    }
    let (name, why) = (types::go::quote(name), problems.join(";"));
    Err(Refusal::bad_request(format!("Name parameter invalid: {name}: {why}")))
}

/// The object must be in the namespace that the path names, or leave it open (2.31).
pub(crate) fn expect_namespace(context: &Context<'_>, object: &Value) -> Result<(), Refusal> {
    let own = crate::object::text(object, &["metadata", "namespace"]);
    // Objects without a namespace lose one that they were given.
    if own.is_empty() || own == context.namespace() || !context.resource.namespaced {
        return Ok(());
    }
    let why = "the namespace of the provided object does not match the namespace sent on the request";
    Err(Refusal::bad_request(why))
}

/// The object must have the name that the path has (2.31).
fn expect_name(context: &Context<'_>, object: &Value) -> Result<(), Refusal> {
    let (name, wanted) = (crate::object::text(object, &["metadata", "name"]), context.name());
    if name.is_empty() {
        let why = format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        );
        return Err(Refusal::bad_request(why));
    }
    if name != wanted {
        let why = format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
        return Err(Refusal::bad_request(why));
    }
    Ok(())
}
