//! What others install on a cluster, as their own manifests have it, but for what wants to be inside of the cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context as _;
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use testkit::Binary;

use crate::site::{Site, output, until};

/// Objects to be installed.
pub(crate) struct Manifests {
    kubectl: PathBuf,
    objects: Vec<Value>,
}

impl Manifests {
    /// What a folder for kustomize comes to.
    pub(crate) fn rendered(site: &Site, folder: &Path) -> anyhow::Result<Manifests> {
        let kubectl = Binary::Kubectl.ensure()?;
        let yaml = output(Command::new(&kubectl).arg("kustomize").arg(folder))?;
        let yaml = written(site, "rendered.yaml", &yaml)?;
        let mut read = Command::new(&kubectl);
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
        Ok(Manifests { kubectl, objects })
    }

    /// Those of these kinds.
    pub(crate) fn of(&self, kinds: &[&str]) -> Vec<Value> {
        let is = |object: &&Value| object["kind"].as_str().is_some_and(|kind| kinds.contains(&kind));
        self.objects.iter().filter(is).cloned().collect()
    }

    /// Installs definitions, and waits until they are served.
    pub(crate) async fn define(&self, site: &Site, definitions: &[Value]) -> anyhow::Result<()> {
        self.apply(site, definitions)?;
        let names = definitions.iter().filter_map(|it| it["metadata"]["name"].as_str());
        let names: Vec<String> = names.map(|name| format!("crd/{name}")).collect();
        // Of one that has no status yet, kubectl does not wait for any.
        until("what was defined is served", async || {
            let mut established = Command::new(&self.kubectl);
            established.arg("--kubeconfig").arg(site.kubeconfig()).arg("wait").args(&names);
            output(established.args(["--for=condition=Established", "--timeout=10s"]))?;
            Ok(true)
        })
        .await
    }

    /// Has the cluster ask the webhooks on a loopback port, which show this certificate.
    pub(crate) fn ask(&self, site: &Site, port: u16, certificate: &str) -> anyhow::Result<()> {
        let mut webhooks = self.of(&["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]);
        for webhook in webhooks.iter_mut().filter_map(|object| object["webhooks"].as_array_mut()).flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
            let url = format!("https://127.0.0.1:{port}{path}");
            webhook["clientConfig"] =
                json!({"url": url, "caBundle": ByteString(certificate.as_bytes().to_vec())});
        }
        self.apply(site, &webhooks)
    }

    fn apply(&self, site: &Site, objects: &[Value]) -> anyhow::Result<()> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = written(site, "apply.json", list.to_string().as_bytes())?;
        let mut apply = Command::new(&self.kubectl);
        apply.arg("--kubeconfig").arg(site.kubeconfig());
        apply.args(["apply", "--server-side", "--force-conflicts", "-f"]).arg(file);
        output(&mut apply).map(drop)
    }
}

fn written(site: &Site, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    let path = site.directory().join(name);
    fs::write(&path, content).with_context(|| format!("failed to write {}", path.display()))?;
    Ok(path)
}
