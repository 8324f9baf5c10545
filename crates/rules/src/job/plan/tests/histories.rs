//! Random histories of a Job: what always holds, whatever happens when.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cluster::{Cluster, Fault, PodEvent};
use super::fixture::job;

/// One thing that happens.
#[derive(Debug, Clone)]
enum Step {
    Sync(Vec<Fault>),
    Deliver(usize),
    Pod(usize, PodEvent),
    Pass(i64),
    Suspend(bool),
    Parallelism(i32),
    /// Both numbers of an Indexed Job; of another one only the parallelism.
    Scale(i32),
}

fn specs() -> impl Strategy<Value = Value> {
    let numbers = (0..4i32, prop_oneof![Just(None), (0..6i32).prop_map(Some)], 0..4i32);
    let policies = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let limits = (
        prop_oneof![Just(None), (0..2i32).prop_map(Some)],
        prop_oneof![Just(None), (0..60i64).prop_map(Some)],
    );
    (numbers, policies, limits).prop_map(
        |((parallelism, completions, limit), (indexed, policy, success, careful, restarts), (per_index, deadline))| {
            let indexed = indexed && completions.is_some();
            let mut spec = json!({"parallelism": parallelism, "backoffLimit": limit, "activeDeadlineSeconds": deadline});
            spec["completions"] = json!(completions);
            if indexed {
                spec["completionMode"] = json!("Indexed");
                if let Some(limit) = per_index {
                    spec["backoffLimitPerIndex"] = json!(limit);
                    spec["backoffLimit"] = json!(20);
                    spec["maxFailedIndexes"] = json!(if success { Some(1) } else { None });
                }
                if success {
                    spec["successPolicy"] = json!({"rules": [{"succeededIndexes": "0-2", "succeededCount": 1}]});
                }
            }
            if careful {
                spec["podReplacementPolicy"] = json!("Failed");
            }
            if policy {
                let mut rules = vec![
                    json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42, 143]}}),
                    json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": [13]}}),
                    json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}),
                ];
                if indexed && per_index.is_some() {
                    rules.push(json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [7]}}));
                }
                spec["podFailurePolicy"] = json!({"rules": rules});
                spec["podReplacementPolicy"] = json!("Failed");
            } else if restarts {
                spec["template"] = json!({"spec": {"restartPolicy": "OnFailure"}});
            }
            spec
        },
    )
}

fn faults() -> impl Strategy<Value = Vec<Fault>> {
    let fault = prop_oneof![
        12 => Just(Fault::None),
        1 => Just(Fault::Refused),
        1 => Just(Fault::Unanswered),
        1 => Just(Fault::CrashBefore),
        1 => Just(Fault::CrashAfter),
    ];
    prop_oneof![2 => Just(Vec::new()), 1 => proptest::collection::vec(fault, 0..8)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let event = prop_oneof![
        4 => Just(PodEvent::Schedule),
        2 => Just(PodEvent::Start),
        2 => Just(PodEvent::Ready),
        3 => Just(PodEvent::Succeed),
        3 => prop_oneof![Just(1), Just(7), Just(13), Just(42)].prop_map(PodEvent::Fail),
        1 => Just(PodEvent::Restart),
        1 => Just(PodEvent::Delete),
        1 => Just(PodEvent::Evict),
        2 => Just(PodEvent::Stop),
        1 => Just(PodEvent::Vanish),
    ];
    let step = prop_oneof![
        8 => faults().prop_map(Step::Sync),
        4 => (0..4usize).prop_map(Step::Deliver),
        10 => (0..16usize, event).prop_map(|(pod, event)| Step::Pod(pod, event)),
        2 => prop_oneof![Just(1), Just(11), Just(700)].prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Suspend),
        1 => (0..4i32).prop_map(Step::Parallelism),
        1 => (0..4i32).prop_map(Step::Scale),
    ];
    proptest::collection::vec(step, 0..60)
}

fn live(cluster: &mut Cluster, step: &Step) {
    let spec = cluster.job.spec.as_mut().unwrap();
    match step {
        Step::Sync(faults) => {
            cluster.sync(faults);
        }
        Step::Deliver(count) => cluster.deliver(*count),
        Step::Pod(choice, event) => cluster.befall(*choice, *event),
        Step::Pass(seconds) => cluster.pass(*seconds),
        Step::Suspend(suspend) => spec.suspend = Some(*suspend),
        Step::Parallelism(parallelism) => spec.parallelism = Some(*parallelism),
        Step::Scale(count) => {
            spec.parallelism = Some(*count);
            if spec.completion_mode.as_deref() == Some("Indexed") {
                spec.completions = Some(*count);
            }
        }
    }
}

proptest! {
    /// Every status written is valid (the cluster refuses others), active pods never exceed the parallelism by a
    /// creation, a finished Job gets no pods, no pod is counted twice (the cluster watches), and in the end: an undisturbed
    /// Job finishes, with every pod counted that ended.
    #[test]
    fn whatever_happens(spec in specs(), steps in steps()) {
        let mut cluster = Cluster::new(job(spec).job);
        for step in &steps {
            live(&mut cluster, step);
        }
        let spec = cluster.job.spec.as_mut().unwrap();
        spec.suspend = Some(false);
        spec.parallelism = Some(spec.parallelism.unwrap().max(1));
        for _ in 0..60 {
            cluster.pass(601);
            cluster.sync(&[]);
            cluster.run_all();
        }
        prop_assert!(cluster.is_finished(), "{}", cluster.decide());
        cluster.check_nothing_lost();
        prop_assert_eq!(cluster.sync(&[]), 0);
    }

    /// Deciding again changes nothing, once the few writes that follow from each other are done.
    #[test]
    fn deciding_again_changes_nothing(spec in specs(), steps in steps()) {
        let mut cluster = Cluster::new(job(spec).job);
        for step in &steps {
            live(&mut cluster, step);
        }
        let mut last = Vec::new();
        for _ in 0..8 {
            cluster.deliver(usize::MAX);
            last.push(cluster.decide().to_string());
            if cluster.sync(&[]) == 0 {
                return Ok(());
            }
        }
        prop_assert!(false, "still not done: {last:#?}");
    }
}
