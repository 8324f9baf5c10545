//! `ferry cancel`: takes Jobs out.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use reconcile::{Cache, Tasks};
use tokio::sync::Notify;
use types::kueue::MultiKueueCluster;

use crate::clusters::layout::active;
use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure};
use crate::jobs;
use crate::output;
use crate::pods::{self, Place};
use crate::process;
use crate::span;
use crate::view::View;
use crate::wait::{self, Aim};
use crate::which::Which;

/// Stop Jobs wherever they run, and delete them.
///
/// Their pods are ended as they are when pods are deleted, and what they hold of quota is free. Returns when they are
/// gone, and their pods on workers with them; with --no-wait, at once. One that cannot be
/// deleted keeps no other from being so. To stop a Job and run it later, hold it.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry cancel render\n  ferry cancel render jobset/train --no-wait\n  ferry cancel -l team=vision"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,

    /// Do not wait until they are gone.
    #[arg(long)]
    no_wait: bool,

    /// How long to wait until they are gone, for example 90s or 5m [default: forever].
    #[arg(long, value_name = "TIME", value_parser = span::parse, conflicts_with = "no_wait")]
    timeout: Option<Duration>,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let found = arguments.which.find(&manager).await?;
        arguments.which.note_none(&found, &manager);
        let views: Vec<View> = found.into_iter().map(|found| found.view).collect();
        let mut elsewhere = Vec::new();
        for view in views.iter().filter(|_| !arguments.no_wait) {
            elsewhere.extend(Elsewhere::of(&manager, view).await);
        }
        // One that cannot be deleted keeps no other from being so; one that is gone already is where it is wanted.
        let (mut named, mut refused) = (Vec::new(), None);
        for view in &views {
            match delete(&manager, view).await {
                Err(error) if !failure::is_not_found(&error) => {
                    let code = failure::report(&error);
                    refused.get_or_insert(code);
                }
                _ => named.push((view.title(), view.uid.clone())),
            }
        }
        if arguments.no_wait {
            for (title, _) in &named {
                output::announce(format!("{title} is being deleted"));
            }
            return Ok(refused.unwrap_or(ExitCode::SUCCESS));
        }
        let is_named = |pods: &&Elsewhere| named.iter().any(|(_, uid)| *uid == pods.view.uid);
        let gone = async {
            for pods in elsewhere.iter().filter(is_named) {
                pods.ended(&manager).await?;
            }
            wait::until(&manager, &named, Aim::Deleted).await
        };
        let gone = match arguments.timeout {
            None => gone.await?,
            Some(timeout) => {
                let late = |_| wait::too_long(timeout, "ferry describe JOB shows what is left of it");
                tokio::time::timeout(timeout, gone).await.map_err(late)??
            }
        };
        Ok(refused.unwrap_or(gone))
    })
}

/// The pods that a Job has on a worker. They end later than it is gone from the management cluster.
struct Elsewhere {
    view: View,
    place: Place,
    /// The uids of what they belong to: a later Job of the same name has others.
    owners: BTreeSet<String>,
}

impl Elsewhere {
    /// `None` if there are none, or none that this user sees.
    async fn of(manager: &Manager, view: &View) -> Option<Elsewhere> {
        let cluster = view.cluster.as_ref()?;
        let seen = async {
            let place = pods::place(manager, view).await?;
            let pods = place.list(view).await?;
            anyhow::Ok((place, pods))
        };
        match seen.await {
            Ok((place, pods)) => {
                let owners: BTreeSet<String> = pods.iter().flat_map(owners).collect();
                (!owners.is_empty()).then(|| Elsewhere { view: view.clone(), place, owners })
            }
            Err(error) => {
                let why = failure::text(&error);
                output::note(format!("note: when its pods on {cluster} have ended is not seen: {why}"));
                None
            }
        }
    }

    /// Waits until they have ended. Of a worker that is lost meanwhile nobody knows.
    async fn ended(&self, manager: &Manager) -> anyhow::Result<()> {
        tokio::select! {
            biased;
            () = self.left() => Ok(()),
            () = lost(manager, &self.place.cluster) => {
                let (title, cluster) = (self.view.title(), &self.place.cluster);
                let message = format!(
                    "{title} is being deleted, but {cluster} was lost: whether its pods have ended there is not known"
                );
                Err(Failure::new(Code::Error, message).hint("they end when it is back; ferry doctor says more").into())
            }
        }
    }

    async fn left(&self) {
        let (mut tasks, changed) = (Tasks::new(), Arc::new(Notify::new()));
        let tell = Arc::clone(&changed);
        let pods = Cache::new(self.place.pods(&self.view))
            .labels(&pods::selector(&self.view))
            .on_change(move |_| tell.notify_one())
            .start(&mut tasks);
        pods.ready().await;
        let mut told = false;
        loop {
            let is_left = |pod: &&Arc<Pod>| owners(pod.as_ref()).any(|owner| self.owners.contains(&owner));
            let left = pods.all().iter().filter(is_left).count();
            if left == 0 {
                break;
            }
            if !told {
                let count = output::count(left, "pod");
                output::note(format!("{}: {count} on {} to end", self.view.title(), self.place.cluster));
                told = true;
            }
            changed.notified().await;
        }
        tasks.stop().await;
    }
}

/// Waits until the operator has lost a worker. Who may not know waits forever.
async fn lost(manager: &Manager, cluster: &str) {
    let api: Api<MultiKueueCluster> = Api::all(manager.client.clone());
    let is_lost = |cluster: Option<&MultiKueueCluster>| {
        cluster.is_none_or(|cluster| active(cluster).is_some_and(|active| active.status != "True"))
    };
    if await_condition(api, cluster, is_lost).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn owners(pod: &Pod) -> impl Iterator<Item = String> + use<'_> {
    pod.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone())
}

async fn delete(manager: &Manager, view: &View) -> anyhow::Result<()> {
    let Some(api) = jobs::api(manager, view) else {
        let message = format!("{} is of a kind that is not known here, {}", view.name, view.api_version);
        let group = view.api_version.split('/').next().unwrap_or_default();
        let hint = format!("kubectl delete {}.{group} {}", view.kind.to_lowercase(), view.name);
        return Err(Failure::new(Code::Error, message).hint(hint).into());
    };
    // This object and no later one of the same name, and its dependents first: when it is gone, all of it is.
    let uid = Some(view.uid.clone());
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions { uid, ..kube::api::Preconditions::default() }),
        ..DeleteParams::foreground()
    };
    let deleted = api.delete(&view.name, &params).await;
    deleted.map(|_| ()).with_context(|| format!("failed to delete {}", view.title()))
}
