use serde_json::{Value, json};

use super::*;

fn service(spec: Value) -> Service {
    let mut service = json!({
        "metadata": {"name": "s", "namespace": "n", "uid": "service", "labels": {"l": "1"}},
        "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        service["spec"][key] = value.clone();
    }
    serde_json::from_value(service).expect("a service")
}

fn pod(number: usize, ready: bool, port: i32) -> Pod {
    let ip = format!("10.0.0.{number}");
    let condition = json!({"type": "Ready", "status": if ready { "True" } else { "False" }});
    serde_json::from_value(json!({
        "metadata": {"name": format!("p{number}"), "namespace": "n", "uid": format!("u{number}"), "labels": {"app": "x"}},
        "spec": {"nodeName": "node", "containers": [
            {"name": "c", "ports": [{"name": "web", "containerPort": port}]}]},
        "status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [condition]},
    }))
    .expect("a pod")
}

fn plan(service: &Service, pods: &[&Pod], known: &[&EndpointSlice]) -> Plan {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node"}})).expect("a node");
    slices(service, pods, &BTreeMap::from([("node".to_owned(), &node)]), known)
}

/// The slices after a plan, with names.
fn applied(known: Vec<EndpointSlice>, plan: Plan) -> Vec<EndpointSlice> {
    let mut slices: Vec<EndpointSlice> = known
        .into_iter()
        .filter(|slice| !plan.delete.contains(&name(&slice.metadata)))
        .map(|slice| {
            plan.update.iter().find(|it| it.metadata.name == slice.metadata.name).cloned().unwrap_or(slice)
        })
        .collect();
    for mut slice in plan.create {
        slice.metadata.name = Some(format!("made-{}", slices.len()));
        slices.push(slice);
    }
    slices
}

#[test]
fn slices_follow_the_pods_and_settle() {
    let service = service(json!({}));
    let (one, two, other) = (pod(1, true, 8080), pod(2, false, 8080), pod(3, true, 9090));
    let mut known = Vec::new();
    for (pods, expected) in [
        (vec![], vec![0]),
        (vec![&one], vec![1]),
        (vec![&one, &two], vec![2]),
        (vec![&one, &two, &other], vec![2, 1]),
        (vec![&other], vec![1]),
        (vec![], vec![0]),
    ] {
        let first = plan(&service, &pods, &known.iter().collect::<Vec<_>>());
        known = applied(known, first);
        let counts: Vec<usize> = known.iter().map(|slice| slice.endpoints.len()).collect();
        assert_eq!(counts, expected);
        let again = plan(&service, &pods, &known.iter().collect::<Vec<_>>());
        assert_eq!(again, Plan::default(), "deciding again after applying changes nothing");
    }
    let labels = known[0].metadata.labels.clone().expect("labels");
    assert_eq!(labels.get(SERVICE_NAME).map(String::as_str), Some("s"));
    assert_eq!(labels.get("l").map(String::as_str), Some("1"));
}

#[test]
fn large_services_have_many_slices() {
    let pods: Vec<Pod> = (1..=250).map(|number| pod(number, true, 80)).collect();
    let all: Vec<&Pod> = pods.iter().filter(|pod| !addresses(pod, "IPv4").is_empty()).collect();
    assert_eq!(all.len(), 250, "250 numbers fit into the last part of an address");
    let made = plan(&service(json!({})), &all, &[]).create;
    assert_eq!(made.iter().map(|slice| slice.endpoints.len()).collect::<Vec<_>>(), [100, 100, 50]);
}

#[test]
fn endpoints_tell_ready_addresses_from_others() {
    let service = service(json!({}));
    let pods = [pod(1, true, 8080), pod(2, false, 8080)];
    let pods: Vec<&Pod> = pods.iter().collect();
    let made = endpoints(&service, &pods, None).expect("new ones");
    let subsets = made.subsets.clone().expect("subsets");
    let ips = |list: &Option<Vec<EndpointAddress>>| -> Vec<String> {
        list.iter().flatten().map(|address| address.ip.clone()).collect()
    };
    assert_eq!(ips(&subsets[0].addresses), ["10.0.0.1"]);
    assert_eq!(ips(&subsets[0].not_ready_addresses), ["10.0.0.2"]);
    assert_eq!(subsets[0].ports.as_ref().expect("ports")[0].port, 8080);
    assert_eq!(endpoints(&service, &pods, Some(&made)), None);
    assert!(selects(&service) && is_behind(&service, pods[0]));
}
