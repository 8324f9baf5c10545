//! `ferry clusters`: the workers, how they are, and what is free there.

pub(crate) mod layout;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

use jiff::Timestamp;
use kube::Api;
use kube::api::ListParams;
use rules::dispatch::{CORDONED, GIVEN_UP};
use serde_json::json;
use types::kueue::{ClusterQueue, LocalQueue, MultiKueueCluster, StopPolicy};

use crate::connect::{Manager, Options, within};
use crate::output::{self, Cell, Format, Table, Tone};
use crate::process;
use crate::quota::{self, Share};
use layout::{Layout, active, annotation};

/// List worker clusters: whether they are connected, when they last answered, what runs and waits, and what is free.
///
/// STATE is Connected, Cordoned, Drained, Lost, GivenUp (by `ferry drain --given-up`, until `ferry uncordon`) or Unknown.
/// FREE is what is left of the quota of the worker's ClusterQueues that the queues of this management cluster lead to.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry clusters\n  ferry clusters -o json")]
pub(crate) struct Arguments {
    /// How the answer looks.
    #[arg(short, long, value_enum)]
    output: Option<Format>,

    #[command(flatten)]
    options: Options,
}

/// A worker, as it is shown.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    state: &'static str,
    #[serde(skip)]
    tone: Tone,
    last_contact: String,
    running: usize,
    waiting: usize,
    free: String,
    message: String,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let layout = Layout::read(&manager.client).await?;
        let rows =
            futures::future::join_all(layout.clusters.iter().map(|it| row(&manager, &layout, it))).await;
        match arguments.output {
            Some(Format::Json) => output::json(&json!({ "items": rows }))?,
            Some(Format::Yaml) => output::yaml(&json!({ "items": rows }))?,
            Some(Format::Name) => rows.iter().try_for_each(|row| output::line(&row.name))?,
            None if rows.is_empty() => output::note("there are no worker clusters; ferry join adds one"),
            None | Some(Format::Wide) => table(rows, arguments.output.is_some()).print()?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn table(rows: Vec<Row>, is_wide: bool) -> Table {
    let mut headings = vec!["NAME", "STATE", "LAST CONTACT", "RUNNING", "WAITING", "FREE"];
    if is_wide {
        headings.push("MESSAGE");
    }
    let mut table = Table::new(headings);
    for row in rows {
        let mut cells: Vec<Cell> = vec![
            row.name.into(),
            Cell::toned(row.tone, row.state),
            row.last_contact.into(),
            row.running.to_string().into(),
            row.waiting.to_string().into(),
            row.free.into(),
        ];
        if is_wide {
            cells.push(row.message.into());
        }
        table.row(cells);
    }
    table
}

async fn row(manager: &Manager, layout: &Layout, cluster: &MultiKueueCluster) -> Row {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let begun = Instant::now();
    let seen = look(manager, &name).await;
    let took = begun.elapsed();
    let condition = active(cluster);
    let is_connected = condition.is_some_and(|condition| condition.status == "True");
    let stopped = seen.as_ref().ok().and_then(|seen| stop(layout, &name, &seen.local_queues));
    let is_given_up = annotation(cluster, GIVEN_UP).is_some();
    let (state, tone) = match (is_connected, stopped) {
        (_, _) if is_given_up => ("GivenUp", Tone::Bad),
        (false, _) if condition.is_none() => ("Unknown", Tone::Waiting),
        (false, _) => ("Lost", Tone::Bad),
        (true, Some(StopPolicy::HoldAndDrain)) => ("Drained", Tone::Waiting),
        (true, Some(StopPolicy::Hold)) => ("Cordoned", Tone::Waiting),
        (true, _) if annotation(cluster, CORDONED).is_some() => ("Cordoned", Tone::Waiting),
        (true, _) => ("Connected", Tone::Good),
    };
    // The operator asks a worker every few seconds; since when it got no answer is all that is written down.
    let last_contact = match (&seen, condition) {
        (Ok(_), _) => format!("now ({} ms)", took.as_millis()),
        (Err(_), Some(condition)) if !is_connected => {
            format!("{} ago", output::age(condition.last_transition_time.0, Timestamp::now()))
        }
        (Err(_), _) => "only by the operator".to_owned(),
    };
    let message = match &seen {
        Err(error) => crate::failure::text(error),
        Ok(_) => condition.map(|condition| condition.message.clone()).unwrap_or_default(),
    };
    Row {
        state,
        tone,
        last_contact,
        running: layout.on(&name).count(),
        waiting: layout.waiting_for(&name).count(),
        free: seen.map(|seen| free(layout, &name, &seen)).unwrap_or_default(),
        message,
        name,
    }
}

/// The queues of a worker.
pub(crate) struct Seen {
    pub(crate) local_queues: Vec<LocalQueue>,
    pub(crate) cluster_queues: Vec<ClusterQueue>,
}

/// Asks a worker for its queues, with the operator's credentials where they can be read.
pub(crate) async fn look(manager: &Manager, cluster: &str) -> anyhow::Result<Seen> {
    let worker = manager.worker(cluster).await?;
    let params = ListParams::default();
    let local_queues: Api<LocalQueue> = Api::all(worker.client.clone());
    let cluster_queues: Api<ClusterQueue> = Api::all(worker.client);
    let (local_queues, cluster_queues) = tokio::try_join!(
        within(cluster, "list LocalQueues", local_queues.list(&params)),
        within(cluster, "list ClusterQueues", cluster_queues.list(&params)),
    )?;
    Ok(Seen { local_queues: local_queues.items, cluster_queues: cluster_queues.items })
}

/// The queues of a worker that queues of the manager lead to: those of the same namespace and name.
pub(crate) fn counterparts<'a>(
    layout: &'a Layout,
    cluster: &'a str,
    there: &'a [LocalQueue],
) -> impl Iterator<Item = &'a LocalQueue> {
    there.iter().filter(move |queue| {
        let same = |here: &LocalQueue| {
            here.metadata.name == queue.metadata.name && here.metadata.namespace == queue.metadata.namespace
        };
        layout.queues_to(cluster).any(same)
    })
}

/// How the worker's queues are stopped, if all of them are.
fn stop(layout: &Layout, cluster: &str, there: &[LocalQueue]) -> Option<StopPolicy> {
    let policies: Vec<StopPolicy> = counterparts(layout, cluster, there)
        .map(|queue| queue.spec.stop_policy.unwrap_or_default())
        .collect();
    let all = |stops: fn(&StopPolicy) -> bool| !policies.is_empty() && policies.iter().all(stops);
    if all(|it| *it == StopPolicy::HoldAndDrain) {
        Some(StopPolicy::HoldAndDrain)
    } else if all(|it| *it != StopPolicy::None) {
        Some(StopPolicy::Hold)
    } else {
        None
    }
}

fn free(layout: &Layout, cluster: &str, seen: &Seen) -> String {
    let mut together: BTreeMap<String, Share> = BTreeMap::new();
    let used = |queue: &&ClusterQueue| {
        counterparts(layout, cluster, &seen.local_queues)
            .any(|local| Some(&local.spec.cluster_queue) == queue.metadata.name.as_ref())
    };
    for queue in seen.cluster_queues.iter().filter(used) {
        for (resource, share) in quota::shares(queue) {
            let sum = together.entry(resource).or_default();
            sum.used += share.used;
            sum.total += share.total;
        }
    }
    let texts = together.iter().map(|(resource, share)| {
        format!("{resource} {}/{}", share.free().text(resource), share.total.text(resource))
    });
    texts.collect::<Vec<_>>().join(", ")
}
