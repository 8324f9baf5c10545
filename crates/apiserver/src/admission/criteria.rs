//! Which requests a webhook or a policy concerns (3.16), and in which version it wants to see them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Value, json};
use store::Store;

use super::plugin::{Operation, Request};
use crate::crd::Custom;
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};
use crate::strategy::forms;

/// What a webhook or a policy wants to be asked about.
#[derive(Debug, Clone, Default)]
pub(super) struct Criteria {
    pub(super) rules: Vec<Rule>,
    /// What it does not want to be asked about all the same.
    pub(super) excluded: Vec<Rule>,
    /// It is asked about other versions of what it names, too.
    pub(super) takes_equivalents: bool,
    pub(super) namespaces: LabelSelector,
    pub(super) objects: LabelSelector,
}

/// Requests of some kind.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    api_versions: Vec<String>,
    resources: Vec<String>,
    resource_names: Vec<String>,
    scope: Option<String>,
}

/// How it is asked about a request.
pub(super) struct Asked {
    /// Another resource that holds the same objects than the one that was requested.
    pub(super) instead: Option<Instead>,
    /// The object and the stored one, in the version that it wants.
    pub(super) object: Value,
    pub(super) old: Value,
}

/// A resource that holds the same objects as another one.
pub(super) enum Instead {
    /// Another version of a custom resource.
    Version(Box<Custom>),
    /// A built-in resource.
    BuiltIn(&'static Resource),
}

impl Instead {
    /// Group and version.
    pub(super) fn of<'a>(&'a self, resource: &'a Resource) -> (&'a str, &'a str) {
        match self {
            Instead::Version(custom) => (&resource.group, &custom.version().version),
            Instead::BuiltIn(other) => (&other.group, &other.version),
        }
    }

    /// An object of the requested resource as this one shows it.
    async fn seen(&self, requested: &Resource, object: Value) -> Result<Value, Refusal> {
        match self {
            _ if object.is_null() => Ok(object),
            Instead::Version(custom) => custom.read(object).await,
            Instead::BuiltIn(other) => Ok(converted(requested, other, object)),
        }
    }

    /// An object as the requested resource shows it again.
    pub(super) async fn back(&self, requested: &Resource, object: Value) -> Result<Value, Refusal> {
        match (self, &requested.custom) {
            (Instead::BuiltIn(other), _) => Ok(converted(other, requested, object)),
            (Instead::Version(_), Some(custom)) => custom.read(object).await,
            (Instead::Version(_), None) => Ok(object),
        }
    }
}

/// An object of one built-in resource as another one shows it.
fn converted(from: &Resource, to: &Resource, object: Value) -> Value {
    let kept = forms::of(from).map_or(object.clone(), |form| form.kept(&object));
    let mut seen = forms::of(to).map_or(kept.clone(), |form| form.seen(&kept));
    seen["apiVersion"] = json!(to.api_version());
    seen["kind"] = json!(to.kind);
    seen
}

const GROUP: &str = "admissionregistration.k8s.io";

impl Rule {
    /// Every request.
    pub(super) fn everything() -> Rule {
        let all = || vec!["*".to_owned()];
        let resources = vec!["*/*".to_owned()];
        Rule { operations: all(), api_groups: all(), api_versions: all(), resources, ..Rule::default() }
    }
}

impl Criteria {
    /// Whether such requests may be a concern, as far as the rules tell.
    pub(super) fn may_concern(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        // A webhook that could refuse the removal of its own configuration could never be removed.
        if resource.group == GROUP {
            return false;
        }
        let matches = |of: (&str, &str)| {
            self.rules.iter().any(|rule| rule_matches(rule, operation, resource, of, subresource))
        };
        matches((&resource.group, &resource.version))
            || self.takes_equivalents && others(resource).any(|other| matches(other.of(resource)))
    }

    /// How it is to be asked about a request; `None` if that is no concern.
    pub(super) async fn asked(&self, request: &Request<'_>, store: &Store) -> Result<Option<Asked>, Refusal> {
        let (operation, resource, subresource) = (request.operation, request.resource, request.subresource);
        let matches = |rule: &Rule, of: (&str, &str)| {
            rule_matches(rule, operation, resource, of, subresource)
                && (rule.resource_names.is_empty() || rule.resource_names.contains(&request.name))
        };
        let requested = (resource.group.as_str(), resource.version.as_str());
        let matches_requested = |rules: &[Rule]| rules.iter().any(|rule| matches(rule, requested));
        // The first rule that names another version says which one; those of one rule go by their own order.
        let another = |rules: &[Rule]| {
            let mut rules = rules.iter().filter(|_| self.takes_equivalents);
            rules.find_map(|rule| others(resource).find(|other| matches(rule, other.of(resource))))
        };
        if matches_requested(&self.excluded) || another(&self.excluded).is_some() {
            return Ok(None);
        }
        let instead = if matches_requested(&self.rules) {
            None
        } else {
            match another(&self.rules) {
                Some(other) => Some(other),
                None => return Ok(None),
            }
        };
        if !self.namespace_matches(request, store)? || !object_matches(&self.objects, request) {
            return Ok(None);
        }
        let object = request.object.clone().unwrap_or_default();
        let old = request.old.cloned().unwrap_or_default();
        Ok(Some(match instead {
            None => Asked { instead: None, object, old },
            Some(other) => {
                let object = other.seen(resource, object).await?;
                let old = other.seen(resource, old).await?;
                Asked { instead: Some(other), object, old }
            }
        }))
    }

    fn namespace_matches(&self, request: &Request<'_>, store: &Store) -> Result<bool, Refusal> {
        let Some(name) = namespace_of(request) else { return Ok(true) };
        if is_everything(&self.namespaces) {
            return Ok(true);
        }
        if request.is_about("", "namespaces") && request.object.is_some() {
            return Ok(selects(&self.namespaces, request.object.as_ref()));
        }
        let found = namespace(store, name);
        let found =
            found.ok_or_else(|| Refusal::not_found(About { group: "", resource: "namespaces", name }))?;
        Ok(selects(&self.namespaces, Some(&found)))
    }
}

/// The other resources that hold the same objects.
fn others(resource: &Resource) -> impl Iterator<Item = Instead> {
    // Also versions that are not served: a webhook may know one that clients do not see yet, or any more.
    let versions = resource.custom.iter().flat_map(|custom| custom.kind().versions());
    let versions = versions.filter(|other| other.version().version != resource.version);
    let own = (resource.group.as_str(), resource.version.as_str(), resource.plural.as_str());
    let other = match own {
        ("", "v1", "events") => Some(("events.k8s.io", "v1")),
        ("events.k8s.io", "v1", "events") => Some(("", "v1")),
        ("autoscaling", "v1", "horizontalpodautoscalers") => Some(("autoscaling", "v2")),
        ("autoscaling", "v2", "horizontalpodautoscalers") => Some(("autoscaling", "v1")),
        _ => None,
    };
    let other = other.filter(|_| resource.custom.is_none());
    let built_in = other.and_then(|(group, version)| {
        Registry::built_in().get(group, version, &resource.plural).map(|found| Instead::BuiltIn(found))
    });
    versions.map(|custom| Instead::Version(Box::new(custom))).chain(built_in)
}

fn rule_matches(
    rule: &Rule,
    operation: Operation,
    resource: &Resource,
    (group, version): (&str, &str),
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
        && has(&rule.api_groups, group)
        && has(&rule.api_versions, version)
        && rule.resources.iter().any(|known| {
            let (of, sub) = known.split_once('/').unwrap_or((known, ""));
            (of == "*" || of == resource.plural) && (sub == "*" || sub == subresource)
        })
}

/// The namespace that a request is about: for a namespace that is itself.
pub(super) fn namespace_of<'a>(request: &'a Request<'_>) -> Option<&'a str> {
    if request.resource.is_namespace() {
        return Some(&request.name);
    }
    Some(request.namespace).filter(|namespace| !namespace.is_empty())
}

pub(super) fn namespace(store: &Store, name: &str) -> Option<Value> {
    let namespaces = Registry::built_in().get("", "v1", "namespaces")?;
    Some(object::read(&*store.get(&object::key(namespaces, "", name))?))
}

fn object_matches(selector: &LabelSelector, request: &Request<'_>) -> bool {
    is_everything(selector) || selects(selector, request.object.as_ref()) || selects(selector, request.old)
}

pub(super) fn is_everything(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(std::collections::BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

pub(super) fn selects(selector: &LabelSelector, object: Option<&Value>) -> bool {
    let Some(object) = object else { return false };
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect();
    rules::meta::selector::matches(Some(selector), &labels) == Some(true)
}
