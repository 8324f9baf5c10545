//! What is accepted but worth a word (W-01…W-04), as it stands in the `Warning` headers of an answer.

use k8s_openapi::api::batch::v1::{Job, JobSpec};

use super::{is_indexed, spec};
use crate::field::Path;
use crate::{names, pod};

/// What deleting a Job answers when the client did not say what becomes of the pods (W-05).
pub const PODS_ARE_PRESERVED: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

const MANY_COMPLETIONS: i32 = 100_000;
const MANY_PODS: i32 = 10_000;

/// Warnings about a new Job.
pub fn on_create(job: &Job) -> Vec<String> {
    let mut warnings = Vec::new();
    let problems = names::dns_label(job.metadata.name.as_deref().unwrap_or(""));
    if !problems.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
             label is recommended: [{}]",
            problems.join(" ")
        ));
    }
    warnings.extend(on_spec(spec(job), None, &Path::new("spec")));
    warnings
}

/// Warnings about a changed Job; a change of metadata alone is not worth any.
pub fn on_update(new: &Job, old: &Job) -> Vec<String> {
    if new.metadata.generation == old.metadata.generation {
        return Vec::new();
    }
    on_spec(spec(new), Some(spec(old)), &Path::new("spec"))
}

/// Warnings about the spec of a Job, wherever it stands.
pub(crate) fn on_spec(spec: &JobSpec, old: Option<&JobSpec>, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    let is_more = |count: Option<i32>, limit| count.is_some_and(|count| count > limit);
    if is_indexed(spec) && is_more(spec.completions, MANY_COMPLETIONS) && is_more(spec.parallelism, MANY_PODS)
    {
        warnings.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    let old = old.map(|old| &old.template);
    warnings.extend(pod::warnings::for_template(&spec.template, old, &path.child("template")));
    warnings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(name: &str, spec: serde_json::Value) -> Job {
        let job = json!({"metadata": {"name": name, "generation": 1}, "spec": spec});
        serde_json::from_value(job).expect("a test's Job")
    }

    fn many() -> serde_json::Value {
        json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001})
    }

    #[test]
    fn w_01_names_that_are_no_dns_labels() {
        assert_eq!(on_create(&job("a", json!({}))), Vec::<String>::new());
        assert_eq!(
            on_create(&job("a.b", json!({}))),
            [
                "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
              label is recommended: [must not contain dots]"
            ]
        );
    }

    #[test]
    fn w_02_many_indexes() {
        assert!(
            on_create(&job("a", many()))[0].starts_with("spec: In Indexed Jobs with a number of completions")
        );
        let few = json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_000});
        assert_eq!(on_create(&job("a", few)), Vec::<String>::new());
        let (mut new, old) = (job("a", many()), job("a", many()));
        assert_eq!(on_update(&new, &old), Vec::<String>::new(), "the generation did not change");
        new.metadata.generation = Some(2);
        assert_eq!(on_update(&new, &old).len(), 1);
    }
}
