use serde_json::{Value, json};

use super::*;

fn set(spec: Value) -> DaemonSet {
    let mut all = json!({
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "d", "namespace": "n", "uid": "set"}, "spec": all}))
        .expect("a set")
}

fn node(name: &str, more: Value) -> Node {
    let mut node = json!({"metadata": {"name": name, "labels": {"name": name}}, "spec": {}});
    for (key, value) in more.as_object().into_iter().flatten() {
        node["spec"][key] = value.clone();
    }
    serde_json::from_value(node).expect("a node")
}

struct World {
    set: DaemonSet,
    revisions: Vec<ControllerRevision>,
    nodes: Vec<Node>,
    pods: Vec<Pod>,
    uids: usize,
}

impl World {
    fn new(set: DaemonSet, nodes: Vec<Node>) -> Self {
        World { set, nodes, revisions: Vec::new(), pods: Vec::new(), uids: 0 }
    }

    fn plan(&self) -> Plan {
        let (revisions, pods, nodes): (Vec<_>, Vec<_>, Vec<_>) =
            (self.revisions.iter().collect(), self.pods.iter().collect(), self.nodes.iter().collect());
        decide(&self.set, &revisions, &pods, &nodes, Timestamp::UNIX_EPOCH)
    }

    /// Takes one step; pods are bound and become ready at once.
    fn step(&mut self) -> Vec<String> {
        let mut plan = self.plan();
        while let Some(step) = plan.revision.take() {
            if let revisions::Step::Create(revision) = step {
                self.revisions.push(*revision);
            }
            plan = self.plan();
        }
        let mut told = Vec::new();
        for mut pod in plan.create {
            self.uids += 1;
            let node = node_of(&pod).expect("a node").to_owned();
            let spec = pod.spec.as_mut().expect("a spec");
            told.push(format!("create {} on {node}", spec.containers[0].image.clone().unwrap_or_default()));
            spec.node_name = Some(node);
            pod.metadata.uid = Some(format!("uid-{}", self.uids));
            pod.metadata.name = Some(format!("d-{}", self.uids));
            let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            pod.status = Some(serde_json::from_value(status).expect("a status"));
            self.pods.push(pod);
        }
        for gone in plan.delete {
            let place = self.pods.iter().position(|pod| pod.metadata.uid.as_ref() == Some(&gone.uid));
            let pod = self.pods.remove(place.expect("a known pod"));
            told.push(format!("delete from {}", node_of(&pod).expect("a node")));
        }
        if let Some(status) = plan.status {
            self.set.status = Some(*status);
        }
        told
    }

    fn settle(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..100 {
            let step = self.step();
            if step.is_empty() {
                return told;
            }
            told.extend(step);
        }
        panic!("it does not settle: {told:?}");
    }

    fn image(&mut self, image: &str) {
        let spec = self.set.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a template");
        spec.containers[0].image = Some(image.to_owned());
    }
}

fn taint(effect: &str) -> Value {
    json!({"taints": [{"key": "k", "effect": effect}]})
}

#[test]
fn every_node_that_is_meant_has_a_pod() {
    let mut world = World::new(set(json!({})), vec![node("a", json!({})), node("b", taint("NoSchedule"))]);
    assert_eq!(world.settle(), ["create one on a"]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!(
        (status.desired_number_scheduled, status.current_number_scheduled, status.number_available),
        (1, 1, Some(1))
    );
    world.nodes.push(node("c", json!({})));
    assert_eq!(world.settle(), ["create one on c"]);
    world.nodes[0] = node("a", taint("NoSchedule"));
    assert_eq!(world.settle(), Vec::<String>::new(), "a pod that is there may stay");
    assert_eq!(world.set.status.as_ref().map(|status| status.number_misscheduled), Some(1));
    world.nodes[0] = node("a", taint("NoExecute"));
    assert_eq!(world.settle(), ["delete from a"]);
    world.nodes.pop();
    assert_eq!(world.settle(), ["delete from c"], "pods go with their node");
}

#[test]
fn updates_keep_within_what_may_be_missing() {
    let nodes = ["a", "b", "c"].map(|name| node(name, json!({}))).to_vec();
    let mut world = World::new(set(json!({})), nodes.clone());
    world.settle();
    world.image("two");
    assert_eq!(world.step(), ["delete from a"]);
    assert_eq!(world.step(), ["create two on a"]);
    assert_eq!(world.settle().len(), 4);
    assert_eq!(world.set.status.as_ref().and_then(|status| status.updated_number_scheduled), Some(3));
    let surging = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}});
    let mut world = World::new(set(surging), nodes);
    world.settle();
    world.image("two");
    assert_eq!(world.step(), ["create two on a"]);
    assert_eq!(world.step(), ["delete from a"]);
    assert_eq!(world.settle().len(), 4);
}

#[test]
fn pods_that_ended_are_replaced_and_spare_ones_deleted() {
    let mut world = World::new(set(json!({})), vec![node("a", json!({}))]);
    world.settle();
    world.pods[0].status.get_or_insert_default().phase = Some("Failed".to_owned());
    let plan = world.plan();
    assert_eq!(
        plan.events,
        [(
            "Warning",
            "FailedDaemonPod",
            "Found failed daemon pod n/d-1 on node a, will try to kill it".to_owned()
        )]
    );
    assert_eq!(world.settle(), ["delete from a", "create one on a"]);
    let mut spare = world.pods[0].clone();
    spare.metadata.uid = Some("spare".to_owned());
    spare.metadata.name = Some("z".to_owned());
    world.pods.push(spare);
    assert_eq!(world.settle(), ["delete from a"]);
    let pod = &world.pods[0];
    assert_eq!(pod.metadata.name.as_deref(), Some("d-2"), "the older one stays");
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).expect("tolerations");
    assert_eq!(tolerations.len(), 6);
}
