//! Kueue's own end-to-end tests of MultiKueue, with Ferry in Kueue's place.
//!
//! ```text
//! cargo build -p cli
//! cargo run -p testkit --example kueue_e2e -- [--suite baseline|extended] [--manager ferry|kueue] [--workers ferry|kueue] [--embedded] [--focus REGEX]
//! ```
//!
//! Three real control planes, or embedded clusters, with simulated nodes, an operator on each, and the suite's own test binary, unchanged. Prints
//! each spec with its outcome, and how many passed of those that ran. `cannot*.txt` name those that cannot pass yet, and
//! why: it fails if another one fails, and also if one of them passes, so that the list only shrinks. With `--manager
//! kueue --workers kueue` the surroundings themselves are on trial: everything passes then.
//!
//! The suite `extended` is about kinds of jobs that others define, whose own controllers run beside the operators.
//!
//! The suite reaches workers by names of its own, so this runs in a mount namespace with a hosts file of its own.

mod embedded;
mod kinds;
mod manager;
mod manifests;
mod names;
mod settings;
mod site;
mod suite;
mod verdict;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use futures::future::try_join_all;

use settings::Settings;
use site::{NAMES, Site};

fn main() -> anyhow::Result<ExitCode> {
    let settings = Settings::parse();
    names::enter(&NAMES.map(|name| format!("{name}-control-plane")))?;
    let runtime = tokio::runtime::Runtime::new().context("failed to start a runtime")?;
    runtime.block_on(run(&settings))
}

async fn run(settings: &Settings) -> anyhow::Result<ExitCode> {
    let suite = suite::Suite::build(settings.suite)?;
    let sites = try_join_all((0..NAMES.len()).map(|index| Site::start(index, settings, &suite))).await?;
    let mut acting = Vec::new();
    let kinds = try_join_all(sites.iter().map(|site| kinds::start(settings.suite, site))).await?;
    for (index, site) in sites.iter().enumerate() {
        let who = if index == 0 { settings.manager } else { settings.workers };
        acting.push(manager::start(who, site, settings, &suite).await?);
    }
    let outcome = suite.run(&site::kubeconfig(&sites)?, settings.focus.as_deref()).await?;
    drop((acting, kinds));
    Ok(verdict::judge(&outcome, settings))
}
