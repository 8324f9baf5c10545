//! `ferry up`: a fleet to keep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use fleet::{Fleet, Quota, Runtime, Settings};

use crate::arguments::{self, PodRuntime};
use crate::process;

/// Runs a fleet until SIGTERM or SIGINT. Prints how to reach it when it can be used.
pub(crate) fn run(arguments: &arguments::Up) -> anyhow::Result<ExitCode> {
    process::run(async {
        let stopped = process::stopped()?;
        let scratch = scratch()?;
        let data = match (&arguments.data, arguments.ephemeral) {
            (Some(data), _) => Some(data.clone()),
            (None, true) => None,
            (None, false) => Some(default_data()?),
        };
        let settings = settings(arguments, data.clone(), scratch.path());
        let fleet = Fleet::start(&settings).await?;
        let kubeconfig = arguments.kubeconfig.clone();
        let kubeconfig =
            kubeconfig.unwrap_or_else(|| kubeconfig_in(data.as_deref().unwrap_or(scratch.path())));
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        write_kubeconfig(&fleet, &kubeconfig)?;
        for cluster in std::iter::once(fleet.manager()).chain(fleet.workers()) {
            println!("{:<12} {}  context {}", cluster.name(), cluster.url(), fleet::context(cluster.name()));
        }
        println!("fleet is ready: export KUBECONFIG={}", kubeconfig.display());
        stopped.await;
        fleet.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Writes how the clusters of a fleet are reached, for its owner only.
pub(crate) fn write_kubeconfig(fleet: &Fleet, path: &Path) -> anyhow::Result<()> {
    apiserver::credentials::write_kubeconfig(path, &fleet.kubeconfig())
        .context("failed to tell how to reach the fleet")
}

/// A directory that goes with this process.
pub(crate) fn scratch() -> anyhow::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("ferry-").tempdir().context("failed to make a temporary directory")
}

fn settings(arguments: &arguments::Up, data: Option<PathBuf>, scratch: &Path) -> Settings {
    let workers = if arguments.worker.is_empty() {
        (1..=arguments.workers).map(|i| format!("worker{i}")).collect()
    } else {
        arguments.worker.clone()
    };
    let runtime = match arguments.runtime {
        PodRuntime::Process => Runtime::Processes(nodes_in(data.as_deref().unwrap_or(scratch))),
        PodRuntime::Simulated => Runtime::Simulated,
    };
    Settings { workers, data, port_base: arguments.port_base, runtime, quota: quota() }
}

/// What every worker offers. Pods share one machine here, so that this is about order and not about its processors.
pub(crate) fn quota() -> Quota {
    Quota { cpu: "8".to_owned(), memory: "16Gi".to_owned() }
}

/// The kubeconfig of a fleet, beside its data.
pub(crate) fn kubeconfig_in(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// The files of a fleet's nodes, beside its data.
pub(crate) fn nodes_in(data: &Path) -> PathBuf {
    data.join("nodes")
}

/// Where a user's programs keep their data.
pub(crate) fn default_data() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_DATA_HOME").or_else(|| set("HOME").map(|home| home.join(".local/share")));
    let home = home.context("found no place for data: set --data, HOME or XDG_DATA_HOME")?;
    Ok(home.join("ferry"))
}
