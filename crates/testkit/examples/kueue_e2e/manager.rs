//! Who acts on a cluster: Ferry's operator, or Kueue's manager with its webhooks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use testkit::{Binary, Kueue, Process};

use crate::{
    settings::{Settings, Who},
    site::{NAMESPACE, Site, output, until},
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
        Who::Kueue => kueue(site, suite).await,
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
async fn kueue(site: &Site, suite: &Suite) -> anyhow::Result<Acting> {
    let kubectl = Binary::Kubectl.ensure()?;
    let objects = rendered(&kubectl, site, suite)?;
    let of = |kinds: &[&str]| -> Vec<Value> {
        let is = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind));
        objects.iter().filter(is).cloned().collect()
    };
    let mut definitions = of(&["CustomResourceDefinition"]);
    // The suite uses one version only.
    for definition in &mut definitions {
        definition["spec"]["conversion"] = json!({"strategy": "None"});
    }
    apply(&kubectl, site, &definitions)?;
    let mut established = Command::new(&kubectl);
    established.arg("--kubeconfig").arg(site.kubeconfig());
    output(established.args(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]))?;
    let config = json!({
        "leaderElection": {"leaderElect": true, "resourceNamespace": NAMESPACE},
        "controller": {"groupKindConcurrency": {
            "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
            "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
        }},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
        "featureGates": {"MultiKueueManagerQuotaAutomation": true, "VisibilityOnDemand": false},
    });
    let plane = site.plane().context("Kueue runs on real control planes only")?;
    let manager = plane.kueue(&config).await?;
    let (port, certificate) = manager.webhooks();
    let mut webhooks = of(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
    for webhook in webhooks.iter_mut().filter_map(|object| object["webhooks"].as_array_mut()).flatten() {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
        let url = format!("https://127.0.0.1:{port}{path}");
        webhook["clientConfig"] =
            json!({"url": url, "caBundle": ByteString(certificate.as_bytes().to_vec())});
    }
    apply(&kubectl, site, &webhooks)?;
    Ok(Acting::Kueue { _manager: manager })
}

/// The objects of the suite's own set-up.
fn rendered(kubectl: &Path, site: &Site, suite: &Suite) -> anyhow::Result<Vec<Value>> {
    let folder = suite.configuration().parent().context("a folder")?.to_owned();
    let yaml = written(site, "rendered.yaml", &output(Command::new(kubectl).arg("kustomize").arg(folder))?)?;
    let mut read = Command::new(kubectl);
    read.arg("--kubeconfig").arg(site.kubeconfig());
    read.args(["create", "--dry-run=client", "--validate=false", "-o", "json", "-f"]).arg(yaml);
    let mut objects = Vec::new();
    for document in serde_json::Deserializer::from_slice(&output(&mut read)?).into_iter::<Value>() {
        let document = document?;
        match document["items"].as_array() {
            Some(items) => objects.extend(items.iter().cloned()),
            None => objects.push(document),
        }
    }
    Ok(objects)
}

fn apply(kubectl: &Path, site: &Site, objects: &[Value]) -> anyhow::Result<()> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    let file = written(site, "apply.json", list.to_string().as_bytes())?;
    let mut apply = Command::new(kubectl);
    apply.arg("--kubeconfig").arg(site.kubeconfig());
    apply.args(["apply", "--server-side", "--force-conflicts", "-f"]).arg(file);
    output(&mut apply).map(drop)
}

fn written(site: &Site, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    let path = site.directory().join(name);
    fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
