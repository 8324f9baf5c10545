//! Workers, reached from the management cluster: by the kubeconfig that the operator uses, else by a context of the
//! user's own kubeconfig.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;
use types::kueue::{ClusterSource, LocationType, MultiKueueCluster};

use super::Manager;
use super::contexts::Leads;
use super::way::{self, Source};
use crate::failure::{Code, Failure};

/// The key of a Secret under which a kubeconfig is.
const KEY: &str = "kubeconfig";
/// How long a worker may take to answer. One that is silent must not keep the others from being shown.
const ANSWER: Duration = Duration::from_secs(10);

/// A worker cluster, and how to talk to it.
#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) client: Client,
}

/// Waits for a worker's answer, but not forever.
pub(crate) async fn within<T, E>(
    cluster: &str,
    doing: &str,
    call: impl Future<Output = Result<T, E>>,
) -> anyhow::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let Ok(answer) = tokio::time::timeout(ANSWER, call).await else {
        let message = format!("failed to {doing} on {cluster}: no answer in {} s", ANSWER.as_secs());
        return Err(Failure::new(Code::Timeout, message).hint("ferry get clusters says since when").into());
    };
    answer.with_context(|| format!("failed to {doing} on {cluster}"))
}

impl Manager {
    /// The clusters that this one sends Jobs to.
    pub(crate) async fn clusters(&self) -> anyhow::Result<Vec<MultiKueueCluster>> {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        match api.list(&kube::api::ListParams::default()).await {
            Ok(list) => Ok(list.items),
            // Without Kueue's definitions there are no workers.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(error).context("failed to list worker clusters"),
        }
    }

    /// Prepares to talk to a worker, as the operator does if its kubeconfig can be read; else as the user is known there.
    pub(crate) async fn worker(&self, cluster: &str) -> anyhow::Result<Worker> {
        let refused = match self.as_the_operator(cluster).await {
            Ok(worker) => return Ok(worker),
            Err(refused) => refused,
        };
        let object = self.object(cluster).await?;
        let own = self.own_way(cluster, object.as_ref(), |leads| leads != Leads::Elsewhere).await?;
        own.ok_or_else(|| self.no_way(cluster, &refused))
    }

    /// Why a worker cannot be talked to, and what helps.
    pub(super) fn no_way(&self, cluster: &str, refused: &anyhow::Error) -> anyhow::Error {
        let hint = format!(
            "add a context named {cluster} or {} to your kubeconfig, or ask for leave to read the Secrets of {}",
            fleet::context(cluster),
            self.operator_namespace,
        );
        let message = format!("failed to reach cluster {cluster}: {}", crate::failure::text(refused));
        let code = if crate::failure::is_forbidden(refused) { Code::Forbidden } else { Code::Error };
        Failure::new(code, message).hint(hint).into()
    }

    /// By the kubeconfig that the cluster's object names. Nothing is sent to it yet.
    pub(super) async fn as_the_operator(&self, cluster: &str) -> anyhow::Result<Worker> {
        let api: Api<MultiKueueCluster> = Api::all(self.client.clone());
        let object = api.get(cluster).await.context("failed to read the MultiKueueCluster")?;
        let bytes = self.kubeconfig_of(&object.spec.cluster_source).await?;
        let text = std::str::from_utf8(&bytes).context("its kubeconfig is no text")?;
        let config: Value = serde_saphyr::from_str(text).context("its kubeconfig is no YAML")?;
        // What the operator would not use is not used here either: it may run programs of this machine.
        rules::dispatch::kubeconfig::refuse(&config)
            .map_err(|why| anyhow::anyhow!("its kubeconfig is refused: {why}"))?;
        let source = Source::Worker {
            name: cluster.to_owned(),
            place: self.place_of(&object.spec.cluster_source).unwrap_or_default(),
        };
        let config = serde_json::from_value(config).context("it has no kubeconfig")?;
        Ok(Worker { name: cluster.to_owned(), client: client_of(config, None, source).await? })
    }

    /// The address of a worker, by the kubeconfig that its object names. One that cannot be read leads nowhere.
    pub(crate) async fn server_of(&self, cluster: &MultiKueueCluster) -> Option<String> {
        let bytes = self.kubeconfig_of(&cluster.spec.cluster_source).await.ok()?;
        let kubeconfig: Kubeconfig = serde_saphyr::from_str(std::str::from_utf8(&bytes).ok()?).ok()?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.ok()?;
        Some(config.cluster_url.to_string().trim_end_matches('/').to_owned())
    }

    /// Where the kubeconfig of a worker is, in words.
    fn place_of(&self, source: &ClusterSource) -> Option<String> {
        let place = source.kube_config.as_ref()?;
        Some(match place.location_type.unwrap_or_default() {
            LocationType::Secret => format!("Secret {}/{}", self.operator_namespace, place.location),
            LocationType::Path => format!("file {}", place.location),
        })
    }

    async fn kubeconfig_of(&self, source: &ClusterSource) -> anyhow::Result<Vec<u8>> {
        let place = source.kube_config.as_ref().context("its object names no kubeconfig")?;
        let location = &place.location;
        match place.location_type.unwrap_or_default() {
            LocationType::Secret => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.operator_namespace);
                let secret = secrets.get(location).await;
                let secret = secret.with_context(|| {
                    format!("failed to read its kubeconfig, Secret {}/{location}", self.operator_namespace)
                })?;
                let found = secret.data.and_then(|mut data| data.remove(KEY));
                found.map(|bytes| bytes.0).with_context(|| format!("Secret {location} has no key {KEY}"))
            }
            LocationType::Path => {
                let read = tokio::fs::read(location).await;
                read.with_context(|| {
                    format!("its kubeconfig is a file of the operator's machine, {location}")
                })
            }
        }
    }
}

pub(super) async fn client_of(
    kubeconfig: Kubeconfig,
    context: Option<String>,
    source: Source,
) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    way::client(config, source, way::WORKER_ANSWER).context("failed to prepare a client")
}
