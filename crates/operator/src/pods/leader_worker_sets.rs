//! LeaderWorkerSets that are queued, of which each replica is a group of pods.

use std::sync::Arc;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::core::DynamicObject;
use reconcile::{Cache, Key, Queue};
use rules::framework::{
    Kind, Plan,
    apps::{
        LEADER_WORKER_SET, Todo,
        leader_worker_set::{LeaderWorkerSet, Seen, decide},
    },
};

use super::{caches::SET, wholes::Whole};
use crate::{Context, caches::COMPONENTS};

pub(super) struct LeaderWorkerSets;

impl Whole for LeaderWorkerSets {
    type Object = DynamicObject;
    const KIND: Kind = LEADER_WORKER_SET;

    fn queue(context: &Context) -> &Queue<Key> {
        &context.work.leader_worker_sets
    }

    fn get(&self, context: &Context, key: &Key) -> Option<Arc<DynamicObject>> {
        context.caches.kinds.seen(&LEADER_WORKER_SET)?.get(key)
    }

    fn metadata(set: &DynamicObject) -> &ObjectMeta {
        &set.metadata
    }

    fn todo(&self, context: &Context, pods: &Cache<Pod>, key: &Key, set: &DynamicObject) -> Todo {
        let pods = pods.by(SET, &key.to_string());
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let workloads = context.caches.workloads.by(COMPONENTS, uid);
        let set = match LeaderWorkerSet::read(set) {
            Ok(set) => set,
            Err(why) => return Todo::Workloads(vec![Plan::retry(why)]),
        };
        context.with_classes(|classes| {
            decide(&Seen {
                set: &set,
                pods: &pods,
                workloads: &workloads,
                manages_without_queue_name: context.settings.manage_jobs_without_queue_name,
                copied_labels: &context.settings.jobs.copied_labels,
                classes,
            })
        })
    }
}
