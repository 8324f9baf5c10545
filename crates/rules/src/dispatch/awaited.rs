//! What a Workload's check says while a cluster is waited for that may hold its job: what for, since when, and what can be
//! done about it. To wait is always safe, and whoever looks at a job that does not move has to find out why.

use jiff::{SignedDuration, Timestamp};
use types::kueue::CheckState;

use super::{ClusterName, Left, Link, Plan, Remote, Step, decide::Case, local::admitted_on};

/// How long a cluster may keep a Workload waiting before that is worth a word.
const PATIENCE: SignedDuration = SignedDuration::from_mins(1);

/// How what is said begins as long as the check is not passed, followed by the name of the cluster.
const WAITING: &str = "Waiting for worker cluster ";

impl Case<'_> {
    /// A plan, and what is to be said of the cluster whose word it waits for; what was said before is taken back.
    pub(super) fn told(&self, mut plan: Plan, cluster: Option<&ClusterName>) -> Plan {
        // Whoever acts on a check that failed is told why it did, and by nobody else.
        let is_open = matches!(self.check.state, CheckState::Pending | CheckState::Ready);
        let says = |step: &Step| {
            matches!(step, Step::Say(_) | Step::Ready(_) | Step::Retry { .. } | Step::Reject(_))
        };
        if self.seen.check.is_none() || !is_open || plan.steps.iter().any(says) {
            return plan;
        }
        let (what, later) = cluster.map_or((None, None), |cluster| self.awaited(cluster));
        let said = self.says().unwrap_or_default();
        let next = match (cluster, what) {
            (Some(cluster), Some(what)) => Some(self.saying(cluster, &what)),
            _ if said.starts_with(WAITING) => Some(String::new()),
            (Some(cluster), None) if said.starts_with(&self.saying(cluster, "")) => {
                Some(admitted_on(cluster))
            }
            _ => None,
        };
        plan.steps.extend(next.filter(|next| next != said).map(Step::Say));
        plan.again_at(later)
    }

    /// Whether a check that is passed says so, alone or with what is waited for.
    pub(super) fn says_admitted(&self, cluster: &ClusterName) -> bool {
        let awaited = self.awaited(cluster).0.map(|what| self.saying(cluster, &what));
        self.says() == Some(&admitted_on(cluster)) || self.says() == awaited.as_deref()
    }

    fn saying(&self, cluster: &ClusterName, what: &str) -> String {
        match self.check.state {
            CheckState::Ready => format!("{}, {what}", admitted_on(cluster)),
            _ => format!("{WAITING}\"{cluster}\", {what}"),
        }
    }

    /// What is waited for there, or when that will be worth a word.
    fn awaited(&self, cluster: &ClusterName) -> (Option<String>, Option<Timestamp>) {
        let Some(remote) = self.seen.remotes.get(cluster) else {
            return (Some("whose MultiKueueCluster is gone".to_owned()), None);
        };
        match remote.link {
            Link::Lost { .. } if self.given_up_at(Some(remote)).is_some_and(|at| at <= self.now) => (None, None),
            Link::Lost { since, .. } => self.after(since, |since| {
                format!(
                    "which cannot be reached since {since:.0}; if it is gone for good: ferry drain --given-up {cluster}"
                )
            }),
            Link::Connecting => {
                (remote.hides.as_ref().map(|why| format!("which does not show its jobs: {why}")), None)
            }
            Link::Connected => self.awaited_there(remote),
        }
    }

    /// Of a cluster that can be reached: pods that outlive their job, and a mirror that does not go.
    fn awaited_there(&self, remote: &Remote) -> (Option<String>, Option<Timestamp>) {
        const REMOVE: &str = "whoever knows that nothing of it runs any more can remove them there";
        match &remote.left {
            Some(Left::Pods(count)) if !remote.holds_anything() => {
                let what = format!("where the job is gone and {count} of its pods are not; {REMOVE}");
                return (Some(what), None);
            }
            Some(Left::Until(until)) if !remote.holds_anything() => {
                return (
                    Some(format!("where the job is gone and its pods may not be until {until:.0}")),
                    None,
                );
            }
            _ => {}
        }
        let leaves = remote.job.as_deref().and_then(|mirror| mirror.metadata.deletion_timestamp.as_ref());
        let Some(since) = leaves else { return (None, None) };
        self.after(since.0, |since| {
            format!(
                "where the job is being deleted since {since:.0} and its pods or finalizers keep it; {REMOVE}"
            )
        })
    }

    /// Something that goes on since then.
    fn after(
        &self,
        since: Timestamp,
        what: impl FnOnce(Timestamp) -> String,
    ) -> (Option<String>, Option<Timestamp>) {
        let at = since.saturating_add(PATIENCE).unwrap_or(since);
        if at > self.now { (None, Some(at)) } else { (Some(what(since)), None) }
    }
}
