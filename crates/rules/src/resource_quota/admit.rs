//! Whether the quotas of a namespace let a write in, and what they have given away then.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, ResourceQuota, ResourceQuotaSpec};
use types::Quantity;

use super::{List, OF_DEVICE_CLASS, Object, PLAIN, charge, is_subject};

/// A quota as its status says that it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub spec: ResourceQuotaSpec,
    /// What it allows. Nothing as long as nobody has counted.
    pub hard: List,
    /// What is used of it.
    pub used: List,
}

impl Standing {
    /// Reads a quota.
    pub fn of(quota: &ResourceQuota) -> Self {
        let status = quota.status.clone().unwrap_or_default();
        Standing {
            name: quota.metadata.name.clone().unwrap_or_default(),
            spec: quota.spec.clone().unwrap_or_default(),
            hard: amounts(status.hard),
            used: amounts(status.used),
        }
    }
}

fn amounts(list: Option<BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>) -> List {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, amount)| Some((name, Quantity::try_from(&amount).ok()?))).collect()
}

/// A write that quotas may refuse.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The object as it is to become.
    pub object: Object<'a>,
    /// The object as it is, if there is one.
    pub old: Option<Object<'a>>,
    /// It tells what is so already, and is counted but not refused.
    pub is_status: bool,
}

/// Whether quotas have a say in such a write at all.
pub fn is_charged(write: &Write<'_>, subresource: &str) -> bool {
    let is_new = write.old.is_none();
    match (write.object, subresource) {
        (Object::Pod(pod), "") => match write.old {
            Some(Object::Pod(old)) => has_deadline(old) != has_deadline(pod),
            _ => is_new,
        },
        (Object::Pod(_), "resize") => !is_new,
        (Object::Service(_) | Object::Claim(_) | Object::Devices(_), "") => true,
        (Object::Claim(claim), "status") => match write.old {
            Some(Object::Claim(old)) => {
                let allocated = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
                    claim.status.as_ref().and_then(|status| status.allocated_resources.clone())
                };
                allocated(claim) != allocated(old)
            }
            _ => false,
        },
        (Object::Other { .. }, "") => is_new,
        _ => false,
    }
}

fn has_deadline(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).is_some_and(|seconds| seconds >= 0)
}

/// Takes what a write uses from all quotas that are about it, or from none and says why.
pub fn admit(quotas: &mut [Standing], write: &Write<'_>, now: Timestamp) -> Result<(), String> {
    let mut concerned = Vec::new();
    for (place, quota) in quotas.iter().enumerate() {
        let limited: BTreeSet<&str> =
            quota.hard.keys().map(String::as_str).filter(|name| is_of(write.object, name)).collect();
        if limited.is_empty() || !is_subject(&quota.spec, write.object) {
            continue;
        }
        if let Object::Pod(pod) = write.object {
            says_all(pod, &limited).map_err(|why| format!("failed quota: {}: {why}", quota.name))?;
        }
        if limited.iter().any(|name| !quota.used.contains_key(*name)) {
            let names: Vec<&str> = limited.into_iter().collect();
            let (name, names) = (&quota.name, names.join(","));
            return Err(format!("status unknown for quota: {name}, resources: {names}"));
        }
        concerned.push(place);
    }
    let charged = charge(write.object, now);
    let negative: Vec<&str> =
        charged.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name.as_str()).collect();
    if !negative.is_empty() {
        return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
    }
    let mut taken = Vec::new();
    for place in concerned {
        let quota = &quotas[place];
        let before = write.old.filter(|old| is_subject(&quota.spec, *old)).map(|old| charge(old, now));
        let more = more(&charged, &before.unwrap_or_default());
        let asked: List = more.into_iter().filter(|(name, _)| quota.hard.contains_key(name)).collect();
        let used = sum(&quota.used, &asked);
        if !write.is_status {
            let exceeded: Vec<&String> =
                asked.keys().filter(|name| used.get(*name) > quota.hard.get(*name)).collect();
            if !exceeded.is_empty() {
                return Err(refusal(quota, &asked, &exceeded));
            }
        }
        taken.push((place, used));
    }
    for (place, used) in taken {
        quotas[place].used = used;
    }
    Ok(())
}

fn refusal(quota: &Standing, asked: &List, exceeded: &[&String]) -> String {
    let print = |list: &List| {
        let parts = exceeded.iter().filter_map(|name| Some(format!("{name}={}", list.get(*name)?)));
        parts.collect::<Vec<_>>().join(",")
    };
    format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        print(asked),
        print(&quota.used),
        print(&quota.hard)
    )
}

/// What is charged beyond what was before.
fn more(charged: &List, before: &List) -> List {
    let beyond = charged.iter().map(|(name, amount)| {
        let before = before.get(name).cloned().unwrap_or_default();
        (name.clone(), amount - &before)
    });
    beyond.filter(|(_, amount)| amount.is_positive()).collect()
}

fn sum(used: &List, asked: &List) -> List {
    let mut sum = used.clone();
    for (name, amount) in asked {
        *sum.entry(name.clone()).or_default() += amount;
    }
    sum
}

/// What a pod uses that every quota can limit by name.
const OF_PODS: [&str; 11] = [
    "count/pods",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "pods",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const OF_SERVICES: [&str; 4] = ["count/services", "services", "services.loadbalancers", "services.nodeports"];
const OF_CLAIMS: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];

/// Whether objects of this kind use what a quota calls so.
fn is_of(object: Object<'_>, name: &str) -> bool {
    match object {
        Object::Pod(_) => {
            let is_huge = name.starts_with("hugepages-") || name.starts_with("requests.hugepages-");
            let is_extended =
                name.starts_with("requests.") && name.contains('/') && !name.contains("kubernetes.io/");
            // These are waited for to be counted, although nobody counts them yet.
            let is_device = name.starts_with("requests.deviceclass.resource.kubernetes.io/");
            OF_PODS.contains(&name) || is_huge || is_extended || is_device
        }
        Object::Service(_) => OF_SERVICES.contains(&name),
        Object::Claim(_) => {
            let of_class = name.split_once(".storageclass.storage.k8s.io/").map_or(name, |(_, what)| what);
            name == "count/persistentvolumeclaims" || OF_CLAIMS.contains(&of_class)
        }
        Object::Devices(_) => {
            name == "count/resourceclaims.resource.k8s.io" || name.ends_with(OF_DEVICE_CLASS)
        }
        Object::Other { resource, group } => {
            let plain = group.is_empty() && PLAIN.contains(&resource) && name == resource;
            let kind = name.strip_prefix("count/");
            let own = match kind.and_then(|kind| kind.split_once('.')) {
                Some((plural, of)) => plural == resource && of == group,
                None => kind == Some(resource) && group.is_empty(),
            };
            plain || own
        }
    }
}

/// Where CPU or memory is limited, every container has to say how much of it it wants.
fn says_all(pod: &Pod, limited: &BTreeSet<&str>) -> Result<(), String> {
    let Some(spec) = &pod.spec else { return Ok(()) };
    let says = |list: &Option<BTreeMap<String, _>>, name: &str| {
        list.as_ref().is_some_and(|list| list.contains_key(name))
    };
    if let Some(whole) = &spec.resources
        && ["cpu", "memory"].iter().any(|name| says(&whole.requests, name) || says(&whole.limits, name))
    {
        return Ok(());
    }
    let said = |container: &Container, name: &str| {
        let resources = container.resources.clone().unwrap_or_default();
        match name.strip_prefix("limits.") {
            Some(name) => says(&resources.limits, name),
            None => says(&resources.requests, name.strip_prefix("requests.").unwrap_or(name)),
        }
    };
    let needed = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let mut missing = Vec::new();
    for name in needed.into_iter().filter(|name| limited.contains(name)) {
        let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
        let silent: BTreeSet<&str> =
            all.filter(|container| !said(container, name)).map(|container| container.name.as_str()).collect();
        if !silent.is_empty() {
            let silent: Vec<&str> = silent.into_iter().collect();
            missing.push(format!("{name} for: {}", silent.join(",")));
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("must specify {}", missing.join("; "))) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use serde_json::{Value, json};

    use super::*;

    fn quota(hard: Value, used: Value) -> Standing {
        let read = |list: Value| serde_json::from_value::<List>(list).expect("amounts");
        let (hard, used) = (read(hard), read(used));
        Standing { name: "q".to_owned(), spec: ResourceQuotaSpec::default(), hard, used }
    }

    fn pod(resources: Value) -> Pod {
        let container = json!({"name": "c", "image": "i", "resources": resources});
        serde_json::from_value(json!({"spec": {"containers": [container]}})).expect("a pod")
    }

    fn check(mut quota: Standing, pod: &Pod, old: Option<&Pod>, expected: Result<Value, &str>) {
        let write = Write { object: Object::Pod(pod), old: old.map(Object::Pod), is_status: false };
        let before = quota.clone();
        let admitted = admit(std::slice::from_mut(&mut quota), &write, Timestamp::UNIX_EPOCH);
        match expected {
            Ok(used) => {
                assert_eq!(admitted, Ok(()));
                assert_eq!(serde_json::to_value(&quota.used).expect("JSON"), used);
            }
            Err(why) => {
                assert_eq!(admitted, Err(why.to_owned()));
                assert_eq!(quota, before, "what is refused takes nothing");
            }
        }
    }

    #[test]
    fn writes_take_what_there_is_and_no_more() {
        let full = json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}});
        let limits = json!({"pods": "2", "requests.cpu": "1", "secrets": "1"});
        let used = |pods: &str, cpu: &str| json!({"pods": pods, "requests.cpu": cpu, "secrets": "0"});
        check(quota(limits.clone(), used("0", "0")), &pod(full.clone()), None, Ok(used("1", "500m")));
        check(quota(limits.clone(), used("1", "500m")), &pod(full.clone()), None, Ok(used("2", "1")));
        check(
            quota(limits.clone(), used("2", "750m")),
            &pod(full.clone()),
            None,
            Err(
                "exceeded quota: q, requested: pods=1,requests.cpu=500m, used: pods=2,requests.cpu=750m, limited: \
                 pods=2,requests.cpu=1",
            ),
        );
        check(
            quota(limits.clone(), used("0", "0")),
            &pod(json!({})),
            None,
            Err("failed quota: q: must specify requests.cpu for: c"),
        );
        check(
            quota(limits, json!({})),
            &pod(full.clone()),
            None,
            Err("status unknown for quota: q, resources: pods,requests.cpu"),
        );
        check(quota(json!({}), json!({})), &pod(full.clone()), None, Ok(json!({})));
        let smaller = pod(json!({"requests": {"cpu": "200m"}}));
        check(
            quota(json!({"requests.cpu": "1"}), json!({"requests.cpu": "900m"})),
            &pod(full),
            Some(&smaller),
            Err(
                "exceeded quota: q, requested: requests.cpu=300m, used: requests.cpu=900m, limited: requests.cpu=1",
            ),
        );
    }

    #[test]
    fn claims_take_devices_of_their_classes() {
        let claim = |count: i64| -> ResourceClaim {
            let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
            let requests = json!([{"name": "r", "exactly": exactly}]);
            serde_json::from_value(json!({"spec": {"devices": {"requests": requests}}})).expect("a claim")
        };
        let name = "gpu.deviceclass.resource.k8s.io/devices";
        let mut quota = quota(json!({(name): "3"}), json!({(name): "0"}));
        let mut take = |new: &ResourceClaim, old: Option<&ResourceClaim>| {
            let write =
                Write { object: Object::Devices(new), old: old.map(Object::Devices), is_status: false };
            assert!(is_charged(&write, "") && !is_charged(&write, "status"));
            admit(std::slice::from_mut(&mut quota), &write, Timestamp::UNIX_EPOCH)
        };
        assert_eq!(take(&claim(2), None), Ok(()));
        assert_eq!(take(&claim(2), Some(&claim(2))), Ok(()));
        let why = format!("exceeded quota: q, requested: {name}=2, used: {name}=2, limited: {name}=3");
        assert_eq!(take(&claim(2), None), Err(why));
        assert_eq!(take(&claim(1), None), Ok(()));
    }

    #[test]
    fn kinds_use_what_is_called_after_them() {
        let job = Object::Other { resource: "jobs", group: "batch" };
        let map = Object::Other { resource: "configmaps", group: "" };
        let pod = pod(json!({}));
        let claim = ResourceClaim::default();
        let devices = Object::Devices(&claim);
        for (object, name, expected) in [
            (devices, "gpu.deviceclass.resource.k8s.io/devices", true),
            (devices, "count/resourceclaims.resource.k8s.io", true),
            (devices, "persistentvolumeclaims", false),
            (devices, "requests.example.com/gpu", false),
            (Object::Pod(&pod), "gpu.deviceclass.resource.k8s.io/devices", false),
            (Object::Pod(&pod), "requests.deviceclass.resource.kubernetes.io/gpu", true),
            (job, "count/jobs.batch", true),
            (job, "count/jobs", false),
            (job, "jobs", false),
            (map, "configmaps", true),
            (map, "count/configmaps", true),
            (Object::Pod(&pod), "requests.nvidia.com/gpu", true),
            (Object::Pod(&pod), "requests.storage", false),
            (Object::Pod(&pod), "gold.storageclass.storage.k8s.io/requests.storage", false),
        ] {
            assert_eq!(is_of(object, name), expected, "{name}");
        }
    }
}
