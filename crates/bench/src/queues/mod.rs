//! Queues: raw Workloads through quota, by `ferry operator` and by Kueue's manager, one after the other on the same real
//! API server; then on an embedded cluster; then the cycle alone.
//!
//! The shape is that of Kueue's own scheduler performance test: 5 cohorts of 6 ClusterQueues, three classes of Workloads,
//! 15,000 of them (`WORKLOADS` says otherwise). All of them wait before the manager starts, and each is finished by the
//! benchmark as soon as it is admitted, so that the manager is what is measured and not how long work takes.

mod cycle;
mod requests;
mod runner;

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use kube::Client;
use operator::definitions::{Conversion, install};
use reconcile::{Clock, Tasks};
use serde_json::json;
use testkit::ControlPlane;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    report::Report,
    usage::{Cpu, peak_memory},
};
use requests::Requests;
use runner::{Evictions, Round};

/// As many as in Kueue's own test.
const WORKLOADS: usize = 15_000;

/// How long an API server that has nothing to do is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long it may take to come to rest.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a manager did with a round of Workloads.
struct Did {
    wall: Duration,
    cpu: Duration,
    /// The same of the API server and its etcd, what the runner asks of them included.
    servers: Duration,
    peak: u64,
    /// What the API server was asked for each Workload, by the manager and by the runner, which ends it.
    requests: String,
}

pub(crate) async fn run() -> anyhow::Result<Report> {
    let number = std::env::var("WORKLOADS").ok().and_then(|it| it.parse().ok()).unwrap_or(WORKLOADS);
    eprintln!("starting kube-apiserver");
    let cluster = ControlPlane::builder().start().await?;
    let client = cluster.client();
    install(&client, &Conversion::Embedded).await?;

    let round = Round::prepare(&client, "ours", number).await?;
    at_rest(&cluster).await?;
    let ours = with_ferry(&cluster, &round).await?;
    round.clear().await?;
    let round = Round::prepare(&client, "theirs", number).await?;
    at_rest(&cluster).await?;
    let theirs = with_kueue(&cluster, &round).await?;
    drop(cluster); // so that it does not compete with what is measured next

    let embedded = embedded(number).await?;
    let cycle = cycle::run();
    let per = |time: Duration| time / u32::try_from(number).unwrap_or(1);
    let rate = |time: Duration| format!("{:.0}", per(time).as_secs_f64().recip());
    let (our_peak, their_peak) = (mebibytes(ours.peak), mebibytes(theirs.peak));
    let about = format!("{number} Workloads of three classes through 30 ClusterQueues in 5 cohorts");
    Ok(Report::new("queues", about, "ferry operator", "Kueue v0.19.2, settings of its manifests")
        .measure("from waiting to finished, mean", per(ours.wall), per(theirs.wall))
        .measure("processor time of the manager, mean", per(ours.cpu), per(theirs.cpu))
        .measure("processor time of API server and etcd", per(ours.servers), per(theirs.servers))
        .note(format!("admitted per second: ours {}, theirs {}", rate(ours.wall), rate(theirs.wall)))
        .note(format!(
            "peak memory of the manager: ours {our_peak:.0} MiB, theirs {their_peak:.0} MiB, {:.1} times as much",
            their_peak / our_peak
        ))
        .note(format!("requests for each Workload, ours: {}", ours.requests))
        .note(format!("requests for each Workload, theirs: {}", theirs.requests))
        .note(format!("on an embedded cluster, all in this process: {} per second", rate(embedded)))
        .note(cycle)
        .note("both on the same kube-apiserver v1.35.8, one after the other; each admitted Workload is finished at once"))
}

/// Waits until an API server has nothing more to do of its own: after definitions are installed it is busy for a while,
/// and whoever comes first would pay for that.
async fn at_rest(cluster: &ControlPlane) -> anyhow::Result<()> {
    let began = Instant::now();
    let ids = cluster.process_ids();
    loop {
        let before = Cpu::of(&ids)?;
        tokio::time::sleep(LOOK).await;
        if Cpu::of(&ids)? - before < LOOK / 10 {
            eprintln!("the API server came to rest in {:?}", began.elapsed());
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "the API server does not come to rest");
    }
}

fn mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes / 1024).unwrap_or(u32::MAX)) / 1024.0
}

async fn with_ferry(cluster: &ControlPlane, round: &Round) -> anyhow::Result<Did> {
    let program = std::env::current_exe()?.with_file_name("ferry");
    let mut child = Command::new(&program)
        .arg("operator")
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("failed to start {}; build it with --release -p cli", program.display()))?;
    let id = child.id().context("a process has an id")?;
    ready(&mut child).await?;
    let did = measured(id, cluster, round, Evictions::OfTheManager).await?;
    child.kill().await?;
    Ok(did)
}

/// Waits for the one line that it prints.
async fn ready(child: &mut Child) -> anyhow::Result<()> {
    let stdout = child.stdout.take().context("its output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).await?;
    anyhow::ensure!(line.contains("is ready"), "it said {line:?}");
    Ok(())
}

async fn with_kueue(cluster: &ControlPlane, round: &Round) -> anyhow::Result<Did> {
    // As its manifests have it.
    let at_once = json!({
        "Job.batch": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
        "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1, "Cohort.kueue.x-k8s.io": 1,
    });
    let settings = json!({
        "clientConnection": { "qps": 300, "burst": 500 },
        "controller": { "groupKindConcurrency": at_once },
    });
    let kueue = cluster.kueue(&settings).await?;
    let id = kueue.id().context("a process has an id")?;
    measured(id, cluster, round, Evictions::OfTheRunner).await
}

async fn measured(
    id: u32,
    cluster: &ControlPlane,
    round: &Round,
    evictions: Evictions,
) -> anyhow::Result<Did> {
    let ids = cluster.process_ids();
    let requests = Requests::so_far(&round.client).await?;
    let (cpu, servers) = (Cpu::of(&[id])?, Cpu::of(&ids)?);
    let wall = round.play(evictions).await?;
    let (cpu, servers, peak) = (Cpu::of(&[id])? - cpu, Cpu::of(&ids)? - servers, peak_memory(id)?);
    let requests = Requests::so_far(&round.client).await?.per(&requests, round.number);
    Ok(Did { wall, cpu, servers, peak, requests })
}

/// The same on an embedded cluster: API server, operator and runner in this process.
async fn embedded(number: usize) -> anyhow::Result<Duration> {
    eprintln!("on an embedded cluster");
    let store = store::Store::open(store::Options::ephemeral())?;
    let cluster = apiserver::Cluster::open(store, rules::job::Settings::default()).await;
    let cluster = cluster.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
    let client = Client::new(cluster, "default");
    install(&client, &Conversion::Embedded).await?;
    let round = Round::prepare(&client, "embedded", number).await?;
    let mut tasks = Tasks::new();
    let began = Instant::now();
    operator::start(client, operator::Settings::default(), Clock::system(), &mut tasks).ready().await;
    eprintln!("  seen in {:?}", began.elapsed());
    let wall = round.play(Evictions::OfTheManager).await;
    tasks.stop().await;
    wall
}
