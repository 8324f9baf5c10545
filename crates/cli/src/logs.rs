//! `ferry logs`: what the pods of a Job wrote, from whichever cluster they are on.

mod cursor;
mod follow;

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::LogParams;
use runner::kept::Kept;

use crate::connect::{Manager, Options, within};
use crate::failure::{self, Code, Failure, Hint as _};
use crate::jobs::{self, Found};
use crate::kept;
use crate::names;
use crate::output::{self, Palette, Tone};
use crate::pods::{self, Place};
use crate::process;
use crate::span;
use crate::view::View;

use cursor::Cursor;
pub(crate) use follow::follow;

/// How often logs of pods that have just gone are looked for, and how long in between.
const ATTEMPTS: usize = 50;
const ATTEMPT: Duration = Duration::from_millis(200);
/// How long after its end the logs of a Job may be on their way.
const LATELY: SignedDuration = SignedDuration::from_mins(1);

/// Show what the pods of a Job wrote, from the cluster that it runs or ran on.
///
/// Every line begins with the name of its pod. With -f, goes on until the Job has ended, with the pods that replace those
/// that failed, and to another worker if the Job moves. Pods go with their Job's mirror when it has ended; an embedded
/// fleet of this machine keeps the logs of its last pods all the same.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry logs render\n  ferry logs render -f --tail 10\n  ferry logs render --index 3 --no-prefix"
)]
pub(crate) struct Arguments {
    /// The Job, by name, or `kind/name` for other kinds.
    job: String,

    /// Go on until the Job has ended.
    #[arg(short, long)]
    follow: bool,

    #[command(flatten)]
    what: What,

    #[command(flatten)]
    connection: Options,
}

/// What is wanted of the logs.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct What {
    /// Only the pods of this index of an Indexed Job.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) index: Option<i32>,

    /// Only so many of the last lines of each pod.
    #[arg(long, value_name = "LINES", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) tail: Option<i64>,

    /// Only what is newer, for example 90s or 1h.
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    pub(crate) since: Option<Duration>,

    /// Only this container of each pod [default: all but those that only prepare].
    #[arg(short, long, value_name = "NAME")]
    pub(crate) container: Option<String>,

    /// The time at the beginning of each line.
    #[arg(long)]
    pub(crate) timestamps: bool,

    /// No names of pods at the beginning of lines.
    #[arg(long)]
    pub(crate) no_prefix: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let found = jobs::find(&manager, &arguments.job).await?;
        arguments.what.expect_of(&found)?;
        let view = found.view;
        if arguments.follow && !view.status.has_ended() {
            process::while_read(follow(&manager, &view, &arguments.what), ()).await?;
            return Ok(ExitCode::SUCCESS);
        }
        match print_all(&manager, &view, &arguments.what).await? {
            There::Some => Ok(ExitCode::SUCCESS),
            There::Waiting => Err(waiting(&view, &manager).into()),
            There::Nothing => Err(nothing(&view, &manager).into()),
        }
    })
}

/// What was read of the logs of pods, by uid and container.
#[derive(Debug, Default)]
struct Read(HashMap<String, HashMap<String, Extent>>);

/// How much of a log was read: so far, or all of it.
#[derive(Debug, Clone, Default)]
struct Extent {
    cursor: Cursor,
    is_whole: bool,
}

impl Read {
    /// Notes what was read of a container, in one of its lives.
    fn note(&mut self, pod: &str, container: &str, extent: Extent) {
        let of_pod = self.0.entry(pod.to_owned()).or_default();
        let together = match of_pod.remove(container) {
            None => extent,
            Some(other) => Extent {
                cursor: other.cursor.farther(extent.cursor),
                is_whole: other.is_whole && extent.is_whole,
            },
        };
        of_pod.insert(container.to_owned(), together);
    }

    /// Whether nothing is left to be read of a pod.
    fn is_whole(&self, pod: &str) -> bool {
        self.0.get(pod).is_some_and(|of_pod| of_pod.values().all(|it| it.is_whole))
    }

    fn extent(&self, pod: &str, container: &str) -> Extent {
        self.0.get(pod).and_then(|of_pod| of_pod.get(container)).cloned().unwrap_or_default()
    }

    /// How many pods were read to the end.
    fn pods(&self) -> usize {
        self.0.keys().filter(|pod| self.is_whole(pod)).count()
    }
}

/// What there is of logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    /// Something.
    Some,
    /// Pods that have not begun.
    Waiting,
    /// Nothing.
    Nothing,
}

/// Prints the logs of the pods that are there and of those that are gone.
async fn print_all(manager: &Manager, view: &View, what: &What) -> anyhow::Result<There> {
    let Present { read, is_waiting, failed } = print_present(manager, view, what).await?;
    if is_being_kept(manager, view, Timestamp::now()) {
        all_kept(manager, view, what, &read).await;
    }
    let is_there = print_kept(manager, view, what, &read).await? || !read.0.is_empty();
    match failed {
        Some(error) => Err(error),
        None if is_there => Ok(There::Some),
        None if is_waiting => Ok(There::Waiting),
        None => Ok(There::Nothing),
    }
}

/// Whether logs may be on their way to where they are kept: a pod is gone a moment before, and nobody tells when it is done.
fn is_being_kept(manager: &Manager, view: &View, now: Timestamp) -> bool {
    let is_recent = |ended: Timestamp| now.duration_since(ended) < LATELY;
    view.status.has_ended() && view.ended.is_some_and(is_recent) && kept::is_possible(manager, view)
}

/// Waits until as many logs are kept as there must be; a pod that failed may have none.
async fn all_kept(manager: &Manager, view: &View, what: &What, read: &Read) {
    let succeeded = usize::try_from(view.progress.succeeded).unwrap_or(0).max(1);
    let expected = if what.index.is_some() { 1 } else { succeeded };
    for _ in 0..ATTEMPTS {
        if read.pods() + kept(manager, view, what, read).len() >= expected {
            return;
        }
        tokio::time::sleep(ATTEMPT).await;
    }
}

/// The logs that were kept of pods that are gone, without those that were read before.
fn kept(manager: &Manager, view: &View, what: &What, but: &Read) -> Vec<Kept> {
    let mut kept = kept::of(manager, view);
    kept.retain(|kept| {
        what.is_wanted(&kept.metadata) && !but.is_whole(kept.metadata.uid.as_deref().unwrap_or(""))
    });
    kept.sort_by_key(|kept| pods::index_of(&kept.metadata));
    kept
}

/// What became of the logs of the pods that are there.
#[derive(Default)]
struct Present {
    read: Read,
    /// Whether pods have not begun to write.
    is_waiting: bool,
    /// What was wrong with a pod, which keeps no other from being read.
    failed: Option<anyhow::Error>,
}

/// Prints the logs of the pods that are there.
async fn print_present(manager: &Manager, view: &View, what: &What) -> anyhow::Result<Present> {
    let place = pods::place(manager, view).await?;
    let pods = place.list(view).await?;
    let mut present = Present::default();
    for pod in pods.iter().filter(|pod| what.is_wanted(&pod.metadata)) {
        let uid = pod.uid().unwrap_or_default();
        // Without a node it has no log, which is answered as an empty one.
        if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
            output::note(format!("note: pod {} waits for a node", pod.name_any()));
            present.is_waiting = true;
            continue;
        }
        for container in what.containers(pod) {
            match print_log(&place, view, pod, &container, what).await {
                Ok(()) => {
                    let whole = Extent { is_whole: true, ..Extent::default() };
                    present.read.note(&uid, &container, whole);
                }
                // It has gone since; what is kept of it comes with the rest.
                Err(error) if failure::is_not_found(&error) => break,
                Err(error) if failure::is_bad_request(&error) => {
                    output::note(format!("note: {}", failure::text(&error)));
                    present.is_waiting = true;
                }
                Err(error) if failure::is_answer(&error) && !failure::is_forbidden(&error) => {
                    match present.failed {
                        None => present.failed = Some(error),
                        Some(_) => output::note(format!("warning: {}", failure::text(&error))),
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(present)
}

/// Prints the log of a container as it comes: it may be longer than memory.
async fn print_log(
    place: &Place,
    view: &View,
    pod: &Pod,
    container: &str,
    what: &What,
) -> anyhow::Result<()> {
    let (name, params) = (pod.name_any(), what.params(container));
    let doing = format!("read the log of pod {name}");
    let opened = place.pods(view);
    let stream = within(&place.cluster, &doing, opened.log_stream(&name, &params)).await;
    let stream = place.permitted(stream)?;
    let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
    let prefix = what.prefix(&name, container, several);
    let mut stream = std::pin::pin!(stream);
    while let Some(line) = within(&place.cluster, &doing, next_line(&mut stream)).await? {
        output::line(format!("{prefix}{line}"))?;
    }
    Ok(())
}

/// The next line of a log. What is no text is shown as far as it is.
async fn next_line(log: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    if log.read_until(b'\n', &mut line).await? == 0 {
        return Ok(None);
    }
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    Ok(Some(String::from_utf8_lossy(line).into_owned()))
}

/// Prints the logs that were kept of pods that are gone, but for what was read before. True if there were any.
async fn print_kept(manager: &Manager, view: &View, what: &What, but: &Read) -> anyhow::Result<bool> {
    let kept = kept(manager, view, what, but);
    let options = what.options(Timestamp::now());
    for pod in &kept {
        let containers = pod.containers().unwrap_or_default();
        let several = containers.len() > 1;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for container in containers.iter().filter(|name| what.container.as_ref().is_none_or(|it| it == *name))
        {
            let Extent { mut cursor, is_whole } = but.extent(uid, container);
            if is_whole {
                continue;
            }
            let mut options = options.clone();
            if cursor.resume().is_some() {
                options.tail = None;
            }
            let text = pod.log(container, &options).await.context("failed to read a log that was kept");
            let text = text.hint("it is in the data of ferry up, which may be another user's")?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let prefix = what.prefix(name, container, several);
            for line in String::from_utf8_lossy(&text).lines() {
                if let Some(line) = cursor.take(line, what.timestamps) {
                    output::line(format!("{prefix}{line}"))?;
                }
            }
        }
    }
    Ok(!kept.is_empty())
}

fn waiting(view: &View, manager: &Manager) -> Failure {
    let (title, flags) = (view.title(), manager.flags(&view.namespace));
    Failure::new(Code::NotFound, format!("no pod of {title} has begun to write yet")).hint(format!(
        "ferry describe {title}{flags} says what they wait for; ferry logs {title}{flags} -f waits for them"
    ))
}

fn nothing(view: &View, manager: &Manager) -> Failure {
    let (title, flags) = (view.title(), manager.flags(&view.namespace));
    if view.status.has_ended() {
        let cluster = view.cluster.as_deref().unwrap_or("the management cluster");
        let message = format!("the pods of {title} on {cluster} are gone, and their logs with them");
        return Failure::new(Code::NotFound, message)
            .hint("ferry logs -f, while it runs, sees everything; so does ferry submit --logs");
    }
    Failure::new(Code::NotFound, format!("{title} has no pods yet: it is {}", view.status.text()))
        .hint(format!(
            "ferry explain {title}{flags} says what it waits for; ferry logs {title}{flags} -f waits for its pods"
        ))
}

impl What {
    /// That the Job can have what is asked for: its pods may be gone, but what they were to be is known.
    fn expect_of(&self, found: &Found) -> anyhow::Result<()> {
        let Some(spec) = found.job.as_ref().and_then(|job| job.spec.as_ref()) else { return Ok(()) };
        let title = found.view.title();
        if let Some(index) = self.index {
            let count = spec.completions.filter(|_| spec.completion_mode.as_deref() == Some("Indexed"));
            let Some(count) = count else {
                let message = format!("{title} has no indexes: its completionMode is not Indexed");
                return Err(Failure::new(Code::NotFound, message).hint("leave --index out").into());
            };
            if !(0..count).contains(&index) {
                let message = format!("{title} has no index {index}");
                let hint = format!("its indexes are 0 to {}", count - 1);
                return Err(Failure::new(Code::NotFound, message).hint(hint).into());
            }
        }
        let pod = spec.template.spec.clone().unwrap_or_default();
        let all = pod.containers.into_iter().chain(pod.init_containers.into_iter().flatten());
        let all: Vec<String> = all.map(|container| container.name).collect();
        match self.container.as_ref().filter(|wanted| !all.contains(wanted)) {
            None => Ok(()),
            Some(wanted) => {
                let message = format!("the pods of {title} have no container {wanted}");
                let hint = names::hint("containers", wanted, &all, "");
                Err(Failure::new(Code::NotFound, message).hint(hint).into())
            }
        }
    }

    pub(crate) fn is_wanted(&self, pod: &ObjectMeta) -> bool {
        self.index.is_none_or(|index| pods::index_of(pod) == Some(index))
    }

    /// The containers of a pod that are wanted.
    pub(crate) fn containers(&self, pod: &Pod) -> Vec<String> {
        let spec = pod.spec.clone().unwrap_or_default();
        let mut all = spec.containers.into_iter().map(|container| container.name);
        match &self.container {
            None => all.collect(),
            Some(wanted) => {
                let mut init = spec.init_containers.into_iter().flatten().map(|container| container.name);
                let is_there = all.any(|name| name == *wanted) || init.any(|name| name == *wanted);
                is_there.then(|| wanted.clone()).into_iter().collect()
            }
        }
    }

    pub(crate) fn params(&self, container: &str) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            tail_lines: self.tail,
            since_seconds: self.since.map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
            timestamps: self.timestamps,
            ..LogParams::default()
        }
    }

    /// The same for a log that was kept.
    fn options(&self, now: Timestamp) -> runner::LogOptions {
        let since = self.since.and_then(|since| now.saturating_sub(since).ok());
        runner::LogOptions {
            tail: self.tail.and_then(|lines| usize::try_from(lines).ok()),
            since,
            // By them it is told what was read before.
            timestamps: true,
            ..runner::LogOptions::default()
        }
    }

    pub(crate) fn prefix(&self, pod: &str, container: &str, several: bool) -> String {
        if self.no_prefix {
            return String::new();
        }
        let name = if several { format!("{pod}/{container}") } else { pod.to_owned() };
        format!("{} ", Palette::stdout().paint(Tone::Busy, &format!("[{name}]")))
    }
}
