//! `ferry logs`: what the pods of a Job wrote, from whichever cluster they are on.

mod follow;

use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::LogParams;

use crate::connect::{Options, within};
use crate::failure::{Code, Failure};
use crate::jobs;
use crate::output::{self, Palette, Tone};
use crate::pods;
use crate::process;
use crate::span;
use crate::view::View;

pub(crate) use follow::follow;

/// Show what the pods of a Job wrote, from the cluster that it runs or ran on.
///
/// Every line begins with the name of its pod. With -f, goes on until the Job has ended, with the pods that replace those
/// that failed, and to another worker if the Job moves.
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
    #[arg(long, value_name = "N")]
    pub(crate) index: Option<i32>,

    /// Only so many of the last lines of each pod.
    #[arg(long, value_name = "LINES")]
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
        let view = jobs::find(&manager, &arguments.job).await?.view;
        if arguments.follow && !view.status.has_ended() {
            follow(&manager, &view, &arguments.what).await?;
            return Ok(ExitCode::SUCCESS);
        }
        let place = pods::place(&manager, &view).await?;
        let pods = place.list(&view).await?;
        let wanted: Vec<&Pod> = pods.iter().filter(|pod| arguments.what.is_wanted(pod)).collect();
        if wanted.is_empty() {
            return Err(nothing(&view, &place.cluster).into());
        }
        for pod in wanted {
            for container in arguments.what.containers(pod) {
                let params = arguments.what.params(&container, false);
                let name = pod.name_any();
                let text =
                    within(&place.cluster, "read logs", place.pods(&view).logs(&name, &params)).await?;
                let prefix = arguments.what.prefix(pod, &container);
                text.lines().try_for_each(|line| output::line(format!("{prefix}{line}")))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn nothing(view: &View, cluster: &str) -> Failure {
    let title = view.title();
    if view.status.has_ended() {
        let message = format!("the pods of {title} on {cluster} are gone, and their logs with them");
        return Failure::new(Code::NotFound, message)
            .hint("ferry logs -f, while it runs, sees everything; so does ferry submit --logs");
    }
    Failure::new(Code::NotFound, format!("{title} has no pods yet: it is {}", view.status.text()))
        .hint(format!("ferry explain {title} says what it waits for; ferry logs -f waits for its pods"))
}

impl What {
    pub(crate) fn is_wanted(&self, pod: &Pod) -> bool {
        self.index.is_none_or(|index| pods::index(pod) == Some(index))
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

    pub(crate) fn prefix(&self, pod: &Pod, container: &str) -> String {
        if self.no_prefix {
            return String::new();
        }
        let several = pod.spec.as_ref().is_some_and(|spec| spec.containers.len() > 1);
        let name = pod.name_any();
        let name = if several { format!("{name}/{container}") } else { name };
        format!("{} ", Palette::stdout().paint(Tone::Busy, &format!("[{name}]")))
    }
}
