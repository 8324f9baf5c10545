//! Who acts on a cluster: Ferry's operator, or Kueue's manager with its webhooks.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, ensure};
use serde_json::json;
use testkit::{Kueue, Process};

use crate::{
    kinds,
    manifests::Manifests,
    settings::{Settings, Who},
    site::{NAMESPACE, Site, until},
    suite::Suite,
};

/// Acts until it is dropped.
pub(crate) enum Acting {
    Ferry { _operator: Process },
    Kueue { _manager: Kueue },
}

pub(crate) async fn start(
    who: Who,
    site: &Site,
    settings: &Settings,
    suite: &Suite,
) -> anyhow::Result<Acting> {
    match who {
        Who::Ferry => ferry(site, &settings.ferry()?).await,
        Who::Kueue => kueue(site, settings, suite).await,
    }
}

async fn ferry(site: &Site, program: &Path) -> anyhow::Result<Acting> {
    ensure!(
        program.is_file(),
        "there is no {}: run `cargo build -p cli` first, or use --ferry",
        program.display()
    );
    let log = site.directory().join("ferry.log");
    let mut command = Command::new(program);
    command.arg("operator").arg("--kubeconfig").arg(site.kubeconfig());
    command.args(["--webhook-listen", "127.0.0.1:0"]).env("RUST_LOG", "info").env("NO_COLOR", "1");
    let mut operator = Process::spawn(&mut command, &log)?;
    until(&format!("the operator of {} is ready", site.name), async || {
        ensure!(operator.exited()?.is_none(), "it ended, see {}", log.display());
        Ok(fs::read_to_string(&log)?.contains("operator is ready"))
    })
    .await?;
    Ok(Acting::Ferry { _operator: operator })
}

/// As the suite's own set-up has it, but for what wants to be inside of the cluster.
async fn kueue(site: &Site, settings: &Settings, suite: &Suite) -> anyhow::Result<Acting> {
    let folder = suite.configuration().parent().context("a folder")?.to_owned();
    let objects = Manifests::rendered(site, &folder)?;
    let mut definitions = objects.of(&["CustomResourceDefinition"]);
    // The suite uses one version only.
    for definition in &mut definitions {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    objects.define(site, &definitions).await?;
    let config = json!({
        "leaderElection": {"leaderElect": true, "resourceNamespace": NAMESPACE},
        "controller": {"groupKindConcurrency": {
            "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
            "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
        }},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": kinds::frameworks(settings.suite)},
        "featureGates": {"MultiKueueManagerQuotaAutomation": true, "VisibilityOnDemand": false},
    });
    let plane = site.plane().context("Kueue runs on real control planes only")?;
    let manager = plane.kueue(&config).await?;
    let (port, certificate) = manager.webhooks();
    objects.ask(site, port, certificate)?;
    Ok(Acting::Kueue { _manager: manager })
}
