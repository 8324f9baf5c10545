//! What clients are told of groups that others serve: in lists of groups, in one document with everything, and in the index
//! of OpenAPI documents.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Remote, Said, all};
use crate::cluster::Cluster;
use crate::registry::preference;

/// How much users' own definitions count against others.
const OF_DEFINITIONS: i64 = 1000;
const OF_DEFINED_VERSIONS: i64 = 100;

/// All groups that others serve.
pub(crate) struct Groups(BTreeMap<String, Group>);

/// One of them.
pub(crate) struct Group {
    priority: i64,
    versions: Vec<(Remote, Option<Arc<Said>>)>,
}

impl Groups {
    /// Those that are served now.
    pub(crate) fn of(cluster: &Cluster) -> Groups {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        for remote in all(cluster) {
            let group = groups
                .entry(remote.group.clone())
                .or_insert_with(|| Group { priority: 0, versions: Vec::new() });
            group.priority = group.priority.max(remote.group_priority);
            let said = cluster.aggregator().said(&remote.name);
            group.versions.push((remote, said));
        }
        Groups(groups)
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
            theirs.iter().map(|(remote, _)| (remote.version_priority, remote.version.as_str())).collect();
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
        let versions = self.0.values().flat_map(|group| &group.versions);
        versions.filter_map(|(remote, said)| {
            let entry = said.as_ref()?.document.clone()?;
            Some((format!("apis/{}/{}", remote.group, remote.version), entry))
        })
    }
}

impl Group {
    /// A version in the document with everything. What does not answer now is told as it was, and that it may be old.
    pub(crate) fn described(&self, version: &str) -> Option<Value> {
        let (remote, said) = self.versions.iter().find(|(remote, _)| remote.version == version)?;
        let resources = said.as_ref().map_or(&[][..], |said| &said.resources);
        let freshness = if remote.is_available && said.is_some() { "Current" } else { "Stale" };
        Some(json!({"version": version, "resources": aggregated(resources), "freshness": freshness}))
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
