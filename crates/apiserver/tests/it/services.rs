//! Addresses and ports of services.

use http::Method;
use serde_json::{Value, json};

use crate::both::{Both, answer};
use crate::{ask, cluster};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service(name: &str, spec: Value) -> Value {
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 80}]}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        service["spec"][field] = value.clone();
    }
    service
}

fn at_port(name: &str, port: i64) -> Value {
    service(name, json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]}))
}

/// Asks both with the same body, but for the network that services have their addresses from (`NET`), and returns the code.
async fn same(both: &Both, method: &Method, path: &str, body: &Value) -> u16 {
    let mut answers = Vec::new();
    for (client, network) in [(both.ours(), "10.96"), (both.real(), "10.0")] {
        let body = serde_json::from_str(&body.to_string().replace("NET", network)).expect("JSON");
        let patch = [("Content-Type", "application/merge-patch+json")];
        let headers = if *method == Method::PATCH { &patch[..] } else { &[] };
        let (code, said) = answer(client, headers, method, path, Some(&body)).await;
        answers.push((code, said.to_string().replace(&format!("{network}.0."), "NET.0.")));
    }
    assert_eq!(answers[0], answers[1], "{method} {path} {body}");
    answers[0].0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_3_12_services_that_race_get_ports_of_their_own() {
    let cluster = cluster().await;
    for round in 0..8 {
        let writes = (0..8).map(|i| {
            let (cluster, service) = (cluster.clone(), at_port(&format!("s-{round}-{i}"), 30_080 + round));
            tokio::spawn(async move { ask(&cluster, Method::POST, SERVICES, Some(&service)).await.0 })
        });
        let codes = futures::future::join_all(writes).await;
        let made = codes.iter().filter(|code| code.as_ref().is_ok_and(|code| *code == 201)).count();
        assert_eq!(made, 1, "{codes:?}");
    }
}

#[tokio::test]
async fn rule_3_12_ports_of_writes_that_fail_are_free_again() {
    let cluster = cluster().await;
    let mut wrong = at_port("wrong", 30_080);
    wrong["spec"]["sessionAffinity"] = json!("Never");
    assert_eq!(ask(&cluster, Method::POST, SERVICES, Some(&wrong)).await.0, 422);
    let dry = format!("{SERVICES}?dryRun=All");
    assert_eq!(ask(&cluster, Method::POST, &dry, Some(&at_port("dry", 30_080))).await.0, 201);
    assert_eq!(ask(&cluster, Method::POST, SERVICES, Some(&at_port("one", 30_080))).await.0, 201);
    assert_eq!(ask(&cluster, Method::POST, SERVICES, Some(&at_port("two", 30_080))).await.0, 422);
    assert_eq!(ask(&cluster, Method::DELETE, &format!("{SERVICES}/one"), None).await.0, 200);
    assert_eq!(ask(&cluster, Method::POST, SERVICES, Some(&at_port("two", 30_080))).await.0, 201);
}

#[tokio::test]
async fn rule_3_12_services_change_as_on_a_real_server() {
    let Some(both) = Both::start().await else { return };
    let balanced = |name: &str, ip: &str, port: i64, checked: i64| {
        service(
            name,
            json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": checked, "clusterIP": ip,
                "ports": [{"port": 80, "nodePort": port}]}),
        )
    };
    let spared = |name: &str, ip: &str, port: i64| {
        let ports = json!([{"port": 80, "nodePort": port}, {"port": 81, "name": "b"}]);
        let mut service = service(
            name,
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "clusterIP": ip, "ports": ports}),
        );
        service["spec"]["ports"][0]["name"] = json!("a");
        service
    };
    for object in [
        balanced("a", "NET.0.101", 30_101, 31_101),
        // One that somebody has, one that there is not, and one that is free.
        balanced("b", "NET.0.102", 30_102, 31_101),
        balanced("b", "NET.0.102", 30_102, 80),
        balanced("b", "NET.0.102", 31_101, 31_102),
        balanced("b", "NET.0.102", 30_102, 30_102),
        balanced("b", "NET.0.102", 30_102, 31_102),
        spared("c", "NET.0.103", 30_101),
        spared("c", "NET.0.103", 80),
        spared("c", "NET.0.103", 30_103),
        // However it is written, it is the same address.
        service("d", json!({"clusterIP": "0NET.0.103"})),
        service("d", json!({"clusterIP": "010.196.0.1"})),
        service("d", json!({"clusterIP": "0NET.0.104", "externalIPs": ["10.1.1.1"]})),
        service("e", json!({"clusterIP": "NET.0.104"})),
    ] {
        same(&both, &Method::POST, SERVICES, &object).await;
    }
    let told = |ingress: Value| json!({"status": {"loadBalancer": {"ingress": [ingress]}}});
    let (spec, status) =
        (|name: &str| format!("{SERVICES}/{name}"), |name: &str| format!("{SERVICES}/{name}/status"));
    for (path, patch) in [
        (status("a"), told(json!({"ip": "1.2.3.4"}))),
        (status("d"), told(json!({"ip": "1.2.3.4"}))),
        (status("a"), told(json!({"ip": "1.2.3.4", "ipMode": "Other"}))),
        (spec("a"), json!({"spec": {"healthCheckNodePort": 31_103}})),
        (spec("a"), json!({"spec": {"type": "ClusterIP"}})),
        (spec("b"), json!({"spec": {"externalTrafficPolicy": "Cluster"}})),
        (spec("b"), json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31_101}})),
        (spec("c"), json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 30_102}})),
        (spec("c"), json!({"spec": {"externalTrafficPolicy": "Local", "healthCheckNodePort": 31_103}})),
        (
            spec("c"),
            json!({"spec": {"allocateLoadBalancerNodePorts": true, "ports": [{"port": 80, "nodePort": 30_103}]}}),
        ),
        (
            spec("b"),
            json!({"spec": {"ports": [{"port": 53, "name": "u", "protocol": "UDP", "nodePort": 30_053},
                {"port": 54, "name": "t", "protocol": "TCP", "nodePort": 30_053}]}}),
        ),
        (
            spec("b"),
            json!({"spec": {"ports": [{"port": 53, "name": "u", "nodePort": 30_054},
                {"port": 54, "name": "t", "nodePort": 30_054}]}}),
        ),
        (spec("d"), json!({"spec": {"externalIPs": null}})),
        (spec("d"), json!({"spec": {"clusterIP": "x"}})),
        (spec("d"), json!({"spec": {"clusterIP": "NET.0.105", "clusterIPs": null}})),
        (spec("a"), json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null}})),
    ] {
        same(&both, &Method::PATCH, &path, &patch).await;
    }
    // Who goes gives back what it had.
    same(&both, &Method::DELETE, &spec("d"), &json!({})).await;
    let again = service("e", json!({"clusterIP": "NET.0.104"}));
    assert_eq!(same(&both, &Method::POST, SERVICES, &again).await, 201);
}
