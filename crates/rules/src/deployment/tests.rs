use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A Deployment and its sets, as a controller sees and changes them. Pods become available when the test says so.
struct World {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    now: i64,
}

impl World {
    fn new(replicas: i32, strategy: Value) -> Self {
        let deployment = json!({
            "metadata": {"name": "d", "namespace": "ns", "uid": "u", "generation": 1},
            "spec": {
                "replicas": replicas,
                "strategy": strategy,
                "progressDeadlineSeconds": 600,
                "revisionHistoryLimit": 1,
                "selector": {"matchLabels": {"app": "x"}},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "1"}]}},
            },
        });
        World { deployment: serde_json::from_value(deployment).unwrap(), sets: Vec::new(), now: 0 }
    }

    fn image(&mut self, image: &str) {
        let template = &mut self.deployment.spec.as_mut().unwrap().template;
        template.spec.as_mut().unwrap().containers[0].image = Some(image.to_owned());
    }

    /// One step; returns what it told, and the sizes of the sets by image.
    fn step(&mut self, old_pods_run: bool) -> (Vec<String>, String) {
        self.now += 1;
        let sets: Vec<&ReplicaSet> = self.sets.iter().collect();
        let plan = decide(&self.deployment, &sets, old_pods_run, at(self.now));
        for set in plan.update {
            let place = self.sets.iter().position(|known| known.metadata.name == set.metadata.name).unwrap();
            self.sets[place] = set;
        }
        for (name, _) in &plan.delete {
            self.sets.retain(|set| set.metadata.name.as_ref() != Some(name));
        }
        if let Some(mut set) = plan.create {
            set.metadata.creation_timestamp = Some(Time(at(self.now)));
            set.metadata.uid = set.metadata.name.clone();
            self.sets.push(*set);
        }
        if let Some(status) = plan.status {
            self.deployment.status = Some(*status);
        }
        if let Some(revision) = plan.revision {
            self.deployment
                .metadata
                .annotations
                .get_or_insert_default()
                .insert(REVISION.to_owned(), revision);
        }
        let told = plan.events.iter().map(|event| {
            let (start, end) = event.split_once("d-").unwrap();
            format!("{start}{}", end.split_once(' ').unwrap().1)
        });
        (told.collect(), self.sizes())
    }

    fn sizes(&self) -> String {
        let image = |set: &ReplicaSet| {
            let template = set.spec.as_ref().unwrap().template.clone().unwrap();
            template.spec.unwrap().containers[0].image.clone().unwrap()
        };
        self.sets.iter().map(|set| format!("{}:{}", image(set), replicas(set))).collect::<Vec<_>>().join(" ")
    }

    /// All pods that are wanted are there and available.
    fn settle(&mut self) {
        for set in &mut self.sets {
            let size = replicas(set);
            let status = set.status.get_or_insert_default();
            (status.replicas, status.available_replicas, status.ready_replicas) =
                (size, Some(size), Some(size));
        }
    }

    fn progress(&self) -> String {
        let status = self.deployment.status.clone().unwrap();
        condition(&status, "Progressing").unwrap().reason.clone().unwrap()
    }
}

#[test]
fn a_rolling_update_stays_within_its_fences() {
    let mut world = World::new(
        4,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "25%"}}),
    );
    assert_eq!(world.step(false), (vec!["Scaled up replica set from 0 to 4".to_owned()], "1:4".to_owned()));
    assert_eq!(world.progress(), "NewReplicaSetCreated");
    world.settle();
    world.step(false);
    assert_eq!(world.progress(), "NewReplicaSetAvailable");
    world.image("2");
    let mut steps = Vec::new();
    for _ in 0..12 {
        let (_, sizes) = world.step(false);
        let total: i32 = world.sets.iter().map(replicas).sum();
        assert!(total <= 5, "{sizes}");
        if steps.last() != Some(&sizes) {
            steps.push(sizes);
        }
        world.settle();
    }
    assert_eq!(steps, ["1:4 2:1", "1:2 2:1", "1:2 2:3", "1:0 2:3", "1:0 2:4"]);
    assert_eq!(world.deployment.metadata.annotations.as_ref().unwrap()[REVISION], "2");
    assert_eq!(world.progress(), "NewReplicaSetAvailable");
    // Going back takes the old set, under a new number.
    world.image("1");
    for _ in 0..12 {
        world.step(false);
        world.settle();
    }
    assert_eq!(world.sizes(), "1:4 2:0");
    assert_eq!(world.deployment.metadata.annotations.as_ref().unwrap()[REVISION], "3");
    let history = world.sets[0].metadata.annotations.as_ref().unwrap();
    assert_eq!((&*history[REVISION], &*history[REVISION_HISTORY]), ("3", "1"));
}

#[test]
fn recreate_waits_for_the_old_pods() {
    let mut world = World::new(2, json!({"type": "Recreate"}));
    world.step(false);
    world.settle();
    world.image("2");
    assert_eq!(world.step(true).1, "1:0");
    assert_eq!(world.step(true).1, "1:0");
    world.settle();
    assert_eq!(world.step(false).1, "1:0 2:2");
}

#[test]
fn scaling_is_shared_in_proportion() {
    let mut world = World::new(
        10,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}),
    );
    world.step(false);
    world.settle();
    world.image("2");
    world.step(false);
    world.step(false);
    assert_eq!(world.sizes(), "1:8 2:3");
    world.step(false);
    assert_eq!(world.sizes(), "1:8 2:5");
    world.deployment.spec.as_mut().unwrap().replicas = Some(15);
    world.step(false);
    assert_eq!(world.sizes(), "1:11 2:7");
}

#[test]
fn a_paused_deployment_scales_and_does_not_roll() {
    let mut world = World::new(
        2,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
    );
    world.step(false);
    world.settle();
    world.deployment.spec.as_mut().unwrap().paused = Some(true);
    world.image("2");
    assert_eq!(world.step(false).1, "1:2");
    assert_eq!(world.progress(), "DeploymentPaused");
    world.deployment.spec.as_mut().unwrap().replicas = Some(5);
    assert_eq!(world.step(false).1, "1:5");
}

#[test]
fn history_is_kept_short_and_no_progress_is_told() {
    let mut world = World::new(
        1,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
    );
    for image in ["1", "2", "3", "4"] {
        world.image(image);
        for _ in 0..6 {
            world.step(false);
            world.settle();
        }
    }
    assert_eq!(world.sizes(), "3:0 4:1");
    world.image("5");
    world.step(false);
    world.now += 601;
    world.step(false);
    assert_eq!(world.progress(), "ProgressDeadlineExceeded");
}
