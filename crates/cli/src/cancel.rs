//! `ferry cancel`: takes Jobs out.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use reconcile::{Cache, Tasks};
use tokio::sync::Notify;

use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure};
use crate::jobs;
use crate::output;
use crate::pods::{self, Place};
use crate::process;
use crate::view::View;
use crate::wait::{self, Aim};
use crate::which::Which;

/// Stop Jobs wherever they run, and delete them.
///
/// Their pods are ended as they are when pods are deleted, and what they hold of quota is free. Returns when they are
/// gone, and their pods on workers with them; with --no-wait, at once. To stop a Job and run it later, hold it.
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
        for view in &views {
            delete(&manager, view).await?;
        }
        let named: Vec<(String, String)> =
            views.iter().map(|view| (view.title(), view.uid.clone())).collect();
        if arguments.no_wait {
            named.iter().try_for_each(|(title, _)| output::line(format!("{title} is being deleted")))?;
            return Ok(ExitCode::SUCCESS);
        }
        for pods in &elsewhere {
            pods.ended().await;
        }
        wait::until(&manager, &named, Aim::Deleted).await
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

    /// Waits until they have ended.
    async fn ended(&self) {
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
