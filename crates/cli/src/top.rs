//! `ferry top`: what clusters have, what is used of it, and by whom.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::process::ExitCode;

use jiff::Timestamp;
use rules::quota::wire::RequeuingTimestamp;
use types::Amount;
use types::kueue::{ClusterQueue, Workload};

use crate::connect::{Manager, Options};
use crate::events::HERE;
use crate::failure;
use crate::jobs::{Found, cluster_objects};
use crate::live::Live;
use crate::output::{self, Cell, Palette, Table, Tone};
use crate::process;
use crate::quota::{Share, shares};
use crate::view::Status;

/// Show how much of their quota the clusters use, and which Jobs hold most of it.
///
/// RUNNING and WAITING count the Jobs of all namespaces, as QUOTA does; for who may only read one, those of that one. The
/// line of the management cluster is about the quota that Jobs need before they are sent to a worker.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry top\n  ferry top -A -w")]
pub(crate) struct Arguments {
    /// Jobs of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    /// Show it anew whenever something changes.
    #[arg(short, long)]
    watch: bool,

    /// How many Jobs to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    jobs: usize,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let live = match Live::start(&manager.client, None).await {
            Err(error) if failure::is_forbidden(&error) && !arguments.all_namespaces => {
                output::note(format!("note: only namespace {} is counted", manager.namespace));
                Live::start(&manager.client, Some(&manager.namespace)).await?
            }
            live => live?,
        };
        if !arguments.watch {
            output::print(&page(arguments, &manager, &live.found()).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        process::while_read(watch(arguments, &manager, &live), ExitCode::SUCCESS).await
    })
}

async fn watch(arguments: &Arguments, manager: &Manager, live: &Live) -> anyhow::Result<ExitCode> {
    let clear = if std::io::stdout().is_terminal() { "\x1b[2J\x1b[H" } else { "" };
    loop {
        let text = page(arguments, manager, &live.found()).await?;
        output::print(&format!("{clear}{text}"))?;
        live.changed().await;
    }
}

async fn page(arguments: &Arguments, manager: &Manager, found: &[Found]) -> anyhow::Result<String> {
    let mut clusters = vec![(HERE.to_owned(), used(&manager.client).await)];
    let names = manager.clusters().await?.into_iter().filter_map(|cluster| cluster.metadata.name);
    let asked = names.map(|name| async move {
        let used = match manager.worker(&name).await {
            Ok(worker) => used(&worker.client).await,
            Err(error) => Err(error),
        };
        (name, used)
    });
    clusters.extend(futures::future::join_all(asked).await);
    let palette = Palette::stdout();
    let clusters = of_clusters(&clusters, found).text(palette, true);
    let is_shown = |found: &&Found| arguments.all_namespaces || found.view.namespace == manager.namespace;
    let shown: Vec<&Found> = found.iter().filter(is_shown).collect();
    let mut jobs = of_jobs(&shown, arguments, Timestamp::now());
    Ok(if jobs.is_empty() { clusters } else { format!("{clusters}\n{}", jobs.text(palette, true)) })
}

/// What is used of all queues of a cluster.
async fn used(client: &kube::Client) -> anyhow::Result<BTreeMap<String, Share>> {
    let queues: Vec<ClusterQueue> = cluster_objects(client).await?;
    let mut sum: BTreeMap<String, Share> = BTreeMap::new();
    for (resource, share) in queues.iter().flat_map(shares) {
        let all = sum.entry(resource).or_default();
        all.used += share.used;
        all.total += share.total;
    }
    Ok(sum)
}

fn of_clusters(clusters: &[(String, anyhow::Result<BTreeMap<String, Share>>)], found: &[Found]) -> Table {
    let mut table = Table::new(["CLUSTER", "RUNNING", "WAITING", "QUOTA"]);
    for (name, used) in clusters {
        let is_here = |found: &&Found| found.view.cluster.as_ref().map_or(name == HERE, |on| on == name);
        let count = |wanted: fn(Status) -> bool| {
            found.iter().filter(is_here).filter(|found| wanted(found.view.status)).count().to_string()
        };
        let running = count(|it| matches!(it, Status::Running | Status::Starting | Status::Stopping));
        let waiting = count(|it| matches!(it, Status::Queued | Status::Dispatching | Status::Held));
        let quota = match used {
            Ok(used) if used.is_empty() => Cell::toned(Tone::Dim, "no queues"),
            Ok(used) => used
                .iter()
                .map(|(resource, it)| in_words(resource, *it))
                .collect::<Vec<_>>()
                .join("  ")
                .into(),
            Err(error) => Cell::toned(Tone::Bad, crate::failure::text(error)),
        };
        table.row([name.clone().into(), running.into(), waiting.into(), quota]);
    }
    table
}

/// For example `cpu 6/8 75%`.
fn in_words(resource: &str, share: Share) -> String {
    let percent = share.used.units().saturating_mul(100).checked_div(share.total.units());
    let percent = percent.map(|percent| format!(" {percent}%")).unwrap_or_default();
    format!("{resource} {}{percent}", share.text(resource))
}

/// The Jobs that hold quota, those with most first.
fn of_jobs(found: &[&Found], arguments: &Arguments, now: Timestamp) -> Table {
    let mut holding: Vec<(&Found, BTreeMap<String, Amount>)> = found
        .iter()
        .copied()
        .filter(|found| !found.view.status.has_ended())
        .filter_map(|found| Some((found, holds(found.workload.as_ref()?))))
        .filter(|(_, holds)| !holds.is_empty())
        .collect();
    let most = |holds: &BTreeMap<String, Amount>| holds.get("cpu").copied().unwrap_or(Amount::ZERO);
    holding.sort_by_key(|(found, holds)| (std::cmp::Reverse(most(holds)), found.view.title()));
    let resources: BTreeSet<&String> = holding.iter().flat_map(|(_, holds)| holds.keys()).collect();
    let mut table = Table::new(["JOB", "NAMESPACE", "CLUSTER", "STATUS", "HOLDS", "FOR"]);
    for (found, holds) in holding.iter().take(arguments.jobs) {
        let view = &found.view;
        let texts = resources.iter().filter_map(|resource| {
            holds.get(*resource).map(|amount| format!("{resource} {}", amount.text(resource)))
        });
        table.row([
            view.title().into(),
            view.namespace.clone().into(),
            view.place().into(),
            Cell::toned(view.status.tone(), view.status.text()),
            texts.collect::<Vec<_>>().join(", ").into(),
            view.seconds(now).map(output::duration).unwrap_or_default().into(),
        ]);
    }
    table
}

/// What a Workload holds of each resource, over all flavors.
fn holds(workload: &Workload) -> BTreeMap<String, Amount> {
    let reservation = rules::quota::wire::reservation(workload, RequeuingTimestamp::default());
    let mut sum = BTreeMap::new();
    for (fr, amount) in reservation.map(|reservation| reservation.usage).unwrap_or_default() {
        *sum.entry(fr.resource.to_string()).or_insert(Amount::ZERO) += amount;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_in_words() {
        let share = |used, total| Share { used: Amount::new(used), total: Amount::new(total) };
        assert_eq!(in_words("cpu", share(6000, 8000)), "cpu 6/8 75%");
        assert_eq!(in_words("cpu", share(0, 0)), "cpu 0/0");
    }
}
