//! How a job ends that runs on a worker: what is still to be recorded, and when its Workload has ended, too.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube_core::DynamicObject;
use types::kueue::Workload;

use super::{
    Because, ClusterName, FINISHED, Plan, Remote, Step,
    adapter::{Back, End},
    condition,
    decide::{Case, OUT_OF_SYNC, SOON},
    group, mirror,
};
use crate::workload::{reason::FAILED_TO_START, slice::REPLACED};

impl Case<'_> {
    /// The mirror has ended, or the worker says so of the copy (MK-FLOW-14). `None` if neither.
    pub(super) fn ended(
        &self,
        holder: &ClusterName,
        remote: &Remote,
        copy: Option<&Workload>,
        mirror: Option<&DynamicObject>,
    ) -> Option<Plan> {
        let job = self.seen.job.as_deref()?;
        let end = copy.and_then(|copy| condition::of(copy, FINISHED)).filter(|end| end.status == "True");
        let end = end.filter(|end| !OUT_OF_SYNC.contains(&end.reason.as_str()) && end.reason != REPLACED);
        let is_group = self.adapter.back == Back::Group;
        let mirror_ended = mirror.is_some_and(|mirror| match self.adapter.back {
            // Pods that failed may be replaced: that a group has ended is the worker's to say.
            Back::Group => end.is_some() && group::has_ended(mirror),
            _ => self.adapter.is_finished(&mirror.data) && !self.adapter.is_killed(mirror),
        });
        let never_ends = self.adapter.end == End::Never && !is_group;
        let never_started = end.is_some_and(|end| end.reason == FAILED_TO_START);
        if !mirror_ended && end.is_none() {
            return None;
        }
        let mut plan = Plan::wait(Because::Ended(holder.clone()));
        let recorded = self.adapter.is_finished(&job.data);
        match mirror {
            Some(mirror) if mirror_ended || never_ends => {
                if let Some(status) = mirror::status(self.adapter, job, mirror, self.now) {
                    plan.steps.push(Step::Mirror { cluster: holder.clone(), status });
                    // The end is recorded first, and the Workload follows it.
                    if !never_ends {
                        return Some(plan);
                    }
                }
                let unseen =
                    end.filter(|_| is_group).and_then(|end| self.unseen(holder, remote, mirror, end));
                if let Some(step) = unseen {
                    plan.steps.push(step);
                    return Some(plan.again_at(Some(self.soon())));
                }
            }
            // The job stays as it is, and shows no end.
            _ if never_started => {}
            // The two are watched apart: the end of the mirror is still to come.
            _ if remote.read_at.is_none() => {
                plan.steps.push(Step::Look(holder.clone()));
                return Some(plan.again_at(Some(self.soon())));
            }
            Some(_) => return Some(plan.again_at(Some(self.soon()))),
            None if !recorded => {
                if let Some(status) = end.and_then(|end| mirror::ended(self.adapter, job, end)) {
                    plan.steps.push(Step::Mirror { cluster: holder.clone(), status });
                    return Some(plan);
                }
            }
            None => {}
        }
        let Some(end) = end else { return Some(plan) };
        // Whoever made the Workload for its job ends it with its job; two would write the same. If it does not, we do.
        let its_turn = end.last_transition_time.0.saturating_add(SOON).unwrap_or(self.now);
        if recorded && self.adapter.is_queued_here() && its_turn > self.now {
            return Some(plan.again_at(Some(its_turn)));
        }
        plan.steps.push(Step::Finish { reason: end.reason.clone(), message: end.message.clone() });
        Some(plan)
    }

    /// What to do about pods of a group that has ended and that are not seen there: they are looked for, and those that are
    /// gone have ended, too.
    fn unseen(
        &self,
        holder: &ClusterName,
        remote: &Remote,
        mirror: &DynamicObject,
        end: &Condition,
    ) -> Option<Step> {
        let job = self.seen.job.as_deref()?;
        if group::missing(job, Some(mirror)).is_empty() {
            return None;
        }
        if remote.read_at.is_none() {
            return Some(Step::Look(holder.clone()));
        }
        let status = mirror::ended(self.adapter, job, end)?;
        Some(Step::Mirror { cluster: holder.clone(), status })
    }
}
