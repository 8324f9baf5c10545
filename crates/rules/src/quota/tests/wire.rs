use std::collections::BTreeMap;

use serde_json::{Value, json};
use types::{Amount, kueue};

use super::scenario::{amount, second};
use crate::quota::{
    Moment, Outcome, Policy, Snapshot,
    config::{Config, ReclaimWithinCohort, Topology, WithinClusterQueue},
    decide,
    names::FlavorResource,
    requests::{Accounting, Limits},
    wire::{self, RequeuingTimestamp, Surroundings},
    workload::{Head, Layer, Obstacle, PodSet},
};

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the test writes valid objects")
}

fn pod_sets(workload: &kueue::Workload) -> Result<Vec<PodSet>, Obstacle> {
    let (pod_sets, obstacle) = asked(workload);
    obstacle.map_or(Ok(pod_sets), Err)
}

fn asked(workload: &kueue::Workload) -> (Vec<PodSet>, Option<Obstacle>) {
    let (runtime_overheads, limits, accounting) = (BTreeMap::new(), Limits::default(), Accounting::default());
    let around =
        Surroundings { runtime_overheads: &runtime_overheads, limits: &limits, accounting: &accounting };
    wire::pod_sets(workload, around)
}

fn workload(status: Value) -> kueue::Workload {
    read(json!({
        "metadata": {
            "name": "w", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"kueue.x-k8s.io/job-uid": "j"},
        },
        "spec": {"priority": 7, "podSets": [{
            "count": 4, "minCount": 2,
            "template": {"spec": {
                "nodeSelector": {"zone": "a"},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Mi"}}}],
            }},
        }]},
        "status": status,
    }))
}

fn condition(kind: &str, status: &str, reason: &str, second: u32) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": "", "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z")})
}

/// FS-1: a weight counts to its last digit.
#[test]
fn fs_1_weights_are_exact() {
    for (text, expected) in [("100u", 0.0001), ("900u", 0.0009), ("1.5m", 0.0015), ("2", 2.0), ("0", 0.0)] {
        let cohort = json!({"metadata": {"name": "c"}, "spec": {"fairSharing": {"weight": text}}});
        assert!((wire::cohort(&read(cohort)).weight - expected).abs() < 1e-12, "{text}");
    }
}

#[test]
fn fa_11_from_objects_to_a_decision_and_back() {
    let config = Config {
        flavors: vec![wire::flavor(
            &read(json!({"metadata": {"name": "spot"}, "spec": {"nodeLabels": {"zone": "a"}}})),
            None,
        )],
        cohorts: vec![wire::cohort(&read(json!({"metadata": {"name": "company"}, "spec": {}})))],
        cluster_queues: vec![wire::cluster_queue(
            &read(json!({"metadata": {"name": "team"}, "spec": {
                "cohortName": "company",
                "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": [
                    {"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "1Gi", "borrowingLimit": "0"},
                ]}]}],
                "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority",
                    "borrowWithinCohort": {"policy": "Never"}},
            }})),
            true,
            false,
        )],
    };
    let preemption = config.cluster_queues[0].preemption;
    assert_eq!(preemption.within_cluster_queue, WithinClusterQueue::LowerPriority);
    assert_eq!(preemption.reclaim_within_cohort, ReclaimWithinCohort::Any);
    assert_eq!(preemption.borrow_within_cohort, None);

    let object = workload(json!({}));
    let waiting = wire::waiting(&object, pod_sets(&object).expect("valid"), RequeuingTimestamp::default());
    let head =
        Head { workload: waiting.workload, cluster_queue: "team".into(), obstacle: None, progress: None };
    let plan =
        decide(&Snapshot::new(config), &[head], &Policy::default(), Moment { now: second(0), cycle: 1 });
    assert_eq!(plan.to_string(), "admit ns/w to team with mainx4 cpu=2@spot memory=4Mi@spot\n");
    let Outcome::Admit { pod_sets, .. } = &plan.decisions[0].outcome else { panic!("{plan}") };
    let written = serde_json::to_value(wire::admission("team", pod_sets)).expect("objects are JSON");
    assert_eq!(
        written,
        json!({"clusterQueue": "team", "podSetAssignments": [{
            "name": "main", "count": 4, "flavors": {"cpu": "spot", "memory": "spot"},
            "resourceUsage": {"cpu": "2", "memory": "4Mi"},
        }]})
    );
}

/// SC-10: what counts from the moment of the decision is what the object says once that is written, so that seeing it
/// changes nothing.
#[test]
fn sc_10_what_is_assumed_is_what_is_written() {
    let cluster_queue = wire::cluster_queue(
        &read(json!({"metadata": {"name": "team"}, "spec": {"resourceGroups": [{
            "coveredResources": ["cpu", "memory"], "flavors": [{"name": "spot", "resources": [
                {"name": "cpu", "nominalQuota": "2"}, {"name": "memory", "nominalQuota": "1Gi"},
            ]}],
        }]}})),
        true,
        false,
    );
    let flavor = wire::flavor(&read(json!({"metadata": {"name": "spot"}, "spec": {}})), None);
    let config = Config { flavors: vec![flavor], cohorts: Vec::new(), cluster_queues: vec![cluster_queue] };
    let mut object = workload(json!({}));
    let waiting = wire::waiting(&object, pod_sets(&object).expect("valid"), RequeuingTimestamp::default());
    let head = Head {
        workload: waiting.workload.clone(),
        cluster_queue: "team".into(),
        obstacle: None,
        progress: None,
    };
    let now = second(0) + jiff::SignedDuration::from_millis(321);
    let plan = decide(&Snapshot::new(config), &[head], &Policy::default(), Moment { now, cycle: 1 });
    let Outcome::Admit { pod_sets, .. } = &plan.decisions[0].outcome else { panic!("{plan}") };
    crate::workload::change::reserve(&mut object, wire::admission("team", pod_sets), now);
    let assumed = plan.decisions[0].reservation(&waiting.workload, now);
    assert!(assumed.is_some());
    assert_eq!(assumed, wire::reservation(&object, RequeuingTimestamp::default()));
}

#[test]
fn qu_3_since_when_a_workload_queues() {
    let check = |reason: &str, status: &str, from: RequeuingTimestamp, want: &str| {
        let object = workload(json!({"conditions": [condition("Evicted", status, reason, 30)]}));
        let waiting = wire::waiting(&object, Vec::new(), from);
        assert_eq!(
            waiting.workload.queued_at.to_string(),
            format!("2026-01-01T00:00:{want}Z"),
            "{reason} {status}"
        );
    };
    check("PodsReadyTimeout", "True", RequeuingTimestamp::Eviction, "30");
    check("PodsReadyTimeout", "True", RequeuingTimestamp::Creation, "00");
    check("PodsReadyTimeout", "False", RequeuingTimestamp::Eviction, "00");
    check("AdmissionCheck", "True", RequeuingTimestamp::Creation, "30");
    check("Preempted", "True", RequeuingTimestamp::Eviction, "00");
}

#[test]
fn qu_9_sm_34_what_holds_a_workload_back() {
    let object = workload(json!({
        "conditions": [condition("Requeued", "False", "AdmissionCheck", 1)],
        "requeueState": {"count": 1, "requeueAt": "2026-01-01T00:01:00Z"},
    }));
    let waiting = wire::waiting(&object, Vec::new(), RequeuingTimestamp::default());
    assert!(waiting.held_back);
    assert_eq!(waiting.not_before.map(|time| time.to_string()).as_deref(), Some("2026-01-01T00:01:00Z"));
    assert_eq!(waiting.workload.job_uid.as_deref(), Some("j"));
    assert_eq!(waiting.workload.priority, 7);
}

#[test]
fn sm_3_and_jf_62_what_a_workload_holds() {
    let admitted = |reclaimable: i32, more: Value| {
        workload(json!({
            "conditions": [condition("QuotaReserved", "True", "QuotaReserved", 5), more],
            "reclaimablePods": [{"name": "main", "count": reclaimable}],
            "admission": {"clusterQueue": "team", "podSetAssignments": [
                {"name": "main", "count": 4, "flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "2"}},
            ]},
        }))
    };
    let held = |object: &kueue::Workload| -> Option<Amount> {
        let reservation = wire::reservation(object, RequeuingTimestamp::default())?;
        reservation.usage.get(&FlavorResource::new("spot", "cpu")).copied()
    };
    let nothing = || condition("PodsReady", "True", "Started", 9);
    assert_eq!(held(&admitted(0, nothing())), Some(amount("cpu", 2)));
    assert_eq!(held(&admitted(3, nothing())), Some(Amount::new(500)));
    assert_eq!(held(&admitted(9, nothing())), Some(Amount::ZERO));
    assert_eq!(held(&admitted(0, condition("Finished", "True", "Succeeded", 9))), None);
    let mut inactive = admitted(0, nothing());
    inactive.spec.active = Some(false);
    assert_eq!(held(&inactive), None);
    assert_eq!(held(&workload(json!({}))), None);
    let evicted = wire::reservation(
        &admitted(0, condition("Evicted", "True", "Preempted", 9)),
        RequeuingTimestamp::default(),
    );
    let evicted = evicted.expect("it holds its quota until its pods are gone");
    assert!(evicted.evicted && !evicted.pods_ready);
}

#[test]
fn qm_27_messages() {
    let mut object = workload(json!({}));
    let spec = object.spec.pod_sets[0].template.spec.as_mut().expect("given above");
    spec.containers = read(json!([
        {"name": "a", "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2"}}},
        {"name": "b", "resources": {"requests": {"cpu": "1", "memory": "2"}, "limits": {"cpu": "0", "memory": "1"}}},
    ]));
    let message = "resources validation failed: [\
        spec.podSets[0].template.spec.containers[0]: Invalid value: [\"cpu\"]: requests must not exceed its limits, \
        spec.podSets[0].template.spec.containers[1]: Invalid value: [\"cpu\",\"memory\"]: requests must not exceed its limits]";
    assert_eq!(pod_sets(&object), Err(Obstacle::InvalidResources(message.into())));
    let requests = asked(&object).0.remove(0).requests;
    assert_eq!(requests.get("cpu"), Some(&Amount::new(4000)), "SM-13: it asks for it all the same");
}

#[test]
fn ta_1_what_asks_for_a_topology() {
    let mut object = workload(json!({}));
    let mut topology = |request: Value| {
        object.spec.pod_sets[0].topology_request = Some(read(request));
        pod_sets(&object).expect("valid").remove(0).topology
    };
    assert_eq!(topology(json!({"podIndexLabel": "index"})), None);
    let request =
        topology(json!({"required": "rack", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}));
    let request = request.expect("it asks for a rack");
    let levels = ["block".to_owned(), "rack".to_owned(), "host".to_owned()];
    assert_eq!((request.level(&levels), request.is_anywhere()), (Some("rack"), false));
    assert_eq!(request.slices, [Layer { level: "host".to_owned(), size: 2 }]);
    let anywhere = topology(json!({"unconstrained": true})).expect("it asks for a place");
    assert_eq!((anywhere.level(&levels), anywhere.is_anywhere()), (Some("host"), true));
    let nowhere = topology(json!({"unconstrained": false})).expect("it asks for something");
    assert_eq!((nowhere.level(&levels), nowhere.is_anywhere()), (None, false));
    let layers = json!([{"topology": "block", "size": 4}, {"topology": "host", "size": 2}]);
    let sliced =
        topology(json!({"podsetSliceRequiredTopologyConstraints": layers})).expect("it asks for slices");
    assert_eq!((sliced.level(&levels), sliced.is_anywhere()), (Some("block"), true));
    let racks: kueue::ResourceFlavor =
        read(json!({"metadata": {"name": "racks"}, "spec": {"topologyName": "t"}}));
    let topology = |levels: Option<&[String]>| wire::flavor(&racks, levels).topology;
    let known = |levels: Vec<String>| Some(Topology { name: "t".to_owned(), levels });
    assert_eq!(topology(None), known(Vec::new()));
    assert_eq!(topology(Some(&["rack".into()])), known(vec!["rack".into()]));
}

#[test]
fn qu_4_a_boost_counts_for_nothing_while_its_gate_is_off() {
    let mut object = workload(json!({}));
    let boost = ("kueue.x-k8s.io/priority-boost".to_owned(), "100".to_owned());
    object.metadata.annotations = Some([boost].into());
    let waiting = wire::waiting(&object, Vec::new(), RequeuingTimestamp::default());
    assert_eq!(waiting.workload.priority, 7);
}
