//! How much of what a pod and its containers ask for: native, extended and hugepage resources.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use types::Quantity;

use super::{Options, all_containers, claims};
use crate::field::{Errors, Path, Value};
use crate::{meta, names};

const HUGE_PAGES: &str = "hugepages-";

/// Resources without a domain that Kubernetes knows, those that only quota counts included.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

/// Resources of which there is no half.
const COUNTED: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

pub(crate) type List = BTreeMap<String, resource::Quantity>;
pub(super) type Amounts = BTreeMap<String, Quantity>;

/// The resources of a container, next to the claims of its pod.
pub(super) fn validate_container(
    requirements: &ResourceRequirements,
    claims: &BTreeSet<&str>,
    options: &Options,
    path: &Path,
) -> Errors {
    validate(requirements, container_resource_name, claims, options, path)
}

/// What running a pod costs beside its containers.
pub(super) fn validate_overhead(overhead: &List, options: &Options, path: &Path) -> Errors {
    let requirements =
        ResourceRequirements { limits: Some(overhead.clone()), ..ResourceRequirements::default() };
    validate_container(&requirements, &BTreeSet::new(), options, path)
}

/// The resources of a pod as a whole, which bound those of its containers.
pub(super) fn validate_pod(
    spec: &PodSpec,
    claims: &BTreeSet<&str>,
    options: &Options,
    path: &Path,
) -> Errors {
    let Some(resources) = &spec.resources else { return Errors::new() };
    let path = path.child("resources");
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return vec![path.forbidden("may not be set for a windows pod")];
    }
    let mut errors = Errors::new();
    if resources.claims.is_some() {
        errors.push(path.child("claims").forbidden("claims may not be set for Resources at pod-level"));
    }
    errors.extend(validate(resources, pod_resource_name, claims, options, &path));
    errors.extend(consistent(spec, resources, &path));
    errors
}

fn validate(
    requirements: &ResourceRequirements,
    check_name: fn(&str, &Path) -> Errors,
    claims: &BTreeSet<&str>,
    options: &Options,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let (limits, requests) = (amounts(requirements.limits.as_ref()), amounts(requirements.requests.as_ref()));
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let amount = |name: &str, quantity: &Quantity, path: &Path| {
        let mut errors = check_name(name, path);
        errors.extend(validate_amount(name, quantity, path));
        errors
    };
    let pages = |name: &str, quantity: &Quantity, path: &Path| {
        (is_huge_pages(name) && !options.allow_indivisible_huge_pages && !is_whole_pages(name, quantity))
            .then(|| {
                let why = format!("{quantity} is not positive integer multiple of {name}");
                path.invalid(&quantity.to_string(), why)
            })
    };
    for (name, quantity) in &limits {
        let path = limits_path.key(name);
        errors.extend(amount(name, quantity, &path));
        errors.extend(pages(name, quantity, &path));
    }
    for (name, quantity) in &requests {
        let path = requests_path.key(name);
        errors.extend(amount(name, quantity, &path));
        match limits.get(name) {
            Some(limit) if quantity != limit && !may_overcommit(name) => {
                let why = format!("must be equal to {name} limit of {limit}");
                errors.push(requests_path.invalid(&quantity.to_string(), why));
            }
            Some(limit) if quantity > limit => {
                let why = format!("must be less than or equal to {name} limit of {limit}");
                errors.push(requests_path.invalid(&quantity.to_string(), why));
            }
            None if !may_overcommit(name) => {
                errors.push(limits_path.required("Limit must be set for non overcommitable resources"));
            }
            _ => {}
        }
        errors.extend(pages(name, quantity, &path));
    }
    let mut names = limits.keys().chain(requests.keys());
    let computes = names.clone().any(|name| name == "cpu" || name == "memory");
    if !computes && names.any(|name| is_huge_pages(name)) {
        errors.push(path.forbidden("HugePages require cpu or memory"));
    }
    let wanted = requirements.claims.as_deref().unwrap_or_default();
    errors.extend(claims::validate_use(wanted, claims, &path.child("claims")));
    errors
}

/// An amount of one resource: not negative, and whole where there is no half.
pub(crate) fn validate_amount(name: &str, quantity: &Quantity, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if quantity.is_negative() {
        errors.push(path.invalid(&quantity.to_string(), meta::NEGATIVE));
    }
    let is_counted = COUNTED.contains(&name) || is_extended(name);
    if is_counted && !is_whole(quantity) {
        errors.push(path.invalid(Value::json(quantity), "must be an integer"));
    }
    errors
}

/// Whether an amount has no fraction. Kubernetes looks at thousandths only.
pub(super) fn is_whole(quantity: &Quantity) -> bool {
    quantity.rounded_to_millis().is_integer()
}

pub(crate) fn resource_name(name: &str, path: &Path) -> Errors {
    let problems = names::qualified_name(name);
    if !problems.is_empty() {
        return problems.into_iter().map(|problem| path.invalid(Value::json(&name), problem)).collect();
    }
    let is_standard =
        STANDARD.contains(&name) || is_huge_pages(name) || name.starts_with("requests.hugepages-");
    if name.contains('/') || is_standard {
        return Errors::new();
    }
    vec![path.invalid(Value::json(&name), "must be a standard resource type or fully qualified")]
}

pub(crate) fn container_resource_name(name: &str, path: &Path) -> Errors {
    let mut errors = resource_name(name, path);
    if !name.contains('/') {
        if !["cpu", "memory", "ephemeral-storage"].contains(&name) && !is_huge_pages(name) {
            errors.push(path.invalid(Value::json(&name), "must be a standard resource for containers"));
        }
    } else if !is_native(name) && !is_extended(name) {
        errors.push(path.invalid(Value::json(&name), "doesn't follow extended resource name standard"));
    }
    errors
}

fn pod_resource_name(name: &str, path: &Path) -> Errors {
    let errors = resource_name(name, path);
    if !errors.is_empty() || is_pod_level(name) {
        return errors;
    }
    vec![path.not_supported(Value::json(&name), &["cpu", HUGE_PAGES, "memory"])]
}

fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_pages(name)
}

fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether a resource is one of Kubernetes' own.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

pub(crate) fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Whether an amount of huge pages is a multiple of the page size that their name says.
pub(super) fn is_whole_pages(name: &str, quantity: &Quantity) -> bool {
    let Some(Ok(page)) = name.strip_prefix(HUGE_PAGES).map(str::parse::<Quantity>) else { return false };
    let (page_bytes, bytes) = (page.units_saturating(), quantity.units_saturating());
    page.is_positive() && is_whole(&page) && bytes % page_bytes == 0
}

/// Amounts by name. What is no quantity has been refused while decoding and counts as nothing here.
pub(super) fn amounts(list: Option<&List>) -> Amounts {
    let parse = |(name, quantity): (&String, &resource::Quantity)| {
        (name.clone(), Quantity::try_from(quantity).unwrap_or_default())
    };
    list.into_iter().flatten().map(parse).collect()
}

/// Pod-level amounts are not smaller than what the containers need together.
fn consistent(spec: &PodSpec, resources: &ResourceRequirements, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (limits, requests) = (amounts(resources.limits.as_ref()), amounts(resources.requests.as_ref()));
    for (name, needed) in aggregate(spec, |resources| resources.requests.as_ref()) {
        if let Some(request) = requests.get(&name).filter(|request| needed > **request) {
            let why = format!("must be greater than or equal to aggregate container requests of {needed}");
            errors.push(path.child("requests").key(&name).invalid(&request.to_string(), why));
        }
    }
    for (name, needed) in aggregate(spec, |resources| resources.limits.as_ref()) {
        if let Some(limit) = limits.get(&name).filter(|limit| is_huge_pages(&name) && needed > **limit) {
            let why = format!("must be greater than or equal to aggregate container limits of {needed}");
            errors.push(path.child("limits").key(&name).invalid(&limit.to_string(), why));
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        for (name, own) in amounts(container.resources.as_ref().and_then(|r| r.limits.as_ref())) {
            if let Some(limit) = limits.get(&name).filter(|limit| own > **limit) {
                let path = path.child("containers").index(i).key(&name).child("limits");
                let why = format!("must be less than or equal to pod limits of {limit}");
                errors.push(path.invalid(&own.to_string(), why));
            }
        }
    }
    errors
}

/// What all containers need together: the regular ones and sidecars at once, or an init container and the sidecars
/// before it, whichever is more.
fn aggregate(spec: &PodSpec, list: fn(&ResourceRequirements) -> Option<&List>) -> Amounts {
    let of = |container: &Container| amounts(container.resources.as_ref().and_then(list));
    let mut together = Amounts::new();
    for container in &spec.containers {
        add(&mut together, of(container));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in spec.init_containers.iter().flatten() {
        let mut need = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut together, need.clone());
            add(&mut sidecars, need);
            need = sidecars.clone();
        } else {
            add(&mut need, sidecars.clone());
        }
        keep_larger(&mut most, need);
    }
    keep_larger(&mut together, most);
    together
}

fn add(amounts: &mut Amounts, more: Amounts) {
    for (name, quantity) in more {
        match amounts.get_mut(&name) {
            Some(amount) => *amount += &quantity,
            None => drop(amounts.insert(name, quantity)),
        }
    }
}

fn keep_larger(amounts: &mut Amounts, others: Amounts) {
    for (name, quantity) in others {
        if amounts.get(&name).is_none_or(|amount| quantity > *amount) {
            amounts.insert(name, quantity);
        }
    }
}

/// The pod-level amounts of a pod, from those of its containers, where its author set at least one of them.
pub(super) fn default_pod_level(spec: &mut PodSpec) {
    let aggregated_limits = aggregate(spec, |resources| resources.limits.as_ref());
    let aggregated_requests = aggregate(spec, |resources| resources.requests.as_ref());
    let Some(resources) = &mut spec.resources else { return };
    let is_empty = |list: &Option<List>| list.as_ref().is_none_or(BTreeMap::is_empty);
    if is_empty(&resources.limits) && is_empty(&resources.requests) {
        return;
    }
    let mut limits = resources.limits.take().unwrap_or_default();
    for (name, needed) in &aggregated_limits {
        let requested = resources.requests.as_ref().is_some_and(|requests| requests.contains_key(name));
        if is_huge_pages(name) && !requested {
            limits.entry(name.clone()).or_insert_with(|| needed.into());
        }
    }
    if limits.is_empty() {
        return;
    }
    let mut requests = resources.requests.take().unwrap_or_default();
    for (name, needed) in &aggregated_requests {
        if is_pod_level(name) && may_overcommit(name) {
            requests.entry(name.clone()).or_insert_with(|| needed.into());
        }
    }
    for (name, limit) in &limits {
        if is_pod_level(name) {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    resources.requests = Some(requests).filter(|requests| !requests.is_empty());
    resources.limits = Some(limits);
}

/// Whether a pod asks for a part of a huge page, as older servers allowed.
pub(super) fn has_indivisible_huge_pages(spec: &PodSpec) -> bool {
    let splits = |list: Option<&List>| {
        amounts(list).iter().any(|(name, quantity)| is_huge_pages(name) && !is_whole_pages(name, quantity))
    };
    let of_container = |container: &Container| {
        container
            .resources
            .as_ref()
            .is_some_and(|resources| splits(resources.limits.as_ref()) || splits(resources.requests.as_ref()))
    };
    all_containers(spec, &Path::root()).iter().any(|(container, _)| of_container(container))
        || splits(spec.overhead.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{check_container, check_spec};

    #[test]
    fn c_63_amounts_of_containers() {
        let check = |resources, expected: &[&str]| check_container(json!({"resources": resources}), expected);
        check(json!({"limits": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "2"}}), &[]);
        check(
            json!({"limits": {"cpu": "-1"}}),
            &[r#".resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#],
        );
        check(
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}),
            &[r#".resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#],
        );
        check(
            json!({"limits": {"example.com/gpu": "1500m"}, "requests": {"example.com/gpu": "1"}}),
            &[
                r#".resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer"#,
                r#".resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 1500m"#,
            ],
        );
        check(
            json!({"requests": {"example.com/gpu": "1"}}),
            &[".resources.limits: Required value: Limit must be set for non overcommitable resources"],
        );
        check(
            json!({"limits": {"pods": "1", "frob": "1", "requests.x.io/a": "1"}}),
            &[
                r#".resources.limits[frob]: Invalid value: "frob": must be a standard resource type or fully qualified"#,
                r#".resources.limits[frob]: Invalid value: "frob": must be a standard resource for containers"#,
                r#".resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers"#,
                r#".resources.limits[requests.x.io/a]: Invalid value: "requests.x.io/a": doesn't follow extended resource name standard"#,
            ],
        );
        check(
            json!({"limits": {"hugepages-2Mi": "3Mi"}, "requests": {"hugepages-2Mi": "3Mi"}}),
            &[
                r#".resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
                r#".resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
                ".resources: Forbidden: HugePages require cpu or memory",
            ],
        );
    }

    #[test]
    fn c_63_amounts_of_the_pod() {
        let check = |resources, container, init, expected: &[&str]| {
            let spec = json!({
                "resources": resources,
                "containers": [{"name": "c", "image": "i", "resources": container}],
                "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "resources": init}],
            });
            check_spec(spec, expected);
        };
        check(json!({"limits": {"cpu": "2"}}), json!({"limits": {"cpu": "1"}}), json!({}), &[]);
        check(
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}, "claims": []}),
            json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
            json!({"requests": {"cpu": "500m"}}),
            &[
                "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
                r#"spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1500m"#,
                r#"spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1"#,
            ],
        );
        check(
            json!({"limits": {"ephemeral-storage": "1"}}),
            json!({}),
            json!({}),
            &[
                r#"spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory""#,
            ],
        );
    }
}
