//! The API machinery through HTTP: the recorded answers of a real server, played against ours and against a real one.
//!
//! `FERRY_CASE=watch/` plays only the cases whose names begin so, and prints every difference; `FERRY_RECORDING=FILE`
//! plays the cases of that file instead.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use apiserver::{Cluster, Setup};
use serde_json::Value;
use store::{Options, Store};
use testkit::corpus::{self, Outcome};

/// The recordings: the first was made elsewhere, the second is our own.
const RECORDINGS: [&str; 2] = ["api-v1.35.8.jsonl", "api-own-v1.35.8.jsonl"];
/// The environment variables that choose among cases.
const ONE: &str = "FERRY_CASE";
const OTHER: &str = "FERRY_RECORDING";
/// Names of cases that ours cannot pass yet. A case that passes must go from it.
const PENDING: &str = "api-pending.txt";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_of_a_real_api_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let store = Store::open(Options::ephemeral()).expect("a store");
    // Pods get service accounts, as they do from the server that was recorded.
    let setup = Setup { service_accounts: true, ..Setup::default() };
    let cluster = Cluster::open_with(store, setup).await.expect("a cluster");
    let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
    let kubeconfig = dir.path().join("kubeconfig");
    let url = format!("https://{}", server.address());
    credentials.write_kubeconfig(&kubeconfig, "corpus", &url).expect("a kubeconfig");
    let under_test = corpus::Server::at(&kubeconfig).await.expect("a client");

    let outcomes = play(&under_test, cases()).await;
    let pending = pending();
    let known: BTreeSet<&str> = outcomes.iter().map(|outcome| outcome.id.as_str()).collect();
    let failed: BTreeSet<&str> = outcomes
        .iter()
        .filter(|outcome| !outcome.differences.is_empty())
        .map(|outcome| outcome.id.as_str())
        .collect();
    let is_whole = [ONE, OTHER].iter().all(|variable| std::env::var_os(variable).is_none());
    println!("{} of {} passed", known.len() - failed.len(), known.len());
    let unexpected: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| {
            failed.contains(outcome.id.as_str()) && (!is_whole || !pending.contains(&outcome.id))
        })
        .collect();
    assert!(unexpected.is_empty(), "{}", told(&unexpected));
    let stale: Vec<&String> = pending.iter().filter(|id| is_whole && !failed.contains(id.as_str())).collect();
    assert!(stale.is_empty(), "these pass, or are no cases, and must leave {PENDING}: {stale:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_answers_are_those_of_a_real_api_server() {
    let Some(real) = testkit::ControlPlane::builder().for_test().await else { return };
    let under_test = corpus::Server::at(&real.kubeconfig()).await.expect("a client");
    let outcomes = play(&under_test, cases()).await;
    // A real server reads `resourceVersion=0` from a cache that lags behind when there is much to do.
    let failed: BTreeSet<String> =
        outcomes.into_iter().filter(|it| !it.differences.is_empty()).map(|it| it.id).collect();
    let is_failed = |case: &Value| case["id"].as_str().is_some_and(|id| failed.contains(id));
    let again: Vec<Value> = cases().into_iter().filter(is_failed).collect();
    let outcomes = corpus::play(&under_test, &again, 1).await;
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.differences.is_empty()).collect();
    assert!(failed.is_empty(), "{}", told(&failed));
}

/// Plays cases, several at once. Those that tell of all that is served come first and alone: others define kinds.
async fn play(server: &corpus::Server, cases: Vec<Value>) -> Vec<Outcome> {
    let tells_all = |step: &Value| matches!(step["path"].as_str(), Some("/apis" | "/openapi/v3"));
    let is_of_all = |case: &Value| {
        case["id"].as_str().is_some_and(|id| id.contains("discovery/"))
            || case["steps"].as_array().is_some_and(|steps| steps.iter().any(tells_all))
    };
    let (of_all, others): (Vec<Value>, Vec<Value>) = cases.into_iter().partition(is_of_all);
    let mut outcomes = corpus::play(server, &of_all, 1).await;
    outcomes.extend(corpus::play(server, &others, 8).await);
    outcomes
}

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file)
}

fn cases() -> Vec<Value> {
    let other = std::env::var_os(OTHER).map(PathBuf::from);
    let files = other.map_or_else(|| RECORDINGS.map(data).to_vec(), |file| vec![file]);
    let all = files.iter().flat_map(|file| corpus::read(file).expect("a recording"));
    let wanted = std::env::var(ONE).unwrap_or_default();
    let cases: Vec<Value> =
        all.filter(|case| case["id"].as_str().is_some_and(|id| id.starts_with(&wanted))).collect();
    assert!(!cases.is_empty(), "no case is called {wanted}…");
    cases
}

/// A name a line; what follows a space or stands after `#` tells whose part it is and what is missing.
fn pending() -> BTreeSet<String> {
    let text = std::fs::read_to_string(data(PENDING)).expect("the list");
    let names = text.lines().filter_map(|line| line.split('#').next()?.split_whitespace().next());
    names.map(str::to_owned).collect()
}

fn told(outcomes: &[&Outcome]) -> String {
    let each = |outcome: &&Outcome| format!("{}\n    {}", outcome.id, outcome.differences.join("\n    "));
    format!("{} failed:\n{}", outcomes.len(), outcomes.iter().map(each).collect::<Vec<_>>().join("\n"))
}
