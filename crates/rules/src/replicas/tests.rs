use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {
            "name": name, "uid": name, "namespace": "ns", "labels": {"app": "x"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": "n", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(100).to_string()}]},
    });
    merge(&mut pod, more);
    serde_json::from_value(pod).unwrap()
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

fn plan(replicas: i32, min_ready_seconds: i32, pods: &[Pod]) -> Plan {
    plan_beside(replicas, min_ready_seconds, pods, &[])
}

fn plan_beside(replicas: i32, min_ready_seconds: i32, pods: &[Pod], related: &[Pod]) -> Plan {
    let owner: ObjectMeta =
        serde_json::from_value(json!({"name": "rs", "namespace": "ns", "uid": "u"})).unwrap();
    let template = json!({"metadata": {"labels": {"app": "x", "more": "y"}}, "spec": {"containers": []}});
    let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
    let selector = serde_json::from_value(json!({"matchLabels": {"app": "x"}})).unwrap();
    let wanted = Wanted {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        owner: &owner,
        replicas,
        min_ready_seconds,
        selector: Some(selector),
        template: Some(&template),
    };
    decide(&wanted, &pods.iter().collect::<Vec<_>>(), &related.iter().collect::<Vec<_>>(), at(200))
}

#[test]
fn missing_pods_are_created_and_superfluous_ones_deleted() {
    let none = json!({});
    let ended = json!({"status": {"phase": "Failed"}});
    let going = json!({"metadata": {"deletionTimestamp": at(150).to_string()}});
    let pods = [pod("a", &none), pod("ended", &ended), pod("going", &going)];
    let more = plan(3, 0, &pods);
    assert_eq!(more.create.len(), 2);
    let new = serde_json::to_value(&more.create[0].metadata).unwrap();
    assert_eq!(new["generateName"], "rs-");
    assert_eq!(new["labels"], json!({"app": "x", "more": "y"}));
    assert_eq!(new["ownerReferences"][0]["blockOwnerDeletion"], true);
    assert_eq!(more.counts, Counts { replicas: 1, fully_labeled: 0, ready: 1, available: 1, terminating: 1 });
    let fewer = plan(0, 0, &pods);
    assert_eq!(fewer.delete.iter().map(|pod| &*pod.name).collect::<Vec<_>>(), ["a"]);
    assert!(fewer.create.is_empty());
}

#[test]
fn readiness_has_to_last() {
    let pods = [pod("a", &json!({}))];
    let plan = plan(1, 150, &pods);
    assert_eq!((plan.counts.ready, plan.counts.available), (1, 0));
    assert_eq!(plan.look_again, Some(at(250)));
}

#[test]
fn which_go_first() {
    let ready_at = |second: i64| json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(second).to_string()}]}});
    let pods = [
        pod("old", &json!({})),
        pod("young", &ready_at(150)),
        pod("unready", &json!({"status": {"conditions": []}})),
        pod("pending", &json!({"status": {"phase": "Pending", "conditions": []}})),
        pod("unplaced", &json!({"spec": {"nodeName": ""}, "status": {"phase": "Pending", "conditions": []}})),
        pod("cheap", &json!({"metadata": {"annotations": {DELETION_COST: "-5"}}})),
    ];
    let names: Vec<String> = plan(0, 0, &pods).delete.into_iter().map(|pod| pod.name).collect();
    assert_eq!(names, ["unplaced", "pending", "unready", "cheap", "young", "old"]);
}

/// Of a Deployment's old set, the pod goes that stands beside one of the new set.
#[test]
fn pods_of_sister_sets_on_the_same_node_count() {
    let on = |name: &str, more: &Value| {
        let mut pod = pod(name, more);
        pod.spec.as_mut().unwrap().node_name = Some(name[1..].to_owned());
        pod
    };
    let (none, ended) = (json!({}), json!({"status": {"phase": "Failed"}}));
    let ready_later = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(150).to_string()}]}});
    let old = [on("an1", &ready_later), on("an2", &none), on("an3", &none)];
    let new = [on("bn2", &none), on("bn3", &ended)];
    let related: Vec<Pod> = old.iter().chain(&new).cloned().collect();
    let names = |related: &[Pod]| {
        let plan = plan_beside(0, 0, &old, related);
        plan.delete.into_iter().map(|pod| pod.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&related), ["an2", "an1", "an3"]);
    assert_eq!(names(&[]), ["an1", "an2", "an3"], "nobody controls the set");
}

#[test]
fn pods_are_adopted_and_let_go() {
    let free = json!({"metadata": {"ownerReferences": []}});
    let others = json!({"metadata": {"labels": {"app": "z"}}});
    let foreign = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "v", "controller": true}]}});
    let pods = [pod("free", &free), pod("others", &others), pod("foreign", &foreign)];
    let plan = plan(1, 0, &pods);
    let claims: Vec<(&str, bool)> =
        plan.claims.iter().map(|claim| (&*claim.pod.name, claim.adopts)).collect();
    assert_eq!(claims, [("free", true), ("others", false)]);
    assert_eq!(plan.counts.replicas, 1);
    assert!(plan.create.is_empty() && plan.delete.is_empty());
}
