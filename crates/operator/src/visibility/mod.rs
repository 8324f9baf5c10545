//! Who waits where, for everybody who may know: the API group `visibility.kueue.x-k8s.io` (VI-1, VI-2), served by whoever
//! sees the cluster, whether it acts or not (VI-3). An embedded cluster calls it ([`answer`]), a real one asks over HTTP
//! ([`server`]).
//!
//! - `request`: what a path asks for; `documents`: what is told about the API itself; `status`: what is refused, and how.
//! - `access`: who may ask over HTTP; `registration`: how the cluster knows that it is us whom it asks.
//!
//! Who acts shows its queues as they are; the others see the same in the objects, but for whom others are on their way out.

mod access;
mod documents;
mod registration;
mod request;
pub mod server;
mod status;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use reconcile::Key;
use rules::quota::{usage, wire};
use rules::visibility::{self, Page, Summary};
use serde_json::Value;
use types::kueue::{ClusterQueue, LocalQueue, StopPolicy, Workload};

use crate::{Context, Operator, caches::LEADS_TO};
pub use documents::{entry, resources};
pub(crate) use registration::{names as api_services, spec as api_service};
use request::{Asked, Queue, Target};
pub use rules::visibility::{GROUP, VERSIONS};
use status::Refusal;

/// An answer, whole.
pub type Answer = Response<Bytes>;

/// Answers a request, of somebody who may ask it.
pub async fn answer(operator: &Operator, method: &Method, uri: &Uri, headers: &HeaderMap) -> Answer {
    let asked = request::read(uri.path());
    let given = match asked {
        Asked::Resource(target) => pending(operator, method, uri, headers, &target).await,
        Asked::Path(path) => documents::answer(operator, method, path, headers),
    };
    given.unwrap_or_else(Refusal::answer)
}

async fn pending(
    operator: &Operator,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    target: &Target<'_>,
) -> Result<Answer, Refusal> {
    let queue = target.queue().ok_or(Refusal::NoSuchResource)?;
    request::expect_read(method)?;
    request::expect_json(headers)?;
    let page = request::page(uri.query().unwrap_or_default()).map_err(Refusal::BadRequest)?;
    // Who has seen nothing yet says nothing wrong, and nothing for the moment.
    operator.ready().await;
    let items = operator.context.shown(&queue, page)?;
    let summary = serde_json::to_vec(&Summary::new(target.version, items)).expect("a summary is JSON");
    Ok(json(StatusCode::OK, summary))
}

impl Context {
    /// A part of a queue, or that there is no such queue.
    fn shown(&self, queue: &Queue<'_>, page: Page) -> Result<Vec<visibility::Pending>, Refusal> {
        match *queue {
            Queue::Cluster(name) => {
                let found = self.caches.cluster_queue(name);
                let found = found.ok_or_else(|| Refusal::no_such_queue("clusterqueue", name))?;
                let order = self.order(&found);
                Ok(visibility::of_cluster_queue(order.iter().map(|workload| &**workload), page))
            }
            Queue::Local { namespace, name } => {
                let found = self.caches.local_queues.get(&Key::new(namespace, name));
                // One that is stopped is none, as long as it is (LQ-4).
                let found = found.filter(|queue| is_open(queue));
                let found = found.ok_or_else(|| Refusal::no_such_queue("localqueue", name))?;
                let leads_to = self.caches.cluster_queue(&found.spec.cluster_queue);
                let order = leads_to.map(|queue| self.order(&queue)).unwrap_or_default();
                let order = order.iter().map(|workload| &**workload);
                Ok(visibility::of_local_queue(order, namespace, name, page))
            }
        }
    }

    /// Who waits for a ClusterQueue, in its order (QU-2).
    fn order(&self, queue: &ClusterQueue) -> Vec<Arc<Workload>> {
        let name = queue.metadata.name.as_deref().unwrap_or_default();
        if let Some(keys) = self.admission.order(name) {
            return keys.iter().filter_map(|key| self.caches.workloads.get(key)).collect();
        }
        let waiting = self.waiting_for(name);
        let from = self.settings.requeuing_timestamp;
        let objects = waiting.iter().map(|workload| &**workload);
        // Who does not act knows of use what was written down.
        let by_usage = self.settings.quota.by_usage.as_ref();
        let used = by_usage.map(|_| self.caches.local_queues.by(LEADS_TO, name)).unwrap_or_default();
        let used = used.iter().map(|local_queue| &**local_queue);
        let nobody = wire::queue(queue, used, by_usage.unwrap_or(&usage::Settings::default()));
        let order = visibility::in_order(nobody, objects, from, self.clock.now());
        order.into_iter().filter_map(|workload| self.caches.workloads.get(&Key::of(workload))).collect()
    }
}

fn is_open(queue: &LocalQueue) -> bool {
    queue.spec.stop_policy.unwrap_or_default() == StopPolicy::None
}

fn json(code: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = code;
    let media = http::HeaderValue::from_static("application/json");
    answer.headers_mut().insert(http::header::CONTENT_TYPE, media);
    answer
}

fn value(value: &Value) -> Answer {
    json(StatusCode::OK, value.to_string())
}
