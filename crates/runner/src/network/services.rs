//! Services at work: their addresses are listened on, and their names are known.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddrV4},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Pod, Service},
    discovery::v1::EndpointSlice,
};
use kube::{Api, Client};
use reconcile::{Cache, Tasks};
use rules::service;
use tokio::sync::Notify;
use tracing::warn;

use super::{
    dns::{self, BY_ADDRESS, BY_SERVICE},
    proxy::Proxy,
};

/// Ports that somebody else has are tried again so soon.
const RETRY: Duration = Duration::from_secs(1);

/// What services need to know.
pub(crate) struct Services {
    /// The addresses of nodes by their names.
    pub(crate) nodes: BTreeMap<String, Ipv4Addr>,
    /// Where the API server listens.
    pub(crate) server: Option<SocketAddrV4>,
    pub(crate) pods: Cache<Pod>,
    /// Told when pods change that ask for ports of their node.
    pub(crate) changed: Arc<Notify>,
}

impl Services {
    /// Serves for as long as `tasks` live.
    pub(crate) fn start(self, client: &Client, tasks: &mut Tasks) {
        let (one, other) = (Arc::clone(&self.changed), Arc::clone(&self.changed));
        let services = Cache::new(Api::<Service>::all(client.clone()))
            .index(BY_ADDRESS, |service| {
                service.spec.iter().filter_map(|spec| spec.cluster_ip.clone()).collect()
            })
            .on_change(move |_| one.notify_one())
            .start(tasks);
        let slices = Cache::new(Api::<EndpointSlice>::all(client.clone()))
            .index(BY_SERVICE, |slice| of_service(slice).into_iter().collect())
            .index(BY_ADDRESS, |slice| {
                slice.endpoints.iter().flat_map(|endpoint| endpoint.addresses.iter().cloned()).collect()
            })
            .on_change(move |_| other.notify_one())
            .start(tasks);
        let namespaces = Cache::new(Api::all(client.clone())).start(tasks);
        let objects = dns::Objects { namespaces, services, slices };
        tasks.spawn("cluster DNS", dns::serve(objects.clone()));
        tasks.spawn("services", self.run(objects));
    }

    async fn run(self, objects: dns::Objects) {
        futures::join!(objects.services.ready(), objects.slices.ready(), self.pods.ready());
        let mut proxy = Proxy::default();
        let mut told = Vec::new();
        loop {
            let refused = proxy.set(self.forwards(&objects)).await;
            for (listener, error) in &refused {
                if !told.contains(listener) {
                    warn!(?listener, %error, "failed to listen for a service, will be tried again");
                }
            }
            told = refused.into_iter().map(|(listener, _)| listener).collect();
            tokio::select! {
                () = self.changed.notified() => {}
                () = tokio::time::sleep(RETRY), if !told.is_empty() => {}
            }
        }
    }

    fn forwards(&self, objects: &dns::Objects) -> service::Forwards {
        let (services, slices) = (objects.services.all(), objects.slices.all());
        let slices: Vec<&EndpointSlice> = slices.iter().map(AsRef::as_ref).collect();
        let mut addresses: Vec<Ipv4Addr> = self.nodes.values().copied().collect();
        // For those who use the machine.
        addresses.push(Ipv4Addr::LOCALHOST);
        let services = services.iter().map(AsRef::as_ref);
        let mut forwards = service::forwards(services, &slices, &addresses, self.server);
        // Nobody but nodes answers there, so that they can be reached by an address that is not local to its clients.
        if let Some(server) = self.server {
            for node in self.nodes.values() {
                let at = SocketAddrV4::new(*node, server.port());
                let listener = service::Listener { at, protocol: service::Protocol::Tcp };
                forwards.insert(listener, service::Target { to: vec![server], affinity: None });
            }
        }
        for pod in self.pods.all() {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
            if let Some(node) = node.and_then(|node| self.nodes.get(node)) {
                forwards.extend(service::host_ports(&pod, *node));
            }
        }
        forwards
    }
}

/// Namespace and name of the service of a slice.
fn of_service(slice: &EndpointSlice) -> Option<String> {
    let name = slice.metadata.labels.as_ref()?.get(rules::endpoint_slice::SERVICE_NAME)?;
    Some(format!("{}/{name}", slice.metadata.namespace.as_deref()?))
}

/// Whether a pod asks for a port of its node.
pub(crate) fn has_host_port(pod: &Pod) -> bool {
    let containers =
        pod.spec.iter().flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
    containers
        .flat_map(|container| container.ports.iter().flatten())
        .any(|port| port.host_port.is_some_and(|port| port != 0))
}
