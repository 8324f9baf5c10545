//! The kinds that controllers watch, each watched once however many ask.
//!
//! While controllers are being prepared they say which kinds they want, by what they look objects up, and what a change
//! calls for; then the wanted kinds are watched, and from then on a [`Kind`] is its [`Cache`].

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    ReplicationController, ResourceQuota, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use reconcile::{Cache, Change, Key, Next, Queue, Tasks};
use rules::meta::controller_of;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api;

/// Somebody else wrote first: that write is seen by then.
const SOON: Duration = Duration::from_millis(20);

/// One kind of the cluster. Cheap to clone; all clones are the same.
pub(crate) struct Kind<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    wishes: Mutex<Wishes<K>>,
    cache: OnceLock<Cache<K>>,
}

type Listener<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type Indexer<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct Wishes<K> {
    wanted: bool,
    indexes: Vec<(&'static str, Indexer<K>)>,
    listeners: Vec<Listener<K>>,
}

impl<K> Clone for Kind<K> {
    fn clone(&self) -> Self {
        Kind { shared: Arc::clone(&self.shared) }
    }
}

impl<K> Default for Kind<K> {
    fn default() -> Self {
        let wishes = Wishes { wanted: false, indexes: Vec::new(), listeners: Vec::new() };
        Kind { shared: Arc::new(Shared { wishes: Mutex::new(wishes), cache: OnceLock::new() }) }
    }
}

impl<K> Kind<K> {
    /// Says that the kind is needed, and returns it.
    pub(crate) fn wanted(&self) -> Self {
        self.wish(|wishes| wishes.wanted = true);
        self.clone()
    }

    /// Makes objects findable by these values. One index serves all who ask for it by this name.
    pub(crate) fn index(
        &self,
        name: &'static str,
        values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) {
        self.wish(|wishes| {
            if wishes.indexes.iter().all(|(known, _)| *known != name) {
                wishes.indexes.push((name, Box::new(values)));
            }
        });
    }

    /// Says what a change calls for.
    pub(crate) fn on_change(&self, tell: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        self.wish(|wishes| {
            wishes.wanted = true;
            wishes.listeners.push(Box::new(tell));
        });
    }

    /// Says that every change of an object calls for a look at it, and returns the kind.
    pub(crate) fn feeding(&self, queue: &Queue<Key>) -> Self {
        let queue = queue.clone();
        self.on_change(move |change| queue.add(change.key.clone()));
        self.clone()
    }

    fn wish(&self, wish: impl FnOnce(&mut Wishes<K>)) {
        wish(&mut self.shared.wishes.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<K> Kind<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Clone + Default,
{
    /// When all objects are known.
    pub(crate) fn filled(&self) -> BoxFuture<'static, ()> {
        let this = self.clone();
        Box::pin(async move { this.ready().await })
    }

    /// Says that every change of an object calls for a look at its controller, if that is of this kind.
    pub(crate) fn feed_controller(&self, kind: &'static str, queue: &Queue<Key>) {
        let queue = queue.clone();
        self.on_change(move |change| {
            let objects = change.old.into_iter().chain(change.new);
            for owner in objects.filter_map(|object| controller_of(object.meta())) {
                if owner.kind == kind {
                    queue.add(Key::new(&change.key.namespace, &owner.name));
                }
            }
        });
    }

    /// Writes the status of an object, and says when to look again if somebody else wrote first. One that is gone needs none.
    pub(crate) async fn write_status(&self, client: &Client, key: &Key, changed: &K) -> kube::Result<Next>
    where
        K: Resource<Scope = NamespaceResourceScope> + Serialize,
    {
        let objects: Api<K> = Api::namespaced(client.clone(), &key.namespace);
        match objects.replace_status(&key.name, &api::post(), changed).await {
            Ok(written) => self.put(written),
            Err(error) if api::is_not_found(&error) => {}
            Err(error) if api::is_conflict(&error) => return Ok(Next::After(SOON)),
            Err(error) => return Err(error),
        }
        Ok(Next::Done)
    }

    fn start(&self, client: &Client, tasks: &mut Tasks) {
        let (wanted, indexes, listeners) = {
            let mut wishes = self.shared.wishes.lock().unwrap_or_else(PoisonError::into_inner);
            (wishes.wanted, std::mem::take(&mut wishes.indexes), std::mem::take(&mut wishes.listeners))
        };
        if !wanted {
            return;
        }
        let mut builder = Cache::new(Api::<K>::all(client.clone()));
        for (name, values) in indexes {
            builder = builder.index(name, values);
        }
        for tell in listeners {
            builder = builder.on_change(tell);
        }
        self.shared.cache.get_or_init(|| builder.start(tasks));
    }
}

impl<K> Deref for Kind<K> {
    type Target = Cache<K>;

    fn deref(&self) -> &Cache<K> {
        self.shared.cache.get().unwrap_or_else(|| {
            let wishes = self.shared.wishes.lock().unwrap_or_else(PoisonError::into_inner);
            assert!(wishes.wanted, "a kind is read only by those who wanted it");
            drop(wishes);
            // A watch that runs already tells of changes, on another thread, while the rest are being started.
            self.shared.cache.wait()
        })
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident: $kind:ty,)*) => {
        /// The kinds of a cluster that some controller knows.
        #[derive(Clone, Default)]
        pub(crate) struct Kinds {
            $($(#[$doc])* pub(crate) $name: Kind<$kind>,)*
        }

        impl Kinds {
            /// Begins to watch the kinds that were asked for.
            pub(crate) fn start(&self, client: &Client, tasks: &mut Tasks) {
                $(self.$name.start(client, tasks);)*
            }
        }
    };
}

kinds! {
    attributes_classes: VolumeAttributesClass,
    cluster_roles: ClusterRole,
    config_maps: ConfigMap,
    controller_revisions: ControllerRevision,
    cron_jobs: CronJob,
    daemon_sets: DaemonSet,
    definitions: CustomResourceDefinition,
    deployments: Deployment,
    disruption_budgets: PodDisruptionBudget,
    endpoint_slices: EndpointSlice,
    endpoints: Endpoints,
    jobs: Job,
    leases: Lease,
    namespaces: Namespace,
    nodes: Node,
    pods: Pod,
    replica_sets: ReplicaSet,
    replication_controllers: ReplicationController,
    resource_claims: ResourceClaim,
    resource_quotas: ResourceQuota,
    service_accounts: ServiceAccount,
    services: Service,
    stateful_sets: StatefulSet,
    volume_claims: PersistentVolumeClaim,
    volumes: PersistentVolume,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a change calls for may be asked of the kind before whoever starts its watch has put it where it is found.
    #[tokio::test]
    async fn a_kind_can_be_read_while_its_watch_begins() {
        let kinds = Kinds::default();
        let early = kinds.cluster_roles.wanted();
        let reader = std::thread::spawn(move || early.is_ready());
        let nowhere = kube::Config::new(http::Uri::from_static("http://127.0.0.1:1"));
        let client = Client::try_from(nowhere).expect("a client");
        kinds.start(&client, &mut Tasks::new());
        assert!(!reader.join().expect("it waits and does not panic"));
    }

    #[test]
    #[should_panic(expected = "only by those who wanted it")]
    fn a_kind_that_nobody_watches_cannot_be_read() {
        let _ = Kinds::default().pods.is_ready();
    }
}
