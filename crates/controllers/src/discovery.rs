//! What kinds the cluster serves, built in and custom.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use kube::discovery::{ApiResource, verbs};

/// A kind that the cluster serves, under the version that it prefers.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    /// Whether its objects tell by `scale` how many pods they want.
    pub(crate) has_scale: bool,
    verbs: Vec<String>,
}

impl Served {
    /// Whether its objects can be listed, watched and deleted.
    pub(crate) fn is_collectable(&self) -> bool {
        [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|verb| self.supports(verb))
    }

    /// One of a test.
    #[cfg(test)]
    pub(crate) fn collectable(plural: &str) -> Self {
        let verbs = [verbs::LIST, verbs::WATCH, verbs::DELETE].map(str::to_owned).to_vec();
        let found = APIResourceDiscovery { resource: Some(plural.to_owned()), verbs, ..Default::default() };
        kind("example.com", "v1", "example.com/v1", found)
    }

    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }

    /// `jobs.batch`, `pods`.
    pub(crate) fn name(&self) -> String {
        if self.resource.group.is_empty() {
            self.resource.plural.clone()
        } else {
            format!("{}.{}", self.resource.plural, self.resource.group)
        }
    }
}

/// What the cluster says that it serves.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    /// In the order of names.
    pub(crate) served: Vec<Served>,
    /// Versions of groups whose own server does not answer, as in `apiVersion`: whatever they serve is still theirs.
    pub(crate) silent: BTreeSet<String>,
}

impl Discovered {
    /// Why this may not be everything, as Kubernetes' clients say it.
    pub(crate) fn failure(&self) -> Option<String> {
        let silent: Vec<String> = self
            .silent
            .iter()
            .map(|version| format!("{version}: stale GroupVersion discovery: {version}"))
            .collect();
        let list = silent.join(", ");
        (!silent.is_empty()).then(|| format!("unable to retrieve the complete list of server APIs: {list}"))
    }
}

/// Asks what is served.
pub(crate) async fn discover(client: &Client) -> kube::Result<Discovered> {
    let core = client.list_core_api_versions_aggregated().await?.items;
    let groups = client.list_api_groups_aggregated().await?.items;
    Ok(read(core.into_iter().chain(groups)))
}

fn read(groups: impl Iterator<Item = APIGroupDiscovery>) -> Discovered {
    let mut silent = BTreeSet::new();
    let mut served: BTreeMap<String, Served> = BTreeMap::new();
    for group in groups {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for version in group.versions {
            let number = version.version.unwrap_or_default();
            let api_version = if name.is_empty() { number.clone() } else { format!("{name}/{number}") };
            if version.freshness.as_deref() == Some("Stale") {
                silent.insert(api_version);
                continue;
            }
            for resource in version.resources {
                let kind = kind(&name, &number, &api_version, resource);
                // Versions are told in the order in which the cluster prefers them.
                served.entry(kind.name()).or_insert(kind);
            }
        }
    }
    Discovered { served: served.into_values().collect(), silent }
}

fn kind(group: &str, version: &str, api_version: &str, found: APIResourceDiscovery) -> Served {
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: found.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
        plural: found.resource.unwrap_or_default(),
    };
    let has_scale = found.subresources.iter().any(|it| it.subresource.as_deref() == Some("scale"));
    let namespaced = found.scope.as_deref() == Some("Namespaced");
    Served { resource, namespaced, has_scale, verbs: found.verbs }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_silent_server_serves_is_not_known_and_not_gone() {
        let resource = |plural: &str, kind: &str| {
            json!({"resource": plural, "scope": "Namespaced", "verbs": ["list", "watch", "delete"],
                "responseKind": {"group": "", "version": "", "kind": kind}})
        };
        let groups = json!([
            {"metadata": {}, "versions": [{"version": "v1", "freshness": "Current", "resources": [resource("pods", "Pod")]}]},
            {"metadata": {"name": "example.com"}, "versions": [
                {"version": "v2", "freshness": "Current", "resources": [resource("things", "Thing")]},
                {"version": "v1", "freshness": "Current", "resources": [resource("things", "Thing"), resource("olds", "Old")]},
                {"version": "v1alpha1", "freshness": "Stale", "resources": [resource("lost", "Lost")]},
            ]},
        ]);
        let groups: Vec<APIGroupDiscovery> = serde_json::from_value(groups).expect("groups");
        let found = read(groups.into_iter());
        let print =
            |it: &Served| format!("{} {} {}", it.name(), it.resource.api_version, it.is_collectable());
        assert_eq!(
            found.served.iter().map(print).collect::<Vec<_>>(),
            [
                "olds.example.com example.com/v1 true",
                "pods v1 true",
                "things.example.com example.com/v2 true"
            ]
        );
        assert_eq!(
            found.failure().as_deref(),
            Some(
                "unable to retrieve the complete list of server APIs: \
                 example.com/v1alpha1: stale GroupVersion discovery: example.com/v1alpha1"
            )
        );
        assert_eq!(Discovered::default().failure(), None);
    }
}
