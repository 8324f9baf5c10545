//! `ferry explain`: why a Job does not run yet, cluster by cluster, and what would admit it.

mod books;
mod holes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use rules::dispatch::CORDONED;
use rules::quota::readiness;
use serde_json::{Value, json};
use types::Amount;
use types::kueue::{
    AdmissionCheck, ClusterQueue, MultiKueueCluster, MultiKueueConfig, ResourceFlavor, Workload,
};

use crate::clusters::layout::{active, annotation};
use crate::connect::{Manager, Options, within};
use crate::events::HERE;
use crate::failure::{self, Code, Failure};
use crate::jobs::{self, Found, cluster_objects, objects};
use crate::output::{self, Cell, Structure, Table, Tone};
use crate::process;
use crate::quota::Share;
use crate::view::{Status, View};
use books::{Answer, Books, Verdict};
use holes::Hole;

/// Say why a Job does not run yet: one line for each cluster, with numbers, and what would admit it.
///
/// NEEDS is what all its pods ask for together. FREE is what its queue could still use, borrowed quota included, of all that
/// it could use. LARGEST HOLE is the node on which most of its pods find room. The answer is the one that admission gives
/// there now, asked for this Job alone; its place in the queue is told apart. How the operator there was configured
/// (`ferry operator --config`) is not known here: it is taken to be as Kueue is by default.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry explain render\n  ferry explain render -o json")]
pub(crate) struct Arguments {
    /// The Job, by name, or `kind/name` for other kinds.
    job: String,

    /// How to show it, in place of a table.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Structure>,

    #[command(flatten)]
    connection: Options,
}

/// A line of the answer.
struct Line {
    cluster: String,
    answer: Result<Answer, String>,
    /// Whether the operator does not reach it.
    is_lost: bool,
    hole: Option<Hole>,
    /// What this user may not read there, so that the answer goes without it.
    unread: Vec<&'static str>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let found = jobs::queued(&manager, jobs::find(&manager, &arguments.job).await?).await?;
        let now = Timestamp::now();
        let lines = match &found.workload {
            Some(workload) if !found.view.status.has_ended() => lines(&manager, workload, now).await?,
            _ => Vec::new(),
        };
        match arguments.output {
            Some(Structure::Json) => output::json(&value(&found.view, &lines))?,
            Some(Structure::Yaml) => output::yaml(&value(&found.view, &lines))?,
            None => show(&manager, &found, &lines, now).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The management cluster, and every worker that the Job may be sent to.
async fn lines(manager: &Manager, workload: &Workload, now: Timestamp) -> anyhow::Result<Vec<Line>> {
    let (here, mut unread) = read(&manager.client, workload).await?;
    let answer = here.ask(workload, now);
    let queue = here.cluster_queues.iter().find(|it| it.metadata.name == answer.cluster_queue);
    let workers = workers(manager, queue).await?;
    let largest_pod = answer.pods.iter().map(|(_, pod)| pod).max().cloned().unwrap_or_default();
    // Where Jobs are sent elsewhere, no pods run.
    let hole =
        if workers.is_empty() { hole(&manager.client, HERE, &largest_pod, &mut unread).await } else { None };
    let mut lines = vec![Line { cluster: HERE.to_owned(), answer: Ok(answer), is_lost: false, hole, unread }];
    // Once it is on a worker, the others have no say in it.
    let on = workload.status.as_ref().and_then(|status| status.cluster_name.as_ref());
    let asked = workers.iter().filter(|it| on.is_none() || it.metadata.name.as_ref() == on);
    let asked = asked.map(|cluster| at_worker(manager, cluster, workload, &largest_pod, now));
    lines.extend(futures::future::join_all(asked).await);
    Ok(lines)
}

/// What a worker says. One that cannot be asked says so, and does not keep the others from answering.
async fn at_worker(
    manager: &Manager,
    cluster: &MultiKueueCluster,
    workload: &Workload,
    pod: &BTreeMap<String, Amount>,
    now: Timestamp,
) -> Line {
    let name = cluster.metadata.name.clone().unwrap_or_default();
    let said =
        |answer| Line { cluster: name.clone(), answer, is_lost: false, hole: None, unread: Vec::new() };
    if let Some(lost) = active(cluster).filter(|it| it.status != "True") {
        let since = output::age(lost.last_transition_time.0, now);
        let why = format!("not connected for {since}: {}", lost.message);
        return Line { is_lost: true, ..said(Err(why)) };
    }
    let is_there = workload.status.as_ref().is_some_and(|status| status.cluster_name.as_ref() == Some(&name));
    if annotation(cluster, CORDONED).is_some() && !is_there {
        return said(Ok(Answer::closed(format!("cordoned: ferry uncordon {name}"))));
    }
    let asked = async {
        let worker = manager.reader(&name).await?;
        let read = read(&worker.client, workload).await.with_context(|| format!("failed to ask {name}"));
        let (books, mut unread) = read?;
        let hole = hole(&worker.client, &name, pod, &mut unread).await;
        anyhow::Ok((books.ask(workload, now), hole, unread))
    };
    match asked.await {
        Ok((answer, hole, unread)) => Line { hole, unread, ..said(Ok(answer)) },
        Err(error) => said(Err(failure::text(&error))),
    }
}

/// Everything on a cluster that a decision depends on, and what of it this user may not read. What a manager's credentials
/// on its workers do not cover is taken to be as simple as it can be.
async fn read(client: &Client, workload: &Workload) -> anyhow::Result<(Books, Vec<&'static str>)> {
    let name = workload.metadata.namespace.as_deref().unwrap_or_default();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let (local_queues, cluster_queues, workloads) =
        tokio::try_join!(objects(client, None), cluster_objects(client), objects(client, None))?;
    let (cohorts, flavors, limits, namespace) = tokio::join!(
        cluster_objects(client),
        cluster_objects(client),
        objects(client, Some(name)),
        within("the cluster", "read a namespace", namespaces.get_opt(name)),
    );
    let mut unread = Vec::new();
    let cohorts = if_allowed(cohorts, "cohorts", &mut unread)?.unwrap_or_default();
    let limits = if_allowed(limits, "limit ranges", &mut unread)?.unwrap_or_default();
    let flavors =
        if_allowed(flavors, "flavors", &mut unread)?.unwrap_or_else(|| plain_flavors(&cluster_queues));
    let namespace = match if_allowed(namespace, "the namespace", &mut unread)? {
        Some(there) => there.map(|it| it.metadata.labels.unwrap_or_default()),
        None => Some(BTreeMap::new()),
    };
    let books = Books { local_queues, cluster_queues, cohorts, flavors, workloads, limits, namespace };
    Ok((books, unread))
}

/// What was read; `None`, and a word about it, if that is not allowed.
fn if_allowed<T>(
    read: anyhow::Result<T>,
    what: &'static str,
    unread: &mut Vec<&'static str>,
) -> anyhow::Result<Option<T>> {
    match read {
        Err(error) if failure::is_forbidden(&error) => {
            unread.push(what);
            Ok(None)
        }
        read => read.map(Some),
    }
}

/// The flavors that queues name, as if they asked nothing of nodes or pods.
fn plain_flavors(queues: &[ClusterQueue]) -> Vec<ResourceFlavor> {
    let groups = queues.iter().flat_map(|queue| &queue.spec.resource_groups);
    let names: BTreeSet<&str> =
        groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect();
    names
        .into_iter()
        .map(|name| {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            ResourceFlavor { metadata, ..ResourceFlavor::default() }
        })
        .collect()
}

/// The largest hole, if the user may see the nodes.
async fn hole(
    client: &Client,
    cluster: &str,
    pod: &BTreeMap<String, Amount>,
    unread: &mut Vec<&'static str>,
) -> Option<Hole> {
    if pod.is_empty() {
        return None;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    let params = kube::api::ListParams::default();
    let (nodes, pods) = tokio::join!(
        within(cluster, "list nodes", nodes.list(&params)),
        within(cluster, "list pods", pods.list(&params)),
    );
    // Whatever the reason is, the quota is told without it.
    match (nodes, pods) {
        (Ok(nodes), Ok(pods)) => return holes::largest(&nodes.items, &pods.items, pod),
        (Err(error), _) | (_, Err(error)) if failure::is_forbidden(&error) => unread.push("nodes"),
        (Err(error), _) | (_, Err(error)) => {
            output::note(format!("note: holes of {cluster} are not known: {}", failure::text(&error)));
        }
    }
    None
}

/// The clusters that a queue sends its Jobs to.
async fn workers(manager: &Manager, queue: Option<&ClusterQueue>) -> anyhow::Result<Vec<MultiKueueCluster>> {
    let Some(queue) = queue else { return Ok(Vec::new()) };
    let (checks, configs, clusters) = tokio::try_join!(
        cluster_objects::<AdmissionCheck>(&manager.client),
        cluster_objects::<MultiKueueConfig>(&manager.client),
        manager.clusters(),
    )?;
    let named: Vec<&str> = readiness::check_names(queue).collect();
    let is_ours = |check: &&AdmissionCheck| {
        let name = check.metadata.name.as_deref().unwrap_or_default();
        named.contains(&name) && check.spec.controller_name == readiness::MULTIKUEUE
    };
    let parameters = checks.iter().filter(is_ours).filter_map(|check| check.spec.parameters.as_ref());
    let config_names: Vec<&str> = parameters.map(|it| it.name.as_str()).collect();
    let is_meant = |config: &&MultiKueueConfig| {
        config_names.contains(&config.metadata.name.as_deref().unwrap_or_default())
    };
    let wanted: Vec<&String> =
        configs.iter().filter(is_meant).flat_map(|config| &config.spec.clusters).collect();
    Ok(clusters
        .into_iter()
        .filter(|it| it.metadata.name.as_ref().is_some_and(|name| wanted.contains(&name)))
        .collect())
}

async fn show(manager: &Manager, found: &Found, lines: &[Line], now: Timestamp) -> anyhow::Result<()> {
    let view = &found.view;
    output::line(headline(view, lines, now))?;
    if let Some(advice) = advice(view, lines, manager) {
        output::line(advice)?;
    }
    if lines.is_empty() {
        if let (Some(queue), None) = (&view.queue, &found.workload) {
            expect_queue(manager, view, queue).await?;
        }
        return Ok(());
    }
    let mut table = Table::new(["CLUSTER", "ANSWER", "NEEDS", "FREE", "LARGEST HOLE", "SINCE", "WHY"]);
    for line in lines {
        table.row(row(line, now));
    }
    table.print()
}

/// A queue that does not exist keeps a Job waiting without anybody saying so.
async fn expect_queue(manager: &Manager, view: &View, queue: &str) -> anyhow::Result<()> {
    let all = objects::<types::kueue::LocalQueue>(&manager.client, Some(&view.namespace)).await?;
    let names: Vec<String> = all.into_iter().filter_map(|queue| queue.metadata.name).collect();
    if names.iter().any(|name| name == queue) {
        return output::line(format!(
            "queue {queue} is there: is an operator running? its Workload is not made yet"
        ));
    }
    let hint = match names.as_slice() {
        [] => "there are none in this namespace: an administrator makes LocalQueues".to_owned(),
        names => format!("queues that are there: {}", names.join(", ")),
    };
    let message = format!("there is no queue {queue} in namespace {}", view.namespace);
    Err(Failure::new(Code::NotFound, message).hint(hint).into())
}

/// Where it stands, in a line.
fn headline(view: &View, lines: &[Line], now: Timestamp) -> String {
    let title = view.title();
    let here = lines.first().and_then(|line| line.answer.as_ref().ok());
    let place = here.and_then(|answer| {
        let (place, all) = answer.position?;
        let queue = answer.cluster_queue.as_deref().unwrap_or_default();
        let waits = answer.since.map(|since| format!(", waiting for {}", output::age(since, now)));
        Some(format!(", {place} of {all} in ClusterQueue {queue}{}", waits.unwrap_or_default()))
    });
    let on = match view.place().as_str() {
        "" => String::new(),
        place => format!(" on {place}"),
    };
    let why = if view.reason.is_empty() || !lines.is_empty() {
        String::new()
    } else {
        format!(": {}", view.reason)
    };
    format!("{title} is {}{on}{}{why}", view.status.text(), place.unwrap_or_default())
}

/// What to do about it, where that does not depend on quota.
fn advice(view: &View, lines: &[Line], manager: &Manager) -> Option<String> {
    let title = format!("{}{}", view.title(), manager.flags(&view.namespace));
    let is_lost = lines.iter().any(|line| line.is_lost && Some(&line.cluster) == view.cluster.as_ref());
    match view.status {
        Status::Held => Some(format!("nobody runs it until it is released: ferry release {title}")),
        Status::External => {
            Some("only the controller that managedBy names can run it; is it installed?".to_owned())
        }
        Status::Failed => {
            Some(format!("what its pods said: ferry logs {title}; what happened: ferry events {title}"))
        }
        Status::Stopping => Some(format!("it queues again when its pods are gone: {}", view.reason)),
        Status::Running | Status::Starting if is_lost => {
            let cluster = view.cluster.as_deref().unwrap_or_default();
            Some(format!(
                "its pods may still run on {cluster}, so it waits for that; if {cluster} will not come back: \
                 ferry drain --given-up {cluster}"
            ))
        }
        Status::Running | Status::Starting if view.queue.is_none() => {
            Some("it names no queue, so that it runs where it is, whatever quota there is".to_owned())
        }
        _ => None,
    }
}

fn row(line: &Line, now: Timestamp) -> Vec<Cell> {
    let Ok(answer) = &line.answer else {
        let why = line.answer.as_ref().err().cloned().unwrap_or_default();
        let empty = || Cell::from("");
        let answer = Cell::toned(Tone::Bad, "unreachable");
        return vec![line.cluster.clone().into(), answer, empty(), empty(), empty(), empty(), why.into()];
    };
    let (text, tone) = match answer.verdict {
        Verdict::Holds => ("has quota", Tone::Good),
        Verdict::Fits => ("fits", Tone::Good),
        Verdict::Preempts => ("preempts", Tone::Busy),
        Verdict::Waits => ("waits", Tone::Waiting),
        Verdict::Never => ("never", Tone::Bad),
        Verdict::Closed => ("closed", Tone::Bad),
    };
    let free = |(resource, share): (&String, &Share)| {
        format!("{resource} {} of {}", share.free().text(resource), share.total.text(resource))
    };
    vec![
        line.cluster.clone().into(),
        Cell::toned(tone, text),
        amounts(&answer.needs()).into(),
        answer.shares.iter().map(free).collect::<Vec<_>>().join(", ").into(),
        line.hole.as_ref().map(hole_text).unwrap_or_default().into(),
        answer.since.map(|since| output::age(since, now)).unwrap_or_default().into(),
        reason(line, answer).into(),
    ]
}

/// Why, and what could not be taken into account.
fn reason(line: &Line, answer: &Answer) -> String {
    if line.unread.is_empty() {
        return answer.why.clone();
    }
    format!("{} (without {}, which you may not read)", answer.why, line.unread.join(", "))
}

fn hole_text(hole: &Hole) -> String {
    // As many as one likes is no number.
    let fits = usize::try_from(hole.pods).ok().filter(|_| hole.pods != i64::MAX);
    let fits = fits.map(|pods| format!(" ({})", output::count(pods, "pod"))).unwrap_or_default();
    let free = amounts(&hole.free);
    format!("{}{}{}{fits}", free, if free.is_empty() { "" } else { " on " }, hole.node)
}

fn amounts(amounts: &BTreeMap<String, Amount>) -> String {
    let texts = amounts.iter().map(|(resource, amount)| format!("{resource} {}", amount.text(resource)));
    texts.collect::<Vec<_>>().join(", ")
}

/// The same for programs.
fn value(view: &View, lines: &[Line]) -> Value {
    let text = |amounts: &BTreeMap<String, Amount>| -> BTreeMap<String, String> {
        amounts.iter().map(|(resource, amount)| (resource.clone(), amount.text(resource))).collect()
    };
    let lines: Vec<Value> = lines
        .iter()
        .map(|line| match &line.answer {
            Err(why) => json!({ "cluster": line.cluster, "answer": "Unreachable", "why": why }),
            Ok(answer) => {
                let free: BTreeMap<String, Amount> =
                    answer.shares.iter().map(|(resource, share)| (resource.clone(), share.free())).collect();
                let hole = line.hole.as_ref();
                let hole = hole
                    .map(|hole| json!({ "node": hole.node, "free": text(&hole.free), "pods": hole.pods }));
                json!({
                    "cluster": line.cluster,
                    "answer": answer.verdict,
                    "clusterQueue": answer.cluster_queue,
                    "needs": text(&answer.needs()),
                    "free": text(&free),
                    "largestHole": hole,
                    "position": answer.position.map(|(place, _)| place),
                    "waiting": answer.position.map(|(_, all)| all),
                    "since": answer.since,
                    "why": answer.why,
                    "unread": line.unread,
                })
            }
        })
        .collect();
    json!({ "job": view, "clusters": lines })
}
