use std::cell::RefCell;

use serde_json::{Value, json};

use super::*;

/// A cluster in which nothing but a StatefulSet happens.
struct World {
    set: StatefulSet,
    revisions: Vec<ControllerRevision>,
    pods: Vec<Pod>,
    claims: RefCell<BTreeMap<String, PersistentVolumeClaim>>,
    now: Timestamp,
    uids: usize,
}

impl World {
    fn new(spec: Value) -> Self {
        let mut all = json!({
            "selector": {"matchLabels": {"app": "x"}}, "serviceName": "web", "replicas": 3,
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "one"}]}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            all[key] = value.clone();
        }
        let set = json!({"metadata": {"name": "web", "namespace": "n", "uid": "set", "generation": 1}, "spec": all});
        let set = serde_json::from_value(set).expect("a set");
        World {
            set,
            revisions: Vec::new(),
            pods: Vec::new(),
            claims: RefCell::default(),
            now: Timestamp::UNIX_EPOCH,
            uids: 0,
        }
    }

    fn plan(&self) -> Plan {
        let revisions: Vec<&ControllerRevision> = self.revisions.iter().collect();
        let pods: Vec<&Pod> = self.pods.iter().collect();
        let claim = |name: &str| self.claims.borrow().get(name).cloned();
        decide(&Observed { set: &self.set, revisions: &revisions, pods: &pods, claim: &claim }, self.now)
    }

    /// Takes one step, and tells what was done to pods and claims.
    fn step(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        let mut plan = self.plan();
        while let Some(step) = plan.revision.take() {
            match step {
                revisions::Step::Create(revision) => self.revisions.push(*revision),
                revisions::Step::Renumber { name, revision } => {
                    let found = self.revisions.iter_mut().find(|it| it.metadata.name.as_ref() == Some(&name));
                    found.expect("a known revision").revision = revision;
                }
            }
            plan = self.plan();
        }
        for step in plan.steps {
            match step {
                Step::CreateClaim(claim, _) => {
                    let name = name_in(&claim.metadata);
                    told.push(format!("claim {name}"));
                    self.claims.borrow_mut().insert(name, *claim);
                }
                Step::OwnClaim { name, owners, .. } => {
                    let kinds: Vec<&str> = owners.iter().map(|owner| owner.kind.as_str()).collect();
                    told.push(format!("{name} follows {}", kinds.join(",")));
                    let mut claims = self.claims.borrow_mut();
                    let claim = claims.get_mut(&name).expect("a known claim");
                    claim.metadata.owner_references = Some(owners);
                }
                Step::Create(pod) => {
                    let image = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
                    told.push(format!("create {} {}", name_of(&pod), image.unwrap_or_default()));
                    self.uids += 1;
                    let mut pod = *pod;
                    pod.metadata.uid = Some(format!("uid-{}", self.uids));
                    pod.status.get_or_insert_default().phase = Some("Pending".to_owned());
                    self.pods.push(pod);
                }
                Step::Delete(pod) => {
                    told.push(format!("delete {}", pod.name));
                    self.pods.retain(|it| it.metadata.uid.as_ref() != Some(&pod.uid));
                }
                Step::Label(pod, _) => told.push(format!("label {pod}")),
            }
        }
        if let Some(status) = plan.status {
            self.set.status = Some(*status);
        }
        told
    }

    /// All pods become ready.
    fn ready(&mut self) {
        let condition =
            json!({"type": "Ready", "status": "True", "lastTransitionTime": self.now.to_string()});
        for pod in self.pods.iter_mut().filter(|pod| ready_since(pod).is_none()) {
            let status = json!({"phase": "Running", "conditions": [condition]});
            pod.status = Some(serde_json::from_value(status).expect("a status"));
        }
    }

    /// Goes on, with all pods becoming ready before each step, until nothing happens any more.
    fn settle(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..100 {
            self.ready();
            let step = self.step();
            if step.is_empty() {
                return told;
            }
            told.extend(step);
        }
        panic!("it does not settle: {told:?}");
    }

    fn spec(&mut self) -> &mut StatefulSetSpec {
        self.set.metadata.generation = self.set.metadata.generation.map(|it| it + 1);
        self.set.spec.as_mut().expect("a spec")
    }

    fn image(&mut self, image: &str) {
        let template = self.spec().template.spec.as_mut().expect("a template");
        template.containers[0].image = Some(image.to_owned());
    }
}

#[test]
fn pods_come_and_go_in_order() {
    let mut world = World::new(json!({}));
    assert_eq!(world.step(), ["create web-0 one"]);
    assert_eq!(world.step(), Vec::<String>::new(), "the next waits until the first is ready");
    assert_eq!(world.settle(), ["create web-1 one", "create web-2 one"]);
    let labels = world.pods[0].metadata.labels.clone().expect("labels");
    assert_eq!(labels[POD_NAME], "web-0");
    assert_eq!(labels[POD_INDEX], "0");
    assert_eq!(Some(&labels[REVISION_LABEL]), world.revisions[0].metadata.name.as_ref());
    world.spec().replicas = Some(1);
    assert_eq!(world.step(), ["delete web-2"]);
    assert_eq!(world.settle(), ["delete web-1"]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!((status.replicas, status.ready_replicas, status.current_replicas), (1, Some(1), Some(1)));
}

#[test]
fn parallel_sets_do_not_wait() {
    let mut world = World::new(json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}}));
    assert_eq!(world.step(), ["create web-5 one", "create web-6 one", "create web-7 one"]);
    world.spec().replicas = Some(1);
    assert_eq!(world.step(), ["delete web-7", "delete web-6"]);
}

#[test]
fn updates_go_from_the_last_to_the_partition_and_back() {
    let mut world = World::new(json!({}));
    world.settle();
    world.spec().update_strategy =
        serde_json::from_value(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}))
            .expect("one");
    world.image("two");
    assert_eq!(world.settle(), ["delete web-2", "create web-2 two"]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(2), Some(1)));
    assert_ne!(status.current_revision, status.update_revision);
    world.pods.retain(|pod| name_of(pod) != "web-0");
    assert_eq!(world.settle(), ["create web-0 one"], "below the partition the current template holds");
    world.spec().update_strategy =
        serde_json::from_value(json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}))
            .expect("one");
    assert_eq!(world.settle(), ["delete web-1", "create web-1 two", "delete web-0", "create web-0 two"]);
    let status = world.set.status.clone().expect("a status");
    assert_eq!((status.current_replicas, status.updated_replicas), (Some(3), Some(3)));
    assert_eq!(status.current_revision, status.update_revision);
    world.image("one");
    world.settle();
    assert_eq!(world.revisions.len(), 2, "a template that was there before keeps its revision");
}

#[test]
fn failed_pods_are_made_anew_and_history_is_limited() {
    let mut world = World::new(json!({"replicas": 1, "revisionHistoryLimit": 1}));
    world.settle();
    world.pods[0].status.get_or_insert_default().phase = Some("Failed".to_owned());
    assert_eq!(world.settle(), ["delete web-0", "create web-0 one"]);
    for image in ["two", "three", "four"] {
        world.image(image);
        world.settle();
    }
    let forgotten = world.plan().forget;
    let names: Vec<String> = world.revisions.iter().map(|it| name_in(&it.metadata)).collect();
    assert_eq!(forgotten, names[..2]);
}

#[test]
fn pods_are_awaited_until_they_were_ready_for_long_enough() {
    let mut world = World::new(json!({"replicas": 2, "minReadySeconds": 10}));
    world.step();
    world.ready();
    assert_eq!(world.step(), Vec::<String>::new());
    let due = world.now + SignedDuration::from_secs(10);
    assert_eq!(world.plan().look_again, Some(due));
    world.now = due;
    assert_eq!(world.step(), ["create web-1 one"]);
}

#[test]
fn claims_are_made_and_follow_as_the_policy_says() {
    let template = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let mut world = World::new(json!({
        "replicas": 2, "volumeClaimTemplates": [template], "persistentVolumeClaimRetentionPolicy": policy,
    }));
    assert_eq!(
        world.settle(),
        ["claim data-web-0", "create web-0 one", "claim data-web-1", "create web-1 one"]
    );
    let volumes = world.pods[0].spec.as_ref().and_then(|spec| spec.volumes.clone()).expect("volumes");
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().expect("a claim").claim_name, "data-web-0");
    let owners = world.claims.borrow()["data-web-0"].metadata.owner_references.clone().expect("owners");
    assert_eq!(owners[0].kind, "StatefulSet");
    world.spec().replicas = Some(1);
    assert_eq!(world.settle(), ["data-web-1 follows Pod", "delete web-1"]);
}
