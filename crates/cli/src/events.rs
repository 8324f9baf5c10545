//! `ferry events`: what was told about Jobs, on the management cluster and on the workers.

use std::collections::BTreeSet;
use std::process::ExitCode;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use reconcile::{Cache, Tasks};
use tokio::sync::mpsc;

use crate::connect::{Manager, Options, within};
use crate::live::Live;
use crate::output::{self, Cell, Palette, Table, Tone};
use crate::process;
use crate::view::View;
use crate::{failure, jobs};

/// What the management cluster is called among clusters.
pub(crate) const HERE: &str = "manager";

/// By how much the clocks of clusters may differ. What was told earlier than this before a Job was created is about an
/// earlier one of the same name.
pub(crate) const SKEW: SignedDuration = SignedDuration::from_secs(5);

/// Show what happened to a Job, or in a namespace, on all clusters in the order of time.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry events render\n  ferry events -w")]
pub(crate) struct Arguments {
    /// The Job, by name, or `kind/name` for other kinds [default: everything in the namespace].
    job: Option<String>,

    /// Go on with what happens.
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    connection: Options,
}

/// Something that was told about an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Told {
    pub(crate) at: Option<Timestamp>,
    pub(crate) cluster: String,
    kind: String,
    name: String,
    uid: String,
    reason: String,
    message: String,
    count: i32,
    is_warning: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let view = match &arguments.job {
            Some(name) => Some(jobs::find(&manager, name).await?.view),
            None => None,
        };
        let sources = sources(&manager, view.as_ref()).await?;
        let told = gather(&sources, &manager.namespace, view.as_ref()).await;
        let mut table = Table::new(headings());
        for told in &told {
            table.row(told.row(Timestamp::now()));
        }
        if table.is_empty() && !arguments.watch {
            output::note("nothing was told, or it is forgotten by now");
            return Ok(ExitCode::SUCCESS);
        }
        output::print(&table.text(Palette::stdout(), true))?;
        if arguments.watch {
            process::while_read(watch(&manager, sources, view, told, table), ()).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn headings() -> [&'static str; 6] {
    ["LAST", "CLUSTER", "TYPE", "REASON", "OBJECT", "MESSAGE"]
}

/// A cluster on which something may be told, by its name.
type Source = (String, kube::Client);

/// The clusters on which something may be told about a Job, or all of them.
async fn sources(manager: &Manager, view: Option<&View>) -> anyhow::Result<Vec<Source>> {
    let mut sources = vec![(HERE.to_owned(), manager.client.clone())];
    let names: BTreeSet<String> = if let Some(view) = view {
        clusters_of(view)
    } else {
        let clusters = match manager.clusters().await {
            Err(error) if failure::is_forbidden(&error) => {
                output::note(format!("warning: without workers: {}", failure::text(&error)));
                Vec::new()
            }
            clusters => clusters?,
        };
        clusters.into_iter().filter_map(|cluster| cluster.metadata.name).collect()
    };
    for name in names {
        sources.extend(source(manager, &name).await);
    }
    Ok(sources)
}

/// The workers on which a Job is, or may be soon.
fn clusters_of(view: &View) -> BTreeSet<String> {
    view.cluster.iter().chain(&view.nominated).cloned().collect()
}

/// A worker. One that cannot be reached is named and passed over.
async fn source(manager: &Manager, name: &str) -> Option<Source> {
    match manager.reader(name).await {
        Ok(worker) => Some((worker.name, worker.client)),
        Err(error) => {
            output::note(format!("warning: {}", failure::text(&error)));
            None
        }
    }
}

/// What was told about a Job everywhere, oldest first.
pub(crate) async fn of_job(manager: &Manager, view: &View) -> anyhow::Result<Vec<Told>> {
    let sources = sources(manager, Some(view)).await?;
    Ok(gather(&sources, &view.namespace, Some(view)).await)
}

async fn gather(sources: &[Source], namespace: &str, view: Option<&View>) -> Vec<Told> {
    let mut all = Vec::new();
    for (cluster, client) in sources {
        let api: Api<Event> = Api::namespaced(client.clone(), namespace);
        match within(cluster, "list events", api.list(&ListParams::default())).await {
            Ok(list) => all.extend(list.items.iter().map(|event| Told::read(cluster, event))),
            Err(error) => output::note(format!("warning: {}", failure::text(&error))),
        }
    }
    all.retain(|told| view.is_none_or(|view| told.is_about(view)));
    all.sort();
    all
}

/// Goes on with what is told: about a Job also on the workers that it gets to later.
async fn watch(
    manager: &Manager,
    sources: Vec<Source>,
    mut view: Option<View>,
    shown: Vec<Told>,
    mut table: Table,
) -> anyhow::Result<()> {
    let (tell, mut heard) = mpsc::unbounded_channel();
    let mut tasks = Tasks::new();
    let listen = |(cluster, client): Source, tasks: &mut Tasks| {
        let tell = tell.clone();
        Cache::new(Api::<Event>::namespaced(client, &manager.namespace))
            .on_change(move |change| {
                if let Some(event) = change.new {
                    // Nobody listens at the end.
                    let _ = tell.send(Told::read(&cluster, event));
                }
            })
            .start(tasks);
    };
    let mut known: BTreeSet<String> = sources.iter().map(|(name, _)| name.clone()).collect();
    for source in sources {
        listen(source, &mut tasks);
    }
    let live = match &view {
        Some(view) => Some(Live::start(&manager.client, Some(&view.namespace)).await?),
        None => None,
    };
    let mut shown: BTreeSet<Told> = shown.into_iter().collect();
    // What was told of Workloads before it was known which one is the Job's.
    let mut early = Vec::new();
    loop {
        let told = tokio::select! {
            biased;
            Some(told) = heard.recv() => vec![told],
            now = changed(live.as_ref(), view.as_ref()) => {
                for name in clusters_of(&now) {
                    if known.insert(name.clone())
                        && let Some(source) = source(manager, &name).await
                    {
                        listen(source, &mut tasks);
                    }
                }
                view = Some(now);
                std::mem::take(&mut early)
            }
        };
        for told in told {
            if view.as_ref().is_some_and(|view| view.workload.is_none()) && told.kind == "Workload" {
                early.push(told);
            } else if view.as_ref().is_none_or(|view| told.is_about(view)) && shown.insert(told.clone()) {
                table.row(told.row(Timestamp::now()));
                output::print(&table.text(Palette::stdout(), false))?;
            }
        }
    }
}

/// Waits until a Job is another than it was; forever, if none is meant.
async fn changed(live: Option<&Live>, view: Option<&View>) -> View {
    let (Some(live), Some(view)) = (live, view) else { return std::future::pending().await };
    loop {
        if let Some(found) = live.by_uid(&view.uid)
            && found.view != *view
        {
            return found.view;
        }
        live.changed().await;
    }
}

/// When something was told last, as exactly as can be known.
///
/// Who tells by the older API writes whole seconds, which come before what others told with fractions in the same second;
/// but the name of an event ends with the time at which it was first told, to the nanosecond (`render.18…`).
fn time_of(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let micro = series.or(event.event_time.as_ref()).map(|time| time.0);
    let whole = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
    let at = whole.max(micro)?;
    let suffix = event.metadata.name.as_deref().and_then(|name| name.rsplit_once('.'));
    let named = suffix.and_then(|(_, hex)| i128::from_str_radix(hex, 16).ok());
    let named = named.and_then(|nanoseconds| Timestamp::from_nanosecond(nanoseconds).ok());
    // What was told again later is as exact as it says itself.
    let is_same = |named: &Timestamp| at.subsec_nanosecond() == 0 && named.as_second() == at.as_second();
    Some(named.filter(is_same).unwrap_or(at))
}

impl Told {
    fn read(cluster: &str, event: &Event) -> Told {
        let about = &event.involved_object;
        let series = event.series.as_ref();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Told {
            at: time_of(event),
            cluster: cluster.to_owned(),
            kind: text(&about.kind),
            name: text(&about.name),
            uid: text(&about.uid),
            reason: text(&event.reason),
            message: text(&event.message),
            count: event.count.or_else(|| series.and_then(|it| it.count)).unwrap_or(1),
            is_warning: event.type_.as_deref() == Some("Warning"),
        }
    }

    /// Whether it is about a Job, its Workload or its pods. On workers the same names have other uids.
    fn is_about(&self, view: &View) -> bool {
        let is_mirror = self.cluster != HERE;
        let is_earlier =
            |(at, created): (Timestamp, Timestamp)| at < created.saturating_sub(SKEW).unwrap_or(at);
        if self.at.zip(view.created).is_some_and(is_earlier) {
            return false;
        }
        match self.kind.as_str() {
            "Workload" => Some(&self.name) == view.workload.as_ref(),
            "Pod" if view.kind == "Job" => is_pod_of(&view.name, &self.name),
            "Pod" if view.kind == "Pod" => self.name == view.name,
            kind => kind == view.kind && self.name == view.name && (is_mirror || self.uid == view.uid),
        }
    }

    pub(crate) fn row(&self, now: Timestamp) -> Vec<Cell> {
        let tone = if self.is_warning { Tone::Waiting } else { Tone::Plain };
        let times = if self.count > 1 { format!(" (x{})", self.count) } else { String::new() };
        vec![
            self.at.map(|at| output::age(at, now)).unwrap_or_default().into(),
            self.cluster.clone().into(),
            Cell::toned(tone, if self.is_warning { "Warning" } else { "Normal" }),
            self.reason.clone().into(),
            format!("{}/{}", self.kind.to_lowercase(), self.name).into(),
            format!("{}{times}", self.message.trim().replace('\n', " ")).into(),
        ]
    }
}

/// Whether a pod is called as those of a Job are: with five characters more, and before them perhaps an index.
fn is_pod_of(job: &str, pod: &str) -> bool {
    let Some(rest) = pod.strip_prefix(job).and_then(|rest| rest.strip_prefix('-')) else { return false };
    let is_suffix = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match rest.split_once('-') {
        None => is_suffix(rest),
        Some((index, suffix)) => {
            !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) && is_suffix(suffix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    #[test]
    fn pods_are_told_by_their_names() {
        for (pod, expected) in [
            ("render-x7k2p", true),
            ("render-12-x7k2p", true),
            ("render-big-x7k2p", false),
            ("render-big", false),
            ("render", false),
            ("other-x7k2p", false),
        ] {
            assert_eq!(is_pod_of("render", pod), expected, "{pod}");
        }
    }

    /// Of two clusters, one tells in whole seconds and the other with fractions.
    #[test]
    fn events_of_both_apis_are_told_in_the_order_of_time() {
        let second = 1_767_268_800_i64; // 2026-01-01T12:00:00Z
        let at = |fraction: &str| format!("2026-01-01T12:00:{fraction}Z");
        let named = |nanoseconds: i64| format!("a.{:x}", second * 1_000_000_000 + nanoseconds);
        let told = |name: &str, times: serde_json::Value| {
            let mut event = json!({ "metadata": { "name": name }, "involvedObject": {} });
            for (key, value) in times.as_object().into_iter().flatten() {
                event[key] = value.clone();
            }
            let told = Told::read(HERE, &serde_json::from_value(event).expect("an event"));
            told.at.map(|at| at.to_string()).unwrap_or_default()
        };
        let old = |name: &str, last: &str| {
            told(name, json!({ "firstTimestamp": at("00"), "lastTimestamp": at(last) }))
        };
        assert_eq!(old(&named(900_000_000), "00"), at("00.9"), "its name says when in the second");
        assert_eq!(old(&named(900_000_000), "07"), at("07"), "it was told again later");
        assert_eq!(old("a.0123-uid", "00"), at("00"));
        assert_eq!(old("a", "00"), at("00"));
        assert_eq!(told(&named(5), json!({ "eventTime": at("00.250000") })), at("00.25"));
        let series = json!({ "count": 2, "lastObservedTime": at("03.500000") });
        assert_eq!(told("a", json!({ "eventTime": at("00.250000"), "series": series })), at("03.5"));
        // client-go's newer recorder fills in both.
        let both = json!({ "eventTime": at("00.250000"), "lastTimestamp": at("00") });
        assert_eq!(told("a", both), at("00.25"));
        assert_eq!(told("a", json!({})), "");
    }

    #[test]
    fn events_of_an_earlier_job_of_the_same_name_are_not_its_own() {
        let created = "2026-01-01T12:00:00Z";
        let job = json!({ "metadata": { "name": "a", "uid": "1", "creationTimestamp": created } });
        let view = View::of_job(&serde_json::from_value::<Job>(job).expect("a Job"), None);
        let told = |cluster: &str, uid: &str, at: &str| {
            let about = json!({ "kind": "Job", "name": "a", "uid": uid });
            let event =
                json!({ "metadata": {}, "involvedObject": about, "reason": "Created", "lastTimestamp": at });
            Told::read(cluster, &serde_json::from_value(event).expect("an event"))
        };
        assert!(told(HERE, "1", created).is_about(&view));
        assert!(!told(HERE, "0", created).is_about(&view));
        assert!(told("east", "7", created).is_about(&view), "a mirror has a uid of its own");
        assert!(!told("east", "7", "2026-01-01T11:59:00Z").is_about(&view));
    }
}
