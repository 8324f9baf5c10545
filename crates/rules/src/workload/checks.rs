//! Which admission checks a Workload has to pass, and what they say together.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use types::kueue::{Admission, AdmissionCheckState, CheckState, ClusterQueue, Workload};

use super::{condition, state};

/// The checks that a Workload has to pass in a ClusterQueue (AC-4): those of the flavors that it was given, or, before
/// it was given any, those that everybody has to pass. The latter also hold for a Workload that asks for nothing and so is
/// given no flavor: upstream lets it pass none, and then nobody dispatches a Job that only a dispatcher can run.
pub fn required(cluster_queue: &ClusterQueue, admission: Option<&Admission>) -> BTreeSet<String> {
    let all: BTreeSet<&str> = flavors(cluster_queue);
    let given: Option<BTreeSet<&str>> = admission.map(|admission| {
        let assignments = admission.pod_set_assignments.iter();
        assignments.flat_map(|assigned| assigned.flavors.values()).map(String::as_str).collect()
    });
    let rules = cluster_queue.spec.admission_checks_strategy.iter().flat_map(|it| &it.admission_checks);
    let applies = rules.filter(|rule| {
        let mut on = rule.on_flavors.iter().map(String::as_str).collect::<BTreeSet<_>>();
        if on.is_empty() {
            on.clone_from(&all);
        }
        match &given {
            Some(given) if !given.is_empty() => !on.is_disjoint(given),
            Some(_) | None => on.is_superset(&all),
        }
    });
    applies.map(|rule| rule.name.clone()).collect()
}

/// The flavors of a ClusterQueue.
fn flavors(cluster_queue: &ClusterQueue) -> BTreeSet<&str> {
    let groups = cluster_queue.spec.resource_groups.iter();
    groups.flat_map(|group| &group.flavors).map(|flavor| flavor.name.as_str()).collect()
}

/// The list of checks with those that are required and no others, sorted; `None` if it is right already (AC-4).
pub fn synced(
    there: &[AdmissionCheckState],
    required: &BTreeSet<String>,
    now: Timestamp,
) -> Option<Vec<AdmissionCheckState>> {
    let named: BTreeSet<&str> = there.iter().map(|check| check.name.as_str()).collect();
    if named.len() == there.len() && named.iter().copied().eq(required.iter().map(String::as_str)) {
        return None;
    }
    let find = |name: &String| there.iter().find(|check| check.name == *name).cloned();
    Some(required.iter().map(|name| find(name).unwrap_or_else(|| pending(name, now))).collect())
}

/// A check that has said nothing yet.
pub fn pending(name: &str, now: Timestamp) -> AdmissionCheckState {
    AdmissionCheckState {
        name: name.to_owned(),
        state: CheckState::Pending,
        last_transition_time: Some(condition::time(now)),
        message: String::new(),
        requeue_after_seconds: None,
        retry_count: None,
        pod_set_updates: Vec::new(),
    }
}

/// Until when the checks that want another attempt put the Workload off, if that is later than what is stored (SM-30).
pub fn put_off_until(workload: &Workload, now: Timestamp) -> Option<Timestamp> {
    let retry = state::checks_in(workload, CheckState::Retry);
    let latest = retry.into_iter().filter_map(|check| {
        let after = SignedDuration::from_secs(check.requeue_after_seconds?.into());
        check.last_transition_time.as_ref()?.0.checked_add(after).ok()
    });
    let latest = latest.max().filter(|time| *time > now)?;
    let stored =
        workload.status.as_ref().and_then(|status| status.requeue_state.as_ref()?.requeue_at.as_ref());
    stored.is_none_or(|stored| stored.0 < latest).then_some(latest)
}

/// What some checks say, in Kueue's words.
pub fn message(checks: &[&AdmissionCheckState], state: CheckState) -> String {
    let mut checks = checks.to_vec();
    checks.sort_by(|a, b| a.name.cmp(&b.name));
    let noun = if checks.len() > 1 { "AdmissionChecks" } else { "AdmissionCheck" };
    let parts = checks.iter().map(|check| match check.message.as_str() {
        "" => types::go::quote(&check.name),
        message => format!("{} ({message})", types::go::quote(&check.name)),
    });
    format!("{noun} in {state:?} state: {}", parts.collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn queue() -> ClusterQueue {
        serde_json::from_value(json!({ "metadata": { "name": "q" }, "spec": {
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
                { "name": "spot", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
                { "name": "gold", "resources": [{ "name": "cpu", "nominalQuota": "1" }] },
            ] }],
            "admissionChecksStrategy": { "admissionChecks": [
                { "name": "z-all" },
                { "name": "a-both", "onFlavors": ["gold", "spot"] },
                { "name": "gold-only", "onFlavors": ["gold"] },
            ] },
        } }))
        .expect("a ClusterQueue")
    }

    fn admission(flavor: &str) -> Admission {
        serde_json::from_value(json!({ "clusterQueue": "q", "podSetAssignments": [
            { "name": "main", "flavors": { "cpu": flavor }, "resourceUsage": { "cpu": "1" }, "count": 1 },
        ] }))
        .expect("an admission")
    }

    /// MK-QR-02.
    #[test]
    fn ac_4_checks_follow_the_flavors() {
        let check = |admission: Option<&Admission>, expected: &[&str]| {
            let names: Vec<String> = required(&queue(), admission).into_iter().collect();
            assert_eq!(names, expected);
        };
        check(None, &["a-both", "z-all"]);
        check(Some(&admission("spot")), &["a-both", "z-all"]);
        check(Some(&admission("gold")), &["a-both", "gold-only", "z-all"]);
        let mut of_nothing = admission("gold");
        of_nothing.pod_set_assignments[0].flavors.clear();
        check(Some(&of_nothing), &["a-both", "z-all"]);
    }

    /// MK-QR-02.
    #[test]
    fn ac_4_entries_are_added_kept_and_dropped() {
        let now = Timestamp::from_second(100).expect("a time");
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        assert_eq!(synced(&[], &names(&[]), now), None);
        let first = synced(&[], &names(&["b", "a"]), now).expect("two are new");
        assert_eq!(first.iter().map(|check| check.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let ready = AdmissionCheckState { state: CheckState::Ready, ..pending("b", now) };
        let next = synced(&[pending("a", now), ready.clone()], &names(&["b", "c"]), now).expect("changed");
        assert_eq!(next, [ready.clone(), pending("c", now)]);
        assert_eq!(synced(&next, &names(&["b", "c"]), now), None);
        assert_eq!(synced(&next, &names(&[]), now), Some(Vec::new()));
    }

    #[test]
    fn sm_23_messages_name_all_checks() {
        let now = Timestamp::from_second(100).expect("a time");
        let with =
            |name: &str, message: &str| AdmissionCheckState { message: message.into(), ..pending(name, now) };
        let (a, b) = (with("a", ""), with("b", "no \"room\""));
        assert_eq!(message(&[&a], CheckState::Rejected), r#"AdmissionCheck in Rejected state: "a""#);
        assert_eq!(
            message(&[&b, &a], CheckState::Retry),
            r#"AdmissionChecks in Retry state: "a"; "b" (no "room")"#
        );
    }
}
