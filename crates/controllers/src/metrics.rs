//! What the controllers count, for whoever publishes it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counters and gauges by name and labels. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct Metrics {
    shared: Arc<Mutex<Counted>>,
}

type Labels = Vec<(&'static str, String)>;
type Gauge = Box<dyn Fn() -> Vec<Sample> + Send + Sync>;

#[derive(Default)]
struct Counted {
    counters: BTreeMap<(String, Labels), u64>,
    gauges: Vec<Gauge>,
}

/// One value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The metric.
    pub name: String,
    /// `counter` or `gauge`.
    pub kind: &'static str,
    /// Labels and their values.
    pub labels: Vec<(&'static str, String)>,
    /// How much.
    pub value: u64,
}

impl Metrics {
    /// Adds to a counter.
    pub(crate) fn add(&self, name: impl Into<String>, labels: Labels, by: u64) {
        *self.counted().counters.entry((name.into(), labels)).or_default() += by;
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

    /// Everything, in the order of names and labels.
    pub fn samples(&self) -> Vec<Sample> {
        let counted = self.counted();
        let counters = counted.counters.iter().map(|((name, labels), value)| Sample {
            name: name.clone(),
            kind: "counter",
            labels: labels.clone(),
            value: *value,
        });
        let mut samples: Vec<Sample> =
            counters.chain(counted.gauges.iter().flat_map(|gauge| gauge())).collect();
        samples.sort_by(|a, b| (&a.name, &a.labels).cmp(&(&b.name, &b.labels)));
        samples
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
        let mut last = String::new();
        for sample in self.samples() {
            if sample.name != last {
                writeln!(f, "# TYPE {} {}", sample.name, sample.kind)?;
                last.clone_from(&sample.name);
            }
            f.write_str(&sample.name)?;
            for (i, (label, value)) in sample.labels.iter().enumerate() {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                write!(f, "{}{label}=\"{value}\"", if i == 0 { '{' } else { ',' })?;
            }
            if !sample.labels.is_empty() {
                f.write_str("}")?;
            }
            writeln!(f, " {}", sample.value)?;
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
        assert_eq!(
            metrics.to_string(),
            "# TYPE a gauge\na 7\n# TYPE b_total counter\nb_total{who=\"a \\\"b\\\"\"} 3\n"
        );
    }
}
