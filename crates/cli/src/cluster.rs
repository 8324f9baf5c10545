//! `ferry cluster`: one embedded cluster, until it is told to stop.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use apiserver::auth::front_proxy::FrontProxies;
use fleet::ClusterSettings;
use rules::node::image::Images;

use crate::arguments::{self, PodNetwork, PodRuntime, ReservedManagedBy};
use crate::failure::Hint as _;
use crate::kubeconfig;
use crate::output;
use crate::place::Place;
use crate::process;
use crate::up;

/// Serves until SIGTERM or SIGINT. Prints one line when the cluster can be used.
pub(crate) fn run(arguments: &arguments::Cluster) -> anyhow::Result<ExitCode> {
    process::serve(async {
        let stopped = process::stopped()?;
        let place = Place::of(arguments.data.as_deref(), [])?;
        let path = arguments.kubeconfig.clone().unwrap_or_else(|| place.kubeconfig());
        let path = std::path::absolute(&path).unwrap_or(path);
        if arguments.kubeconfig.is_some() {
            kubeconfig::expect_writable(&path, std::slice::from_ref(&arguments.name), arguments.merge)?;
        }
        let settings = settings(arguments, &place, &path)?;
        let cluster = up::advised(fleet::Cluster::start(settings).await, "--port")?;
        let told = kubeconfig::write(&path, &cluster.kubeconfig(cluster.name()), arguments.merge);
        if told.is_ok() {
            output::announce(format!(
                "cluster {} is ready at {}: export KUBECONFIG={}",
                cluster.name(),
                cluster.url(),
                path.display()
            ));
            stopped.await;
        }
        cluster.stop().await;
        place.leave()?;
        told.hint("--kubeconfig FILE says where to write it")?;
        Ok(ExitCode::SUCCESS)
    })
}

fn settings(
    arguments: &arguments::Cluster,
    place: &Place,
    kubeconfig: &Path,
) -> anyhow::Result<ClusterSettings> {
    Ok(ClusterSettings {
        name: arguments.name.clone(),
        port: arguments.port,
        known_as: arguments.tls_san.clone(),
        data: arguments.data.clone(),
        jobs: rules::job::Settings {
            refuse_reserved_managed_by: arguments.reserved_managed_by == ReservedManagedBy::Refuse,
            allow_privileged: true,
            ..rules::job::Settings::default()
        },
        controllers: arguments.controllers.clone(),
        nodes: nodes(arguments, place, kubeconfig)?,
        operator: None,
        front_proxies: front_proxies(arguments)?,
    })
}

/// Who may ask for others, if anybody may.
fn front_proxies(arguments: &arguments::Cluster) -> anyhow::Result<Option<FrontProxies>> {
    let Some(path) = &arguments.requestheader_client_ca_file else { return Ok(None) };
    let failed = || format!("failed to read the authority of front proxies in {}", path.display());
    let hint = "--requestheader-client-ca-file FILE names the certificates in PEM";
    let pem = std::fs::read_to_string(path).with_context(failed).hint(hint)?;
    let names = arguments.requestheader_allowed_names.clone();
    Ok(Some(FrontProxies::signed_by(&pem, names).with_context(failed).hint(hint)?))
}

fn nodes(
    arguments: &arguments::Cluster,
    place: &Place,
    kubeconfig: &Path,
) -> anyhow::Result<Vec<runner::Settings>> {
    let images = images(arguments)?;
    let named = (0..arguments.nodes).map(|i| format!("{}-node-{i}", arguments.name));
    let node = |name: String| match arguments.runtime {
        PodRuntime::Simulated => runner::Settings::simulated(&name),
        PodRuntime::Process => {
            let mut node = runner::Settings::process(&name, place.nodes().join(&name));
            if let runner::Runtime::Process(process) = &mut node.runtime {
                process.images = images.clone();
                process.hidden = vec![place.directory().to_owned(), kubeconfig.to_owned()];
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
        let text = std::fs::read_to_string(path).with_context(failed).hint("--image-file FILE names it")?;
        let parsed = Images::parse(&text).map_err(anyhow::Error::msg).with_context(failed);
        images.extend(parsed.hint("every line of it is NAME=PATH[:ENTRYPOINT], as --image takes it")?);
    }
    Ok(images)
}
