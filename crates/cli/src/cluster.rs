//! `ferry cluster`: one embedded cluster, until it is told to stop.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use fleet::ClusterSettings;

use crate::arguments::{self, ReservedManagedBy};
use crate::process;

/// Serves until SIGTERM or SIGINT. Prints one line when the cluster can be used.
pub(crate) fn run(arguments: &arguments::Cluster) -> anyhow::Result<ExitCode> {
    process::run(async {
        let stopped = process::stopped()?;
        let cluster = fleet::Cluster::start(settings(arguments)).await?;
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

fn settings(arguments: &arguments::Cluster) -> ClusterSettings {
    ClusterSettings {
        name: arguments.name.clone(),
        port: arguments.port,
        data: arguments.data.clone(),
        jobs: rules::job::Settings {
            refuse_reserved_managed_by: arguments.reserved_managed_by == ReservedManagedBy::Refuse,
            ..rules::job::Settings::default()
        },
        controllers: arguments.controllers.clone(),
        nodes: nodes(arguments),
        operator: None,
    }
}

fn nodes(arguments: &arguments::Cluster) -> Vec<runner::Settings> {
    let named =
        (0..arguments.nodes).map(|i| runner::Settings::simulated(&format!("{}-node-{i}", arguments.name)));
    named.collect()
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
