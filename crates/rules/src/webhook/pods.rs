//! What webhooks say to pods, Deployments, StatefulSets and LeaderWorkerSets.

use serde_json::{Value, json};

use super::job::Surroundings;
use super::*;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";
const GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const COUNT: &str = "kueue.x-k8s.io/pod-group-total-count";

fn usual() -> Surroundings {
    Surroundings { in_managed_namespace: true, ..Surroundings::default() }
}

fn pod(labels: Value, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p", "labels": labels, "annotations": annotations },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": {} } }] },
    })
}

fn made(kind: Kind, object: &Value, around: Surroundings) -> Value {
    default(&Review { kind, object, old: None, around, runtime: None }).expect("an object of its kind")
}

fn said(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let (errors, _) = validate(&Review { kind, object, old, around: usual(), runtime: None })
        .expect("an object of its kind");
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn jf_70_a_pod_in_a_queue_waits() {
    let after = made(Kind::Pod, &pod(json!({ QUEUE: "q" }), json!({})), usual());
    assert_eq!(after["metadata"]["labels"], json!({ QUEUE: "q", MANAGED: "true" }));
    assert_eq!(after["metadata"]["finalizers"], json!([MANAGED]));
    assert_eq!(after["metadata"]["annotations"], json!({ "kueue.x-k8s.io/role-hash": "a9f06f3a" }));
    let gates = json!([{ "name": "kueue.x-k8s.io/admission" }, { "name": "kueue.x-k8s.io/topology" }]);
    assert_eq!(after["spec"]["schedulingGates"], gates);
    assert_eq!(made(Kind::Pod, &after, usual()), after, "once is enough");
}

/// JF-2, JF-3, JF-6: what is in no queue, and what is part of something that is, runs as it is.
#[test]
fn jf_6_which_pods_wait() {
    let waits = |pod: &Value, around: Surroundings| made(Kind::Pod, pod, around) != *pod;
    let (plain, queued) = (pod(json!({}), json!({})), pod(json!({ QUEUE: "q" }), json!({})));
    let none = Surroundings::default();
    assert!(!waits(&plain, usual()));
    assert!(!waits(&queued, none), "not in this namespace");
    assert!(!waits(&queued, Surroundings { has_managed_ancestor: true, ..usual() }));
    assert!(!waits(&queued, Surroundings { only_parts: true, ..usual() }));
    assert!(waits(&plain, Surroundings { manages_without_queue_name: true, ..usual() }));
    let by_default = made(Kind::Pod, &plain, Surroundings { has_default_queue: true, ..usual() });
    assert_eq!(by_default["metadata"]["labels"][QUEUE], "default");
    let owner =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true }]);
    let mut of_job = plain.clone();
    of_job["metadata"]["ownerReferences"] = owner.clone();
    assert!(
        !waits(&of_job, Surroundings { has_default_queue: true, ..usual() }),
        "the Job is queued, or nothing"
    );
    let mut named = queued.clone();
    named["metadata"]["ownerReferences"] = owner;
    assert!(waits(&named, usual()));
}

/// MK-STS-01, MK-DEP-01: a part waits as what it is part of says, and is not kept when it ends.
#[test]
fn mk_sts_01_parts_wait_for_the_whole() {
    let part = pod(json!({}), json!({ PARENT: "statefulset" }));
    assert_eq!(made(Kind::Pod, &part, usual()), part, "of a kind that is not queued");
    let around = Surroundings { has_managed_parent: true, only_parts: true, ..Surroundings::default() };
    let after = made(Kind::Pod, &part, around);
    assert_eq!(after["metadata"].get("finalizers"), None);
    assert_eq!(after["metadata"]["labels"], json!({ MANAGED: "true" }));
    assert_eq!(after["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
}

#[test]
fn jf_70_what_is_refused_of_pods() {
    let both = |place: &str| format!("both the '{COUNT}' annotation and the '{GROUP}' {place} should be set");
    let new = |labels: Value, annotations: Value| said(Kind::Pod, &pod(labels, annotations), None);
    assert_eq!(new(json!({ "app": "x" }), json!({})), Vec::<String>::new());
    assert_eq!(
        new(json!({ MANAGED: "yes" }), json!({})),
        [format!("metadata.labels[{MANAGED}]: Forbidden: managed label value can only be 'true'")]
    );
    assert_eq!(
        new(json!({ GROUP: "g" }), json!({})),
        [format!("metadata.annotations[{COUNT}]: Required value: {}", both("label"))]
    );
    assert_eq!(
        new(json!({}), json!({ COUNT: "2" })),
        [format!("metadata.labels[{GROUP}]: Required value: {}", both("label"))]
    );
    assert_eq!(
        new(json!({}), json!({ GROUP: "g" })),
        [format!("metadata.annotations[{COUNT}]: Required value: {}", both("annotation"))]
    );
    assert_eq!(
        new(json!({ GROUP: "g" }), json!({ COUNT: "0" })),
        [format!(
            "metadata.annotations[{COUNT}]: Invalid value: \"0\": incorrect annotation value '{COUNT}=0': group total count should be greater than zero"
        )]
    );
    assert_eq!(new(json!({ GROUP: "g" }), json!({ COUNT: "2" })), Vec::<String>::new());
    let elastic = new(json!({ QUEUE: "q" }), json!({ "kueue.x-k8s.io/elastic-job": "true" }));
    assert!(
        elastic[0].ends_with("Forbidden: elastic job is not supported for \"/v1, Kind=Pod\""),
        "{elastic:?}"
    );
}

/// MK-POD-02: the Workload of a group has its name, whoever makes it.
#[test]
fn mk_pod_02_the_workload_of_a_group_has_its_name() {
    let link = "kueue.x-k8s.io/prebuilt-workload-name";
    let of = |workload: &str| pod(json!({ GROUP: "g" }), json!({ COUNT: "2", link: workload }));
    assert_eq!(said(Kind::Pod, &of("g"), None), Vec::<String>::new());
    assert_eq!(
        said(Kind::Pod, &of("h"), None),
        [format!(
            "metadata.annotations[{link}]: Invalid value: \"h\": prebuilt workload and pod group should be equal"
        )]
    );
}

#[test]
fn jf_70_what_a_pod_keeps() {
    let of = |group: &str| pod(json!({ GROUP: group }), json!({ COUNT: "2" }));
    assert_eq!(
        said(Kind::Pod, &of("h"), Some(&of("g"))),
        [format!("metadata.labels[{GROUP}]: Invalid value: \"h\": field is immutable")]
    );
    let retriable = "kueue.x-k8s.io/retriable-in-group";
    let once = pod(json!({ GROUP: "g" }), json!({ COUNT: "2", retriable: "false" }));
    assert_eq!(
        said(Kind::Pod, &of("g"), Some(&once)),
        [format!(
            "metadata.annotations[{retriable}]: Forbidden: unretriable pod group can't be converted to retriable"
        )]
    );
    let queued = |name: &str| pod(json!({ QUEUE: name }), json!({}));
    assert_eq!(
        said(Kind::Pod, &queued("b"), Some(&queued("a"))),
        [format!("metadata.labels[{QUEUE}]: Invalid value: \"b\": field is immutable")]
    );
    let mut gated = queued("b");
    gated["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
    assert_eq!(said(Kind::Pod, &gated, Some(&queued("a"))), Vec::<String>::new());
}

fn of_apps(labels: Value, replicas: i32, ready: i32) -> Value {
    json!({
        "metadata": { "name": "a", "labels": labels },
        "spec": {
            "replicas": replicas, "selector": {},
            "template": { "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
        "status": { "replicas": ready, "readyReplicas": ready },
    })
}

/// MK-DEP-01: the pods of a Deployment are in its queue, one by one; those of a StatefulSet are told only that they wait.
#[test]
fn mk_dep_01_what_is_passed_on_to_pods() {
    let class = "kueue.x-k8s.io/priority-class";
    let queued = of_apps(json!({ QUEUE: "q", class: "high" }), 1, 0);
    let template = |kind| made(kind, &queued, usual())["spec"]["template"]["metadata"].clone();
    assert_eq!(
        template(Kind::Deployment),
        json!({ "labels": { QUEUE: "q", class: "high", MANAGED: "true" }, "annotations": { PARENT: "deployment" } })
    );
    assert_eq!(template(Kind::StatefulSet), json!({ "annotations": { PARENT: "statefulset" } }));
    let plain = of_apps(json!({}), 1, 0);
    assert_eq!(made(Kind::Deployment, &plain, usual()), plain);
    let mut of_another = queued.clone();
    of_another["spec"]["template"]["metadata"] = json!({ "annotations": { PARENT: "leaderworkerset" } });
    assert_eq!(made(Kind::StatefulSet, &of_another, usual()), of_another);
}

/// MK-STS-02: the pods of a StatefulSet are what they are, and all of them are there or none is.
#[test]
fn mk_sts_02_what_may_change() {
    let of = |queue: &str, replicas: i32, ready: i32| of_apps(json!({ QUEUE: queue }), replicas, ready);
    let changed = |new: Value, old: Value| said(Kind::StatefulSet, &new, Some(&old));
    let immutable = "field is immutable";
    assert_eq!(changed(of("b", 1, 0), of("a", 1, 0)), Vec::<String>::new());
    assert_eq!(
        changed(of("b", 1, 1), of("a", 1, 1)),
        [format!("metadata.labels[{QUEUE}]: Invalid value: \"b\": {immutable}")]
    );
    assert_eq!(
        changed(of("a", 3, 1), of("a", 2, 1)),
        [format!("spec.replicas: Invalid value: 3: {immutable}")]
    );
    assert_eq!(changed(of("a", 0, 1), of("a", 2, 1)), Vec::<String>::new());
    assert_eq!(
        changed(of("a", 2, 1), of("a", 0, 1)),
        ["spec.replicas: Forbidden: scaling down is still in progress"]
    );
    assert_eq!(changed(of("a", 2, 0), of("a", 0, 0)), Vec::<String>::new());
    let lingers = Surroundings { has_lingering_workload: true, ..usual() };
    let (new, old) = (of("a", 2, 0), of("a", 0, 0));
    let review =
        Review { kind: Kind::StatefulSet, object: &new, old: Some(&old), around: lingers, runtime: None };
    let (errors, _) = validate(&review).expect("a StatefulSet");
    let why = "spec.replicas: Forbidden: workload from previous scale-down is still being deleted";
    assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [why]);
    let mut larger = of("a", 1, 0);
    larger["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "2" } });
    let refused = changed(larger, of("a", 1, 0));
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].starts_with("spec.template.spec.containers[0].resources.requests: Invalid value: "),
        "{refused:?}"
    );
    let mut other_image = of("a", 1, 0);
    other_image["spec"]["template"]["spec"]["containers"][0]["image"] = json!("j");
    assert_eq!(changed(other_image, of("a", 1, 0)), Vec::<String>::new());
}

const SERVING: &str = "kueue.x-k8s.io/pod-group-serving";
const OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// A LeaderWorkerSet with two replicas of a leader and two workers.
fn leader_worker_set(labels: Value, more: Value) -> Value {
    let template = |cpu: &str| {
        json!({ "spec": { "containers": [
            { "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } } },
        ] } })
    };
    let mut set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": { "name": "llm", "labels": labels },
        "spec": { "replicas": 2, "leaderWorkerTemplate": {
            "size": 3, "leaderTemplate": template("2"), "workerTemplate": template("1"),
        } },
    });
    for (at, value) in more.as_object().expect("places") {
        crate::framework::custom::set(&mut set, at, value.clone());
    }
    set
}

/// MK-LWS-01: both templates say of what their pods are part, where they wait, and that they never end.
#[test]
fn mk_lws_01_pods_of_a_leader_worker_set_wait() {
    let templates = |set: &Value| {
        ["leaderTemplate", "workerTemplate"]
            .map(|name| set["spec"]["leaderWorkerTemplate"][name]["metadata"].clone())
    };
    let queued = leader_worker_set(json!({ QUEUE: "q", "kueue.x-k8s.io/priority-class": "high" }), json!({}));
    let after = made(Kind::LeaderWorkerSet, &queued, usual());
    let parent = "leaderworkerset.x-k8s.io/leaderworkerset";
    let labels = json!({ QUEUE: "q", "kueue.x-k8s.io/priority-class": "high" });
    let [leader, worker] = templates(&after);
    assert_eq!(leader, json!({ "labels": labels, "annotations": { PARENT: parent, SERVING: "true" } }));
    let annotations = json!({ PARENT: parent, SERVING: "true", OFFSET: "1" });
    assert_eq!(worker, json!({ "labels": labels, "annotations": annotations }));
    assert_eq!(made(Kind::LeaderWorkerSet, &after, usual()), after, "once is enough");
    let unqueued = leader_worker_set(json!({}), json!({}));
    assert_eq!(made(Kind::LeaderWorkerSet, &unqueued, usual()), unqueued);
    let by_default = Surroundings { has_default_queue: true, ..usual() };
    let after = made(Kind::LeaderWorkerSet, &unqueued, by_default);
    assert_eq!(after["metadata"]["labels"][QUEUE], "default");
    assert_eq!(templates(&after)[0]["labels"][QUEUE], "default");
    let alike = leader_worker_set(
        json!({ QUEUE: "q" }),
        json!({ "/spec/leaderWorkerTemplate/leaderTemplate": null }),
    );
    let [leader, worker] = templates(&made(Kind::LeaderWorkerSet, &alike, usual()));
    assert_eq!((leader, worker["annotations"].get(OFFSET)), (Value::Null, None));
    let at =
        "/spec/leaderWorkerTemplate/workerTemplate/metadata/annotations/kueue.x-k8s.io~1podset-group-name";
    let as_one = leader_worker_set(json!({ QUEUE: "q" }), json!({ at: "g" }));
    assert_eq!(templates(&made(Kind::LeaderWorkerSet, &as_one, usual()))[1]["annotations"].get(OFFSET), None);
}

#[test]
fn mk_lws_01_what_is_refused_of_leader_worker_sets() {
    let immutable = "field is immutable";
    let of = |queue: &str, more: Value| leader_worker_set(json!({ QUEUE: queue }), more);
    let new = |more: Value| said(Kind::LeaderWorkerSet, &of("q", more), None);
    assert_eq!(new(json!({})), Vec::<String>::new());
    assert_eq!(
        new(json!({ "/spec/replicas": -1 })),
        ["spec.replicas: Invalid value: -1: invalid LeaderWorkerSet replicas: must be >= 0, got -1"]
    );
    let changed = |new: Value, old: Value| said(Kind::LeaderWorkerSet, &new, Some(&old));
    let ready = json!({ "/status/readyReplicas": 1 });
    assert_eq!(changed(of("b", json!({})), of("a", json!({}))), Vec::<String>::new());
    assert_eq!(
        changed(of("b", ready.clone()), of("a", ready)),
        [format!("metadata.labels[{QUEUE}]: Invalid value: \"b\": {immutable}")]
    );
    assert_eq!(changed(of("a", json!({ "/spec/replicas": 5 })), of("a", json!({}))), Vec::<String>::new());
    let path = "spec.leaderWorkerTemplate";
    assert_eq!(
        changed(of("a", json!({ "/spec/leaderWorkerTemplate/size": 4 })), of("a", json!({}))),
        [format!("{path}.size: Invalid value: 4: {immutable}")]
    );
    let cpu = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/resources/requests/cpu";
    let mut larger = of("a", json!({}));
    *larger.pointer_mut(cpu).expect("a request") = json!("7");
    let refused = changed(larger, of("a", json!({})));
    let expected = format!("{path}.workerTemplate.spec.containers[0].resources.requests: Invalid value: ");
    assert!(refused.len() == 1 && refused[0].starts_with(&expected), "{refused:?}");
    let without = of("a", json!({ "/spec/leaderWorkerTemplate/leaderTemplate": null }));
    assert_eq!(
        changed(without.clone(), of("a", json!({}))),
        [format!("{path}.leaderTemplate: Invalid value: null: {immutable}")]
    );
    assert!(!changed(of("a", json!({})), without).is_empty());
    let image = "/spec/leaderWorkerTemplate/workerTemplate/spec/containers/0/image";
    let mut other = of("a", json!({}));
    *other.pointer_mut(image).expect("an image") = json!("j");
    assert_eq!(changed(other, of("a", json!({}))), Vec::<String>::new());
}

/// TA-9: a leader and its workers are placed as one, or each by itself.
#[test]
fn ta_9_leader_and_workers_as_one() {
    let at = |template: &str, key: &str| {
        let template = format!("/spec/leaderWorkerTemplate/{template}/metadata/annotations");
        format!("{template}/kueue.x-k8s.io~1podset-{key}")
    };
    let new = |more: &[(String, &str)]| {
        let more: serde_json::Map<String, Value> =
            more.iter().map(|(at, value)| (at.clone(), json!(value))).collect();
        said(Kind::LeaderWorkerSet, &leader_worker_set(json!({ QUEUE: "q" }), Value::Object(more)), None)
    };
    let (leader, worker) = ("leaderTemplate", "workerTemplate");
    let both = |level: &'static str| {
        vec![
            (at(leader, "group-name"), "g"),
            (at(leader, "required-topology"), "rack"),
            (at(worker, "group-name"), "g"),
            (at(worker, "required-topology"), level),
        ]
    };
    assert_eq!(new(&both("rack")), Vec::<String>::new());
    let refused = new(&both("block"));
    assert_eq!(refused.len(), 2, "{refused:?}");
    assert!(refused[0].contains("topology consistent with"), "{refused:?}");
    let alone = new(&[(at(worker, "group-name"), "g"), (at(worker, "required-topology"), "rack")]);
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert!(
        alone[0].ends_with("can only define groups of exactly 2 pod sets, got: 1 pod set(s)"),
        "{alone:?}"
    );
}
