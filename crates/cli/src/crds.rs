//! `ferry crds`: the definitions that queues and dispatch need.

use std::process::ExitCode;

use anyhow::Context as _;
use operator::definitions::{Conversion, all};

/// Prints all of them as YAML, as they may be applied to any cluster.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    for definition in all(&Conversion::Nobody) {
        let text = serde_saphyr::to_string(&definition).context("failed to print a definition")?;
        crate::output::line(format!("---\n{}", text.trim_end()))?;
    }
    Ok(ExitCode::SUCCESS)
}
