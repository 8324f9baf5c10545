//! Random sequences of writes, the same to a real kube-apiserver and to ours: objects, managers and refusals must be equal.
//!
//! ```text
//! cargo test -p apiserver --test differential -- --cases 500 --seed 7
//! ```
//!
//! A case lives in a namespace of its own and speaks of a few ConfigMaps, Jobs and Leases: it creates, replaces, patches in
//! all three ways, applies as one of several managers, and deletes. What differs from run to run is named as the corpus
//! names it (`testkit::corpus`), so a difference is told by step and path, with the seed that makes it again.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use apiserver::Cluster;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use rules::job::Settings;
use serde_json::{Value, json};
use store::{Options, Store};
use testkit::{ControlPlane, corpus};

/// A short look in the test command; `--cases` for a longer one.
const CASES: u64 = 30;
const STEPS: u64 = 14;

#[tokio::main]
async fn main() -> ExitCode {
    let argument = |name: &str| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
        arguments.next().and_then(|text| text.parse::<u64>().ok())
    };
    let (count, seed) = (argument("--cases").unwrap_or(CASES), argument("--seed").unwrap_or(1));
    let Some(real) = ControlPlane::builder().for_test().await else { return ExitCode::SUCCESS };
    let theirs = corpus::Server::at(&real.kubeconfig()).await.expect("a client");
    let cases: Vec<Value> = (seed..seed + count).map(case).collect();
    let mut recorded = Vec::new();
    let unplayed = corpus::record(&theirs, &cases, 4, &mut recorded).await.expect("memory");
    for outcome in &unplayed {
        println!("{} could not be played: {}", outcome.id, outcome.differences.join("\n    "));
    }
    let text = String::from_utf8(recorded).expect("JSON is text");
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("a case")).collect();

    let dir = tempfile::tempdir().expect("a directory");
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let store = Store::open(Options::ephemeral()).expect("a store");
    let cluster = Cluster::open(store, Settings::default()).await.expect("a cluster");
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
    let kubeconfig = dir.path().join("kubeconfig");
    let url = format!("https://{}", server.address());
    credentials.write_kubeconfig(&kubeconfig, "ours", &url).expect("a kubeconfig");
    let ours = corpus::Server::at(&kubeconfig).await.expect("a client");
    let outcomes = corpus::play(&ours, &cases, 4).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).collect();
    for outcome in &failed {
        println!("{} (--cases 1 --seed {}):", outcome.id, outcome.id.rsplit('/').next().unwrap_or(""));
        for line in outcome.differences.iter().take(6) {
            println!("    {}", line.chars().take(600).collect::<String>());
        }
    }
    println!("{} of {} random cases are answered alike", outcomes.len() - failed.len(), outcomes.len());
    if failed.is_empty() && unplayed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A small generator of our own: the same seed makes the same case, on every machine and for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).expect("a small number"))
            .expect("fits")
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

fn case(seed: u64) -> Value {
    let mut random = Random(seed);
    let kind = random.below(3);
    let steps: Vec<Value> = (0..STEPS).map(|_| step(&mut random, kind)).collect();
    // A real server stores a new Job once more when it is first written without a change, because it keeps it in other
    // bytes than it read; ours does not.
    let ignored: &[&str] = if kind == 1 { &["metadata/resourceVersion"] } else { &[] };
    json!({"id": format!("random/{seed}"), "topic": "random", "managed": true, "ignore": ignored, "steps": steps})
}

fn path(kind: usize) -> &'static str {
    [
        "/api/v1/namespaces/{ns}/configmaps",
        "/apis/batch/v1/namespaces/{ns}/jobs",
        "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
    ][kind]
}

fn step(random: &mut Random, kind: usize) -> Value {
    let name = random.of(&["a", "b"]);
    let one = format!("{}/{name}", path(kind));
    let manager = random.of(&["alice", "bob", "carol"]);
    let mut query = json!({"fieldManager": manager});
    if random.chance(8) {
        query["dryRun"] = json!("All");
    }
    if random.chance(15) {
        query["fieldValidation"] = json!(random.of(&["Strict", "Ignore", "Warn"]));
    }
    let typed = |media: &str| json!({"Content-Type": media});
    let mut step = match random.below(20) {
        0..4 => json!({"method": "POST", "path": path(kind), "body": object(random, kind, name)}),
        4..7 => json!({"method": "PUT", "path": one, "body": object(random, kind, name)}),
        7..10 => {
            let body = part(random, kind);
            json!({"method": "PATCH", "path": one, "body": body, "headers": typed("application/merge-patch+json")})
        }
        10..12 => {
            let media = "application/strategic-merge-patch+json";
            json!({"method": "PATCH", "path": one, "body": part(random, kind), "headers": typed(media)})
        }
        12..13 => {
            let body = operations(random);
            json!({"method": "PATCH", "path": one, "body": body, "headers": typed("application/json-patch+json")})
        }
        13..18 => {
            if random.chance(30) {
                query["force"] = json!("true");
            }
            let body = object(random, kind, name);
            json!({"method": "PATCH", "path": one, "body": body, "headers": typed("application/apply-patch+yaml")})
        }
        18 => {
            let mut query = json!({});
            if random.chance(50) {
                query["propagationPolicy"] = json!(random.of(&["Background", "Foreground", "Orphan"]));
            }
            return json!({"method": "DELETE", "path": one, "query": query});
        }
        _ => return json!({"method": "GET", "path": one}),
    };
    step["query"] = query;
    step
}

/// An object, mostly a good one.
fn object(random: &mut Random, kind: usize, name: &str) -> Value {
    let mut object = match kind {
        0 => json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        1 => json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "c", "image": random.of(&["i", "j"])}],
            }}},
        }),
        _ => json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}),
    };
    merge(&mut object, part(random, kind));
    object["metadata"]["name"] = json!(name);
    object
}

fn merge(into: &mut Value, part: Value) {
    match (into, part) {
        (Value::Object(into), Value::Object(part)) => {
            for (key, value) in part {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, part) if !part.is_null() => *into = part,
        _ => {}
    }
}

/// A part of an object, sometimes one that is refused.
fn part(random: &mut Random, kind: usize) -> Value {
    let mut part = json!({"metadata": {}});
    let word = |random: &mut Random| random.of(&["x", "y", "z"]).to_owned();
    if random.chance(40) {
        let (key, value) = (word(random), word(random));
        part["metadata"]["labels"] = json!({key: value});
    }
    if random.chance(25) {
        let (key, value) = (word(random), word(random));
        part["metadata"]["annotations"] = json!({format!("example.com/{key}"): value});
    }
    if random.chance(12) {
        part["metadata"]["finalizers"] = json!([format!("example.com/{}", word(random))]);
    }
    if random.chance(5) {
        part["metadata"]["labels"] = json!({"not a key": "v"});
    }
    if random.chance(5) {
        part["unknown"] = json!(1);
    }
    match kind {
        0 => {
            for _ in 0..random.below(3) {
                let (key, value) = (word(random), word(random));
                part["data"][key] = json!(value);
            }
            if random.chance(4) {
                part["data"] = json!({"x": 1});
            }
        }
        1 => {
            if random.chance(50) {
                part["spec"]["parallelism"] = json!(random.below(4));
            }
            if random.chance(20) {
                part["spec"]["suspend"] = json!(random.chance(50));
            }
            if random.chance(15) {
                part["spec"]["backoffLimit"] = json!(random.below(9));
            }
            if random.chance(6) {
                part["spec"]["completions"] = json!(random.below(4));
            }
        }
        _ => {
            if random.chance(60) {
                part["spec"]["holderIdentity"] = json!(word(random));
            }
            if random.chance(30) {
                part["spec"]["leaseDurationSeconds"] =
                    json!(i64::try_from(random.below(30)).unwrap_or(0) - 2);
            }
        }
    }
    part
}

fn operations(random: &mut Random) -> Value {
    let label = random.of(&["x", "y"]);
    match random.below(4) {
        0 => json!([{"op": "add", "path": "/metadata/labels", "value": {label: "1"}}]),
        1 => json!([{"op": "remove", "path": format!("/metadata/labels/{label}")}]),
        2 => json!([{"op": "test", "path": "/metadata/name", "value": random.of(&["a", "b"])}]),
        _ => json!([{"op": "add", "path": "/metadata/annotations", "value": {"example.com/o": "1"}}]),
    }
}
