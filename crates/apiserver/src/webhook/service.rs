//! How a Service is reached without a network of its own: by the endpoints behind it (3.18).

use serde_json::Value;
use store::{Scope, Store};

use crate::object;
use crate::registry::Registry;

pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Host and port behind a port of a Service.
pub(crate) fn resolve(
    store: &Store,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16), String> {
    let services = Registry::built_in().get("", "v1", "services").expect("services are served");
    let found = store.get(&object::key(services, namespace, name));
    let service = found.ok_or_else(|| format!("service {} not found", types::go::quote(name)))?;
    let service = object::read(&service);
    let spec = &service["spec"];
    if spec["type"] == "ExternalName" {
        return Ok((object::text(spec, &["externalName"]).to_owned(), port));
    }
    let ports = || spec["ports"].as_array().into_iter().flatten();
    let of_port = ports().find(|known| known["port"] == port);
    let of_port = of_port
        .ok_or_else(|| format!("no service port {port} found for service {}", types::go::quote(name)))?;
    let port_name = object::text(of_port, &["name"]);
    behind_slices(store, namespace, name, port_name)
        .or_else(|| behind_endpoints(store, namespace, name, port_name))
        .or_else(|| {
            // Somebody else may route the Service's own address.
            let address = object::text(spec, &["clusterIP"]);
            let is_address = !address.is_empty() && address != "None";
            (is_address && spec["selector"].is_null()).then(|| (address.to_owned(), port))
        })
        .ok_or_else(|| format!("no endpoints available for service {}", types::go::quote(name)))
}

/// Whether anybody has said what is behind a Service, be it nothing; or it needs nobody to.
pub(crate) fn has_endpoints(store: &Store, namespace: &str, name: &str) -> bool {
    let stored = |resource: &str| {
        let resource = Registry::built_in().get("", "v1", resource)?;
        store.get(&object::key(resource, namespace, name))
    };
    let scope = Scope::resource("endpointslices.discovery.k8s.io").namespace(namespace);
    let in_slices = store.view().list(&scope).any(|slice| slice.index.labels.has(SERVICE_NAME, name));
    let leads_elsewhere = stored("services").is_some_and(|service| {
        let service = object::read(&service);
        service["spec"]["type"] == "ExternalName" || service["spec"]["selector"].is_null()
    });
    in_slices || leads_elsewhere || stored("endpoints").is_some()
}

fn behind_slices(store: &Store, namespace: &str, name: &str, port_name: &str) -> Option<(String, u16)> {
    let scope = Scope::resource("endpointslices.discovery.k8s.io").namespace(namespace);
    let view = store.view();
    let slices = view.list(&scope).filter(|slice| slice.index.labels.has(SERVICE_NAME, name));
    slices.map(|slice| object::read(slice)).find_map(|slice| {
        let port = named_port(&slice["ports"], port_name)?;
        let ready = slice["endpoints"].as_array()?.iter().find(|endpoint| {
            endpoint["conditions"]["ready"].as_bool().unwrap_or(true) && endpoint["addresses"][0].is_string()
        })?;
        Some((object_text(&ready["addresses"][0]), port))
    })
}

fn behind_endpoints(store: &Store, namespace: &str, name: &str, port_name: &str) -> Option<(String, u16)> {
    let endpoints = Registry::built_in().get("", "v1", "endpoints")?;
    let found = object::read(&*store.get(&object::key(endpoints, namespace, name))?);
    found["subsets"].as_array()?.iter().find_map(|subset| {
        let port = named_port(&subset["ports"], port_name)?;
        let address = subset["addresses"].as_array()?.first()?;
        Some((object_text(&address["ip"]), port))
    })
}

fn named_port(ports: &Value, name: &str) -> Option<u16> {
    let port = ports.as_array()?.iter().find(|port| object::text(port, &["name"]) == name)?;
    u16::try_from(port["port"].as_u64()?).ok()
}

fn object_text(value: &Value) -> String {
    value.as_str().unwrap_or("").to_owned()
}
