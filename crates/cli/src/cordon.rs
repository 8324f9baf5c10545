//! `ferry cordon` and `ferry uncordon`: whether a worker takes new Jobs.
//!
//! A worker is cordoned by stopping its own LocalQueues: those that queues of the management cluster lead to get the stop
//! policy `Hold`, or `HoldAndDrain` to drain. That is Kueue's API, so it holds whoever runs on either side: the worker
//! admits no copy while its queue is held, and a manager that sees a copy evicted starts it elsewhere. To take the
//! cluster out of its MultiKueueConfig instead would be wrong: Kueue takes what runs there for lost and starts it a second
//! time.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;
use types::kueue::LocalQueue;

use crate::clusters::{counterparts, layout::Layout};
use crate::connect::Options;
use crate::failure::{self, Code, Failure, Hint as _};
use crate::install::{self, apply::Target};
use crate::{jobs, output, process};

/// Under this name queues are stopped: with it the stop can be taken back, and nothing else.
const MANAGER: &str = "ferry-cordon";

/// Let a worker take no new Jobs; those that run there go on.
///
/// Its LocalQueues that queues of the management cluster lead to are held (stopPolicy: Hold), which Kueue respects, too.
/// Jobs that wait start on other workers. Needs a context of the kubeconfig that may change LocalQueues on the worker.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry cordon east")]
pub(crate) struct Cordon {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Let a worker take new Jobs again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry uncordon east")]
pub(crate) struct Uncordon {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Which worker is meant, and how it is reached.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// The worker, as `ferry clusters` calls it.
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,

    /// The context of the worker in the kubeconfig [default: that it was joined with].
    #[arg(long, value_name = "CONTEXT")]
    worker_context: Option<String>,

    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) options: Options,
}

pub(crate) fn cordon(arguments: &Cordon) -> anyhow::Result<ExitCode> {
    process::run(async {
        stop(&arguments.which, Some("Hold")).await?;
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn uncordon(arguments: &Uncordon) -> anyhow::Result<ExitCode> {
    process::run(async {
        stop(&arguments.which, None).await?;
        give_up(&arguments.which, false).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Stops the queues of a worker in this way, or lets them go on.
pub(crate) async fn stop(which: &Which, policy: Option<&str>) -> anyhow::Result<()> {
    let manager = which.options.manager().await?;
    let layout = Layout::read(&manager.client).await?;
    let cluster = layout.cluster(&which.cluster)?;
    let client = match &which.worker_context {
        Some(context) => manager.context(context, None).await?.0,
        None => manager.administered(cluster).await?.client,
    };
    let worker = Target { client, name: which.cluster.clone(), is_dry_run: which.dry_run };
    let there = jobs::objects::<LocalQueue>(&worker.client, None).await;
    let lost = format!("is it up? if it will not come back: ferry drain --given-up {}", which.cluster);
    let there = there.with_context(|| format!("failed to ask {}", which.cluster));
    let there = there.hint_if(failure::is_unreachable, lost)?;
    let queues: Vec<&LocalQueue> = counterparts(&layout, &which.cluster, &there).collect();
    if queues.is_empty() {
        let message = format!("{} has none of the queues that lead to it", which.cluster);
        return Err(Failure::new(Code::No, message).hint("ferry doctor says which ones are missing").into());
    }
    for queue in queues {
        let mut wanted = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
            "metadata": { "name": queue.metadata.name, "namespace": queue.metadata.namespace },
        });
        if let Some(policy) = policy {
            wanted["spec"]["stopPolicy"] = json!(policy);
        }
        let applied = worker.apply_as(MANAGER, &wanted).await;
        let hint = "name a context that may change LocalQueues there with --worker-context";
        applied.hint_if(failure::is_forbidden, hint)?;
    }
    output::line(match policy {
        Some("Hold") => format!("{} takes no new Jobs; those that run there go on", which.cluster),
        Some(_) => {
            format!("{} takes no new Jobs; those that run there are stopped and queue again", which.cluster)
        }
        None => format!("{} takes new Jobs", which.cluster),
    })
}

/// Says of a worker that it will not come back and that nothing runs there, or no longer.
pub(crate) async fn give_up(which: &Which, is_given_up: bool) -> anyhow::Result<()> {
    let manager = which.options.manager().await?;
    let layout = Layout::read(&manager.client).await?;
    let cluster = layout.cluster(&which.cluster)?;
    let annotations = cluster.metadata.annotations.as_ref();
    let was = annotations.is_some_and(|annotations| annotations.contains_key(rules::dispatch::GIVEN_UP));
    if was == is_given_up {
        return Ok(());
    }
    let mut wanted = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
        "metadata": { "name": which.cluster },
    });
    if is_given_up {
        wanted["metadata"]["annotations"] = json!({ rules::dispatch::GIVEN_UP: "true" });
    }
    install::target(&manager, which.dry_run).apply_as(MANAGER, &wanted).await
}
