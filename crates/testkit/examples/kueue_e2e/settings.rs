//! What the command is told.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// Who runs queues and dispatch on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Ferry,
    Kueue,
}

pub(crate) struct Settings {
    pub(crate) manager: Who,
    pub(crate) workers: Who,
    /// Embedded clusters instead of real ones.
    pub(crate) embedded: bool,
    /// Only specs whose names match.
    pub(crate) focus: Option<String>,
    pub(crate) ferry: PathBuf,
}

impl Settings {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> anyhow::Result<Settings> {
        let mut settings = Settings {
            manager: Who::Ferry,
            workers: Who::Ferry,
            embedded: false,
            focus: None,
            ferry: beside_this()?,
        };
        while let Some(name) = arguments.next() {
            if name == "--embedded" {
                settings.embedded = true;
                continue;
            }
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--manager" => settings.manager = who(&value)?,
                "--workers" => settings.workers = who(&value)?,
                "--focus" => settings.focus = Some(value),
                "--ferry" => settings.ferry = PathBuf::from(value),
                _ => bail!(
                    "{name} is not known: there are --manager, --workers, --embedded, --focus and --ferry"
                ),
            }
        }
        Ok(settings)
    }

    /// Whether anything runs that is on trial.
    pub(crate) fn has_ferry(&self) -> bool {
        self.manager == Who::Ferry || self.workers == Who::Ferry
    }
}

fn who(value: &str) -> anyhow::Result<Who> {
    match value {
        "ferry" => Ok(Who::Ferry),
        "kueue" => Ok(Who::Kueue),
        _ => bail!("{value:?} runs no queues: it is ferry or kueue"),
    }
}

/// What `cargo build` made of Ferry: two folders up from an example.
fn beside_this() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("failed to find this program")?;
    let folder = this.parent().and_then(|examples| examples.parent()).context("this program lies nowhere")?;
    Ok(folder.join("ferry"))
}
