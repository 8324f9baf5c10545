//! Ports of containers: all containers of a pod share its address.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerPort, PodSpec};
use types::go;

use crate::field::Path;
use crate::pod::all_containers;

/// Ports of containers that are the same, or may be.
pub(super) fn colliding(spec: &PodSpec, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut seen: BTreeMap<(i32, String), Vec<(Path, ContainerPort)>> = BTreeMap::new();
    for (container, path) in all_containers(spec, path) {
        for (i, port) in container.ports.iter().flatten().enumerate() {
            let path = path.child("ports").index(i);
            if let (ip, 0) = host(port)
                && !ip.is_empty()
            {
                warnings.push(format!("{path}: hostIP set without hostPort: {}", printed(port)));
            }
            let others =
                seen.entry((port.container_port, port.protocol.clone().unwrap_or_default())).or_default();
            for (other_path, other) in &*others {
                if let Some(how) = collision(port, other) {
                    warnings.push(format!("{path}: {how} port definition with {other_path}"));
                }
            }
            others.push((path, port.clone()));
        }
    }
    warnings
}

fn collision(port: &ContainerPort, other: &ContainerPort) -> Option<&'static str> {
    let ((ip, number), (other_ip, other_number)) = (host(port), host(other));
    if (ip, number) == (other_ip, other_number) {
        Some("duplicate")
    } else if number == 0 || other_number == 0 {
        Some("overlapping")
    } else if number == other_number && ip.is_empty() != other_ip.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn host(port: &ContainerPort) -> (&str, i32) {
    (port.host_ip.as_deref().unwrap_or_default(), port.host_port.unwrap_or(0))
}

/// A port as Go prints a structure.
fn printed(port: &ContainerPort) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{{Name:{} HostPort:{} ContainerPort:{} Protocol:{} HostIP:{}}}",
        text(&port.name),
        port.host_port.unwrap_or(0),
        port.container_port,
        text(&port.protocol),
        text(&port.host_ip)
    )
}

/// Names that lead to the first port that has them.
pub(super) fn repeated_names(spec: &PodSpec, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut seen: BTreeMap<String, Path> = BTreeMap::new();
    for (container, path) in all_containers(spec, path) {
        for (i, port) in container.ports.iter().flatten().enumerate() {
            let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) else { continue };
            let path = path.child("ports").index(i);
            match seen.get(name) {
                Some(first) => warnings.push(format!(
                    "{path}: duplicate port name {} with {first}, services and probes that select ports by name will \
                     use {first}",
                    go::quote(name)
                )),
                None => drop(seen.insert(name.clone(), path)),
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::check_container;

    #[test]
    fn w_03_ports() {
        check_container(
            json!({"ports": [
                {"containerPort": 80, "name": "web", "hostIP": "1.1.1.1"}, {"containerPort": 80, "name": "web"},
                {"containerPort": 80, "hostPort": 8}, {"containerPort": 80, "hostPort": 8, "hostIP": "1.1.1.1"},
            ]}),
            &[
                "t.spec.containers[0].ports[0]: hostIP set without hostPort: {Name:web HostPort:0 ContainerPort:80 Protocol:TCP HostIP:1.1.1.1}",
                "t.spec.containers[0].ports[1]: overlapping port definition with t.spec.containers[0].ports[0]",
                "t.spec.containers[0].ports[2]: overlapping port definition with t.spec.containers[0].ports[0]",
                "t.spec.containers[0].ports[2]: overlapping port definition with t.spec.containers[0].ports[1]",
                "t.spec.containers[0].ports[3]: overlapping port definition with t.spec.containers[0].ports[0]",
                "t.spec.containers[0].ports[3]: overlapping port definition with t.spec.containers[0].ports[1]",
                "t.spec.containers[0].ports[3]: dangerously ambiguous port definition with t.spec.containers[0].ports[2]",
                r#"t.spec.containers[0].ports[1]: duplicate port name "web" with t.spec.containers[0].ports[0], services and probes that select ports by name will use t.spec.containers[0].ports[0]"#,
            ],
        );
    }
}
