//! `ferry leave`: a cluster is no longer a worker.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use types::kueue::{MultiKueueConfig, Workload};

use crate::clusters::layout::Layout;
use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure};
use crate::install::{self, apply::Target};
use crate::join::access::{self, Access};
use crate::join::secret;
use crate::{output, process};

/// How long to wait until the operator has taken away what is left of Workloads on the worker, and how often to look: the
/// worker may be on its way out, so it is asked and not watched.
const CLEANED: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(500);

/// Take a worker away from the management cluster: what `ferry join` did is undone.
///
/// Refused while Jobs run there; `ferry drain` moves them elsewhere. Queues that were mirrored stay on the worker.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry drain east && ferry leave east")]
pub(crate) struct Arguments {
    /// The worker, as `ferry clusters` calls it.
    #[arg(value_name = "CLUSTER")]
    cluster: String,

    /// Do it although Jobs run there. Nobody looks after those any more: whoever has them run twice is you.
    #[arg(long)]
    force: bool,

    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let (name, layout) = (&arguments.cluster, Layout::read(&manager.client).await?);
        let here = install::target(&manager, arguments.dry_run);
        let Ok(cluster) = layout.cluster(name) else {
            output::line(format!("{name} is no worker"))?;
            return Ok(ExitCode::SUCCESS);
        };
        let running = layout.on(name).count();
        if running > 0 && !arguments.force {
            let message = format!("{name} still has {}", output::count(running, "Job"));
            return Err(Failure::new(Code::No, message).hint(format!("ferry drain {name}")).into());
        }
        let worker = manager.administered(cluster).await;
        for config in layout.configs.iter().filter(|config| config.spec.clusters.contains(name)) {
            take_from_config(&here, config, name).await?;
        }
        if running == 0 && !arguments.dry_run {
            wait_until_clean(&manager, name).await;
        }
        let metadata = json!({ "name": name });
        here.remove(&json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster", "metadata": metadata,
        }))
        .await?;
        let metadata = json!({ "name": secret(name), "namespace": manager.operator_namespace });
        here.remove(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).await?;
        let identity = access::identity(&manager.client).await?;
        let access = Access { identity, namespace: &manager.operator_namespace, logs: false };
        let revoked = match worker {
            Ok(worker) => {
                let there =
                    Target { client: worker.client, name: name.clone(), is_dry_run: arguments.dry_run };
                access.revoke(&there).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = revoked {
            output::note(format!(
                "note: the manager's account on {name} was not taken away ({}); with access to it: kubectl delete \
                 clusterrole,clusterrolebinding {account}; kubectl -n {} delete serviceaccount,secret {account}",
                crate::failure::text(&error),
                manager.operator_namespace,
                account = access.name(),
            ));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A configuration has one cluster at least, so without any it goes.
async fn take_from_config(here: &Target, config: &MultiKueueConfig, cluster: &str) -> anyhow::Result<()> {
    let name = config.metadata.name.clone().unwrap_or_default();
    let rest: Vec<&String> = config.spec.clusters.iter().filter(|it| *it != cluster).collect();
    if rest.is_empty() {
        let what = format!("MultiKueueConfig {name}, of which it was the last cluster,");
        if here.is_dry_run {
            return here.say("would be deleted", &what);
        }
        let api: Api<MultiKueueConfig> = Api::all(here.client.clone());
        api.delete(&name, &DeleteParams::default()).await.context("failed to delete the MultiKueueConfig")?;
        return here.say("deleted", &what);
    }
    here.apply(&json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig",
        "metadata": { "name": name, "resourceVersion": config.metadata.resource_version },
        "spec": { "clusters": rest },
    }))
    .await
}

/// Copies of Workloads that wait are taken from the worker by the operator, while it still can reach it. What is left
/// does no harm, so nothing depends on it.
async fn wait_until_clean(manager: &Manager, cluster: &str) {
    let Ok(worker) = manager.worker(cluster).await else { return };
    let api: Api<Workload> = Api::all(worker.client);
    let ours = ListParams::default().labels(rules::dispatch::ORIGIN).limit(1);
    let clean = async {
        while api.list_metadata(&ours).await.is_ok_and(|list| !list.items.is_empty()) {
            tokio::time::sleep(AGAIN).await;
        }
    };
    if tokio::time::timeout(CLEANED, clean).await.is_err() {
        output::note(format!("note: copies of Workloads are left on {cluster}"));
    }
}
