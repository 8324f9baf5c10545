//! What is counted, by Kueue's names and in the format of Prometheus.

mod cohorts;
mod resources;

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::Key;
use rules::framework::pod::group_name;
use rules::quota::usage::Usage;
use rules::workload::{ADMITTED, EVICTED, PODS_READY, QUOTA_RESERVED, REQUEUED, change::Eviction, state};
use types::kueue::Workload;

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    families: Mutex<BTreeMap<&'static str, Family>>,
    /// The Cohorts above each ClusterQueue.
    above: Mutex<BTreeMap<String, Vec<String>>>,
}

#[derive(Debug)]
struct Family {
    kind: Kind,
    /// By their labels as they are printed.
    series: BTreeMap<String, Series>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Default)]
struct Series {
    value: f64,
    count: u64,
    /// How many were at most as much as each bound.
    buckets: Vec<(f64, u64)>,
}

/// Labels and their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl Metrics {
    /// A cycle of the admission loop took place.
    pub(crate) fn attempt(&self, admitted: bool, took: Duration) {
        let labels = [("result", if admitted { "success" } else { "inadmissible" })];
        self.add("kueue_admission_attempts_total", &labels);
        self.observe(
            "kueue_admission_attempt_duration_seconds",
            &labels,
            took.as_secs_f64(),
            &usual_bounds(),
        );
    }

    /// Quota was reserved.
    pub(crate) fn quota_reserved(&self, cluster_queue: &str, workload: &Workload, now: Timestamp) {
        let labels = [("cluster_queue", cluster_queue), ("priority_class", state::priority_class(workload))];
        self.add("kueue_quota_reserved_workloads_total", &labels);
        let waited = seconds_since(queued(workload), now);
        self.observe("kueue_quota_reserved_wait_time_seconds", &labels, waited, &wait_bounds(14));
        let queue = local_queue(workload);
        let labels = [queue[0], queue[1], ("priority_class", state::priority_class(workload))];
        self.add("kueue_local_queue_quota_reserved_workloads_total", &labels);
        self.observe("kueue_local_queue_quota_reserved_wait_time_seconds", &labels, waited, &wait_bounds(14));
    }

    /// A Workload was admitted.
    pub(crate) fn admitted(&self, cluster_queue: &str, workload: &Workload, now: Timestamp) {
        let labels = [("cluster_queue", cluster_queue), ("priority_class", state::priority_class(workload))];
        self.add("kueue_admitted_workloads_total", &labels);
        let waited = seconds_since(queued(workload), now);
        self.observe("kueue_admission_wait_time_seconds", &labels, waited, &wait_bounds(16));
        let checked = (!state::checks(workload).is_empty()).then(|| {
            let reserved = state::find(workload, QUOTA_RESERVED).map(|it| it.last_transition_time.0);
            seconds_since(reserved, now)
        });
        if let Some(checked) = checked {
            self.observe("kueue_admission_checks_wait_time_seconds", &labels, checked, &wait_bounds(14));
        }
        let queue = local_queue(workload);
        let labels = [queue[0], queue[1], ("priority_class", state::priority_class(workload))];
        self.add("kueue_local_queue_admitted_workloads_total", &labels);
        self.observe("kueue_local_queue_admission_wait_time_seconds", &labels, waited, &wait_bounds(14));
        if let Some(checked) = checked {
            let name = "kueue_local_queue_admission_checks_wait_time_seconds";
            self.observe(name, &labels, checked, &wait_bounds(14));
        }
        self.cohorts_admitted(cluster_queue, workload);
    }

    /// All pods of a Workload are ready for the first time.
    pub(crate) fn ready(&self, cluster_queue: &str, workload: &Workload, now: Timestamp) {
        let labels = [("cluster_queue", cluster_queue), ("priority_class", state::priority_class(workload))];
        let waited = seconds_since(queued(workload), now);
        self.observe("kueue_ready_wait_time_seconds", &labels, waited, &wait_bounds(14));
        let admitted = state::find(workload, ADMITTED).map(|it| it.last_transition_time.0);
        let since_admission = seconds_since(admitted, now);
        let name = "kueue_admitted_until_ready_wait_time_seconds";
        self.observe(name, &labels, since_admission, &wait_bounds(14));
        let queue = local_queue(workload);
        let labels = [queue[0], queue[1], labels[1]];
        self.observe("kueue_local_queue_ready_wait_time_seconds", &labels, waited, &wait_bounds(14));
        let name = "kueue_local_queue_admitted_until_ready_wait_time_seconds";
        self.observe(name, &labels, since_admission, &wait_bounds(14));
    }

    /// A Workload was evicted, and says so.
    pub(crate) fn evicted(&self, cluster_queue: &str, workload: &Workload, eviction: &Eviction, first: bool) {
        let labels = [
            ("cluster_queue", cluster_queue),
            ("reason", eviction.reason),
            ("underlying_cause", &eviction.cause),
            ("priority_class", state::priority_class(workload)),
        ];
        self.add("kueue_evicted_workloads_total", &labels);
        if first {
            self.add("kueue_evicted_workloads_once_total", &labels);
        }
        let queue = local_queue(workload);
        let labels = [queue[0], queue[1], labels[1], labels[2], labels[3]];
        self.add("kueue_local_queue_evicted_workloads_total", &labels);
        if let (Some(ready), Some(evicted)) = (since(workload, PODS_READY), since(workload, EVICTED)) {
            let labels = [("cluster_queue", cluster_queue), labels[2], labels[3]];
            let ran = seconds_since(Some(ready), evicted);
            self.observe("kueue_pods_ready_to_evicted_time_seconds", &labels, ran, &wait_bounds(14));
        }
    }

    /// One that would have pushed others out was left for another cycle.
    pub(crate) fn skipped_preemption(&self, cluster_queue: &str) {
        // A queue has one head in a cycle.
        self.set("kueue_admission_cycle_preemption_skips", &[("cluster_queue", cluster_queue)], 1.0);
    }

    /// A Workload was evicted for another.
    pub(crate) fn preempted(&self, by: &str, reason: &str) {
        self.add("kueue_preempted_workloads_total", &[("preempting_cluster_queue", by), ("reason", reason)]);
    }

    /// A slice took the place of another one.
    pub(crate) fn replaced(&self, cluster_queue: &str) {
        self.add("kueue_replaced_workload_slices_total", &[("cluster_queue", cluster_queue)]);
    }

    /// An evicted Workload has given back its quota. One that gives it back for something else has nothing to be measured.
    pub(crate) fn released(&self, workload: &Workload, now: Timestamp) {
        let evicted = state::find(workload, EVICTED).filter(|evicted| evicted.status == "True");
        let (Some(queue), Some(evicted)) = (state::cluster_queue(workload), evicted) else { return };
        let labels = [("cluster_queue", queue), ("reason", evicted.reason.as_str())];
        let took = seconds_since(Some(evicted.last_transition_time.0), now);
        self.observe("kueue_workload_eviction_latency_seconds", &labels, took, &wait_bounds(14));
    }

    /// A gate was taken from a pod of an admitted Workload.
    pub(crate) fn ungated(&self, gate: &str, workload: &Workload, pod: &ObjectMeta, now: Timestamp) {
        let Some(admitted) = since(workload, ADMITTED) else { return };
        let is_group = if group_name(pod).is_some() { "true" } else { "false" };
        let queue = state::cluster_queue(workload).unwrap_or_default();
        let labels = [("name", gate), ("cluster_queue", queue), ("is_group", is_group)];
        let took = seconds_since(Some(admitted), now);
        self.observe("kueue_pod_scheduling_gate_removal_seconds", &labels, took, &usual_bounds());
    }

    /// A Job was given its Workload. Of one that changed before that, nobody can say how long it took.
    pub(crate) fn created(&self, kind: &str, job: &ObjectMeta, workload: &Workload) {
        let time = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|time| time.0);
        let Some(created) = time(&workload.metadata).filter(|_| job.generation.unwrap_or(0) <= 1) else {
            return;
        };
        let took = seconds_since(time(job), created);
        self.observe(
            "kueue_workload_creation_latency_seconds",
            &[("job_kind", kind)],
            took,
            &creation_bounds(),
        );
    }

    /// A Workload ended.
    pub(crate) fn finished(&self, cluster_queue: &str, workload: &Workload) {
        let labels = [("cluster_queue", cluster_queue), ("priority_class", state::priority_class(workload))];
        self.add("kueue_finished_workloads_total", &labels);
        let queue = local_queue(workload);
        let labels = [queue[0], queue[1], ("priority_class", state::priority_class(workload))];
        self.add("kueue_local_queue_finished_workloads_total", &labels);
    }

    /// How many that waited for a ClusterQueue have ended and are still there.
    pub(crate) fn ended_in_queue(&self, name: &str, number: usize) {
        self.set("kueue_finished_workloads", &[("cluster_queue", name)], count(number));
    }

    /// The same of a LocalQueue.
    pub(crate) fn ended_in_local_queue(&self, key: &Key, number: usize) {
        let labels = [("name", key.name.as_str()), ("namespace", key.namespace.as_str())];
        self.set("kueue_local_queue_finished_workloads", &labels, count(number));
    }

    /// A copy of a Workload was created on a worker.
    pub(crate) fn dispatched(&self, workload: &Workload, cluster: &str) {
        self.add("multikueue_workloads_dispatched_total", &[manager_queue(workload), ("cluster", cluster)]);
    }

    /// A worker's admission of a Workload counts on the manager, for the first time or again.
    pub(crate) fn admitted_on(&self, workload: &Workload, cluster: &str) {
        self.add("multikueue_workloads_admitted_total", &[manager_queue(workload), ("cluster", cluster)]);
    }

    /// A worker will not have a Workload, for the time being.
    pub(crate) fn refused(&self, workload: &Workload, cluster: &str) {
        self.add("ferry_dispatch_refusals_total", &[manager_queue(workload), ("cluster", cluster)]);
    }

    /// Whether a worker can be reached.
    pub(crate) fn worker(&self, cluster: &str, connected: bool) {
        self.set("ferry_worker_connected", &[("cluster", cluster)], f64::from(u8::from(connected)));
    }

    /// Forgets a worker that is gone.
    pub(crate) fn forget_worker(&self, cluster: &str) {
        self.forget(&label("cluster", cluster));
    }

    /// How a ClusterQueue stands: who waits in line and parked, who holds quota, who is admitted.
    pub(crate) fn cluster_queue(
        &self,
        name: &str,
        status: &str,
        (active, inadmissible): (usize, usize),
        reserving: i32,
        admitted: i32,
    ) {
        let queue = ("cluster_queue", name);
        self.set("kueue_pending_workloads", &[queue, ("status", "active")], count(active));
        self.set("kueue_pending_workloads", &[queue, ("status", "inadmissible")], count(inadmissible));
        self.set("kueue_reserving_active_workloads", &[queue], reserving.into());
        self.set("kueue_admitted_active_workloads", &[queue], admitted.into());
        for each in ["pending", "active", "terminating"] {
            let value = f64::from(u8::from(each == status));
            self.set("kueue_cluster_queue_status", &[queue, ("status", each)], value);
        }
    }

    /// Forgets a ClusterQueue that is gone, with all that was counted of it. What workers did for it stays.
    pub(crate) fn forget_cluster_queue(&self, name: &str) {
        let labels = [label("cluster_queue", name), label("preempting_cluster_queue", name)];
        for (_, family) in self.families().iter_mut().filter(|(family, _)| family.starts_with("kueue_")) {
            family.series.retain(|of, _| !of.split(',').any(|it| labels.iter().any(|label| it == label)));
        }
    }

    /// What is shown of something that is gone goes; what was counted stays.
    fn forget(&self, label: &str) {
        for family in self.families().values_mut().filter(|family| family.kind == Kind::Gauge) {
            family.series.retain(|labels, _| !labels.split(',').any(|it| it == label));
        }
    }

    /// Forgets a LocalQueue that is gone, with all that was counted of it.
    pub(crate) fn forget_local_queue(&self, namespace: &str, name: &str) {
        let of_queue = format!("{},{}", label("name", name), label("namespace", namespace));
        let mut families = self.families();
        for (_, family) in families.iter_mut().filter(|(family, _)| family.starts_with("kueue_local_queue_"))
        {
            family.series.retain(|labels, _| !is_of(labels, &of_queue));
        }
    }

    /// How a LocalQueue stands: who of it waits in line and parked, who holds quota, who is admitted.
    pub(crate) fn local_queue(
        &self,
        key: &Key,
        is_active: bool,
        (active, inadmissible): (usize, usize),
        reserving: i32,
        admitted: i32,
    ) {
        let queue = [("name", key.name.as_str()), ("namespace", key.namespace.as_str())];
        for each in ["True", "False", "Unknown"] {
            let is = each == if is_active { "True" } else { "False" };
            let labels = [queue[0], queue[1], ("active", each)];
            self.set("kueue_local_queue_status", &labels, f64::from(u8::from(is)));
        }
        for (status, pending) in [("active", active), ("inadmissible", inadmissible)] {
            let labels = [queue[0], queue[1], ("status", status)];
            self.set("kueue_local_queue_pending_workloads", &labels, count(pending));
        }
        self.set("kueue_local_queue_reserving_active_workloads", &queue, reserving.into());
        self.set("kueue_local_queue_admitted_active_workloads", &queue, admitted.into());
    }

    /// How much a LocalQueue used, as one number.
    pub(crate) fn usage_of_local_queue(&self, key: &Key, cluster_queue: &str, usage: Usage) {
        let labels = [
            ("name", key.name.as_str()),
            ("namespace", key.namespace.as_str()),
            ("cluster_queue", cluster_queue),
        ];
        self.set("kueue_local_queue_admission_fair_sharing_usage", &labels, usage.as_f64());
    }

    /// An event was not told.
    pub(crate) fn event_lost(&self, why: &str) {
        self.add("ferry_events_lost_total", &[("why", why)]);
    }

    fn add(&self, name: &'static str, labels: Labels<'_>) {
        self.with(name, Kind::Counter, labels, |series| series.value += 1.0);
    }

    fn set(&self, name: &'static str, labels: Labels<'_>, value: f64) {
        self.with(name, Kind::Gauge, labels, |series| series.value = value);
    }

    fn observe(&self, name: &'static str, labels: Labels<'_>, value: f64, bounds: &[f64]) {
        self.with(name, Kind::Histogram, labels, |series| {
            if series.buckets.is_empty() {
                series.buckets = bounds.iter().map(|bound| (*bound, 0)).collect();
            }
            series.value += value;
            series.count += 1;
            for (bound, count) in &mut series.buckets {
                *count += u64::from(value <= *bound);
            }
        });
    }

    fn with(&self, name: &'static str, kind: Kind, labels: Labels<'_>, change: impl FnOnce(&mut Series)) {
        let printed: Vec<String> = labels.iter().map(|(key, value)| label(key, value)).collect();
        let mut families = self.families();
        let family = families.entry(name).or_insert_with(|| Family { kind, series: BTreeMap::new() });
        change(family.series.entry(printed.join(",")).or_default());
    }

    fn families(&self) -> MutexGuard<'_, BTreeMap<&'static str, Family>> {
        // Nothing panics between two states of a number.
        self.families.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything, in the format of Prometheus.
    pub(crate) fn text(&self, role: &str) -> String {
        let mut out = build_info();
        let role = label("replica_role", role);
        for (name, family) in &*self.families() {
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            let mut line = |text: std::fmt::Arguments<'_>| {
                out.write_fmt(text).expect("writing to a string does not fail");
                out.push('\n');
            };
            line(format_args!("# TYPE {name} {kind}"));
            for (labels, series) in &family.series {
                let labels = if labels.is_empty() { role.clone() } else { format!("{labels},{role}") };
                if family.kind != Kind::Histogram {
                    line(format_args!("{name}{{{labels}}} {}", number(series.value)));
                    continue;
                }
                for (bound, count) in &series.buckets {
                    line(format_args!("{name}_bucket{{{labels},le=\"{bound}\"}} {count}"));
                }
                line(format_args!("{name}_bucket{{{labels},le=\"+Inf\"}} {}", series.count));
                line(format_args!("{name}_sum{{{labels}}} {}", series.value));
                line(format_args!("{name}_count{{{labels}}} {}", series.count));
            }
        }
        out
    }
}

/// Whether a series is of labels that begin with these.
fn is_of(labels: &str, first: &str) -> bool {
    labels.strip_prefix(first).is_some_and(|rest| rest.is_empty() || rest.starts_with(','))
}

fn count(number: usize) -> f64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}

fn label(key: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{key}=\"{value}\"")
}

/// Which build this is; Go has no part in it.
fn build_info() -> String {
    let platform = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let labels = [
        label("git_version", concat!("v", env!("CARGO_PKG_VERSION"))),
        label("git_commit", ""),
        label("build_date", ""),
        label("go_version", ""),
        label("compiler", "rustc"),
        label("platform", &platform),
    ];
    format!("# TYPE kueue_build_info gauge\nkueue_build_info{{{}}} 1\n", labels.join(","))
}

/// A number as Prometheus reads it.
fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

/// The queue on the management cluster; without a reservation there is none.
fn manager_queue(workload: &Workload) -> (&'static str, &str) {
    let admission = workload.status.as_ref().and_then(|status| status.admission.as_ref());
    ("cluster_queue", admission.map_or("", |admission| admission.cluster_queue.as_str()))
}

fn local_queue(workload: &Workload) -> [(&str, &str); 2] {
    let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
    [("name", state::queue_name(workload)), ("namespace", namespace)]
}

/// Since when a Workload queues, as it is counted (OB-1).
fn queued(workload: &Workload) -> Option<Timestamp> {
    let requeued = state::find(workload, REQUEUED).map(|it| it.last_transition_time.0);
    requeued.or_else(|| workload.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

/// Since when a condition of a Workload is true.
fn since(workload: &Workload, condition: &str) -> Option<Timestamp> {
    let found = state::find(workload, condition).filter(|it| it.status == "True");
    found.map(|it| it.last_transition_time.0)
}

fn seconds_since(since: Option<Timestamp>, now: Timestamp) -> f64 {
    since.map_or(0.0, |since| now.duration_since(since).as_secs_f64().max(0.0))
}

/// 1, 2.5, 5, and from there on twice as much each time (OB-1).
fn wait_bounds(number: usize) -> Vec<f64> {
    let mut bounds = vec![1.0, 2.5];
    let mut next = 5.0;
    while bounds.len() < number {
        bounds.push(next);
        next *= 2.0;
    }
    bounds
}

/// From a hundredth of a second on twice as much each time (OB-1).
fn creation_bounds() -> Vec<f64> {
    (0..11).map(|power| 0.01 * f64::from(1 << power)).collect()
}

/// The usual bounds of Prometheus.
fn usual_bounds() -> [f64; 11] {
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_1_prints_what_prometheus_reads() {
        let metrics = Metrics::default();
        metrics.attempt(true, Duration::from_millis(20));
        metrics.cluster_queue("a\"b", "active", (2, 1), 3, 4);
        let text = metrics.text("leader");
        for line in [
            r#"kueue_admission_attempts_total{result="success",replica_role="leader"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{result="success",replica_role="leader",le="0.01"} 0"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{result="success",replica_role="leader",le="0.025"} 1"#,
            r#"kueue_admission_attempt_duration_seconds_bucket{result="success",replica_role="leader",le="+Inf"} 1"#,
            r#"kueue_pending_workloads{cluster_queue="a\"b",status="inadmissible",replica_role="leader"} 1"#,
            r#"kueue_cluster_queue_status{cluster_queue="a\"b",status="active",replica_role="leader"} 1"#,
            "# TYPE kueue_pending_workloads gauge",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is missing in\n{text}");
        }
        let (key, other) = (Key::new("ns", "lq"), Key::new("ns", "lq2"));
        metrics.local_queue(&key, false, (0, 1), 0, 0);
        metrics.local_queue(&other, true, (1, 0), 0, 0);
        metrics.usage_of_local_queue(&key, "cq", Usage::default());
        let usage = r#"kueue_local_queue_admission_fair_sharing_usage{name="lq",namespace="ns",cluster_queue="cq",replica_role="leader"} 0"#;
        assert!(metrics.text("leader").contains(usage));
        let status =
            r#"kueue_local_queue_status{name="lq",namespace="ns",active="False",replica_role="leader"} 1"#;
        assert!(metrics.text("leader").contains(status));
        metrics.forget_local_queue("ns", "lq");
        assert!(!metrics.text("leader").contains("\"lq\""));
        assert!(metrics.text("leader").contains("\"lq2\""), "another queue's");
        metrics.preempted("a\"b", "InClusterQueue");
        metrics.forget_cluster_queue("a\"b");
        assert!(!metrics.text("leader").contains("a\\\"b"), "with all that was counted of it");
        assert_eq!(wait_bounds(14).last(), Some(&10240.0));
        assert_eq!(creation_bounds().last(), Some(&10.24));
    }

    /// OB-1: what was so before, and is not so any more, is not measured.
    #[test]
    fn ob_1_evictions_are_measured_by_what_is_true() {
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).expect("within the calendar");
        let workload = |evicted: &str| -> Workload {
            let condition = |kind: &str, status: &str, second: i64| serde_json::json!({ "type": kind, "status": status, "reason": "Preempted", "message": "", "lastTransitionTime": at(second).to_string() });
            let conditions = [condition("PodsReady", "True", 10), condition("Evicted", evicted, 70)];
            let admission = serde_json::json!({ "clusterQueue": "q", "podSetAssignments": [] });
            let status = serde_json::json!({ "conditions": conditions, "admission": admission });
            let spec = serde_json::json!({ "podSets": [] });
            let workload = serde_json::json!({ "metadata": { "name": "w" }, "spec": spec, "status": status });
            serde_json::from_value(workload).expect("a Workload")
        };
        let eviction = Eviction { reason: "Preempted", cause: String::new(), message: String::new() };
        let metrics = Metrics::default();
        let measured = || {
            let text = metrics.text("leader");
            let sums = text.lines().filter(|line| line.contains("seconds_sum{"));
            sums.map(|line| line.rsplit_once(' ').unwrap_or_default().1.to_owned()).collect::<Vec<_>>()
        };
        metrics.evicted("q", &workload("False"), &eviction, true);
        metrics.released(&workload("False"), at(75));
        assert_eq!(measured(), [""; 0]);
        metrics.evicted("q", &workload("True"), &eviction, false);
        metrics.released(&workload("True"), at(75));
        assert_eq!(measured(), ["60", "5"], "from ready to evicted, and from there to released");
    }
}
