//! Clusters that the user reaches by contexts of his own, as whoever he is there.

use anyhow::Context as _;
use k8s_openapi::ByteString;
use kube::{Api, Client};
use types::kueue::MultiKueueCluster;

use super::way::Source;
use super::worker::{Worker, client_of};
use super::{Manager, no_context};
use crate::failure::{Code, Failure};
use crate::join::{CONTEXT, access::Address};

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
                    read.with_context(|| format!("failed to read the authority of {name}, {path}"))?;
                let encoded =
                    serde_json::to_value(ByteString(bytes)).context("failed to write an authority")?;
                encoded.as_str().map(str::to_owned)
            }
            (None, None) => None,
        };
        let server = server.map(str::to_owned).or_else(|| at.server.clone());
        let server = server.with_context(|| format!("context {name} leads to no server"))?;
        let address = Address { server, authority, server_name: at.tls_server_name.clone() };
        Ok((self.by_context(name).await?, address))
    }

    /// A worker, to read what the operator has no business with: logs, events, flavors. As the user is there himself, if
    /// he has a context for it; else by the kubeconfig that the operator uses.
    pub(crate) async fn reader(&self, name: &str) -> anyhow::Result<Worker> {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match api.get_opt(name).await {
            Ok(Some(cluster)) => self.administered(&cluster).await,
            // Who may read nothing but his namespace has a context for the worker perhaps, under its name.
            Ok(None) | Err(kube::Error::Api(_)) => {
                match self.own_context([fleet::context(name), name.to_owned()]) {
                    Some(context) => {
                        Ok(Worker { client: self.by_context(&context).await?, name: name.to_owned() })
                    }
                    None => self.worker(name).await,
                }
            }
            Err(error) => Err(error).context("failed to read the MultiKueueCluster"),
        }
    }

    /// The first of these contexts that the user has.
    pub(super) fn own_context(&self, names: impl IntoIterator<Item = String>) -> Option<String> {
        names.into_iter().find(|name| self.kubeconfig.contexts.iter().any(|known| known.name == *name))
    }

    /// A worker as its administrator: by the context that it was joined with, else by any other way to it.
    pub(crate) async fn administered(&self, cluster: &MultiKueueCluster) -> anyhow::Result<Worker> {
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let annotations = cluster.metadata.annotations.as_ref();
        let joined = annotations.and_then(|annotations| annotations.get(CONTEXT));
        let contexts = joined.cloned().into_iter().chain([fleet::context(&name), name.clone()]);
        match self.own_context(contexts) {
            Some(context) => Ok(Worker { client: self.by_context(&context).await?, name }),
            None => self.worker(&name).await,
        }
    }

    pub(super) async fn by_context(&self, context: &str) -> anyhow::Result<Client> {
        let source = Source::Context { name: context.to_owned(), files: self.files.clone() };
        let made = client_of(self.kubeconfig.clone(), Some(context.to_owned()), source).await;
        made.with_context(|| format!("failed to use context {context}"))
    }
}
