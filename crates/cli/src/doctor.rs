//! `ferry doctor`: what is wrong, in words, and what to do about it.
//!
//! What is read and what follows from it are apart: `manager`, `jobs` and `worker` look, and each finding is made where
//! what it depends on is at hand.

mod clock;
mod jobs;
mod manager;
mod queues;
mod worker;

use std::process::ExitCode;

use jiff::Timestamp;

use crate::clusters::layout::Layout;
use crate::connect::{Manager, Options};
use crate::failure::Code;
use crate::output::{self, Palette, Tone};
use crate::process;

/// Say what is wrong with the management cluster, its workers and its queues, and what to do about it.
///
/// Looks at definitions, the Lease of the operator, webhooks, API services, checks, queues and the clock; at the credentials, permissions,
/// queues and clock of every worker; and at Jobs that nobody will run. Nothing is changed.
///
/// Exit status: 0 if nothing is wrong, 1 if something is.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry doctor\n  ferry doctor --context manager")]
pub(crate) struct Arguments {
    /// Also say what is as it should be.
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    options: Options,
}

/// Something that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) grade: Grade,
    pub(crate) what: String,
    /// What to do about it.
    pub(crate) remedy: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Grade {
    Fine,
    /// May be meant so.
    Odd,
    Wrong,
}

/// What was found, in the order in which it was looked at.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn fine(&mut self, what: impl Into<String>) {
        self.0.push(Finding { grade: Grade::Fine, what: what.into(), remedy: String::new() });
    }

    pub(crate) fn odd(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { grade: Grade::Odd, what: what.into(), remedy: remedy.into() });
    }

    pub(crate) fn wrong(&mut self, what: impl Into<String>, remedy: impl Into<String>) {
        self.0.push(Finding { grade: Grade::Wrong, what: what.into(), remedy: remedy.into() });
    }

    pub(crate) fn extend(&mut self, others: Findings) {
        self.0.extend(others.0);
    }

    fn count(&self, grade: Grade) -> usize {
        self.0.iter().filter(|finding| finding.grade == grade).count()
    }

    fn text(&self, paint: impl Fn(Tone, &str) -> String, is_verbose: bool) -> String {
        let mut lines = Vec::new();
        for finding in self.0.iter().filter(|finding| is_verbose || finding.grade > Grade::Fine) {
            let (mark, tone) = match finding.grade {
                Grade::Fine => ("fine ", Tone::Good),
                Grade::Odd => ("odd  ", Tone::Waiting),
                Grade::Wrong => ("wrong", Tone::Bad),
            };
            lines.push(format!("{} {}", paint(tone, mark), finding.what));
            if !finding.remedy.is_empty() {
                lines.push(format!("      hint: {}", finding.remedy));
            }
        }
        let (wrong, odd) = (self.count(Grade::Wrong), self.count(Grade::Odd));
        lines.push(format!("{} checks: {wrong} wrong, {odd} odd\n", self.0.len()));
        lines.join("\n")
    }
}

/// What time it is for a cluster, as far as it says; else for this machine.
pub(crate) async fn clock_of(manager: &Manager) -> Timestamp {
    let ahead = clock::answer(&manager.context_name(), &manager.client).await;
    let here = Timestamp::now();
    ahead.map_or(here, |ahead| ahead.at(here))
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let now = Timestamp::now();
        let mut found = Findings::default();
        if manager::definitions(&manager, &mut found).await? {
            let layout = Layout::read(&manager.client).await?;
            let name = manager.context_name();
            let clock = clock::ask(&name, &manager.client, &mut found).await;
            if let Some(there) = clock {
                clock::judge_here(&name, there, &mut found);
            }
            // What the management cluster wrote down is judged by its own clock, as far as that is known.
            let now = clock.map_or(now, |clock| clock.at(now));
            manager::leases(&manager, now, &mut found).await?;
            manager::webhooks(&manager, &layout, &mut found).await?;
            manager::visibility(&manager, &mut found).await;
            queues::of_manager(&layout, &mut found);
            let looks = layout.clusters.iter().map(|it| worker::examine(&manager, &layout, it, clock, now));
            for worker in futures::future::join_all(looks).await {
                found.extend(worker);
            }
            jobs::served(&manager, &layout, now, &mut found).await?;
        }
        let palette = Palette::stdout();
        output::print(&found.text(|tone, text| palette.paint(tone, text), arguments.verbose))?;
        Ok(if found.count(Grade::Wrong) > 0 { Code::No.into() } else { ExitCode::SUCCESS })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_fine_is_said_only_on_request() {
        let mut found = Findings::default();
        found.fine("the operator acts");
        found.wrong("worker east is lost", "is it up?");
        let plain = |_, text: &str| text.to_owned();
        assert_eq!(
            found.text(plain, false),
            "wrong worker east is lost\n      hint: is it up?\n2 checks: 1 wrong, 0 odd\n"
        );
        assert!(found.text(plain, true).starts_with("fine  the operator acts\n"));
    }
}
