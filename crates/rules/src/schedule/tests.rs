use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::preempt::{Preemption, Room};
use super::*;

/// A node with 4 CPUs, 8 GiB and place for 10 pods, and more.
fn node(name: &str, more: &Value) -> k8s_openapi::api::core::v1::Node {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    });
    merge(&mut node, more);
    serde_json::from_value(node).unwrap()
}

/// A pod that asks for so many CPUs, and more.
fn pod(name: &str, cpu: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
    });
    merge(&mut pod, more);
    Pod::read(&serde_json::from_value(pod).unwrap())
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn cluster(nodes: &[(&str, Value)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for (name, more) in nodes {
        snapshot.set_node(&node(name, more));
    }
    snapshot
}

#[track_caller]
fn check(snapshot: &Snapshot, pod: &Pod, expected: &str) {
    let got = match decide(snapshot, pod, 0) {
        Ok(placement) => placement.node,
        Err(failure) => failure.to_string(),
    };
    assert_eq!(got, expected);
}

fn zones() -> Snapshot {
    let zone = |zone: &str| json!({"metadata": {"labels": {"zone": zone}}});
    cluster(&[("a1", zone("a")), ("a2", zone("a")), ("b1", zone("b")), ("nowhere", json!({}))])
}

#[test]
fn p_4_9_reasons_are_worded_as_kubernetes_words_them() {
    let none = json!({});
    check(&Snapshot::default(), &pod("p", "1", &none), "no nodes available to schedule pods");
    let tainted = json!({"spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}});
    let full = cluster(&[("a", none.clone()), ("b", tainted.clone())]);
    check(
        &full,
        &pod("p", "5", &none),
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint(s).",
    );
    check(&full, &pod("p", "1", &none), "a");
    let tolerant = json!({"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}], "nodeSelector": {"kubernetes.io/hostname": "b"}}});
    check(&full, &pod("p", "1", &tolerant), "b");
    check(
        &full,
        &pod("p", "1", &json!({"spec": {"nodeSelector": {"disk": "ssd"}}})),
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated \
         taint(s).",
    );
    let cordoned = cluster(&[("a", json!({"spec": {"unschedulable": true}}))]);
    check(&cordoned, &pod("p", "1", &none), "0/1 nodes are available: 1 node(s) were unschedulable.");
    let small = cluster(&[("a", json!({"status": {"allocatable": {"pods": "0", "memory": "1Mi"}}}))]);
    let greedy = json!({"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "9", "memory": "1Gi", "example.com/gpu": "1"}}}]}});
    check(
        &small,
        &pod("p", "1", &greedy),
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient example.com/gpu, 1 Insufficient memory, \
         1 Too many pods.",
    );
}

#[test]
fn p_4_9_requests_count_init_containers_sidecars_and_overhead() {
    let mut one = cluster(&[("a", json!({}))]);
    let container = |name: &str, cpu: &str, restart: Value| json!({"name": name, "restartPolicy": restart, "resources": {"requests": {"cpu": cpu}}});
    let init = json!({"spec": {
        "initContainers": [container("side", "1", json!("Always")), container("init", "3", json!(null))],
        "overhead": {"cpu": "100m"},
    }});
    check(&one, &pod("p", "1", &init), "0/1 nodes are available: 1 Insufficient cpu.");
    let fits = json!({"spec": {"initContainers": [container("side", "1", json!("Always")), container("init", "3", json!(null))]}});
    check(&one, &pod("p", "1", &fits), "a");
    one.place(pod("other", "1", &json!({})), "a");
    check(&one, &pod("p", "1", &fits), "0/1 nodes are available: 1 Insufficient cpu.");
    one.remove("other");
    check(&one, &pod("p", "1", &fits), "a");
}

#[test]
fn p_4_9_a_pod_has_what_it_was_given_until_it_is_resized() {
    let given = |cpu: &str, reason: &str| {
        json!({"status": {
            "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
            "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}}],
        }})
    };
    let full = "0/1 nodes are available: 1 Insufficient cpu.";
    for (asked, given, expected) in [
        ("1", given("1", ""), "a"),
        ("1", given("3", ""), full),
        ("3", given("1", "Deferred"), full),
        ("100", given("1", "Infeasible"), "a"),
    ] {
        let mut one = cluster(&[("a", json!({}))]);
        one.place(pod("other", asked, &given), "a");
        check(&one, &pod("p", "2", &json!({})), expected);
    }
}

#[test]
fn p_4_9_node_affinity() {
    let snapshot = zones();
    let affinity = |kind: &str, terms: Value| json!({"spec": {"affinity": {"nodeAffinity": {kind: terms}}}});
    let required = |expression: Value| {
        affinity("requiredDuringSchedulingIgnoredDuringExecution", json!({"nodeSelectorTerms": [expression]}))
    };
    let zone = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]});
    check(&snapshot, &pod("p", "1", &required(zone("In", &["b"]))), "b1");
    check(&snapshot, &pod("p", "1", &required(zone("NotIn", &["a", "b"]))), "nowhere");
    check(&snapshot, &pod("p", "1", &required(zone("DoesNotExist", &[]))), "nowhere");
    let field = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a2"]}]});
    check(&snapshot, &pod("p", "1", &required(field)), "a2");
    // Nodes that are not named are not asked.
    let named = |names: &[&str]| json!({"key": "metadata.name", "operator": "In", "values": names});
    let fields = |fields: &[Value]| required(json!({"matchFields": fields}));
    check(
        &snapshot,
        &pod("p", "5", &fields(&[named(&["a2", "b1", "gone"])])),
        "0/4 nodes are available: 2 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    );
    check(&snapshot, &pod("p", "1", &fields(&[named(&["a2", "b1"]), named(&["b1"])])), "b1");
    let contradiction = fields(&[named(&["a2"]), named(&["b1"])]);
    let message = "0/4 nodes are available: pod affinity terms conflict.";
    check(&snapshot, &pod("p", "1", &contradiction), message);
    let mut failure = decide(&snapshot, &pod("p", "1", &contradiction), 0).unwrap_err();
    let room = preempt::decide(&snapshot, &pod("p", "1", &contradiction), &[], &mut failure);
    assert_eq!(room, Room::Nowhere);
    assert_eq!(
        failure.to_string(),
        format!(
            "{message} no new claims to deallocate, preemption: 0/4 nodes are available: \
             4 Preemption is not helpful for scheduling."
        )
    );
    let nothing = required(json!({}));
    let message = "0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector.";
    check(&snapshot, &pod("p", "1", &nothing), message);
    let rather = affinity(
        "preferredDuringSchedulingIgnoredDuringExecution",
        json!([{"weight": 1, "preference": zone("In", &["b"])}]),
    );
    check(&snapshot, &pod("p", "1", &rather), "b1");
}

fn term(app: &str) -> Value {
    json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}})
}

fn pods(kind: &str, terms: &[Value]) -> Value {
    json!({"spec": {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}})
}

#[test]
fn p_4_9_pods_near_and_apart() {
    let mut snapshot = zones();
    let near_x = pods("podAffinity", &[term("x")]);
    check(&snapshot, &pod("first", "1", &near_x), "a1");
    let near_y = pods("podAffinity", &[term("y")]);
    check(
        &snapshot,
        &pod("p", "1", &near_y),
        "0/4 nodes are available: 4 node(s) didn't match pod affinity rules.",
    );
    snapshot.place(pod("y", "1", &json!({"metadata": {"labels": {"app": "y"}}})), "b1");
    check(&snapshot, &pod("p", "1", &near_y), "b1");
    let other_namespace = json!({"metadata": {"namespace": "other"}});
    let mut elsewhere = near_y.clone();
    merge(&mut elsewhere, &other_namespace);
    check(
        &snapshot,
        &pod("p", "1", &elsewhere),
        "0/4 nodes are available: 4 node(s) didn't match pod affinity rules.",
    );
    let mut any = term("y");
    any["namespaceSelector"] = json!({"matchLabels": {"team": "t"}});
    let mut selected = pods("podAffinity", &[any]);
    merge(&mut selected, &other_namespace);
    snapshot.set_namespace("ns", BTreeMap::from([("team".to_owned(), "t".to_owned())]));
    check(&snapshot, &pod("p", "1", &selected), "b1");

    let apart = pods("podAntiAffinity", &[term("x")]);
    let mut apart_in_zones = apart.clone();
    apart_in_zones["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "a2"});
    snapshot.place(pod("x", "1", &apart), "a1");
    check(
        &snapshot,
        &pod("p", "1", &apart_in_zones),
        "0/4 nodes are available: 1 node(s) didn't match pod anti-affinity rules, \
         3 node(s) didn't match Pod's node affinity/selector.",
    );
    check(
        &snapshot,
        &pod("p", "1", &json!({"spec": {"nodeSelector": {"zone": "a"}}})),
        "0/4 nodes are available: 2 node(s) didn't match Pod's node affinity/selector, \
         2 node(s) didn't satisfy existing pods anti-affinity rules.",
    );
    snapshot.remove("x");
    check(&snapshot, &pod("p", "1", &json!({"spec": {"nodeSelector": {"zone": "a"}}})), "a1");
}

#[test]
fn p_4_9_topology_spread() {
    let mut snapshot = zones();
    let spread = json!({"spec": {"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
    }]}});
    snapshot.place(pod("x1", "1", &json!({})), "a1");
    check(&snapshot, &pod("p", "1", &spread), "b1");
    let mut only_a = spread.clone();
    only_a["spec"]["tolerations"] = json!([]);
    snapshot.place(pod("x2", "1", &json!({})), "b1");
    check(&snapshot, &pod("p", "1", &spread), "a2");
    snapshot.place(pod("x3", "1", &json!({})), "a2");
    snapshot.set_node(&node(
        "b1",
        &json!({"metadata": {"labels": {"zone": "b"}}, "spec": {"unschedulable": true}}),
    ));
    check(
        &snapshot,
        &pod("p", "1", &only_a),
        "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), \
         1 node(s) were unschedulable, 2 node(s) didn't match pod topology spread constraints.",
    );
}

#[test]
fn p_4_9_ports() {
    let ports = |ip: &str| json!({"spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]}]}});
    let mut one = cluster(&[("a", json!({}))]);
    one.place(pod("x", "1", &ports("10.0.0.1")), "a");
    check(&one, &pod("p", "1", &ports("10.0.0.2")), "a");
    let taken = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.";
    check(&one, &pod("p", "1", &ports("")), taken);
    check(&one, &pod("p", "1", &ports("10.0.0.1")), taken);
    // Every one of a pod's ports has to be free, not only the first that is looked at.
    let two = |first: i32, second: i32| {
        let port = |number: i32| json!({"containerPort": number, "hostPort": number});
        json!({"spec": {"containers": [{"name": "main", "ports": [port(first), port(second)]}]}})
    };
    check(&one, &pod("p", "1", &two(79, 80)), taken);
    check(&one, &pod("p", "1", &two(80, 81)), taken);
    check(&one, &pod("p", "1", &two(79, 81)), "a");
}

#[test]
fn p_4_9_pods_go_where_most_is_left() {
    let mut two = cluster(&[("a", json!({})), ("b", json!({}))]);
    two.place(pod("x", "1", &json!({})), "a");
    check(&two, &pod("p", "1", &json!({})), "b");
    two.place(pod("y", "2", &json!({})), "b");
    check(&two, &pod("p", "1", &json!({})), "a");
    let soft = json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}});
    two.set_node(&node("a", &soft));
    check(&two, &pod("p", "1", &json!({})), "b");
}

#[test]
fn a_large_cluster_is_not_looked_at_as_a_whole() {
    let names: Vec<String> = (0..1000).map(|i| format!("n{i:04}")).collect();
    let mut snapshot = Snapshot::default();
    for name in &names {
        snapshot.set_node(&node(name, &json!({})));
    }
    let first = decide(&snapshot, &pod("p", "1", &json!({})), 0).unwrap();
    assert_eq!(first.evaluated, 420);
    let next = decide(&snapshot, &pod("p", "1", &json!({})), 420).unwrap();
    assert_eq!(next.node, "n0420");
}

fn with_priority(name: &str, cpu: &str, priority: i32) -> Pod {
    pod(name, cpu, &json!({"spec": {"priority": priority}}))
}

#[track_caller]
fn check_preemption(snapshot: &Snapshot, pod: &Pod, expected: Result<(&str, &[&str]), &str>) {
    let mut failure = decide(snapshot, pod, 0).expect_err("it fits nowhere");
    let got = preempt::decide(snapshot, pod, &[], &mut failure);
    match expected {
        Ok((node, victims)) => {
            let victims = victims.iter().map(|victim| (*victim).to_owned()).collect();
            assert_eq!(got, Room::Made(Preemption { node: node.to_owned(), victims }));
        }
        Err(message) => {
            // What a pod was promised is off only if it asked in vain.
            let asked = !message.contains("not eligible");
            assert_eq!(got, if asked { Room::Nowhere } else { Room::NotAsked });
            assert_eq!(failure.to_string(), message);
        }
    }
}

#[test]
fn p_4_9_preemption_takes_the_least() {
    let mut two = cluster(&[("a", json!({})), ("b", json!({}))]);
    two.place(with_priority("a-low", "2", 1), "a");
    two.place(with_priority("a-high", "2", 5), "a");
    two.place(with_priority("b-mid", "4", 3), "b");
    check_preemption(&two, &with_priority("p", "1", 10), Ok(("a", &["a-low"])));
    check_preemption(&two, &with_priority("p", "3", 10), Ok(("b", &["b-mid"])));
    check_preemption(
        &two,
        &with_priority("p", "1", 1),
        Err(
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
             available: 2 No preemption victims found for incoming pod.",
        ),
    );
    check_preemption(
        &two,
        &with_priority("p", "9", 10),
        Err(
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes are \
             available: 2 Preemption is not helpful for scheduling.",
        ),
    );
    let never = json!({"spec": {"priority": 10, "preemptionPolicy": "Never"}});
    check_preemption(
        &two,
        &pod("p", "1", &never),
        Err(
            "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: not eligible due to \
             preemptionPolicy=Never.",
        ),
    );
}

#[test]
fn p_4_9_budgets_are_broken_last() {
    let mut two = cluster(&[("a", json!({})), ("b", json!({}))]);
    two.place(with_priority("a", "4", 1), "a");
    two.place(pod("b", "4", &json!({"spec": {"priority": 2}, "metadata": {"labels": {"app": "free"}}})), "b");
    let budget = json!({
        "metadata": {"namespace": "ns", "name": "budget"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    let budget = serde_json::from_value(budget).unwrap();
    let wanting = with_priority("p", "1", 10);
    let mut failure = decide(&two, &wanting, 0).unwrap_err();
    let got = preempt::decide(&two, &wanting, &[&budget], &mut failure);
    let Room::Made(made) = got else { panic!("{got:?}") };
    assert_eq!(made.node, "b", "although its pod is the more important one");
}

#[test]
fn p_4_9_a_promised_node_is_kept() {
    let mut one = cluster(&[("a", json!({}))]);
    one.promise(with_priority("promised", "3", 5), "a");
    check(&one, &with_priority("p", "2", 1), "0/1 nodes are available: 1 Insufficient cpu.");
    check(&one, &with_priority("p", "2", 9), "a");
    check(&one, &with_priority("promised", "3", 5), "a");
    one.break_promise("promised");
    check(&one, &with_priority("p", "2", 1), "a");
}

#[test]
fn a_namespace_can_make_room_when_its_labels_change() {
    let labels = |team: &str| BTreeMap::from([("team".to_owned(), team.to_owned())]);
    let mut snapshot = Snapshot::default();
    assert!(snapshot.set_namespace("ns", labels("a")));
    assert!(!snapshot.set_namespace("ns", labels("a")));
    assert!(snapshot.set_namespace("ns", labels("b")));
    assert!(snapshot.remove_namespace("ns") && !snapshot.remove_namespace("ns"));
}

#[test]
fn a_snapshot_forgets_nothing_that_comes_back() {
    let mut one = cluster(&[("a", json!({}))]);
    one.place(pod("x", "3", &json!({})), "a");
    assert!(one.remove_node("a") && !one.remove_node("a"), "it can make room once");
    check(&one, &pod("p", "2", &json!({})), "no nodes available to schedule pods");
    one.set_node(&node("a", &json!({})));
    check(&one, &pod("p", "2", &json!({})), "0/1 nodes are available: 1 Insufficient cpu.");
    one.remove("x");
    check(&one, &pod("p", "2", &json!({})), "a");
}
