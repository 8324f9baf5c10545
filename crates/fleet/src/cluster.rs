//! One embedded cluster.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use apiserver::auth::front_proxy::FrontProxies;
use apiserver::credentials::Credentials;
use apiserver::node::Introduced;
use apiserver::serve::Server;
use apiserver::{Counts, Setup, WithoutManagers};
use kube::Client;
use operator::definitions::{self, Conversion};
use reconcile::{Clock, Tasks};
use serde_json::Value;
use store::{Options, Store};

use crate::Error;
use crate::neighbour::Visibility;
use crate::nodes;
use crate::plugin::{OlderVersions, Webhooks};

/// What a cluster is to be.
#[derive(Clone)]
pub struct Settings {
    /// Its name in kubeconfigs and logs.
    pub name: String,
    /// The port on 127.0.0.1; 0 is any free one.
    pub port: u16,
    /// Names and addresses by which clients know it, besides those that every cluster has.
    pub known_as: Vec<String>,
    /// Where objects, certificates and the token are kept; without it nothing is.
    pub data: Option<PathBuf>,
    /// What the Job API is to be like.
    pub jobs: rules::job::Settings,
    /// Which controllers run.
    pub controllers: controllers::Selection,
    /// Its nodes.
    pub nodes: Vec<runner::Settings>,
    /// How its queues are run, if they are.
    pub operator: Option<operator::Settings>,
    /// Who may ask its API server for others.
    pub front_proxies: Option<FrontProxies>,
}

impl Settings {
    /// A cluster that keeps nothing, on any free port, with all controllers and no nodes.
    pub fn ephemeral(name: impl Into<String>) -> Self {
        Settings {
            name: name.into(),
            port: 0,
            known_as: Vec::new(),
            data: None,
            jobs: rules::job::Settings::default(),
            controllers: controllers::Selection::all(),
            nodes: Vec::new(),
            operator: None,
            front_proxies: None,
        }
    }
}

/// A cluster that runs in this process until it is stopped or dropped.
pub struct Cluster {
    name: String,
    api: apiserver::Cluster,
    credentials: Arc<Credentials>,
    server: Server,
    store: Store,
    tasks: Tasks,
    /// What its controllers count is told for as long as this is held.
    _counts: Arc<Counts>,
    /// Reachable for as long as they are held.
    _nodes: Vec<Introduced>,
}

impl Cluster {
    /// Starts a cluster; it can be used as soon as this returns.
    pub async fn start(settings: Settings) -> Result<Self, Error> {
        let name = settings.name;
        let (options, credentials) = match &settings.data {
            Some(dir) => (Options::disk(dir.join("store")), Credentials::kept_in(dir)),
            None => (Options::ephemeral(), Credentials::ephemeral()),
        };
        // The store is opened first: it is what tells that another process has the directory.
        let store = Store::open(options).map_err(|source| Error::Store { cluster: name.clone(), source })?;
        let credentials =
            credentials.map_err(|source| Error::Credentials { cluster: name.clone(), source })?;
        let signer =
            credentials.signer().map_err(|source| Error::Signer { cluster: name.clone(), source })?;
        let credentials = Arc::new(credentials);
        let webhooks = Arc::new(Webhooks::default());
        let visibility = Arc::new(Visibility::default());
        let service_accounts = settings.controllers.includes("serviceaccount-controller");
        let setup = Setup {
            settings: settings.jobs,
            plugins: vec![webhooks.clone()],
            converters: vec![Arc::new(OlderVersions)],
            signer: Some(signer),
            service_accounts,
            front_proxies: settings.front_proxies,
            neighbours: vec![visibility.clone()],
        };
        let api = apiserver::Cluster::open_with(store.clone(), setup).await;
        let api = api.map_err(|source| Error::Prepare { cluster: name.clone(), source: Box::new(source) })?;

        let mut tasks = Tasks::new();
        let (client, clock) = (Client::new(WithoutManagers(api.clone()), "default"), Clock::system());
        let of_controllers = controllers::Settings {
            job: settings.jobs,
            root_ca: Some(credentials.authority_pem().to_owned()),
            ..controllers::Settings::default()
        };
        let running = controllers::start(
            client.clone(),
            &settings.controllers,
            of_controllers,
            clock.clone(),
            &mut tasks,
        );
        let counts: Arc<Counts> = Arc::new(move || running.metrics.to_string());
        api.publish(&counts);
        // Pods are told where the server will be before it serves.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, settings.port));
        let listener = Server::listen(address).await;
        let listener = listener.map_err(|source| Error::Serve { cluster: name.clone(), address, source })?;
        let of_nodes = with_server(settings.nodes, listener.address().port());
        let nodes = runner::start(client.clone(), of_nodes, clock.clone(), &mut tasks).await;
        let nodes = nodes.map_err(|source| Error::Nodes { cluster: name.clone(), source })?;
        let outward = nodes.iter().find_map(runner::Node::address).map(IpAddr::V4);
        let nodes = nodes::introduce(&api, nodes, &clock);
        if let Some(settings) = settings.operator {
            let installed = definitions::install(&client, &Conversion::Embedded).await;
            installed.map_err(|source| Error::Definitions { cluster: name.clone(), source })?;
            let operator = operator::start(client, settings, clock, &mut tasks);
            operator.ready().await;
            visibility.ask(operator.clone());
            webhooks.ask(operator);
        }

        // Others come in last, so that nobody finds a cluster that does not do yet what it will.
        let listener = listener.known_at(outward).known_as(settings.known_as);
        let server = Server::start_on(api.clone(), Arc::clone(&credentials), listener).await;
        let server = server.map_err(|source| Error::Serve { cluster: name.clone(), address, source })?;
        Ok(Cluster { name, api, credentials, server, store, tasks, _counts: counts, _nodes: nodes })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is served.
    pub fn url(&self) -> String {
        format!("https://{}", self.server.address())
    }

    /// A client that may do everything and needs no socket.
    pub fn client(&self) -> Client {
        Client::new(self.api.clone(), "default")
    }

    /// The same for who keeps what it watches and decides by no manager of fields: it is not told of them.
    pub(crate) fn lean_client(&self) -> Client {
        Client::new(WithoutManagers(self.api.clone()), "default")
    }

    /// A kubeconfig for its first user, in which cluster, user and context have the given name.
    pub fn kubeconfig(&self, context: &str) -> Value {
        self.credentials.kubeconfig(context, &self.url())
    }

    /// Stops serving and returns when all that was acknowledged is on disk.
    pub async fn stop(mut self) {
        self.tasks.stop().await;
        self.server.stop().await;
        self.store.close().await;
    }
}

/// Tells nodes that run processes where pods find the API server.
fn with_server(mut nodes: Vec<runner::Settings>, port: u16) -> Vec<runner::Settings> {
    for node in &mut nodes {
        if let runner::Runtime::Process(process) = &mut node.runtime
            && process.server.is_none()
        {
            process.server = Some((Ipv4Addr::LOCALHOST.to_string(), port));
        }
    }
    nodes
}
