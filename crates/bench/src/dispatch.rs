//! One-pod Jobs from create to Complete over two worker clusters: Ferry, beside Kueue as it is shipped, on real control
//! planes; what one frozen worker of three does to the others; and a whole embedded fleet.
//!
//! `BENCH_JOBS` (500,2000) and `BENCH_FLEET_JOBS` (1000,10000,50000) say how many. Without any `BENCH_JOBS` (`BENCH_JOBS=`)
//! only the embedded fleet is measured. `BENCH_DISPATCHER` names another dispatcher for ours than the usual one.

mod clusters;
mod load;
mod program;

use std::time::Duration;

use anyhow::Context as _;

use self::{
    clusters::{Clusters, Run, Who},
    load::{Jobs, Times},
    program::Fleet,
};
use crate::report::{Report, Samples};

/// How many Jobs are measured that have the clusters for themselves.
const ALONE: usize = 9;
/// How many Jobs are submitted before and after a worker freezes, and how long after each other.
const PACED: usize = 60;
const PACE: Duration = Duration::from_millis(150);

pub(crate) async fn run() -> anyhow::Result<Report> {
    let sizes = numbers("BENCH_JOBS", &[500, 2000])?;
    let fleets = numbers("BENCH_FLEET_JOBS", &[1_000, 10_000, 50_000])?;
    let about = "one-pod Jobs (0.1 s each) over two workers, from create to Complete".to_owned();
    let us = clusters::dispatcher().map(|name| format!("ferry operator, with {name}"));
    let us = us.unwrap_or_else(|| "ferry operator".to_owned());
    let them = "Kueue v0.19.2 as shipped; three v1.35.8 control planes for each";
    let mut report = Report::new("dispatch", about, &us, them);
    if !sizes.is_empty() {
        report = Box::pin(real(report, &sizes)).await?;
    }
    for jobs in fleets {
        report = report.note(embedded(jobs).await?);
    }
    Ok(report)
}

/// Ours and theirs on real control planes.
async fn real(report: Report, sizes: &[usize]) -> anyhow::Result<Report> {
    let ours = Box::pin(measure(Who::Ferry, sizes)).await?;
    let theirs = Box::pin(measure(Who::Kueue, sizes)).await?;
    let mut report =
        report.measure("one Job alone, median", ours.alone.percentile(50), theirs.alone.percentile(50));
    for (ours, theirs) in ours.runs.iter().zip(&theirs.runs) {
        report = compare(report, ours, theirs);
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    report = report.note(format!(
        "peak memory of the manager's operator: ours {} MiB, theirs {} MiB; of all three: ours {} MiB, theirs {} MiB",
        mebibytes(ours.memory.manager),
        mebibytes(theirs.memory.manager),
        mebibytes(ours.memory.all),
        mebibytes(theirs.memory.all),
    ));
    report = report.note(frozen().await?);
    Ok(report
        .note("requests and processor time of API servers are of all three, with kube-controller-manager and the simulated pods, which are the same for both")
        .note("Kueue runs without its webhooks, for which the Jobs need nothing, and with leader election off; etcd does not sync its writes"))
}

/// What one side took.
struct Measured {
    alone: Samples,
    runs: Vec<Run>,
    memory: clusters::Memory,
}

async fn measure(who: Who, sizes: &[usize]) -> anyhow::Result<Measured> {
    eprintln!("{who:?}: starting three control planes");
    let clusters = Clusters::start(who, &["east", "west"]).await?;
    let jobs = Jobs::new(clusters.client(), clusters::job);
    let mut alone = Vec::new();
    for number in 0..ALONE {
        alone.extend(jobs.run(&format!("alone-{number}"), 1, None).await?.each());
    }
    let alone = Samples::new(alone);
    eprintln!("{who:?}: one Job alone in {:.2?}", alone.percentile(50));
    let mut runs = Vec::new();
    for count in sizes {
        let run = clusters.measured(jobs.run(&format!("of-{count}"), *count, None)).await?;
        eprintln!("{who:?}: {run}");
        runs.push(run);
    }
    Ok(Measured { alone, runs, memory: clusters.memory()? })
}

fn compare(report: Report, ours: &Run, theirs: &Run) -> Report {
    let count = u32::try_from(ours.times.count()).unwrap_or(u32::MAX);
    let (at, until) = (ours.times.samples(), theirs.times.samples());
    let what = |text: &str| -> &'static str { Box::leak(format!("{count} Jobs: {text}").into_boxed_str()) };
    report
        .measure(what("time for each"), ours.times.total() / count, theirs.times.total() / count)
        .measure(what("latency, median"), at.percentile(50), until.percentile(50))
        .measure(what("latency, 99 of 100"), at.percentile(99), until.percentile(99))
        .measure(what("API servers' CPU for each"), ours.servers / count, theirs.servers / count)
        .measure(what("operators' CPU for each"), ours.operators / count, theirs.operators / count)
        .note(format!(
            "{count} Jobs: ours {:.1} Jobs/s, theirs {:.1} Jobs/s; requests for each: ours {}, theirs {}",
            ours.times.rate(),
            theirs.times.rate(),
            ours.requests.each(count),
            theirs.requests.each(count),
        ))
}

/// What a frozen worker does to the Jobs of two others.
async fn frozen() -> anyhow::Result<String> {
    eprintln!("starting four control planes, to freeze one of them");
    let clusters = Clusters::start(Who::Ferry, &["east", "west", "north"]).await?;
    let jobs = Jobs::new(clusters.client(), clusters::job);
    jobs.run("warm", PACED, Some(PACE)).await?;
    let before = jobs.run("before", PACED, Some(PACE)).await?;
    clusters.freeze("north")?;
    let after = jobs.run("after", PACED, Some(PACE)).await;
    clusters.thaw("north")?;
    let (before, after) = (before.samples(), after?.samples());
    let ratio = |percent| after.percentile(percent).as_secs_f64() / before.percentile(percent).as_secs_f64();
    Ok(format!(
        "one worker of three frozen: latency on the other two, median {:.2?} instead of {:.2?} ({:.2} times), 99 of 100 {:.2?} instead of {:.2?} ({:.2} times)",
        after.percentile(50),
        before.percentile(50),
        ratio(50),
        after.percentile(99),
        before.percentile(99),
        ratio(99),
    ))
}

/// A fleet of ours in one process that keeps what it acknowledges.
async fn embedded(count: usize) -> anyhow::Result<String> {
    eprintln!("starting ferry up, for {count} Jobs");
    let fleet = Fleet::start().await?;
    let jobs = Jobs::new(fleet.client(), program::job);
    let before = fleet.cpu()?;
    let times: Times = jobs.run("job", count, None).await?;
    let (cpu, samples) = (fleet.cpu()? - before, times.samples());
    let said = format!(
        "embedded fleet, durable, {count} Jobs: {:.0} Jobs/s, latency median {:.2?}, 99 of 100 {:.2?}, {:.2?} CPU for each, peak memory {} MiB",
        times.rate(),
        samples.percentile(50),
        samples.percentile(99),
        cpu / u32::try_from(count)?,
        fleet.memory()? >> 20,
    );
    eprintln!("{said}");
    Ok(said)
}

/// Numbers from the environment, separated by commas.
fn numbers(name: &str, unless: &[usize]) -> anyhow::Result<Vec<usize>> {
    let Ok(text) = std::env::var(name) else { return Ok(unless.to_vec()) };
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().with_context(|| format!("{name}: {part:?} is no number"))).collect()
}
