//! `ferry`, built beside this program: as an operator on a cluster, and as a whole fleet.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{machine, usage::Cpu};

/// A running `ferry`. It is killed when this is dropped.
pub(super) struct Ferry(Child);

impl Ferry {
    /// Starts an operator on the cluster of a kubeconfig, and returns when it acts. The dispatcher is the usual one unless
    /// another is named.
    pub(super) async fn operator(kubeconfig: &Path, dispatcher: Option<&str>) -> anyhow::Result<Ferry> {
        let mut command = Command::new(program()?);
        command.arg("operator").arg("--kubeconfig").arg(kubeconfig);
        if let Some(name) = dispatcher {
            let file = kubeconfig.with_file_name("configuration.yaml");
            let configuration = json!({
                "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
                "multiKueue": { "dispatcherName": name },
            });
            fs::write(&file, configuration.to_string())?;
            command.arg("--config").arg(file);
        }
        Ferry::start(command).await
    }

    async fn start(mut command: Command) -> anyhow::Result<Ferry> {
        let child = command.env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut ferry = Ferry(child.context("failed to start ferry")?);
        let stdout = ferry.0.stdout.take().context("its output is piped")?;
        let said = tokio::task::spawn_blocking(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).find(|line| line.contains("is ready"))
        });
        said.await?.context("ferry ended before it was ready")?;
        Ok(ferry)
    }

    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Ferry {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program() -> anyhow::Result<std::path::PathBuf> {
    let path = std::env::current_exe()?.with_file_name("ferry");
    let hint = "`cargo build --release -p cli` makes it";
    anyhow::ensure!(path.exists(), "{} is not there; {hint}", path.display());
    Ok(path)
}

/// The most that a process had in memory, in bytes.
pub(super) fn peak_memory(id: u32) -> anyhow::Result<u64> {
    let status =
        fs::read_to_string(format!("/proc/{id}/status")).with_context(|| format!("process {id} is gone"))?;
    let peak = machine::field(&status, "VmHWM").and_then(|text| machine::kibibytes(&text));
    Ok(peak.with_context(|| format!("no VmHWM of process {id}"))? * 1024)
}

/// A fleet in one process, with its data on disk.
pub(super) struct Fleet {
    ferry: Ferry,
    client: Client,
    _data: tempfile::TempDir,
}

impl Fleet {
    pub(super) async fn start() -> anyhow::Result<Fleet> {
        let data = tempfile::tempdir()?;
        let kubeconfig = data.path().join("kubeconfig");
        let mut command = Command::new(program()?);
        command.args(["up", "--runtime", "simulated", "--data"]).arg(data.path().join("data"));
        command.arg("--kubeconfig").arg(&kubeconfig);
        let ferry = Ferry::start(command).await?;
        let config = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Fleet { ferry, client: Client::try_from(config)?, _data: data })
    }

    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(super) fn cpu(&self) -> anyhow::Result<Cpu> {
        Cpu::of(&[self.ferry.id()])
    }

    pub(super) fn memory(&self) -> anyhow::Result<u64> {
        peak_memory(self.ferry.id())
    }
}

/// A Job for the queue of a fleet.
pub(super) fn job(name: &str) -> Value {
    let annotations =
        json!({"sim.ferry.dev/duration-ms": Duration::from_millis(100).as_millis().to_string()});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "fleet"}},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]},
            },
        },
    })
}
