//! StatefulSets that are queued, whose pods are one group.

use std::sync::Arc;

use k8s_openapi::{
    api::{apps::v1::StatefulSet, core::v1::Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use reconcile::{Cache, Key, Queue};
use rules::framework::{
    Kind,
    apps::{
        STATEFUL_SET, Todo,
        stateful_set::{Seen, decide, is_own, name},
    },
};

use super::wholes::Whole;
use crate::{Context, caches::OWNER_UID};

pub(super) struct StatefulSets;

impl Whole for StatefulSets {
    type Object = StatefulSet;
    const KIND: Kind = STATEFUL_SET;

    fn queue(context: &Context) -> &Queue<Key> {
        &context.work.stateful_sets
    }

    fn get(&self, context: &Context, key: &Key) -> Option<Arc<StatefulSet>> {
        context.caches.pods.stateful_sets.as_ref()?.get(key)
    }

    fn metadata(set: &StatefulSet) -> &ObjectMeta {
        &set.metadata
    }

    fn is_own(set: &StatefulSet) -> bool {
        is_own(set)
    }

    fn todo(&self, context: &Context, pods: &Cache<Pod>, key: &Key, set: &StatefulSet) -> Todo {
        let pods = pods.by(OWNER_UID, set.metadata.uid.as_deref().unwrap_or_default());
        let workload = Key::new(key.namespace.as_str(), name(&set.metadata));
        let workload = context.caches.workloads.get(&workload);
        context.with_classes(|classes| {
            let seen = Seen {
                set,
                pods: &pods,
                workload: workload.as_ref(),
                manages_without_queue_name: context.settings.manage_jobs_without_queue_name,
                runs_elsewhere: &|workload| context.runs_elsewhere(workload),
                classes,
            };
            decide(&seen, context.clock.now())
        })
    }
}
