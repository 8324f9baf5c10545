//! What queues would say, by what is in them.

use serde_json::json;

use super::*;
use types::kueue::Workload;

fn cluster_queue(name: &str, cpu: &str, more: Value) -> ClusterQueue {
    let quota = json!([{ "name": "f", "resources": [{ "name": "cpu", "nominalQuota": cpu }] }]);
    let mut spec = json!({ "namespaceSelector": {}, "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": quota }] });
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    kueue("ClusterQueue", name, spec)
}

fn kueue<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: Value) -> K {
    let metadata = json!({ "name": name, "namespace": "default", "uid": name });
    let api_version = "kueue.x-k8s.io/v1beta2";
    let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
    serde_json::from_value(object).expect("an object")
}

/// A Workload of one pod, created in this second, that waits.
fn workload(name: &str, resource: &str, amount: &str, second: u8) -> Workload {
    let requests = json!({ "requests": { resource: amount } });
    let spec = json!({ "containers": [{ "name": "c", "resources": requests }] });
    let sets = json!([{ "name": "main", "count": 1, "template": { "spec": spec } }]);
    let mut workload: Workload = kueue("Workload", name, json!({ "queueName": "q", "podSets": sets }));
    let time = format!("2026-01-01T00:00:{second:02}Z");
    workload.metadata.creation_timestamp = Some(serde_json::from_value(json!(time)).expect("a time"));
    workload
}

/// The same with quota.
fn admitted(name: &str, cpu: &str, second: u8) -> Workload {
    let mut workload = workload(name, "cpu", cpu, second);
    let assigned =
        json!([{ "name": "main", "flavors": { "cpu": "f" }, "resourceUsage": { "cpu": cpu }, "count": 1 }]);
    let condition = json!({
        "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": format!("2026-01-01T00:00:{second:02}Z"),
    });
    let status = json!({ "admission": { "clusterQueue": "cq", "podSetAssignments": assigned }, "conditions": [condition] });
    workload.status = Some(serde_json::from_value(status).expect("a status"));
    workload
}

fn books(queue: ClusterQueue, workloads: &[Workload]) -> Books {
    Books {
        local_queues: vec![kueue("LocalQueue", "q", json!({ "clusterQueue": "cq" }))],
        cluster_queues: vec![queue],
        flavors: vec![kueue("ResourceFlavor", "f", json!({}))],
        workloads: workloads.to_vec(),
        namespace: Some(BTreeMap::new()),
        ..Books::default()
    }
}

#[track_caller]
fn check(books: &Books, asks: &Workload, verdict: Verdict, why: &str) {
    let now = "2026-01-01T00:01:00Z".parse().expect("a time");
    let answer = books.ask(asks, now);
    assert_eq!((answer.verdict, answer.why.as_str()), (verdict, why));
}

#[test]
fn what_would_admit_it() {
    let asks = workload("a", "cpu", "4", 30);
    let queue = || cluster_queue("cq", "8", json!({}));
    check(&books(queue(), &[]), &asks, Verdict::Fits, "there is room for it");
    let busy = [admitted("small", "1", 1), admitted("large", "6", 2)];
    check(&books(queue(), &busy), &asks, Verdict::Waits, "cpu 3 more needed: when large ends");
    let busy = [admitted("one", "3", 1), admitted("two", "3", 2), admitted("three", "2", 3)];
    check(&books(queue(), &busy), &asks, Verdict::Waits, "cpu 4 more needed: when one and two have ended");
    check(
        &books(queue(), &[]),
        &workload("a", "cpu", "9", 30),
        Verdict::Never,
        "asks for cpu 9, and there is 8 at most: ask for less, or raise the quota",
    );
    check(
        &books(queue(), &[]),
        &workload("a", "example.com/gpu", "1", 30),
        Verdict::Never,
        "there is no quota for example.com/gpu at all: leave it out, or add it to the ClusterQueue",
    );
    check(
        &books(queue(), &[admitted("a", "4", 1)]),
        &asks,
        Verdict::Holds,
        "it has quota, and waits for its checks",
    );
}

/// What a Job with quota waits for is what its checks say.
#[test]
fn checks_that_are_not_passed() {
    let queue = || cluster_queue("cq", "8", json!({}));
    let waits = |state: &str, message: &str, why: &str| {
        let mut holds = admitted("a", "4", 1);
        let state =
            json!({ "name": "fleet", "state": state, "lastTransitionTime": null, "message": message });
        let status = holds.status.as_mut().expect("a status");
        status.admission_checks = serde_json::from_value(json!([state])).expect("checks");
        let why = format!("it has quota, and waits for its checks{why}");
        check(&books(queue(), &[holds]), &workload("a", "cpu", "4", 30), Verdict::Holds, &why);
    };
    waits("Ready", "", "");
    waits("Pending", "", ": fleet (Pending)");
    waits("Retry", "no machines", ": fleet (Retry: no machines)");
}

/// What a flavor keeps for others, and what a cohort lends.
#[test]
fn taints_and_cohorts() {
    let asks = workload("a", "cpu", "4", 30);
    let mut tainted = books(cluster_queue("cq", "8", json!({})), &[]);
    let taints = json!([{ "key": "gpu", "value": "yes", "effect": "NoSchedule" }]);
    tainted.flavors = vec![kueue("ResourceFlavor", "f", json!({ "nodeTaints": taints }))];
    let now = "2026-01-01T00:01:00Z".parse().expect("a time");
    let answer = tainted.ask(&asks, now);
    assert_eq!(answer.verdict, Verdict::Never);
    assert!(answer.why.contains("gpu"), "{}", answer.why);

    let small = || cluster_queue("cq", "2", json!({ "cohortName": "all" }));
    let mut lends = books(small(), &[]);
    lends.cluster_queues.push(cluster_queue("rich", "6", json!({ "cohortName": "all" })));
    check(&lends, &asks, Verdict::Fits, "there is room for it, by borrowing");
    assert_eq!(amounts(&lends.ask(&asks, now).needs()), "cpu 4");
    assert_eq!(lends.ask(&asks, now).shares["cpu"].total, Amount::new(8000));
    check(
        &books(small(), &[]),
        &asks,
        Verdict::Never,
        "asks for cpu 4, and there is 2 at most: ask for less, or raise the quota",
    );
}

/// Where pods are placed by topology, quota alone lets nobody in.
#[test]
fn what_was_said_of_places() {
    let mut racks = books(cluster_queue("cq", "8", json!({})), &[]);
    racks.flavors = vec![kueue("ResourceFlavor", "f", json!({ "topologyName": "t" }))];
    let mut asks = workload("a", "cpu", "4", 30);
    let request = json!({ "required": "example.com/rack" });
    asks.spec.pod_sets[0].topology_request = Some(serde_json::from_value(request).expect("a request"));
    check(&racks, &asks, Verdict::Fits, "there is room for it");
    let why = "couldn't assign flavors to pod set main: topology \"t\" allows to fit only 1 out of 2 pod(s)";
    let said = json!([{
        "type": "QuotaReserved", "status": "False", "reason": "Pending", "message": why,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    let status = asks.status.get_or_insert_default();
    status.conditions = serde_json::from_value(said).expect("conditions");
    racks.workloads = vec![asks.clone()];
    check(&racks, &asks, Verdict::Waits, why);
}

#[test]
fn who_would_have_to_go() {
    let preemption = json!({ "preemption": { "withinClusterQueue": "LowerPriority" } });
    let mut asks = workload("a", "cpu", "4", 30);
    asks.spec.priority = Some(5);
    let busy = [admitted("small", "1", 1), admitted("large", "6", 2)];
    check(
        &books(cluster_queue("cq", "8", preemption), &busy),
        &asks,
        Verdict::Preempts,
        "takes the place of large",
    );
}

#[test]
fn queues_that_are_not_there_or_closed() {
    let asks = workload("a", "cpu", "4", 30);
    let closed = |change: &dyn Fn(&mut Books), why: &str| {
        let mut books = books(cluster_queue("cq", "8", json!({})), &[]);
        change(&mut books);
        check(&books, &asks, Verdict::Closed, why);
    };
    closed(&|books| books.namespace = None, "there is no namespace default");
    closed(&|books| books.local_queues.clear(), "there is no queue q in namespace default");
    closed(&|books| books.cluster_queues.clear(), "queue q leads to ClusterQueue cq, which is not there");
    let hold =
        |books: &mut Books| books.local_queues[0].spec.stop_policy = Some(types::kueue::StopPolicy::Hold);
    closed(&hold, "queue q is stopped (Hold) until its spec.stopPolicy is None");
    let cordon = |books: &mut Books| {
        hold(books);
        let fields = json!([{
            "manager": "ferry-cordon", "operation": "Apply", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:spec": { "f:stopPolicy": {} } },
        }]);
        books.local_queues[0].metadata.managed_fields = serde_json::from_value(fields).expect("fields");
    };
    closed(&cordon, "queue q is stopped (Hold) until ferry uncordon");
    closed(
        &|books| books.cluster_queues[0].spec.namespace_selector = None,
        "workload namespace doesn't match ClusterQueue selector",
    );
}

#[test]
fn numbers_and_the_place_in_the_queue() {
    let asks = workload("b", "cpu", "4", 30);
    let all =
        [admitted("x", "6", 1), workload("a", "cpu", "4", 29), asks.clone(), workload("c", "cpu", "1", 31)];
    let now = "2026-01-01T00:01:00Z".parse().expect("a time");
    let answer = books(cluster_queue("cq", "8", json!({})), &all).ask(&asks, now);
    assert_eq!(answer.position, Some((2, 3)));
    // Those come first whose LocalQueue used less, where the ClusterQueue wants it so and use is written down.
    let mode = json!({ "admissionScope": { "admissionMode": "UsageBasedAdmissionFairSharing" } });
    let mut shared = books(cluster_queue("cq", "8", mode), &all);
    shared.local_queues.push(kueue("LocalQueue", "other", json!({ "clusterQueue": "cq" })));
    shared.workloads[3].spec.queue_name = Some("other".to_owned());
    assert_eq!(shared.ask(&asks, now).position, Some((2, 3)), "QU-2");
    let used = json!({ "consumedResources": { "cpu": "3" }, "lastUpdate": "2026-01-01T00:00:00Z" });
    let status = json!({ "fairSharing": { "admissionFairSharingStatus": used } });
    shared.local_queues[0].status = Some(serde_json::from_value(status).expect("a status"));
    assert_eq!(shared.ask(&asks, now).position, Some((3, 3)), "QU-2");
    assert_eq!(answer.shares["cpu"], Share { used: Amount::new(6000), total: Amount::new(8000) });
    assert_eq!(amounts(&answer.needs()), "cpu 4");
    assert_eq!(answer.since, asks.metadata.creation_timestamp.map(|time| time.0));
}
