//! Which namespaces a container shares, and with whom.

use k8s_openapi::api::core::v1::{Pod, PodSpec};

/// Whose processes a container sees, and who sees its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processes<'a> {
    /// Its own, and nobody else.
    Own,
    /// Those of all containers of its pod.
    Pod,
    /// Those of this container of its pod.
    Of(&'a str),
    /// All of its host.
    Host,
}

/// Whose processes a container of this name sees.
pub fn processes<'a>(spec: &'a PodSpec, container: &str) -> Processes<'a> {
    let mut added = spec.ephemeral_containers.iter().flatten();
    let added = added.find(|one| one.name == container);
    let target = added.and_then(|one| one.target_container_name.as_deref()).filter(|name| !name.is_empty());
    match target {
        Some(target) => Processes::Of(target),
        None if spec.host_pid == Some(true) => Processes::Host,
        None if spec.share_process_namespace == Some(true) => Processes::Pod,
        None => Processes::Own,
    }
}

/// Whether the containers of a pod see each other's processes.
pub fn are_processes_shared(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.share_process_namespace) == Some(true)
}

/// Whether the containers of a pod talk to processes of their host through shared memory, semaphores and queues.
pub fn is_hosts_ipc(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_ipc) == Some(true)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn whose_processes_are_seen() {
        let check = |mut spec: Value, name: &str, expected: Processes<'_>| {
            spec["containers"] = json!([{ "name": "main" }]);
            let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(processes(&spec, name), expected);
        };
        let added = json!([{ "name": "look", "targetContainerName": "main" }, { "name": "alone" }]);
        check(json!({}), "main", Processes::Own);
        check(json!({ "hostPID": false, "shareProcessNamespace": false }), "main", Processes::Own);
        check(json!({ "shareProcessNamespace": true }), "main", Processes::Pod);
        check(json!({ "hostPID": true }), "main", Processes::Host);
        check(json!({ "ephemeralContainers": added }), "alone", Processes::Own);
        check(json!({ "ephemeralContainers": added }), "look", Processes::Of("main"));
        check(json!({ "ephemeralContainers": added, "hostPID": true }), "look", Processes::Of("main"));
    }
}
