//! A cluster as the suite expects it: reached by a name, with a node, and with stand-ins for what would run Kueue there.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, PostParams},
    core::GroupVersionKind,
};
use serde_json::{Value, json};
use testkit::{ControlPlane, Process, Proxy};

use crate::{embedded::Embedded, kinds, settings::Settings, suite::Suite};

/// The clusters, as the suite calls them: the manager, and its workers.
pub(crate) const NAMES: [&str; 3] = ["kind-manager", "kind-worker1", "kind-worker2"];
/// Where what is on trial lives.
pub(crate) const NAMESPACE: &str = "kueue-system";

/// What the suite needs of kube-controller-manager: pods of all kinds, and an end for everything.
const CONTROLLERS: [&str; 11] = [
    "job-controller",
    "cronjob-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "ttl-after-finished-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "endpointslice-controller",
];
/// Labels of the nodes of the suite's own clusters.
const NODE_LABELS: &str = "instance-type=on-demand,cloud.provider.com/node-group=tas-node";
/// Room for everything. Upstream's nodes have no such devices, and there the pods that ask for them never run.
const CAPACITY: &str =
    "cpu=16,memory=64Gi,ephemeral-storage=200Gi,pods=200,example.com/gpu-h100=4,example.com/gpu-v100s=4";

const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(200);

/// The address of a cluster. The suite insists on port 6443 of each name.
pub(crate) fn address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 11 + u8::try_from(index).expect("there are few clusters"))
}

/// A cluster. Everything of it ends when this is dropped.
pub(crate) struct Site {
    pub(crate) name: &'static str,
    _node: Process,
    cluster: Cluster,
}

enum Cluster {
    Real { _way: Box<Proxy>, plane: Box<ControlPlane> },
    Embedded(Box<Embedded>),
}

impl Site {
    pub(crate) async fn start(index: usize, settings: &Settings, suite: &Suite) -> anyhow::Result<Site> {
        let (name, at) = (NAMES[index], SocketAddrV4::new(address(index), 6443));
        let cluster = if settings.embedded {
            Cluster::Embedded(Box::new(Embedded::start(&settings.ferry()?, name, at).await?))
        } else {
            real(name, at).await?
        };
        let mut node = Command::new(&suite.node);
        node.arg("--kubeconfig").arg(cluster.directory().join("kubeconfig"));
        node.args(["--pod-prefix", &format!("10.{}", 244 - index), "--capacity", CAPACITY]);
        node.args(["--node", &format!("{name}-worker:{NODE_LABELS}")]);
        let node = Process::spawn(&mut node, &cluster.directory().join("node.log"))?;
        let site = Site { name, _node: node, cluster };
        site.stand_ins(settings, suite).await?;
        Ok(site)
    }

    /// Where the logs are.
    pub(crate) fn directory(&self) -> &Path {
        self.cluster.directory()
    }

    /// The kubeconfig of somebody who may do everything.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory().join("kubeconfig")
    }

    /// The control plane, if it is a real one.
    pub(crate) fn plane(&self) -> Option<&ControlPlane> {
        match &self.cluster {
            Cluster::Real { plane, .. } => Some(plane),
            Cluster::Embedded(_) => None,
        }
    }

    fn client(&self) -> anyhow::Result<Client> {
        match &self.cluster {
            Cluster::Real { plane, .. } => Ok(plane.client()),
            Cluster::Embedded(cluster) => cluster.client(),
        }
    }

    /// What the suite looks at before its first spec: a Deployment that is available, a Service with somebody behind it,
    /// and a configuration.
    async fn stand_ins(&self, settings: &Settings, suite: &Suite) -> anyhow::Result<()> {
        // By it the suite decides what it lets the manager do on workers. No shard of upstream's has all kinds.
        let config = fs::read_to_string(suite.configuration())?;
        let missing = kinds::frameworks(settings.suite).into_iter().filter(|it| !config.contains(it));
        let missing: Vec<String> = missing.map(|framework| format!("  - \"{framework}\"\n")).collect();
        let all = format!("  frameworks:\n{}", missing.concat());
        let config = config.replace("  frameworks:\n", &all);
        self.stand_in(NAMESPACE, "kueue-controller-manager").await?;
        let labels = labels("kueue-controller-manager");
        let named = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": labels});
        for object in [
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": named("kueue-manager-config"),
                "data": {"controller_manager_config.yaml": config}}),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": named("kueue-webhook-service"),
                "spec": {"selector": labels, "ports": [{"port": 443, "targetPort": 9443}]}}),
        ] {
            create(self.client()?, &object).await?;
        }
        if self.plane().is_some() { Ok(()) } else { self.endpoints().await }
    }

    /// A Deployment that is available and does nothing, in a namespace of its own.
    pub(crate) async fn stand_in(&self, namespace: &str, name: &str) -> anyhow::Result<()> {
        let labels = labels(name);
        let container = json!({"name": "manager", "image": "stand-in", "args": ["pause"]});
        if namespace != "default" {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            create(self.client()?, &object).await?;
        }
        for object in [json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
        }}})] {
            create(self.client()?, &object).await?;
        }
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client()?, namespace, &resource);
        until(&format!("{name} of {} is available", self.name), async || {
            Ok(api.get(name).await?.data["status"]["availableReplicas"] == 1)
        })
        .await
    }

    /// Embedded clusters have no controller that tells who is behind a Service.
    async fn endpoints(&self) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client()?, NAMESPACE);
        let pods = pods.list(&ListParams::default().labels("control-plane=controller-manager")).await?;
        let addresses = pods.items.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone());
        let endpoints: Vec<Value> =
            addresses.map(|ip| json!({"addresses": [ip], "conditions": {"ready": true}})).collect();
        let metadata = json!({
            "name": "kueue-webhook-service-1", "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": "kueue-webhook-service"},
        });
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": 9443}],
        });
        create(self.client()?, &slice).await
    }
}

impl Cluster {
    fn directory(&self) -> &Path {
        match self {
            Cluster::Real { plane, .. } => plane.directory(),
            Cluster::Embedded(cluster) => cluster.directory(),
        }
    }
}

async fn real(name: &str, at: SocketAddrV4) -> anyhow::Result<Cluster> {
    let builder = ControlPlane::builder().controller_manager(CONTROLLERS);
    let builder = builder.names([format!("{name}-control-plane")]);
    // By its name, which is what an API server tries first, a node of ours cannot be reached.
    let builder = builder.apiserver_args(["--kubelet-preferred-address-types=InternalIP"]);
    let plane = Box::new(builder.start().await?);
    let way = plane.forward(at).await.with_context(|| format!("{at} is needed, and taken"))?;
    Ok(Cluster::Real { _way: Box::new(way), plane })
}

/// The suite finds what it looks at by the first of these.
fn labels(name: &str) -> Value {
    json!({"control-plane": "controller-manager", "app.kubernetes.io/name": name})
}

/// One kubeconfig for all clusters, with the contexts that the suite uses.
pub(crate) fn kubeconfig(sites: &[Site]) -> anyhow::Result<PathBuf> {
    let mut all = json!({"apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": []});
    for site in sites {
        let name = format!("kind-{}", site.name);
        let mut one: Value = serde_json::from_str(&fs::read_to_string(site.kubeconfig())?)?;
        one["contexts"][0]["context"] = json!({"cluster": name, "user": name});
        for list in ["clusters", "users", "contexts"] {
            one[list][0]["name"] = json!(name);
            all[list].as_array_mut().expect("a list").push(one[list][0].clone());
        }
    }
    let path = sites[0].directory().join("kubeconfig-of-all");
    fs::write(&path, all.to_string())?;
    Ok(path)
}

async fn create(client: Client, object: &Value) -> anyhow::Result<()> {
    let version = object["apiVersion"].as_str().context("an apiVersion")?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    api.create(&PostParams::default(), &parsed)
        .await
        .with_context(|| format!("failed to create {object}"))?;
    Ok(())
}

/// Waits until something is so.
pub(crate) async fn until(
    what: &str,
    mut is: impl AsyncFnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match is().await {
            Ok(true) => return Ok(()),
            Ok(false) if tokio::time::Instant::now() > deadline => bail!("not in {PATIENCE:?}: {what}"),
            Err(error) if tokio::time::Instant::now() > deadline => {
                return Err(error.context(what.to_owned()));
            }
            Ok(false) | Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

/// Runs a program to its end, and gives what it printed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("failed to run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}
