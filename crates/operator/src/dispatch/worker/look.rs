//! What is on a worker, read there and then: what a watch has told may be old, and what it has not told may still come.

use std::time::Duration;

use kube::{api::ListParams, core::DynamicObject};
use reconcile::Key;
use rules::dispatch::{self, Adapter};

use super::{Error, Kind, Lane, connection, is_ours, linked, members};

impl Lane<'_> {
    /// Reads what is there, as it is now and not as a watch tells of it.
    pub(super) async fn look(&self) -> Result<Option<Duration>, Error> {
        // What arrives while it is asked for may not be in the answers.
        let asked = self.shared.clock.now();
        let api = self.worker.workloads_in(&self.key.namespace);
        let (mut was_ours, mut pods) = (false, None);
        if let Some(there) = self.call("read a Workload", api.get_opt(&self.key.name)).await? {
            was_ours |= self.was_ours(&there.metadata);
            self.claim_workload(there);
        } else if let Some(known) = &self.worker.workloads.get(self.key) {
            self.worker.workloads.removed(known);
        }
        if let (Some(kind), true) = (self.kind(), self.is_group()) {
            was_ours |= self.look_at_members(kind).await?;
        } else if let (Some(kind), Some(name)) = (self.kind(), self.job_name()) {
            let api = self.worker.objects_in(kind.adapter, &self.key.namespace);
            let known = kind.objects.get(&Key::new(self.key.namespace.as_str(), name.as_str()));
            if let Some(there) = self.call("read a job", api.get_opt(&name)).await? {
                was_ours |= self.was_ours(&there.metadata);
                if !is_ours(&there.metadata, &self.shared.settings.origin) {
                    pods = self.outlive(kind.adapter, &name, Some(&there)).await?;
                }
                self.claim_job(kind, there);
            } else {
                if let Some(known) = known {
                    kind.objects.removed(&known);
                }
                pods = self.outlive(kind.adapter, &name, None).await?;
            }
        }
        if was_ours {
            return Ok(Some(self.shared.settings.heartbeat));
        }
        connection::is_still_itself(self.shared, self.connection, &self.worker.client).await?;
        let before = self.connection.book.left(self.key);
        let wait = self.connection.book.read(self.key, asked, pods);
        if wait.is_none() || self.connection.book.left(self.key) != before {
            // What was found there has woken by itself. That nothing was, and nothing can come, is news only now.
            self.shared.wake.workload(self.key.clone());
        }
        Ok(wait.map(Duration::try_from).and_then(Result::ok))
    }

    /// How many pods of a job of this name go on though it is not there, or is somebody else's; `None` if nobody may look. Whoever
    /// deletes a job usually lets its pods go after it, or stay.
    async fn outlive(
        &self,
        adapter: &Adapter,
        name: &str,
        theirs: Option<&DynamicObject>,
    ) -> Result<Option<usize>, Error> {
        let pods = Adapter::of("v1", "Pod").filter(|pods| self.worker.kind(pods).is_some());
        let (Some(pods), Some(label)) = (pods, adapter.pods) else { return Ok(None) };
        // Of a Job alone it can be said which pods are its own.
        if theirs.is_some() && adapter.kind != "Job" {
            return Ok(None);
        }
        let go_on = ListParams::default()
            .labels(&format!("{label}={name}"))
            .fields("status.phase!=Succeeded,status.phase!=Failed");
        let api = self.worker.objects_in(pods, &self.key.namespace);
        let there = match self.call("list pods", api.list_metadata(&go_on)).await {
            Ok(there) => there,
            Err(error) if error.is_refusal() => return Ok(None),
            Err(error) => return Err(error),
        };
        let theirs = theirs.and_then(|job| job.metadata.uid.as_deref());
        let is_theirs = |pod: &kube::core::PartialObjectMeta<DynamicObject>| {
            let owners = pod.metadata.owner_references.iter().flatten();
            theirs.is_some_and(|uid| owners.into_iter().any(|owner| owner.uid == uid))
        };
        Ok(Some(there.items.iter().filter(|pod| !is_theirs(pod)).count()))
    }

    /// Reads which pods of a group are there. Says whether some of them were ours under another origin.
    async fn look_at_members(&self, kind: &Kind) -> Result<bool, Error> {
        let api = self.worker.objects_in(kind.adapter, &self.key.namespace);
        let all = self.call("list pods", api.list(&ListParams::default().labels(dispatch::ORIGIN))).await?;
        let is_linked = |pod: &DynamicObject| linked(pod).as_ref() == Some(self.key);
        let there: Vec<DynamicObject> = all.items.into_iter().filter(is_linked).collect();
        let uids: Vec<&Option<String>> = there.iter().map(|pod| &pod.metadata.uid).collect();
        for known in self.worker.pods_of(self.key) {
            if !uids.contains(&&known.metadata.uid) {
                kind.objects.removed(&known);
            }
        }
        let origin = &self.shared.settings.origin;
        let mut was_ours = false;
        for pod in there {
            if is_ours(&pod.metadata, origin) {
                kind.objects.put(pod);
            } else {
                was_ours |= self.is_member(&pod.metadata);
            }
        }
        Ok(was_ours)
    }

    /// Whether something was made of a pod of the group.
    fn is_member(&self, there: &kube::core::ObjectMeta) -> bool {
        let of = there.annotations.as_ref().and_then(|all| all.get(dispatch::ORIGIN_UID));
        let local = self.seen.local.as_deref();
        let pods = local.map(|local| members::pods_of(self.shared, self.key, local)).unwrap_or_default();
        of.is_some() && pods.iter().any(|pod| pod.metadata.uid.as_ref() == of)
    }
}
