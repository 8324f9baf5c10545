//! What is served: every resource with its names, its verbs and its type.
//!
//! The built-in ones are a table of facts read off a real API server (`cargo run -p testkit --example discovery`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use bytes::Bytes;
use serde::Deserialize;
use store::Revision;

use crate::crd::Custom;
use crate::status::Refusal;
use crate::strategy::forms;

/// A resource that is served, in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// The name in paths.
    pub plural: String,
    /// The name of one of them.
    pub singular: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be asked of it.
    pub verbs: Vec<String>,
    /// Other names that `kubectl` takes.
    pub short_names: Vec<String>,
    /// Groups of resources that `kubectl get` takes, such as `all`.
    pub categories: Vec<String>,
    /// Tells clients whether two versions are stored alike.
    pub storage_version_hash: String,
    /// Its subresources.
    pub subresources: Vec<Subresource>,
    /// What its definition says of its objects, if users defined it.
    pub custom: Option<Arc<Custom>>,
    /// The type of its objects, once somebody asked for it.
    pub(crate) known_type: OnceLock<schema::Type>,
}

/// A subresource, such as `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// The name in paths.
    pub name: String,
    /// The kind that is read and written there.
    pub kind: String,
    /// Group and version of that kind, where they are not the resource's own.
    pub of: Option<(String, String)>,
    /// What can be asked of it.
    pub verbs: Vec<String>,
}

impl Resource {
    /// Whether these are the namespaces of a cluster, and not a kind of somebody's own that is called so.
    pub fn is_namespace(&self) -> bool {
        (self.group.as_str(), self.plural.as_str()) == ("", "namespaces")
    }

    /// Whether these are definitions of kinds.
    pub fn is_definition(&self) -> bool {
        (self.group.as_str(), self.plural.as_str()) == ("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Whether these are events, in either of their APIs.
    pub fn is_event(&self) -> bool {
        matches!((self.group.as_str(), self.kind.as_str()), ("" | "events.k8s.io", "Event"))
    }

    /// Whether a verb can be asked of it.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// `batch/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The kind of a list of its objects.
    pub fn list_kind(&self) -> String {
        match &self.custom {
            Some(custom) => custom.version().names.list_kind.clone(),
            None => format!("{}List", self.kind),
        }
    }

    /// Stored bytes, each with the revision it was written at, as clients of this version see them.
    pub(crate) async fn shown(&self, stored: Vec<(Revision, Bytes)>) -> Result<Vec<Bytes>, Refusal> {
        match &self.custom {
            None => {
                let bytes = stored.into_iter().map(|(_, bytes)| bytes);
                Ok(match forms::of(self) {
                    None => bytes.collect(),
                    Some(form) => bytes.map(|bytes| form.seen_bytes(&bytes)).collect(),
                })
            }
            Some(custom) => custom.shown(stored).await,
        }
    }

    /// The type of its objects. Only built-in resources have one in the schema pack.
    pub fn of_type(&self) -> schema::Type {
        *self.known_type.get_or_init(|| {
            let of = schema::Pack::v1_35().of_kind(&self.group, &self.version, &self.kind);
            of.expect("every built-in kind has a type")
        })
    }

    /// The subresource with this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|known| known.name == name)
    }
}

/// The group, version and plural name of a resource.
type Id = (String, String, String);

/// All resources that a cluster serves at one moment.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    resources: BTreeMap<Id, Arc<Resource>>,
}

impl Registry {
    /// What every cluster serves.
    pub fn built_in() -> &'static Registry {
        static BUILT_IN: LazyLock<Registry> = LazyLock::new(|| read(include_str!("registry/kinds.json")));
        &BUILT_IN
    }

    /// What every cluster serves, and what users defined.
    pub fn with(custom: impl IntoIterator<Item = Resource>) -> Registry {
        let mut registry = Registry::built_in().clone();
        for resource in custom {
            let id = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
            registry.resources.entry(id).or_insert_with(|| Arc::new(resource));
        }
        registry
    }

    /// Without what is not to be served any more.
    pub(crate) fn without(&self, is_gone: impl Fn(&Resource) -> bool) -> Registry {
        let kept = self.resources.iter().filter(|(_, resource)| !is_gone(resource));
        Registry { resources: kept.map(|(id, resource)| (id.clone(), resource.clone())).collect() }
    }

    /// The resource at a path.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The resource of a kind.
    pub fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.iter().find(|known| known.group == group && known.version == version && known.kind == kind)
    }

    /// Every resource, by group, version and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Whether anything of a group is served.
    pub fn has_group(&self, group: &str) -> bool {
        self.iter().any(|known| known.group == group)
    }
}

/// What makes a version preferred: stable ones come before beta and alpha, higher ones before lower, and whatever is not
/// called like a version last, by name.
pub(crate) fn preference(version: &str) -> (u8, u64, u64, Reverse<&str>) {
    let parsed = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major = rest[..digits].parse().ok()?;
        let (stability, minor) = match &rest[digits..] {
            "" => (3, "0"),
            rest if rest.starts_with("beta") => (2, &rest[4..]),
            rest if rest.starts_with("alpha") => (1, &rest[5..]),
            _ => return None,
        };
        Some((stability, major, minor.parse().ok()?))
    };
    let (stability, major, minor) = parsed().unwrap_or_default();
    (stability, major, minor, Reverse(version))
}

/// One line of the table. A subresource stands as `jobs/status`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    group: String,
    version: String,
    kind: String,
    name: String,
    singular_name: String,
    namespaced: bool,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    storage_version_hash: String,
    of: Option<(String, String)>,
}

fn read(table: &str) -> Registry {
    let rows: Vec<Row> = serde_json::from_str(table).expect("the table of kinds is JSON");
    let (subresources, resources): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.name.contains('/'));
    let mut registry = Registry::default();
    for row in resources {
        let id = (row.group.clone(), row.version.clone(), row.name.clone());
        let resource = Resource {
            group: row.group,
            version: row.version,
            kind: row.kind,
            plural: row.name,
            singular: row.singular_name,
            namespaced: row.namespaced,
            verbs: row.verbs,
            short_names: row.short_names,
            categories: row.categories,
            storage_version_hash: row.storage_version_hash,
            subresources: Vec::new(),
            custom: None,
            known_type: OnceLock::new(),
        };
        registry.resources.insert(id, Arc::new(resource));
    }
    for row in subresources {
        let (of, name) = row.name.split_once('/').expect("a subresource has a slash");
        let id = (row.group.clone(), row.version.clone(), of.to_owned());
        let resource =
            registry.resources.get_mut(&id).expect("the table has the resource of each subresource");
        let subresource = Subresource { name: name.to_owned(), kind: row.kind, of: row.of, verbs: row.verbs };
        Arc::make_mut(resource).subresources.push(subresource);
    }
    registry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_01_api_02_jobs() {
        let jobs = Registry::built_in().get("batch", "v1", "jobs").expect("Jobs are served");
        assert_eq!((jobs.kind.as_str(), jobs.singular.as_str(), jobs.namespaced), ("Job", "job", true));
        assert_eq!(jobs.categories, ["all"]);
        assert!(jobs.short_names.is_empty());
        assert_eq!(
            jobs.verbs,
            ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        );
        let status = jobs.subresource("status").expect("Jobs have a status");
        assert_eq!(status.verbs, ["get", "patch", "update"]);
        assert_eq!(jobs.subresource("scale"), None);
        assert!(Registry::built_in().get("batch", "v1beta1", "jobs").is_none());
    }

    #[test]
    fn d9_every_persisted_kind_has_a_type() {
        let persisted: Vec<_> =
            Registry::built_in().iter().filter(|resource| resource.allows("watch")).collect();
        assert!(persisted.len() >= 56, "{}", persisted.len());
        for resource in persisted {
            let of = schema::Pack::v1_35().of_kind(&resource.group, &resource.version, &resource.kind);
            assert!(of.is_some(), "{} {} has no type", resource.api_version(), resource.kind);
        }
    }

    #[test]
    fn rule_1_15_which_version_is_preferred() {
        let mut versions =
            ["v1beta1", "foo10", "v10", "v1alpha2", "v2", "v11beta2", "v1", "v3beta1", "foo1", "v1alpha1"];
        versions.sort_by_key(|version| Reverse(preference(version)));
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v3beta1", "v1beta1", "v1alpha2", "v1alpha1", "foo1", "foo10"];
        assert_eq!(versions, expected);
    }

    #[test]
    fn rule_1_11_subresources_of_foreign_kinds() {
        let pods = Registry::built_in().get("", "v1", "pods").expect("pods are served");
        let eviction = pods.subresource("eviction").expect("pods can be evicted");
        assert_eq!(eviction.of, Some(("policy".to_owned(), "v1".to_owned())));
        assert_eq!(eviction.verbs, ["create"]);
    }
}
