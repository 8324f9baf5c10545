//! Jobs that grow and shrink while they run.

use super::*;
use crate::{
    dispatch::local,
    framework::slices::{Resize, Slices},
    workload::slice,
};

const FIRST: &str = "ns/job-name-2514c";

fn elastic() -> Life {
    let mut life = life();
    life.job.metadata.generation = Some(1);
    life.job.metadata.annotations = Some([("kueue.x-k8s.io/elastic-job".into(), "true".into())].into());
    let pod = life.job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
    pod.scheduling_gates = Some(from(json!([{ "name": "kueue.x-k8s.io/elastic-job" }])));
    life
}

/// A Job that runs by its first slice, with three pods.
fn running() -> Life {
    let mut life = elastic();
    life.expect(&[&format!("create {FIRST}"), WAITS]);
    life.admit("gold");
    life.expect(&[&format!("start, because {FIRST} is admitted"), RUNS]);
    life
}

impl Life {
    fn resize(&mut self, count: i32) {
        let spec = self.job.spec.as_mut().expect("a spec");
        (spec.parallelism, spec.completions) = (Some(count), Some(count));
        *self.job.metadata.generation.as_mut().expect("a generation") += 1;
    }

    fn slice(&self, index: usize) -> Arc<Workload> {
        Arc::clone(&self.workloads[index])
    }

    fn ends(&self) -> Vec<String> {
        let end =
            |it: &Arc<Workload>| state::find(it, "Finished").map_or("", |end| end.reason.as_str()).to_owned();
        self.workloads.iter().map(end).collect()
    }

    fn evict(&mut self, index: usize) {
        let (of, now) = (self.slice(index), self.now);
        let eviction =
            change::Eviction { reason: "Preempted", cause: String::new(), message: "for another".into() };
        self.change_one(&of, |workload| {
            change::evict(workload, &eviction, now);
        });
    }

    fn gated(&mut self, names: &[&str]) {
        let pod = |name: &&str| {
            from(json!({
                "metadata": { "name": name, "labels": { "kueue.x-k8s.io/podset": "main" } },
                "spec": { "containers": [], "schedulingGates": [{ "name": "kueue.x-k8s.io/elastic-job" }] },
            }))
        };
        self.pods.extend(names.iter().map(pod));
    }
}

fn named(name: &str, of: &str) -> String {
    format!("{of} ns/{name}")
}

/// The name of the slice that is made for a generation.
fn name(generation: i64) -> String {
    crate::framework::name::workload_name(JOB, "name", "uid", Some(&generation.to_string()))
}

#[test]
fn jf_80_slices_are_named_by_generation_and_know_the_first_one() {
    let life = running();
    let first = life.slice(0);
    assert_eq!(
        first.metadata.annotations,
        Some(
            [
                ("kueue.x-k8s.io/elastic-job".to_owned(), "true".to_owned()),
                ("kueue.x-k8s.io/workload-slice-name".to_owned(), "job-name-2514c".to_owned()),
            ]
            .into()
        )
    );
    let pods = &life.template()["metadata"]["annotations"];
    assert_eq!(pods["kueue.x-k8s.io/workload-slice-name"], "job-name-2514c");
    // JF-81: the gate stays.
    assert_eq!(life.template()["spec"]["schedulingGates"], json!([{ "name": "kueue.x-k8s.io/elastic-job" }]));
}

#[test]
fn jf_82_fewer_pods_are_written_into_the_slice() {
    let mut life = running();
    life.resize(2);
    life.expect(&[&format!("update {FIRST} in its number of pods"), RUNS]);
    assert_eq!(life.slice(0).spec.pod_sets[0].count, 2);
    assert_eq!(life.workloads.len(), 1);
    // Before there is quota, more of them, too.
    let mut waiting = elastic();
    waiting.expect(&[&format!("create {FIRST}"), WAITS]);
    waiting.resize(5);
    waiting.expect(&[&format!("update {FIRST} in its number of pods"), WAITS]);
    assert_eq!((waiting.slice(0).spec.pod_sets[0].count, waiting.workloads.len()), (5, 1));
}

#[test]
fn jf_83_more_pods_wait_for_a_slice_of_their_own_while_the_job_runs() {
    let mut life = running();
    life.resize(5);
    let second = name(2);
    life.expect(&[&named(&second, "create"), RUNS]);
    let slice = life.slice(1);
    let annotations = slice.metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], FIRST);
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], "job-name-2514c");
    assert_eq!(slice.spec.pod_sets[0].count, 5);
    // What was put into the Job when it started is not what the user wrote.
    assert_eq!(slice.spec.pod_sets[0].template, life.slice(0).spec.pod_sets[0].template);
    // JF-84: one waits at most, for what the Job wants now.
    life.resize(4);
    life.expect(&[&format!("update ns/{second} in its number of pods"), RUNS]);
    life.admit_one(&life.slice(1), "gold");
    life.expect(&[
        &format!("write finished (WorkloadSliceReplaced) to {FIRST}"),
        &format!("let go of {FIRST}"),
        RUNS,
    ]);
    let end = state::find(&life.slice(0), "Finished").expect("an end").message.clone();
    assert_eq!(
        end,
        "Replaced to accommodate a workload (UID: , JobUID: uid) due to workload slice aggregation"
    );
    life.resize(6);
    life.expect(&[&named(&name(4), "create"), RUNS]);
    let annotations = life.slice(2).metadata.annotations.clone().unwrap_or_default();
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-replacement-for"], format!("ns/{second}"));
    assert_eq!(annotations["kueue.x-k8s.io/workload-slice-name"], "job-name-2514c");
    assert!(!life.told.contains(&"Stopped".to_owned()), "{:?}", life.told);
}

#[test]
fn jf_84_what_nobody_wants_any_more_is_out_of_sync() {
    let mut life = running();
    life.resize(5);
    let second = name(2);
    life.expect(&[&named(&second, "create"), RUNS]);
    life.resize(2);
    life.expect(&[
        &format!("write finished (OutOfSync) to ns/{second}"),
        &format!("let go of ns/{second}"),
        &format!("update {FIRST} in its number of pods"),
        RUNS,
    ]);
}

/// A slice that is evicted stops the Job, and is the one that the Job waits for from then on.
#[test]
fn jf_84_an_evicted_slice_takes_the_one_behind_it_along() {
    let mut life = running();
    life.resize(5);
    let second = name(2);
    life.expect(&[&named(&second, "create"), RUNS]);
    life.evict(0);
    life.expect(&[
        &format!("write finished (OutOfSync) to ns/{second}"),
        &format!("let go of ns/{second}"),
        "stop, because for another",
        &format!("write quota given back to {FIRST}"),
        &format!("update {FIRST} in its number of pods"),
        "wait, because it is evicted",
    ]);
    assert_eq!(life.ends(), ["", "OutOfSync"]);
    life.admit("gold");
    life.expect(&[&format!("start, because {FIRST} is admitted"), RUNS]);
}

/// Where a worker may run the Job, no other slice counts, whatever it holds.
#[test]
fn jf_84_the_slice_that_a_worker_holds_counts() {
    let mut life = running();
    life.resize(5);
    life.expect(&[&named(&name(2), "create"), RUNS]);
    let (first, second, now) = (life.slice(0), life.slice(1), life.now);
    life.change_one(&first, |it| {
        let assign = crate::dispatch::Step::Assign("east".into());
        *it = local::apply(it, "mk", &[&assign], now);
    });
    life.admit_one(&second, "gold");
    let slices = Slices::of(&life.workloads);
    assert_eq!(slices.current.map(|it| it.metadata.name.clone()), Some(first.metadata.name.clone()));
    assert_eq!(slices.over.len(), 1);
    let (before, second) = (life.slice(0), life.slice(1));
    life.change_one(&second, |it| local::follow(it, &before, now));
    let slices = Slices::of(&life.workloads);
    assert_eq!(slices.current.map(|it| it.metadata.name.clone()), Some(second.metadata.name.clone()));
    assert!(slices.over.iter().all(|(_, successor)| successor.is_some()));
}

/// A Job whose only slice that counts was deleted begins anew: those that are left are none of it any more.
#[test]
fn jf_84_a_job_without_a_slice_that_counts_begins_anew() {
    let mut life = running();
    life.resize(5);
    let second = name(2);
    life.expect(&[&named(&second, "create"), RUNS]);
    life.resize(3);
    life.expect(&[
        &format!("write finished (OutOfSync) to ns/{second}"),
        &format!("let go of ns/{second}"),
        RUNS,
    ]);
    life.workloads.remove(0);
    life.expect(&[&named(&second, "delete"), "wait, because its Workload is being deleted"]);
    life.workloads.clear();
    life.expect(&[
        "stop, because Missing Workload; unable to restore pod templates",
        &named(&name(3), "create"),
        WAITS,
    ]);
}

/// JF-31 holds for whatever else changes.
#[test]
fn jf_84_another_template_makes_it_another_job() {
    let mut life = elastic();
    life.expect(&[&format!("create {FIRST}"), WAITS]);
    let pod = life.job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()).expect("a pod");
    pod.containers[0].image = Some("other".into());
    life.expect(&[&format!("update {FIRST} in its spec"), WAITS]);
    assert_eq!(life.slice(0).metadata.annotations, elastic_annotations());
}

fn elastic_annotations() -> Option<std::collections::BTreeMap<String, String>> {
    running().slice(0).metadata.annotations.clone()
}

#[test]
fn jf_42_all_slices_end_with_the_job() {
    let mut life = running();
    life.resize(5);
    let second = name(2);
    life.expect(&[&named(&second, "create"), RUNS]);
    let done = json!({ "conditions": [{ "type": "Complete", "status": "True", "message": "done" }] });
    life.job.status = Some(from(done));
    life.expect(&[
        &format!("write finished (Succeeded) to {FIRST}"),
        &format!("let go of {FIRST}"),
        &format!("write finished (Succeeded) to ns/{second}"),
        &format!("let go of ns/{second}"),
        "wait, because its Workload has ended",
    ]);
}

#[test]
fn jf_81_pods_are_ungated_up_to_what_was_admitted() {
    let mut life = running();
    life.gated(&["d", "a", "b", "c"]);
    life.pods[1].status = Some(from(json!({ "phase": "Failed" })));
    life.expect(&[&format!("ungate b, c, d, because {FIRST} is admitted"), RUNS]);
    life.gated(&["e", "f"]);
    life.resize(5);
    life.expect(&[&named(&name(2), "create"), RUNS]);
    life.admit_one(&life.slice(1), "gold");
    let ungated = format!("ungate e, f, because ns/{} is admitted", name(2));
    life.expect(&[
        &format!("write finished (WorkloadSliceReplaced) to {FIRST}"),
        &format!("let go of {FIRST}"),
        &ungated,
        RUNS,
    ]);
    // Fewer pods than were admitted may run at once, and no more.
    life.resize(4);
    life.gated(&["g"]);
    life.expect(&[&format!("update ns/{} in its number of pods", name(2)), RUNS]);
    assert!(slice::is_elastic(&life.slice(1)));
}

/// Pods are looked for where they may wait: those of a Job that another cluster runs are not here.
#[test]
fn jf_81_who_may_have_pods_that_wait() {
    let check = |change: &dyn Fn(&mut Job), expected: bool| {
        let mut life = running();
        life.job.status = Some(from(json!({ "active": 2, "ready": 1 })));
        change(&mut life.job);
        assert_eq!(Batch(&life.job).may_be_gated(), expected);
    };
    check(&|_| {}, true);
    check(&|job| job.status = Some(from(json!({ "active": 2, "ready": 2 }))), false);
    check(&|job| job.spec.as_mut().expect("a spec").suspend = Some(true), false);
    check(
        &|job| job.spec.as_mut().expect("a spec").managed_by = Some("kueue.x-k8s.io/multikueue".into()),
        false,
    );
    check(&|job| job.metadata.annotations = None, false);
}

/// JF-23, JF-24, MK-ELA-03: the slice that somebody else made is the Job's, whichever of the two has the new number first;
/// the one before it ends.
#[test]
fn jf_23_a_slice_that_a_manager_made_need_not_have_the_same_number_of_pods() {
    let mut life = running();
    life.gated(&[]);
    let mut made = Workload::clone(&life.slice(0));
    made.metadata.name = Some("made".into());
    made.status = None;
    made.spec.pod_sets[0].count = 5;
    let annotations = made.metadata.annotations.get_or_insert_default();
    annotations.insert("kueue.x-k8s.io/workload-slice-replacement-for".into(), FIRST.into());
    life.prebuilt = Some(Arc::new(made));
    let link = ("kueue.x-k8s.io/prebuilt-workload-name".to_owned(), "made".to_owned());
    life.job.metadata.annotations.get_or_insert_default().extend([link]);
    life.admit("gold");
    life.expect(&[&format!("write finished (WorkloadSliceReplaced) to {FIRST}"), RUNS]);
    life.resize(5);
    life.expect(&[RUNS]);
    life.resize(4);
    life.expect(&[RUNS]);
}

#[test]
fn jf_82_sizes_are_compared_pod_set_by_pod_set() {
    let of = |counts: &[(&str, i32)]| -> Vec<PodSet> {
        let pod_set = |(name, count): &(&str, i32)| PodSet {
            name: Some((*name).into()),
            count: *count,
            ..PodSet::default()
        };
        counts.iter().map(pod_set).collect()
    };
    let check = |to: &[(&str, i32)], expected: Resize| {
        assert_eq!(Resize::of(&of(&[("a", 2), ("b", 3)]), &of(to)), expected, "{to:?}");
    };
    check(&[("a", 2), ("b", 3)], Resize::None);
    check(&[("b", 3), ("a", 1)], Resize::Down);
    check(&[("a", 1), ("b", 4)], Resize::Up);
    check(&[("a", 3), ("b", 3)], Resize::Up);
}
