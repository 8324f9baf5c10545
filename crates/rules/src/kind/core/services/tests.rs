use serde_json::{Value, json};

use crate::kind::endpoints;
use crate::kind::tests::{changed, create, facts, kind_of, refused};
use crate::write::Refused;

fn service(spec: Value) -> Value {
    let mut service = json!({"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.9"}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn balanced() -> Value {
    service(json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 31_000,
        "ports": [{"port": 80, "nodePort": 30_080}, {"port": 81, "name": "b", "nodePort": 30_081}]}))
}

#[test]
fn rule_3_12_a_service_loses_what_it_has_no_more() {
    let change = |object: Value, change: &[(&str, Value)]| {
        changed("v1", "Service", object, change, &[])["spec"].clone()
    };
    let balanced = || {
        let mut balanced = balanced();
        balanced["spec"]["ports"][0]["name"] = json!("a");
        balanced["spec"]["loadBalancerClass"] = json!("a.io/b");
        balanced
    };
    let everywhere = change(balanced(), &[("/spec/externalTrafficPolicy", json!("Cluster"))]);
    assert_eq!(
        (&everywhere["healthCheckNodePort"], &everywhere["ports"][0]["nodePort"]),
        (&Value::Null, &json!(30_080))
    );
    let inside = change(balanced(), &[("/spec/type", json!("ClusterIP"))]);
    for field in
        ["healthCheckNodePort", "externalTrafficPolicy", "allocateLoadBalancerNodePorts", "loadBalancerClass"]
    {
        assert!(inside[field].is_null(), "{inside}");
    }
    assert!(inside["ports"][0]["nodePort"].is_null() && inside["ports"][1]["nodePort"].is_null(), "{inside}");
    let elsewhere =
        change(balanced(), &[("/spec/type", json!("ExternalName")), ("/spec/externalName", json!("a.b"))]);
    assert!(elsewhere["clusterIPs"].is_null() && elsewhere["ipFamilies"].is_null(), "{elsewhere}");
    let of_nodes = change(balanced(), &[("/spec/type", json!("NodePort"))]);
    assert_eq!(
        (&of_nodes["healthCheckNodePort"], &of_nodes["externalTrafficPolicy"]),
        (&Value::Null, &json!("Local"))
    );
    let own = service(json!({"externalIPs": ["10.1.1.1"]}));
    assert_eq!(
        change(own.clone(), &[("/spec/externalIPs", Value::Null)])["externalTrafficPolicy"],
        Value::Null
    );
    assert_eq!(change(own, &[("/spec/type", json!("NodePort"))])["externalTrafficPolicy"], "Cluster");
}

#[test]
fn rule_3_12_one_address_and_the_first_of_many_change_together() {
    const IP: &str = "/spec/clusterIP";
    const IPS: &str = "/spec/clusterIPs";
    let change = |change: &[(&str, Value)], expected: &[&str]| {
        let spec = changed("v1", "Service", service(json!({})), change, expected)["spec"].clone();
        (spec["clusterIP"].clone(), spec["clusterIPs"].clone())
    };
    let kept = (json!("10.96.0.9"), json!(["10.96.0.9"]));
    assert_eq!(change(&[(IP, Value::Null)], &[]), kept);
    assert_eq!(change(&[(IPS, Value::Null)], &[]), kept);
    assert_eq!(change(&[(IP, Value::Null), (IPS, Value::Null)], &[]), kept);
    let once = "spec.clusterIPs[0]: Invalid value: [\"10.96.0.8\"]: may not change once set";
    change(&[(IP, json!("10.96.0.8"))], &[once]);
    change(&[(IP, json!("10.96.0.8")), (IPS, Value::Null)], &[once]);
    // Who goes elsewhere takes away one, and means both.
    let elsewhere =
        [("/spec/type", json!("ExternalName")), ("/spec/externalName", json!("a.b")), (IP, Value::Null)];
    assert_eq!(change(&elsewhere, &[]), (Value::Null, Value::Null));
}

#[test]
fn rule_3_12_who_changes_what_a_service_loses_is_told_that_it_does_not_go() {
    let not_checked =
        "spec.healthCheckNodePort: Invalid value: 31001: may only be set when `type` is 'LoadBalancer'";
    let refused = |change: &[(&str, Value)], expected: &[&str]| {
        let mut balanced = balanced();
        balanced["spec"]["ports"][0]["name"] = json!("a");
        changed("v1", "Service", balanced, change, expected);
    };
    refused(
        &[("/spec/externalTrafficPolicy", json!("Cluster")), ("/spec/healthCheckNodePort", json!(31_001))],
        &[not_checked],
    );
    refused(
        &[("/spec/type", json!("ClusterIP")), ("/spec/ports/0/nodePort", json!(30_082))],
        &[
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            "spec.ports[1].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
        ],
    );
    refused(
        &[("/spec/healthCheckNodePort", json!(31_001))],
        &["spec.healthCheckNodePort: Forbidden: field is immutable"],
    );
}

#[test]
fn rule_3_12_addresses_of_balancers() {
    let facts = facts("v1", "Service", true);
    let mut old = create(&facts, service(json!({"type": "LoadBalancer"}))).expect("a service").object;
    old["metadata"]["resourceVersion"] = json!("1");
    let tell = |old: &Value, ingress: Value| {
        let mut new = old.clone();
        new["status"] = json!({"loadBalancer": {"ingress": [ingress]}});
        endpoints::update_subresource(kind_of(&facts), &facts, "status", &new, old, &Vec::new())
    };
    let told = tell(&old, json!({"ip": "1.2.3.4"})).expect("an address").object;
    assert_eq!(told["status"]["loadBalancer"]["ingress"], json!([{"ip": "1.2.3.4", "ipMode": "VIP"}]));
    let at = "status.loadBalancer.ingress[0]";
    for (ingress, expected) in [
        (json!({"hostname": "a.b"}), None),
        (json!({"ip": "1.2.3.4", "ipMode": "Proxy", "hostname": "a.b"}), None),
        (json!({"ip": "x"}), Some(".ip: Invalid value: \"x\": must be a valid IP address")),
        (json!({"hostname": "1.2.3.4"}), Some(".hostname: Invalid value: \"1.2.3.4\": must be a DNS name")),
        (json!({"hostname": "A"}), Some(".hostname: Invalid value: \"A\": a lowercase RFC 1123 subdomain")),
        (
            json!({"hostname": "h", "ipMode": "VIP"}),
            Some(".ipMode: Forbidden: may not be specified when `ip` is not set"),
        ),
        (
            json!({"ip": "1.2.3.4", "ipMode": "Other"}),
            Some(".ipMode: Unsupported value: \"Other\": supported values: \"Proxy\", \"VIP\""),
        ),
    ] {
        match (tell(&old, ingress.clone()), expected) {
            (Ok(_), None) => {}
            (Err(Refused::Invalid(errors)), Some(expected)) => {
                crate::field::assert_starts(&errors, &[&format!("{at}{expected}")]);
            }
            (answer, _) => panic!("{answer:?} for {ingress}"),
        }
    }
    // Who reads where to go does not find the address of a balancer that is being taken away.
    let mut new = told.clone();
    new["spec"]["type"] = json!("ClusterIP");
    let changed = endpoints::update(kind_of(&facts), &facts, &new, &told, &Vec::new());
    let changed = changed.expect("a change").object;
    assert_eq!(changed["status"], json!({"loadBalancer": {}}));
    match tell(&changed, json!({"ip": "1.2.3.4"})) {
        Err(Refused::Invalid(errors)) => crate::field::assert_starts(
            &errors,
            &["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"],
        ),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn rule_3_12_what_annotations_of_services_say() {
    let annotated = |kind: &str, annotations: Value| {
        let mut service = service(json!({"type": kind}));
        service["metadata"]["annotations"] = annotations;
        service
    };
    let (old, new) = ("service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode");
    let told = |object: Value, expected: &[&str]| refused("v1", "Service", true, object, expected);
    told(annotated("ClusterIP", json!({(old): "auto", (new): "auto"})), &[]);
    let differ = format!(
        "metadata.annotations[{new}]: Invalid value: \"Auto\": must match annotations[{old}] when both"
    );
    told(annotated("ClusterIP", json!({(old): "auto", (new): "Auto"})), &[&differ]);
    let ranges = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let path = format!("metadata.annotations[{ranges}]");
    let only = format!("{path}: Forbidden: may only be used when `type` is 'LoadBalancer'");
    let bad = |text: &str| format!("{path}: Invalid value: \"{text}\": must be a valid CIDR value");
    told(annotated("LoadBalancer", json!({(ranges): " 10.0.0.0/8, 010.1.0.0/16 "})), &[]);
    told(annotated("LoadBalancer", json!({(ranges): " "})), &[]);
    told(annotated("LoadBalancer", json!({(ranges): "x, 10.0.0.0/8,"})), &[&bad("x"), &bad("")]);
    told(annotated("ClusterIP", json!({(ranges): ""})), &[&only]);
    told(annotated("NodePort", json!({(ranges): "x"})), &[&only, &bad("x")]);
    let mut instead = annotated("LoadBalancer", json!({(ranges): "x"}));
    instead["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/8"]);
    told(instead.clone(), &[]);
    // It became what counts without being written anew.
    changed("v1", "Service", instead, &[("/spec/loadBalancerSourceRanges", Value::Null)], &[]);
}
