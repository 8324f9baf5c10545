//! Fills in the rules of cluster roles that are made of others.

use std::time::Duration;

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::ResourceExt as _;
use kube::api::Api;
use reconcile::{Key, Next, Queue};
use rules::rbac::{Part, aggregated};

use crate::context::Context;
use crate::{Run, api};

/// Says what the controller watches, and returns its work.
pub(crate) fn prepare(context: &Context) -> Run {
    let queue: Queue<Key> = Queue::new();
    let roles = context.kinds.cluster_roles.wanted();
    let (line, known) = (queue.clone(), roles.clone());
    roles.on_change(move |change| {
        line.add(change.key.clone());
        if known.is_ready() {
            for role in known.all().into_iter().filter(|role| role.aggregation_rule.is_some()) {
                line.add(Key::of(&*role));
            }
        }
    });
    let context = context.clone();
    Box::pin(async move {
        roles.ready().await;
        for role in roles.all().into_iter().filter(|role| role.aggregation_rule.is_some()) {
            queue.add(Key::of(&*role));
        }
        queue
            .run(1, |key| {
                let context = context.clone();
                async move { sync(&context, key).await }
            })
            .await;
    })
}

async fn sync(context: &Context, key: Key) -> Result<Next, Error> {
    let Some(role) = context.kinds.cluster_roles.get(&key) else { return Ok(Next::Done) };
    let Some(aggregation) = &role.aggregation_rule else { return Ok(Next::Done) };
    let all = context.kinds.cluster_roles.all();
    let parts = all.iter().map(|part| -> Part<'_, PolicyRule> {
        let name = part.metadata.name.as_deref().unwrap_or_default();
        (name, part.labels(), part.rules.as_deref().unwrap_or_default())
    });
    let selectors = aggregation.cluster_role_selectors.as_deref().unwrap_or_default();
    let rules = aggregated(&key.name, selectors, parts);
    if role.rules.as_deref().unwrap_or_default() == rules {
        return Ok(Next::Done);
    }
    let mut changed = (*role).clone();
    changed.rules = Some(rules);
    let roles: Api<ClusterRole> = Api::all(context.client.clone());
    match roles.replace(&key.name, &api::post(), &changed).await {
        Ok(written) => context.kinds.cluster_roles.put(written),
        Err(error) if api::is_not_found(&error) => {}
        Err(error) if api::is_conflict(&error) => return Ok(Next::After(Duration::from_millis(20))),
        Err(source) => return Err(Error { role: key, source }),
    }
    Ok(Next::Done)
}

#[derive(Debug, thiserror::Error)]
#[error("failed to write cluster role {role}")]
struct Error {
    role: Key,
    source: kube::Error,
}
