//! The status of Cohorts: their share, where shares count (CO-5); and what is counted of them.

use std::sync::Arc;

use kube::Api;
use reconcile::{Key, Next, Tasks};
use rules::workload::is_admitted;
use serde_json::json;
use types::kueue::{Cohort, CohortStatus, FairSharingStatus};

use crate::{Context, Error, caches::HOLDING, error::is_outdated, write::patch_status};

/// Starts the controller.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("cohorts", async move {
        context.caches.ready().await;
        let queue = context.work.cohorts.clone();
        queue.run(1, |key| reconcile(Arc::clone(&context), key)).await;
    });
}

/// Shows what is below a Cohort, be it an object or only named by others.
fn count(context: &Context, name: &str) {
    let Some(standing) = context.admission.standing(name) else {
        context.metrics.forget_cohort(name);
        return;
    };
    let workloads = standing.queues.iter().flat_map(|it| context.caches.workloads.by(HOLDING, it.as_str()));
    let admitted = workloads.filter(|workload| is_admitted(workload)).count();
    context.metrics.cohort(name, &standing, admitted);
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    count(&context, &key.name);
    let Some(cohort) = context.caches.cohorts.get(&key) else { return Ok(Next::Done) };
    let shares = context.settings.quota.fair_sharing.is_some();
    let share = shares.then(|| context.admission.share_of_cohort(&key.name).unwrap_or_default());
    if let Some(share) = &share {
        context.metrics.share_of_cohort(&key.name, share.weighted());
    }
    let fair_sharing = share.map(|share| FairSharingStatus { weighted_share: share.rounded() });
    let next = CohortStatus { fair_sharing };
    if cohort.status.clone().unwrap_or_default() == next {
        return Ok(Next::Done);
    }
    let body = json!({ "status": { "fairSharing": next.fair_sharing } });
    let api: Api<Cohort> = Api::all(context.client.clone());
    match patch_status(&api, &*cohort, body).await {
        Ok(answer) => context.caches.cohorts.put(answer),
        Err(error) if is_outdated(&error) => {}
        Err(source) => {
            let (doing, source) = ("write the status of", Box::new(source));
            return Err(Error::Object { doing, kind: "Cohort", name: key, source });
        }
    }
    Ok(Next::Done)
}
