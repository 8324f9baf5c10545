//! The controllers of EndpointSlices and Endpoints: where the pods of a service are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt as _;
use kube::api::Api;
use reconcile::{Key, Next, Queue};
use rules::endpoint_slice::{
    MANAGED_BY, MANAGER, MIRROR, Plan, SERVICE_NAME, endpoints, is_behind, mirrored, selects, slices,
};

use crate::context::Context;
use crate::{Run, api};

/// Services that are worked on at once.
const AT_ONCE: usize = 16;
/// Pods change in crowds.
const BATCH: Duration = Duration::from_millis(20);
/// Index of slices by namespace and service.
const BY_SERVICE: &str = "service";
/// Index of mirroring slices by namespace and Endpoints.
const BY_ENDPOINTS: &str = "endpoints";

/// Says what the controller of EndpointSlices watches, and returns its work.
pub(crate) fn prepare_slices(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (services, pods) = (kinds.services.feeding(&queue), kinds.pods.wanted());
    let (nodes, known) = (kinds.nodes.wanted(), kinds.endpoint_slices.wanted());
    known.index(BY_SERVICE, |slice| of_service(slice).into_iter().collect());
    feed_by_pods(context, &queue);
    let line = queue.clone();
    known.on_change(move |change| {
        let slices = change.old.into_iter().chain(change.new);
        for name in slices.filter(|slice| is_ours(slice)).filter_map(|slice| slice.labels().get(SERVICE_NAME))
        {
            line.add_after(Key::new(&change.key.namespace, name), BATCH);
        }
    });
    let reads = [services.filled(), pods.filled(), nodes.filled(), known.filled()];
    context.work(queue, AT_ONCE, reads, sync_slices)
}

/// Says what the controller of slices that mirror Endpoints watches, and returns its work.
pub(crate) fn prepare_mirrors(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (services, endpoints) = (kinds.services.feeding(&queue), kinds.endpoints.feeding(&queue));
    let known = kinds.endpoint_slices.wanted();
    known.index(BY_ENDPOINTS, |slice| of_endpoints(slice).into_iter().collect());
    let line = queue.clone();
    known.on_change(move |change| {
        let slices = change.old.into_iter().chain(change.new);
        for name in slices
            .filter(|slice| is_kept_by(slice, MIRROR))
            .filter_map(|slice| slice.labels().get(SERVICE_NAME))
        {
            line.add_after(Key::new(&change.key.namespace, name), BATCH);
        }
    });
    context.work(queue, AT_ONCE, [services.filled(), endpoints.filled(), known.filled()], sync_mirrors)
}

/// Says what the controller of Endpoints watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let kinds = &context.kinds;
    let (services, pods) = (kinds.services.feeding(&queue), kinds.pods.wanted());
    let known = kinds.endpoints.feeding(&queue);
    feed_by_pods(context, &queue);
    context.work(queue, AT_ONCE, [services.filled(), pods.filled(), known.filled()], sync)
}

/// Every change of a pod calls for a look at the services that it is behind, or was.
fn feed_by_pods(context: &Context, queue: &Queue<Key>) {
    let (line, services) = (queue.clone(), context.kinds.services.clone());
    context.kinds.pods.on_change(move |change| {
        if !services.is_ready() {
            return;
        }
        for service in services.in_namespace(&change.key.namespace) {
            if change.old.into_iter().chain(change.new).any(|pod| is_behind(&service, pod)) {
                line.add_after(Key::of(&*service), BATCH);
            }
        }
    });
}

fn is_ours(slice: &EndpointSlice) -> bool {
    is_kept_by(slice, MANAGER)
}

fn is_kept_by(slice: &EndpointSlice, keeper: &str) -> bool {
    slice.labels().get(MANAGED_BY).is_some_and(|manager| manager == keeper)
}

fn of_endpoints(slice: &EndpointSlice) -> Option<String> {
    let name = slice.labels().get(SERVICE_NAME).filter(|_| is_kept_by(slice, MIRROR))?;
    Some(format!("{}/{name}", slice.namespace().unwrap_or_default()))
}

fn of_service(slice: &EndpointSlice) -> Option<String> {
    let name = slice.labels().get(SERVICE_NAME).filter(|_| is_ours(slice))?;
    Some(format!("{}/{name}", slice.namespace().unwrap_or_default()))
}

fn behind(context: &Context, service: &Service, key: &Key) -> Vec<Arc<Pod>> {
    let pods = context.kinds.pods.in_namespace(&key.namespace);
    pods.into_iter().filter(|pod| is_behind(service, pod)).collect()
}

async fn sync_slices(context: Context, key: Key) -> Result<Next, Error> {
    let kinds = &context.kinds;
    // The slices of a service that is gone follow it by their owner.
    let Some(service) = kinds.services.get(&key).filter(|service| selects(service)) else {
        return Ok(Next::Done);
    };
    if service.metadata.deletion_timestamp.is_some() {
        return Ok(Next::Done);
    }
    let (pods, nodes) = (behind(&context, &service, &key), kinds.nodes.all());
    let known = kinds.endpoint_slices.by(BY_SERVICE, &key.to_string());
    let plan = {
        let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
        let nodes: BTreeMap<String, &Node> = nodes.iter().map(|node| (node.name_any(), &**node)).collect();
        let known: Vec<&EndpointSlice> = known.iter().map(Arc::as_ref).collect();
        slices(&service, &pods, &nodes, &known)
    };
    apply(&context, key, &plan).await
}

async fn sync_mirrors(context: Context, key: Key) -> Result<Next, Error> {
    let kinds = &context.kinds;
    let (endpoints, service) = (kinds.endpoints.get(&key), kinds.services.get(&key));
    let known = kinds.endpoint_slices.by(BY_ENDPOINTS, &key.to_string());
    let known: Vec<&EndpointSlice> = known.iter().map(Arc::as_ref).collect();
    let plan = mirrored(endpoints.as_deref(), service.as_deref(), &known);
    apply(&context, key, &plan).await
}

/// Writes what was decided about slices.
async fn apply(context: &Context, key: Key, plan: &Plan) -> Result<Next, Error> {
    let kinds = &context.kinds;
    let all: Api<EndpointSlice> = Api::namespaced(context.client.clone(), &key.namespace);
    for slice in &plan.create {
        match all.create(&api::post(), slice).await {
            Ok(created) => kinds.endpoint_slices.put(created),
            Err(error) if api::is_namespace_terminating(&error) => return Ok(Next::Done),
            Err(source) => return Err(Error { service: key, source }),
        }
    }
    for slice in &plan.update {
        match all.replace(&slice.name_any(), &api::post(), slice).await {
            Ok(written) => kinds.endpoint_slices.put(written),
            Err(error) if api::is_conflict(&error) || api::is_not_found(&error) => {
                return Ok(Next::After(BATCH));
            }
            Err(source) => return Err(Error { service: key, source }),
        }
    }
    for name in &plan.delete {
        match all.delete(name, &api::delete(None, None)).await {
            Ok(_) => {}
            Err(error) if api::is_not_found(&error) => {}
            Err(source) => return Err(Error { service: key, source }),
        }
    }
    Ok(Next::Done)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let kinds = &context.kinds;
    let all: Api<Endpoints> = Api::namespaced(context.client.clone(), &key.namespace);
    let known = kinds.endpoints.get(&key);
    let Some(service) = kinds.services.get(&key) else {
        // Those of a service that is gone go, too; others were made by somebody who knows why.
        let ours = known.filter(|it| it.labels().contains_key("endpoints.kubernetes.io/managed-by"));
        return match ours {
            None => Ok(Next::Done),
            Some(gone) => match all.delete(&key.name, &api::delete(gone.uid().as_deref(), None)).await {
                Ok(_) => Ok(Next::Done),
                Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => Ok(Next::Done),
                Err(source) => Err(Error { service: key, source }),
            },
        };
    };
    if !selects(&service) {
        return Ok(Next::Done);
    }
    let pods = behind(&context, &service, &key);
    let pods: Vec<&Pod> = pods.iter().map(Arc::as_ref).collect();
    let Some(changed) = endpoints(&service, &pods, known.as_deref()) else { return Ok(Next::Done) };
    let written = match known {
        None => all.create(&api::post(), &changed).await,
        Some(_) => all.replace(&key.name, &api::post(), &changed).await,
    };
    match written {
        Ok(written) => kinds.endpoints.put(written),
        Err(error) if api::is_namespace_terminating(&error) => {}
        Err(error)
            if api::is_conflict(&error) || api::is_not_found(&error) || api::is_already_exists(&error) =>
        {
            return Ok(Next::After(BATCH));
        }
        Err(source) => return Err(Error { service: key, source }),
    }
    Ok(Next::Done)
}

#[derive(Debug, thiserror::Error)]
#[error("failed to tell where the pods of service {service} are")]
struct Error {
    service: Key,
    source: kube::Error,
}
