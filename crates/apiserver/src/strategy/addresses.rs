//! Addresses and ports that a cluster gives its services (3.12).
//!
//! An address is taken by making its IPAddress object, which can be made once; so two services never get the same one,
//! however they race. Ports of nodes are looked for among those that no service has.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use rules::field::Path;
use rules::kind::core::services::{address_errors, carry_over, complete, family_errors, is_headless};
use rules::kind::{items, text};
use serde_json::{Value, json};
use store::{At, Key, Scope, Write};

use crate::apply::Entries;
use crate::cluster::{Context, identity};
use crate::object;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};

/// The network of services: 10.96.0.0/12.
const NETWORK: u32 = 0x0A60_0000;
const BITS: u32 = 12;
/// Ports of nodes that services get.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;
/// How often a random choice is tried before somebody is told that there is none.
const ATTEMPTS: usize = 256;

/// Addresses that were taken for a write, and have to be given back if it fails.
#[derive(Default)]
pub(crate) struct Taken(Vec<Key>);

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
        give_address(context, &mut service, old, &mut taken).await?;
        give_ports(context, &mut service, old)
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
pub(crate) async fn give_back(context: &Context<'_>, Taken(keys): Taken) {
    for key in keys {
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
    for ip in gone.filter_map(Value::as_str).filter(|ip| *ip != "None") {
        release(context, object::key(addresses(), "", ip)).await;
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
    taken: &mut Taken,
) -> Result<(), Refusal> {
    let mut errors = address_errors(service);
    if errors.is_empty() {
        errors = family_errors(service, old);
    } else if old.is_some() {
        // The rules of services find them again, beside what else a change does wrong.
        errors.clear();
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
        let Ok(address) = ip.parse::<Ipv4Addr>() else { continue };
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

async fn any_address(context: &Context<'_>, service: &Value, taken: &mut Taken) -> Result<String, Refusal> {
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
    taken: &mut Taken,
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
            taken.0.push(key);
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

fn give_ports(context: &Context<'_>, service: &mut Value, old: Option<&Value>) -> Result<(), Refusal> {
    let kind = text(service, "spec.type").to_owned();
    let wants_ports = kind == "NodePort"
        || kind == "LoadBalancer" && service["spec"]["allocateLoadBalancerNodePorts"] != json!(false);
    let wants_check = kind == "LoadBalancer" && text(service, "spec.externalTrafficPolicy") == "Local";
    if !wants_ports && !wants_check {
        return Ok(());
    }
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let mut used = used_ports(context)?;
    let had: BTreeSet<i64> = old.iter().flat_map(|old| ports_of(old)).collect();
    let path = Path::new("spec").child("ports");
    // What serves the same port by several protocols has one port of the nodes for all of them.
    let mut shared: BTreeMap<i64, i64> = BTreeMap::new();
    let wanted: Vec<(i64, i64)> = items(service, "spec.ports")
        .iter()
        .map(|port| (number(&port["port"]), number(&port["nodePort"])))
        .collect();
    for (i, (of, port)) in wanted.into_iter().enumerate() {
        if port == 0 || had.contains(&port) || shared.get(&of) == Some(&port) {
            continue;
        }
        let why = if !NODE_PORTS.contains(&port) {
            Some(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                NODE_PORTS.start(),
                NODE_PORTS.end()
            ))
        } else if used.contains(&port) {
            Some("provided port is already allocated".to_owned())
        } else {
            None
        };
        if let Some(why) = why {
            let name = text(service, "metadata.name");
            let error = path.index(i).child("nodePort").invalid(port, why);
            return Err(Refusal::invalid(About { group: "", resource: "Service", name }, &vec![error]));
        }
        used.insert(port);
        shared.entry(of).or_insert(port);
    }
    if wants_ports {
        for port in service["spec"]["ports"].as_array_mut().into_iter().flatten() {
            if number(&port["nodePort"]) == 0 {
                let given = match shared.get(&number(&port["port"])) {
                    Some(given) if old.is_none() => *given,
                    _ => free_port(&mut used)?,
                };
                shared.entry(number(&port["port"])).or_insert(given);
                port["nodePort"] = json!(given);
            }
        }
    }
    if wants_check && number(&service["spec"]["healthCheckNodePort"]) == 0 {
        service["spec"]["healthCheckNodePort"] = json!(free_port(&mut used)?);
    }
    Ok(())
}

fn free_port(used: &mut BTreeSet<i64>) -> Result<i64, Refusal> {
    let count = NODE_PORTS.end() - NODE_PORTS.start() + 1;
    let start = i64::from(random()) % count;
    let free = (0..count).map(|i| NODE_PORTS.start() + (start + i) % count).find(|port| !used.contains(port));
    let port = free.ok_or_else(|| Refusal::internal("failed to allocate a nodePort: range is full"))?;
    used.insert(port);
    Ok(port)
}

fn used_ports(context: &Context<'_>) -> Result<BTreeSet<i64>, Refusal> {
    let view =
        context.cluster.store().view_at(At::Latest).map_err(|why| Refusal::internal(why.to_string()))?;
    let scope = Scope::resource(&object::storage_name(context.resource));
    Ok(view.list(&scope).flat_map(|object| ports_of(&object::read(object))).collect())
}

fn ports_of(service: &Value) -> Vec<i64> {
    let ports = items(service, "spec.ports").iter().map(|port| &port["nodePort"]);
    ports
        .chain([&service["spec"]["healthCheckNodePort"]])
        .filter_map(Value::as_i64)
        .filter(|port| *port != 0)
        .collect()
}
