//! Whether a pod that runs may have other resources than it was given, and what has to be done for it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container as Specified, Pod, PodSpec, ResourceRequirements};
use types::Quantity;

use super::container::{Container, Kind};
use crate::field::Path;
use crate::quota::requests::PodResources;

/// What can be changed while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
/// The condition of a pod whose new resources it cannot have, or not yet.
pub const PENDING: &str = "PodResizePending";
/// The condition of a pod that may have its new resources and does not have them yet.
pub const IN_PROGRESS: &str = "PodResizeInProgress";

/// What comes of a pod's resources.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Its containers have what it says.
    Settled,
    /// They keep what they have, because it is `Infeasible` or `Deferred`.
    Pending(Unsettled),
    /// These get something else.
    Change(Vec<Change>),
}

/// What a pod says of resources that it does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// [`PENDING`] or [`IN_PROGRESS`].
    pub condition: &'static str,
    /// A word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// Other resources for a container that runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which.
    pub container: usize,
    /// What it gets.
    pub resources: ResourceRequirements,
    /// It asks to be started again for it.
    pub restart: bool,
}

/// What pods ask for of what can be changed: thousandths of a CPU, and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests([i64; RESIZABLE.len()]);

impl Requests {
    /// What a pod asks for.
    pub fn of(spec: &PodSpec) -> Requests {
        let total = PodResources::read(spec, &Path::new("spec")).map(|all| all.total()).unwrap_or_default();
        Requests(RESIZABLE.map(|name| total.get(name).map_or(0, |quantity| units(name, quantity))))
    }

    /// What both ask for.
    pub fn and(self, other: Requests) -> Requests {
        let mut sum = self;
        for (sum, amount) in sum.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(amount);
        }
        sum
    }
}

/// Decides about a pod on a node that has `allocatable`, of which `others` ask for a part.
pub fn decide(
    pod: &Pod,
    containers: &[Container],
    allocatable: &BTreeMap<String, String>,
    others: impl FnOnce() -> Requests,
) -> Decision {
    let Some(spec) = &pod.spec else { return Decision::Settled };
    let mut changes = Vec::new();
    for (index, container) in containers.iter().enumerate() {
        let resizable = container.is_running() && matches!(container.kind, Kind::Main | Kind::Sidecar);
        let Some(specified) = of(spec, &container.name).filter(|_| resizable) else { continue };
        let wanted = specified.resources.clone().unwrap_or_default();
        let has = container.resources.clone().unwrap_or_default();
        let changed: Vec<&str> =
            RESIZABLE.into_iter().filter(|name| amounts(&has, name) != amounts(&wanted, name)).collect();
        if !changed.is_empty() {
            let policies = specified.resize_policy.iter().flatten();
            let mut restarts = policies.filter(|policy| policy.restart_policy == "RestartContainer");
            let restart = restarts.any(|policy| changed.contains(&policy.resource_name.as_str()));
            changes.push(Change { container: index, resources: wanted, restart });
        }
    }
    if changes.is_empty() {
        return Decision::Settled;
    }
    let asked = Requests::of(spec).0;
    let has = |name: &str| allocatable.get(name).and_then(|text| text.parse::<Quantity>().ok());
    for (name, asked) in RESIZABLE.iter().zip(asked) {
        let capacity = has(name).map_or(0, |quantity| units(name, &quantity));
        if asked > capacity {
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {asked}, capacity: {capacity}");
            return Decision::Pending(Unsettled { condition: PENDING, reason: "Infeasible", message });
        }
    }
    for ((name, asked), used) in RESIZABLE.iter().zip(asked).zip(others().0) {
        let capacity = has(name).map_or(0, |quantity| units(name, &quantity));
        if asked > capacity.saturating_sub(used) {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {asked}, used: {used}, capacity: {capacity}"
            );
            return Decision::Pending(Unsettled { condition: PENDING, reason: "Deferred", message });
        }
    }
    Decision::Change(changes)
}

fn of<'a>(spec: &'a PodSpec, name: &str) -> Option<&'a Specified> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten()).find(|one| one.name == name)
}

/// Request and limit, as amounts: `1` and `1000m` are the same.
fn amounts(resources: &ResourceRequirements, name: &str) -> [Option<Quantity>; 2] {
    [&resources.requests, &resources.limits]
        .map(|list| list.as_ref().and_then(|list| list.get(name)).and_then(|it| it.0.parse().ok()))
}

/// Thousandths of a CPU, and bytes.
fn units(name: &str, quantity: &Quantity) -> i64 {
    if name == "cpu" { quantity.millis_saturating() } else { quantity.units_saturating() }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::node::container;

    fn pod(resources: &Value, policy: &Value) -> Pod {
        let main = json!({"name": "main", "resources": resources, "resizePolicy": policy});
        let other = json!({"name": "other", "resources": {"requests": {"cpu": "100m"}}});
        serde_json::from_value(json!({"spec": {"containers": [main, other]}})).expect("a pod")
    }

    /// What is decided when the first container, which has one CPU and 1Gi, is to have these.
    fn decided(resources: &Value, policy: &Value, others: &[Pod]) -> String {
        let before = pod(&json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}), policy);
        let mut containers = container::of_pod(&before);
        for (container, specified) in
            containers.iter_mut().zip(&before.spec.as_ref().expect("one").containers)
        {
            container.start("id".to_owned(), String::new(), Timestamp::UNIX_EPOCH);
            container.resources.clone_from(&specified.resources);
        }
        let allocatable =
            [("cpu", "4"), ("memory", "8Gi")].map(|(name, it)| (name.to_owned(), it.to_owned()));
        let others = || {
            let specs = others.iter().filter_map(|pod| pod.spec.as_ref());
            specs.map(Requests::of).fold(Requests::default(), Requests::and)
        };
        match decide(&pod(resources, policy), &containers, &BTreeMap::from(allocatable), others) {
            Decision::Settled => "settled".to_owned(),
            Decision::Pending(Unsettled { reason, message, .. }) => format!("{reason}: {message}"),
            Decision::Change(changes) => {
                let words = changes.iter().map(|it| format!("{} restart={}", it.container, it.restart));
                words.collect::<Vec<_>>().join(", ")
            }
        }
    }

    #[test]
    fn resizes() {
        let none = json!(null);
        let with = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "1"}});
        assert_eq!(decided(&with("1000m", "1024Mi"), &none, &[]), "settled");
        assert_eq!(decided(&with("2", "1Gi"), &none, &[]), "0 restart=false");
        let policy = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        assert_eq!(decided(&with("2", "1Gi"), &policy, &[]), "0 restart=false");
        assert_eq!(decided(&with("1", "2Gi"), &policy, &[]), "0 restart=true");
        assert_eq!(
            decided(&json!({"requests": {"cpu": "1", "memory": "1Gi"}}), &none, &[]),
            "0 restart=false"
        );
        assert_eq!(
            decided(&with("4", "1Gi"), &none, &[]),
            "Infeasible: Node didn't have enough capacity: cpu, requested: 4100, capacity: 4000"
        );
        let other = pod(&json!({"requests": {"cpu": "1900m"}}), &none);
        assert_eq!(
            decided(&with("3", "1Gi"), &none, &[other]),
            "Deferred: Node didn't have enough resource: cpu, requested: 3100, used: 2000, capacity: 4000"
        );
    }
}
