//! An embedded cluster: `ferry cluster`, with a certificate for the name that the suite uses.

use std::{fs, net::SocketAddrV4, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use testkit::Process;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::AbortHandle,
};

use crate::site::until;

/// A running cluster. It ends when this is dropped.
pub(crate) struct Embedded {
    _server: Process,
    way: AbortHandle,
    config: Config,
    directory: TempDir,
}

impl Embedded {
    /// Starts one that is reached at an address by a name.
    pub(crate) async fn start(ferry: &Path, name: &str, at: SocketAddrV4) -> anyhow::Result<Embedded> {
        ensure!(
            ferry.is_file(),
            "there is no {}: run `cargo build -p cli` first, or use --ferry",
            ferry.display()
        );
        let directory = tempfile::Builder::new().prefix("ferry-kueue-e2e-cluster-").tempdir()?;
        let (log, kubeconfig) = (directory.path().join("cluster.log"), directory.path().join("kubeconfig"));
        let mut command = Command::new(ferry);
        command.args(["cluster", "--nodes", "0", "--name", name, "--data"]).arg(directory.path());
        command.args(["--tls-san", &format!("{name}-control-plane")]);
        // The node brings a scheduler, and does not say again and again that it is there.
        command
            .args(["--controllers", "*,-scheduler,-node-lifecycle-controller", "--kubeconfig"])
            .arg(&kubeconfig);
        let mut server = Process::spawn(command.env("NO_COLOR", "1"), &log)?;
        until(&format!("{name} is ready"), async || {
            ensure!(server.exited()?.is_none(), "it ended: {}", fs::read_to_string(&log)?);
            Ok(fs::read_to_string(&log)?.contains("is ready at"))
        })
        .await?;
        let read = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let port = config.cluster_url.port_u16().context("a port")?;
        let listener = TcpListener::bind(at).await.with_context(|| format!("{at} is needed, and taken"))?;
        let way = tokio::spawn(forward(listener, port)).abort_handle();
        Ok(Embedded { _server: server, way, config, directory })
    }

    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::try_from(self.config.clone())?)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.way.abort();
    }
}

async fn forward(listener: TcpListener, port: u16) {
    while let Ok((mut client, _)) = listener.accept().await {
        tokio::spawn(async move {
            let mut server = TcpStream::connect(("127.0.0.1", port)).await?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}
