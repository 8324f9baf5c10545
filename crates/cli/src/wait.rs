//! `ferry wait`: until Jobs are where they are wanted.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure};
use crate::live::Live;
use crate::output;
use crate::process;
use crate::span;
use crate::view::{Status, View};
use crate::which::Which;

/// Wait for Jobs.
///
/// Says one line for each when it is where it was wanted.
///
/// Exit status: 0 if all got there, 1 if one ended otherwise, 3 if one is not there, 4 if it took too long, 130 if it was interrupted.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry wait render\n  ferry wait render train --timeout 1h\n  ferry wait render --for running\n  ferry wait -l team=vision --for finished"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    which: Which,

    /// What to wait for.
    #[arg(long = "for", value_enum, value_name = "WHAT", default_value_t = Aim::Complete)]
    aim: Aim,

    /// How long, for example 90s, 5m or 1h30m [default: forever].
    #[arg(long, value_name = "TIME", value_parser = span::parse)]
    timeout: Option<Duration>,

    #[command(flatten)]
    connection: Options,
}

/// What can be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Aim {
    /// Its good end.
    Complete,
    /// Its end, good or not.
    Finished,
    /// Its admission to a cluster.
    Admitted,
    /// Its first pods.
    Running,
    /// That it is gone.
    Deleted,
}

/// Whether a Job is where it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is.
    Yes,
    /// It is not, and will not be.
    No,
    /// Not yet.
    NotYet,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.connection.manager().await?;
        let uids = arguments.jobs(&manager).await?;
        let waiting = until(&manager, &uids, arguments.aim);
        let Some(timeout) = arguments.timeout else { return waiting.await };
        tokio::time::timeout(timeout, waiting)
            .await
            .map_err(|_| too_long(timeout, "ferry explain JOB says what it waits for"))?
    })
}

/// What was waited for did not come in time.
pub(crate) fn too_long(timeout: Duration, hint: &str) -> Failure {
    let message = format!("it took longer than {}", output::duration(seconds(timeout)));
    Failure::new(Code::Timeout, message).hint(hint)
}

impl Arguments {
    /// What is waited for, by title and uid.
    async fn jobs(&self, manager: &Manager) -> anyhow::Result<Vec<(String, String)>> {
        let is_to_go = self.aim == Aim::Deleted;
        let absent = |name: &str, error| {
            if is_to_go { output::line(format!("{name} is not there")) } else { Err(error) }
        };
        let found = self.which.find_or(manager, absent).await?;
        if found.is_empty() && !is_to_go {
            let hint = "ferry get jobs shows those that are there";
            return Err(Failure::new(Code::NotFound, self.which.none(manager)).hint(hint).into());
        }
        Ok(found.into_iter().map(|found| (found.view.title(), found.view.uid)).collect())
    }
}

fn seconds(span: Duration) -> i64 {
    i64::try_from(span.as_secs()).unwrap_or(i64::MAX)
}

/// Waits for Jobs, each given by what it is called and by its uid.
pub(crate) async fn until(
    manager: &Manager,
    jobs: &[(String, String)],
    aim: Aim,
) -> anyhow::Result<ExitCode> {
    let live = Live::start(&manager.client, Some(&manager.namespace)).await?;
    let ended = watch(&live, jobs, aim).await;
    live.stop().await;
    ended
}

async fn watch(live: &Live, jobs: &[(String, String)], aim: Aim) -> anyhow::Result<ExitCode> {
    let mut left = jobs.to_vec();
    let mut missed = false;
    loop {
        let now: HashMap<String, View> =
            live.found().into_iter().map(|found| (found.view.uid.clone(), found.view)).collect();
        let mut later = Vec::new();
        for (title, uid) in left {
            let view = now.get(&uid);
            let verdict = judge(view, aim);
            if verdict == Verdict::NotYet {
                later.push((title, uid));
                continue;
            }
            missed |= verdict == Verdict::No;
            let state = view.map_or("is gone".to_owned(), |view| {
                let why = if view.reason.is_empty() { String::new() } else { format!(" ({})", view.reason) };
                format!("is {}{why}", view.status.text())
            });
            // Whether it is so is the answer, even if nobody reads more of it.
            output::announce(format!("{title} {state}"));
        }
        left = later;
        if left.is_empty() {
            return Ok(if missed { Code::No.into() } else { ExitCode::SUCCESS });
        }
        live.changed().await;
    }
}

/// Whether a Job, or one that is gone, is where it is wanted.
fn judge(view: Option<&View>, aim: Aim) -> Verdict {
    let Some(view) = view else {
        return if aim == Aim::Deleted { Verdict::Yes } else { Verdict::No };
    };
    let is_there = match aim {
        Aim::Complete => view.status == Status::Complete,
        Aim::Finished => view.status.has_ended(),
        Aim::Admitted => matches!(view.status, Status::Starting | Status::Running | Status::Complete),
        Aim::Running => matches!(view.status, Status::Running | Status::Complete),
        Aim::Deleted => false,
    };
    match view.status {
        _ if is_there => Verdict::Yes,
        Status::Complete | Status::Failed if aim != Aim::Deleted => Verdict::No,
        _ => Verdict::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{No, NotYet, Yes};

    #[test]
    fn verdicts() {
        let view = |status| {
            let mut view = View::of_job(&k8s_openapi::api::batch::v1::Job::default(), None);
            view.status = status;
            view
        };
        for (status, expected) in [
            //                   complete finished admitted running deleted
            (Status::Queued, [NotYet, NotYet, NotYet, NotYet, NotYet]),
            (Status::Starting, [NotYet, NotYet, Yes, NotYet, NotYet]),
            (Status::Running, [NotYet, NotYet, Yes, Yes, NotYet]),
            (Status::Complete, [Yes, Yes, Yes, Yes, NotYet]),
            (Status::Failed, [No, Yes, No, No, NotYet]),
        ] {
            let aims = [Aim::Complete, Aim::Finished, Aim::Admitted, Aim::Running, Aim::Deleted];
            assert_eq!(aims.map(|aim| judge(Some(&view(status)), aim)), expected, "{status:?}");
        }
        assert_eq!((judge(None, Aim::Deleted), judge(None, Aim::Complete)), (Yes, No));
    }
}
