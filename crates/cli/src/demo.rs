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
use crate::output::{self, Table};
use crate::process;
use crate::up;
use crate::view::{Status, View};
use jobs::Expected;
use progress::Progress;

/// Shows a fleet at work. Succeeds only if everything ended as it should.
pub(crate) fn run(arguments: &arguments::Demo) -> anyhow::Result<ExitCode> {
    process::run(async {
        let stopped = process::stopped()?;
        tokio::select! {
            biased;
            () = stopped => Ok(Code::Interrupted.into()),
            done = show(arguments) => done,
        }
    })
}

async fn show(arguments: &arguments::Demo) -> anyhow::Result<ExitCode> {
    let scratch = up::scratch()?;
    let begin = Instant::now();
    let settings = Settings {
        workers: vec!["east".to_owned(), "west".to_owned()],
        data: Some(scratch.path().join("data")),
        port_base: 0,
        runtime: Runtime::Processes(scratch.path().join("nodes")),
        quota: up::quota(),
    };
    let fleet = Fleet::start(&settings).await?;
    eprintln!("three clusters, manager, east and west, are up after {:.1} s", begin.elapsed().as_secs_f64());

    let client = fleet.manager().client();
    let live = Live::start(&client, Some("default")).await?;
    let api: Api<Job> = Api::default_namespaced(client);
    for (job, _) in jobs::all() {
        let name = job.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &job)
            .await
            .with_context(|| format!("failed to submit job {name}"))?;
    }

    let all = jobs::all();
    let mut progress = Progress::default();
    let deadline = tokio::time::sleep(Duration::from_secs(arguments.timeout));
    tokio::pin!(deadline);
    let (views, in_time) = loop {
        let views = of(&all, &live);
        progress.show(&views);
        if views.len() == all.len()
            && views.iter().zip(&all).all(|(view, (_, expected))| expected.is_settled(view))
        {
            break (views, true);
        }
        tokio::select! {
            biased;
            () = &mut deadline => break (views, false),
            () = live.changed() => {}
        }
    };
    drop(live);
    fleet.stop().await;
    if !in_time {
        eprintln!("error: not everything ended as it should within {} s", arguments.timeout);
    }
    eprintln!();
    summary(&all, &views)?;
    if in_time {
        next()?;
    }
    Ok(if in_time { ExitCode::SUCCESS } else { Code::No.into() })
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
        let Some(view) = views.iter().find(|view| view.name == name) else { continue };
        let mark = if expected.is_settled(view) { "" } else { " (not as it should)" };
        table.row(progress::row(view, &format!("{}{mark}", expected.why())));
    }
    table.print()
}

/// What to do next.
fn next() -> anyhow::Result<()> {
    output::line("\nTo keep such a fleet, in another terminal:\n  ferry up")?;
    output::line("and then, for instance:")?;
    output::line("  kubectl create job hello --image=busybox --dry-run=client -o yaml -- echo hi |")?;
    output::line(format!("    ferry submit - --queue {} --logs", fleet::QUEUE))?;
    for (command, what) in [
        ("get jobs", "where everything stands; -w goes on"),
        ("describe hello", "all about a Job, its pods on the worker included"),
        ("explain hello", "what it waits for, cluster by cluster"),
        ("logs hello", "what its pods wrote, wherever they ran"),
        ("top", "who holds what"),
    ] {
        output::line(format!("  ferry {command:<16} # {what}"))?;
    }
    Ok(())
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
