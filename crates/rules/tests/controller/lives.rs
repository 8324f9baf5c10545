//! Random lives: a random Job, and whatever can happen to it next.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::chance::Chance;
use crate::scenarios::{Scenario, Script, parallelism, scale, suspend, with_template};
use crate::script::{Life, Step, Which, index, life};
use crate::world::{JOB, World};

impl Chance {
    fn count(&mut self, limit: usize) -> i32 {
        i32::try_from(self.below(limit)).expect("a small number")
    }

    fn choose<T: Clone>(&mut self, items: &[T]) -> T {
        self.pick(items).clone()
    }

    /// What happens next in this world; `None` when the Job is finished.
    pub(crate) async fn step(&mut self, world: &World) -> anyhow::Result<Option<Step>> {
        let job = world.jobs.get(JOB).await?;
        if rules::job::is_finished(&job) {
            return Ok(None);
        }
        if self.percent(20) {
            return Ok(Some(self.edit(&job)));
        }
        let pods = world.pods.list(&ListParams::default()).await?.items;
        let lives: Vec<&Pod> = pods.iter().filter(|pod| life(pod).is_some()).collect();
        if lives.is_empty() {
            return Ok(Some(self.edit(&job)));
        }
        let pod = self.choose(&lives);
        Ok(Some(self.befall(&job, pod)))
    }

    fn edit(&mut self, job: &Job) -> Step {
        let spec = rules::job::spec(job);
        match self.count(3) {
            0 => suspend(spec.suspend != Some(true)),
            // A policy about indexes needs one at least.
            1 if spec.success_policy.is_some() || spec.max_failed_indexes.is_some() => {
                scale(1 + self.count(4))
            }
            1 if rules::job::is_indexed(spec) => scale(self.count(5)),
            // Which of several pods goes, when they are as good as each other, nobody knows; with indexes it shows.
            _ if rules::job::is_indexed(spec) => parallelism(self.choose(&[0, 4])),
            _ => parallelism(self.count(4)),
        }
    }

    fn befall(&mut self, job: &Job, pod: &Pod) -> Step {
        let spec = rules::job::spec(job);
        let careful = spec.pod_replacement_policy.as_deref() == Some("Failed");
        let restarts =
            spec.template.spec.as_ref().is_some_and(|pod| pod.restart_policy.as_deref() == Some("OnFailure"));
        let life = life(pod).expect("something can happen to it");
        let which = Which::Exactly(life, index(pod));
        let code = self.choose(&[0, 0, 1, 3, 4, 7]);
        match (life, self.count(6)) {
            (Life::New, 0..3) => Step::Start(which),
            // A pod that is replaced at once after its deletion makes both worlds wait for ten seconds and more.
            (Life::New | Life::Running, 3) if careful => Step::Delete(which),
            (Life::Running, 4) if restarts => Step::Restart(which, self.count(3)),
            (Life::Running, 5) => Step::FailWith(which, "DisruptionTarget"),
            (Life::New | Life::Running, _) => Step::End(which, code),
            (Life::Terminating, 0) | (Life::Ended, _) => Step::Remove(which),
            (Life::Terminating, _) => Step::End(which, self.choose(&[0, 143])),
        }
    }

    fn spec(&mut self) -> Value {
        let indexed = self.percent(60);
        let mut spec = json!({"parallelism": self.count(4), "backoffLimit": self.count(4)});
        if indexed || self.percent(70) {
            spec["completions"] = json!(self.count(5));
        }
        if self.percent(40) {
            spec["podReplacementPolicy"] = json!("Failed");
        }
        let policy = self.percent(40);
        let per_index = indexed && self.percent(50);
        if indexed {
            spec["completionMode"] = json!("Indexed");
            if self.percent(30) {
                let rule = json!({"succeededIndexes": "0", "succeededCount": 1});
                spec["successPolicy"] = json!({"rules": [rule]});
                spec["completions"] = json!(1 + self.count(4));
            }
        }
        if per_index {
            spec["backoffLimitPerIndex"] = json!(self.count(2));
            spec["backoffLimit"] = json!(2 + self.count(4));
            if self.percent(40) {
                spec["maxFailedIndexes"] = json!(self.count(2));
                spec["completions"] = json!(1 + self.count(4));
            }
        }
        if policy {
            let on_exit = |action: &str, code: i32| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
            let mut rules = vec![on_exit("Ignore", 3), on_exit("FailJob", 4)];
            rules.push(json!({"action": self.choose(&["Ignore", "Count", "FailJob"]),
                "onPodConditions": [{"type": "DisruptionTarget"}]}));
            if per_index {
                rules.push(on_exit("FailIndex", 7));
            }
            spec["podFailurePolicy"] = json!({"rules": rules});
            spec["podReplacementPolicy"] = json!("Failed");
        } else if self.percent(30) {
            spec["template"]["spec"]["restartPolicy"] = json!("OnFailure");
        }
        spec
    }
}

/// A random life of so many steps.
pub(crate) fn life_from(seed: u64, steps: usize) -> Scenario {
    let mut chance = Chance::new(seed);
    let spec = with_template(chance.spec());
    Scenario {
        name: format!("life-{seed}"),
        spec,
        pods_before: Vec::new(),
        script: Script::Chance(chance, steps),
    }
}
