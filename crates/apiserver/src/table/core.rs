//! Kinds of the core group, and events.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::value::{
    NONE, UNKNOWN, UNSET, age, at, containers, count, few, filled, joined, labels, list, name, number, since,
    switch, text, text_or,
};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    Some(match (group, kind) {
        ("", "ConfigMap") => ("Name:name|Data|Age", config_map),
        ("", "Secret") => ("Name:name|Type|Data|Age", secret),
        ("", "Namespace") => ("Name:name|Status|Age", namespace),
        ("", "ServiceAccount") => ("Name:name|Age", |o, now| vec![name(o), age(o, now)]),
        ("", "Service") => ("Name:name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector*", service),
        ("", "Endpoints") => ("Name:name|Endpoints|Age", endpoints),
        ("", "Node") => (
            "Name:name|Status|Roles|Age|Version|Internal-IP*|External-IP*|OS-Image*|Kernel-Version*|Container-Runtime*",
            node,
        ),
        ("", "PersistentVolume") => (
            "Name:name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|VolumeMode*",
            persistent_volume,
        ),
        ("", "PersistentVolumeClaim") => (
            "Name:name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode*",
            persistent_volume_claim,
        ),
        ("", "PodTemplate") => ("Name:name|Containers|Images|Pod Labels", pod_template),
        ("", "ResourceQuota") => ("Name:name|Request|Limit|Age", resource_quota),
        ("", "ComponentStatus") => ("Name:name|Status|Message|Error", component_status),
        ("" | "events.k8s.io", "Event") => {
            ("Last Seen|Type|Reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name:name*", event)
        }
        _ => return None,
    })
}

fn config_map(map: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(map), json!(count(map, "data") + count(map, "binaryData")), age(map, now)]
}

fn secret(secret: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(secret), json!(text(secret, "type")), json!(count(secret, "data")), age(secret, now)]
}

fn namespace(namespace: &Value, now: Timestamp) -> Vec<Value> {
    vec![name(namespace), json!(text(namespace, "status/phase")), age(namespace, now)]
}

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let ports = list(service, "spec/ports").iter().map(|port| {
        let (number, protocol) = (super::value::number(port, "port"), text(port, "protocol"));
        match super::value::number(port, "nodePort") {
            0 => format!("{number}/{protocol}"),
            node => format!("{number}:{node}/{protocol}"),
        }
    });
    let ports = ports.collect::<Vec<_>>().join(",");
    vec![
        name(service),
        json!(text(service, "spec/type")),
        json!(list(service, "spec/clusterIPs").first().and_then(Value::as_str).unwrap_or(NONE)),
        json!(external_ip(service)),
        json!(if ports.is_empty() { NONE } else { &ports }),
        age(service, now),
        json!(labels(service, "spec/selector")),
    ]
}

fn external_ip(service: &Value) -> String {
    let own = joined(service, "spec/externalIPs", ",");
    match text(service, "spec/type") {
        "ClusterIP" | "NodePort" if own.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => own,
        "LoadBalancer" => {
            let both = [balancer(service), own].into_iter().filter(|text| !text.is_empty());
            let both = both.collect::<Vec<_>>().join(",");
            if both.is_empty() { "<pending>".to_owned() } else { both }
        }
        "ExternalName" => text(service, "spec/externalName").to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// The addresses that a load balancer gave, in order, each once.
pub(super) fn balancer(object: &Value) -> String {
    let ingress = list(object, "status/loadBalancer/ingress").iter();
    let mut addresses: Vec<&str> = ingress
        .map(|ingress| filled(ingress, "ip", text(ingress, "hostname")))
        .filter(|text| !text.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn endpoints(endpoints: &Value, now: Timestamp) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in list(endpoints, "subsets") {
        let addresses = || list(subset, "addresses").iter().map(|address| text(address, "ip"));
        let ports = list(subset, "ports");
        if ports.is_empty() {
            all.extend(addresses().map(str::to_owned));
        }
        for port in ports {
            let port = number(port, "port");
            all.extend(
                addresses().map(|ip| {
                    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
                }),
            );
        }
    }
    let none = if list(endpoints, "subsets").is_empty() { NONE } else { "" };
    vec![name(endpoints), json!(few(&all, 3, ",", none)), age(endpoints, now)]
}

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(node, "status/conditions").iter().rfind(|condition| condition["type"] == "Ready");
    let mut status = match ready {
        None => "Unknown".to_owned(),
        Some(condition) if condition["status"] == "True" => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
    };
    if switch(node, "spec/unschedulable", false) {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in at(node, "metadata/labels").as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => roles.push(role),
            None if key == "kubernetes.io/role" => roles.push(value.as_str().unwrap_or("")),
            None => {}
        }
    }
    roles.retain(|role| !role.is_empty());
    roles.sort_unstable();
    roles.dedup();
    let roles = roles.join(",");
    let address = |kind: &str| {
        let found = list(node, "status/addresses").iter().find(|address| address["type"] == kind);
        json!(found.map_or(NONE, |address| text(address, "address")))
    };
    let info = |part: &str, none: &'static str| json!(filled(node, &format!("status/nodeInfo/{part}"), none));
    vec![
        name(node),
        json!(status),
        json!(if roles.is_empty() { NONE } else { &roles }),
        age(node, now),
        info("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage", UNKNOWN),
        info("kernelVersion", UNKNOWN),
        info("containerRuntimeVersion", UNKNOWN),
    ]
}

/// What a claim or a volume is doing.
fn phase(object: &Value) -> Value {
    let is_leaving = !at(object, "metadata/deletionTimestamp").is_null();
    json!(if is_leaving { "Terminating" } else { text(object, "status/phase") })
}

fn access_modes(object: &Value, path: &str) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes = list(object, path);
    let short = SHORT.iter().filter(|(mode, _)| modes.contains(&json!(mode))).map(|(_, short)| *short);
    json!(short.collect::<Vec<_>>().join(","))
}

/// The class of a volume or a claim; an old annotation goes before the field.
fn storage_class(object: &Value) -> Value {
    let annotation = &object["metadata"]["annotations"]["volume.beta.kubernetes.io/storage-class"];
    json!(annotation.as_str().unwrap_or(text(object, "spec/storageClassName")))
}

fn persistent_volume(volume: &Value, now: Timestamp) -> Vec<Value> {
    let claim = at(volume, "spec/claimRef");
    let claim = if claim.is_null() {
        String::new()
    } else {
        format!("{}/{}", text(claim, "namespace"), text(claim, "name"))
    };
    vec![
        name(volume),
        json!(text_or(volume, "spec/capacity/storage", "0")),
        access_modes(volume, "spec/accessModes"),
        json!(text(volume, "spec/persistentVolumeReclaimPolicy")),
        phase(volume),
        json!(claim),
        storage_class(volume),
        json!(text_or(volume, "spec/volumeAttributesClassName", UNSET)),
        json!(text(volume, "status/reason")),
        age(volume, now),
        json!(text_or(volume, "spec/volumeMode", UNSET)),
    ]
}

fn persistent_volume_claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(claim, "spec/volumeName");
    let (capacity, modes) = if volume.is_empty() {
        (json!(""), json!(""))
    } else {
        (json!(text_or(claim, "status/capacity/storage", "0")), access_modes(claim, "status/accessModes"))
    };
    vec![
        name(claim),
        phase(claim),
        json!(volume),
        capacity,
        modes,
        storage_class(claim),
        json!(text_or(claim, "spec/volumeAttributesClassName", UNSET)),
        age(claim, now),
        json!(text_or(claim, "spec/volumeMode", UNSET)),
    ]
}

fn pod_template(template: &Value, _: Timestamp) -> Vec<Value> {
    let [names, images] = containers(at(template, "template/spec"));
    vec![name(template), names, images, json!(labels(template, "template/metadata/labels"))]
}

fn resource_quota(quota: &Value, now: Timestamp) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in at(quota, "status/hard").as_object().into_iter().flatten() {
        let used = quota["status"]["used"][resource].as_str().unwrap_or("0");
        let cell = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") { limits.push(cell) } else { requests.push(cell) }
    }
    vec![name(quota), json!(requests.join(", ")), json!(limits.join(", ")), age(quota, now)]
}

fn component_status(component: &Value, _: Timestamp) -> Vec<Value> {
    let healthy = list(component, "conditions").iter().find(|condition| condition["type"] == "Healthy");
    let status = match healthy {
        None => "Unknown",
        Some(condition) if condition["status"] == "True" => "Healthy",
        Some(_) => "Unhealthy",
    };
    let said = |part: &str| json!(healthy.map_or("", |condition| text(condition, part)));
    vec![name(component), json!(status), said("message"), said("error")]
}

/// An event of either API: the newer one has other names for the same things.
fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let either = |old: &str, new: &str| match at(event, old) {
        Value::Null => at(event, new),
        value => value,
    };
    let first_time = match either("firstTimestamp", "deprecatedFirstTimestamp") {
        Value::Null => at(event, "eventTime"),
        time => time,
    };
    let first = since(first_time, now);
    let mut last = match either("lastTimestamp", "deprecatedLastTimestamp") {
        Value::Null => first.clone(),
        time => since(time, now),
    };
    let mut times = either("count", "deprecatedCount").as_i64().unwrap_or(0);
    if at(event, "series").is_null() {
        times = if times == 0 { 1 } else { times };
    } else {
        last = since(at(event, "series/lastObservedTime"), now);
        times = number(event, "series/count");
    }
    let about = either("involvedObject", "regarding");
    let kind = text(about, "kind").to_lowercase();
    let target = match text(about, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("source", "deprecatedSource");
    let reporter = either("reportingComponent", "reportingController").as_str().unwrap_or("");
    let component = filled(source, "component", reporter);
    let source = match filled(source, "host", text(event, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        json!(last),
        json!(text(event, "type")),
        json!(text(event, "reason")),
        json!(target),
        json!(text(about, "fieldPath")),
        json!(source),
        json!(either("message", "note").as_str().unwrap_or("").trim()),
        json!(first),
        json!(times),
        name(event),
    ]
}
