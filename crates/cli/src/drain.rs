//! `ferry drain`: a worker takes no new Jobs, and what runs there goes elsewhere.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::Api;
use reconcile::{Cache, Tasks};
use tokio::sync::Notify;
use types::kueue::Workload;

use crate::clusters::layout::{Layout, is_on};
use crate::cordon::{self, Which};
use crate::failure::{Code, Failure};
use crate::{output, process, span};

/// Let a worker take no new Jobs, stop those that run there, and wait until they are gone.
///
/// Its LocalQueues that queues of the management cluster lead to are stopped (stopPolicy: HoldAndDrain), which Kueue
/// respects, too: the worker evicts what runs, and the management cluster queues it again for other workers. `ferry
/// uncordon` lets the worker take new Jobs again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry drain east --timeout 10m\n  ferry drain east --given-up")]
pub(crate) struct Arguments {
    /// The worker cannot be reached and will not come back, and nothing runs there any more: what is known to be there
    /// starts elsewhere at once, and should the worker come back all the same, it gets no new Jobs before `ferry uncordon`.
    /// If pods do run there, they run twice.
    #[arg(long)]
    given_up: bool,

    /// How long to wait until nothing is there.
    #[arg(long, value_name = "SPAN", default_value = "5m", value_parser = span::parse)]
    timeout: Duration,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let which = &arguments.which;
        if arguments.given_up {
            cordon::give_up(which).await?;
        } else {
            cordon::drain(which).await?;
        }
        if which.dry_run {
            let manager = which.options.manager().await?;
            let there = Layout::read(&manager.client).await?.on(&which.cluster).count();
            let count = output::count(there, "Job");
            let what = if arguments.given_up { "start elsewhere" } else { "be stopped and queue again" };
            output::line(format!("{}: {count} would {what}", which.cluster))?;
            return Ok(ExitCode::SUCCESS);
        }
        empty(which, arguments.timeout).await?;
        output::line(format!("{} is empty", which.cluster))?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Waits until the manager knows of nothing on the worker.
async fn empty(which: &Which, timeout: Duration) -> anyhow::Result<()> {
    let manager = which.options.manager().await?;
    let (mut tasks, changed) = (Tasks::new(), Arc::new(Notify::new()));
    let tell = Arc::clone(&changed);
    let workloads = Cache::new(Api::<Workload>::all(manager.client.clone()))
        .on_change(move |_| tell.notify_one())
        .start(&mut tasks);
    workloads.ready().await;
    let emptied = tokio::time::timeout(timeout, until_empty(&which.cluster, &workloads, &changed)).await;
    let left = names(&on(&which.cluster, &workloads));
    tasks.stop().await;
    emptied.map_err(|_| {
        let message = format!("{} still has Workloads: {left}", which.cluster);
        Failure::new(Code::Timeout, message).hint("ferry doctor says what is wrong").into()
    })
}

async fn until_empty(cluster: &str, workloads: &Cache<Workload>, changed: &Notify) {
    let mut told = 0;
    loop {
        let there = on(cluster, workloads).len();
        if there == 0 {
            return;
        }
        if told != there {
            output::note(format!("{cluster}: still there: {}", output::count(there, "Job")));
            told = there;
        }
        changed.notified().await;
    }
}

fn on(cluster: &str, workloads: &Cache<Workload>) -> Vec<Arc<Workload>> {
    workloads.all().into_iter().filter(|workload| is_on(workload, cluster)).collect()
}

fn names(workloads: &[Arc<Workload>]) -> String {
    let names: Vec<&str> = workloads.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
    names.join(", ")
}
