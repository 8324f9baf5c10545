//! What to do about a Workload of which no cluster holds a job: offer it, and choose who gets it.

use types::kueue::CheckState;

use super::{
    ADMITTED, Because, ClusterName, Dispatcher, FINISHED, Link, Plan, Remote, Step,
    component::{self, Place},
    condition,
    decide::Case,
    drift::Drift,
    nominate::{nominate, nominated, obstacles, takes_new},
    observed::{is_evicted, is_finished},
};

impl Case<'_> {
    /// No cluster holds a job of it.
    pub(super) fn open(&self) -> Plan {
        match self.check.state {
            CheckState::Ready => {
                let why = "Admission check is Ready but no admitting cluster is recorded; this is unexpected, please report it";
                return Plan::of(vec![self.retry(why)], Because::NoRecord);
            }
            CheckState::Retry | CheckState::Rejected => return Plan::wait(Because::Retrying),
            CheckState::Pending => {}
        }
        if is_evicted(self.local) {
            return self.evicted_elsewhere();
        }
        if let Some(plan) = self.returned() {
            return plan;
        }
        let others = self.other_checks();
        if !others.is_empty() {
            return Plan::wait(Because::OtherChecks(others));
        }
        let offered: Vec<ClusterName> = nominated(self.local).collect();
        let (wanted, more_at) = match self.place() {
            Place::First => nominate(self.policy.dispatcher, self.seen, self.local, self.now),
            Place::Beside(cluster) => return self.beside(cluster, &offered),
            Place::Waits(because) => return Plan::wait(because),
            Place::Nowhere(why) => return self.nowhere(&why),
        };
        if let Some(winner) = self.winner(&offered) {
            return Plan::of(vec![Step::Assign(winner.clone())], Because::Admitted(winner.clone()));
        }
        let by_others = self.policy.dispatcher == Dispatcher::External;
        self.offer(wanted, &offered, by_others).again_at(more_at)
    }

    /// Another Workload of its job is on a cluster: it goes there and nowhere else (MK-LWS-04, MK-DISP-06).
    fn beside(&self, cluster: ClusterName, offered: &[ClusterName]) -> Plan {
        let there: Vec<ClusterName> = offered.iter().filter(|it| **it == cluster).cloned().collect();
        match self.winner(&there) {
            Some(winner) => Plan::of(vec![Step::Assign(winner.clone())], Because::Admitted(cluster)),
            None => self.offer(vec![cluster], offered, false),
        }
    }

    /// What it does next to other Workloads of its job.
    fn place(&self) -> Place {
        component::place(self.adapter, self.seen.job.as_deref(), self.local, &self.seen.others)
    }

    fn nowhere(&self, why: &str) -> Plan {
        let says = format!("Waiting for a worker cluster: {why}");
        let step = (self.says() != Some(&says)).then_some(Step::Say(says));
        Plan::of(step.into_iter().collect(), Because::NoCluster)
    }

    /// A manager that keeps no record evicted it, and did not see the end of that: the job is where it is.
    fn evicted_elsewhere(&self) -> Plan {
        let job = self.seen.job.as_deref();
        let holds = |remote: &Remote| remote.mirror_of(self.local, job).is_some();
        let there = self.seen.connected().find(|(_, remote)| holds(remote));
        let steps = there.map(|(cluster, _)| Step::Hold(cluster.clone())).into_iter().collect();
        Plan::of(steps, Because::Evicted)
    }

    /// A cluster that was given up came back with the job, before another one was chosen: what it did counts.
    fn returned(&self) -> Option<Plan> {
        let job = self.seen.job.as_deref();
        for (cluster, remote) in self.seen.connected() {
            let Some(there) = &remote.job else { continue };
            let because = || Because::Leftover(cluster.clone());
            let copy = remote.copy_of(self.local);
            let Some(mirror) = remote.mirror_of(self.local, job) else {
                let of_another = self.of_another_slice(remote);
                if let Some(plan) = self.ended(cluster, remote, None, of_another) {
                    return Some(plan);
                }
                let repointed = copy.is_some() && self.repointed(cluster, there).is_some();
                if repointed {
                    continue;
                }
                return Some(Plan::of(vec![self.delete(cluster, remote)], because()));
            };
            if let Some(plan) = self.ended(cluster, remote, copy.map(|copy| &**copy), Some(mirror)) {
                return Some(plan);
            }
            let runs = copy.is_some_and(|copy| condition::is_true(copy, ADMITTED) && !is_evicted(copy));
            let is_offered = nominated(self.local).any(|offered| offered == *cluster);
            return Some(match (runs && self.seen.configured.contains(cluster), is_offered) {
                (true, true) => {
                    Plan::of(vec![Step::Assign(cluster.clone())], Because::Admitted(cluster.clone()))
                }
                (true, false) => {
                    Plan::of(vec![Step::Nominate(vec![cluster.clone()])], Because::Admitted(cluster.clone()))
                }
                (false, _) => Plan::of(vec![self.delete(cluster, remote)], because()),
            });
        }
        None
    }

    /// The cluster that gets the job: one that admitted the copy. Among several it is the first in the order of their
    /// configuration; their own clocks are not compared (MK-FLOW-20).
    fn winner(&self, offered: &[ClusterName]) -> Option<&ClusterName> {
        self.seen.configured.iter().filter(|cluster| offered.contains(cluster)).find(|cluster| {
            self.seen.remotes.get(*cluster).is_some_and(|remote| {
                takes_new(remote, self.now)
                    && remote.copy_of(self.local).is_some_and(|copy| {
                        condition::is_true(copy, ADMITTED)
                            && !is_evicted(copy)
                            && !is_finished(copy)
                            && Drift::of(self.local, copy) == Drift::None
                    })
            })
        })
    }

    /// Copies where they are wanted, and nowhere else (MK-DISP-03).
    fn offer(&self, wanted: Vec<ClusterName>, offered: &[ClusterName], by_others: bool) -> Plan {
        let mut plan = Plan::wait(if wanted.is_empty() { Because::NoCluster } else { Because::Nominated });
        let is_same = wanted.len() == offered.len() && wanted.iter().all(|cluster| offered.contains(cluster));
        if !is_same && !by_others {
            plan.steps.push(Step::Nominate(wanted.clone()));
        }
        let mut asked = false;
        for (cluster, remote) in &self.seen.remotes {
            if let Some(refusal) = &remote.refusal {
                plan = plan.again_at(Some(refusal.until).filter(|until| *until > self.now));
            }
            let is_wanted = wanted.contains(cluster) && self.seen.configured.contains(cluster);
            if is_wanted && takes_new(remote, self.now) {
                asked = true;
            }
            let is_offered = offered.contains(cluster);
            plan.steps.extend(self.offered(cluster, remote, is_wanted, is_offered));
        }
        plan.steps.extend(self.said(asked));
        plan
    }

    /// A copy is made once it is written that the cluster is offered the Workload: who reads of a copy knows why it is
    /// there (MK-DISP-03, MK-WL-03).
    fn offered(
        &self,
        cluster: &ClusterName,
        remote: &Remote,
        is_wanted: bool,
        is_offered: bool,
    ) -> Vec<Step> {
        let there = remote.link == Link::Connected && remote.same_as.is_none();
        match remote.copy_of(self.local) {
            _ if !there => Vec::new(),
            None if remote.holds_anything() => vec![self.delete(cluster, remote)],
            None if is_wanted && is_offered && takes_new(remote, self.now) => {
                vec![Step::Create(cluster.clone())]
            }
            None => Vec::new(),
            Some(_) if !is_wanted || !takes_new(remote, self.now) => vec![self.delete(cluster, remote)],
            Some(copy) if is_finished(copy) => {
                let why = condition::of(copy, FINISHED).map_or("", |end| end.message.as_str());
                vec![self.delete(cluster, remote), Step::Refuse(cluster.clone(), why.to_owned())]
            }
            Some(copy) => match Drift::of(self.local, copy) {
                Drift::None => Vec::new(),
                Drift::Update(spec) => vec![Step::Update(cluster.clone(), spec)],
                Drift::Other => vec![self.delete(cluster, remote)],
            },
        }
    }

    /// What the check says while nobody can be asked, and that it says nothing once somebody is.
    fn said(&self, asked: bool) -> Option<Step> {
        let says = self.says()?;
        if asked {
            return says.starts_with("Waiting for a worker cluster").then(|| Step::Say(String::new()));
        }
        let wants = obstacles(self.seen, self.now);
        (says != wants).then_some(Step::Say(wants))
    }

    /// Checks of others that are not passed yet: nothing starts anywhere before they are (MK-DISP-02).
    fn other_checks(&self) -> Vec<String> {
        let checks = self.local.status.iter().flat_map(|status| &status.admission_checks);
        let others = checks.filter(|other| other.name != self.check.name && other.state != CheckState::Ready);
        others.map(|other| other.name.clone()).collect()
    }
}
