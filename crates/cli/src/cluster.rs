//! `ferry cluster`: one embedded cluster, until it is told to stop.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use rules::job::Settings;
use store::{Options, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::arguments::{self, ReservedManagedBy};

/// Serves until SIGTERM or SIGINT. Prints one line when the cluster can be used.
pub(crate) fn run(cluster: &arguments::Cluster) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("failed to start the runtime")?;
    runtime.block_on(serve(cluster))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(arguments: &arguments::Cluster) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (options, credentials) = match &arguments.data {
        Some(dir) => (Options::disk(dir.join("store")), Credentials::kept_in(dir)?),
        None => (Options::ephemeral(), Credentials::ephemeral()?),
    };
    let store = Store::open(options)?;
    let settings = Settings {
        refuse_reserved_managed_by: arguments.reserved_managed_by == ReservedManagedBy::Refuse,
        ..Settings::default()
    };
    let cluster = apiserver::Cluster::open(store.clone(), settings).await?;
    let credentials = Arc::new(credentials);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    let server = Server::start(cluster, credentials.clone(), address).await?;

    let url = format!("https://{}", server.address());
    let kubeconfig = arguments.kubeconfig.clone().unwrap_or_else(|| default_kubeconfig(arguments));
    let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
    credentials.write_kubeconfig(&kubeconfig, &arguments.name, &url)?;
    println!("cluster {} is ready at {url}: export KUBECONFIG={}", arguments.name, kubeconfig.display());

    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.stop().await;
    store.close().await;
    Ok(())
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
