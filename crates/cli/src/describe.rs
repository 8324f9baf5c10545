//! `ferry describe`: everything about a Job on one page.

use std::process::ExitCode;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use rules::workload::state;
use types::kueue::Workload;

use crate::connect::{Manager, Options};
use crate::events;
use crate::jobs::{self, Found};
use crate::output::{self, Cell, Palette, Table, Tone};
use crate::pods;
use crate::process;
use crate::view::View;

/// How many events are shown: the last ones.
const EVENTS: usize = 20;

/// Show everything about a Job: where it stands and why, its conditions, its pods on whichever cluster, and what happened.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry describe render\n  ferry describe jobset/train")]
pub(crate) struct Arguments {
    /// Jobs, by name, or `kind/name` for other kinds.
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        for (i, name) in arguments.jobs.iter().enumerate() {
            if i > 0 {
                output::line("")?;
            }
            let found = jobs::find(&manager, name).await?;
            describe(&manager, &found).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn describe(manager: &Manager, found: &Found) -> anyhow::Result<()> {
    let (now, palette) = (Timestamp::now(), Palette::stdout());
    for (name, value) in facts(found, now) {
        let value = if name == "Status" { palette.paint(found.view.status.tone(), &value) } else { value };
        output::line(format!("{:<12} {value}", format!("{name}:")))?;
    }
    section(palette, "Conditions", conditions(found, now))?;
    let place = pods::place(manager, &found.view).await;
    let listed = match &place {
        Ok(place) => place.list(&found.view).await,
        Err(error) => Err(anyhow::anyhow!(crate::failure::text(error))),
    };
    match listed {
        Ok(all) => section(palette, &heading(&found.view), table(&all, now))?,
        Err(error) => output::line(format!("\nPods: {}", crate::failure::text(&error)))?,
    }
    let all = events::of_job(manager, &found.view).await?;
    let earlier = all.len().saturating_sub(EVENTS);
    let mut told = Table::new(events::headings());
    for it in all.iter().skip(earlier) {
        told.row(it.row(now));
    }
    let heading = if earlier == 0 {
        "Events".to_owned()
    } else {
        let (title, flags) = (found.view.title(), manager.flags(&found.view.namespace));
        format!("Events ({earlier} more before: ferry events {title}{flags})")
    };
    section(palette, &heading, told)
}

fn heading(view: &View) -> String {
    view.cluster.as_ref().map_or("Pods".to_owned(), |cluster| format!("Pods on {cluster}"))
}

fn section(palette: Palette, name: &str, mut table: Table) -> anyhow::Result<()> {
    if table.is_empty() {
        return output::line(format!("\n{}: none", palette.paint(Tone::Bold, name)));
    }
    output::line(format!("\n{}:", palette.paint(Tone::Bold, name)))?;
    let text = table.text(palette, true);
    text.lines().try_for_each(|line| output::line(format!("  {line}")))
}

/// What there is to say about a Job, by name.
fn facts(found: &Found, now: Timestamp) -> Vec<(&'static str, String)> {
    let view = &found.view;
    let ago = |time: Option<Timestamp>| time.map(|time| format!("{time} ({} ago)", output::age(time, now)));
    let indexes = |text: &Option<String>, what: &str| {
        text.as_ref().map(|text| format!("; indexes {text} {what}")).unwrap_or_default()
    };
    let progress = format!(
        "{}{}{}",
        view.progress.text(),
        indexes(&view.progress.completed_indexes, "done"),
        indexes(&view.progress.failed_indexes, "failed")
    );
    let why = if view.reason.is_empty() { String::new() } else { format!(": {}", view.reason) };
    let queue = view.queue.as_ref().map(|queue| {
        let cluster_queue = found.workload.as_deref().and_then(state::cluster_queue);
        cluster_queue.map_or(queue.clone(), |of| format!("{queue} (quota of ClusterQueue {of})"))
    });
    let nominated = (!view.nominated.is_empty()).then(|| view.nominated.join(", "));
    let took = view.seconds(now).map(output::duration);
    let all = [
        ("Name", Some(view.name.clone())),
        ("Namespace", Some(view.namespace.clone())),
        ("Kind", Some(format!("{} ({})", view.kind, view.api_version))),
        ("Status", Some(format!("{}{why}", view.status.text()))),
        ("Progress", Some(progress)),
        ("Queue", queue),
        ("Priority", found.workload.as_deref().map(priority)),
        ("Cluster", Some(view.place()).filter(|place| !place.is_empty())),
        ("Asked", nominated),
        ("Managed by", view.managed_by.clone()),
        ("Workload", view.workload.clone()),
        (if view.status.has_ended() { "Held" } else { "Holds" }, found.workload.as_deref().and_then(holds)),
        ("Created", ago(view.created)),
        ("Started", ago(view.started)),
        ("Ended", ago(view.ended)),
        (if view.ended.is_some() { "Took" } else { "Runs for" }, took),
    ];
    all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value))).collect()
}

fn priority(workload: &Workload) -> String {
    let value = workload.spec.priority.unwrap_or(0);
    match state::priority_class(workload) {
        "" => value.to_string(),
        class => format!("{value} (class {class})"),
    }
}

/// What it holds of quota, by pod set.
fn holds(workload: &Workload) -> Option<String> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    let sets = admission.pod_set_assignments.iter().map(|set| {
        let parts: Vec<String> = set
            .resource_usage
            .iter()
            .map(|(resource, amount)| {
                let flavor = set.flavors.get(resource).map(|it| format!(" of {it}")).unwrap_or_default();
                format!("{resource} {amount}{flavor}")
            })
            .collect();
        format!("{}: {}", set.name, parts.join(", "))
    });
    Some(sets.collect::<Vec<_>>().join("; "))
}

fn conditions(found: &Found, now: Timestamp) -> Table {
    let mut table = Table::new(["OF", "TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"]);
    let status = found.job.as_ref().and_then(|job| job.status.as_ref());
    for it in status.into_iter().flat_map(|status| status.conditions.iter().flatten()) {
        let since = it.last_transition_time.as_ref().map(|time| output::age(time.0, now));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        table.row([
            "job".into(),
            it.type_.clone().into(),
            it.status.clone().into(),
            since.unwrap_or_default().into(),
            text(&it.reason).into(),
            Cell::from(text(&it.message)),
        ]);
    }
    for it in found.workload.as_deref().into_iter().flat_map(state::conditions) {
        table.row([
            "workload".into(),
            it.type_.clone().into(),
            it.status.clone().into(),
            output::age(it.last_transition_time.0, now).into(),
            it.reason.clone().into(),
            Cell::from(it.message.clone()),
        ]);
    }
    table
}

fn table(pods: &[Pod], now: Timestamp) -> Table {
    let mut table = Table::new(["NAME", "INDEX", "STATE", "RESTARTS", "NODE", "AGE"]);
    for pod in pods {
        let status = pod.status.clone().unwrap_or_default();
        let restarts: i32 = status.container_statuses.iter().flatten().map(|it| it.restart_count).sum();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        table.row([
            pod.name_any().into(),
            pods::index_of(&pod.metadata).map(|index| index.to_string()).unwrap_or_default().into(),
            pods::state(pod).into(),
            restarts.to_string().into(),
            node.unwrap_or_default().into(),
            Cell::from(pod.creation_timestamp().map(|time| output::age(time.0, now)).unwrap_or_default()),
        ]);
    }
    table
}
