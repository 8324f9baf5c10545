//! `ferry demo`: a fleet, a handful of Jobs, and what became of them.

mod jobs;
mod progress;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use fleet::{Fleet, Runtime, Settings};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};

use crate::arguments;
use crate::failure::Code;
use crate::live::Live;
use crate::output::{self, Cell, Table, Tone};
use crate::place::Place;
use crate::process;
use crate::shell;
use crate::up;
use crate::view::{Status, View};
use jobs::Expected;
use progress::Progress;

/// What to do about Jobs that do not end in time, or not as they should.
const BUSY: &str = "is the machine very busy? --timeout SECONDS gives it longer";
const REPORT: &str = "it is a mistake of ours: RUST_LOG=info ferry demo shows what happened";

/// Shows a fleet at work. Succeeds only if everything ended as it should.
pub(crate) fn run(arguments: &arguments::Demo) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        tokio::pin!(stopped);
        let place = Place::scratch()?;
        let begin = Instant::now();
        let settings = Settings {
            workers: vec!["east".to_owned(), "west".to_owned()],
            data: Some(place.directory().join("data")),
            port_base: 0,
            runtime: Runtime::Processes(place.nodes()),
            hidden: vec![place.directory().to_owned()],
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
        place.leave()?;
        let Some(shown) = shown else { return Ok(Code::Interrupted.into()) };
        tell(&shown?)
    })
}

/// What became of the Jobs, in the order in which they were submitted.
struct Shown {
    views: Vec<View>,
    /// What went wrong, and what to do about it.
    wrong: Option<(String, &'static str)>,
}

/// Submits the Jobs and shows how they stand, until all ended, one of them not as it should, or time is up.
async fn show(fleet: &Fleet, timeout: Duration) -> anyhow::Result<Shown> {
    let client = fleet.manager().client();
    let live = Live::start(&client, Some("default")).await?;
    let api: Api<Job> = Api::default_namespaced(client.clone());
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
        let is_seen = views.len() == all.len();
        let both = || views.iter().zip(all.iter().map(|(_, expected)| *expected)).filter(|_| is_seen);
        if let Some((view, _)) = both().find(|(view, expected)| expected.is_missed(view)) {
            let wrong = format!("{} did not end as it should: it is {}", view.name, view.status.text());
            return Ok(Shown { views, wrong: Some((wrong, REPORT)) });
        }
        if is_seen && both().all(|(view, expected)| expected.is_settled(view)) {
            let wrong = pods_here(&client, &all).await?.map(|wrong| (wrong, REPORT));
            return Ok(Shown { views, wrong });
        }
        tokio::select! {
            biased;
            () = &mut deadline => {
                let wrong = format!("not everything ended as it should within {} s", timeout.as_secs());
                return Ok(Shown { views, wrong: Some((wrong, BUSY)) });
            }
            () = live.changed() => {}
        }
    }
}

/// What is wrong if a Job that ran on a worker has pods on the manager, too: they would be there still.
async fn pods_here(client: &Client, all: &[(Job, Expected)]) -> anyhow::Result<Option<String>> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pods = pods.list(&ListParams::default()).await.context("failed to list the pods of the manager")?;
    let away = all.iter().filter(|(_, expected)| *expected != Expected::Here);
    let away: Vec<&str> = away.filter_map(|(job, _)| job.metadata.name.as_deref()).collect();
    let astray = pods.items.iter().find(|pod| {
        let job = pod.metadata.labels.as_ref().and_then(|labels| labels.get(rules::job::JOB_NAME_LABEL));
        job.is_some_and(|job| away.contains(&job.as_str()))
    });
    let name = astray.map(|pod| pod.metadata.name.clone().unwrap_or_default());
    Ok(name.map(|name| format!("the manager has a pod of a Job that is not its own: {name}")))
}

fn tell(shown: &Shown) -> anyhow::Result<ExitCode> {
    if let Some((wrong, hint)) = &shown.wrong {
        output::note(format!("error: {wrong}"));
        output::note(format!("hint: {hint}"));
    }
    output::note("");
    summary(&jobs::all(), &shown.views)?;
    if shown.wrong.is_some() {
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
            format!("had quota in queue {queue}, and {cluster} admitted it")
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

/// A Job to try with the next commands, wherever one is.
const MANIFEST: &str = "{apiVersion: batch/v1, kind: Job, metadata: {name: render}, spec: {template: {spec: \
                        {restartPolicy: Never, containers: [{name: c, image: busybox, command: [echo, hello]}]}}}}";

/// What to do next.
fn next() -> anyhow::Result<()> {
    let ferry = shell::called();
    output::line(format!("\nTo keep such a fleet, in another terminal:\n  {ferry} up"))?;
    output::line("and then, for instance, with any manifest:")?;
    output::line(format!("  echo '{MANIFEST}' |\n    {ferry} submit - --queue {} --logs", fleet::QUEUE))?;
    let commands = [
        ("get jobs", "where everything stands; -w goes on"),
        ("describe render", "all about a Job, its pods on the worker included"),
        ("explain render", "what it waits for, cluster by cluster"),
        ("logs render", "what its pods wrote, wherever they ran"),
        ("top", "who holds what"),
    ];
    commands
        .iter()
        .try_for_each(|(command, what)| output::line(format!("  {ferry} {command:<15}   # {what}")))
}

impl Expected {
    /// Whether a Job is as it should be in the end.
    fn is_settled(self, view: &View) -> bool {
        let is_complete = view.status == Status::Complete;
        match self {
            Expected::OnWorker => is_complete && view.cluster.is_some(),
            Expected::OnWorkerAgain => is_complete && view.cluster.is_some() && view.progress.failed > 0,
            Expected::Here => is_complete && view.cluster.is_none() && view.workload.is_none(),
            Expected::Untouched => view.status == Status::External,
        }
    }

    /// Whether it can no longer become so. Where it ran may be told a moment later than that it has ended.
    fn is_missed(self, view: &View) -> bool {
        match view.status {
            Status::Failed => true,
            Status::Complete => match self {
                Expected::OnWorker | Expected::Here => false,
                Expected::OnWorkerAgain => view.progress.failed == 0,
                Expected::Untouched => true,
            },
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_next_command_has_a_manifest_that_can_be_submitted() {
        let read: Job = serde_saphyr::from_str(MANIFEST).expect("a Job");
        assert_eq!(read.metadata.name.as_deref(), Some("render"));
    }

    /// What has failed is not waited for, and what was to fail first has to have done so.
    #[test]
    fn what_can_no_longer_end_well_is_known() {
        let view = |status: Status, failed: i32| {
            let job = json!({ "metadata": { "name": "a" }, "status": { "failed": failed } });
            let mut view = View::of_job(&serde_json::from_value(job).expect("a Job"), None);
            (view.status, view.cluster) = (status, Some("east".to_owned()));
            view
        };
        let judged = |expected: Expected, view: &View| (expected.is_settled(view), expected.is_missed(view));
        assert_eq!(judged(Expected::OnWorker, &view(Status::Complete, 0)), (true, false));
        assert_eq!(judged(Expected::OnWorker, &view(Status::Running, 0)), (false, false));
        assert_eq!(judged(Expected::OnWorker, &view(Status::Failed, 1)), (false, true));
        assert_eq!(judged(Expected::OnWorkerAgain, &view(Status::Complete, 1)), (true, false));
        assert_eq!(judged(Expected::OnWorkerAgain, &view(Status::Complete, 0)), (false, true));
        assert_eq!(judged(Expected::Untouched, &view(Status::Complete, 0)), (false, true));
    }
}
