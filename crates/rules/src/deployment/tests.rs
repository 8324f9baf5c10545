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

    /// Of the pods of the newest set so many are available, and the others are there.
    fn available(&mut self, number: i32) {
        let set = self.sets.last_mut().unwrap();
        let size = replicas(set);
        let status = set.status.get_or_insert_default();
        (status.replicas, status.available_replicas, status.ready_replicas) =
            (size, Some(number), Some(number));
    }

    /// Why pods of this set are not made.
    fn fails(&mut self, set: usize, why: Option<&str>) {
        let condition = |why| json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": why, "lastTransitionTime": at(7).to_string()}]);
        let conditions = why.map(|why| serde_json::from_value(condition(why)).unwrap());
        self.sets[set].status.get_or_insert_default().conditions = conditions;
    }

    fn condition(&self, kind: &str) -> Option<DeploymentCondition> {
        condition(self.deployment.status.as_ref()?, kind).cloned()
    }

    fn progress(&self) -> String {
        self.condition("Progressing").unwrap().reason.unwrap()
    }

    fn spec(&mut self) -> &mut k8s_openapi::api::apps::v1::DeploymentSpec {
        self.deployment.spec.as_mut().unwrap()
    }
}

/// All at once.
fn surging(replicas: i32) -> World {
    World::new(
        replicas,
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}),
    )
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

/// Pods that go and come again, and another size, are no rollout that could take too long.
#[test]
fn p_4_20_what_was_rolled_out_stays_so() {
    let mut world = surging(3);
    world.step(false);
    world.settle();
    world.step(false);
    let done = world.condition("Progressing").unwrap();
    assert_eq!(done.reason.as_deref(), Some("NewReplicaSetAvailable"));
    let check = |world: &mut World, available: i32| {
        world.available(available);
        for wait in [0, 601] {
            world.now += wait;
            world.step(false);
            assert_eq!(world.condition("Progressing").as_ref(), Some(&done), "{available} after {wait} s");
        }
    };
    check(&mut world, 1);
    check(&mut world, 2);
    world.spec().replicas = Some(5);
    world.step(false);
    assert_eq!(world.sizes(), "1:5");
    check(&mut world, 4);
    check(&mut world, 5);
    // Another template is one.
    world.image("2");
    world.step(false);
    world.now += 601;
    world.step(false);
    assert_eq!(world.progress(), "ProgressDeadlineExceeded");
}

/// The time that it was paused for does not count.
#[test]
fn p_4_20_a_rollout_that_goes_on_has_its_time_anew() {
    let mut world = surging(2);
    world.step(false);
    world.settle();
    world.image("2");
    world.step(false);
    world.available(1);
    world.step(false);
    assert_eq!(world.progress(), "ReplicaSetUpdated");
    world.spec().paused = Some(true);
    world.step(false);
    assert_eq!(world.progress(), "DeploymentPaused");
    world.now += 700;
    world.step(false);
    world.spec().paused = None;
    world.step(false);
    let resumed = world.condition("Progressing").unwrap();
    assert_eq!(
        (resumed.status.as_str(), resumed.reason.as_deref(), resumed.message.as_deref()),
        ("Unknown", Some("DeploymentResumed"), Some("Deployment is resumed"))
    );
    assert_eq!(resumed.last_update_time, Some(Time(at(world.now))));
    world.now += 590;
    world.step(false);
    assert_eq!(world.progress(), "DeploymentResumed");
    let mut late =
        World { deployment: world.deployment.clone(), sets: world.sets.clone(), now: world.now + 20 };
    late.step(false);
    assert_eq!(late.progress(), "ProgressDeadlineExceeded");
    // That is said of a paused one, too, and afterwards.
    for paused in [Some(true), None] {
        late.spec().paused = paused;
        late.step(false);
        assert_eq!(late.progress(), "ProgressDeadlineExceeded");
    }
    world.settle();
    world.step(false);
    assert_eq!(world.progress(), "ReplicaSetUpdated");
}

#[test]
fn p_4_20_why_pods_are_not_made_is_shown() {
    let mut world = surging(2);
    world.step(false);
    world.settle();
    world.step(false);
    world.image("2");
    world.step(false);
    let failure = |world: &World| world.condition("ReplicaFailure").map(|it| it.message.unwrap());
    world.fails(0, Some("the old one's"));
    world.step(false);
    assert_eq!(failure(&world).as_deref(), Some("the old one's"));
    world.fails(0, None);
    world.step(false);
    assert_eq!(failure(&world), None);
    world.fails(0, Some("the old one's"));
    world.fails(1, Some("the new one's"));
    world.step(false);
    let shown = serde_json::to_value(world.condition("ReplicaFailure")).unwrap();
    let expected = json!({
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "the new one's",
        "lastTransitionTime": at(7).to_string(), "lastUpdateTime": at(7).to_string(),
    });
    assert_eq!(shown, expected);
    // It does not depend on a deadline. While the rollout is paused nobody looks.
    world.spec().progress_deadline_seconds = Some(i32::MAX);
    world.spec().paused = Some(true);
    world.fails(0, None);
    world.fails(1, None);
    world.step(false);
    assert!(failure(&world).is_some());
    assert!(world.condition("Progressing").is_some());
    world.spec().paused = None;
    world.step(false);
    assert_eq!(failure(&world), None);
    assert_eq!(world.condition("Progressing"), None, "there is nothing to be said without a deadline");
}

#[test]
fn p_4_20_a_set_that_cannot_be_created_is_told() {
    let mut world = surging(2);
    let not_created = |world: &World| not_created(&world.deployment, "refused".to_owned(), at(world.now));
    let status = not_created(&world).unwrap();
    let progress = condition(&status, "Progressing").unwrap();
    assert_eq!(
        (progress.status.as_str(), progress.reason.as_deref(), progress.message.as_deref()),
        ("False", Some("ReplicaSetCreateError"), Some("refused"))
    );
    world.deployment.status = Some(status);
    world.now += 10;
    assert_eq!(not_created(&world), None, "it says so");
    world.step(false);
    assert_eq!(world.progress(), "NewReplicaSetCreated");
    world.spec().progress_deadline_seconds = None;
    assert_eq!(not_created(&world), None);
}
