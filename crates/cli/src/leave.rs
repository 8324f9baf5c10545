//! `ferry leave`: a cluster is no longer a worker.

use std::process::ExitCode;
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use rules::quota::readiness;
use serde_json::json;
use types::kueue::{MultiKueueCluster, MultiKueueConfig, Workload};

use crate::clusters::layout::{Layout, config_of};
use crate::connect::Manager;
use crate::cordon::Which;
use crate::failure::{self, Code, Failure};
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
    /// Do it although Jobs run there, or although the manager's account there cannot be taken away. Nobody looks after
    /// those Jobs any more: whoever has them run twice is you.
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    which: Which,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let which = &arguments.which;
        let manager = which.options.manager().await?;
        let (name, layout) = (&which.cluster, Layout::read(&manager.client).await?);
        let here = install::target(&manager, which.dry_run);
        let Ok(cluster) = layout.cluster(name) else {
            output::line(format!("{name} is no worker"))?;
            return Ok(ExitCode::SUCCESS);
        };
        let running = expect_empty(arguments, &layout)?;
        for config in layout.configs.iter().filter(|config| config.spec.clusters.contains(name)) {
            take_from_config(&here, &layout, config, name).await?;
        }
        if running == 0 && !which.dry_run {
            wait_until_clean(&manager, name).await;
            // One that waited for it may have started there before it was offered nothing any more.
            expect_empty(arguments, &Layout::read(&manager.client).await?)?;
        }
        revoke(arguments, &manager, cluster).await?;
        let metadata = json!({ "name": secret(name), "namespace": manager.operator_namespace });
        here.remove(&json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata })).await?;
        // Last: as long as it is there, all this can be done again.
        here.remove(&kueue("MultiKueueCluster", name)).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// That no Jobs are there that nobody would look after any more; how many there are if that does not matter.
fn expect_empty(arguments: &Arguments, layout: &Layout) -> anyhow::Result<usize> {
    let name = &arguments.which.cluster;
    let running = layout.on(name).count();
    if running > 0 && !arguments.force {
        let message = format!("{name} still has {}", output::count(running, "Job"));
        return Err(Failure::new(Code::No, message).hint(format!("ferry drain {name}")).into());
    }
    Ok(running)
}

/// Takes away what the manager is on the worker: its token has no end. Who cannot has to say that it does not matter.
async fn revoke(arguments: &Arguments, manager: &Manager, cluster: &MultiKueueCluster) -> anyhow::Result<()> {
    let (which, name) = (&arguments.which, &arguments.which.cluster);
    let uid = access::uid(&manager.context_name(), &manager.client).await?;
    let access =
        Access { identity: access::identity(&uid), namespace: &manager.operator_namespace, logs: false };
    let revoked = async {
        let worker = manager.administered(cluster, which.worker_context.as_deref()).await?;
        let there = Target { client: worker.client, name: name.clone(), is_dry_run: which.dry_run };
        access.revoke(&there).await
    };
    let Err(error) = revoked.await else { return Ok(()) };
    let account = access.name();
    let how = format!(
        "kubectl delete clusterrole,clusterrolebinding {account}; kubectl -n {} delete serviceaccount,secret {account}",
        manager.operator_namespace
    );
    let message =
        format!("the manager's account on {name} could not be taken away: {}", failure::text(&error));
    if arguments.force {
        output::note(format!("note: {message}; with access to it: {how}"));
        return Ok(());
    }
    let hint = format!(
        "--worker-context names a context that may, then do this again; if {name} will not come back: --force"
    );
    Err(Failure::new(failure::code_of(&error), message).hint(hint).into())
}

fn kueue(kind: &str, name: &str) -> serde_json::Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name } })
}

/// A configuration has one cluster at least, so without any it goes, and its check with it unless a queue names that.
async fn take_from_config(
    here: &Target,
    layout: &Layout,
    config: &MultiKueueConfig,
    cluster: &str,
) -> anyhow::Result<()> {
    let name = config.metadata.name.as_deref().unwrap_or_default();
    let rest: Vec<&String> = config.spec.clusters.iter().filter(|it| *it != cluster).collect();
    if !rest.is_empty() {
        let mut wanted = kueue("MultiKueueConfig", name);
        wanted["metadata"]["resourceVersion"] = json!(config.metadata.resource_version);
        wanted["spec"] = json!({ "clusters": rest });
        return here.amend(&wanted).await;
    }
    here.remove(&kueue("MultiKueueConfig", name)).await?;
    for check in layout.checks.iter().filter(|check| config_of(check) == Some(name)) {
        let check = check.metadata.name.as_deref().unwrap_or_default();
        if !layout.cluster_queues.iter().any(|queue| readiness::check_names(queue).any(|it| it == check)) {
            here.remove(&kueue("AdmissionCheck", check)).await?;
        }
    }
    Ok(())
}

/// Copies of Workloads that wait are taken from the worker by the operator, while it still can reach it. What is left may
/// be another manager's, so nothing depends on it.
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
        output::note(format!(
            "note: copies of Workloads are left on {cluster}; those of this manager may get quota there, and keep it until \
             they are deleted: kubectl get workloads -A -l {}",
            rules::dispatch::ORIGIN
        ));
    }
}
