use serde_json::{Value, json};

use super::*;
use crate::framework::priority::Classes;

const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

fn made(mut value: Value, more: &Value) -> Value {
    fn merge(into: &mut Value, more: &Value) {
        match (into, more) {
            (Value::Object(into), Value::Object(more)) => {
                more.iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, more) => *into = more.clone(),
        }
    }
    merge(&mut value, more);
    value
}

/// A LeaderWorkerSet with two replicas of a leader and two workers, in the queue `q`.
fn set(more: &Value) -> LeaderWorkerSet {
    let template = |cpu: &str| {
        json!({
            "metadata": {
                "labels": { "app": "llm", "leaderworkerset.sigs.k8s.io/group-index": "9" },
                "annotations": { PARENT: LEADER_WORKER_SET.framework },
            },
            "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] },
        })
    };
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {
            "name": "llm", "namespace": "ns", "uid": "uid-llm", "labels": { "kueue.x-k8s.io/queue-name": "q" },
        },
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 3, "leaderTemplate": template("2"), "workerTemplate": template("1"),
            },
        },
    });
    let object = serde_json::from_value(made(set, more)).expect("an object");
    LeaderWorkerSet::read(&object).expect("a LeaderWorkerSet")
}

fn pod(more: Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": {
            "name": "llm-0", "namespace": "ns", "uid": "uid-0",
            "labels": { SET_NAME: "llm", GROUP_INDEX: "0", "kueue.x-k8s.io/managed": "true" },
            "annotations": { PARENT: LEADER_WORKER_SET.framework },
        },
        "spec": { "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }], "containers": [] },
    });
    Arc::new(serde_json::from_value(made(pod, &more)).expect("a Pod"))
}

fn decided(set: &LeaderWorkerSet, pods: &[Arc<Pod>], workloads: &[Arc<Workload>]) -> Todo {
    let classes = Classes { workload: &|_| Some(7), pod: &|_| None, default: None };
    let copied_labels = ["team".to_owned()];
    let seen = Seen {
        set,
        pods,
        workloads,
        manages_without_queue_name: false,
        copied_labels: &copied_labels,
        classes,
    };
    decide(&seen)
}

fn texts(todo: &Todo) -> Vec<String> {
    match todo {
        Todo::Workloads(plans) => plans.iter().map(ToString::to_string).collect(),
        Todo::Pods(_) => vec![todo.to_string()],
    }
}

/// The Workloads that are made for a set of which there is nothing yet.
fn created(set: &LeaderWorkerSet) -> Vec<Arc<Workload>> {
    let Todo::Workloads(plans) = decided(set, &[], &[]) else { panic!("there are no pods") };
    let workloads = plans.into_iter().filter_map(|plan| match plan.step {
        Step::Create(workload) => Some(Arc::from(workload)),
        _ => None,
    });
    workloads.collect()
}

/// The names are those that Kueue gives (MK-WIRE-03).
#[test]
fn mk_lws_01_each_replica_has_a_workload() {
    let set = set(&json!({ "metadata": { "labels": { "team": "a" } } }));
    let workloads = created(&set);
    let names: Vec<_> = workloads.iter().filter_map(|it| it.metadata.name.clone()).collect();
    assert_eq!(names, [name(&set.metadata, "0"), name(&set.metadata, "1")]);
    assert!(names[1].starts_with("leaderworkerset-llm-1-"), "{names:?}");
    let Workload { metadata, spec, .. } = &*workloads[1];
    let annotations = metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/component-workload-index"], "1");
    assert_eq!(
        annotations["kueue.x-k8s.io/job-owner-gvk"],
        "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet"
    );
    assert_eq!(annotations["kueue.x-k8s.io/job-owner-name"], "llm");
    assert_eq!(annotations["kueue.x-k8s.io/is-group-workload"], "true");
    let labels = metadata.labels.clone().unwrap_or_default();
    assert_eq!((labels["team"].as_str(), labels["kueue.x-k8s.io/job-uid"].as_str()), ("a", "uid-llm"));
    let owner = &metadata.owner_references.as_deref().unwrap_or_default()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("uid-llm", None));
    assert_eq!(spec.queue_name.as_deref(), Some("q"));
    let sets: Vec<_> = spec.pod_sets.iter().map(|it| (it.name(), it.count)).collect();
    assert_eq!(sets, [(LEADER, 1), (WORKER, 2)]);
    let label = spec.pod_sets[1].topology_request.as_ref().and_then(|it| it.pod_index_label.clone());
    assert_eq!(label.as_deref(), Some(WORKER_INDEX));
    assert_eq!(spec.pod_sets[0].topology_request, None);
    let marks = spec.pod_sets[0].template.metadata.clone().and_then(|it| it.labels).unwrap_or_default();
    assert_eq!(marks.keys().collect::<Vec<_>>(), ["app"], "its controller's marks are of one replica");
}

#[test]
fn mk_lws_01_pods_that_are_all_alike_are_one_pod_set() {
    let alike = set(&json!({ "spec": { "leaderWorkerTemplate": { "leaderTemplate": null } } }));
    let sets: Vec<_> = alike.pod_sets().expect("pods").into_iter().map(|it| (it.name, it.count)).collect();
    assert_eq!(sets, [(Some("main".to_owned()), 3)]);
    let small = set(&json!({ "spec": { "replicas": null, "leaderWorkerTemplate": { "size": null } } }));
    assert_eq!(created(&small).len(), 1);
    assert_eq!(small.pod_sets().expect("pods")[1].count, 0);
}

/// Replicas come and go, and so do their Workloads; those that a rollout adds count for as long as it lasts.
#[test]
fn mk_lws_01_workloads_follow_replicas() {
    let two = set(&json!({}));
    let all = created(&two);
    assert_eq!(texts(&decided(&two, &[], &all)), ["wait, because its Workloads are as they should be"]);
    let one = set(&json!({ "spec": { "replicas": 1 } }));
    let deletes = |todo: &Todo| texts(todo).iter().filter(|text| text.starts_with("delete")).count();
    assert_eq!(deletes(&decided(&one, &[], &all)), 1);
    let mut leaving = Workload::clone(&all[1]);
    leaving.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    assert_eq!(deletes(&decided(&one, &[], &[Arc::clone(&all[0]), Arc::new(leaving)])), 0);
    let surging = |updated: i32, surge: Value| {
        let update = json!({ "rollingUpdateConfiguration": { "maxSurge": surge } });
        let status = json!({ "replicas": 2, "updatedReplicas": updated });
        set(&json!({ "spec": { "replicas": 1, "rolloutStrategy": update }, "status": status }))
    };
    assert_eq!(deletes(&decided(&surging(0, json!(1)), &[], &all)), 0);
    assert_eq!(deletes(&decided(&surging(0, json!("1")), &[], &all)), 0);
    assert_eq!(deletes(&decided(&surging(0, json!("50%")), &[], &all)), 1, "of a percentage nothing is made");
    assert_eq!(deletes(&decided(&surging(1, json!(1)), &[], &all)), 1, "the rollout is over");
}

#[test]
fn mk_lws_01_workloads_follow_the_queue_and_the_priority() {
    let before = created(&set(&json!({ "spec": { "replicas": 1 } })));
    let moved = json!({
        "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "r", "kueue.x-k8s.io/priority-class": "high" } },
        "spec": { "replicas": 1 },
    });
    let Todo::Workloads(plans) = decided(&set(&moved), &[], &before) else { panic!("there are no pods") };
    let [Plan { step: Step::Update { next, .. }, .. }] = plans.as_slice() else { panic!("{plans:?}") };
    assert_eq!((next.spec.queue_name.as_deref(), next.spec.priority), (Some("r"), Some(7)));
}

/// What a manager has sent has the names of what it was sent for, and Workloads that were sent with it (MK-WIRE-03, MK-WRK-10).
#[test]
fn mk_wrk_10_a_mirror_gets_no_workloads() {
    let here = set(&json!({}));
    let mirror = set(&json!({ "metadata": {
        "uid": "another", "labels": { "kueue.x-k8s.io/multikueue-origin": "multikueue" },
        "annotations": { "kueue.x-k8s.io/multikueue-origin-uid": "uid-llm" },
    } }));
    assert_eq!(texts(&decided(&mirror, &[], &[])), ["wait, because its Workloads are as they should be"]);
    assert_eq!(name(&mirror.metadata, "1"), name(&here.metadata, "1"));
    let Todo::Pods(pods) = decided(&mirror, &[pod(json!({}))], &[]) else { panic!("a pod joins") };
    assert_eq!(group_name(&pods[0].metadata), Some(name(&here.metadata, "0").as_str()));
}

#[test]
fn mk_lws_01_pods_join_the_group_of_their_replica() {
    let set = set(&json!({}));
    let all = created(&set);
    let joined = |more: Value| match decided(&set, &[pod(more)], &all) {
        Todo::Pods(pods) => Some(pods[0].metadata.annotations.clone().unwrap_or_default()),
        Todo::Workloads(_) => None,
    };
    let leader = joined(json!({})).expect("it joins");
    assert_eq!(leader["kueue.x-k8s.io/pod-group-name"], name(&set.metadata, "0"));
    assert_eq!(leader["kueue.x-k8s.io/prebuilt-workload-name"], name(&set.metadata, "0"));
    assert_eq!(leader["kueue.x-k8s.io/pod-group-total-count"], "3");
    assert_eq!(leader["kueue.x-k8s.io/role-hash"], LEADER);
    let led = json!({ "metadata": { "annotations": { LEADER_NAME: "llm-0" } } });
    assert_eq!(joined(led).expect("it joins")["kueue.x-k8s.io/role-hash"], WORKER);
    let unnumbered = json!({ "metadata": { "labels": { GROUP_INDEX: "" } } });
    assert_eq!(joined(unnumbered), None, "its controller has not said yet where it belongs");
    let Todo::Pods(pods) = decided(&set, &[pod(json!({}))], &all) else { panic!("a pod joins") };
    let there = [Arc::new(pods[0].clone())];
    assert_eq!(texts(&decided(&set, &there, &all)), ["wait, because its Workloads are as they should be"]);
}

/// The Workloads come first: a pod is told of none that is not there.
#[test]
fn mk_lws_01_workloads_come_before_pods() {
    let set = set(&json!({}));
    assert!(matches!(decided(&set, &[pod(json!({}))], &[]), Todo::Workloads(plans) if plans.len() == 2));
}

#[test]
fn mk_lws_02_how_many_replicas_there_can_be() {
    assert_eq!(replicas(None), Ok(1));
    assert_eq!(replicas(Some(0)), Ok(0));
    assert_eq!(replicas(Some(1_000_000)), Ok(1_000_000));
    let refused = |count| replicas(Some(count)).expect_err("too few or too many");
    assert_eq!(refused(-1), "invalid LeaderWorkerSet replicas: must be >= 0, got -1");
    assert_eq!(refused(1_000_001), "invalid LeaderWorkerSet replicas: must be <= 1000000, got 1000001");
}
