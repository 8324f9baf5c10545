//! What webhooks say to pods, Deployments and StatefulSets.

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
    default(&Review { kind, object, old: None, around }).expect("an object of its kind")
}

fn said(kind: Kind, object: &Value, old: Option<&Value>) -> Vec<String> {
    let (errors, _) =
        validate(&Review { kind, object, old, around: usual() }).expect("an object of its kind");
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
    let review = Review { kind: Kind::StatefulSet, object: &new, old: Some(&old), around: lingers };
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
