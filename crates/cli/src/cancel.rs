//! `ferry cancel`: takes Jobs out.

use std::process::ExitCode;

use anyhow::Context as _;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind};
use rules::dispatch::Adapter;

use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure};
use crate::jobs;
use crate::output;
use crate::process;
use crate::view::View;
use crate::wait::{self, Aim};

/// Stop Jobs wherever they run, and delete them.
///
/// Their pods are ended as they are when pods are deleted, and what they hold of quota is free. Returns when they are
/// gone; with --no-wait, at once. To stop a Job and run it later, hold it.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry cancel render\n  ferry cancel render jobset/train --no-wait")]
pub(crate) struct Arguments {
    /// Jobs, by name, or `kind/name` for other kinds.
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,

    /// Do not wait until they are gone.
    #[arg(long)]
    no_wait: bool,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let mut views = Vec::new();
        for name in &arguments.jobs {
            views.push(jobs::find(&manager, name).await?.view);
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
        wait::until(&manager, &named, Aim::Deleted).await
    })
}

async fn delete(manager: &Manager, view: &View) -> anyhow::Result<()> {
    let api = owner(manager, view)?;
    // This object and no later one of the same name, and its dependents first: when it is gone, all of it is.
    let uid = Some(view.uid.clone());
    let params = DeleteParams {
        preconditions: Some(kube::api::Preconditions { uid, ..kube::api::Preconditions::default() }),
        ..DeleteParams::foreground()
    };
    let deleted = api.delete(&view.name, &params).await;
    deleted.map(|_| ()).with_context(|| format!("failed to delete {}", view.title()))
}

/// The objects of the kind of a job.
pub(crate) fn owner(manager: &Manager, view: &View) -> anyhow::Result<Api<DynamicObject>> {
    let (group, version) = view.api_version.split_once('/').unwrap_or(("", &view.api_version));
    let kind = GroupVersionKind::gvk(group, version, &view.kind);
    let resource = match Adapter::of(&view.api_version, &view.kind) {
        Some(adapter) => ApiResource::from_gvk_with_plural(&kind, adapter.plural),
        None if view.kind == "Workload" => ApiResource::from_gvk(&kind),
        None => {
            let message = format!("{} is of a kind that is not known here, {}", view.name, view.api_version);
            let hint = format!("kubectl delete {}.{group} {}", view.kind.to_lowercase(), view.name);
            return Err(Failure::new(Code::Error, message).hint(hint).into());
        }
    };
    Ok(Api::namespaced_with(manager.client.clone(), &view.namespace, &resource))
}
