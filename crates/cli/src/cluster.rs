//! `ferry cluster`: one embedded cluster, until it is told to stop.

mod scratch;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use fleet::ClusterSettings;
use rules::node::image::Images;

use crate::arguments::{self, PodNetwork, PodRuntime, ReservedManagedBy};
use crate::failure::Hint as _;
use crate::output;
use crate::process;
use crate::up;

use self::scratch::Scratch;

/// Serves until SIGTERM or SIGINT. Prints one line when the cluster can be used.
pub(crate) fn run(arguments: &arguments::Cluster) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        let place = Place::of(arguments)?;
        let cluster = up::advised(fleet::Cluster::start(settings(arguments, &place)?).await, "--port")?;
        let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| place.kubeconfig());
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        let told = apiserver::credentials::write_kubeconfig(&kubeconfig, &cluster.kubeconfig(cluster.name()));
        if told.is_ok() {
            output::announce(format!(
                "cluster {} is ready at {}: export KUBECONFIG={}",
                cluster.name(),
                cluster.url(),
                kubeconfig.display()
            ));
            stopped.await;
        }
        cluster.stop().await;
        place.leave()?;
        told.context("failed to tell how to reach the cluster")
            .hint("--kubeconfig FILE says where to write it")?;
        Ok(ExitCode::SUCCESS)
    })
}

fn settings(arguments: &arguments::Cluster, place: &Place) -> anyhow::Result<ClusterSettings> {
    Ok(ClusterSettings {
        name: arguments.name.clone(),
        port: arguments.port,
        data: arguments.data.clone(),
        jobs: rules::job::Settings {
            refuse_reserved_managed_by: arguments.reserved_managed_by == ReservedManagedBy::Refuse,
            allow_privileged: true,
            ..rules::job::Settings::default()
        },
        controllers: arguments.controllers.clone(),
        nodes: nodes(arguments, place)?,
        operator: None,
    })
}

fn nodes(arguments: &arguments::Cluster, place: &Place) -> anyhow::Result<Vec<runner::Settings>> {
    let images = images(arguments)?;
    let named = (0..arguments.nodes).map(|i| format!("{}-node-{i}", arguments.name));
    let node = |name: String| match arguments.runtime {
        PodRuntime::Simulated => runner::Settings::simulated(&name),
        PodRuntime::Process => {
            let mut node = runner::Settings::process(&name, place.node(&name));
            if let runner::Runtime::Process(process) = &mut node.runtime {
                process.images = images.clone();
                process.network = match arguments.network {
                    PodNetwork::Host => runner::PodNetwork::Host,
                    PodNetwork::Pods => runner::PodNetwork::Pods,
                };
            }
            node
        }
    };
    Ok(named.map(node).collect())
}

/// Those on the command line come before those in the file.
fn images(arguments: &arguments::Cluster) -> anyhow::Result<Images> {
    let mut images = Images::new(arguments.images.iter().cloned());
    if let Some(path) = &arguments.image_file {
        let failed = || format!("failed to read the images in {}", path.display());
        let text = std::fs::read_to_string(path).with_context(failed)?;
        images.extend(Images::parse(&text).map_err(anyhow::Error::msg).with_context(failed)?);
    }
    Ok(images)
}

/// Where the files of a cluster are: beside its data, or where temporary files go.
enum Place {
    Data(PathBuf),
    Scratch(Scratch),
}

impl Place {
    fn of(arguments: &arguments::Cluster) -> anyhow::Result<Place> {
        Ok(match &arguments.data {
            Some(dir) => Place::Data(std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            None => Place::Scratch(Scratch::make()?),
        })
    }

    /// Where a node keeps the files of its pods.
    fn node(&self, name: &str) -> PathBuf {
        match self {
            Place::Data(dir) => dir.join("nodes").join(name),
            Place::Scratch(scratch) => scratch.node(name),
        }
    }

    fn kubeconfig(&self) -> PathBuf {
        match self {
            Place::Data(dir) => dir.join("kubeconfig"),
            Place::Scratch(scratch) => scratch.kubeconfig(),
        }
    }

    /// Removes what nobody will need any more, once the cluster has stopped.
    fn leave(self) -> anyhow::Result<()> {
        match self {
            Place::Data(_) => Ok(()),
            Place::Scratch(scratch) => scratch.remove(),
        }
    }
}
