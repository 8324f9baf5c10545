//! The controllers of kinds of jobs that others define: their own, as they are built, beside the control plane.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::{Binary, Process, go::Tools};

use crate::{
    manifests::Manifests,
    settings::Which,
    site::{Site, until},
};

/// A kind, or several that one program looks after.
struct Kind {
    binary: Binary,
    /// The Go module of its sources, which this module of ours pins, and the manifests there that install it.
    pinned: (&'static str, &'static str),
    manifests: &'static str,
    told: Told,
    /// What Kueue calls it.
    frameworks: &'static [&'static str],
    /// The label of specs that are about it.
    label: &'static str,
    /// Where the suite looks for its Deployment, and what that is called.
    deployment: (&'static str, &'static str),
}

/// How a program is told where it listens.
enum Told {
    /// By a file of this API version. It has webhooks.
    ByFile(&'static str),
    /// By arguments. It has none.
    ByArguments,
}

const KINDS: [Kind; 3] = [
    Kind {
        binary: Binary::JobSet,
        pinned: ("kubernetes/kinds", "sigs.k8s.io/jobset"),
        manifests: "config/default",
        told: Told::ByFile("config.jobset.x-k8s.io/v1alpha1"),
        frameworks: &["jobset.x-k8s.io/jobset"],
        label: "feature:jobset",
        deployment: ("jobset-system", "jobset-controller-manager"),
    },
    Kind {
        binary: Binary::LeaderWorkerSet,
        pinned: ("kubernetes/kinds", "sigs.k8s.io/lws"),
        manifests: "config/default",
        told: Told::ByFile("config.lws.x-k8s.io/v1alpha1"),
        frameworks: &["leaderworkerset.x-k8s.io/leaderworkerset"],
        label: "feature:leaderworkerset",
        deployment: ("lws-system", "lws-controller-manager"),
    },
    Kind {
        binary: Binary::KubeRay,
        pinned: ("kubernetes/kuberay", "github.com/ray-project/kuberay/ray-operator"),
        manifests: "config/crd",
        told: Told::ByArguments,
        frameworks: &["ray.io/rayjob", "ray.io/raycluster", "ray.io/rayservice"],
        label: "feature:kuberay",
        deployment: ("default", "kuberay-operator"),
    },
];

/// What Kueue manages when it is made for a suite.
pub(crate) fn frameworks(suite: Which) -> Vec<&'static str> {
    let mut all = vec!["batch/job", "pod", "deployment", "statefulset"];
    if suite == Which::Extended {
        all.extend(KINDS.iter().flat_map(|kind| kind.frameworks));
    }
    all
}

/// Which specs of a suite there is somebody for; `None` if that is all of them.
pub(crate) fn filter(suite: Which) -> Option<String> {
    let labels: Vec<&str> = KINDS.iter().map(|kind| kind.label).collect();
    (suite == Which::Extended).then(|| format!("({}) && !requires:fullray", labels.join(" || ")))
}

/// Starts all of them on a cluster. They end when this is dropped.
pub(crate) async fn start(suite: Which, site: &Site) -> anyhow::Result<Vec<Process>> {
    let mut running = Vec::new();
    if suite == Which::Extended {
        for kind in &KINDS {
            running
                .push(begin(kind, site).await.with_context(|| format!("{} on {}", kind.binary, site.name))?);
        }
    }
    Ok(running)
}

async fn begin(kind: &Kind, site: &Site) -> anyhow::Result<Process> {
    let (pins, module) = kind.pinned;
    let tools = Tools::for_test(pins).context("there is no Go toolchain on PATH")?;
    let manifests = Manifests::rendered(site, &tools.module(module).join(kind.manifests))?;
    manifests.define(site, &manifests.of(&["CustomResourceDefinition"])).await?;
    let directory = site.directory().join(kind.binary.to_string());
    fs::create_dir_all(&directory)?;
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
    fs::write(directory.join("tls.crt"), certified.cert.pem())?;
    fs::write(directory.join("tls.key"), certified.signing_key.serialize_pem())?;
    let health = free()?;
    let mut listens = vec![health];
    let mut command = Command::new(kind.binary.ensure()?);
    command.env("KUBECONFIG", site.kubeconfig());
    match kind.told {
        Told::ByFile(version) => {
            let webhooks = free()?;
            listens.push(webhooks);
            command.arg(configuration(&directory, version, health, webhooks)?);
        }
        Told::ByArguments => {
            command.args(["--metrics-addr=0", "--enable-leader-election=false"]);
            command.arg(format!("--health-probe-bind-address=127.0.0.1:{health}"));
        }
    }
    let log = directory.join("log");
    let mut process = Process::spawn(&mut command, &log)?;
    until(&format!("{} of {} answers", kind.binary, site.name), async || {
        ensure!(process.exited()?.is_none(), "it ended, see {}", log.display());
        Ok(listens.iter().all(|port| TcpStream::connect(("127.0.0.1", *port)).is_ok()))
    })
    .await?;
    if let [_, webhooks] = listens[..] {
        manifests.ask(site, webhooks, &certified.cert.pem())?;
    }
    let (namespace, deployment) = kind.deployment;
    site.stand_in(namespace, deployment).await?;
    Ok(process)
}

/// Writes what a program is told. Returns the argument that names the file.
fn configuration(directory: &Path, version: &str, health: u16, webhooks: u16) -> anyhow::Result<String> {
    let configuration = json!({
        "apiVersion": version, "kind": "Configuration",
        "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": directory},
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {"enable": false},
    });
    let file = directory.join("configuration.json");
    fs::write(&file, configuration.to_string())?;
    Ok(format!("--config={}", file.display()))
}

/// A loopback port that nobody listens on.
fn free() -> anyhow::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
