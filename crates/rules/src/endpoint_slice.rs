//! Where the pods of a service are: its EndpointSlices, and the older Endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort as OldPort, EndpointSubset, Endpoints, Node, ObjectReference, Pod, Service,
    ServicePort, ServiceSpec,
};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::replicas::{phase, ready_since};

mod mirror;
#[cfg(test)]
mod tests;

pub use mirror::{MIRROR, mirrored};

/// The label of a slice that says whose it is.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// The label of a slice that says who keeps it.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Who keeps slices of services that select pods.
pub const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const ZONE: &str = "topology.kubernetes.io/zone";
/// So many endpoints at most are in one slice.
const MOST: usize = 100;
/// So many addresses at most are in an Endpoints object.
const MOST_ADDRESSES: usize = 1000;

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Slices to create.
    pub create: Vec<EndpointSlice>,
    /// Slices to replace.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete.
    pub delete: Vec<String>,
}

/// Whether a service says by itself which pods are behind it.
pub fn selects(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let is_elsewhere = spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    !is_elsewhere && spec.is_some_and(|spec| spec.selector.as_ref().is_some_and(|all| !all.is_empty()))
}

/// Whether a pod is one of a service.
pub fn is_behind(service: &Service, pod: &Pod) -> bool {
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    let labels = pod.metadata.labels.as_ref();
    service.metadata.namespace == pod.metadata.namespace
        && selector.is_some_and(|selector| {
            selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
        })
}

/// Ports, in the order of the service.
type Ports = Vec<EndpointPort>;

/// Decides what becomes of a service's slices. `pods` are those behind it, `known` the slices that are kept for it.
pub fn slices(
    service: &Service,
    pods: &[&Pod],
    nodes: &BTreeMap<String, &Node>,
    known: &[&EndpointSlice],
) -> Plan {
    let mut plan = Plan::default();
    let families = families(service);
    let (kept, strangers): (Vec<&EndpointSlice>, Vec<&EndpointSlice>) =
        known.iter().copied().partition(|slice| {
            let owners = slice.metadata.owner_references.iter().flatten();
            let mut owners = owners.filter(|owner| owner.kind == "Service");
            families.contains(&slice.address_type.as_str())
                && owners.any(|owner| Some(&owner.uid) == service.metadata.uid.as_ref())
        });
    plan.delete.extend(strangers.into_iter().map(|slice| name(&slice.metadata)));
    for family in families {
        let kept: Vec<&EndpointSlice> =
            kept.iter().copied().filter(|slice| slice.address_type == family).collect();
        of_family(service, pods, nodes, &kept, family, &mut plan);
    }
    plan
}

fn of_family(
    service: &Service,
    pods: &[&Pod],
    nodes: &BTreeMap<String, &Node>,
    known: &[&EndpointSlice],
    family: &str,
    plan: &mut Plan,
) {
    let mut wanted: Vec<(Ports, Vec<Endpoint>)> = Vec::new();
    for pod in pods.iter().filter(|pod| has_place(pod)) {
        let Some(endpoint) = endpoint(service, pod, nodes, family) else { continue };
        let ports = ports(service, pod);
        match wanted.iter_mut().find(|(known, _)| *known == ports) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => wanted.push((ports, vec![endpoint])),
        }
    }
    let new = |ports: Ports, endpoints: Vec<Endpoint>| EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", name(&service.metadata))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(slice_labels(service)),
            owner_references: Some(vec![owner(service)]),
            ..ObjectMeta::default()
        },
        address_type: family.to_owned(),
        endpoints,
        ports: Some(ports),
    };
    let created = plan.create.len();
    let mut used = BTreeSet::new();
    for (ports, mut endpoints) in wanted {
        let same = known.iter().filter(|slice| slice.ports.clone().unwrap_or_default() == ports);
        for slice in same {
            // Endpoints stay in the slice in which they are; what is free of it is filled with others.
            let is_here =
                |endpoint: &Endpoint| slice.endpoints.iter().any(|here| target(here) == target(endpoint));
            let (mut here, others): (Vec<Endpoint>, Vec<Endpoint>) = endpoints.into_iter().partition(is_here);
            endpoints = others;
            let free = MOST.saturating_sub(here.len()).min(endpoints.len());
            here.extend(endpoints.drain(..free));
            if here.is_empty() {
                continue;
            }
            used.insert(name(&slice.metadata));
            let is_same = here.len() == slice.endpoints.len()
                && here.iter().all(|endpoint| slice.endpoints.contains(endpoint))
                && slice.metadata.labels.as_ref() == Some(&slice_labels(service));
            if !is_same {
                let mut changed = (*slice).clone();
                changed.endpoints = here;
                changed.metadata.labels = Some(slice_labels(service));
                plan.update.push(changed);
            }
        }
        for chunk in endpoints.chunks(MOST) {
            plan.create.push(new(ports.clone(), chunk.to_vec()));
        }
    }
    // A service without endpoints has one slice that says so.
    if used.is_empty() && plan.create.len() == created {
        let is_empty = |slice: &&&EndpointSlice| {
            slice.endpoints.is_empty() && slice.ports.as_ref().is_none_or(Vec::is_empty)
        };
        match known.iter().find(is_empty) {
            Some(slice) => {
                used.insert(name(&slice.metadata));
                if slice.metadata.labels.as_ref() != Some(&slice_labels(service)) {
                    let mut changed = (*slice).clone();
                    changed.metadata.labels = Some(slice_labels(service));
                    plan.update.push(changed);
                }
            }
            None => plan.create.push(new(Vec::new(), Vec::new())),
        }
    }
    plan.delete.extend(known.iter().map(|slice| name(&slice.metadata)).filter(|name| !used.contains(name)));
}

/// The Endpoints of a service, if they are not what is there.
pub fn endpoints(service: &Service, pods: &[&Pod], known: Option<&Endpoints>) -> Option<Endpoints> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    } else {
        labels.remove(HEADLESS);
    }
    labels.insert(ENDPOINTS_MANAGED_BY.to_owned(), "endpoint-controller".to_owned());
    let subsets = Some(subsets(service, pods)).filter(|subsets| !subsets.is_empty());
    let is_same =
        |known: &Endpoints| known.subsets == subsets && known.metadata.labels.as_ref() == Some(&labels);
    if known.is_some_and(is_same) {
        return None;
    }
    let mut new = known.cloned().unwrap_or_default();
    new.metadata.name.clone_from(&service.metadata.name);
    new.metadata.namespace.clone_from(&service.metadata.namespace);
    new.metadata.labels = Some(labels);
    new.subsets = subsets;
    Some(new)
}

/// Addresses with the same ports together; first each address with all that it offers.
fn subsets(service: &Service, pods: &[&Pod]) -> Vec<EndpointSubset> {
    let publishes_all = spec(service).publish_not_ready_addresses == Some(true);
    let Some(family) = families(service).first().copied() else { return Vec::new() };
    let mut groups: BTreeMap<Vec<(String, i32, String)>, EndpointSubset> = BTreeMap::new();
    let mut all: Vec<(EndpointAddress, bool, Ports)> = Vec::new();
    for pod in pods.iter().filter(|pod| has_place(pod)) {
        if pod.metadata.deletion_timestamp.is_some() && !publishes_all {
            continue;
        }
        let Some(ip) = addresses(pod, family).into_iter().next() else { continue };
        let address = EndpointAddress {
            ip,
            hostname: hostname(service, pod),
            node_name: node_name(pod),
            target_ref: Some(reference(pod)),
        };
        all.push((address, publishes_all || ready_since(pod).is_some(), ports(service, pod)));
    }
    all.sort_by(|(one, ..), (other, ..)| one.ip.cmp(&other.ip));
    for (address, is_ready, ports) in all.into_iter().take(MOST_ADDRESSES) {
        if ports.is_empty() && !(is_headless(service) && spec(service).ports.is_none_or(|all| all.is_empty()))
        {
            continue;
        }
        let key = ports.iter().map(|port| {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            (text(&port.name), port.port.unwrap_or(0), text(&port.protocol))
        });
        let subset = groups.entry(key.collect()).or_insert_with(|| {
            let old = ports.iter().map(|port| OldPort {
                name: port.name.clone().filter(|name| !name.is_empty()),
                port: port.port.unwrap_or(0),
                protocol: port.protocol.clone(),
                app_protocol: port.app_protocol.clone(),
            });
            let old: Vec<OldPort> = old.collect();
            EndpointSubset { ports: Some(old).filter(|ports| !ports.is_empty()), ..EndpointSubset::default() }
        });
        let list = if is_ready { &mut subset.addresses } else { &mut subset.not_ready_addresses };
        list.get_or_insert_default().push(address);
    }
    groups.into_values().collect()
}

fn spec(service: &Service) -> ServiceSpec {
    service.spec.clone().unwrap_or_default()
}

fn name(meta: &ObjectMeta) -> String {
    meta.name.clone().unwrap_or_default()
}

fn is_headless(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        .is_none_or(|ip| ip.is_empty() || ip == "None")
}

fn families(service: &Service) -> Vec<&str> {
    let named = service.spec.as_ref().and_then(|spec| spec.ip_families.as_deref()).unwrap_or_default();
    if named.is_empty() { vec!["IPv4"] } else { named.iter().map(String::as_str).collect() }
}

/// Whether a pod has an address and may still answer.
fn has_place(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed")
        && pod.status.as_ref().is_some_and(|status| {
            status.pod_ip.as_ref().is_some_and(|ip| !ip.is_empty())
                || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty())
        })
}

fn addresses(pod: &Pod, family: &str) -> Vec<String> {
    let status = pod.status.clone().unwrap_or_default();
    let all = status.pod_ips.unwrap_or_default().into_iter().map(|ip| ip.ip);
    let of_family = |ip: &String| ip.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6() == (family == "IPv6"));
    all.filter(of_family).collect()
}

fn endpoint(service: &Service, pod: &Pod, nodes: &BTreeMap<String, &Node>, family: &str) -> Option<Endpoint> {
    let node = node_name(pod).and_then(|name| nodes.get(&name));
    let publishes_all = spec(service).publish_not_ready_addresses == Some(true);
    if node.is_none() && !publishes_all {
        return None;
    }
    let (serving, leaving) = (ready_since(pod).is_some(), pod.metadata.deletion_timestamp.is_some());
    let zone = node.and_then(|node| node.metadata.labels.as_ref()?.get(ZONE).cloned());
    let addresses = addresses(pod, family);
    (!addresses.is_empty()).then(|| Endpoint {
        addresses,
        conditions: Some(EndpointConditions {
            ready: Some(publishes_all || serving && !leaving),
            serving: Some(serving),
            terminating: Some(leaving),
        }),
        hostname: hostname(service, pod),
        node_name: node_name(pod),
        target_ref: Some(reference(pod)),
        zone: zone.filter(|zone| !zone.is_empty()),
        ..Endpoint::default()
    })
}

fn target(endpoint: &Endpoint) -> Option<&String> {
    endpoint.target_ref.as_ref()?.uid.as_ref()
}

fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn node_name(pod: &Pod) -> Option<String> {
    pod.spec.as_ref()?.node_name.clone().filter(|name| !name.is_empty())
}

fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let is_of = spec.subdomain == service.metadata.name;
    spec.hostname.clone().filter(|hostname| is_of && !hostname.is_empty())
}

/// The ports of a service that a pod offers.
fn ports(service: &Service, pod: &Pod) -> Ports {
    let ports = service.spec.as_ref().and_then(|spec| spec.ports.as_deref()).unwrap_or_default();
    let offered = ports.iter().filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(pod, port)?),
            protocol: Some(protocol(port.protocol.as_ref())),
            app_protocol: port.app_protocol.clone(),
        })
    });
    offered.collect()
}

fn protocol(protocol: Option<&String>) -> String {
    protocol.cloned().unwrap_or_else(|| "TCP".to_owned())
}

fn number(pod: &Pod, port: &ServicePort) -> Option<i32> {
    let wanted = match &port.target_port {
        None => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) => name,
    };
    let spec = pod.spec.as_ref()?;
    let stays = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let mut all = spec.containers.iter().chain(stays).flat_map(|container| container.ports.iter().flatten());
    let found = all.find(|offered| {
        offered.name.as_ref() == Some(wanted)
            && protocol(offered.protocol.as_ref()) == protocol(port.protocol.as_ref())
    })?;
    Some(found.container_port)
}

fn slice_labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), name(&service.metadata));
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn owner(service: &Service) -> OwnerReference {
    OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Service".to_owned(),
        name: name(&service.metadata),
        uid: service.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
