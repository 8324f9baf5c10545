//! Keeps the status of resource quotas: what is used of each.
//!
//! Pods, services and claims of volumes and of devices are weighed; of every other kind that some quota limits, the objects are counted, from a
//! watch of their metadata that begins when the first quota asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::api::resource;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use reconcile::{Cache, Change, Key, Next, Queue, Tasks};
use rules::resource_quota::{List, Object, usage};

use crate::context::Context;
use crate::discovery::discover;
use crate::{Run, api};

/// Quotas that are worked on at once.
const AT_ONCE: usize = 8;
/// Objects change in crowds.
const BATCH: Duration = Duration::from_millis(50);
/// What the API server has just let in and charged may not be in the caches yet: nothing is counted for so long after it.
const SETTLED: Duration = Duration::from_millis(250);
/// But where something is always let in, it is counted after so long all the same: what has ended must become free.
const UNSETTLED: Duration = Duration::from_secs(1);
/// A kind that nobody serves yet is looked for so often.
const LOOK_FOR_KIND: Duration = Duration::from_secs(10);

type Metadata = PartialObjectMeta<DynamicObject>;

/// The controller. Cheap to clone.
#[derive(Clone)]
struct Controller {
    context: Context,
    queue: Queue<Key>,
    counted: Arc<Mutex<BTreeMap<String, Counted>>>,
    /// When the usage of a quota was first seen to change since it was counted, and when last.
    charged: Arc<Mutex<BTreeMap<Key, (Timestamp, Timestamp)>>>,
}

/// A kind whose objects are counted.
struct Counted {
    cache: Cache<Metadata>,
    /// The watch ends with it.
    _task: Tasks,
}

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let controller = Controller {
        context: context.clone(),
        queue: Queue::new(),
        counted: Arc::default(),
        charged: Arc::default(),
    };
    let kinds = &context.kinds;
    let quotas = kinds.resource_quotas.wanted();
    let (pods, services, claims) =
        (kinds.pods.wanted(), kinds.services.wanted(), kinds.volume_claims.wanted());
    let devices = kinds.resource_claims.wanted();
    let this = controller.clone();
    quotas.on_change(move |change| this.quota_changed(change));
    let this = controller.clone();
    pods.on_change(move |change| this.namespace_changed(&change.key.namespace));
    let this = controller.clone();
    services.on_change(move |change| this.namespace_changed(&change.key.namespace));
    let this = controller.clone();
    claims.on_change(move |change| this.namespace_changed(&change.key.namespace));
    let this = controller.clone();
    devices.on_change(move |change| this.namespace_changed(&change.key.namespace));
    Box::pin(async move {
        let _ending = Ending(Arc::clone(&controller.counted));
        quotas.ready().await;
        pods.ready().await;
        services.ready().await;
        claims.ready().await;
        devices.ready().await;
        let queue = controller.queue.clone();
        queue
            .run(AT_ONCE, |key| {
                let this = controller.clone();
                async move { this.sync(key).await }
            })
            .await;
    })
}

/// The kinds of a quota's names that are counted by their metadata: `jobs.batch`, `configmaps`.
fn counted_kinds(hard: &BTreeMap<String, resource::Quantity>) -> BTreeSet<String> {
    const WEIGHED: [&str; 4] =
        ["pods", "services", "persistentvolumeclaims", "resourceclaims.resource.k8s.io"];
    const PLAIN: [&str; 4] = ["configmaps", "secrets", "replicationcontrollers", "resourcequotas"];
    let name = |name: &String| match name.strip_prefix("count/") {
        Some(kind) => Some(kind.to_owned()),
        None => PLAIN.contains(&name.as_str()).then(|| name.clone()),
    };
    hard.keys().filter_map(name).filter(|kind| !WEIGHED.contains(&kind.as_str())).collect()
}

/// Ends the watches with the work: what they tell holds on to who began them.
struct Ending(Arc<Mutex<BTreeMap<String, Counted>>>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Controller {
    fn quota_changed(&self, change: &Change<'_, ResourceQuota>) {
        let used = |quota: &Arc<ResourceQuota>| quota.status.as_ref().and_then(|status| status.used.clone());
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        match (change.old, change.new) {
            (_, None) => drop(charged.remove(change.key)),
            (Some(old), Some(new)) if used(old).is_some() && used(old) != used(new) => {
                let now = self.context.clock.now();
                charged.entry(change.key.clone()).or_insert((now, now)).1 = now;
            }
            _ => {}
        }
        self.queue.add(change.key.clone());
    }

    /// How long the usage of a quota has still to rest before it is counted; if it has rested, it is counted now.
    fn unsettled(&self, key: &Key) -> Option<Duration> {
        let mut charged = self.charged.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, last) = *charged.get(key)?;
        let now = self.context.clock.now();
        let rest = |since: Timestamp, rest: Duration| {
            rest.saturating_sub(Duration::try_from(now.duration_since(since)).unwrap_or_default())
        };
        let rest = rest(last, SETTLED).min(rest(first, UNSETTLED));
        if rest.is_zero() {
            charged.remove(key);
            return None;
        }
        Some(rest)
    }

    fn namespace_changed(&self, namespace: &str) {
        let quotas = &self.context.kinds.resource_quotas;
        if quotas.is_ready() {
            for quota in quotas.in_namespace(namespace) {
                self.queue.add_after(Key::of(&*quota), BATCH);
            }
        }
    }

    async fn sync(&self, key: Key) -> Result<Next, Error> {
        let Some(quota) = self.context.kinds.resource_quotas.get(&key) else { return Ok(Next::Done) };
        if let Some(rest) = self.unsettled(&key) {
            return Ok(Next::After(rest));
        }
        let spec = quota.spec.clone().unwrap_or_default();
        let hard = spec.hard.clone().unwrap_or_default();
        let kinds = counted_kinds(&hard);
        let unknown =
            self.count(&kinds).await.map_err(|source| Error::Discover { quota: key.clone(), source })?;
        let counts = self.counts(&key.namespace, &kinds);
        let now = self.context.clock.now();
        let cached = &self.context.kinds;
        let (pods, services) =
            (cached.pods.in_namespace(&key.namespace), cached.services.in_namespace(&key.namespace));
        let claims = cached.volume_claims.in_namespace(&key.namespace);
        let devices = cached.resource_claims.in_namespace(&key.namespace);
        let others = counts.iter().flat_map(|(kind, count)| {
            let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
            std::iter::repeat_n(Object::Other { resource, group }, *count)
        });
        let objects = pods
            .iter()
            .map(|pod: &Arc<Pod>| Object::Pod(pod))
            .chain(services.iter().map(|service: &Arc<Service>| Object::Service(service)))
            .chain(claims.iter().map(|claim: &Arc<PersistentVolumeClaim>| Object::Claim(claim)))
            .chain(devices.iter().map(|claim: &Arc<ResourceClaim>| Object::Devices(claim)))
            .chain(others);
        let used = usage(&spec, objects, now);
        self.write(&key, &quota, hard, &used).await?;
        Ok(if unknown { Next::After(LOOK_FOR_KIND) } else { Next::Done })
    }

    async fn write(
        &self,
        key: &Key,
        quota: &ResourceQuota,
        hard: BTreeMap<String, resource::Quantity>,
        used: &List,
    ) -> Result<(), Error> {
        let known = quota.status.clone().unwrap_or_default();
        let read = |list: &Option<BTreeMap<String, resource::Quantity>>| -> List {
            let all = list.iter().flatten();
            all.filter_map(|(name, it)| Some((name.clone(), it.try_into().ok()?))).collect()
        };
        if read(&known.hard) == read(&Some(hard.clone()))
            && read(&known.used) == *used
            && quota.status.is_some()
        {
            return Ok(());
        }
        let used = used.iter().map(|(name, amount)| (name.clone(), amount.into())).collect();
        let mut changed = quota.clone();
        changed.status = Some(ResourceQuotaStatus { hard: Some(hard), used: Some(used) });
        let quotas: Api<ResourceQuota> = Api::namespaced(self.context.client.clone(), &key.namespace);
        match quotas.replace_status(&quota.name_any(), &api::post(), &changed).await {
            Ok(written) => self.context.kinds.resource_quotas.put(written),
            Err(error) if api::is_not_found(&error) => {}
            // Admission writes here, too.
            Err(error) if api::is_conflict(&error) => self.queue.add_after(key.clone(), BATCH),
            Err(source) => return Err(Error::Status { quota: key.clone(), source }),
        }
        Ok(())
    }

    /// Sees to it that these kinds are counted. Returns whether some of them is not served.
    async fn count(&self, kinds: &BTreeSet<String>) -> kube::Result<bool> {
        if kinds.iter().all(|kind| self.counted().contains_key(kind)) {
            self.wait(kinds).await;
            return Ok(false);
        }
        let served = discover(&self.context.client).await?.served;
        let mut unknown = false;
        for kind in kinds {
            let found = served
                .iter()
                .find(|served| served.name() == *kind && served.namespaced && served.is_collectable());
            let Some(found) = found else {
                unknown = true;
                continue;
            };
            self.counted().entry(kind.clone()).or_insert_with(|| {
                let mut task = Tasks::new();
                let this = self.clone();
                let api: Api<Metadata> = Api::all_with(self.context.client.clone(), &found.resource);
                let cache = Cache::new(api)
                    .on_change(move |change| {
                        // What it looks like does not matter, only that it is there.
                        if change.old.is_none() || change.new.is_none() {
                            this.namespace_changed(&change.key.namespace);
                        }
                    })
                    .start(&mut task);
                Counted { cache, _task: task }
            });
        }
        self.wait(kinds).await;
        Ok(unknown)
    }

    async fn wait(&self, kinds: &BTreeSet<String>) {
        let caches: Vec<Cache<Metadata>> =
            kinds.iter().filter_map(|kind| self.counted().get(kind).map(|it| it.cache.clone())).collect();
        for cache in caches {
            cache.ready().await;
        }
    }

    fn counts(&self, namespace: &str, kinds: &BTreeSet<String>) -> BTreeMap<String, usize> {
        let counted = self.counted();
        let count =
            |kind: &String| Some((kind.clone(), counted.get(kind)?.cache.in_namespace(namespace).len()));
        kinds.iter().filter_map(count).collect()
    }

    fn counted(&self) -> MutexGuard<'_, BTreeMap<String, Counted>> {
        // Entries are added whole.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("failed to ask what the cluster serves, for quota {quota}")]
    Discover { quota: Key, source: kube::Error },
    #[error("failed to write the status of quota {quota}")]
    Status { quota: Key, source: kube::Error },
}
