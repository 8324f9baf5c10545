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
use reconcile::{Cache, Tasks};
use tokio::sync::Notify;
use types::kueue::Workload;

use crate::arguments;
use crate::failure::Code;
use crate::process;
use crate::up;
use jobs::Expected;
use progress::{Progress, Seen};

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
    let (mut tasks, changed) = (Tasks::new(), std::sync::Arc::new(Notify::new()));
    let (one, other) = (changed.clone(), changed.clone());
    let jobs =
        Cache::new(Api::<Job>::all(client.clone())).on_change(move |_| one.notify_one()).start(&mut tasks);
    let workloads = Cache::new(Api::<Workload>::all(client.clone()))
        .on_change(move |_| other.notify_one())
        .start(&mut tasks);
    let api: Api<Job> = Api::default_namespaced(client);
    for (job, _) in jobs::all() {
        let name = job.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &job)
            .await
            .with_context(|| format!("failed to submit job {name}"))?;
    }

    let mut progress = Progress::default();
    let deadline = tokio::time::sleep(Duration::from_secs(arguments.timeout));
    tokio::pin!(deadline);
    let in_time = loop {
        let seen: Vec<Seen> = jobs::all().iter().map(|(job, _)| Seen::of(job, &jobs, &workloads)).collect();
        progress.show(&seen);
        let all = jobs::all();
        if seen.iter().zip(&all).all(|(seen, (_, expected))| expected.is_settled(seen)) {
            break true;
        }
        tokio::select! {
            biased;
            () = &mut deadline => break false,
            () = changed.notified() => {}
        }
    };

    let mut as_expected = true;
    println!("{:<12} {:<12} {:<10} {:>6}  WHY", "JOB", "ENDED", "RAN ON", "TOOK");
    for (job, expected) in jobs::all() {
        let seen = Seen::of(&job, &jobs, &workloads);
        let good = expected.is_settled(&seen);
        as_expected &= good;
        let mark = if good { "" } else { "  (not as it should)" };
        println!("{}  {}{mark}", seen.row(), expected.why());
    }
    drop(tasks);
    fleet.stop().await;
    if !in_time {
        eprintln!("error: not everything ended within {} s", arguments.timeout);
    }
    if as_expected {
        println!("\nTo keep such a fleet:\n  ferry up\nand, with the KUBECONFIG that it prints:");
        println!("  kubectl create job hello --image=busybox --dry-run=client -o yaml -- echo hi |");
        println!(
            "    kubectl label --local -f - kueue.x-k8s.io/queue-name={} -o yaml | kubectl create -f -",
            fleet::QUEUE
        );
        println!("  kubectl get jobs,workloads");
    }
    Ok(if as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Expected {
    /// Whether a Job is as it should be in the end.
    fn is_settled(&self, seen: &Seen) -> bool {
        match self {
            Expected::OnWorker => seen.is_complete && seen.cluster.is_some(),
            Expected::Here => seen.is_complete && seen.cluster.is_none() && !seen.is_queued,
            Expected::Untouched => seen.is_created && !seen.has_status,
        }
    }
}
