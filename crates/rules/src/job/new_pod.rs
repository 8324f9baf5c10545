//! The pods that a Job creates, as they go to the API server: everything but the random end of the name.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::pods::{Facts, INDEX_FAILURES_KEY, INDEX_IGNORED_FAILURES_KEY, INDEX_KEY, TRACKING_FINALIZER};

/// The environment variable that tells a container its index.
const INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// What the API server leaves of a `generateName`; the name gets five more characters.
const LONGEST_PREFIX: usize = 58;

/// The index that a new pod takes, and what befell that index before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) index: u32,
    /// Failures to hand on, of a Job that counts them per index.
    pub(crate) failures: Option<Failures>,
}

/// The failures of an index so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    counted: i32,
    ignored: i32,
}

impl Failures {
    /// The failures before the pod that takes the place of `replaced` (I-12).
    pub(crate) fn after(replaced: Option<&Facts>) -> Self {
        let Some(pod) = replaced else { return Failures::default() };
        let counts = pod.verdict.counts();
        Failures {
            counted: pod.index_failures.saturating_add(i32::from(counts)),
            ignored: pod.index_ignored_failures.saturating_add(i32::from(!counts)),
        }
    }
}

/// A new pod of the Job (J-38), with an index if the Job has indexes (I-01…I-04, I-12).
pub(crate) fn new_pod(job: &Job, place: Option<Place>) -> Pod {
    let job_name = job.metadata.name.as_deref().unwrap_or_default();
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let template_meta = template.metadata.unwrap_or_default();
    let mut finalizers = template_meta.finalizers.unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.to_owned());
    }
    let mut pod = Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{job_name}-")),
            namespace: job.metadata.namespace.clone(),
            labels: template_meta.labels,
            annotations: template_meta.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![owner_reference(job)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    };
    if let Some(place) = place {
        put(&mut pod, job_name, place);
    }
    pod
}

/// What says that the Job controls a pod.
pub(crate) fn owner_reference(job: &Job) -> OwnerReference {
    OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: job.metadata.name.clone().unwrap_or_default(),
        uid: job.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn put(pod: &mut Pod, job_name: &str, place: Place) {
    let index = place.index.to_string();
    pod.metadata.generate_name = Some(indexed_prefix(job_name, &index));
    pod.metadata.labels.get_or_insert_default().insert(INDEX_KEY.to_owned(), index.clone());
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX_KEY.to_owned(), index.clone());
    if let Some(failures) = place.failures {
        annotations.insert(INDEX_FAILURES_KEY.to_owned(), failures.counted.to_string());
        if failures.ignored > 0 {
            annotations.insert(INDEX_IGNORED_FAILURES_KEY.to_owned(), failures.ignored.to_string());
        }
    }
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(format!("{job_name}-{index}"));
    spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(tell_index);
}

/// `<job>-<index>-`, the Job's part cut so that the index survives.
fn indexed_prefix(job_name: &str, index: &str) -> String {
    let longest = LONGEST_PREFIX - index.len() - 2;
    format!("{}-{index}-", job_name.get(..longest).unwrap_or(job_name))
}

fn tell_index(container: &mut Container) {
    let env = container.env.get_or_insert_default();
    if env.iter().any(|variable| variable.name == INDEX_ENV) {
        return;
    }
    env.push(EnvVar {
        name: INDEX_ENV.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                api_version: None,
                field_path: format!("metadata.labels['{INDEX_KEY}']"),
            }),
            ..EnvVarSource::default()
        }),
    });
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn job(template: &Value) -> Job {
        serde_json::from_value(json!({
            "metadata": {"name": "job", "namespace": "ns", "uid": "u"},
            "spec": {"template": template},
        }))
        .unwrap()
    }

    #[test]
    fn j_38_what_is_taken_from_the_template() {
        let job = job(&json!({
            "metadata": {
                "name": "not taken", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.com/f"],
            },
            "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
        }));
        assert_eq!(
            serde_json::to_value(new_pod(&job, None)).unwrap(),
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "generateName": "job-",
                    "namespace": "ns",
                    "labels": {"a": "b"},
                    "annotations": {"c": "d"},
                    "finalizers": ["e.com/f", "batch.kubernetes.io/job-tracking"],
                    "ownerReferences": [{
                        "apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u",
                        "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": {"containers": [{"name": "main"}], "restartPolicy": "Never"},
            })
        );
    }

    #[test]
    fn j_38_the_finalizer_is_not_doubled() {
        let template = json!({"metadata": {"finalizers": [TRACKING_FINALIZER]}, "spec": {"containers": []}});
        assert_eq!(new_pod(&job(&template), None).metadata.finalizers.unwrap(), [TRACKING_FINALIZER]);
    }

    #[test]
    fn i_01_to_i_04_a_pod_with_an_index() {
        let mine = json!({"name": "JOB_COMPLETION_INDEX", "value": "mine"});
        let job = job(&json!({
            "metadata": {"labels": {"a": "b"}},
            "spec": {
                "containers": [{"name": "main"}, {"name": "own", "env": [mine]}],
                "initContainers": [{"name": "init", "env": [{"name": "x", "value": "y"}]}],
            },
        }));
        let pod = serde_json::to_value(new_pod(&job, Some(Place { index: 7, failures: None }))).unwrap();
        let index = json!({
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']"}},
        });
        assert_eq!(pod["metadata"]["generateName"], "job-7-");
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", INDEX_KEY: "7"}));
        assert_eq!(pod["metadata"]["annotations"], json!({INDEX_KEY: "7"}));
        assert_eq!(pod["spec"]["hostname"], "job-7");
        assert_eq!(pod["spec"]["containers"][0]["env"], json!([index]));
        assert_eq!(pod["spec"]["containers"][1]["env"], json!([mine]));
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([{"name": "x", "value": "y"}, index]));
    }

    #[test]
    fn i_04_a_long_name_is_cut_before_the_index() {
        assert_eq!(indexed_prefix("job", "0"), "job-0-");
        assert_eq!(indexed_prefix(&"x".repeat(55), "0"), format!("{}-0-", "x".repeat(55)));
        assert_eq!(indexed_prefix(&"x".repeat(56), "0"), format!("{}-0-", "x".repeat(55)));
        assert_eq!(indexed_prefix(&"x".repeat(63), "12345"), format!("{}-12345-", "x".repeat(51)));
    }

    #[test]
    fn i_12_failures_are_handed_on() {
        for (failures, expected) in [
            (Failures::default(), json!({INDEX_KEY: "1", INDEX_FAILURES_KEY: "0"})),
            (
                Failures { counted: 2, ignored: 1 },
                json!({INDEX_KEY: "1", INDEX_FAILURES_KEY: "2", INDEX_IGNORED_FAILURES_KEY: "1"}),
            ),
        ] {
            let job = job(&json!({"spec": {"containers": []}}));
            let pod = new_pod(&job, Some(Place { index: 1, failures: Some(failures) }));
            assert_eq!(serde_json::to_value(pod.metadata.annotations).unwrap(), expected);
        }
    }
}
