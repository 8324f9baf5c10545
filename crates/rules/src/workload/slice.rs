//! Slices: the Workloads of a Job that may grow and shrink while it runs (JF-80). One of them holds quota; one that is to
//! take its place, because the Job wants more, names it.

use types::kueue::Workload;

use super::ELASTIC_JOB;

/// The annotation of a slice, and of its pods, with the name of the first slice of its Job.
pub const SLICE_NAME: &str = "kueue.x-k8s.io/workload-slice-name";
/// The annotation of a slice that is to take the place of another one, as namespace and name.
pub const REPLACEMENT_FOR: &str = "kueue.x-k8s.io/workload-slice-replacement-for";
/// The reason for which a slice ends whose place another one has taken.
pub const REPLACED: &str = "WorkloadSliceReplaced";

/// Whether a Workload is a slice.
pub fn is_elastic(workload: &Workload) -> bool {
    annotation(workload, ELASTIC_JOB) == Some("true")
}

/// The name of the slice whose place a Workload is to take. It is one of the same namespace, or none.
pub fn replaces(workload: &Workload) -> Option<&str> {
    let (namespace, name) = annotation(workload, REPLACEMENT_FOR)?.split_once('/')?;
    (workload.metadata.namespace.as_deref() == Some(namespace)).then_some(name)
}

/// The name of the first slice of a Workload's Job.
pub fn name(workload: &Workload) -> Option<&str> {
    annotation(workload, SLICE_NAME)
}

fn annotation<'a>(workload: &'a Workload, key: &str) -> Option<&'a str> {
    workload.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// JF-83: only what is in reach of the same user can be replaced.
    #[test]
    fn jf_83_a_slice_replaces_one_of_its_namespace() {
        let of = |said: &str| -> Workload {
            let metadata =
                json!({ "name": "b", "namespace": "ns", "annotations": { REPLACEMENT_FOR: said } });
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "podSets": [] } }))
                .expect("a Workload")
        };
        assert_eq!(replaces(&of("ns/a")), Some("a"));
        assert_eq!(replaces(&of("other/a")), None);
        assert_eq!(replaces(&of("a")), None);
    }
}
