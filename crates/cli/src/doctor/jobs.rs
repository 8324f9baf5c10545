//! Jobs that nobody will run.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use rules::dispatch::CONTROLLER;

use super::Findings;
use crate::clusters::layout::Layout;
use crate::connect::Manager;
use crate::jobs;

/// How long whoever a Job names has to show itself.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);
/// The controller that every cluster has.
const BUILT_IN: &str = "kubernetes.io/job-controller";

pub(super) async fn served(
    manager: &Manager,
    layout: &Layout,
    now: Timestamp,
    found: &mut Findings,
) -> anyhow::Result<()> {
    let all = jobs::objects::<Job>(&manager.client, None).await?;
    let before = found.0.len();
    for job in &all {
        judge(job, layout, now, found);
    }
    if found.0.len() == before {
        found.fine("every Job has somebody who runs it");
    }
    Ok(())
}

fn judge(job: &Job, layout: &Layout, now: Timestamp, found: &mut Findings) {
    let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
    let title = format!("job {namespace}/{}", job.metadata.name.as_deref().unwrap_or_default());
    let queue = job.metadata.labels.as_ref().and_then(|labels| labels.get("kueue.x-k8s.io/queue-name"));
    let status = job.status.as_ref();
    let has_ended = status.is_some_and(|status| {
        let conditions = status.conditions.iter().flatten();
        conditions
            .into_iter()
            .any(|it| ["Complete", "Failed"].contains(&it.type_.as_str()) && it.status == "True")
    });
    if has_ended {
        return;
    }
    let here = |name: &str| {
        layout.local_queues.iter().find(|it| {
            it.metadata.name.as_deref() == Some(name) && it.metadata.namespace.as_deref() == Some(namespace)
        })
    };
    if let Some(queue) = queue.filter(|queue| here(queue).is_none()) {
        found.wrong(
            format!("{title} names queue {queue}, which is not in its namespace"),
            "create the LocalQueue, or change the label kueue.x-k8s.io/queue-name",
        );
        return;
    }
    let leads_elsewhere = queue.and_then(|queue| here(queue)).is_some_and(|queue| {
        let leads_to = layout.cluster_queue(&queue.spec.cluster_queue);
        leads_to.is_some_and(|leads_to| layout.clusters_of(leads_to).next().is_some())
    });
    match job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref()) {
        Some(CONTROLLER) if queue.is_none() => found.wrong(
            format!("{title} is to run on a worker (managedBy: {CONTROLLER}), but names no queue"),
            "label it kueue.x-k8s.io/queue-name",
        ),
        Some(CONTROLLER) if !leads_elsewhere => found.wrong(
            format!(
                "{title} is to run on a worker, but queue {} sends nothing there",
                queue.map_or("", String::as_str)
            ),
            "name an AdmissionCheck for workers in its ClusterQueue (ferry join makes one)",
        ),
        None | Some(BUILT_IN | CONTROLLER) => {}
        Some(other) => {
            let is_untouched = status.is_none_or(|status| *status == JobStatus::default());
            let age = job.metadata.creation_timestamp.as_ref().map(|created| now.duration_since(created.0));
            if is_untouched && age.is_some_and(|age| age > PATIENCE) {
                found.odd(
                    format!("{title} is managed by {other}, who has done nothing about it"),
                    "start that controller, or create the Job anew with another managedBy",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judged(labels: Value, managed_by: &str) -> String {
        let empty = Layout {
            clusters: Vec::new(),
            configs: Vec::new(),
            checks: Vec::new(),
            cluster_queues: Vec::new(),
            local_queues: Vec::new(),
            workloads: Vec::new(),
        };
        let job = json!({
            "metadata": {
                "name": "a", "namespace": "n", "labels": labels, "creationTimestamp": "2024-01-01T00:00:00Z",
            },
            "spec": { "managedBy": managed_by, "template": {} },
        });
        let mut found = Findings::default();
        judge(&serde_json::from_value(job).expect("a Job"), &empty, Timestamp::now(), &mut found);
        found.0.first().map(|finding| finding.what.clone()).unwrap_or_default()
    }

    #[test]
    fn jobs_that_nobody_runs_are_found() {
        assert_eq!(judged(json!({}), BUILT_IN), "");
        assert_eq!(
            judged(json!({}), "example.com/mine"),
            "job n/a is managed by example.com/mine, who has done nothing about it"
        );
        assert_eq!(
            judged(json!({}), CONTROLLER),
            "job n/a is to run on a worker (managedBy: kueue.x-k8s.io/multikueue), but names no queue"
        );
        assert_eq!(
            judged(json!({ "kueue.x-k8s.io/queue-name": "q" }), CONTROLLER),
            "job n/a names queue q, which is not in its namespace"
        );
    }
}
