//! Addresses that a cluster gives its services (3.12).
//!
//! An address is taken by making its IPAddress object, which can be made once; so two services never get the same one,
//! however they race.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use rules::field::Path;
use rules::kind::core::services::{
    address, address_errors, carry_over, complete, family_errors, is_headless,
};
use rules::kind::{items, text};
use serde_json::{Value, json};
use store::{Key, Write};

use crate::apply::Entries;
use crate::cluster::{Context, identity};
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};
use crate::strategy::node_ports;

/// The network of services: 10.96.0.0/12.
const NETWORK: u32 = 0x0A60_0000;
const BITS: u32 = 12;
/// How often a random choice is tried before somebody is told that there is none.
const ATTEMPTS: usize = 256;

/// What was taken for a write.
#[derive(Default)]
pub(crate) struct Taken {
    /// They have to be given back if the write fails.
    addresses: Vec<Key>,
    /// They are held until the write is done.
    ports: node_ports::Held,
}

/// A service with all that a cluster gives it; other objects stay as they are.
pub(crate) async fn given<'a>(
    context: &Context<'_>,
    body: Cow<'a, Value>,
    old: Option<&Value>,
) -> Result<(Cow<'a, Value>, Taken), Refusal> {
    let mut taken = Taken::default();
    if !is_service(context) || context.target.subresource.is_some() {
        return Ok((body, taken));
    }
    let mut service = context.strategy.with_defaults(&body, None);
    match old {
        Some(old) => carry_over(&mut service, old),
        None => complete(&mut service),
    }
    let done = async {
        if let Some(old) = old
            && text(old, "spec.type") == "ExternalName"
        {
            complete(&mut service);
        }
        give_address(context, &mut service, old, &mut taken.addresses).await?;
        taken.ports = node_ports::give(context, &mut service, old, random())?;
        Ok(())
    };
    match done.await {
        Ok(()) => Ok((Cow::Owned(service), taken)),
        Err(refusal) => {
            give_back(context, taken).await;
            Err(refusal)
        }
    }
}

/// Gives back what was taken for a write that failed.
pub(crate) async fn give_back(context: &Context<'_>, taken: Taken) {
    for key in taken.addresses {
        release(context, key).await;
    }
}

/// Gives back the addresses of a service that is gone, or that is now `new` and has them no more.
pub(crate) async fn give_back_of(context: &Context<'_>, old: &Value, new: Option<&Value>) {
    if !is_service(context) {
        return;
    }
    let kept: Vec<&Value> = new.into_iter().flat_map(|new| items(new, "spec.clusterIPs")).collect();
    let gone = items(old, "spec.clusterIPs").iter().filter(|ip| !kept.contains(ip));
    for ip in gone.filter_map(Value::as_str).filter_map(address) {
        release(context, object::key(addresses(), "", &ip.to_string())).await;
    }
}

async fn release(context: &Context<'_>, key: Key) {
    if let Err(error) = context.cluster.store().commit(Write::delete(key)).await {
        tracing::debug!(%error, "an address of a service was not there to be given back");
    }
}

fn is_service(context: &Context<'_>) -> bool {
    (context.resource.group.as_str(), context.resource.plural.as_str()) == ("", "services")
}

fn addresses() -> &'static Resource {
    Registry::built_in().get("networking.k8s.io", "v1", "ipaddresses").expect("addresses are served")
}

async fn give_address(
    context: &Context<'_>,
    service: &mut Value,
    old: Option<&Value>,
    taken: &mut Vec<Key>,
) -> Result<(), Refusal> {
    let mut errors = address_errors(service);
    if errors.is_empty() {
        errors = family_errors(service, old);
    }
    if !errors.is_empty() {
        let name = text(service, "metadata.name");
        return Err(Refusal::invalid(About { group: "", resource: "Service", name }, &errors));
    }
    if text(service, "spec.type") == "ExternalName" || is_headless(service) {
        return Ok(());
    }
    let wanted: Vec<String> =
        items(service, "spec.clusterIPs").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    // One that is not the first of the many is refused by the rules of services.
    if text(service, "spec.clusterIP").is_empty() && !wanted.is_empty() {
        return Ok(());
    }
    if wanted.is_empty() {
        let ip = any_address(context, service, taken).await?;
        service["spec"]["clusterIP"] = json!(ip);
        service["spec"]["clusterIPs"] = json!([ip]);
        return Ok(());
    }
    let had: Vec<&str> =
        old.iter().flat_map(|old| items(old, "spec.clusterIPs")).filter_map(Value::as_str).collect();
    for ip in wanted.iter().filter(|ip| !had.contains(&ip.as_str())) {
        // What is no address, or changes one that is set, is refused by the rules of services.
        let Some(address) = address(ip) else { continue };
        if old.is_some() && !had.is_empty() {
            continue;
        }
        let why = if u32::from(address) >> (32 - BITS) != NETWORK >> (32 - BITS) {
            Some("the provided network does not match the current range")
        } else if take(context, service, address, taken).await? {
            None
        } else {
            Some("provided IP is already allocated")
        };
        if let Some(why) = why {
            let path = Path::new("spec").child("clusterIPs");
            let why = format!("failed to allocate IP {ip}: {why}");
            let error = path.invalid(rules::field::Value::json(&wanted), why);
            let name = text(service, "metadata.name");
            return Err(Refusal::invalid(About { group: "", resource: "Service", name }, &vec![error]));
        }
    }
    Ok(())
}

async fn any_address(
    context: &Context<'_>,
    service: &Value,
    taken: &mut Vec<Key>,
) -> Result<String, Refusal> {
    for _ in 0..ATTEMPTS {
        // The first and the last addresses are nobody's, and the very first is for the cluster itself.
        let place = random() % ((1 << (32 - BITS)) - 16) + 8;
        let address = Ipv4Addr::from(NETWORK + place);
        if take(context, service, address, taken).await? {
            return Ok(address.to_string());
        }
    }
    Err(Refusal::internal("failed to allocate a serviceIP: range is full"))
}

/// Takes an address, unless somebody has it.
async fn take(
    context: &Context<'_>,
    service: &Value,
    ip: Ipv4Addr,
    taken: &mut Vec<Key>,
) -> Result<bool, Refusal> {
    let (resource, name) = (addresses(), ip.to_string());
    let key = object::key(resource, "", &name);
    let store = context.cluster.store();
    if context.is_dry_run() {
        return Ok(store.get(&key).is_none());
    }
    let identity = identity();
    let address = json!({
        "apiVersion": resource.api_version(), "kind": resource.kind,
        "metadata": {
            "name": name, "uid": identity.uid,
            "creationTimestamp": object::time(identity.now),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {"group": "", "resource": "services", "namespace": context.namespace(),
            "name": text(service, "metadata.name")}},
    });
    let fields = [("metadata.name", name), ("metadata.namespace", String::new())];
    match store
        .commit(Write::put(key.clone(), object::draft(&address, &Entries::default(), &fields)).if_absent())
        .await
    {
        Ok(_) => {
            taken.push(key);
            Ok(true)
        }
        Err(store::error::Commit::Exists { .. }) => Ok(false),
        Err(error) => Err(Refusal::unavailable(error.to_string())),
    }
}

fn random() -> u32 {
    let bytes = uuid::Uuid::new_v4().into_bytes();
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
