//! `ferry cluster`: one embedded cluster, until it is told to stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use fleet::ClusterSettings;

use rules::node::image::Images;

use crate::arguments::{self, PodRuntime, ReservedManagedBy};
use crate::{process, up};

/// Serves until SIGTERM or SIGINT. Prints one line when the cluster can be used.
pub(crate) fn run(arguments: &arguments::Cluster) -> anyhow::Result<ExitCode> {
    process::run(async {
        let stopped = process::stopped()?;
        let scratch = up::scratch()?;
        let cluster = fleet::Cluster::start(settings(arguments, scratch.path())?).await?;
        let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| default_kubeconfig(arguments));
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        apiserver::credentials::write_kubeconfig(&kubeconfig, &cluster.kubeconfig(cluster.name()))
            .context("failed to tell how to reach the cluster")?;
        println!(
            "cluster {} is ready at {}: export KUBECONFIG={}",
            cluster.name(),
            cluster.url(),
            kubeconfig.display()
        );
        stopped.await;
        cluster.stop().await;
        Ok(ExitCode::SUCCESS)
    })
}

fn settings(arguments: &arguments::Cluster, scratch: &Path) -> anyhow::Result<ClusterSettings> {
    Ok(ClusterSettings {
        name: arguments.name.clone(),
        port: arguments.port,
        data: arguments.data.clone(),
        jobs: rules::job::Settings {
            refuse_reserved_managed_by: arguments.reserved_managed_by == ReservedManagedBy::Refuse,
            ..rules::job::Settings::default()
        },
        controllers: arguments.controllers.clone(),
        nodes: nodes(arguments, scratch)?,
        operator: None,
    })
}

fn nodes(arguments: &arguments::Cluster, scratch: &Path) -> anyhow::Result<Vec<runner::Settings>> {
    let images = Images::parse(&arguments.image.join("\n")).map_err(anyhow::Error::msg);
    let images = images.context("failed to read --image")?;
    let node = |i| {
        let name = format!("{}-node-{i}", arguments.name);
        if arguments.runtime == PodRuntime::Simulated {
            return runner::Settings::simulated(&name);
        }
        let directory = arguments.data.as_deref().unwrap_or(scratch).join("nodes").join(&name);
        let mut node = runner::Settings::process(&name, directory);
        if let runner::Runtime::Process(process) = &mut node.runtime {
            process.images = images.clone();
        }
        node
    };
    Ok((0..arguments.nodes).map(node).collect())
}

/// Beside the data, or where temporary files go.
fn default_kubeconfig(arguments: &arguments::Cluster) -> PathBuf {
    match &arguments.data {
        Some(dir) => dir.join("kubeconfig"),
        None => std::env::temp_dir().join(Path::new(&format!(
            "ferry-{}-{}.kubeconfig",
            arguments.name,
            std::process::id()
        ))),
    }
}
