use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pod(spec: Value, status: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec, "status": status})).unwrap()
}

fn containers(requests: Value, limits: Value) -> Value {
    json!({"containers": [{"name": "main", "resources": {"requests": requests, "limits": limits}}]})
}

fn print(list: &List) -> String {
    list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
}

fn quota(hard: &[&str], more: Value) -> ResourceQuotaSpec {
    let hard: serde_json::Map<String, Value> =
        hard.iter().map(|name| ((*name).to_owned(), json!("10"))).collect();
    let mut spec = json!({"hard": hard});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

#[test]
fn what_a_pod_uses() {
    let spec =
        containers(json!({"cpu": "500m", "example.com/gpu": "2"}), json!({"cpu": "1", "memory": "1Gi"}));
    let running = pod(spec.clone(), json!({"phase": "Running"}));
    assert_eq!(
        print(&charge(Object::Pod(&running), at(0))),
        "count/pods=1 cpu=500m limits.cpu=1 limits.memory=1Gi pods=1 requests.cpu=500m requests.example.com/gpu=2"
    );
    let ended = pod(spec.clone(), json!({"phase": "Succeeded"}));
    assert_eq!(print(&charge(Object::Pod(&ended), at(0))), "count/pods=1");
    let mut late = pod(spec, json!({"phase": "Running"}));
    late.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(100)));
    late.metadata.deletion_grace_period_seconds = Some(30);
    assert!(charge(Object::Pod(&late), at(129)).contains_key("pods"));
    assert!(!charge(Object::Pod(&late), at(130)).contains_key("pods"));
}

#[test]
fn what_other_objects_use() {
    let service = |spec: Value| -> Service { serde_json::from_value(json!({"spec": spec})).unwrap() };
    let ports = json!([{"port": 80}, {"port": 81}]);
    for (spec, expected) in [
        (json!({"ports": ports}), "count/services=1 services=1"),
        (json!({"type": "NodePort", "ports": ports}), "count/services=1 services=1 services.nodeports=2"),
        (
            json!({"type": "LoadBalancer", "ports": ports}),
            "count/services=1 services=1 services.loadbalancers=1 services.nodeports=2",
        ),
        (
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": ports}),
            "count/services=1 services=1 services.loadbalancers=1",
        ),
    ] {
        assert_eq!(print(&charge(Object::Service(&service(spec)), at(0))), expected);
    }
    let claim = json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "5Gi"}}}});
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    assert_eq!(
        print(&charge(Object::Claim(&claim), at(0))),
        "count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
         gold.storageclass.storage.k8s.io/requests.storage=5Gi persistentvolumeclaims=1 requests.storage=5Gi"
    );
    let other = |resource, group| print(&charge(Object::Other { resource, group }, at(0)));
    assert_eq!(other("secrets", ""), "count/secrets=1 secrets=1");
    assert_eq!(other("jobs", "batch"), "count/jobs.batch=1");
    assert_eq!(other("events", ""), "count/events=1");
}

#[test]
fn what_a_pod_uses_while_it_is_resized() {
    let check = |asked: &str, given: Value, allocated: &str, reason: &str, expected: &str| {
        let mut spec = containers(json!({"cpu": asked}), json!({"cpu": asked}));
        spec["initContainers"] = json!([
            {"name": "first", "resources": {"requests": {"cpu": "1m"}}},
            {"name": "beside", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
        ]);
        let pod = pod(
            spec,
            json!({
                "phase": "Running",
                "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
                "containerStatuses": [{"name": "main", "resources": given, "allocatedResources": {"cpu": allocated},
                    "image": "", "imageID": "", "ready": true, "restartCount": 0}],
                "initContainerStatuses": [{"name": "beside", "resources": {"requests": {"cpu": "200m"}},
                    "image": "", "imageID": "", "ready": true, "restartCount": 0},
                    {"name": "first", "resources": {"requests": {"cpu": "9"}}, "image": "", "imageID": "", "ready": true,
                    "restartCount": 0}],
            }),
        );
        let charged = charge(Object::Pod(&pod), at(0));
        let amount = |name: &str| charged.get(name).map_or("none".to_owned(), ToString::to_string);
        assert_eq!(format!("{} {}", amount("requests.cpu"), amount("limits.cpu")), expected);
    };
    let given = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    check("1", given("1"), "1", "", "1200m 1");
    // It gets less, and has not given the rest back; or it gets more, which is kept for it.
    check("1", given("2"), "1", "", "2200m 2");
    check("1", given("1"), "2", "", "2200m 1");
    check("100", given("1"), "1", "Deferred", "100200m 100");
    // What the node does not have it does not get.
    check("100", given("1"), "1", "Infeasible", "1200m 1");
    check("100", Value::Null, "1", "Infeasible", "100200m 100");
}

#[test]
fn overhead_is_beside_what_a_pod_is_limited_in() {
    let check = |limits: Value, whole: Value, expected: &[&str]| {
        let mut spec = containers(json!({}), limits);
        spec["overhead"] = json!({"cpu": "10m", "memory": "1Mi"});
        spec["resources"] = whole;
        let charged = charge(Object::Pod(&pod(spec, json!({}))), at(0));
        let limits = charged.iter().filter(|(name, _)| name.starts_with("limits."));
        assert_eq!(limits.map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>(), expected);
        assert_eq!(charged["requests.cpu"].to_string(), "10m");
    };
    check(json!({}), json!({}), &[]);
    check(json!({"cpu": "1"}), json!({}), &["limits.cpu=1010m"]);
    check(json!({"cpu": "0"}), json!({}), &["limits.cpu=0"]);
    check(
        json!({"cpu": "1"}),
        json!({"limits": {"cpu": "2", "memory": "3Mi"}}),
        &["limits.cpu=2010m", "limits.memory=4Mi"],
    );
}

#[test]
fn what_a_claim_of_devices_uses() {
    let check = |requests: Value, expected: &str| {
        let claim: ResourceClaim =
            serde_json::from_value(json!({"spec": {"devices": {"requests": requests}}})).unwrap();
        let charged = charge(Object::Devices(&claim), at(0));
        let all = print(&charged).replace(OF_DEVICE_CLASS, "");
        assert_eq!(all, format!("{expected}count/resourceclaims.resource.k8s.io=1"));
    };
    let of = |class: &str, mode: &str, count: i64| json!({"name": "s", "deviceClassName": class, "allocationMode": mode, "count": count});
    let exactly =
        |class: &str, mode: &str, count: i64| json!({"name": "r", "exactly": of(class, mode, count)});
    check(json!([]), "");
    check(
        json!([exactly("a", "ExactCount", 2), exactly("a", "ExactCount", 1), exactly("b", "All", 0)]),
        "a=3 b=32 ",
    );
    let any = json!({"name": "r", "firstAvailable": [of("a", "ExactCount", 2), of("a", "ExactCount", 4), of("b", "ExactCount", 1)]});
    check(json!([any, exactly("a", "ExactCount", 1)]), "a=5 b=1 ");
    // What will be invented some day counts for nothing.
    check(json!([exactly("a", "Most", 2), {"name": "new"}]), "a=0 ");
    let limits = quota(&["a.deviceclass.resource.k8s.io/devices"], json!({}));
    let claim: ResourceClaim =
        serde_json::from_value(json!({"spec": {"devices": {"requests": [exactly("a", "ExactCount", 2)]}}}))
            .unwrap();
    let used = usage(&limits, [Object::Devices(&claim), Object::Devices(&claim)].into_iter(), at(0));
    assert_eq!(print(&used), "a.deviceclass.resource.k8s.io/devices=4");
    let scoped = quota(&["pods"], json!({"scopes": ["NotTerminating"]}));
    assert!(!is_subject(&scoped, Object::Devices(&claim)));
}

fn claim(object: &Value) -> PersistentVolumeClaim {
    serde_json::from_value(object.clone()).unwrap()
}

#[test]
fn what_a_claim_uses_of_which_class() {
    let check = |object: Value, class: &str, storage: &str| {
        let charged = charge(Object::Claim(&claim(&object)), at(0));
        let amount = |name: &str| charged.get(name).map(ToString::to_string);
        assert_eq!(amount("requests.storage").as_deref(), Some(storage), "{object}");
        let of_class =
            charged.keys().find_map(|name| name.split_once(".storageclass").map(|(class, _)| class));
        assert_eq!(of_class.unwrap_or(""), class, "{object}");
        if !class.is_empty() {
            let name = format!("{class}.storageclass.storage.k8s.io/requests.storage");
            assert_eq!(amount(&name).as_deref(), Some(storage), "{object}");
        }
    };
    let asks = |amount: &str| json!({"requests": {"storage": amount}});
    let beta = |class: &str| json!({"annotations": {BETA_CLASS: class}});
    for (metadata, class, expected) in [
        (json!({}), "gold", "gold"),
        (json!({}), "", ""),
        (beta("silver"), "gold", "silver"),
        (beta(""), "gold", ""),
    ] {
        let spec = json!({"storageClassName": class, "resources": asks("5Gi")});
        check(json!({"metadata": metadata, "spec": spec}), expected, "5Gi");
    }
    for (asked, allocated, expected) in [
        ("1500m", json!(null), "2"),
        ("5Gi", json!({"storage": "7Gi"}), "7Gi"),
        ("5Gi", json!({"storage": "3Gi"}), "5Gi"),
        ("1", json!({"storage": "1500m"}), "2"),
    ] {
        let object = json!({"spec": {"resources": asks(asked)}, "status": {"allocatedResources": allocated}});
        check(object, "", expected);
    }
}

#[test]
fn claims_by_the_classes_of_their_attributes() {
    let scope = "VolumeAttributesClass";
    let claims = [
        claim(&json!({"spec": {}})),
        claim(&json!({"spec": {"volumeAttributesClassName": "a"}})),
        claim(
            &json!({"spec": {"volumeAttributesClassName": "a"}, "status": {"currentVolumeAttributesClassName": "b"}}),
        ),
        claim(
            &json!({"spec": {}, "status": {"modifyVolumeStatus": {"status": "Pending", "targetVolumeAttributesClassName": "b"}}}),
        ),
    ];
    let check = |more: Value, expected: [bool; 4]| {
        let quota = quota(&["persistentvolumeclaims"], more.clone());
        let got = [0, 1, 2, 3].map(|i| is_subject(&quota, Object::Claim(&claims[i])));
        assert_eq!(got, expected, "{more}");
    };
    check(json!({"scopes": [scope]}), [false, true, true, true]);
    check(json!({"scopes": [scope, "BestEffort"]}), [false; 4]);
    for (operator, values, expected) in [
        ("Exists", json!(null), [false, true, true, true]),
        ("DoesNotExist", json!(null), [true, false, false, false]),
        ("In", json!(["a"]), [false, true, true, false]),
        ("NotIn", json!(["a"]), [true, false, true, true]),
    ] {
        let expression = json!({"scopeName": scope, "operator": operator, "values": values});
        check(json!({"scopeSelector": {"matchExpressions": [expression]}}), expected);
    }
}

#[test]
fn scopes() {
    let none = json!({});
    let best_effort = pod(containers(json!({}), json!({})), none.clone());
    let burstable = pod(containers(json!({"cpu": "1"}), json!({})), none.clone());
    let mut ends = containers(json!({}), json!({}));
    ends["activeDeadlineSeconds"] = json!(5);
    ends["priorityClassName"] = json!("high");
    let ends = pod(ends, none);
    let scoped = |scope: &str| quota(&["pods"], json!({"scopes": [scope]}));
    for (scope, expected) in [
        ("BestEffort", [true, false, true]),
        ("NotBestEffort", [false, true, false]),
        ("Terminating", [false, false, true]),
        ("NotTerminating", [true, true, false]),
        ("PriorityClass", [false, false, true]),
        ("CrossNamespacePodAffinity", [false, false, false]),
    ] {
        let got = [&best_effort, &burstable, &ends].map(|pod| is_subject(&scoped(scope), Object::Pod(pod)));
        assert_eq!(got, expected, "{scope}");
    }
    let select = |operator: &str, values: &[&str]| {
        let expression = json!({"scopeName": "PriorityClass", "operator": operator, "values": values});
        quota(&["pods"], json!({"scopeSelector": {"matchExpressions": [expression]}}))
    };
    for (operator, values, expected) in [
        ("In", &["high"][..], [false, true]),
        ("In", &["low"], [false, false]),
        ("NotIn", &["high"], [true, false]),
        ("Exists", &[], [false, true]),
        ("DoesNotExist", &[], [true, false]),
    ] {
        let got = [&best_effort, &ends].map(|pod| is_subject(&select(operator, values), Object::Pod(pod)));
        assert_eq!(got, expected, "{operator} {values:?}");
    }
    let secret = Object::Other { resource: "secrets", group: "" };
    assert!(!is_subject(&scoped("BestEffort"), secret), "scopes are about pods");
    assert!(is_subject(&quota(&["secrets"], json!({})), secret));
}

#[test]
fn usage_is_what_the_quota_limits() {
    let running = pod(containers(json!({"cpu": "500m"}), json!({})), json!({}));
    let objects =
        [Object::Pod(&running), Object::Pod(&running), Object::Other { resource: "secrets", group: "" }];
    let quota = quota(&["pods", "requests.cpu", "requests.memory", "secrets", "count/jobs.batch"], json!({}));
    assert_eq!(
        print(&usage(&quota, objects.into_iter(), at(0))),
        "count/jobs.batch=0 pods=2 requests.cpu=1 requests.memory=0 secrets=1"
    );
}
