//! What every pod gets, or must have, before its own rules look at it: a service account, a priority, tolerations, labels
//! that tell where it is, resources within the limits of its namespace, and no more power than its standards allow.

pub(super) mod limits;
pub(super) mod priority;
pub(super) mod runtime_class;
pub(super) mod security;
pub(super) mod service_account;
pub(super) mod tolerations;
pub(super) mod topology;

use store::Store;

use super::plugin::Request;
use crate::object;
use crate::registry::Registry;
use crate::status::{About, Refusal};

/// An object that is stored.
pub(super) fn find(
    store: &Store,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Option<serde_json::Value> {
    let resource = Registry::built_in().get(group, "v1", plural)?;
    Some(object::read(&*store.get(&object::key(resource, namespace, name))?))
}

/// 403, naming the object as far as its name is known.
pub(super) fn forbidden(request: &Request<'_>, why: &str) -> Refusal {
    let object = request.object.as_ref();
    let said = |field: &str| object.map_or("", |object| object::text(object, &["metadata", field]));
    let name = [request.name.as_str(), said("name"), said("generateName"), "Unknown"];
    let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or("");
    Refusal::forbidden(
        About { group: &request.resource.group, resource: &request.resource.plural, name },
        why,
    )
}

/// The lists of containers of a pod that are there from the start, with what messages call their members.
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];
