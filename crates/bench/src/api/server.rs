//! Our side: the program that people run, in a process of its own.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;

/// A cluster of `ferry cluster` that keeps what it acknowledges, with its API server and nothing else. It ends when this
/// is dropped.
pub(crate) struct Ours {
    directory: TempDir,
    process: Child,
    client: Client,
}

impl Ours {
    /// Starts it, and says how long it took until it answered.
    pub(crate) async fn start() -> anyhow::Result<(Ours, Duration)> {
        let directory = tempfile::tempdir().context("failed to make a directory")?;
        let started = Instant::now();
        let (process, client) = launch(&directory).await?;
        Ok((Ours { directory, process, client }, started.elapsed()))
    }

    /// Kills it where it is and starts it again on what it left behind; how long it took until it answered.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Duration> {
        self.process.kill().and_then(|()| self.process.wait()).context("failed to kill ferry")?;
        let started = Instant::now();
        (self.process, self.client) = launch(&self.directory).await?;
        Ok(started.elapsed())
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn process_ids(&self) -> Vec<u32> {
        vec![self.process.id()]
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // An error means that it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns when the API server has answered a request.
async fn launch(directory: &TempDir) -> anyhow::Result<(Child, Client)> {
    let kubeconfig = directory.path().join("kubeconfig");
    let mut command = Command::new(ferry()?);
    command.args(["cluster", "--nodes=0", "--controllers=none", "--data"]).arg(directory.path());
    command.arg("--kubeconfig").arg(&kubeconfig).stdout(Stdio::piped());
    let mut process = command.spawn().context("failed to start ferry")?;
    let stdout = process.stdout.take().context("ferry has no standard output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("failed to hear from ferry")?;
    anyhow::ensure!(line.contains("is ready"), "ferry did not start: {line:?}");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    let client = Client::try_from(config)?;
    let ready = http::Request::get("/readyz").body(Vec::new())?;
    client.request_text(ready).await.context("ferry is not ready")?;
    Ok((process, client))
}

/// The program beside this one, as Cargo leaves them.
fn ferry() -> anyhow::Result<PathBuf> {
    let path = env::current_exe()?.with_file_name("ferry");
    anyhow::ensure!(
        path.is_file(),
        "there is no {}: run `cargo build --release` first, which builds ferry",
        path.display()
    );
    Ok(path)
}
