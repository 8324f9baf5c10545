use serde_json::{Value, json};

use super::*;

struct World {
    graph: Graph,
    version: u64,
}

/// `a`, `ns/a`: the object of this name and uid, in a namespace or none. Owners as in `b`, `b!` for one that it blocks.
fn object(name: &str, owners: &[&str]) -> Object {
    let (namespace, name) = name.rsplit_once('/').unwrap_or(("", name));
    let owners = owners.iter().map(|owner| {
        let blocks = owner.ends_with('!');
        let owner = owner.trim_end_matches('!');
        json!({"apiVersion": "v1", "kind": "Thing", "name": owner, "uid": owner, "blockOwnerDeletion": blocks})
    });
    let owners: Value = owners.collect();
    Object {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Thing".to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: name.to_owned(),
        resource_version: String::new(),
        owners: serde_json::from_value(owners).unwrap(),
        finalizers: Vec::new(),
        deleting: false,
    }
}

fn deleting(mut object: Object, finalizer: &str) -> Object {
    object.deleting = true;
    object.finalizers = vec![finalizer.to_owned()];
    object
}

impl World {
    fn new() -> Self {
        World { graph: Graph::default(), version: 0 }
    }

    #[track_caller]
    fn seen(&mut self, mut object: Object, look: &[&str]) {
        self.version += 1;
        object.resource_version = self.version.to_string();
        let got = self.graph.seen(object);
        assert_eq!(got.iter().collect::<Vec<_>>(), look);
    }

    #[track_caller]
    fn gone(&mut self, uid: &str, look: &[&str]) {
        assert_eq!(self.graph.gone(uid).iter().collect::<Vec<_>>(), look);
    }

    #[track_caller]
    fn decides(&self, uid: &str, found: &[(&str, Owner)], expected: Step) {
        let found = found.iter().map(|(uid, owner)| ((*uid).to_owned(), *owner)).collect();
        assert_eq!(self.graph.decide(uid, &found), expected);
    }

    fn unknown(&self, uid: &str) -> Vec<String> {
        self.graph.unknown_owners(uid).into_iter().map(|reference| reference.uid).collect()
    }
}

fn delete(policy: Policy) -> Step {
    Step::Delete { policy, unblock: false }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn x_03_dependents_follow_an_owner_that_went() {
    let mut world = World::new();
    world.seen(object("ns/job", &[]), &[]);
    world.seen(object("ns/pod", &["job"]), &[]);
    world.decides("pod", &[], Step::Nothing);
    world.gone("job", &["pod"]);
    assert!(world.unknown("pod").is_empty(), "it was seen to go");
    world.decides("pod", &[], delete(Policy::Background));
    world.gone("pod", &[]);
    world.decides("pod", &[], Step::Nothing);
}

#[test]
fn an_owner_that_nobody_knows_is_asked_for() {
    let mut world = World::new();
    world.seen(object("ns/pod", &["job"]), &["pod"]);
    assert_eq!(world.unknown("pod"), ["job"]);
    world.decides("pod", &[("job", Owner::Solid)], Step::Nothing);
    world.decides("pod", &[("job", Owner::Waiting)], delete(Policy::Background));
    world.decides("pod", &[("job", Owner::Absent)], delete(Policy::Background));
    world.seen(object("ns/job", &[]), &[]);
    assert!(world.unknown("pod").is_empty());
}

/// A definition that is not served for a while takes nothing with it.
#[test]
fn an_owner_that_cannot_be_watched_any_more_is_not_gone() {
    let mut world = World::new();
    world.seen(object("ns/thing", &[]), &[]);
    world.seen(object("ns/pod", &["thing"]), &[]);
    let look = world.graph.lost_sight_of("thing");
    assert_eq!(look.iter().collect::<Vec<_>>(), ["pod"]);
    assert_eq!(world.unknown("pod"), ["thing"], "only the cluster can say whether it is there");
    world.decides("pod", &[("thing", Owner::Solid)], Step::Nothing);
    world.seen(object("ns/thing", &[]), &[]);
    assert!(world.unknown("pod").is_empty());
    world.decides("pod", &[], Step::Nothing);
}

/// What an owner waited for cannot hold it up when nobody sees it any more.
#[test]
fn a_dependent_that_cannot_be_watched_any_more_blocks_nobody() {
    let mut world = World::new();
    world.seen(deleting(object("ns/owner", &[]), FOREGROUND), &["owner"]);
    world.seen(object("ns/thing", &["owner!"]), &["owner", "thing"]);
    assert_eq!(world.graph.lost_sight_of("thing").iter().collect::<Vec<_>>(), ["owner"]);
    world.decides("owner", &[], Step::FinishForeground);
}

#[test]
fn a_dependent_with_another_owner_stays() {
    let mut world = World::new();
    world.seen(object("ns/a", &[]), &[]);
    world.seen(object("ns/b", &[]), &[]);
    world.seen(object("ns/pod", &["a", "b"]), &[]);
    world.gone("a", &["pod"]);
    world.decides("pod", &[], Step::DropOwners(names(&["a"])));
    world.seen(object("ns/pod", &["b"]), &[]);
    world.decides("pod", &[], Step::Nothing);
}

#[test]
fn x_04_the_foreground_waits_for_those_that_block() {
    let mut world = World::new();
    world.seen(object("ns/job", &[]), &[]);
    world.seen(object("ns/blocks", &["job!"]), &[]);
    world.seen(object("ns/does-not", &["job"]), &[]);
    world.seen(deleting(object("ns/job", &[]), FOREGROUND), &["blocks", "does-not", "job"]);
    world.decides("job", &[], Step::WaitFor(names(&["blocks"])));
    world.decides("blocks", &[], delete(Policy::Background));
    world.decides("does-not", &[], delete(Policy::Background));
    world.gone("blocks", &["job"]);
    world.decides("job", &[], Step::FinishForeground);
    world.gone("job", &["does-not"]);
}

#[test]
fn in_the_foreground_dependents_that_have_dependents_go_in_the_foreground() {
    let mut world = World::new();
    world.seen(object("ns/cron", &[]), &[]);
    world.seen(object("ns/job", &["cron!"]), &[]);
    world.seen(object("ns/pod", &["job!"]), &[]);
    world.seen(deleting(object("ns/cron", &[]), FOREGROUND), &["cron", "job"]);
    world.decides("job", &[], delete(Policy::Foreground));
    world.seen(deleting(object("ns/job", &["cron!"]), FOREGROUND), &["job", "pod"]);
    world.decides("cron", &[], Step::WaitFor(Vec::new()));
    world.decides("pod", &[], delete(Policy::Background));
    world.gone("pod", &["job"]);
    world.decides("job", &[], Step::FinishForeground);
    world.gone("job", &["cron"]);
    world.decides("cron", &[], Step::FinishForeground);
}

#[test]
fn a_circle_does_not_wait_for_itself() {
    let mut world = World::new();
    world.seen(object("ns/a", &["b!"]), &["a"]);
    world.seen(object("ns/b", &["a!"]), &[]);
    world.seen(deleting(object("ns/a", &["b!"]), FOREGROUND), &["a", "b"]);
    world.decides("b", &[], Step::Delete { policy: Policy::Foreground, unblock: true });
    world.seen(object("ns/b", &["a"]), &["a", "b"]);
    world.decides("a", &[], Step::FinishForeground);
}

#[test]
fn blocking_may_end_by_an_edit() {
    let mut world = World::new();
    world.seen(object("ns/job", &[]), &[]);
    world.seen(object("ns/pod", &["job!"]), &[]);
    world.seen(deleting(object("ns/job", &[]), FOREGROUND), &["job", "pod"]);
    world.seen(object("ns/pod", &[]), &["job"]);
    world.decides("job", &[], Step::FinishForeground);
}

#[test]
fn x_02_orphans_stay() {
    let mut world = World::new();
    world.seen(object("ns/job", &[]), &[]);
    world.seen(object("ns/pod", &["job!"]), &[]);
    world.seen(deleting(object("ns/job", &[]), ORPHAN), &["job"]);
    world.decides("job", &[], Step::Orphan(names(&["pod"])));
    world.decides("pod", &[], Step::Nothing);
    world.seen(object("ns/pod", &[]), &[]);
    world.decides("job", &[], Step::Orphan(Vec::new()));
    world.gone("job", &[]);
}

#[test]
fn a_dependent_that_is_to_orphan_its_own_does() {
    let mut world = World::new();
    world.gone("cron", &[]);
    let mut job = object("ns/job", &["cron"]);
    job.finalizers = vec![ORPHAN.to_owned()];
    world.seen(job, &["job"]);
    world.decides("job", &[], delete(Policy::Orphan));
}

#[test]
fn owners_in_other_namespaces_are_none() {
    let mut world = World::new();
    world.seen(object("other/job", &[]), &[]);
    world.seen(object("ns/pod", &["job"]), &["pod"]);
    assert_eq!(world.unknown("pod"), ["job"], "only the cluster can say that ns/job does not exist");
    assert_eq!(world.graph.owners_elsewhere("pod").len(), 1);
    world.decides("pod", &[("job", Owner::Absent)], delete(Policy::Background));
    world.seen(object("cluster-wide", &[]), &[]);
    world.seen(object("ns/b", &["cluster-wide"]), &[]);
    assert!(world.unknown("b").is_empty());
}

#[test]
fn who_was_named_wrongly_before_it_was_known_is_looked_at_again() {
    let mut world = World::new();
    world.seen(object("ns/pod", &["job"]), &["pod"]);
    world.seen(object("other/job", &[]), &["pod"]);
}

#[test]
fn a_dependent_that_comes_while_its_owner_waits_is_looked_at() {
    let mut world = World::new();
    world.seen(deleting(object("ns/job", &[]), FOREGROUND), &["job"]);
    world.seen(object("ns/pod", &["job!"]), &["job", "pod"]);
}

#[test]
fn older_news_are_no_news() {
    let mut graph = Graph::default();
    let mut new = deleting(object("ns/a", &[]), ORPHAN);
    new.resource_version = "10".to_owned();
    let mut old = object("ns/a", &[]);
    old.resource_version = "9".to_owned();
    graph.seen(new.clone());
    graph.seen(old);
    assert_eq!(graph.get("a"), Some(&new));
}

#[test]
fn what_is_gone_is_remembered_within_bounds() {
    let mut graph = Graph::default();
    for i in 0..=REMEMBERED {
        graph.gone(&i.to_string());
    }
    assert!(!graph.is_known_gone("0"));
    assert!(graph.is_known_gone("1"));
    assert_eq!(graph.gone.len(), graph.gone_by_age.len());
}
