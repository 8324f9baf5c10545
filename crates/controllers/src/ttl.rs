//! Deletes finished Jobs when their time to live is over, whoever manages them (L-01…L-06).

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt as _;
use kube::api::{Api, PropagationPolicy};
use reconcile::{Key, Next, Queue};
use rules::job::ttl::{Ttl, UnknownFinishTime, decide};
use tracing::info;

use crate::context::Context;
use crate::metrics::Bounds;
use crate::{Run, api};

/// Jobs that are worked on at once.
const AT_ONCE: usize = 16;
/// How long after their time is over Jobs are deleted is counted within these (L-06).
const DELAY: Bounds = Bounds { first: 0.1, count: 14 };

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let jobs = context.kinds.jobs.wanted();
    let line = queue.clone();
    jobs.on_change(move |change| {
        let ttl = |job: &Job| job.spec.as_ref().and_then(|spec| spec.ttl_seconds_after_finished);
        if change.new.is_some_and(|job| ttl(job).is_some() && rules::job::is_finished(job)) {
            line.add(change.key.clone());
        }
    });
    context.work(queue, AT_ONCE, [jobs.filled()], sync)
}

async fn sync(context: Context, key: Key) -> Result<Next, Error> {
    let context = &context;
    let Some(job) = context.kinds.jobs.get(&key) else { return Ok(Next::Done) };
    let now = context.clock.now();
    let unknown = |source| Error::Finished { source };
    if let Err(next) = over_since(decide(&job, now).map_err(unknown)?, now) {
        return Ok(next);
    }
    // L-04: somebody may have given it more time since.
    let jobs: Api<Job> = Api::namespaced(context.client.clone(), &key.namespace);
    let failed = |source| Error::Request { job: key.clone(), source };
    let Some(fresh) = jobs.get_opt(&key.name).await.map_err(failed)? else { return Ok(Next::Done) };
    if fresh.uid() != job.uid() {
        return Ok(Next::Done);
    }
    let since = match over_since(decide(&fresh, now).map_err(unknown)?, now) {
        Ok(since) => since,
        Err(next) => return Ok(next),
    };
    let params = api::delete(fresh.uid().as_deref(), Some(PropagationPolicy::Foreground));
    match jobs.delete(&key.name, &params).await {
        Ok(_) => {
            info!(job = %key, "deleted, its time to live is over");
            let late = context.clock.now().duration_since(since);
            context.metrics.took(
                "ttl_after_finished_controller_job_deletion_duration_seconds",
                vec![],
                late,
                DELAY,
            );
        }
        Err(error) if api::is_not_found(&error) || api::is_conflict(&error) => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(Next::Done)
}

/// Since when the time is over, or when to look again.
fn over_since(ttl: Ttl, now: Timestamp) -> Result<Timestamp, Next> {
    match ttl {
        Ttl::Keep => Err(Next::Done),
        Ttl::Wait(at) => Err(Next::After(at.duration_since(now).try_into().unwrap_or_default())),
        Ttl::Delete(since) => Ok(since),
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Finished { source: UnknownFinishTime },
    #[error("failed to delete job {job}, whose time to live is over")]
    Request { job: Key, source: kube::Error },
}
