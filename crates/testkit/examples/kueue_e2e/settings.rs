//! What the command is told.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// Run Kueue's own end-to-end tests of MultiKueue with Ferry in Kueue's place.
#[derive(clap::Parser)]
pub(crate) struct Settings {
    /// Which of its suites.
    #[arg(long, value_name = "SUITE", default_value = "baseline")]
    pub(crate) suite: Which,

    /// Who runs the management cluster.
    #[arg(long, value_name = "WHO", default_value = "ferry")]
    pub(crate) manager: Who,

    /// Who runs the workers.
    #[arg(long, value_name = "WHO", default_value = "ferry")]
    pub(crate) workers: Who,

    /// Embedded clusters instead of real ones.
    #[arg(long)]
    pub(crate) embedded: bool,

    /// Only specs whose names this regular expression finds.
    #[arg(long, value_name = "REGEX")]
    pub(crate) focus: Option<String>,

    /// The program to be judged [default: the one that was built beside this one].
    #[arg(long, value_name = "PROGRAM")]
    ferry: Option<PathBuf>,
}

/// A suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Which {
    /// Jobs, pods, and what Kubernetes makes of pods.
    Baseline,
    /// Kinds that others define.
    Extended,
}

/// Who runs queues and dispatch on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Who {
    Ferry,
    Kueue,
}

impl Settings {
    /// Whether anything runs that is on trial.
    pub(crate) fn has_ferry(&self) -> bool {
        self.manager == Who::Ferry || self.workers == Who::Ferry
    }

    /// Where Ferry is: as `cargo build` made it two folders up from an example, unless it is said.
    pub(crate) fn ferry(&self) -> anyhow::Result<PathBuf> {
        if let Some(ferry) = &self.ferry {
            return Ok(ferry.clone());
        }
        let this = std::env::current_exe().context("failed to find this program")?;
        let folder = this.parent().and_then(Path::parent).context("this program lies nowhere")?;
        Ok(folder.join("ferry"))
    }
}
