//! Ports of nodes that a cluster gives its services (3.12).
//!
//! The store knows which ports services have. Those that a write takes stand beside it until the write is done, so two
//! services never get the same one, however they race.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::kind::core::services::ports::{self, Denied};
use rules::kind::text;
use serde_json::Value;
use store::{At, Scope};

use crate::cluster::Context;
use crate::object;
use crate::status::{About, Refusal};

/// Ports that writes have taken which are not done yet.
#[derive(Clone, Default)]
pub(crate) struct Ports(Arc<Mutex<BTreeSet<i64>>>);

/// The ports that one write has taken. When it is done the store has them, or nobody; so this only has to be let go.
#[derive(Default)]
pub(crate) struct Held {
    by: Ports,
    ports: BTreeSet<i64>,
}

/// Gives a service its ports.
pub(crate) fn give(
    context: &Context<'_>,
    service: &mut Value,
    old: Option<&Value>,
    chance: u32,
) -> Result<Held, Refusal> {
    if !matches!(text(service, "spec.type"), "NodePort" | "LoadBalancer") {
        return Ok(Held::default());
    }
    let by = context.cluster.node_ports().clone();
    let mut taken = by.locked();
    // What is not taken any more is in the store by now: it is read after the lock.
    let mut used = stored(context)?;
    used.extend(taken.iter());
    let given = ports::give(service, old, &used, chance).map_err(|denied| match denied {
        Denied::Field(error) => {
            let name = text(service, "metadata.name");
            Refusal::invalid(About { group: "", resource: "Service", name }, &vec![error])
        }
        Denied::Internal(why) => Refusal::internal_cause(why),
        Denied::Unknown(why) => Refusal::unknown(why),
    })?;
    if context.is_dry_run() {
        return Ok(Held::default());
    }
    taken.extend(given.iter());
    drop(taken);
    Ok(Held { by, ports: given })
}

fn stored(context: &Context<'_>) -> Result<BTreeSet<i64>, Refusal> {
    let view =
        context.cluster.store().view_at(At::Latest).map_err(|why| Refusal::internal(why.to_string()))?;
    let scope = Scope::resource(&object::storage_name(context.resource));
    let services = view.list(&scope).map(|service| object::read(service));
    Ok(services.flat_map(|service| ports::of(&service).collect::<Vec<_>>()).collect())
}

impl Ports {
    fn locked(&self) -> MutexGuard<'_, BTreeSet<i64>> {
        // Each of them stands for itself.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.ports.is_empty() {
            self.by.locked().retain(|port| !self.ports.contains(port));
        }
    }
}
