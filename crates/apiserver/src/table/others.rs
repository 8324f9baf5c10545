//! Networking, storage, devices, leases and what else there is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Cells;
use super::core::balancer;
use super::value::{
    NONE, UNSET, age, at, count, few, joined, list, name, number, selector, switch, text, text_or,
};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    Some(match (group, kind) {
        ("networking.k8s.io", "Ingress") => ("Name:name|Class|Hosts|Address|Ports|Age", ingress),
        ("networking.k8s.io", "IngressClass") => ("Name:name|Controller|Parameters|Age", ingress_class),
        ("networking.k8s.io", "NetworkPolicy") => ("Name:name|Pod-Selector|Age", |o, now| {
            vec![name(o), json!(selector(o, "spec/podSelector")), age(o, now)]
        }),
        ("networking.k8s.io", "ServiceCIDR") => {
            ("Name:name|CIDRs|Age", |o, now| vec![name(o), json!(joined(o, "spec/cidrs", ",")), age(o, now)])
        }
        ("networking.k8s.io", "IPAddress") => ("Name:name|ParentRef", ip_address),
        ("discovery.k8s.io", "EndpointSlice") => {
            ("Name:name|AddressType|Ports|Endpoints|Age", endpoint_slice)
        }
        ("autoscaling", "Scale") => ("Name|Desired:integer|Available:integer|Age", |o, now| {
            vec![name(o), json!(number(o, "spec/replicas")), json!(number(o, "status/replicas")), age(o, now)]
        }),
        ("coordination.k8s.io", "Lease") => ("Name:name|Holder|Age", |o, now| {
            vec![name(o), json!(text(o, "spec/holderIdentity")), age(o, now)]
        }),
        ("node.k8s.io", "RuntimeClass") => {
            ("Name:name|Handler|Age", |o, now| vec![name(o), json!(text(o, "handler")), age(o, now)])
        }
        ("storage.k8s.io", "StorageClass") => {
            ("Name:name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age", storage_class)
        }
        ("storage.k8s.io", "VolumeAttributesClass") => {
            ("Name:name|DriverName|Age", |o, now| vec![name(o), json!(text(o, "driverName")), age(o, now)])
        }
        ("storage.k8s.io", "VolumeAttachment") => {
            ("Name:name|Attacher:name|PV|Node|Attached:boolean|Age", volume_attachment)
        }
        ("storage.k8s.io", "CSINode") => ("Name:name|Drivers:integer|Age", |o, now| {
            vec![name(o), json!(count(o, "spec/drivers")), age(o, now)]
        }),
        ("storage.k8s.io", "CSIDriver") => (
            "Name:name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean|TokenRequests|\
             RequiresRepublish:boolean|Modes|Age",
            csi_driver,
        ),
        ("resource.k8s.io", "DeviceClass" | "ResourceClaimTemplate") => {
            ("Name:name|Age", |o, now| vec![name(o), age(o, now)])
        }
        ("resource.k8s.io", "ResourceClaim") => ("Name:name|State|Age", resource_claim),
        ("resource.k8s.io", "ResourceSlice") => ("Name:name|Node|Driver|Pool|Age", |o, now| {
            let part = |path: &str| json!(text(o, path));
            vec![name(o), part("spec/nodeName"), part("spec/driver"), part("spec/pool/name"), age(o, now)]
        }),
        ("apiregistration.k8s.io", "APIService") => ("Name:name|Service|Available|Age", api_service),
        _ => return None,
    })
}

fn ingress(ingress: &Value, now: Timestamp) -> Vec<Value> {
    const MOST: usize = 3;
    let rules = list(ingress, "spec/rules");
    let mut hosts: Vec<&str> = Vec::new();
    let mut is_more = false;
    for rule in rules {
        is_more |= hosts.len() == MOST;
        let host = text(rule, "host");
        if !is_more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let hosts = match hosts.as_slice() {
        [] => "*".to_owned(),
        shown if is_more => format!("{} + {} more...", shown.join(","), rules.len() - MOST),
        shown => shown.join(","),
    };
    vec![
        name(ingress),
        json!(text_or(ingress, "spec/ingressClassName", NONE)),
        json!(hosts),
        json!(balancer(ingress)),
        json!(if list(ingress, "spec/tls").is_empty() { "80" } else { "80, 443" }),
        age(ingress, now),
    ]
}

fn ingress_class(class: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = at(class, "spec/parameters");
    let shown = if parameters.is_null() {
        NONE.to_owned()
    } else {
        let group = at(parameters, "apiGroup").as_str().map_or(String::new(), |group| format!(".{group}"));
        format!("{}{group}/{}", text(parameters, "kind"), text(parameters, "name"))
    };
    vec![name(class), json!(text(class, "spec/controller")), json!(shown), age(class, now)]
}

/// Upstream gives this kind a cell more than it has columns.
fn ip_address(address: &Value, now: Timestamp) -> Vec<Value> {
    let parent = at(address, "spec/parentRef");
    let shown = if parent.is_null() {
        NONE.to_owned()
    } else {
        let group = text(parent, "group");
        let resource = text(parent, "resource");
        let of = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let namespace = text(parent, "namespace");
        let namespace = if namespace.is_empty() { String::new() } else { format!("/{namespace}") };
        format!("{}{namespace}/{}", of.to_lowercase(), text(parent, "name"))
    };
    vec![name(address), json!(shown), age(address, now)]
}

fn endpoint_slice(slice: &Value, now: Timestamp) -> Vec<Value> {
    let ports: Vec<String> = list(slice, "ports")
        .iter()
        .map(|port| match at(port, "port").as_i64() {
            Some(number) => number.to_string(),
            None => text_or(port, "name", "*").to_owned(),
        })
        .collect();
    let addresses = list(slice, "endpoints").iter().flat_map(|endpoint| list(endpoint, "addresses"));
    let addresses: Vec<String> = addresses.filter_map(Value::as_str).map(str::to_owned).collect();
    vec![
        name(slice),
        json!(text(slice, "addressType")),
        json!(few(&ports, 3, ",", UNSET)),
        json!(few(&addresses, 3, ",", UNSET)),
        age(slice, now),
    ]
}

fn storage_class(class: &Value, now: Timestamp) -> Vec<Value> {
    let is_default =
        ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
            .iter()
            .any(|key| class["metadata"]["annotations"][*key] == "true");
    let shown = text(class, "metadata/name");
    vec![
        json!(if is_default { format!("{shown} (default)") } else { shown.to_owned() }),
        json!(text(class, "provisioner")),
        json!(text_or(class, "reclaimPolicy", "Delete")),
        json!(text_or(class, "volumeBindingMode", "Immediate")),
        json!(switch(class, "allowVolumeExpansion", false)),
        age(class, now),
    ]
}

fn volume_attachment(attachment: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(attachment),
        json!(text(attachment, "spec/attacher")),
        json!(text(attachment, "spec/source/persistentVolumeName")),
        json!(text(attachment, "spec/nodeName")),
        json!(switch(attachment, "status/attached", false)),
        age(attachment, now),
    ]
}

fn csi_driver(driver: &Value, now: Timestamp) -> Vec<Value> {
    let requests = match at(driver, "spec/tokenRequests") {
        Value::Null => UNSET.to_owned(),
        requests => {
            let audiences =
                requests.as_array().into_iter().flatten().map(|request| text(request, "audience"));
            audiences.collect::<Vec<_>>().join(",")
        }
    };
    let modes = joined(driver, "spec/volumeLifecycleModes", ",");
    let is_on = |part: &str, default: bool| json!(switch(driver, &format!("spec/{part}"), default));
    vec![
        name(driver),
        is_on("attachRequired", true),
        is_on("podInfoOnMount", false),
        is_on("storageCapacity", false),
        json!(requests),
        is_on("requiresRepublish", false),
        json!(if modes.is_empty() { NONE } else { &modes }),
        age(driver, now),
    ]
}

fn resource_claim(claim: &Value, now: Timestamp) -> Vec<Value> {
    let is_leaving = !at(claim, "metadata/deletionTimestamp").is_null();
    let is_allocated = !at(claim, "status/allocation").is_null();
    let is_reserved = is_allocated && count(claim, "status/reservedFor") > 0;
    let states = [
        (is_leaving, "deleted"),
        (!is_allocated && !is_leaving, "pending"),
        (is_allocated, "allocated"),
        (is_reserved, "reserved"),
    ];
    let states: Vec<&str> = states.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect();
    vec![name(claim), json!(states.join(",")), age(claim, now)]
}

fn api_service(service: &Value, now: Timestamp) -> Vec<Value> {
    let by = at(service, "spec/service");
    let by = if by.is_null() {
        "Local".to_owned()
    } else {
        format!("{}/{}", text(by, "namespace"), text(by, "name"))
    };
    let available =
        list(service, "status/conditions").iter().find(|condition| condition["type"] == "Available");
    let available = match available {
        None => "Unknown".to_owned(),
        Some(condition) => match (text(condition, "status"), text(condition, "reason")) {
            ("True", _) => "True".to_owned(),
            (status, "") => status.to_owned(),
            (status, reason) => format!("{status} ({reason})"),
        },
    };
    vec![name(service), json!(by), json!(available), age(service, now)]
}
