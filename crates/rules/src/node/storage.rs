//! Whether a pod has written more to the disks of its node than it may, and has to go.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Volume};
use types::{Quantity, go, quantity::Format};

use super::ending::Ending;
use crate::{field::Path, quota::requests::PodResources};

const RESOURCE: &str = "ephemeral-storage";
/// Pods of at least this priority are not evicted.
const CRITICAL: i32 = 2_000_000_000;

/// What a pod has written, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Into each of its empty directories, wherever they are.
    pub empty_dirs: BTreeMap<String, u64>,
    /// By each container: what it has changed of its files, and its logs.
    pub containers: BTreeMap<String, u64>,
    /// In all, to disks.
    pub pod: u64,
}

/// Whether there is anything that the pod may have too much of.
pub fn is_limited(spec: &PodSpec) -> bool {
    volumes(spec).any(|volume| size_limit(volume).is_some()) || limits(spec).contains_key(RESOURCE)
}

/// Why a pod that has written so much has to go, if it has to.
pub fn exceeded(pod: &Pod, usage: &Usage) -> Option<Ending> {
    let spec = pod.spec.as_ref().filter(|spec| spec.priority.is_none_or(|priority| priority < CRITICAL))?;
    let message = empty_dir(spec, usage).or_else(|| whole(spec, usage)).or_else(|| container(spec, usage))?;
    Some(Ending::Evicted { message })
}

fn empty_dir(spec: &PodSpec, usage: &Usage) -> Option<String> {
    volumes(spec).find_map(|volume| {
        let limit = size_limit(volume)?;
        is_more(*usage.empty_dirs.get(&volume.name)?, &limit).then(|| {
            let (name, limit) = (go::quote(&volume.name), go::quote(&limit.to_string()));
            format!("Usage of EmptyDir volume {name} exceeds the limit {limit}. ")
        })
    })
}

fn whole(spec: &PodSpec, usage: &Usage) -> Option<String> {
    let limits = limits(spec);
    let limit = limits.get(RESOURCE).filter(|limit| is_more(usage.pod, limit))?;
    Some(format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
}

fn container(spec: &PodSpec, usage: &Usage) -> Option<String> {
    spec.containers.iter().find_map(|container| {
        let limit = container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE)?;
        let limit = Quantity::try_from(limit).ok().filter(|limit| !limit.is_zero())?;
        is_more(*usage.containers.get(&container.name)?, &limit).then(|| {
            let (name, limit) = (&container.name, go::quote(&limit.to_string()));
            format!("Container {name} exceeded its local ephemeral storage limit {limit}. ")
        })
    })
}

fn volumes(spec: &PodSpec) -> impl Iterator<Item = &Volume> {
    spec.volumes.iter().flatten()
}

fn size_limit(volume: &Volume) -> Option<Quantity> {
    let limit = volume.empty_dir.as_ref()?.size_limit.as_ref()?;
    Quantity::try_from(limit).ok().filter(Quantity::is_positive)
}

/// A pod was validated when it was let in; one that is odd is not limited.
fn limits(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    PodResources::read(spec, &Path::new("spec")).map(|resources| resources.limits()).unwrap_or_default()
}

fn is_more(used: u64, limit: &Quantity) -> bool {
    Quantity::from_units(i64::try_from(used).unwrap_or(i64::MAX), Format::BinarySi) > *limit
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(limits: &[&str], spec: Value) -> Pod {
        let container = |(index, limit): (usize, &&str)| {
            let limits = if limit.is_empty() { json!({}) } else { json!({ "ephemeral-storage": limit }) };
            json!({ "name": format!("c{index}"), "resources": { "limits": limits } })
        };
        let containers: Vec<Value> = limits.iter().enumerate().map(container).collect();
        let mut pod = json!({ "spec": spec });
        pod["spec"]["containers"] = json!(containers);
        serde_json::from_value(pod).expect("a pod")
    }

    fn usage(empty_dir: u64, containers: &[u64]) -> Usage {
        let named = |(index, used): (usize, &u64)| (format!("c{index}"), *used);
        Usage {
            empty_dirs: [("v".to_owned(), empty_dir)].into(),
            containers: containers.iter().enumerate().map(named).collect(),
            pod: empty_dir + containers.iter().sum::<u64>(),
        }
    }

    fn check(pod: &Pod, usage: &Usage, expected: Option<&str>) {
        let message = match exceeded(pod, usage) {
            Some(Ending::Evicted { message }) => Some(message),
            other => other.map(|other| format!("{other:?}")),
        };
        assert_eq!(message.as_deref(), expected);
    }

    #[test]
    fn a_pod_goes_when_it_has_written_more_than_it_may() {
        const MI: u64 = 1024 * 1024;
        let volume = |limit: Value| json!({ "volumes": [{ "name": "v", "emptyDir": limit }] });
        let limited = pod(&[""], volume(json!({ "sizeLimit": "1Mi" })));
        check(&limited, &usage(MI, &[5 * MI]), None);
        let full = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
        check(&limited, &usage(MI + 1, &[0]), Some(full));
        check(&pod(&[""], volume(json!({}))), &usage(MI + 1, &[0]), None);
        check(&pod(&[""], volume(json!({ "sizeLimit": "0" }))), &usage(MI + 1, &[0]), None);

        let two = pod(&["1Mi", "2Mi"], volume(json!({})));
        check(&two, &usage(MI, &[MI, MI]), None);
        let all = "Pod ephemeral local storage usage exceeds the total limit of containers 3Mi. ";
        check(&two, &usage(MI, &[MI, MI + 1]), Some(all));
        let one = "Container c0 exceeded its local ephemeral storage limit \"1Mi\". ";
        check(&two, &usage(0, &[MI + 1, 0]), Some(one));
        let all = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
        check(&pod(&["1Mi", ""], json!({})), &usage(0, &[0, MI + 1]), Some(all));

        check(&pod(&["1Mi"], json!({ "priority": CRITICAL })), &usage(0, &[5 * MI]), None);
    }

    #[test]
    fn only_pods_with_limits_are_looked_at() {
        let is_limited = |pod: &Pod| pod.spec.as_ref().is_some_and(is_limited);
        assert!(!is_limited(&pod(&["", ""], json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }))));
        assert!(is_limited(&pod(&["", "1Gi"], json!({}))));
        let volume = json!({ "name": "v", "emptyDir": { "sizeLimit": "1Gi" } });
        assert!(is_limited(&pod(&[""], json!({ "volumes": [volume] }))));
    }
}
