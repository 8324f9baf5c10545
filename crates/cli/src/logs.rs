//! `ferry logs`: what the pods of a Job wrote, from whichever cluster they are on.

mod follow;

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;
use kube::api::LogParams;
use runner::kept::Kept;

use crate::connect::{Manager, Options, within};
use crate::failure::{self, Code, Failure};
use crate::jobs::{self, Found};
use crate::kept;
use crate::names;
use crate::output::{self, Palette, Tone};
use crate::pods;
use crate::process;
use crate::span;
use crate::view::View;

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
        if !print_all(&manager, &view, &arguments.what).await? {
            return Err(nothing(&view).into());
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Prints the logs of the pods that are there and of those that are gone. True if there were any.
async fn print_all(manager: &Manager, view: &View, what: &What) -> anyhow::Result<bool> {
    let read = print_present(manager, view, what).await?;
    if is_being_kept(manager, view, Timestamp::now()) {
        all_kept(manager, view, what, &read).await;
    }
    Ok(print_kept(manager, view, what, &read).await? || !read.is_empty())
}

/// Whether logs may be on their way to where they are kept: a pod is gone a moment before, and nobody tells when it is done.
fn is_being_kept(manager: &Manager, view: &View, now: Timestamp) -> bool {
    let is_recent = |ended: Timestamp| now.duration_since(ended) < LATELY;
    view.status.has_ended() && view.ended.is_some_and(is_recent) && kept::is_possible(manager, view)
}

/// Waits until as many logs are kept as there must be; a pod that failed may have none.
async fn all_kept(manager: &Manager, view: &View, what: &What, read: &HashSet<String>) {
    let succeeded = usize::try_from(view.progress.succeeded).unwrap_or(0).max(1);
    let expected = if what.index.is_some() { 1 } else { succeeded };
    for _ in 0..ATTEMPTS {
        if read.len() + kept(manager, view, what, read).len() >= expected {
            return;
        }
        tokio::time::sleep(ATTEMPT).await;
    }
}

/// The logs that were kept of pods that are gone, without those that were read before.
fn kept(manager: &Manager, view: &View, what: &What, but: &HashSet<String>) -> Vec<Kept> {
    let mut kept = kept::of(manager, view);
    kept.retain(|kept| {
        what.is_wanted(&kept.metadata) && !but.contains(kept.metadata.uid.as_deref().unwrap_or(""))
    });
    kept.sort_by_key(|kept| pods::index_of(&kept.metadata));
    kept
}

/// Prints the logs of the pods that are there, and returns their uids.
async fn print_present(manager: &Manager, view: &View, what: &What) -> anyhow::Result<HashSet<String>> {
    let place = pods::place(manager, view).await?;
    let pods = place.list(view).await?;
    let wanted: Vec<&Pod> = pods.iter().filter(|pod| what.is_wanted(&pod.metadata)).collect();
    let mut read = HashSet::new();
    for pod in &wanted {
        for container in what.containers(pod) {
            let params = what.params(&container, false);
            let name = pod.name_any();
            let text = within(&place.cluster, "read logs", place.pods(view).logs(&name, &params)).await;
            let text = match text {
                // It has gone since; what is kept of it comes with the rest.
                Err(error) if failure::is_not_found(&error) => break,
                text => text?,
            };
            read.extend(pod.uid());
            let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
            print(&text, &what.prefix(&name, &container, several))?;
        }
    }
    Ok(read)
}

/// Prints the logs that were kept of pods that are gone, without those that were read before. True if there were any.
async fn print_kept(
    manager: &Manager,
    view: &View,
    what: &What,
    but: &HashSet<String>,
) -> anyhow::Result<bool> {
    let kept = kept(manager, view, what, but);
    let options = what.options(Timestamp::now());
    for pod in &kept {
        let containers = pod.containers().unwrap_or_default();
        let several = containers.len() > 1;
        for container in containers.iter().filter(|name| what.container.as_ref().is_none_or(|it| it == *name))
        {
            let text = pod.log(container, &options).await.context("failed to read a log that was kept")?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            print(&String::from_utf8_lossy(&text), &what.prefix(name, container, several))?;
        }
    }
    Ok(!kept.is_empty())
}

fn print(text: &str, prefix: &str) -> anyhow::Result<()> {
    text.lines().try_for_each(|line| output::line(format!("{prefix}{line}")))
}

fn nothing(view: &View) -> Failure {
    let title = view.title();
    if view.status.has_ended() {
        let cluster = view.cluster.as_deref().unwrap_or("the management cluster");
        let message = format!("the pods of {title} on {cluster} are gone, and their logs with them");
        return Failure::new(Code::NotFound, message)
            .hint("ferry logs -f, while it runs, sees everything; so does ferry submit --logs");
    }
    Failure::new(Code::NotFound, format!("{title} has no pods yet: it is {}", view.status.text()))
        .hint(format!("ferry explain {title} says what it waits for; ferry logs -f waits for its pods"))
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

    pub(crate) fn params(&self, container: &str, follow: bool) -> LogParams {
        LogParams {
            container: Some(container.to_owned()),
            follow,
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
            timestamps: self.timestamps,
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
