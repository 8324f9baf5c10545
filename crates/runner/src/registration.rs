//! The Node object and its lease: that there is a node, what it has, and that it lives.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo},
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference, Time},
    },
};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use reconcile::Clock;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, warn};

use crate::{Error, Runtime, Settings, writes::MANAGER};

/// The namespace of all nodes' leases.
const LEASES: &str = "kube-node-lease";
/// How long a lease counts. A node is believed to be gone some time after that.
const LEASE_SECONDS: i32 = 40;
/// How often it is renewed, and what is known of a node compared with what is true: a quarter of that, as kubelets do.
const RENEW: Duration = Duration::from_secs(10);
/// How often the status is written although nothing has changed.
const STATUS: Duration = Duration::from_secs(5 * 60);
/// Ours are gone before anybody could see them: we only register nodes that are ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A node of this process.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) settings: Settings,
    /// Conditions besides those that every node has: type, status, reason, message.
    pub(crate) conditions: Vec<Said>,
    /// The addresses of its pods, if they have some of their own.
    pub(crate) pod_range: Option<String>,
}

/// A condition of a node.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) kind: &'static str,
    pub(crate) holds: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Host {
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }
}

/// Makes sure that the cluster has the node, ready, with a lease.
pub(crate) async fn register(client: &Client, host: &Host, clock: &Clock) -> Result<(), Error> {
    let registered = async {
        let uid = ensure(client, host).await?;
        write_status(client, host, clock.now()).await?;
        debug!(node = host.name(), uid, "registered");
        Ok(())
    };
    registered.await.map_err(|source| Error::Register { node: host.name().to_owned(), source })?;
    renew(client, host, clock.now()).await;
    Ok(())
}

/// Keeps the leases and the status of nodes, for as long as it is polled.
pub(crate) async fn keep(client: Client, hosts: Vec<Arc<Host>>, clock: Clock) {
    let mut ticks = interval(RENEW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await; // the first one is immediate, and registration has seen to it
    let (mut renewals, every) = (0, STATUS.as_secs() / RENEW.as_secs());
    loop {
        ticks.tick().await;
        renewals += 1;
        let known = match known(&client, &hosts).await {
            Ok(known) => known,
            Err(error) => {
                warn!(%error, "failed to read what the cluster knows of nodes");
                BTreeMap::new()
            }
        };
        futures::future::join_all(hosts.iter().map(async |host| {
            renew(&client, host, clock.now()).await;
            // One that is not there was deleted, and is not made again while it runs.
            let Some(before) = known.get(host.name()) else { return };
            let status = status(host, before, clock.now());
            if (renewals % every == 0 || says_more(before, &status))
                && let Err(error) = patch_status(&client, host, &status).await
            {
                warn!(node = host.name(), %error, "failed to write the status of a node");
            }
        }))
        .await;
    }
}

/// What the cluster knows of these nodes, by their names. Others may have written it: that a node is lost, above all.
async fn known(client: &Client, hosts: &[Arc<Host>]) -> kube::Result<BTreeMap<String, NodeStatus>> {
    // What the server has at hand is new enough.
    let all = ListParams::default().match_any();
    let asked = match hosts {
        [only] => all.fields(&format!("metadata.name={}", only.name())),
        _ => all,
    };
    let nodes = Api::<Node>::all(client.clone()).list(&asked).await?;
    let status = |node: Node| Some((node.metadata.name?, node.status.unwrap_or_default()));
    Ok(nodes.into_iter().filter_map(status).collect())
}

/// Whether a status says something that is not known yet, heartbeats aside.
fn says_more(before: &NodeStatus, ours: &NodeStatus) -> bool {
    let mut after = before.clone();
    let conditions = after.conditions.get_or_insert_default();
    for new in ours.conditions.iter().flatten() {
        match conditions.iter_mut().find(|old| old.type_ == new.type_) {
            Some(old) => {
                let last_heartbeat_time = old.last_heartbeat_time.clone();
                *old = NodeCondition { last_heartbeat_time, ..new.clone() };
            }
            None => conditions.push(new.clone()),
        }
    }
    // Resources that others have added are theirs.
    after.capacity.get_or_insert_default().extend(ours.capacity.clone().unwrap_or_default());
    after.allocatable.get_or_insert_default().extend(ours.allocatable.clone().unwrap_or_default());
    after.addresses.clone_from(&ours.addresses);
    after.node_info.clone_from(&ours.node_info);
    !rules::semantic::equal("io.k8s.api.core.v1.NodeStatus", before, &after)
}

async fn ensure(client: &Client, host: &Host) -> kube::Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = node(host);
    let made = match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {
            // A node that was here before gets the labels that it has now, and keeps those that others have set.
            let patch =
                Patch::Merge(json!({ "metadata": { "labels": node.metadata.labels }, "spec": node.spec }));
            nodes.patch(host.name(), &PatchParams::default(), &patch).await?
        }
        made => made?,
    };
    let taints = made.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let (unready, others): (Vec<_>, Vec<_>) = taints.cloned().partition(|taint| taint.key == NOT_READY);
    if !unready.is_empty() {
        let taints = Patch::Merge(json!({ "spec": { "taints": others } }));
        nodes.patch(host.name(), &PatchParams::default(), &taints).await?;
    }
    Ok(made.metadata.uid.unwrap_or_default())
}

fn node(host: &Host) -> Node {
    let settings = &host.settings;
    let (os, arch) = (std::env::consts::OS, arch());
    let mut labels = settings.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", settings.name.as_str()),
        ("kubernetes.io/os", os),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", os),
        ("beta.kubernetes.io/arch", arch),
    ] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let metadata =
        ObjectMeta { name: Some(settings.name.clone()), labels: Some(labels), ..ObjectMeta::default() };
    let spec = NodeSpec {
        pod_cidr: host.pod_range.clone(),
        pod_cidrs: host.pod_range.clone().map(|range| vec![range]),
        ..NodeSpec::default()
    };
    Node { metadata, spec: Some(spec), status: None }
}

/// As Go, and therefore Kubernetes, names it.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

async fn write_status(client: &Client, host: &Host, now: Timestamp) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let before = nodes.get(host.name()).await?.status.unwrap_or_default();
    patch_status(client, host, &status(host, &before, now)).await
}

async fn patch_status(client: &Client, host: &Host, status: &NodeStatus) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patch = Patch::Strategic(json!({ "status": status }));
    nodes.patch_status(host.name(), &params, &patch).await.map(drop)
}

fn status(host: &Host, before: &NodeStatus, now: Timestamp) -> NodeStatus {
    let settings = &host.settings;
    let quantities: BTreeMap<String, Quantity> =
        settings.capacity.iter().map(|(name, value)| (name.clone(), Quantity(value.clone()))).collect();
    let said = |kind, holds, reason, message: &str| Said { kind, holds, reason, message: message.to_owned() };
    let usual = [
        said(
            "MemoryPressure",
            false,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        said("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        said("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        said("Ready", true, "KubeletReady", "kubelet is posting ready status"),
    ];
    let conditions = host.conditions.iter().cloned().chain(usual).map(|said| {
        let status = if said.holds { "True" } else { "False" };
        let old =
            before.conditions.iter().flatten().find(|old| old.type_ == said.kind && old.status == status);
        NodeCondition {
            type_: said.kind.to_owned(),
            status: status.to_owned(),
            reason: Some(said.reason.to_owned()),
            message: Some(said.message),
            last_heartbeat_time: Some(Time(now)),
            last_transition_time: old.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now))),
        }
    });
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    NodeStatus {
        capacity: Some(quantities.clone()),
        allocatable: Some(quantities),
        addresses: Some(vec![
            address("InternalIP", settings.address.to_string()),
            address("Hostname", settings.name.clone()),
        ]),
        conditions: Some(conditions.collect()),
        node_info: Some(system(settings)),
        ..NodeStatus::default()
    }
}

fn system(settings: &Settings) -> NodeSystemInfo {
    let scheme = match settings.runtime {
        Runtime::Simulated => "simulated",
        Runtime::Process(_) => "process",
    };
    let name = rustix::system::uname();
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    NodeSystemInfo {
        architecture: arch().to_owned(),
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        container_runtime_version: format!("{scheme}://{}", env!("CARGO_PKG_VERSION")),
        kernel_version: name.release().to_string_lossy().into_owned(),
        kube_proxy_version: String::new(),
        kubelet_version: "v1.35.8".to_owned(),
        machine_id: text("/etc/machine-id"),
        operating_system: std::env::consts::OS.to_owned(),
        os_image: os_image(&text("/etc/os-release")),
        ..NodeSystemInfo::default()
    }
}

/// What the system calls itself.
fn os_image(release: &str) -> String {
    let line = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or(std::env::consts::OS).trim_matches('"').to_owned()
}

/// Renews the lease of a node, or makes it. What fails is tried again at the next turn.
async fn renew(client: &Client, host: &Host, now: Timestamp) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let renewal = json!({ "spec": { "renewTime": MicroTime(now), "holderIdentity": host.name(), "leaseDurationSeconds": LEASE_SECONDS } });
    let answer = match leases.patch(host.name(), &PatchParams::default(), &Patch::Merge(renewal)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            make_lease(client, &leases, host, now).await
        }
        answer => answer.map(drop),
    };
    if let Err(error) = answer {
        warn!(node = host.name(), %error, "failed to renew the lease of a node");
    }
}

async fn make_lease(client: &Client, leases: &Api<Lease>, host: &Host, now: Timestamp) -> kube::Result<()> {
    let node = Api::<Node>::all(client.clone()).get(host.name()).await?;
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: host.name().to_owned(),
        uid: node.metadata.uid.unwrap_or_default(),
        ..OwnerReference::default()
    };
    let metadata = ObjectMeta {
        name: Some(host.name().to_owned()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        holder_identity: Some(host.name().to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    };
    leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_written_when_it_says_more_than_is_known() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let settings = Settings::simulated("n");
        let host = Host { settings, conditions: Vec::new(), pod_range: None };
        let mut known = status(&host, &NodeStatus::default(), at(1));
        assert!(says_more(&NodeStatus::default(), &known));
        // Others may write the same quantities in other words, and add their own resources and conditions.
        let capacity = known.capacity.as_mut().expect("a capacity");
        capacity.insert("example.com/gpu".to_owned(), Quantity("1".to_owned()));
        capacity.insert("pods".to_owned(), Quantity("100000".to_owned()));
        let theirs = NodeCondition { type_: "Theirs".to_owned(), ..NodeCondition::default() };
        known.conditions.get_or_insert_default().push(theirs);
        assert!(!says_more(&known, &status(&host, &known, at(2))), "a heartbeat is nothing new");
        let mut lost = known.clone();
        for condition in lost.conditions.iter_mut().flatten().filter(|it| it.type_ == "Ready") {
            "Unknown".clone_into(&mut condition.status);
        }
        let back = status(&host, &lost, at(3));
        assert!(says_more(&lost, &back), "somebody took the node for lost");
    }
}
