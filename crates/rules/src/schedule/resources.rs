//! How much there is, and how much is asked for.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource;
use types::Quantity;

use crate::quota::requests::PodResources;

/// What a container that asks for nothing is taken to need, so that nodes are not filled with such.
const DEFAULT_MILLI_CPU: i64 = 100;
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Amounts: thousandths of a CPU, and whole units of everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// Thousandths of a CPU.
    pub milli_cpu: i64,
    /// Bytes.
    pub memory: i64,
    /// Bytes.
    pub ephemeral_storage: i64,
    /// Extended resources, huge pages.
    pub others: BTreeMap<String, i64>,
}

impl Resources {
    /// What a node has, and how many pods it takes.
    pub(crate) fn of_node(list: Option<&BTreeMap<String, resource::Quantity>>) -> (Self, i64) {
        let mut resources = Resources::default();
        let mut pods = 0;
        for (name, quantity) in list.into_iter().flatten() {
            let Ok(quantity) = Quantity::try_from(quantity) else { continue };
            if name == "pods" {
                pods = quantity.units_saturating();
            } else {
                resources.set(name, &quantity);
            }
        }
        (resources, pods)
    }

    /// What a pod asks for at once, or has got so far. A pod was validated when it was let in; one that is odd asks for
    /// nothing.
    pub(crate) fn of_pod(pod: &Pod) -> Self {
        let mut resources = Resources::default();
        let total = PodResources::of(pod).map(|resources| resources.total());
        for (name, quantity) in total.unwrap_or_default() {
            resources.set(&name, &quantity);
        }
        resources
    }

    /// CPU and memory that a pod is taken to need when nodes are compared.
    pub(super) fn for_score(spec: &PodSpec, asked: &Resources) -> (i64, i64) {
        let containers = i64::try_from(spec.containers.len()).unwrap_or(1);
        let asks = |name: &str| {
            let requests = |container: &k8s_openapi::api::core::v1::Container| {
                let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
                requests.is_some_and(|requests| requests.contains_key(name))
            };
            i64::try_from(spec.containers.iter().filter(|container| requests(container)).count()).unwrap_or(0)
        };
        (
            asked.milli_cpu + (containers - asks("cpu")) * DEFAULT_MILLI_CPU,
            asked.memory + (containers - asks("memory")) * DEFAULT_MEMORY,
        )
    }

    fn set(&mut self, name: &str, quantity: &Quantity) {
        match name {
            "cpu" => self.milli_cpu = quantity.millis_saturating(),
            "memory" => self.memory = quantity.units_saturating(),
            "ephemeral-storage" => self.ephemeral_storage = quantity.units_saturating(),
            name => drop(self.others.insert(name.to_owned(), quantity.units_saturating())),
        }
    }

    pub(crate) fn add(&mut self, other: &Resources) {
        self.milli_cpu = self.milli_cpu.saturating_add(other.milli_cpu);
        self.memory = self.memory.saturating_add(other.memory);
        self.ephemeral_storage = self.ephemeral_storage.saturating_add(other.ephemeral_storage);
        for (name, amount) in &other.others {
            let sum = self.others.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
    }

    pub(crate) fn subtract(&mut self, other: &Resources) {
        self.milli_cpu -= other.milli_cpu;
        self.memory -= other.memory;
        self.ephemeral_storage -= other.ephemeral_storage;
        for (name, amount) in &other.others {
            if let Some(sum) = self.others.get_mut(name) {
                *sum -= amount;
                if *sum == 0 {
                    self.others.remove(name);
                }
            }
        }
    }

    /// What is missing on a node that has `allocatable` and gave away `used`: names, and whether even an empty node
    /// would not do.
    pub(super) fn missing(&self, allocatable: &Resources, used: &Resources) -> Vec<(String, bool)> {
        let mut missing = Vec::new();
        let mut check = |name: &str, asked: i64, allocatable: i64, used: i64| {
            if asked > 0 && asked > allocatable - used {
                missing.push((name.to_owned(), asked > allocatable));
            }
        };
        check("cpu", self.milli_cpu, allocatable.milli_cpu, used.milli_cpu);
        check("memory", self.memory, allocatable.memory, used.memory);
        let (has, gave) = (allocatable.ephemeral_storage, used.ephemeral_storage);
        check("ephemeral-storage", self.ephemeral_storage, has, gave);
        for (name, asked) in &self.others {
            let of = |resources: &Resources| resources.others.get(name).copied().unwrap_or(0);
            check(name, *asked, of(allocatable), of(used));
        }
        missing
    }
}
