//! What clients are told of groups that others serve: in lists of groups, in one document with everything, and in the index
//! of OpenAPI documents.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Said, all};
use crate::cluster::Cluster;
use crate::registry::preference;

/// How much users' own definitions count against others.
const OF_DEFINITIONS: i64 = 1000;
const OF_DEFINED_VERSIONS: i64 = 100;
/// How much those count who are in this process: what Kueue's APIServices say of the one there is.
const OF_NEIGHBOURS: i64 = 100;

/// All groups that others serve.
pub(crate) struct Groups(BTreeMap<String, Group>);

/// One of them.
pub(crate) struct Group {
    priority: i64,
    versions: Vec<Version>,
}

/// A version of one of them.
struct Version {
    name: String,
    priority: i64,
    is_available: bool,
    said: Option<Arc<Said>>,
}

impl Groups {
    /// Those that are served now.
    pub(crate) fn of(cluster: &Cluster) -> Groups {
        let mut groups = Groups(BTreeMap::new());
        for remote in all(cluster) {
            let said = cluster.aggregator().said(&remote.name);
            let (name, priority) = (remote.version, remote.version_priority);
            let version = Version { name, priority, is_available: remote.is_available, said };
            groups.add(&remote.group, remote.group_priority, version);
        }
        for neighbour in cluster.aggregator().neighbours() {
            for name in neighbour.versions() {
                let (resources, document) = (neighbour.resources(name), neighbour.document(name));
                let said = Some(Arc::new(Said { resources, document }));
                let name = name.to_owned();
                let version = Version { name, priority: OF_NEIGHBOURS, is_available: true, said };
                groups.add(neighbour.group(), OF_NEIGHBOURS, version);
            }
        }
        groups
    }

    /// Adds a version, unless it is served by somebody who was added before.
    fn add(&mut self, group: &str, priority: i64, version: Version) {
        let entry = self.0.entry(group.to_owned());
        let group = entry.or_insert_with(|| Group { priority: 0, versions: Vec::new() });
        group.priority = group.priority.max(priority);
        if !group.versions.iter().any(|known| known.name == version.name) {
            group.versions.push(version);
        }
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Group> {
        self.0.get(name)
    }

    /// Where a group stands among those that are not built in: the higher its priority the earlier.
    pub(crate) fn place(&self, name: &str) -> Reverse<i64> {
        Reverse(self.0.get(name).map_or(OF_DEFINITIONS, |group| group.priority))
    }

    /// The versions of a group, of others and our own, the preferred one first.
    pub(crate) fn versions<'a>(&'a self, name: &str, own: &[&'a str]) -> Vec<&'a str> {
        let theirs = self.0.get(name).map_or(&[][..], |group| &group.versions);
        let mut all: Vec<(i64, &str)> =
            theirs.iter().map(|version| (version.priority, version.name.as_str())).collect();
        for version in own {
            if !all.iter().any(|(_, known)| known == version) {
                all.push((OF_DEFINED_VERSIONS, version));
            }
        }
        all.sort_by_key(|(priority, version)| Reverse((*priority, preference(version))));
        all.into_iter().map(|(_, version)| version).collect()
    }

    /// Entries in the index of OpenAPI documents, by their paths.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (String, Value)> {
        self.0.iter().flat_map(|(name, group)| {
            group.versions.iter().filter_map(move |version| {
                let entry = version.said.as_ref()?.document.clone()?;
                Some((format!("apis/{name}/{}", version.name), entry))
            })
        })
    }
}

impl Group {
    /// A version in the document with everything. What does not answer now is told as it was, and that it may be old.
    pub(crate) fn described(&self, name: &str) -> Option<Value> {
        let version = self.versions.iter().find(|version| version.name == name)?;
        let resources = version.said.as_ref().map_or(&[][..], |said| &said.resources);
        let freshness = if version.is_available && version.said.is_some() { "Current" } else { "Stale" };
        Some(json!({"version": name, "resources": aggregated(resources), "freshness": freshness}))
    }
}

/// The entries of an `APIResourceList` as they stand in the document with everything: subresources below their resource.
fn aggregated(list: &[Value]) -> Vec<Value> {
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    // What is not said of a kind is what holds for the place where it stands.
    let kind = |entry: &Value| json!({"group": text(entry, "group"), "version": text(entry, "version"), "kind": text(entry, "kind")});
    let mut order: Vec<String> = Vec::new();
    let mut resources: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for entry in list {
        let name = text(entry, "name");
        let (resource, subresource) =
            name.split_once('/').map_or((name.as_str(), None), |(a, b)| (a, Some(b)));
        let known = resources.entry(resource.to_owned()).or_insert_with(|| {
            order.push(resource.to_owned());
            Map::from_iter([("resource".to_owned(), json!(resource))])
        });
        let scope = if entry["namespaced"] == true { "Namespaced" } else { "Cluster" };
        let Some(subresource) = subresource else {
            known.insert("responseKind".to_owned(), kind(entry));
            known.insert("scope".to_owned(), json!(scope));
            known.insert("singularResource".to_owned(), json!(text(entry, "singularName")));
            known.insert("verbs".to_owned(), entry["verbs"].clone());
            for field in ["shortNames", "categories"] {
                if entry[field].as_array().is_some_and(|words| !words.is_empty()) {
                    known.insert(field.to_owned(), entry[field].clone());
                }
            }
            continue;
        };
        known.entry("scope").or_insert_with(|| json!(scope));
        let below = known.entry("subresources").or_insert_with(|| json!([]));
        if let Some(below) = below.as_array_mut() {
            below.push(
                json!({"subresource": subresource, "responseKind": kind(entry), "verbs": entry["verbs"]}),
            );
        }
    }
    order.into_iter().filter_map(|name| resources.remove(&name)).map(Value::Object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_resources_become_one_document() {
        let list = [
            json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing", "verbs": ["get"], "shortNames": ["t"]}),
            json!({"name": "things/scale", "singularName": "", "namespaced": true, "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["update"]}),
            json!({"name": "alone/part", "singularName": "", "namespaced": false, "kind": "Part", "verbs": ["create"]}),
        ];
        let own = |kind: &str| json!({"group": "", "version": "", "kind": kind});
        let expected = json!([
            {"resource": "things", "responseKind": own("Thing"), "scope": "Namespaced", "singularResource": "thing", "verbs": ["get"], "shortNames": ["t"],
             "subresources": [{"subresource": "scale", "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"}, "verbs": ["update"]}]},
            {"resource": "alone", "scope": "Cluster",
             "subresources": [{"subresource": "part", "responseKind": own("Part"), "verbs": ["create"]}]},
        ]);
        assert_eq!(Value::Array(aggregated(&list)), expected);
    }
}
