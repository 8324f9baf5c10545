//! What the controllers count, for whoever publishes it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::SignedDuration;

/// Counters, histograms and gauges by name and labels. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Metrics {
    shared: Arc<Mutex<Counted>>,
}

type Labels = Vec<(&'static str, String)>;
type Gauge = Box<dyn Fn() -> Vec<Sample> + Send + Sync>;

#[derive(Default)]
struct Counted {
    counters: BTreeMap<(String, Labels), u64>,
    histograms: BTreeMap<(&'static str, Labels), Histogram>,
    gauges: Vec<Gauge>,
}

/// Bounds of a histogram, each twice the one before.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    /// The smallest.
    pub(crate) first: f64,
    /// How many there are.
    pub(crate) count: usize,
}

impl Bounds {
    fn all(self) -> impl Iterator<Item = f64> {
        std::iter::successors(Some(self.first), |bound| Some(bound * 2.0)).take(self.count)
    }
}

/// How long something took.
struct Histogram {
    bounds: Bounds,
    /// How many were within each bound.
    within: Vec<u64>,
    count: u64,
    sum: f64,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The metric.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// How much.
    pub value: u64,
}

/// What is written of one metric after its name.
struct Line {
    /// What is added to the name, for parts of a histogram.
    part: &'static str,
    labels: Labels,
    value: String,
}

/// All of one metric.
struct Family {
    kind: &'static str,
    lines: Vec<Line>,
}

impl Metrics {
    /// Adds to a counter.
    pub(crate) fn add(&self, name: impl Into<String>, labels: Labels, by: u64) {
        *self.counted().counters.entry((name.into(), labels)).or_default() += by;
    }

    /// Adds how long something took to a histogram.
    pub(crate) fn took(&self, name: &'static str, labels: Labels, time: SignedDuration, bounds: Bounds) {
        let seconds = time.as_secs_f64().max(0.0);
        let mut counted = self.counted();
        let histogram = counted.histograms.entry((name, labels)).or_insert_with(|| Histogram {
            bounds,
            within: vec![0; bounds.count],
            count: 0,
            sum: 0.0,
        });
        histogram.count += 1;
        histogram.sum += seconds;
        for (within, bound) in histogram.within.iter_mut().zip(bounds.all()) {
            *within += u64::from(seconds <= bound);
        }
    }

    /// Adds what a rule counted.
    pub(crate) fn count<'a>(&self, increments: impl IntoIterator<Item = &'a rules::job::metrics::Increment>) {
        for increment in increments {
            let name = format!("job_controller_{}", increment.name);
            self.add(name, increment.labels.clone(), increment.by);
        }
    }

    /// A value that is worked out when somebody asks.
    pub(crate) fn gauge(&self, value: impl Fn() -> Vec<Sample> + Send + Sync + 'static) {
        self.counted().gauges.push(Box::new(value));
    }

    /// Everything by its name, in the order of labels.
    fn families(&self) -> BTreeMap<String, Family> {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut add = |name: &str, kind, part, labels: &Labels, value: String| {
            let family =
                families.entry(name.to_owned()).or_insert_with(|| Family { kind, lines: Vec::new() });
            family.lines.push(Line { part, labels: labels.clone(), value });
        };
        let counted = self.counted();
        for ((name, labels), value) in &counted.counters {
            add(name, "counter", "", labels, value.to_string());
        }
        let mut gauges: Vec<Sample> = counted.gauges.iter().flat_map(|gauge| gauge()).collect();
        gauges.sort_by(|a, b| a.labels.cmp(&b.labels));
        for gauge in gauges {
            add(&gauge.name, gauge.kind, "", &gauge.labels, gauge.value.to_string());
        }
        for ((name, labels), histogram) in &counted.histograms {
            let bounds = histogram.bounds.all().map(|bound| bound.to_string());
            let counts = histogram.within.iter().chain([&histogram.count]);
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(counts) {
                let labels = labels.iter().cloned().chain([("le", bound)]).collect();
                add(name, "histogram", "_bucket", &labels, count.to_string());
            }
            add(name, "histogram", "_sum", labels, histogram.sum.to_string());
            add(name, "histogram", "_count", labels, histogram.count.to_string());
        }
        families
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        // Nothing that holds it can panic half-way: numbers are added one at a time.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// As Prometheus reads them.
impl fmt::Display for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, family) in self.families() {
            writeln!(f, "# TYPE {name} {}", family.kind)?;
            for line in family.lines {
                write!(f, "{name}{}", line.part)?;
                for (i, (label, value)) in line.labels.iter().enumerate() {
                    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    write!(f, "{}{label}=\"{value}\"", if i == 0 { '{' } else { ',' })?;
                }
                if !line.labels.is_empty() {
                    f.write_str("}")?;
                }
                writeln!(f, " {}", line.value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_prometheus_reads_them() {
        let metrics = Metrics::default();
        metrics.add("b_total", vec![("who", "a \"b\"".to_owned())], 2);
        metrics.add("b_total", vec![("who", "a \"b\"".to_owned())], 1);
        metrics.gauge(|| vec![Sample { name: "a".to_owned(), kind: "gauge", labels: vec![], value: 7 }]);
        let bounds = Bounds { first: 0.1, count: 2 };
        for millis in [50, 200, 900] {
            let took = SignedDuration::from_millis(millis);
            metrics.took("c_seconds", vec![("how", "well".to_owned())], took, bounds);
        }
        assert_eq!(
            metrics.to_string(),
            "# TYPE a gauge\na 7\n# TYPE b_total counter\nb_total{who=\"a \\\"b\\\"\"} 3\n\
             # TYPE c_seconds histogram\nc_seconds_bucket{how=\"well\",le=\"0.1\"} 1\nc_seconds_bucket{how=\"well\",le=\"0.2\"} 2\n\
             c_seconds_bucket{how=\"well\",le=\"+Inf\"} 3\nc_seconds_sum{how=\"well\"} 1.15\nc_seconds_count{how=\"well\"} 3\n"
        );
    }
}
