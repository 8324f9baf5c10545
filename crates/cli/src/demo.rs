//! `ferry demo`: a fleet, a handful of Jobs, and what became of them.

mod jobs;
mod progress;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fleet::{Fleet, Runtime, Settings};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;

use crate::arguments;
use crate::failure::Code;
use crate::live::Live;
use crate::output::{self, Cell, Table, Tone};
use crate::process;
use crate::shell;
use crate::up;
use crate::view::{Status, View};
use jobs::Expected;
use progress::Progress;

/// Shows a fleet at work. Succeeds only if everything ended as it should.
pub(crate) fn run(arguments: &arguments::Demo) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        tokio::pin!(stopped);
        let scratch = up::scratch()?;
        let begin = Instant::now();
        let settings = Settings {
            workers: vec!["east".to_owned(), "west".to_owned()],
            data: Some(scratch.path().join("data")),
            port_base: 0,
            runtime: Runtime::Processes(scratch.path().join("nodes")),
            quota: up::quota(),
            kept_logs: fleet::KEPT_LOGS,
        };
        let fleet = up::advised(Fleet::start(&settings).await, "port")?;
        let took = begin.elapsed().as_secs_f64();
        output::note(format!("three clusters, manager, east and west, are up after {took:.1} s"));
        let shown = tokio::select! {
            biased;
            () = &mut stopped => None,
            shown = show(&fleet, Duration::from_secs(arguments.timeout)) => Some(shown),
        };
        fleet.stop().await;
        let Some(shown) = shown else { return Ok(Code::Interrupted.into()) };
        tell(&shown?, arguments.timeout)
    })
}

/// What became of the Jobs, in the order in which they were submitted.
struct Shown {
    views: Vec<View>,
    in_time: bool,
}

/// Submits the Jobs and shows how they stand, until all ended as they should or time is up.
async fn show(fleet: &Fleet, timeout: Duration) -> anyhow::Result<Shown> {
    let client = fleet.manager().client();
    let live = Live::start(&client, Some("default")).await?;
    let api: Api<Job> = Api::default_namespaced(client);
    let all = jobs::all();
    for (job, _) in &all {
        let name = job.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), job)
            .await
            .with_context(|| format!("failed to submit job {name}"))?;
    }
    let mut progress = Progress::default();
    let deadline = tokio::time::sleep(timeout);
    tokio::pin!(deadline);
    loop {
        let views = of(&all, &live);
        progress.show(&views);
        let is_settled = |(view, (_, expected)): (&View, &(Job, Expected))| expected.is_settled(view);
        if views.len() == all.len() && views.iter().zip(&all).all(is_settled) {
            return Ok(Shown { views, in_time: true });
        }
        tokio::select! {
            biased;
            () = &mut deadline => return Ok(Shown { views, in_time: false }),
            () = live.changed() => {}
        }
    }
}

fn tell(shown: &Shown, timeout: u64) -> anyhow::Result<ExitCode> {
    if !shown.in_time {
        output::note(format!("error: not everything ended as it should within {timeout} s"));
        output::note("hint: is the machine very busy? --timeout SECONDS gives it longer");
    }
    output::note("");
    summary(&jobs::all(), &shown.views)?;
    if !shown.in_time {
        return Ok(Code::No.into());
    }
    next()?;
    Ok(ExitCode::SUCCESS)
}

/// How the Jobs stand, in the order in which they were submitted.
fn of(all: &[(Job, Expected)], live: &Live) -> Vec<View> {
    let found = live.found();
    let view = |(job, _): &(Job, Expected)| {
        found
            .iter()
            .map(|found| &found.view)
            .find(|view| Some(&view.name) == job.metadata.name.as_ref())
            .cloned()
    };
    all.iter().filter_map(view).collect()
}

fn summary(all: &[(Job, Expected)], views: &[View]) -> anyhow::Result<()> {
    let mut table = Table::new(["JOB", "ENDED", "RAN ON", "DONE", "FAILED PODS", "TOOK", "WHY"]);
    for (job, expected) in all {
        let name = job.metadata.name.clone().unwrap_or_default();
        let Some(view) = views.iter().find(|view| view.name == name) else {
            table.row([name.into(), Cell::toned(Tone::Bad, "gone")]);
            continue;
        };
        let mark = if expected.is_settled(view) { "" } else { " (not as it should)" };
        table.row(progress::row(view, &format!("{}{mark}", why(view))));
    }
    table.print()
}

/// How it came to run where it did, as the management cluster tells it.
fn why(view: &View) -> String {
    let mut why = match (&view.cluster, &view.queue) {
        (Some(cluster), Some(queue)) => {
            format!("had quota in queue {queue}, and {cluster} admitted it first")
        }
        (None, Some(queue)) => format!("waits in queue {queue}: {}", view.reason),
        (_, None) if view.status == Status::External => format!("{}, who is not here", view.reason),
        (_, None) => "names no queue, so it ran where it was submitted".to_owned(),
    };
    if view.progress.failed > 0 && view.status == Status::Complete {
        why.push_str("; what failed was tried again");
    }
    why
}

/// What to do next.
fn next() -> anyhow::Result<()> {
    let ferry = shell::called();
    output::line(format!("\nTo keep such a fleet, in another terminal:\n  {ferry} up"))?;
    output::line("and then, for instance:")?;
    let submit = format!("submit docs/examples/job.yaml --queue {}", fleet::QUEUE);
    let commands = [
        (submit.as_str(), "any manifest; --wait or --logs stay with it"),
        ("get jobs", "where everything stands; -w goes on"),
        ("describe render", "all about a Job, its pods on the worker included"),
        ("explain render", "what it waits for, cluster by cluster"),
        ("logs render", "what its pods wrote, wherever they ran"),
        ("top", "who holds what"),
    ];
    let width = submit.len();
    commands
        .iter()
        .try_for_each(|(command, what)| output::line(format!("  {ferry} {command:<width$}   # {what}")))
}

impl Expected {
    /// Whether a Job is as it should be in the end.
    fn is_settled(self, view: &View) -> bool {
        match self {
            Expected::OnWorker => view.status == Status::Complete && view.cluster.is_some(),
            Expected::Here => {
                view.status == Status::Complete && view.cluster.is_none() && view.workload.is_none()
            }
            Expected::Untouched => view.status == Status::External,
        }
    }
}
