//! What a pod may ask about itself, as values of variables and files.

use std::{collections::BTreeMap, fmt::Write as _};

use k8s_openapi::{
    api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector},
    apimachinery::pkg::api::resource::Quantity as WireQuantity,
};
use types::Quantity;

/// What only the node knows.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The pod's address.
    pub ip: &'a str,
    /// The node's address.
    pub host_ip: &'a str,
    /// What the node offers; a container without a limit may use all of it.
    pub allocatable: &'a BTreeMap<String, String>,
}

/// The value of a field of the pod, or why there is none.
pub fn field(selector: &ObjectFieldSelector, pod: &Pod, place: &Place<'_>) -> Result<String, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    Ok(match selector.field_path.as_str() {
        "metadata.name" => text(&meta.name),
        "metadata.namespace" => text(&meta.namespace),
        "metadata.uid" => text(&meta.uid),
        "metadata.labels" => lines(meta.labels.as_ref()),
        "metadata.annotations" => lines(meta.annotations.as_ref()),
        "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
        "spec.serviceAccountName" => {
            spec.and_then(|spec| spec.service_account_name.clone()).unwrap_or_default()
        }
        "status.podIP" | "status.podIPs" => place.ip.to_owned(),
        "status.hostIP" | "status.hostIPs" => place.host_ip.to_owned(),
        path => match keyed(path) {
            Some(("metadata.labels", key)) => one(meta.labels.as_ref(), key),
            Some(("metadata.annotations", key)) => one(meta.annotations.as_ref(), key),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        },
    })
}

/// `metadata.labels['key']` in two.
fn keyed(path: &str) -> Option<(&str, &str)> {
    let (field, key) = path.split_once("['")?;
    Some((field, key.strip_suffix("']")?))
}

fn one(values: Option<&BTreeMap<String, String>>, key: &str) -> String {
    values.and_then(|values| values.get(key)).cloned().unwrap_or_default()
}

/// As a file holds them: `key="value"`, one per line, in order.
fn lines(values: Option<&BTreeMap<String, String>>) -> String {
    let mut text = String::new();
    for (key, value) in values.into_iter().flatten() {
        if !text.is_empty() {
            text.push('\n');
        }
        let _ = write!(text, "{key}={}", types::go::quote(value)); // a String takes everything
    }
    text
}

/// The value of a resource of a container, in units of the divisor, rounded up.
pub fn resource(
    selector: &ResourceFieldSelector,
    pod: &Pod,
    own: Option<&Container>,
    place: &Place<'_>,
) -> Result<String, String> {
    let name = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match name {
        None => own,
        Some(name) => pod.spec.as_ref().and_then(|spec| {
            let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            all.into_iter().find(|container| container.name == name)
        }),
    };
    let container = container.ok_or_else(|| format!("container {} not found", name.unwrap_or_default()))?;
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (kind, resource) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let of =
        |list: Option<&BTreeMap<String, WireQuantity>>| list.and_then(|list| list.get(resource)).cloned();
    let allocatable = || place.allocatable.get(resource).cloned().map(WireQuantity);
    let value = match kind {
        "limits" => of(resources.and_then(|all| all.limits.as_ref())).or_else(allocatable),
        "requests" => of(resources.and_then(|all| all.requests.as_ref())),
        _ => return Err(unsupported()),
    };
    let parse = |quantity: &str| quantity.parse::<Quantity>().map_err(|error| error.to_string());
    let value = parse(value.as_ref().map_or("0", |value| value.0.as_str()))?;
    let divisor = selector.divisor.as_ref().map_or("0", |divisor| divisor.0.as_str());
    let divisor = parse(divisor)?;
    Ok(divided(&value, &divisor, resource == "cpu").to_string())
}

/// CPU is counted in thousandths, because its divisor may be one.
fn divided(value: &Quantity, divisor: &Quantity, thousandths: bool) -> i64 {
    let number = |quantity: &Quantity| {
        if thousandths { quantity.millis_saturating() } else { quantity.units_saturating() }
    };
    let unit = if thousandths { 1000 } else { 1 };
    let divisor = if divisor.is_zero() { unit } else { number(divisor).max(1) };
    let value = number(value);
    value / divisor + i64::from(value % divisor > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_and_resources() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "labels": { "b": "2", "a": "x\"y" } },
            "spec": { "nodeName": "one", "containers": [{ "name": "main", "resources": {
                "limits": { "cpu": "1500m" }, "requests": { "memory": "33Mi" } } }] },
        }))
        .expect("a pod");
        let allocatable = [("memory".to_owned(), "1Gi".to_owned())].into();
        let place = Place { ip: "127.1.2.3", host_ip: "10.0.0.1", allocatable: &allocatable };
        let of = |path: &str| {
            let selector =
                ObjectFieldSelector { field_path: path.to_owned(), ..ObjectFieldSelector::default() };
            field(&selector, &pod, &place)
        };
        assert_eq!(of("metadata.labels").as_deref(), Ok("a=\"x\\\"y\"\nb=\"2\""));
        assert_eq!(of("metadata.labels['b']").as_deref(), Ok("2"));
        assert_eq!(of("status.podIP").as_deref(), Ok("127.1.2.3"));
        assert!(of("status.phase").is_err());
        let main = pod.spec.as_ref().map(|spec| &spec.containers[0]);
        let amount = |name: &str, divisor: &str| {
            let selector = ResourceFieldSelector {
                resource: name.to_owned(),
                divisor: Some(WireQuantity(divisor.to_owned())),
                container_name: None,
            };
            resource(&selector, &pod, main, &place)
        };
        assert_eq!(amount("limits.cpu", "1").as_deref(), Ok("2"));
        assert_eq!(amount("limits.cpu", "1m").as_deref(), Ok("1500"));
        assert_eq!(amount("limits.cpu", "0").as_deref(), Ok("2"));
        assert_eq!(amount("requests.memory", "1Mi").as_deref(), Ok("33"));
        assert_eq!(amount("limits.memory", "1Gi").as_deref(), Ok("1"), "no limit but the node's");
        assert_eq!(amount("requests.cpu", "1").as_deref(), Ok("0"));
    }
}
