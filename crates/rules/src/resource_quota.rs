//! What the objects of a namespace use of its resource quotas, and which quotas an object is subject to.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, Pod, ResourceQuotaSpec, ScopedResourceSelectorRequirement, Service,
};
use k8s_openapi::api::resource::v1::ResourceClaim;
use types::Quantity;

use crate::quota::requests::PodResources;

pub mod admit;
#[cfg(test)]
mod tests;

/// How much of each resource, by the names that quotas use.
pub type List = BTreeMap<String, Quantity>;

/// An object that may be subject to a quota.
#[derive(Debug, Clone, Copy)]
pub enum Object<'a> {
    /// A pod.
    Pod(&'a Pod),
    /// A service.
    Service(&'a Service),
    /// A claim of a volume.
    Claim(&'a PersistentVolumeClaim),
    /// A claim of devices.
    Devices(&'a ResourceClaim),
    /// Anything else: it counts as one.
    Other {
        /// `configmaps`.
        resource: &'a str,
        /// Empty for the core.
        group: &'a str,
    },
}

const ATTRIBUTES: &str = "VolumeAttributesClass";
/// Where a claim named its class before it had a field for that.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
type Amounts = BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>;

/// What quotas call the devices of a class.
const OF_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// All the devices that there are are not more than one claim can be given.
const MOST_DEVICES: i64 = 32;

/// Core kinds that quotas may also name without `count/`.
const PLAIN: [&str; 4] = ["configmaps", "secrets", "replicationcontrollers", "resourcequotas"];

/// What one object uses, of everything that a quota can limit.
pub fn charge(object: Object<'_>, now: Timestamp) -> List {
    let mut list = List::new();
    match object {
        Object::Pod(pod) => {
            add(&mut list, "count/pods", &one());
            if counts(pod, now) {
                charge_pod(&mut list, pod);
            }
        }
        Object::Service(service) => charge_service(&mut list, service),
        Object::Claim(claim) => charge_claim(&mut list, claim),
        Object::Devices(claim) => charge_devices(&mut list, claim),
        Object::Other { resource, group } => {
            let name = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
            add(&mut list, &format!("count/{name}"), &one());
            if group.is_empty() && PLAIN.contains(&resource) {
                add(&mut list, resource, &one());
            }
        }
    }
    list
}

/// Whether a quota is about an object.
pub fn is_subject(quota: &ResourceQuotaSpec, object: Object<'_>) -> bool {
    let expressions =
        quota.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let scopes = quota.scopes.iter().flatten();
    match object {
        Object::Pod(pod) => {
            scopes.into_iter().all(|scope| in_scope(pod, scope))
                && expressions.into_iter().all(|it| matches(pod, it))
        }
        Object::Claim(claim) => {
            let classes = attributes_classes(claim);
            scopes.into_iter().all(|scope| scope == ATTRIBUTES && !classes.is_empty())
                && expressions.into_iter().all(|it| is_among(&classes, it))
        }
        _ => scopes.count() == 0 && expressions.count() == 0,
    }
}

/// What is used of a quota: of each resource that it limits, by the objects that it is about.
pub fn usage<'a>(
    quota: &ResourceQuotaSpec,
    objects: impl Iterator<Item = Object<'a>>,
    now: Timestamp,
) -> List {
    let hard = quota.hard.iter().flatten();
    let mut used: List = hard.map(|(name, _)| (name.clone(), Quantity::zero())).collect();
    for object in objects.filter(|object| is_subject(quota, *object)) {
        for (name, amount) in charge(object, now) {
            if let Some(sum) = used.get_mut(&name) {
                *sum += &amount;
            }
        }
    }
    used
}

fn one() -> Quantity {
    Quantity::from_units(1, types::quantity::Format::DecimalSi)
}

fn add(list: &mut List, name: &str, amount: &Quantity) {
    match list.get_mut(name) {
        Some(sum) => *sum += amount,
        None => drop(list.insert(name.to_owned(), amount.clone())),
    }
}

/// A pod that has ended uses nothing; nor does one whose time to end is over, although nobody has seen it end.
fn counts(pod: &Pod, now: Timestamp) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
        return false;
    }
    let Some(deleted) = &pod.metadata.deletion_timestamp else { return true };
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    deleted.0.checked_add(SignedDuration::from_secs(grace)).is_ok_and(|until| now < until)
}

fn charge_pod(list: &mut List, pod: &Pod) {
    add(list, "pods", &one());
    // A pod was validated when it was let in; one that is odd asks for nothing.
    let resources = PodResources::of(pod).unwrap_or_default();
    for (name, amount) in resources.total() {
        add(list, &format!("requests.{name}"), &amount);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            add(list, &name, &amount);
        }
    }
    for (name, amount) in resources.limits() {
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
            add(list, &format!("limits.{name}"), &amount);
        }
    }
}

fn charge_service(list: &mut List, service: &Service) {
    add(list, "count/services", &one());
    add(list, "services", &one());
    let Some(spec) = &service.spec else { return };
    let kind = spec.type_.as_deref().unwrap_or("ClusterIP");
    let ports = i64::try_from(spec.ports.as_ref().map_or(0, Vec::len)).unwrap_or(i64::MAX);
    let balanced = kind == "LoadBalancer";
    if balanced {
        add(list, "services.loadbalancers", &one());
    }
    let node_ports = if balanced && spec.allocate_load_balancer_node_ports == Some(false) {
        let given =
            spec.ports.iter().flatten().filter(|port| port.node_port.is_some_and(|port| port != 0)).count();
        i64::try_from(given).unwrap_or(i64::MAX)
    } else if balanced || kind == "NodePort" {
        ports
    } else {
        0
    };
    if node_ports > 0 {
        add(
            list,
            "services.nodeports",
            &Quantity::from_units(node_ports, types::quantity::Format::DecimalSi),
        );
    }
}

fn charge_claim(list: &mut List, claim: &PersistentVolumeClaim) {
    add(list, "count/persistentvolumeclaims", &one());
    add(list, "persistentvolumeclaims", &one());
    let Some(spec) = &claim.spec else { return };
    let annotated = claim.metadata.annotations.as_ref().and_then(|annotations| annotations.get(BETA_CLASS));
    let class = annotated.or(spec.storage_class_name.as_ref()).filter(|class| !class.is_empty());
    let class = class.map(|class| format!("{class}.storageclass.storage.k8s.io"));
    if let Some(class) = &class {
        add(list, &format!("{class}/persistentvolumeclaims"), &one());
    }
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let allocated = claim.status.as_ref().and_then(|status| status.allocated_resources.as_ref());
    // What is still to be given back counts, too.
    let storage =
        bytes(requests).map(|asked| bytes(allocated).map_or(asked.clone(), |given| asked.max(given)));
    if let Some(storage) = storage {
        add(list, "requests.storage", &storage);
        if let Some(class) = &class {
            add(list, &format!("{class}/requests.storage"), &storage);
        }
    }
}

/// Of several kinds of devices that would do, a claim may get the most of each that it names.
fn charge_devices(list: &mut List, claim: &ResourceClaim) {
    add(list, "count/resourceclaims.resource.k8s.io", &one());
    let devices = |mode: Option<&str>, count: Option<i64>| match mode {
        Some("ExactCount") => count.unwrap_or(0),
        Some("All") => MOST_DEVICES,
        _ => 0,
    };
    for request in claim.spec.devices.iter().flat_map(|devices| devices.requests.iter().flatten()) {
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        for one in request.first_available.iter().flatten() {
            let count = devices(one.allocation_mode.as_deref(), one.count);
            let known = most.entry(&one.device_class_name).or_default();
            *known = count.max(*known);
        }
        let exactly = request.exactly.as_ref().filter(|_| most.is_empty());
        most.extend(exactly.map(|exactly| {
            (exactly.device_class_name.as_str(), devices(exactly.allocation_mode.as_deref(), exactly.count))
        }));
        for (class, count) in most {
            let count = Quantity::from_units(count, types::quantity::Format::DecimalSi);
            add(list, &format!("{class}{OF_DEVICE_CLASS}"), &count);
        }
    }
}

/// An amount of storage in whole bytes, rounded up.
fn bytes(list: Option<&Amounts>) -> Option<Quantity> {
    let amount = Quantity::try_from(list?.get("storage")?).ok()?;
    let is_whole = amount.is_integer();
    Some(if is_whole { amount } else { Quantity::from_units(amount.units_saturating(), amount.format()) })
}

/// The classes that say how a claim's volume behaves: asked for, in force and on the way.
fn attributes_classes(claim: &PersistentVolumeClaim) -> Vec<&str> {
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let next = status.and_then(|status| status.modify_volume_status.as_ref());
    let next = next.and_then(|next| next.target_volume_attributes_class_name.as_deref());
    [asked, current, next].into_iter().flatten().filter(|class| !class.is_empty()).collect()
}

fn is_among(classes: &[&str], expression: &ScopedResourceSelectorRequirement) -> bool {
    let values = expression.values.as_deref().unwrap_or_default();
    let listed = |class: &&str| values.iter().any(|value| value == class);
    expression.scope_name == ATTRIBUTES
        && match expression.operator.as_str() {
            "In" => classes.iter().any(listed),
            "NotIn" => classes.is_empty() || !classes.iter().all(listed),
            "Exists" => !classes.is_empty(),
            "DoesNotExist" => classes.is_empty(),
            _ => false,
        }
}

fn in_scope(pod: &Pod, scope: &str) -> bool {
    let spec = pod.spec.as_ref();
    let terminating = spec.and_then(|spec| spec.active_deadline_seconds).is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            spec.and_then(|spec| spec.priority_class_name.as_deref()).is_some_and(|name| !name.is_empty())
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn matches(pod: &Pod, expression: &ScopedResourceSelectorRequirement) -> bool {
    if expression.scope_name != "PriorityClass" {
        return in_scope(pod, &expression.scope_name);
    }
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.clone());
    let class = class.filter(|class| !class.is_empty());
    let values = expression.values.as_deref().unwrap_or_default();
    let listed = class.as_ref().is_some_and(|class| values.contains(class));
    match expression.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => class.is_some(),
        "DoesNotExist" => class.is_none(),
        _ => false,
    }
}

/// Whether no container asks for, or is limited in, CPU or memory.
fn is_best_effort(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let counted = |list: Option<&Amounts>| {
        list.into_iter().flatten().any(|(name, quantity)| {
            matches!(name.as_str(), "cpu" | "memory")
                && Quantity::try_from(quantity).is_ok_and(|quantity| quantity.is_positive())
        })
    };
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let mut bounds = all.filter_map(|container| container.resources.as_ref());
    let whole = spec.resources.as_ref();
    !bounds.any(|it| counted(it.requests.as_ref()) || counted(it.limits.as_ref()))
        && !whole.is_some_and(|it| counted(it.requests.as_ref()) || counted(it.limits.as_ref()))
}

/// Whether a pod has an opinion on pods of other namespaces.
fn crosses_namespaces(pod: &Pod) -> bool {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else { return false };
    let near = affinity.pod_affinity.clone().unwrap_or_default();
    let apart = affinity.pod_anti_affinity.clone().unwrap_or_default();
    let required = [
        near.required_during_scheduling_ignored_during_execution,
        apart.required_during_scheduling_ignored_during_execution,
    ];
    let preferred = [
        near.preferred_during_scheduling_ignored_during_execution,
        apart.preferred_during_scheduling_ignored_during_execution,
    ];
    let preferred = preferred.into_iter().flatten().flatten().map(|weighted| weighted.pod_affinity_term);
    let mut terms = required.into_iter().flatten().flatten().chain(preferred);
    terms
        .any(|term| term.namespace_selector.is_some() || term.namespaces.is_some_and(|list| !list.is_empty()))
}
