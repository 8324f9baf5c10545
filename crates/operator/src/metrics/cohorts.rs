//! Who is part of whom, what Cohorts have and hold with all that is below them, and shares of what is borrowed.

use std::sync::{MutexGuard, PoisonError};

use rules::{quota::standing::Standing, workload::state};
use types::kueue::{ClusterQueue, Workload};

use super::{Metrics, count, is_of, label, resources::amount};

const QUEUES: &str = "kueue_cluster_queue_info";
const COHORTS: &str = "kueue_cohort_info";
const QUOTA: &str = "kueue_cohort_subtree_quota";
const RESERVED: &str = "kueue_cohort_subtree_resource_reservations";

type Above = std::collections::BTreeMap<String, Vec<String>>;

impl Metrics {
    /// Which Cohorts are above each ClusterQueue, from the nearest to the topmost.
    pub(crate) fn hierarchy<'a>(&self, queues: impl Iterator<Item = (&'a str, Vec<String>)>) {
        self.families().remove(QUEUES);
        let above: Above = queues.map(|(name, above)| (name.to_owned(), above)).collect();
        for (name, above) in &above {
            let [parent, root] = [above.first(), above.last()].map(|it| it.map_or("", String::as_str));
            let labels = [("cluster_queue", name.as_str()), ("parent_cohort", parent), ("root_cohort", root)];
            self.set(QUEUES, &labels, 1.0);
        }
        *self.above() = above;
    }

    /// A Workload was admitted, and counts in all Cohorts above its queue.
    pub(super) fn cohorts_admitted(&self, cluster_queue: &str, workload: &Workload) {
        let above = self.above().get(cluster_queue).cloned().unwrap_or_default();
        for cohort in above {
            let labels = [("cohort", cohort.as_str()), ("priority_class", state::priority_class(workload))];
            self.add("kueue_cohort_subtree_admitted_workloads_total", &labels);
        }
    }

    /// How a Cohort stands, with so many Workloads admitted below it. Of what there is none, nothing is shown.
    pub(crate) fn cohort(&self, name: &str, standing: &Standing, admitted: usize) {
        let of_cohort = label("cohort", name);
        for family in [COHORTS, QUOTA, RESERVED] {
            if let Some(family) = self.families().get_mut(family) {
                family.series.retain(|labels, _| !is_of(labels, &of_cohort));
            }
        }
        let parent = standing.parent.as_deref().unwrap_or_default();
        let labels = [("cohort", name), ("parent_cohort", parent), ("root_cohort", standing.root.as_str())];
        self.set(COHORTS, &labels, 1.0);
        for (family, amounts) in [(QUOTA, &standing.quota), (RESERVED, &standing.reserved)] {
            for (fr, some) in amounts.iter().filter(|(_, some)| **some > types::Amount::ZERO) {
                let resource = fr.resource.as_str();
                let labels = [("cohort", name), ("flavor", fr.flavor.as_str()), ("resource", resource)];
                self.set(family, &labels, amount(resource, *some));
            }
        }
        self.set("kueue_cohort_subtree_admitted_active_workloads", &[("cohort", name)], count(admitted));
    }

    /// Forgets a Cohort that nobody knows any more.
    pub(crate) fn forget_cohort(&self, name: &str) {
        let of_cohort = label("cohort", name);
        for (_, family) in
            self.families().iter_mut().filter(|(family, _)| family.starts_with("kueue_cohort_"))
        {
            family.series.retain(|labels, _| !is_of(labels, &of_cohort));
        }
    }

    /// The weighted share of what it borrows of a ClusterQueue, where shares count and metrics are told to show it. That of
    /// one without weight that borrows is no number.
    pub(crate) fn share_of_queue(&self, queue: &ClusterQueue, share: f64) {
        let name = queue.metadata.name.as_deref().unwrap_or_default();
        let cohort = queue.spec.cohort_name.as_deref().unwrap_or_default();
        self.set(
            "kueue_cluster_queue_weighted_share",
            &[("cluster_queue", name), ("cohort", cohort)],
            if share.is_finite() { share } else { f64::NAN },
        );
    }

    /// The same of a Cohort, for which it is infinite, and which is always shown.
    pub(crate) fn share_of_cohort(&self, name: &str, share: f64) {
        self.set("kueue_cohort_weighted_share", &[("cohort", name)], share);
    }

    fn above(&self) -> MutexGuard<'_, Above> {
        // Nothing panics between two states of it.
        self.above.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use rules::quota::names::FlavorResource;
    use types::Amount;

    use super::*;

    /// OB-1, CO-3: a Workload counts in every Cohort above its queue, for as long as these are known.
    #[test]
    fn cohorts_count_what_is_below_them() {
        let metrics = Metrics::default();
        let above = vec!["team".to_owned(), "company".to_owned()];
        metrics.hierarchy([("q", above), ("alone", Vec::new())].into_iter());
        metrics.cohorts_admitted("q", &Workload::default());
        metrics.cohorts_admitted("alone", &Workload::default());
        let standing = Standing {
            parent: Some("company".to_owned()),
            root: "company".to_owned(),
            quota: [(FlavorResource::new("spot", "cpu"), Amount::new(1500))].into(),
            reserved: [(FlavorResource::new("spot", "cpu"), Amount::ZERO)].into(),
            queues: Vec::new(),
        };
        metrics.cohort("team", &standing, 2);
        let text = metrics.text("leader");
        for line in [
            r#"kueue_cluster_queue_info{cluster_queue="q",parent_cohort="team",root_cohort="company",replica_role="leader"} 1"#,
            r#"kueue_cluster_queue_info{cluster_queue="alone",parent_cohort="",root_cohort="",replica_role="leader"} 1"#,
            r#"kueue_cohort_info{cohort="team",parent_cohort="company",root_cohort="company",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_quota{cohort="team",flavor="spot",resource="cpu",replica_role="leader"} 1.5"#,
            r#"kueue_cohort_subtree_admitted_workloads_total{cohort="company",priority_class="",replica_role="leader"} 1"#,
            r#"kueue_cohort_subtree_admitted_active_workloads{cohort="team",replica_role="leader"} 2"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("kueue_cohort_subtree_resource_reservations{"), "nothing is reserved");
        metrics.forget_cohort("team");
        metrics.hierarchy(std::iter::empty());
        let text = metrics.text("leader");
        assert!(!text.contains("\"team\"") && text.contains("\"company\""), "{text}");
    }

    /// OB-1: shares are as exact as they were found, and what one without weight borrows is no number, of a Cohort infinite.
    #[test]
    fn ob_1_shares_are_not_rounded() {
        let metrics = Metrics::default();
        let queue = serde_json::json!({ "metadata": { "name": "q" }, "spec": { "cohortName": "new" } });
        let queue = serde_json::from_value(queue).expect("a ClusterQueue");
        for (share, of_queue, of_cohort) in [(62.5, "62.5", "62.5"), (f64::INFINITY, "NaN", "+Inf")] {
            metrics.share_of_queue(&queue, share);
            metrics.share_of_cohort("new", share);
            let text = metrics.text("leader");
            for line in [
                format!(
                    r#"kueue_cluster_queue_weighted_share{{cluster_queue="q",cohort="new",replica_role="leader"}} {of_queue}"#
                ),
                format!(r#"kueue_cohort_weighted_share{{cohort="new",replica_role="leader"}} {of_cohort}"#),
            ] {
                assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
            }
        }
    }
}
