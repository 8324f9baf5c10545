//! What a cluster counts of itself, under the names that dashboards of Kubernetes know.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, StatusCode, header, request};

use crate::answer::{self, Answer};
use crate::cluster::Cluster;
use crate::object;
use crate::request::{Target, Verb};

/// The bounds of kube-apiserver's buckets, in seconds.
const BOUNDS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0,
    20.0, 30.0, 45.0, 60.0,
];

/// What requests are told apart by. Only what the cluster serves stands here, so nobody can make more of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Labels {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    is_dry_run: bool,
}

impl Labels {
    /// A request that is not about a resource, or about none that is served.
    pub(crate) fn of_method(method: &Method) -> Self {
        let verb = ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"];
        let verb = verb.into_iter().find(|known| *known == method.as_str()).unwrap_or("other");
        let text = String::new;
        Labels {
            verb,
            group: text(),
            version: text(),
            resource: text(),
            subresource: text(),
            scope: "",
            is_dry_run: false,
        }
    }

    /// A request about a resource that is served.
    pub(crate) fn of_target(target: &Target, is_known: bool, is_apply: bool, is_dry_run: bool) -> Self {
        let subresource = target.subresource.as_deref().filter(|_| is_known).unwrap_or("");
        let verb = match target.verb {
            _ if matches!(subresource, "exec" | "attach" | "portforward" | "proxy") => "CONNECT",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        };
        let scope = match (&target.name, &target.namespace, target.verb) {
            (Some(_), ..) | (None, _, Verb::Create) => "resource",
            (None, Some(_), _) => "namespace",
            _ => "cluster",
        };
        Labels {
            verb,
            group: target.group.clone(),
            version: target.version.clone(),
            resource: target.resource.clone(),
            subresource: subresource.to_owned(),
            scope,
            is_dry_run,
        }
    }

    fn is_long(&self) -> bool {
        matches!(self.verb, "WATCH" | "CONNECT")
    }

    fn write(&self, out: &mut String) {
        let dry_run = if self.is_dry_run { "All" } else { "" };
        let Labels { verb, group, version, resource, subresource, scope, .. } = self;
        write!(
            out,
            "component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",\
             subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
        .expect("memory");
    }
}

/// How long requests took.
#[derive(Debug, Clone, Default)]
struct Histogram {
    /// How many fit into a bucket and into none before it.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    sum: f64,
}

#[derive(Debug, Default)]
struct Requests {
    codes: BTreeMap<u16, u64>,
    durations: Histogram,
}

/// What else in this process is counted, as Prometheus reads it.
pub type Counts = dyn Fn() -> String + Send + Sync;

/// The counters of a cluster.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// They may know the cluster, and so are not held.
    others: Mutex<Vec<Weak<Counts>>>,
    requests: Mutex<BTreeMap<Labels, Requests>>,
    /// Requests that are being answered: those that only read, and the others.
    in_flight: [AtomicI64; 2],
}

/// A request that is being answered, until this is dropped.
pub(crate) struct InFlight<'a>(&'a AtomicI64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let in_flight = [AtomicI64::new(0), AtomicI64::new(0)];
        Metrics { others: Mutex::default(), requests: Mutex::default(), in_flight }
    }
}

impl Metrics {
    /// A request begins.
    pub(crate) fn begin(&self, method: &Method) -> InFlight<'_> {
        let is_mutating = !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        let counter = &self.in_flight[usize::from(is_mutating)];
        counter.fetch_add(1, Ordering::Relaxed);
        InFlight(counter)
    }

    /// A request was answered. What goes on and on took no time to speak of.
    pub(crate) fn end(&self, labels: Labels, code: StatusCode, took: Duration) {
        let is_long = labels.is_long();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let found = requests.entry(labels).or_default();
        *found.codes.entry(code.as_u16()).or_default() += 1;
        if is_long {
            return;
        }
        let seconds = took.as_secs_f64();
        found.durations.count += 1;
        found.durations.sum += seconds;
        if let Some(bucket) = BOUNDS.iter().position(|bound| seconds <= *bound) {
            found.durations.buckets[bucket] += 1;
        }
    }

    /// Tells from now on what others count, for as long as they hold it.
    pub(crate) fn publish(&self, counts: &Arc<Counts>) {
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(counts));
    }

    fn write_others(&self, out: &mut String) {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for counts in others.iter().filter_map(Weak::upgrade) {
            out.push_str(&counts());
        }
    }

    fn write(&self, out: &mut String) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        describe(out, "apiserver_request_total", "counter", "Answered requests by verb, resource and code.");
        for (labels, found) in requests.iter() {
            for (code, count) in &found.codes {
                write!(out, "apiserver_request_total{{code=\"{code}\",").expect("memory");
                labels.write(out);
                writeln!(out, "}} {count}").expect("memory");
            }
        }
        let name = "apiserver_request_duration_seconds";
        describe(out, name, "histogram", "How long answers took, watches and connections aside.");
        for (labels, found) in requests.iter().filter(|(labels, _)| !labels.is_long()) {
            let mut below = 0;
            let bounds = BOUNDS.iter().zip(&found.durations.buckets).map(|(bound, count)| {
                below += count;
                (bound.to_string(), below)
            });
            let all: Vec<(String, u64)> =
                bounds.chain(std::iter::once(("+Inf".to_owned(), found.durations.count))).collect();
            for (bound, count) in all {
                write!(out, "{name}_bucket{{").expect("memory");
                labels.write(out);
                writeln!(out, ",le=\"{bound}\"}} {count}").expect("memory");
            }
            for (part, value) in
                [("sum", found.durations.sum.to_string()), ("count", found.durations.count.to_string())]
            {
                write!(out, "{name}_{part}{{").expect("memory");
                labels.write(out);
                writeln!(out, "}} {value}").expect("memory");
            }
        }
        let name = "apiserver_current_inflight_requests";
        describe(out, name, "gauge", "Requests that are being answered.");
        for (kind, count) in ["readOnly", "mutating"].iter().zip(&self.in_flight) {
            writeln!(out, "{name}{{request_kind=\"{kind}\"}} {}", count.load(Ordering::Relaxed))
                .expect("memory");
        }
    }
}

/// `/metrics`.
pub(crate) fn answer(cluster: &Cluster, _: &request::Parts) -> Answer {
    let mut out = String::new();
    let version = schema::Pack::v1_35().version();
    describe(&mut out, "kubernetes_build_info", "gauge", "Which Kubernetes this is.");
    writeln!(
        out,
        "kubernetes_build_info{{git_version=\"{version}+ferry\",major=\"1\",minor=\"35\",platform=\"linux/amd64\"}} 1"
    )
    .expect("memory");
    cluster.metrics().write(&mut out);
    write_objects(cluster, &mut out);
    cluster.metrics().write_others(&mut out);
    process::write(&mut out);
    let mut answer = answer::text(StatusCode::OK, out);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// Stored objects of each resource, under the old name and the new one.
fn write_objects(cluster: &Cluster, out: &mut String) {
    let registry = cluster.registry();
    let mut counted: BTreeMap<String, (String, String, usize)> = BTreeMap::new();
    let view = cluster.store().view();
    for resource in registry.iter().filter(|resource| resource.allows("list")) {
        let stored = object::storage_name(resource);
        counted.entry(stored.clone()).or_insert_with(|| {
            let count = view.list(&store::Scope::resource(&stored)).count();
            (resource.group.clone(), resource.plural.clone(), count)
        });
    }
    describe(out, "apiserver_storage_objects", "gauge", "Stored objects by resource.");
    for (name, (.., count)) in &counted {
        let name = name.trim_end_matches('.');
        writeln!(out, "apiserver_storage_objects{{resource=\"{name}\"}} {count}").expect("memory");
    }
    describe(out, "apiserver_resource_objects", "gauge", "Stored objects by group and resource.");
    for (group, resource, count) in counted.values() {
        writeln!(out, "apiserver_resource_objects{{group=\"{group}\",resource=\"{resource}\"}} {count}")
            .expect("memory");
    }
}

fn describe(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("memory");
}

/// How long a request has taken so far.
pub(crate) fn clock() -> impl Fn() -> Duration {
    let begun = Instant::now();
    move || begun.elapsed()
}

mod process {
    //! What the operating system says of this process. Where it says nothing, nothing is written.

    use std::fmt::Write as _;

    /// Ticks in a second: what Linux tells every program, whatever the kernel counts by.
    const TICKS: f64 = 100.0;

    pub(super) fn write(out: &mut String) {
        let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
        // The name of the program may hold anything, blanks and brackets included.
        let Some((_, rest)) = stat.rsplit_once(')') else { return };
        let fields: Vec<f64> = rest.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or(0.0);
        let mut gauge = |name: &str, kind: &str, help: &str, value: f64| {
            super::describe(out, name, kind, help);
            writeln!(out, "{name} {value}").expect("memory");
        };
        let cpu = (field(14) + field(15)) / TICKS;
        gauge("process_cpu_seconds_total", "counter", "Time that processors spent on this process.", cpu);
        if let Some(boot) = boot_time() {
            let started = boot + field(22) / TICKS;
            gauge("process_start_time_seconds", "gauge", "When this process began.", started);
        }
        gauge(
            "process_virtual_memory_bytes",
            "gauge",
            "Memory that this process has addresses for.",
            field(23),
        );
        if let Some(resident) = resident() {
            gauge("process_resident_memory_bytes", "gauge", "Memory that this process has.", resident);
        }
        if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
            #[expect(clippy::cast_precision_loss, reason = "nobody has that many")]
            gauge("process_open_fds", "gauge", "Open files and connections.", open.count() as f64);
        }
        if let Some(most) = most_files() {
            gauge("process_max_fds", "gauge", "Files and connections that may be open.", most);
        }
    }

    fn boot_time() -> Option<f64> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
    }

    fn resident() -> Option<f64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
    }

    fn most_files() -> Option<f64> {
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_for_as_long_as_they_count() {
        let metrics = Metrics::default();
        let counts: Arc<Counts> = Arc::new(|| "theirs 1\n".to_owned());
        metrics.publish(&counts);
        let told = || {
            let mut out = String::new();
            metrics.write_others(&mut out);
            out
        };
        assert_eq!(told(), "theirs 1\n");
        drop(counts);
        assert_eq!(told(), "");
    }

    #[test]
    fn buckets_count_what_is_below_them() {
        let metrics = Metrics::default();
        let labels = || Labels::of_method(&Method::GET);
        metrics.end(labels(), StatusCode::OK, Duration::from_millis(4));
        metrics.end(labels(), StatusCode::OK, Duration::from_millis(30));
        metrics.end(labels(), StatusCode::NOT_FOUND, Duration::from_secs(100));
        let mut out = String::new();
        let busy = metrics.begin(&Method::POST);
        metrics.write(&mut out);
        drop(busy);
        let value = |start: &str, end: &str| {
            let line = out.lines().find(|line| line.starts_with(start) && line.contains(end));
            line.and_then(|line| line.rsplit(' ').next()).unwrap_or("none").to_owned()
        };
        assert_eq!(value("apiserver_request_total", "code=\"200\""), "2");
        assert_eq!(value("apiserver_request_total", "code=\"404\""), "1");
        let bucket = "apiserver_request_duration_seconds_bucket";
        assert_eq!(value(bucket, "le=\"0.005\""), "1");
        assert_eq!(value(bucket, "le=\"0.05\""), "2");
        assert_eq!(value(bucket, "le=\"60\""), "2");
        assert_eq!(value(bucket, "le=\"+Inf\""), "3");
        assert_eq!(value("apiserver_current_inflight_requests", "mutating"), "1");
    }
}
