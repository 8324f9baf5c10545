//! `ferry get`: what there is, one line each.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, LocalQueue, MultiKueueCluster};

use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure};
use crate::jobs::{self, Found};
use crate::live::Live;
use crate::names;
use crate::output::{self, Cell, Format, Palette, Table, Tone};
use crate::process;
use crate::quota;
use crate::view::{Status, View};
use crate::which;

/// Show Jobs with their progress, their queue and the cluster that they run on; or queues, or clusters.
///
/// A Job is Queued (waits for quota), Dispatching (waits for a worker), Starting, Running, Stopping, Held, Complete, Failed,
/// Deleting, or External (left to a controller that is not here); -w also shows those that were Deleted. Other kinds of jobs are shown as far as their Workload
/// tells. With -o json or yaml, every Job is such a line and not the object, which kubectl has; queues and clusters are the objects.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry get jobs\n  ferry get jobs -A -o wide\n  ferry get jobs -w\n  ferry get jobs --queue fleet --status queued,dispatching\n  ferry get jobs -l team=vision\n  ferry get queues"
)]
pub(crate) struct Arguments {
    /// What to show.
    #[arg(value_enum, default_value_t = What::Jobs)]
    what: What,

    /// Only those with these names.
    names: Vec<String>,

    /// Of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,

    #[command(flatten)]
    filter: Filter,

    /// Go on with what changes.
    #[arg(short, long)]
    watch: bool,

    /// How to show it.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,

    #[command(flatten)]
    connection: Options,
}

/// Which Jobs to show.
#[derive(clap::Args)]
#[group(id = "filter", multiple = true)]
struct Filter {
    /// Only Jobs with these labels, for example team=vision,tier!=test.
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    /// Only Jobs of this queue.
    #[arg(short, long, value_name = "NAME")]
    queue: Option<String>,

    /// Only Jobs that run or ran on this worker.
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// Only Jobs that stand so; can be given several times, or several with commas.
    #[arg(long, value_enum, value_delimiter = ',', ignore_case = true, hide_possible_values = true)]
    status: Vec<Status>,
}

impl Filter {
    fn is_empty(&self) -> bool {
        matches!(self, Filter { selector: None, queue: None, cluster: None, status } if status.is_empty())
    }

    /// Whether a Job is one of them, labels aside.
    fn lets(&self, view: &View) -> bool {
        let fits = |wanted: &Option<String>, it: &Option<String>| wanted.is_none() || wanted == it;
        fits(&self.queue, &view.queue)
            && fits(&self.cluster, &view.cluster)
            && (self.status.is_empty() || self.status.contains(&view.status))
    }
}

/// What can be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Jobs, and what else has a Workload.
    #[value(alias = "job", alias = "j")]
    Jobs,
    /// Queues, with what waits in them and what they have left.
    #[value(alias = "queue", alias = "q")]
    Queues,
    /// Worker clusters.
    #[value(alias = "cluster")]
    Clusters,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        if arguments.what != What::Jobs && !arguments.filter.is_empty() {
            return Err(Failure::new(Code::Error, "only Jobs can be chosen by what they are like")
                .hint("queues and clusters are chosen by name")
                .into());
        }
        let manager = arguments.connection.manager().await?;
        match arguments.what {
            What::Jobs if arguments.watch => process::while_read(watch(arguments, &manager), ()).await?,
            What::Jobs => jobs(arguments, &manager).await?,
            _ if arguments.watch => {
                return Err(Failure::new(Code::Error, "only Jobs can be watched")
                    .hint("ferry top -w shows queues and clusters anew whenever a Job changes")
                    .into());
            }
            What::Queues => queues(arguments, &manager).await?,
            What::Clusters => clusters(arguments, &manager).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl Arguments {
    fn namespace<'a>(&self, manager: &'a Manager) -> Option<&'a str> {
        (!self.all_namespaces).then_some(manager.namespace.as_str())
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }

    /// Whether to show a Job, labels aside.
    fn shows(&self, view: &View) -> bool {
        (self.is_wanted(&view.title()) || self.is_wanted(&view.name)) && self.filter.lets(view)
    }

    /// Whoever asks for something by name wants to know that it is not there.
    fn expect_names(&self, what: &str, mut all: Vec<String>, namespace: Option<&str>) -> anyhow::Result<()> {
        let Some(missing) = self.names.iter().find(|name| !all.contains(name)) else { return Ok(()) };
        all.sort();
        all.dedup();
        let place = namespace.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        let message = format!("there is no {what} {missing}{place}");
        let none = if namespace.is_some() { "-A looks in all namespaces" } else { "ferry join adds one" };
        let hint = names::hint(&format!("{what}s"), missing, &all, none);
        Err(Failure::new(Code::NotFound, message).hint(hint).into())
    }

    fn expect_jobs(&self, found: &[Found], namespace: Option<&str>) -> anyhow::Result<()> {
        let called = found.iter().flat_map(|found| [found.view.title(), found.view.name.clone()]).collect();
        self.expect_names("Job", called, namespace)
    }

    fn headings(&self) -> Vec<&'static str> {
        let mut headings = vec!["NAME", "STATUS", "PROGRESS", "QUEUE", "CLUSTER", "AGE"];
        if self.all_namespaces {
            headings.insert(0, "NAMESPACE");
        }
        if self.output == Some(Format::Wide) {
            headings.extend(["TOOK", "PRIORITY", "INDEXES", "WORKLOAD", "REASON"]);
        }
        headings
    }

    fn row(&self, view: &View, now: Timestamp) -> Vec<Cell> {
        let mut row: Vec<Cell> = vec![
            view.title().into(),
            Cell::toned(view.status.tone(), view.status.text()),
            view.progress.text().into(),
            view.queue.clone().unwrap_or_default().into(),
            view.place().into(),
            view.created.map(|created| output::age(created, now)).unwrap_or_default().into(),
        ];
        if self.all_namespaces {
            row.insert(0, view.namespace.clone().into());
        }
        if self.output == Some(Format::Wide) {
            let indexes = view.progress.completed_indexes.clone().unwrap_or_default();
            row.extend([
                view.seconds(now).map(output::duration).unwrap_or_default().into(),
                view.priority.to_string().into(),
                indexes.into(),
                view.workload.clone().unwrap_or_default().into(),
                Cell::toned(Tone::Dim, view.reason.clone()),
            ]);
        }
        row
    }
}

/// How wide columns are at least while Jobs are watched: later ones are known by other names.
const WIDTHS: [usize; 6] = [12, 16, 11, 16, 8, 8];

impl Arguments {
    /// Whether the same is shown of both, but for what only time changes.
    fn says_the_same(&self, one: &View, other: &View) -> bool {
        let row = |view: &View| self.row(view, view.created.unwrap_or_default());
        match self.output {
            Some(Format::Json | Format::Yaml) => one == other,
            _ => row(one) == row(other),
        }
    }

    fn print_changed(&self, views: &[&View], table: &mut Table, is_first: bool) -> anyhow::Result<()> {
        match self.output {
            Some(Format::Json) => views.iter().try_for_each(|view| {
                output::line(serde_json::to_string(view).context("failed to write JSON")?)
            }),
            Some(Format::Yaml) => views.iter().try_for_each(|view| {
                output::line("---")?;
                output::yaml(view)
            }),
            Some(Format::Name) => views.iter().try_for_each(|view| output::line(view.title())),
            None | Some(Format::Wide) => {
                for view in views {
                    table.row(self.row(view, Timestamp::now()));
                }
                if is_first || !views.is_empty() {
                    output::print(&table.text(Palette::stdout(), is_first))?;
                }
                Ok(())
            }
        }
    }
}

async fn jobs(arguments: &Arguments, manager: &Manager) -> anyhow::Result<()> {
    let namespace = arguments.namespace(manager);
    let mut found = jobs::list(&manager.client, namespace).await?;
    arguments.expect_jobs(&found, namespace)?;
    found.retain(|found| arguments.shows(&found.view));
    if let Some(selector) = &arguments.filter.selector {
        found = which::labelled(manager, found, selector).await?;
    }
    let views: Vec<&View> = found.iter().map(|found| &found.view).collect();
    match arguments.output {
        Some(Format::Json) => output::json(&json!({ "items": views })),
        Some(Format::Yaml) => output::yaml(&json!({ "items": views })),
        Some(Format::Name) => views.iter().try_for_each(|view| output::line(view.title())),
        None | Some(Format::Wide) => {
            let mut table = Table::new(arguments.headings());
            for view in views {
                table.row(arguments.row(view, Timestamp::now()));
            }
            print(table, "Jobs", namespace)
        }
    }
}

/// Prints a table, or that there is nothing to print.
fn print(table: Table, what: &str, namespace: Option<&str>) -> anyhow::Result<()> {
    if !table.is_empty() {
        return table.print();
    }
    match namespace {
        Some(namespace) => output::note(format!("no {what} in namespace {namespace}")),
        None => output::note(format!("no {what}")),
    }
    Ok(())
}

/// Prints a line for each Job, and another one whenever it says something else; the last one when it is deleted.
async fn watch(arguments: &Arguments, manager: &Manager) -> anyhow::Result<()> {
    let namespace = arguments.namespace(manager);
    let live = Live::start(&manager.client, namespace).await?;
    arguments.expect_jobs(&live.found(), namespace)?;
    let widths: &[usize] = if arguments.all_namespaces { &WIDTHS } else { &WIDTHS[1..] };
    let mut table = Table::new(arguments.headings()).at_least(widths);
    let mut shown: BTreeMap<String, View> = BTreeMap::new();
    let mut labelled = Labelled::default();
    let mut is_first = true;
    loop {
        let there = labelled.of(live.found(), arguments.filter.selector.as_deref(), manager).await?;
        // One that was shown and is no longer like what is wanted is shown a last time.
        let mut now: BTreeMap<String, View> = there
            .into_iter()
            .map(|Found { view, .. }| (view.uid.clone(), view))
            .filter(|(uid, view)| arguments.shows(view) || shown.contains_key(uid))
            .collect();
        let gone = shown.iter().filter(|(uid, _)| !now.contains_key(*uid));
        let gone: Vec<View> =
            gone.map(|(_, view)| View { status: Status::Deleted, ..view.clone() }).collect();
        let changed = now.iter().filter(|(uid, view)| {
            shown.get(*uid).is_none_or(|before| !arguments.says_the_same(before, view))
        });
        let mut changed: Vec<&View> = changed.map(|(_, view)| view).chain(&gone).collect();
        changed.sort_by_key(|view| (view.namespace.clone(), view.title()));
        arguments.print_changed(&changed, &mut table, is_first)?;
        is_first = false;
        now.retain(|_, view| arguments.shows(view));
        shown = now;
        live.changed().await;
    }
}

/// What is known of the labels of Jobs that are watched. They are looked at when a Job is first seen.
#[derive(Default)]
struct Labelled {
    seen: BTreeSet<String>,
    chosen: BTreeSet<String>,
}

impl Labelled {
    /// Those with the labels that are wanted, if any are.
    async fn of(
        &mut self,
        there: Vec<Found>,
        selector: Option<&str>,
        manager: &Manager,
    ) -> anyhow::Result<Vec<Found>> {
        let Some(selector) = selector else { return Ok(there) };
        let new = there.iter().filter(|found| !self.seen.contains(&found.view.uid)).cloned().collect();
        let chosen = which::labelled(manager, new, selector).await?;
        self.chosen.extend(chosen.into_iter().map(|found| found.view.uid));
        self.seen = there.iter().map(|found| found.view.uid.clone()).collect();
        Ok(there.into_iter().filter(|found| self.chosen.contains(&found.view.uid)).collect())
    }
}

async fn queues(arguments: &Arguments, manager: &Manager) -> anyhow::Result<()> {
    let namespace = arguments.namespace(manager);
    let mut local = jobs::objects::<LocalQueue>(&manager.client, namespace).await?;
    let all = match jobs::cluster_objects::<ClusterQueue>(&manager.client).await {
        // What a queue has left is for those to see who may see whose queue it is.
        Err(error) if failure::is_forbidden(&error) => None,
        all => Some(all?),
    };
    let name = |queue: &LocalQueue| queue.metadata.name.clone().unwrap_or_default();
    arguments.expect_names("queue", local.iter().map(name).collect(), namespace)?;
    local.retain(|queue| arguments.is_wanted(&name(queue)));
    match arguments.output {
        Some(Format::Json) => return output::json(&items(local)),
        Some(Format::Yaml) => return output::yaml(&items(local)),
        Some(Format::Name) => return local.iter().try_for_each(|queue| output::line(name(queue))),
        None | Some(Format::Wide) => {}
    }
    let mut headings = vec!["NAME", "CLUSTERQUEUE", "WAITING", "ADMITTED", "USED"];
    if arguments.all_namespaces {
        headings.insert(0, "NAMESPACE");
    }
    let mut table = Table::new(headings);
    for queue in &local {
        let status = queue.status.clone().unwrap_or_default();
        let used = all.as_ref().map(|all| {
            let of = all.iter().find(|it| it.metadata.name.as_ref() == Some(&queue.spec.cluster_queue));
            of.map_or_else(|| "no such ClusterQueue".to_owned(), used)
        });
        let mut row: Vec<Cell> = vec![
            name(queue).into(),
            queue.spec.cluster_queue.clone().into(),
            status.pending_workloads.to_string().into(),
            status.admitted_workloads.to_string().into(),
            used.unwrap_or_default().into(),
        ];
        if arguments.all_namespaces {
            row.insert(0, queue.metadata.namespace.clone().unwrap_or_default().into());
        }
        table.row(row);
    }
    print(table, "queues", namespace)
}

/// Objects without the record of who wrote which field, which is long and seldom what is looked for.
fn items<K: kube::Resource + serde::Serialize>(mut objects: Vec<K>) -> Value {
    for object in &mut objects {
        object.meta_mut().managed_fields = None;
    }
    json!({ "items": objects })
}

/// What is used of what a ClusterQueue has, over all its flavors.
pub(crate) fn used(queue: &ClusterQueue) -> String {
    let shares = quota::shares(queue);
    let texts: Vec<String> =
        shares.iter().map(|(name, share)| format!("{name} {}", share.text(name))).collect();
    texts.join(", ")
}

async fn clusters(arguments: &Arguments, manager: &Manager) -> anyhow::Result<()> {
    let (mut clusters, found) = tokio::try_join!(manager.clusters(), jobs::list(&manager.client, None))?;
    let name = |cluster: &MultiKueueCluster| cluster.metadata.name.clone().unwrap_or_default();
    arguments.expect_names("cluster", clusters.iter().map(name).collect(), None)?;
    clusters.retain(|cluster| arguments.is_wanted(&name(cluster)));
    match arguments.output {
        Some(Format::Json) => return output::json(&items(clusters)),
        Some(Format::Yaml) => return output::yaml(&items(clusters)),
        Some(Format::Name) => return clusters.iter().try_for_each(|it| output::line(name(it))),
        None | Some(Format::Wide) => {}
    }
    let now = Timestamp::now();
    let mut table = Table::new(["NAME", "CONNECTED", "SINCE", "JOBS", "MESSAGE"]);
    for cluster in &clusters {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let active = conditions.into_iter().find(|condition| condition.type_ == "Active");
        let here = |found: &&Found| found.view.cluster.as_deref() == Some(name(cluster).as_str());
        let running = found.iter().filter(here).filter(|found| !found.view.status.has_ended()).count();
        let connected = match active.map(|active| active.status == "True") {
            Some(true) => Cell::toned(Tone::Good, "yes"),
            Some(false) => Cell::toned(Tone::Bad, "no"),
            None => Cell::toned(Tone::Waiting, "not yet"),
        };
        table.row([
            name(cluster).into(),
            connected,
            active.map(|it| output::age(it.last_transition_time.0, now)).unwrap_or_default().into(),
            running.to_string().into(),
            active.map(|it| it.message.clone()).unwrap_or_default().into(),
        ]);
    }
    print(table, "worker clusters", None)
}
