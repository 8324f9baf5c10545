//! What kinds the cluster serves, built in and custom.

use kube::Client;
use kube::discovery::{ApiCapabilities, ApiResource, Discovery, Scope, verbs};

/// A kind that the cluster serves, under the most stable of its versions.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
    capabilities: ApiCapabilities,
}

impl Served {
    /// Whether its objects can be listed, watched and deleted.
    pub(crate) fn is_collectable(&self) -> bool {
        [verbs::LIST, verbs::WATCH, verbs::DELETE].iter().all(|verb| self.supports(verb))
    }

    pub(crate) fn supports(&self, verb: &str) -> bool {
        self.capabilities.supports_operation(verb)
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

/// Asks what is served; in the order of groups and names.
pub(crate) async fn discover(client: &Client) -> kube::Result<Vec<Served>> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(_) => Discovery::new(client.clone()).run().await?,
    };
    let mut served = Vec::new();
    for group in discovery.groups_alphabetical() {
        for (resource, capabilities) in group.resources_by_stability() {
            // Sub-resources are listed beside what they belong to.
            if !resource.plural.contains('/') {
                let namespaced = capabilities.scope == Scope::Namespaced;
                served.push(Served { resource, namespaced, capabilities });
            }
        }
    }
    served.sort_by_key(Served::name);
    Ok(served)
}
