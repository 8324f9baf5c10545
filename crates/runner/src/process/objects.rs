//! What pods are made of besides themselves: ConfigMaps, Secrets, services and tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{ConfigMap, Pod, Secret, Service, ServiceAccount},
    },
};
use kube::{Api, Client, Resource, api::PostParams};
use reconcile::{Cache, Key, Tasks};
use rules::node::environment::{self, Data};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// The objects of a cluster that pods may name.
#[derive(Clone)]
pub(crate) struct Objects {
    client: Client,
    config_maps: Cache<ConfigMap>,
    secrets: Cache<Secret>,
    services: Cache<Service>,
    /// Counts changes of ConfigMaps and Secrets.
    changes: watch::Sender<u64>,
}

impl Objects {
    pub(crate) fn watch(client: &Client, tasks: &mut Tasks) -> Objects {
        let changes = watch::Sender::default();
        let (one, other) = (changes.clone(), changes.clone());
        let count =
            |changes: &watch::Sender<u64>| changes.send_modify(|count| *count = count.wrapping_add(1));
        Objects {
            client: client.clone(),
            config_maps: Cache::new(Api::all(client.clone())).on_change(move |_| count(&one)).start(tasks),
            secrets: Cache::new(Api::all(client.clone())).on_change(move |_| count(&other)).start(tasks),
            services: Cache::new(Api::all(client.clone())).start(tasks),
            changes,
        }
    }

    pub(crate) async fn ready(&self) {
        futures::join!(self.config_maps.ready(), self.secrets.ready(), self.services.ready());
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Those of these objects that exist. What the watch has not told of yet is asked for.
    pub(crate) async fn data(
        &self,
        namespace: &str,
        (config_maps, secrets): (BTreeSet<String>, BTreeSet<String>),
    ) -> kube::Result<Data> {
        let mut data = Data::default();
        for name in config_maps {
            if let Some(found) = find(&self.client, &self.config_maps, namespace, &name).await? {
                data.config_maps.insert(name, found);
            }
        }
        for name in secrets {
            if let Some(found) = find(&self.client, &self.secrets, namespace, &name).await? {
                data.secrets.insert(name, found);
            }
        }
        Ok(data)
    }

    /// The variables by which a pod finds services: those of its namespace, if it wants them, and always the API server.
    pub(crate) fn service_variables(
        &self,
        pod: &Pod,
        server: Option<&(String, u16)>,
    ) -> BTreeMap<String, String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let links = pod.spec.as_ref().and_then(|spec| spec.enable_service_links) != Some(false);
        let mut services = self.services.in_namespace("default");
        services.retain(|service| service.metadata.name.as_deref() == Some("kubernetes"));
        if links {
            services.extend(self.services.in_namespace(namespace));
        }
        let mut variables = environment::of_services(services.iter().map(AsRef::as_ref));
        if let Some((host, port)) = server {
            // The address of the service is nowhere if nobody forwards it; this one is where the server listens.
            let url = format!("tcp://{host}:{port}");
            for (name, value) in [
                ("KUBERNETES_SERVICE_HOST", host.clone()),
                ("KUBERNETES_SERVICE_PORT", port.to_string()),
                ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
                ("KUBERNETES_PORT", url),
            ] {
                variables.insert(name.to_owned(), value);
            }
        }
        variables
    }

    /// A token of the pod's service account, and for how many seconds it is good.
    pub(crate) async fn token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: i64,
    ) -> kube::Result<(String, i64)> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let account =
            pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref()).unwrap_or("default");
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: audience.map(str::to_owned).into_iter().collect(),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: pod.metadata.name.clone(),
                    uid: pod.metadata.uid.clone(),
                }),
            },
            ..TokenRequest::default()
        };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
        Ok(answer.status.map_or((String::new(), seconds), |status| (status.token, seconds)))
    }
}

async fn find<K>(client: &Client, cache: &Cache<K>, namespace: &str, name: &str) -> kube::Result<Option<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    match cache.get(&Key::new(namespace, name)) {
        Some(found) => Ok(Some(found.as_ref().clone())),
        None => Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await,
    }
}
