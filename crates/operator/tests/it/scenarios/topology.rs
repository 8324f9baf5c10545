//! Pods that are placed by how nodes are arranged.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use rules::quota::topology::encoding;
use serde_json::{Value, json};
use types::kueue::Workload;

use super::{World, gate_is_measured};
use crate::world::message;

const ADMITTED: [&str; 2] = ["Admitted=True/Admitted", "QuotaReserved=True/QuotaReserved"];
const WAITS: [&str; 1] = ["QuotaReserved=False/Pending"];
const HOST: &str = "kubernetes.io/hostname";

/// Nodes of two racks with two cores each, and a flavor of them that places by racks and hosts.
async fn racks(world: &World) -> anyhow::Result<()> {
    for (rack, host) in [("r1", "a1"), ("r1", "a2"), ("r2", "b1"), ("r2", "b2")] {
        world.node(host, rack, "2").await?;
    }
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    if let Err(error) = world.create(account).await {
        anyhow::ensure!(format!("{error:#}").contains("AlreadyExists"), error);
    }
    let name = world.name_of("racks");
    let levels = json!([{ "nodeLabel": "example.com/rack" }, { "nodeLabel": HOST }]);
    let of = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    world.create(of("Topology", json!({ "levels": levels }))).await?;
    let labels = json!({ "example.com/pool": world.name_of("pool") });
    world.create(of("ResourceFlavor", json!({ "nodeLabels": labels, "topologyName": name }))).await?;
    Ok(())
}

/// A queue with so much of that flavor and of no other.
async fn queue(world: &World, cpu: &str, more: Value) -> anyhow::Result<String> {
    let mut spec = World::quota(cpu)["spec"].clone();
    spec["resourceGroups"][0]["flavors"][0]["name"] = json!(world.name_of("racks"));
    json_patch::merge(&mut spec, &more);
    world.queue("a", cpu, spec).await
}

/// So many pods of one core each that ask for a place.
fn pods(count: i32, asked: Option<(&str, &str)>) -> Value {
    let annotations: Value = asked
        .into_iter()
        .map(|(key, value)| (format!("kueue.x-k8s.io/podset-{key}-topology"), json!(value)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    json!({ "spec": {
        "parallelism": count, "completions": count, "completionMode": "Indexed",
        "template": { "metadata": { "annotations": annotations } },
    } })
}

/// Where the pods of a Workload go, without the names of the scenario.
fn placed(world: &World, workload: &Workload) -> Vec<String> {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    let assigned = admission.and_then(|admission| admission.pod_set_assignments.first());
    let written = assigned.and_then(|assigned| assigned.topology_assignment.as_ref());
    let placement = written.and_then(encoding::decode).unwrap_or_default();
    assert_eq!(placement.levels, [HOST], "{written:?}");
    let name = |host: &str| host.strip_prefix(&world.name_of("")).unwrap_or(host).to_owned();
    placement.domains.iter().map(|it| format!("{}x{}", name(&it.values[0]), it.count)).collect()
}

/// TA-1 to TA-5: pods are placed in one rack, in as few as will do, or wherever there is room; who does not fit waits and says
/// so, and gets in when others are done.
pub(super) async fn ta_4_where_pods_go(world: &World) -> anyhow::Result<()> {
    racks(world).await?;
    queue(world, "20", json!({})).await?;
    let rack = "example.com/rack";
    let one = world.job("one", "a", "1", pods(3, Some(("required", rack)))).await?;
    assert_eq!(placed(world, &world.shows(&one, &ADMITTED).await?), ["a1x2", "a2x1"]);
    let two = world.job("two", "a", "1", pods(2, Some(("preferred", HOST)))).await?;
    assert_eq!(placed(world, &world.shows(&two, &ADMITTED).await?), ["b1x2"]);
    let many = world.job("many", "a", "1", pods(5, Some(("required", rack)))).await?;
    let never = world.shows(&many, &WAITS).await?;
    let excluded = "Total nodes: 4; excluded: resource \"cpu\": 2";
    let why = |topology: &str, fit: &str| {
        let topology = world.name_of(topology);
        format!("couldn't assign flavors to pod set main: topology \"{topology}\" {fit} pod(s). {excluded}")
    };
    assert_eq!(message(&never, "QuotaReserved"), why("racks", "allows to fit only 2 out of 5"));
    world.delete("Job", "many").await?;
    // Who asks for nothing is placed, too, where there is least room.
    let implied = world.job("implied", "a", "1", pods(1, None)).await?;
    assert_eq!(placed(world, &world.shows(&implied, &ADMITTED).await?), ["a2x1"]);
    let last = world.job("last", "a", "1", pods(3, Some(("unconstrained", "true")))).await?;
    let waiting = world.shows(&last, &WAITS).await?;
    let excluded = "Total nodes: 4; excluded: resource \"cpu\": 3";
    assert_eq!(
        message(&waiting, "QuotaReserved"),
        format!(
            "couldn't assign flavors to pod set main: topology \"{}\" allows to fit only 2 out of 3 pod(s). {excluded}",
            world.name_of("racks")
        ),
    );
    world.runs("two").await?;
    world.completes("two").await?;
    assert_eq!(placed(world, &world.shows(&last, &ADMITTED).await?), ["b1x2", "b2x1"]);
    Ok(())
}

/// The node that a pod may be scheduled on, once it may.
async fn goes_to(world: &World, pod: &str) -> anyhow::Result<String> {
    let api: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    let is_free = |pod: &Pod| {
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
        gates.is_none_or(Vec::is_empty)
    };
    let pod = world.until(api, pod, "free to be scheduled", is_free).await?;
    let selector = pod.spec.and_then(|spec| spec.node_selector).unwrap_or_default();
    let host = selector.get(HOST).cloned().unwrap_or_default();
    assert_eq!(selector.get("example.com/pool"), Some(&world.name_of("pool")), "{selector:?}");
    Ok(host.strip_prefix(&world.name_of("")).unwrap_or(&host).to_owned())
}

/// JF-50, JF-54, TA-6: pods wait until their place is known. Those with numbers go to theirs, others to any that is free; and
/// the template is as it was once the Job stops.
pub(super) async fn ta_6_pods_go_where_they_were_placed(world: &World) -> anyhow::Result<()> {
    racks(world).await?;
    let queue = queue(world, "20", json!({})).await?;
    let workload = world.job("job", "a", "1", pods(3, Some(("required", "example.com/rack")))).await?;
    world.shows(&workload, &ADMITTED).await?;
    world.runs("job").await?;
    let gates = |job: &k8s_openapi::api::batch::v1::Job| -> Vec<String> {
        let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        let gates = spec.and_then(|spec| spec.scheduling_gates.as_ref());
        gates.into_iter().flatten().map(|gate| gate.name.clone()).collect()
    };
    assert_eq!(gates(&world.jobs().get("job").await?), ["kueue.x-k8s.io/topology"]);
    for index in ["2", "0", "1"] {
        let label = json!({ "batch.kubernetes.io/job-completion-index": index });
        world.pod_with("job", &format!("p-{index}"), json!({ "metadata": { "labels": label } })).await?;
    }
    for (pod, host) in [("p-0", "a1"), ("p-1", "a1"), ("p-2", "a2")] {
        assert_eq!(goes_to(world, pod).await?, host, "{pod}");
    }
    let plain = json!({ "spec": { "completionMode": "NonIndexed" } });
    let mut loose = pods(2, None);
    json_patch::merge(&mut loose, &plain);
    let workload = world.job("loose", "a", "1", loose).await?;
    assert_eq!(placed(world, &world.shows(&workload, &ADMITTED).await?), ["b1x2"]);
    world.runs("loose").await?;
    let template = world.jobs().get("loose").await?.spec.map(|spec| spec.template).unwrap_or_default();
    let annotations = template.metadata.and_then(|it| it.annotations).unwrap_or_default();
    let implied = annotations.get("kueue.x-k8s.io/podset-unconstrained-topology");
    assert_eq!(implied.map(String::as_str), Some("true"));
    for pod in ["l-0", "l-1"] {
        world.pod_with("loose", pod, json!({})).await?;
        assert_eq!(goes_to(world, pod).await?, "b1", "{pod}");
    }
    world.patch("Workload", &workload, json!({ "spec": { "active": false } })).await?;
    world.stops("loose").await?;
    let stopped = world.sees_job("loose", "restored", |job| gates(job).is_empty()).await?;
    let template = stopped.spec.map(|spec| spec.template).unwrap_or_default();
    let annotations = template.metadata.and_then(|it| it.annotations).unwrap_or_default();
    assert!(!annotations.contains_key("kueue.x-k8s.io/podset-unconstrained-topology"), "{annotations:?}");
    gate_is_measured(world, "topology", &queue, false);
    Ok(())
}

/// TA-3: what pods take that nobody placed is not there, and neither are nodes that take no pods; what becomes free is given.
pub(super) async fn ta_3_what_others_take(world: &World) -> anyhow::Result<()> {
    racks(world).await?;
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let daemon = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "daemon" },
        "spec": { "nodeName": world.name_of("a1"), "containers": [container] },
    });
    world.create(daemon).await?;
    world.patch("Node", &world.name_of("b2"), json!({ "spec": { "unschedulable": true } })).await?;
    queue(world, "20", json!({})).await?;
    let rack = Some(("required", "example.com/rack"));
    let workload = world.job("job", "a", "1", pods(4, rack)).await?;
    let waiting = world.shows(&workload, &WAITS).await?;
    let text = message(&waiting, "QuotaReserved");
    assert!(text.ends_with("allows to fit only 3 out of 4 pod(s)"), "{text}");
    world.patch_status("Pod", "daemon", json!({ "phase": "Succeeded" })).await?;
    assert_eq!(placed(world, &world.shows(&workload, &ADMITTED).await?), ["a1x2", "a2x2"]);
    let second = world.job("second", "a", "1", pods(4, rack)).await?;
    world.shows(&second, &WAITS).await?;
    world.patch("Node", &world.name_of("b2"), json!({ "spec": { "unschedulable": false } })).await?;
    assert_eq!(placed(world, &world.shows(&second, &ADMITTED).await?), ["b1x2", "b2x2"]);
    Ok(())
}

/// PR-6: who is more important pushes out whoever is in its place, though there is quota for both.
pub(super) async fn pr_6_a_place_by_preemption(world: &World) -> anyhow::Result<()> {
    racks(world).await?;
    let within = json!({ "preemption": { "withinClusterQueue": "LowerPriority" } });
    queue(world, "20", within).await?;
    world.class("low", -1).await?;
    world.class("high", 1).await?;
    let rack = Some(("required", "example.com/rack"));
    let of = |class: &str, count: i32| {
        let mut job = pods(count, rack);
        json_patch::merge(&mut job, &world.priority(class));
        job
    };
    let first = world.job("first", "a", "1", of("high", 4)).await?;
    assert_eq!(placed(world, &world.shows(&first, &ADMITTED).await?), ["a1x2", "a2x2"]);
    let low = world.job("low", "a", "1", of("low", 2)).await?;
    assert_eq!(placed(world, &world.shows(&low, &ADMITTED).await?), ["b1x2"]);
    world.runs("low").await?;
    let high = world.job("high", "a", "1", of("high", 4)).await?;
    world.stops("low").await?;
    assert_eq!(placed(world, &world.shows(&high, &ADMITTED).await?), ["b1x2", "b2x2"]);
    let evicted = world.workload(&low, "preempted", |it| !message(it, "Preempted").is_empty()).await?;
    let why = message(&evicted, "Preempted");
    assert!(why.contains("due to prioritization in the ClusterQueue"), "{why}");
    Ok(())
}

/// SM-42: what was placed before a restart is not given to others after it.
pub(super) async fn sm_42_places_survive(world: &mut World) -> anyhow::Result<()> {
    racks(world).await?;
    queue(world, "20", json!({})).await?;
    let rack = Some(("required", "example.com/rack"));
    let before = world.job("before", "a", "1", pods(3, rack)).await?;
    assert_eq!(placed(world, &world.shows(&before, &ADMITTED).await?), ["a1x2", "a2x1"]);
    world.kill().await;
    let after = world.job("after", "a", "1", pods(2, rack)).await?;
    world.start().await;
    assert_eq!(placed(world, &world.shows(&after, &ADMITTED).await?), ["b1x2"]);
    let full = world.job("full", "a", "1", pods(4, rack)).await?;
    world.shows(&full, &WAITS).await?;
    world.shows(&before, &ADMITTED).await?;
    Ok(())
}

/// TA-7: who loses a node without which its pods have no place in the same rack is evicted, and placed anew.
pub(super) async fn ta_7_a_node_is_lost(world: &World) -> anyhow::Result<()> {
    racks(world).await?;
    queue(world, "20", json!({})).await?;
    let rack = Some(("required", "example.com/rack"));
    let workload = world.job("job", "a", "1", pods(4, rack)).await?;
    assert_eq!(placed(world, &world.shows(&workload, &ADMITTED).await?), ["a1x2", "a2x2"]);
    world.runs("job").await?;
    let lost = world.name_of("a1");
    world.delete("Node", &lost).await?;
    let evicted = world.workload(&workload, "evicted", |it| !message(it, "Evicted").is_empty()).await?;
    assert_eq!(
        message(&evicted, "Evicted"),
        format!("Workload was evicted as there was no replacement for unhealthy node(s): {lost}")
    );
    world.stops("job").await?;
    let is_back = |it: &Workload| {
        rules::workload::is_admitted(it)
            && rules::workload::has_quota(it)
            && placed(world, it) == ["b1x2", "b2x2"]
    };
    let again = world.workload(&workload, "placed anew", is_back).await?;
    let evicted = rules::workload::state::find(&again, "Evicted").map(|it| it.reason.clone());
    assert_eq!(evicted.as_deref(), Some("QuotaReserved"), "{again:?}");
    Ok(())
}
