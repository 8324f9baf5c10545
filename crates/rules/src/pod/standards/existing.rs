//! Pods that are there when their namespace comes to be held to another standard. They stay; but whoever changes the
//! namespace hears of them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::{Standard, violations};

/// So many pods are looked at.
const MOST: usize = 3000;

/// Warnings about the pods of a namespace that violate the standard to which it is held from now on. Pods of one controller
/// are much alike, so one of each is looked at before the others. `is_late` is asked after each whether to go on.
pub fn existing(
    namespace: &str,
    standard: Standard,
    pods: &[Pod],
    mut is_late: impl FnMut() -> bool,
) -> Vec<String> {
    let none = PodSpec::default();
    let mut by_reasons: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut looked_at = 0;
    for pod in one_of_each_first(pods).into_iter().take(MOST) {
        let found = violations(standard, &pod.metadata, pod.spec.as_ref().unwrap_or(&none));
        if !found.is_empty() {
            by_reasons.entry(found.reasons()).or_default().push(name(pod));
        }
        looked_at += 1;
        if is_late() {
            break;
        }
    }
    let mut warnings = Vec::new();
    if looked_at < pods.len() {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {looked_at} of {} existing pods",
            pods.len()
        ));
    }
    if !by_reasons.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {} violate the new PodSecurity enforce level \"{standard}\"",
            types::go::quote(namespace)
        ));
    }
    let mut about_pods: Vec<String> = by_reasons.iter().map(|(reasons, pods)| told(pods, reasons)).collect();
    about_pods.sort_unstable();
    warnings.append(&mut about_pods);
    warnings
}

/// The first of some pods in the order of their names, how many others there are, and what they violate.
fn told(pods: &[&str], reasons: &str) -> String {
    let first = pods.iter().min().copied().unwrap_or_default();
    match pods.len() {
        1 => format!("{first}: {reasons}"),
        2 => format!("{first} (and 1 other pod): {reasons}"),
        count => format!("{first} (and {} other pods): {reasons}", count - 1),
    }
}

fn one_of_each_first(pods: &[Pod]) -> Vec<&Pod> {
    let mut seen = BTreeSet::new();
    let (mut first, others): (Vec<&Pod>, Vec<&Pod>) =
        pods.iter().partition(|pod| controller(pod).is_none_or(|uid| seen.insert(uid)));
    first.extend(others);
    first
}

fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.uid.as_str())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pod::standards::{Level, Version};

    const STANDARD: Standard = Standard { level: Level::Baseline, version: Version::Latest };
    const HEAD: &str =
        "existing pods in namespace \"n\" violate the new PodSecurity enforce level \"baseline:latest\"";

    fn pod(name: &str, controller: &str, spec: serde_json::Value) -> Pod {
        let owner =
            json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": controller, "controller": true});
        let owners = if controller.is_empty() { json!([]) } else { json!([owner]) };
        let pod = json!({"metadata": {"name": name, "ownerReferences": owners}, "spec": spec});
        serde_json::from_value(pod).expect("a test's pod")
    }

    #[test]
    fn warnings_tell_of_pods_that_are_there() {
        let good = || json!({"containers": []});
        let bad = || json!({"containers": [], "hostPID": true});
        let worse = || json!({"containers": [], "hostPID": true, "volumes": [{"name": "v", "hostPath": {"path": "/"}}]});
        let check = |pods: &[Pod], expected: &[&str]| {
            assert_eq!(existing("n", STANDARD, pods, || false), expected);
        };
        check(&[], &[]);
        check(&[pod("a", "", good())], &[]);
        check(&[pod("a", "", good()), pod("b", "", bad())], &[HEAD, "b: host namespaces"]);
        check(
            &[pod("c", "", bad()), pod("b", "", bad()), pod("a", "", worse())],
            &[HEAD, "a: host namespaces, hostPath volumes", "b (and 1 other pod): host namespaces"],
        );
        check(
            &[pod("c", "", bad()), pod("b", "", bad()), pod("a", "", bad())],
            &[HEAD, "a (and 2 other pods): host namespaces"],
        );
    }

    #[test]
    fn one_pod_of_each_controller_comes_first() {
        let good = || json!({"containers": []});
        let pods =
            [pod("a", "1", good()), pod("b", "1", good()), pod("c", "", good()), pod("d", "2", good())];
        assert_eq!(one_of_each_first(&pods).into_iter().map(name).collect::<Vec<_>>(), ["a", "c", "d", "b"]);
        let warnings = existing("n", STANDARD, &pods, || true);
        assert_eq!(
            warnings,
            ["new PodSecurity enforce level only checked against the first 1 of 4 existing pods"]
        );
    }
}
