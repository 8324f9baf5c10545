//! How well a pod is served when a node runs short: its quality of service.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource;
use types::Quantity;

const GUARANTEED: &str = "Guaranteed";
const BURSTABLE: &str = "Burstable";
const BEST_EFFORT: &str = "BestEffort";

/// Only these count.
const COUNTED: [&str; 2] = ["cpu", "memory"];

type Sums = BTreeMap<&'static str, Quantity>;

/// The class that a pod has: what its status says, or else what follows from its spec.
pub fn class(pod: &Pod) -> String {
    let stated = pod.status.as_ref().and_then(|status| status.qos_class.as_ref());
    stated.filter(|class| !class.is_empty()).cloned().unwrap_or_else(|| compute(pod.spec.as_ref()).to_owned())
}

/// The class that follows from a spec (3.5).
pub fn compute(spec: Option<&PodSpec>) -> &'static str {
    let Some(spec) = spec else { return BEST_EFFORT };
    let (mut requests, mut limits) = (Sums::new(), Sums::new());
    let mut all_limited = true;
    if let Some(resources) = &spec.resources {
        add(&mut requests, resources.requests.as_ref());
        if resources.limits.as_ref().is_some_and(|limits| !limits.is_empty()) {
            all_limited = add(&mut limits, resources.limits.as_ref()) == COUNTED.len();
        }
    } else {
        let none = ResourceRequirements::default();
        for container in spec.containers.iter().chain(spec.init_containers.iter().flatten()) {
            let resources = container.resources.as_ref().unwrap_or(&none);
            add(&mut requests, resources.requests.as_ref());
            all_limited &= add(&mut limits, resources.limits.as_ref()) == COUNTED.len();
        }
    }
    if requests.is_empty() && limits.is_empty() {
        return BEST_EFFORT;
    }
    if all_limited && requests == limits { GUARANTEED } else { BURSTABLE }
}

/// Adds what counts and is more than nothing; returns how many resources that are.
fn add(sums: &mut Sums, list: Option<&BTreeMap<String, resource::Quantity>>) -> usize {
    let amounts = COUNTED.into_iter().filter_map(|name| {
        let quantity = Quantity::try_from(list?.get(name)?).ok()?;
        quantity.is_positive().then_some((name, quantity))
    });
    let mut found = 0;
    for (name, quantity) in amounts {
        *sums.entry(name).or_default() += &quantity;
        found += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &str) {
        let spec: PodSpec = serde_json::from_value(spec).expect("a test's spec");
        assert_eq!(compute(Some(&spec)), expected);
    }

    fn containers(resources: &[Value]) -> Value {
        let container = |resources: &Value| json!({"name": "c", "resources": resources});
        json!({"containers": resources.iter().map(container).collect::<Vec<_>>()})
    }

    #[test]
    fn rule_3_5_classes() {
        let whole =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        check(containers(&[json!({})]), BEST_EFFORT);
        check(containers(&[json!({"requests": {"x.io/y": "1"}})]), BEST_EFFORT);
        check(containers(&[json!({"requests": {"cpu": "0"}})]), BEST_EFFORT);
        check(containers(&[json!({"requests": {"cpu": "1"}})]), BURSTABLE);
        check(containers(std::slice::from_ref(&whole)), GUARANTEED);
        check(containers(&[whole.clone(), json!({})]), BURSTABLE);
        check(json!({"resources": whole, "containers": [{"name": "c"}]}), GUARANTEED);
        check(json!({"resources": {}, "containers": [{"name": "c", "resources": whole}]}), BEST_EFFORT);
    }
}
