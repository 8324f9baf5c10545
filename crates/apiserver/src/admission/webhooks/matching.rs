//! Which webhooks a request concerns (3.16), and in which version they want to see it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use store::Store;

use super::conditions::{self, Seen};
use super::configuration::{Hook, Rule};
use super::review;
use crate::admission::plugin::{Operation, Request};
use crate::crd::Custom;
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};

/// How a webhook is asked about a request.
pub(super) struct Asked {
    /// Another version of the custom resource than the one that was requested.
    pub(super) instead: Option<Custom>,
    /// The object and the stored one, in the version that the webhook wants.
    pub(super) object: Value,
    pub(super) old: Value,
}

const GROUP: &str = "admissionregistration.k8s.io";

/// Whether a webhook may be asked about such requests, as far as its rules tell.
pub(super) fn may_concern(hook: &Hook, operation: Operation, resource: &Resource, subresource: &str) -> bool {
    // Whoever could refuse the removal of his own configuration could never be removed.
    resource.group != GROUP
        && hook.rules.iter().any(|rule| {
            let versions = std::iter::once(resource.version.as_str());
            let others = hook.takes_equivalents.then(|| other_versions(resource)).into_iter().flatten();
            let others: Vec<String> = others.map(|other| other.version().version.clone()).collect();
            versions
                .chain(others.iter().map(String::as_str))
                .any(|version| rule_matches(rule, operation, resource, version, subresource))
        })
}

fn other_versions(resource: &Resource) -> impl Iterator<Item = Custom> {
    let served = resource.custom.iter().flat_map(|custom| custom.kind().served());
    served.filter(|other| other.version().version != resource.version)
}

fn rule_matches(
    rule: &Rule,
    operation: Operation,
    resource: &Resource,
    version: &str,
    subresource: &str,
) -> bool {
    let has = |list: &[String], wanted: &str| list.iter().any(|known| known == "*" || known == wanted);
    let scope = match rule.scope.as_deref() {
        None | Some("*") => true,
        Some("Namespaced") => resource.namespaced,
        Some("Cluster") => !resource.namespaced,
        Some(_) => false,
    };
    scope
        && has(&rule.operations, &operation.to_string())
        && has(&rule.api_groups, &resource.group)
        && has(&rule.api_versions, version)
        && rule.resources.iter().any(|known| {
            let (of, sub) = known.split_once('/').unwrap_or((known, ""));
            (of == "*" || of == resource.plural) && (sub == "*" || sub == subresource)
        })
}

/// How a webhook is to be asked; `None` if the request is no concern of its.
pub(super) async fn asked(
    hook: &Hook,
    request: &Request<'_>,
    store: &Store,
) -> Result<Option<Asked>, Refusal> {
    let (operation, resource, subresource) = (request.operation, request.resource, request.subresource);
    let matches = |version: &str| {
        hook.rules.iter().any(|rule| rule_matches(rule, operation, resource, version, subresource))
    };
    let instead = if matches(&resource.version) {
        None
    } else {
        let mut others = other_versions(resource).filter(|_| hook.takes_equivalents);
        match others.find(|other| matches(&other.version().version)) {
            Some(other) => Some(other),
            None => return Ok(None),
        }
    };
    if !namespace_matches(hook, request, store)? || !object_matches(&hook.objects, request) {
        return Ok(None);
    }
    let object = request.object.clone().unwrap_or_default();
    let old = request.old.cloned().unwrap_or_default();
    let asked = match instead {
        None => Asked { instead: None, object, old },
        Some(other) => {
            let object = if object.is_null() { object } else { other.read(object).await? };
            let old = if old.is_null() { old } else { other.read(old).await? };
            Asked { instead: Some(other), object, old }
        }
    };
    let holds = hook.conditions.is_empty() || meets_conditions(hook, request, &asked, store)?;
    Ok(holds.then_some(asked))
}

fn meets_conditions(
    hook: &Hook,
    request: &Request<'_>,
    asked: &Asked,
    store: &Store,
) -> Result<bool, Refusal> {
    let described = review::request("", request, asked, false);
    let namespace = namespace_of(request).and_then(|name| namespace(store, name)).unwrap_or_default();
    let seen =
        Seen { object: &asked.object, old_object: &asked.old, request: &described, namespace: &namespace };
    match conditions::all_hold(&hook.conditions, &seen) {
        Ok(holds) => Ok(holds),
        Err(_) if hook.is_ignored_on_failure => Ok(false),
        Err(why) => {
            let Resource { group, plural, .. } = request.resource;
            Err(Refusal::forbidden(About { group, resource: plural, name: &request.name }, &why))
        }
    }
}

/// The namespace that a request is about: for a namespace that is itself.
fn namespace_of<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    if request.resource.group.is_empty() && request.resource.plural == "namespaces" {
        return Some(&request.name);
    }
    Some(request.namespace).filter(|namespace| !namespace.is_empty())
}

fn namespace(store: &Store, name: &str) -> Option<Value> {
    let namespaces = Registry::built_in().get("", "v1", "namespaces")?;
    Some(object::read(&*store.get(&object::key(namespaces, "", name))?))
}

fn namespace_matches(hook: &Hook, request: &Request<'_>, store: &Store) -> Result<bool, Refusal> {
    let Some(name) = namespace_of(request) else { return Ok(true) };
    if is_everything(&hook.namespaces) {
        return Ok(true);
    }
    let is_itself = request.is_about("", "namespaces") && request.object.is_some();
    if is_itself {
        return Ok(selects(&hook.namespaces, request.object.as_ref()));
    }
    let found = namespace(store, name);
    let found = found.ok_or_else(|| Refusal::not_found(About { group: "", resource: "namespaces", name }))?;
    Ok(selects(&hook.namespaces, Some(&found)))
}

fn object_matches(selector: &LabelSelector, request: &Request<'_>) -> bool {
    is_everything(selector) || selects(selector, request.object.as_ref()) || selects(selector, request.old)
}

fn is_everything(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

fn selects(selector: &LabelSelector, object: Option<&Value>) -> bool {
    let Some(object) = object else { return false };
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    rules::meta::selector::matches(Some(selector), &labels) == Some(true)
}
