//! Endpoints that people write, for services that select no pods: slices tell the same.

use std::net::IpAddr;

use super::{
    BTreeMap, Endpoint, EndpointAddress, EndpointConditions, EndpointPort, EndpointSlice, Endpoints,
    MANAGED_BY, MOST_ADDRESSES, ObjectMeta, OwnerReference, Plan, SERVICE_NAME, Service, name,
};

/// Who keeps slices that mirror Endpoints.
pub const MIRROR: &str = "endpointslicemirroring-controller.k8s.io";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// What is said of the Endpoints, and not of what they tell.
const NOT_COPIED: [&str; 2] =
    ["endpoints.kubernetes.io/last-change-trigger-time", "kubectl.kubernetes.io/last-applied-configuration"];

/// Decides what becomes of the slices that mirror Endpoints; `known` are those that are kept for them.
pub fn mirrored(endpoints: Option<&Endpoints>, service: Option<&Service>, known: &[&EndpointSlice]) -> Plan {
    let mut plan = Plan::default();
    let mut left: Vec<&EndpointSlice> = known.to_vec();
    let is_theirs =
        service.and_then(|service| service.spec.as_ref()).is_some_and(|spec| spec.selector.is_none());
    if let Some(endpoints) = endpoints.filter(|endpoints| is_theirs && is_mirrored(endpoints)) {
        for mut wanted in wanted(endpoints) {
            let same = |slice: &&EndpointSlice| {
                slice.address_type == wanted.address_type && slice.ports == wanted.ports
            };
            let Some(place) = left.iter().position(same) else {
                plan.create.push(wanted);
                continue;
            };
            let slice = left.remove(place);
            let (new, old) = (&wanted.metadata, &slice.metadata);
            let is_same = slice.endpoints == wanted.endpoints
                && (&new.labels, &new.annotations, &new.owner_references)
                    == (&old.labels, &old.annotations, &old.owner_references);
            if !is_same {
                let mut metadata = slice.metadata.clone();
                // To the real controller this is a new slice that takes over the name of an old one.
                metadata.generate_name = None;
                metadata.labels = wanted.metadata.labels.take();
                metadata.annotations = wanted.metadata.annotations.take();
                metadata.owner_references = wanted.metadata.owner_references.take();
                plan.update.push(EndpointSlice { metadata, ..wanted });
            }
        }
    }
    plan.delete.extend(left.into_iter().map(|slice| name(&slice.metadata)));
    plan
}

/// Locks are Endpoints, too, and some ask to be left alone.
fn is_mirrored(endpoints: &Endpoints) -> bool {
    let labels = endpoints.metadata.labels.as_ref();
    let skipped = labels.and_then(|labels| labels.get(SKIP)).is_some_and(|skip| skip == "true");
    let is_lock = endpoints.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(LEADER));
    !skipped && !is_lock && endpoints.metadata.deletion_timestamp.is_none()
}

/// A slice for the addresses of each family of each subset.
fn wanted(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut slices: Vec<EndpointSlice> = Vec::new();
    for subset in endpoints.subsets.iter().flatten() {
        let port = |port: &super::OldPort| EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(port.port),
            protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_owned())),
            app_protocol: port.app_protocol.clone(),
        };
        let ports: Vec<EndpointPort> = subset.ports.iter().flatten().map(port).collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let others = subset.not_ready_addresses.iter().flatten().map(|address| (address, false));
        for (address, is_ready) in ready.chain(others).take(MOST_ADDRESSES) {
            let Some(family) = family(&address.ip) else { continue };
            let told = endpoint(address, is_ready);
            let same = |slice: &&mut EndpointSlice| {
                slice.address_type == family && slice.ports.as_ref() == Some(&ports)
            };
            match slices.iter_mut().find(same) {
                Some(slice) => slice.endpoints.push(told),
                None => slices.push(EndpointSlice {
                    metadata: metadata(endpoints),
                    address_type: family.to_owned(),
                    endpoints: vec![told],
                    ports: Some(ports.clone()),
                }),
            }
        }
    }
    slices
}

fn family(ip: &str) -> Option<&'static str> {
    Some(match ip.parse().ok()? {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    })
}

fn endpoint(address: &EndpointAddress, is_ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions { ready: Some(is_ready), ..EndpointConditions::default() }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn metadata(endpoints: &Endpoints) -> ObjectMeta {
    let own = &endpoints.metadata;
    let mut labels = own.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name(own));
    labels.insert(MANAGED_BY.to_owned(), MIRROR.to_owned());
    let mut annotations: BTreeMap<String, String> = own.annotations.clone().unwrap_or_default();
    annotations.retain(|key, _| !NOT_COPIED.contains(&key.as_str()));
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Endpoints".to_owned(),
        name: name(own),
        uid: own.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    ObjectMeta {
        generate_name: Some(format!("{}-", name(own))),
        namespace: own.namespace.clone(),
        labels: Some(labels),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoints(metadata: Value, addresses: &[&str]) -> Endpoints {
        let addresses: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let mut it = json!({ "metadata": { "name": "s", "namespace": "n", "uid": "u" }, "subsets": [{ "addresses": addresses, "ports": [{ "port": 80 }] }] });
        for (key, value) in metadata.as_object().into_iter().flatten() {
            it["metadata"][key] = value.clone();
        }
        serde_json::from_value(it).expect("endpoints")
    }

    fn service(spec: Value) -> Service {
        serde_json::from_value(json!({ "metadata": { "name": "s" }, "spec": spec })).expect("a service")
    }

    fn counts(plan: &Plan) -> (usize, usize, usize) {
        (plan.create.len(), plan.update.len(), plan.delete.len())
    }

    #[test]
    fn slices_follow_endpoints_and_settle() {
        let open = service(json!({}));
        let both = endpoints(json!({}), &["10.1.2.3", "fe80::1"]);
        let plan = mirrored(Some(&both), Some(&open), &[]);
        assert_eq!(counts(&plan), (2, 0, 0));
        let mut slices = plan.create;
        for (number, slice) in slices.iter_mut().enumerate() {
            slice.metadata.name = Some(format!("s-{number}"));
        }
        let known: Vec<&EndpointSlice> = slices.iter().collect();
        assert_eq!(counts(&mirrored(Some(&both), Some(&open), &known)), (0, 0, 0));
        let changed = endpoints(json!({}), &["10.2.3.4"]);
        let plan = mirrored(Some(&changed), Some(&open), &known);
        assert_eq!(counts(&plan), (0, 1, 1));
        assert_eq!(plan.update[0].endpoints[0].addresses, ["10.2.3.4"]);
        assert_eq!(plan.update[0].metadata.name.as_deref(), Some("s-0"));
        assert_eq!(counts(&mirrored(None, Some(&open), &known)), (0, 0, 2));
        assert_eq!(counts(&mirrored(Some(&both), None, &known)), (0, 0, 2));
    }

    #[test]
    fn endpoints_that_are_not_for_people_are_left_alone() {
        let open = service(json!({}));
        let skipped = endpoints(json!({ "labels": { SKIP: "true" } }), &["10.1.2.3"]);
        let lock = endpoints(json!({ "annotations": { LEADER: "{}" } }), &["10.1.2.3"]);
        for left_alone in [&skipped, &lock] {
            assert_eq!(counts(&mirrored(Some(left_alone), Some(&open), &[])), (0, 0, 0));
        }
        let usual = endpoints(json!({}), &["10.1.2.3"]);
        let selecting = service(json!({ "selector": { "app": "x" } }));
        assert_eq!(counts(&mirrored(Some(&usual), Some(&selecting), &[])), (0, 0, 0));
    }
}
