//! `ferry hold` and `ferry release`: keep Jobs from running, and let them run.

use std::process::ExitCode;

use anyhow::Context as _;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use types::kueue::Workload;

use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure};
use crate::jobs::{self, Found};
use crate::output;
use crate::process;
use crate::which::Which;

/// Keep Jobs from running: one that waits leaves the queue, one that runs is stopped and gives back its quota.
///
/// A Job in a queue is held by its Workload, any other by its field suspend. `ferry release` lets it run again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry hold render\n  ferry hold -l team=vision")]
pub(crate) struct Hold {
    #[command(flatten)]
    arguments: Arguments,
}

/// Let Jobs run that were held: they queue again.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry release render\n  ferry release --all")]
pub(crate) struct Release {
    #[command(flatten)]
    arguments: Arguments,
}

#[derive(clap::Args)]
struct Arguments {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn hold(arguments: &Hold) -> anyhow::Result<ExitCode> {
    set(&arguments.arguments, false)
}

pub(crate) fn release(arguments: &Release) -> anyhow::Result<ExitCode> {
    set(&arguments.arguments, true)
}

fn set(arguments: &Arguments, active: bool) -> anyhow::Result<ExitCode> {
    process::run(async {
        let which = &arguments.which;
        let manager = arguments.connection.manager().await?;
        let mut all = Vec::new();
        for found in which.find(&manager).await? {
            if !found.view.status.has_ended() {
                all.push(jobs::queued(&manager, found).await?);
            } else if which.is_by_name() {
                let message = format!("{} has ended: it is {}", found.view.title(), found.view.status.text());
                return Err(Failure::new(Code::No, message)
                    .hint("submit it again under another name")
                    .into());
            }
        }
        which.note_none(&all, &manager);
        for found in &all {
            let title = found.view.title();
            write(&manager, found, active).await?;
            output::announce(format!("{title} is {}", if active { "released" } else { "held" }));
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn write(manager: &Manager, found: &Found, active: bool) -> anyhow::Result<()> {
    let view = &found.view;
    let params = PatchParams::default();
    let failed = || format!("failed to change {}", view.title());
    if let Some(workload) = &found.workload {
        let api: Api<Workload> = Api::namespaced(manager.client.clone(), &view.namespace);
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let patch = Patch::Merge(json!({ "spec": { "active": active } }));
        api.patch(name, &params, &patch).await.with_context(failed)?;
        return Ok(());
    }
    if let Some(queue) = &view.queue {
        let message = format!("{} has no Workload yet, which could be held", view.title());
        let hint =
            format!("is there a queue {queue} in this namespace? ferry get queues shows those that are");
        return Err(Failure::new(Code::Error, message).hint(hint).into());
    }
    let api: Api<Job> = Api::namespaced(manager.client.clone(), &view.namespace);
    let patch = Patch::Merge(json!({ "spec": { "suspend": !active } }));
    api.patch(&view.name, &params, &patch).await.with_context(failed)?;
    Ok(())
}
