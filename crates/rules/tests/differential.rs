//! Random Jobs and random edits, asked of our rules and of a real API server: code, reason, causes, message, stored
//! object and warnings must be the same.
//!
//! `cargo test -p rules --test differential -- --cases 5000 --seed 7`. A difference is shrunk and printed as a line for
//! `tests/data/found.jsonl`, with the real server's answers.

mod chance;
mod judge;

use std::process::ExitCode;

use chance::Chance;
use clap::Parser as _;
use judge::generate::{Edit, apply, edit, smaller};
use judge::live::Live;
use judge::pure::Pure;
use judge::{Answer, Step, Verb, differences, play};
use schema::{Pack, Type};
use serde_json::{Value, json};

#[derive(clap::Parser)]
struct Arguments {
    /// How many random cases.
    #[arg(long, default_value_t = 300)]
    cases: u64,
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many differences to show before giving up.
    #[arg(long, default_value_t = 10)]
    show: u64,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse_from(std::env::args().filter(|argument| argument != "--nocapture"));
    let Some(cluster) = testkit::ControlPlane::builder().for_test().await else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut judges = Judges { ours: Pure::default(), theirs: Live::new(cluster.client()).await?, played: 0 };
    let (mut failed, mut refused) = (0, 0);
    for case in 0..arguments.cases {
        let mut chance = Chance::new(arguments.seed.wrapping_mul(1_000_003).wrapping_add(case));
        let random = Random::new(&mut chance);
        let verdict = judges.compare(&random).await;
        refused += u64::from(verdict.ours.iter().any(|answer| answer.code >= 300));
        if !verdict.same() {
            failed += 1;
            report(case, &judges.shrink(random, verdict).await);
            if failed >= arguments.show {
                break;
            }
        }
    }
    let (seed, played, cases) = (arguments.seed, judges.played, arguments.cases);
    println!("seed {seed}: {played} conversations, {refused} of {cases} cases end in a refusal");
    println!("{} passed, {failed} failed", arguments.cases - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A random Job, and perhaps a random change of it.
#[derive(Clone)]
struct Random {
    base: Value,
    create: Vec<Edit>,
    then: Option<(Verb, Vec<Edit>)>,
}

impl Random {
    fn new(chance: &mut Chance) -> Self {
        let base = base(chance);
        let edits = *chance.pick(&[0, 1, 1, 2, 3, 5, 8]);
        let create: Vec<Edit> = (0..edits).map(|_| spec_edit(chance, &base)).collect();
        let changed = apply(&base, &create);
        let edits = *chance.pick(&[1, 1, 2, 3, 6]);
        let then = match chance.below(3) {
            0 => None,
            1 => Some((Verb::Put, (0..edits).map(|_| spec_edit(chance, &changed)).collect())),
            _ => {
                let running = json!({"status": running()});
                Some((Verb::PutStatus, (0..=edits).map(|_| status_edit(chance, &running)).collect()))
            }
        };
        Random { base, create, then }
    }

    /// Every way to say less.
    fn smaller(&self) -> Vec<Random> {
        let mut all = Vec::new();
        if let Some((verb, edits)) = &self.then {
            all.push(Random { then: None, ..self.clone() });
            all.extend(
                smaller(edits).into_iter().map(|edits| Random { then: Some((*verb, edits)), ..self.clone() }),
            );
        }
        all.extend(smaller(&self.create).into_iter().map(|create| Random { create, ..self.clone() }));
        all
    }
}

fn named(name: &str) -> Type {
    Pack::v1_35().named(name).expect("the pack has the types of Jobs")
}

/// A good Job of one of several sorts.
fn base(chance: &mut Chance) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "NAME"},
        "spec": {"template": {"metadata": {}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never",
        }}},
    });
    let spec = &mut job["spec"];
    if chance.percent(40) {
        spec["completionMode"] = json!("Indexed");
        spec["completions"] = json!(5);
        spec["parallelism"] = json!(if chance.percent(50) { 5 } else { 2 });
        if chance.percent(50) {
            spec["backoffLimitPerIndex"] = json!(1);
        }
        if chance.percent(30) {
            spec["successPolicy"] = json!({"rules": [{"succeededIndexes": "0-1", "succeededCount": 1}]});
        }
    }
    if chance.percent(30) {
        spec["suspend"] = json!(true);
    }
    if chance.percent(20) {
        spec["podFailurePolicy"] = json!({"rules": [
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [1, 2]}},
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]},
        ]});
    }
    let pod = &mut spec["template"]["spec"];
    if chance.percent(30) {
        pod["volumes"] = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "m"}}]);
        pod["containers"][0]["volumeMounts"] = json!([{"name": "a", "mountPath": "/a"}]);
    }
    if chance.percent(30) {
        pod["initContainers"] = json!([{"name": "init", "image": "i", "restartPolicy": "Always"}]);
    }
    if chance.percent(30) {
        pod["containers"][0]["resources"] =
            json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}});
        pod["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 80}]);
        pod["containers"][0]["env"] = json!([{"name": "A", "value": "b"}]);
    }
    if chance.percent(20) {
        pod["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
        pod["containers"][0]["lifecycle"] = json!({"preStop": {"exec": {"command": ["a"]}}});
    }
    if chance.percent(20) {
        pod["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}],
        }}});
        pod["tolerations"] = json!([{"key": "a", "operator": "Exists", "effect": "NoExecute"}]);
    }
    job
}

fn spec_edit(chance: &mut Chance, job: &Value) -> Edit {
    match chance.below(20) {
        0..=7 => edit(chance, job, &["spec"], named("io.k8s.api.batch.v1.JobSpec")),
        8..=17 => edit(chance, job, &["spec", "template", "spec"], named("io.k8s.api.core.v1.PodSpec")),
        18 => {
            let meta = named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            let path = ["spec", "template", "metadata"];
            edit_of(chance, job, &path, meta, &["labels", "annotations"])
        }
        _ => {
            let meta = named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
            edit_of(
                chance,
                job,
                &["metadata"],
                meta,
                &["labels", "annotations", "finalizers", "ownerReferences"],
            )
        }
    }
}

/// An edit of one of these fields.
fn edit_of(chance: &mut Chance, job: &Value, path: &[&str], of: Type, fields: &[&str]) -> Edit {
    let field = fields[chance.below(fields.len())];
    let of = of.field(field).expect("a field of the type").of_type();
    edit(chance, job, &[path, &[field]].concat(), of)
}

fn running() -> Value {
    json!({"startTime": "2025-01-01T00:00:00Z", "active": 1, "ready": 1, "terminating": 0, "uncountedTerminatedPods": {}})
}

fn status_edit(chance: &mut Chance, document: &Value) -> Edit {
    if chance.percent(50) {
        return edit(chance, document, &["status"], named("io.k8s.api.batch.v1.JobStatus"));
    }
    if chance.percent(30) {
        return Edit::new(&["status", "completionTime"], json!("2025-01-01T00:02:00Z"));
    }
    if chance.percent(50) {
        return Edit::new(&["status", "active"], json!(0));
    }
    let mut conditions = Vec::new();
    for condition in ["SuccessCriteriaMet", "Complete", "FailureTarget", "Failed", "Suspended"] {
        if chance.percent(35) {
            let status = if chance.percent(85) { "True" } else { "False" };
            conditions.push(json!({"type": condition, "status": status}));
        }
    }
    Edit::new(&["status", "conditions"], json!(conditions))
}

struct Judges {
    ours: Pure,
    theirs: Live,
    played: u64,
}

struct Verdict {
    steps: Vec<Step>,
    ours: Vec<Answer>,
    theirs: Vec<Answer>,
}

impl Verdict {
    fn same(&self) -> bool {
        self.ours == self.theirs || self.is_known_panic()
    }

    /// Upstream does not survive a success policy on an Indexed Job without completions (C-59); we answer C-31.
    fn is_known_panic(&self) -> bool {
        let ours = self
            .ours
            .last()
            .is_some_and(|answer| answer.causes.iter().any(|cause| cause.1 == "spec.completions"));
        ours && self.theirs.last().is_some_and(|answer| answer.code == 500)
    }
}

impl Judges {
    async fn compare(&mut self, random: &Random) -> Verdict {
        let steps = self.steps(random).await;
        self.played += 1;
        let name = format!("d{:08x}", self.played);
        let ours = play(&mut self.ours, &name, &steps).await;
        let theirs = play(&mut self.theirs, &name, &steps).await;
        Verdict { steps, ours, theirs }
    }

    /// A change is made of what was stored, so the create is played first, by us; if both store different things, the
    /// create itself shows it.
    async fn steps(&mut self, random: &Random) -> Vec<Step> {
        let step = |verb, body| Step { verb, body, expect: Answer::default() };
        let mut steps = vec![step(Verb::Create, apply(&random.base, &random.create))];
        let created = play(&mut self.ours, "d-ours", &steps).await.pop().and_then(|answer| answer.object);
        if let (Some((verb, edits)), Some(created)) = (&random.then, created) {
            let document = if *verb == Verb::Put { created } else { json!({"status": running()}) };
            steps.push(step(*verb, apply(&document, edits)));
        }
        steps
    }

    async fn shrink(&mut self, mut random: Random, mut verdict: Verdict) -> Verdict {
        'smaller: loop {
            for candidate in random.smaller() {
                let tried = self.compare(&candidate).await;
                if !tried.same() {
                    (random, verdict) = (candidate, tried);
                    continue 'smaller;
                }
            }
            return verdict;
        }
    }
}

fn report(case: u64, verdict: &Verdict) {
    println!("\nDIFFERS case {case}");
    for (ours, theirs) in verdict.ours.iter().zip(&verdict.theirs) {
        for line in differences(theirs, ours) {
            println!("  {line}");
        }
    }
    let expect = |answer: &Answer| match &answer.object {
        Some(object) => json!({"code": answer.code, "object": object}),
        None => {
            json!({"code": answer.code, "reason": answer.reason, "causes": answer.causes, "message": answer.message})
        }
    };
    let steps = verdict.steps.iter().zip(&verdict.theirs);
    let steps: Vec<Value> = steps
        .map(|(step, answer)| json!({"verb": step.verb, "body": step.body, "expect": expect(answer)}))
        .collect();
    println!("  {}", json!({"id": format!("found/{case}"), "steps": steps}));
}
