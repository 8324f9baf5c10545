//! What a status of a pod may say. Whoever runs the pod is believed nearly everything, but for what would undo an end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};

use super::{Options, dns, update};
use crate::field::{Errors, Often, Path, Value};
use crate::meta::{self, IMMUTABLE, non_empty};
use crate::names;

const NOT_AGAIN: &str = "may not be transitioned to non-terminated state";
const NOT_NEGATIVE: &str = "must be a non-negative integer";
/// Conditions that need no domain in front.
const SYSTEM_CONDITIONS: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// A changed status, after [`prepare::for_status`](super::prepare::for_status).
pub fn validate(new: &Pod, old: &Pod, options: &Options) -> Errors {
    let (none, no_spec) = (PodStatus::default(), PodSpec::default());
    let (status, before) = (new.status.as_ref().unwrap_or(&none), old.status.as_ref().unwrap_or(&none));
    let spec = old.spec.as_ref().unwrap_or(&no_spec);
    let path = Path::new("status");
    let mut errors = meta::validate_update_built_in(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(update::annotation_updates(new, old, options));
    errors.extend(conditions(status.conditions.as_deref().unwrap_or_default(), &path.child("conditions")));
    errors.extend(nominated_node(status, before, spec, &path.child("nominatedNodeName")));
    if let Some(generation) = status.observed_generation.filter(|generation| *generation < 0) {
        errors.push(path.child("observedGeneration").invalid(generation, NOT_NEGATIVE));
    }
    let class = |status: &PodStatus| status.qos_class.clone().unwrap_or_default();
    if class(status) != class(before) {
        errors.push(path.child("qosClass").invalid(Value::json(&class(status)), IMMUTABLE));
    }
    errors.extend(transitions(status, before, spec, options, &path));
    errors.extend(claims(status, spec, &path.child("resourceClaimStatuses")));
    errors.extend(pod_ips(status, &path.child("podIPs")));
    errors.extend(host_ips(status, &path.child("hostIPs")));
    for (field, statuses) in lists(status) {
        errors.extend(users(statuses, spec, &path.child(field)));
    }
    errors
}

/// What an accepted status is remarked upon with.
pub fn warnings(new: &Pod) -> Vec<String> {
    let Some(status) = &new.status else { return Vec::new() };
    let path = Path::new("status");
    let pod = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).enumerate();
    let host = status.host_ips.iter().flatten().map(|ip| ip.ip.as_str()).enumerate();
    let warn =
        |field: &str, (i, ip): (usize, &str)| dns::ip_warning(ip, &path.child(field).index(i).child("ip"));
    pod.filter_map(|ip| warn("podIPs", ip)).chain(host.filter_map(|ip| warn("hostIPs", ip))).collect()
}

fn lists(status: &PodStatus) -> [(&'static str, &[ContainerStatus]); 3] {
    [
        ("containerStatuses", status.container_statuses.as_deref().unwrap_or_default()),
        ("initContainerStatuses", status.init_container_statuses.as_deref().unwrap_or_default()),
        ("ephemeralContainerStatuses", status.ephemeral_container_statuses.as_deref().unwrap_or_default()),
    ]
}

fn conditions(conditions: &[PodCondition], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, condition) in conditions.iter().enumerate() {
        if let Some(generation) = condition.observed_generation.filter(|generation| *generation < 0) {
            errors.push(path.index(i).child("observedGeneration").invalid(generation, NOT_NEGATIVE));
        }
        if !SYSTEM_CONDITIONS.contains(&condition.type_.as_str()) {
            errors.extend(meta::qualified(&condition.type_, &path.index(i).child("Type")));
        }
    }
    errors
}

fn nominated_node(new: &PodStatus, old: &PodStatus, spec: &PodSpec, path: &Path) -> Errors {
    let node = non_empty(new.nominated_node_name.as_ref());
    let Some(node) = node.filter(|node| old.nominated_node_name.as_ref() != Some(node)) else {
        return Errors::new();
    };
    let mut errors: Errors =
        names::dns_subdomain(node).into_iter().map(|problem| path.invalid(node, problem)).collect();
    if non_empty(spec.node_name.as_ref()).is_some() {
        errors.push(path.forbidden("may not be set on pods that are already bound to a node"));
    }
    errors
}

/// A container that ended runs again only where its rules let it.
fn transitions(new: &PodStatus, old: &PodStatus, spec: &PodSpec, options: &Options, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let all_may_restart = options.allow_restart_all_containers && restarts_all(spec);
    let init = spec.init_containers.as_deref().unwrap_or_default();
    for ((field, new), (_, old)) in lists(new).into_iter().zip(lists(old)) {
        let containers = match field {
            "containerStatuses" => Some(spec.containers.as_slice()),
            "initContainerStatuses" => Some(init),
            _ => None,
        };
        if containers.is_some() && all_may_restart {
            continue;
        }
        let path = path.child(field);
        let mut running: BTreeMap<&str, usize> = BTreeMap::new();
        for new in new.iter().filter(|new| self::exit_code(new).is_none()) {
            *running.entry(new.name.as_str()).or_default() += 1;
        }
        // Of containers with the same name the first.
        let by_name: Option<BTreeMap<&str, &Container>> = containers.map(|containers| {
            containers.iter().rev().map(|container| (container.name.as_str(), container)).collect()
        });
        let mut refused = Often::new(Value::OMITTED);
        for (i, old) in old.iter().enumerate() {
            let Some(exit_code) = exit_code(old) else { continue };
            let again = running.get(old.name.as_str()).copied().unwrap_or(0);
            let allowed = by_name.as_ref().is_some_and(|containers| {
                let container = containers.get(old.name.as_str());
                container.is_some_and(|container| should_restart(container, spec, exit_code))
            });
            // Only ephemeral containers are refused once for every status that tries.
            let times = if containers.is_some() { again.min(1) } else { again };
            if !allowed {
                let refused = refused.times(times);
                errors.extend(refused.map(|_| path.index(i).child("state").forbidden(NOT_AGAIN)));
            }
        }
    }
    errors
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn restarts_all(spec: &PodSpec) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut rules = containers.flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

/// Whether a container runs again after it ended: its rules, its policy, or that of its pod.
pub fn should_restart(container: &Container, spec: &PodSpec, exit_code: i32) -> bool {
    let by_policy = |policy: &str| match policy {
        "Always" => Some(true),
        "OnFailure" => Some(exit_code != 0),
        "Never" => Some(false),
        _ => None,
    };
    if let Some(policy) = &container.restart_policy {
        let rule = container.restart_policy_rules.iter().flatten().find(|rule| {
            rule.exit_codes.as_ref().is_some_and(|codes| {
                let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
                match codes.operator.as_str() {
                    "In" => listed,
                    "NotIn" => !listed,
                    _ => false,
                }
            })
        });
        if rule.is_some_and(|rule| rule.action == "Restart") {
            return true;
        }
        if let Some(restarts) = by_policy(policy) {
            return restarts;
        }
    }
    by_policy(spec.restart_policy.as_deref().unwrap_or("Always")).unwrap_or(true)
}

fn claims(status: &PodStatus, spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut seen = BTreeSet::new();
    for (i, status) in status.resource_claim_statuses.iter().flatten().enumerate() {
        let path = path.index(i).child("name");
        if !spec.resource_claims.iter().flatten().any(|claim| claim.name == status.name) {
            errors
                .push(path.invalid(&status.name, "must match the name of an entry in `spec.resourceClaims`"));
        }
        if !seen.insert(&status.name) {
            errors.push(path.duplicate(&status.name));
        }
        if let Some(name) = &status.resource_claim_name {
            errors.extend(names::dns_subdomain(name).into_iter().map(|problem| path.invalid(name, problem)));
        }
    }
    errors
}

fn pod_ips(status: &PodStatus, path: &Path) -> Errors {
    let ips: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    let mut errors: Errors = ips.iter().enumerate().flat_map(|(i, ip)| dns::ip(ip, &path.index(i))).collect();
    errors.extend(one_of_each_family(
        &ips,
        Value::internal_list("io.k8s.api.core.v1.PodIP", status.pod_ips.as_deref().unwrap_or_default()),
        path,
    ));
    errors
}

fn host_ips(status: &PodStatus, path: &Path) -> Errors {
    let ips: Vec<&str> = status.host_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    let Some(first) = ips.first() else { return Errors::new() };
    let mut errors = Errors::new();
    if status.host_ip.as_deref().unwrap_or("") != *first {
        errors.push(path.index(0).child("ip").invalid(*first, "must be equal to `hostIP`"));
    }
    errors.extend(ips.iter().enumerate().flat_map(|(i, ip)| dns::ip(ip, &path.index(i))));
    errors.extend(one_of_each_family(
        &ips,
        Value::internal_list("io.k8s.api.core.v1.HostIP", status.host_ips.as_deref().unwrap_or_default()),
        path,
    ));
    errors
}

fn one_of_each_family(ips: &[&str], value: Value, path: &Path) -> Errors {
    if ips.len() < 2 {
        return Errors::new();
    }
    let parsed: Vec<IpAddr> = ips.iter().filter_map(|ip| dns::parse_ip(ip)).collect();
    let is_dual =
        parsed.len() == ips.len() && parsed.iter().any(IpAddr::is_ipv4) && parsed.iter().any(IpAddr::is_ipv6);
    if is_dual && ips.len() == 2 {
        return Errors::new();
    }
    let unreadable = ips.iter().enumerate().find(|(_, ip)| dns::parse_ip(ip).is_none());
    let unreadable = unreadable.map(|(i, ip)| {
        path.internal_error(format!("failed to check for dual stack with error:invalid IP[{i}]: {ip}"))
    });
    let error = path.invalid(value, "may specify no more than one IP for each IP family");
    unreadable.into_iter().chain([error]).collect()
}

fn users(statuses: &[ContainerStatus], spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let is_windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
    for (i, status) in statuses.iter().enumerate() {
        let Some(user) = status.user.as_ref().and_then(|user| user.linux.as_ref()) else { continue };
        let path = path.index(i).child("user").child("linux");
        if is_windows {
            errors.push(path.forbidden("cannot be set for a windows pod"));
            continue;
        }
        let mut check = |id: i64, path: Path| {
            errors.extend(names::user_or_group_id(id).into_iter().map(|problem| path.invalid(id, problem)));
        };
        check(user.uid, path.child("uid"));
        check(user.gid, path.child("gid"));
        for (g, group) in user.supplemental_groups.iter().flatten().enumerate() {
            check(*group, path.child("supplementalGroups").index(g));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::field::assert_starts;

    fn pod(spec: serde_json::Value, status: serde_json::Value) -> Pod {
        let meta = json!({"name": "p", "namespace": "n", "resourceVersion": "1"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status}))
            .expect("a test's pod")
    }

    fn check(spec: serde_json::Value, old: serde_json::Value, new: serde_json::Value, expected: &[&str]) {
        let (old, new) = (pod(spec.clone(), old), pod(spec, new));
        assert_starts(&validate(&new, &old, &Options::for_pod(Some(&old))), expected);
    }

    #[test]
    fn ends_are_final_unless_a_policy_says_otherwise() {
        let spec = |policy: &str| json!({"containers": [{"name": "c"}], "restartPolicy": policy});
        let state = |state: serde_json::Value| {
            json!({"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state}]})
        };
        let (ended, failed) =
            (state(json!({"terminated": {"exitCode": 0}})), state(json!({"terminated": {"exitCode": 1}})));
        let running = state(json!({"running": {}}));
        let refused =
            ["status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"];
        check(spec("Always"), ended.clone(), running.clone(), &[]);
        check(spec("OnFailure"), failed.clone(), running.clone(), &[]);
        check(spec("OnFailure"), ended.clone(), running.clone(), &refused);
        check(spec("Never"), failed.clone(), running.clone(), &refused);
        let ruled = json!({"containers": [{"name": "c", "restartPolicy": "Never", "restartPolicyRules":
            [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}], "restartPolicy": "Never"});
        check(ruled.clone(), failed, running.clone(), &[]);
        check(ruled, ended, running, &refused);
    }

    #[test]
    fn what_else_is_refused() {
        let spec = json!({"containers": [], "nodeName": "n"});
        check(
            spec.clone(),
            json!({"qosClass": "BestEffort"}),
            json!({"qosClass": "Burstable"}),
            &["status.qosClass: Invalid value: \"Burstable\": field is immutable"],
        );
        check(
            spec.clone(),
            json!({}),
            json!({"nominatedNodeName": "A"}),
            &[
                "status.nominatedNodeName: Invalid value: \"A\": a lowercase RFC 1123 subdomain",
                "status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node",
            ],
        );
        check(
            spec.clone(),
            json!({}),
            json!({"conditions": [{"type": "a b", "status": "True"}]}),
            &["status.conditions[0].Type: Invalid value: \"a b\": name part must consist"],
        );
        check(
            spec.clone(),
            json!({}),
            json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}),
            &[
                "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"1.2.3.5\"}]: may specify no more than one IP",
            ],
        );
        check(
            spec.clone(),
            json!({}),
            json!({"podIPs": [{"ip": "1.2.3.4"}, {"ip": "x"}]}),
            &[
                "status.podIPs[1]: Invalid value: \"x\": must be a valid IP address",
                "status.podIPs: Internal error: failed to check for dual stack with error:invalid IP[1]: x",
                "status.podIPs: Invalid value: [{\"IP\":\"1.2.3.4\"},{\"IP\":\"x\"}]: may specify no more than one IP",
            ],
        );
        check(
            spec,
            json!({}),
            json!({"hostIPs": [{"ip": "1.2.3"}]}),
            &[
                "status.hostIPs[0].ip: Invalid value: \"1.2.3\": must be equal to `hostIP`",
                "status.hostIPs[0]: Invalid value: \"1.2.3\": must be a valid IP address",
            ],
        );
    }
}
