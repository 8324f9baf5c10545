//! Clusters that users reach by contexts of their own, as whoever they are there.

use anyhow::Context as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use types::kueue::MultiKueueCluster;

use super::way::Source;
use super::worker::{Worker, client_of, within};
use super::{Manager, WHAT_IS_WRONG, no_context};
use crate::clusters::layout::annotation;
use crate::failure::{self, Code, Failure, Hint as _};
use crate::join::{CLUSTER, CONTEXT, access::Address};
use crate::output;

/// Where a context leads, beside a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leads {
    /// To the worker.
    There,
    /// To another cluster.
    Elsewhere,
    /// Nobody can tell.
    Unknown,
}

/// What tells a cluster from all others: the uid of a namespace that every cluster has. `None` for who may not read it.
pub(crate) async fn uid_of(name: &str, client: &Client) -> anyhow::Result<Option<String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match within(name, "ask which cluster it is", namespaces.get("kube-system")).await {
        Ok(namespace) => Ok(namespace.metadata.uid),
        Err(error) if failure::is_answer(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Manager {
    /// How the management cluster is called in what is said.
    pub(crate) fn context_name(&self) -> String {
        self.context.clone().unwrap_or_else(|| fleet::MANAGER.to_owned())
    }

    /// The cluster of a context, and how others reach it: at `server`, if that is given.
    pub(crate) async fn context(
        &self,
        name: &str,
        server: Option<&str>,
    ) -> anyhow::Result<(Client, Address)> {
        let known = self.kubeconfig.contexts.iter().find(|context| context.name == name);
        let cluster =
            known.and_then(|context| context.context.as_ref()).map(|context| context.cluster.clone());
        let named = self.kubeconfig.clusters.iter().find(|it| Some(&it.name) == cluster.as_ref());
        let Some(at) = named.and_then(|named| named.cluster.as_ref()) else {
            let contexts: Vec<String> = self.kubeconfig.contexts.iter().map(|it| it.name.clone()).collect();
            return Err(no_context(name, &contexts).into());
        };
        if at.insecure_skip_tls_verify == Some(true) {
            let message = format!("context {name} does not check the certificate of its cluster");
            let hint = "the operator uses no such cluster: give its authority in the kubeconfig";
            return Err(Failure::new(Code::Error, message).hint(hint).into());
        }
        let authority = match (&at.certificate_authority_data, &at.certificate_authority) {
            (Some(data), _) => Some(data.clone()),
            (None, Some(path)) => {
                let read = std::fs::read(path);
                let bytes =
                    read.with_context(|| format!("failed to read the authority of {name}, {path}"))
                        .hint("certificate-authority of its cluster in the kubeconfig says where it is")?;
                let encoded =
                    serde_json::to_value(ByteString(bytes)).context("failed to write an authority")?;
                encoded.as_str().map(str::to_owned)
            }
            (None, None) => None,
        };
        let server = server.map(str::to_owned).or_else(|| at.server.clone());
        let server = server.with_context(|| format!("context {name} leads to no server"));
        let server = server.hint("kubectl config set-cluster CLUSTER --server URL gives it one")?;
        let address = Address { server, authority, server_name: at.tls_server_name.clone() };
        Ok((self.by_context(name).await?, address))
    }

    /// A worker, to read what the operator has no business with: logs, events, flavors. As the user, if
    /// there is a context for it; else by the kubeconfig that the operator uses.
    pub(crate) async fn reader(&self, name: &str) -> anyhow::Result<Worker> {
        let cluster = self.object(name).await?;
        // Who may read nothing but one namespace has a context for the worker perhaps, under its name.
        match self.own_way(name, cluster.as_ref(), |leads| leads != Leads::Elsewhere).await? {
            Some(worker) => Ok(worker),
            None => self.worker(name).await,
        }
    }

    /// A worker as its administrator: by the context that is named, or that it was joined with, or of its name; else as
    /// the operator. What is written goes to no other cluster that happens to have such a context.
    pub(crate) async fn administered(
        &self,
        cluster: &MultiKueueCluster,
        context: Option<&str>,
    ) -> anyhow::Result<Worker> {
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        if let Some(context) = context {
            let client = self.context(context, None).await?.0;
            if self.leads(context, &client, cluster).await? == Leads::Elsewhere {
                let message = format!("context {context} leads to another cluster than worker {name}");
                let hint = format!("ferry join {context} --name {name} would make that one the worker");
                return Err(Failure::new(Code::No, message).hint(hint).into());
            }
            return Ok(Worker { client, name: name.to_owned() });
        }
        match self.own_way(name, Some(cluster), |leads| leads == Leads::There).await? {
            Some(worker) => Ok(worker),
            None => self.as_the_operator(name).await.map_err(|refused| self.no_way(name, &refused)),
        }
    }

    /// What the management cluster has about a worker, for who may read it.
    pub(super) async fn object(&self, name: &str) -> anyhow::Result<Option<MultiKueueCluster>> {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match api.get_opt(name).await {
            Err(kube::Error::Api(_)) => Ok(None),
            other => other.context("failed to read the MultiKueueCluster"),
        }
    }

    /// By the first context of the user's own that is good enough, of those that a worker's may be.
    pub(super) async fn own_way(
        &self,
        name: &str,
        cluster: Option<&MultiKueueCluster>,
        suffices: impl Fn(Leads) -> bool,
    ) -> anyhow::Result<Option<Worker>> {
        let joined = cluster.and_then(|cluster| annotation(cluster, CONTEXT)).map(str::to_owned);
        let mut contexts: Vec<String> = Vec::new();
        for context in joined.into_iter().chain([fleet::context(name), name.to_owned()]) {
            let is_known = self.kubeconfig.contexts.iter().any(|known| known.name == context);
            if is_known && !contexts.contains(&context) {
                contexts.push(context);
            }
        }
        for context in contexts {
            let client = self.by_context(&context).await?;
            let leads = match cluster {
                Some(cluster) => self.leads(&context, &client, cluster).await?,
                None => Leads::Unknown,
            };
            if suffices(leads) {
                return Ok(Some(Worker { client, name: name.to_owned() }));
            }
            output::note(match leads {
                Leads::Elsewhere => {
                    format!(
                        "note: context {context} leads to another cluster than worker {name}, and is not used"
                    )
                }
                _ => format!(
                    "note: whether context {context} leads to worker {name} is not known, so it is not used; \
                     --worker-context {context} says that it does"
                ),
            });
        }
        Ok(None)
    }

    /// Where a context leads: by what was written down when the worker was joined, else by its address.
    async fn leads(
        &self,
        context: &str,
        client: &Client,
        cluster: &MultiKueueCluster,
    ) -> anyhow::Result<Leads> {
        if let Some(known) = annotation(cluster, CLUSTER) {
            return Ok(match uid_of(context, client).await? {
                Some(uid) if uid == known => Leads::There,
                Some(_) => Leads::Elsewhere,
                None => Leads::Unknown,
            });
        }
        // One cluster may have several addresses.
        let same =
            self.server_of(cluster).await.is_some_and(|server| Some(server) == self.server_at(context));
        Ok(if same { Leads::There } else { Leads::Unknown })
    }

    /// The address of a context, as [`Manager::server_of`] has it.
    fn server_at(&self, context: &str) -> Option<String> {
        let context = self.kubeconfig.contexts.iter().find(|it| it.name == context)?.context.as_ref()?;
        let cluster = self.kubeconfig.clusters.iter().find(|it| it.name == context.cluster)?;
        let uri: http::Uri = cluster.cluster.as_ref()?.server.as_ref()?.parse().ok()?;
        Some(uri.to_string().trim_end_matches('/').to_owned())
    }

    /// What tells a worker from other clusters: as it was written down, else as it says itself to the operator.
    pub(crate) async fn uid_of_worker(&self, cluster: &MultiKueueCluster) -> Option<String> {
        if let Some(known) = annotation(cluster, CLUSTER) {
            return Some(known.to_owned());
        }
        let name = cluster.metadata.name.as_deref().unwrap_or_default();
        let worker = self.as_the_operator(name).await.ok()?;
        uid_of(name, &worker.client).await.ok().flatten()
    }

    pub(super) async fn by_context(&self, context: &str) -> anyhow::Result<Client> {
        let source = Source::Context { name: context.to_owned(), files: self.files.clone() };
        let made = client_of(self.kubeconfig.clone(), Some(context.to_owned()), source).await;
        made.with_context(|| format!("failed to use context {context}")).hint(WHAT_IS_WRONG)
    }
}
