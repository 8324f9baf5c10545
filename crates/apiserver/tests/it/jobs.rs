//! The Job API through the server: the recorded answers of a real one.

use std::path::Path;

use apiserver::Cluster;
use http::Method;
use k8s_openapi::api::rbac::v1::ClusterRole;
use rules::job::roles;
use serde_json::{Value, json};

use crate::{ask, cluster};

const JOBS: &str = "/apis/batch/v1/namespaces/goldens/jobs";

#[tokio::test]
async fn recorded_answers_of_a_real_server() {
    let cluster = cluster().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "goldens"}});
    assert_eq!(ask(&cluster, Method::POST, "/api/v1/namespaces", Some(&namespace)).await.0, 201);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rules/tests/data/job-api-v1.35.8.jsonl");
    let text = std::fs::read_to_string(file).expect("the recording");
    let mut failed = Vec::new();
    let mut played = 0;
    for (i, line) in text.lines().enumerate() {
        let case: Value = serde_json::from_str(line).expect("a case");
        played += 1;
        if let Err(why) = play(&cluster, &format!("g{i:010x}"), &case).await {
            failed.push(format!("{}: {why}", case["id"]));
        }
    }
    assert_eq!(played, 248);
    assert!(failed.is_empty(), "{} failed:\n{}", failed.len(), failed.join("\n"));
}

/// Plays a case: code, reason, causes and the stored object must be as recorded.
async fn play(cluster: &Cluster, name: &str, case: &Value) -> Result<(), String> {
    let mut stored = Value::Null;
    for step in case["steps"].as_array().into_iter().flatten() {
        let uid = stored["metadata"]["uid"].as_str().unwrap_or("UID").to_owned();
        let body = replaced(&step["body"], &[("NAME", name), ("UID", &uid)]);
        let path = format!("{JOBS}/{}", stored["metadata"]["name"].as_str().unwrap_or(""));
        let (code, answer, _) = match step["verb"].as_str() {
            Some("create") => ask(cluster, Method::POST, JOBS, Some(&body)).await,
            Some("put") => ask(cluster, Method::PUT, &path, Some(&body)).await,
            _ => {
                let mut job = stored.clone();
                job["status"] = body["status"].clone();
                ask(cluster, Method::PUT, &format!("{path}/status"), Some(&job)).await
            }
        };
        let expect = &step["expect"];
        if code >= 300 {
            let causes = answer["details"]["causes"].as_array().into_iter().flatten();
            let causes =
                causes.map(|cause| json!([cause["reason"], cause["field"], cause["message"]])).collect();
            let got = (json!(code), answer["reason"].clone(), sorted(&causes, name));
            let want = (expect["code"].clone(), expect["reason"].clone(), sorted(&expect["causes"], name));
            return if got == want { Ok(()) } else { Err(format!("want {want:?} got {got:?}: {answer}")) };
        }
        let uid = answer["metadata"]["uid"].as_str().expect("a uid");
        let object = without_identity(&replaced(&answer, &[(name, "NAME"), (uid, "UID")]));
        let wanted = without_identity(&expect["object"]);
        if expect["code"] != code || object != wanted {
            return Err(format!("{code}: stored {object} instead of {wanted}"));
        }
        stored = answer;
    }
    Ok(())
}

/// Causes in an order of their own, with names and uids as a recording has them.
fn sorted(causes: &Value, name: &str) -> Vec<String> {
    let causes = causes.as_array().into_iter().flatten();
    let mut causes: Vec<String> =
        causes.map(|cause| without_uids(&cause.to_string().replace(name, "NAME"))).collect();
    causes.sort();
    causes
}

/// The uid of a Job that was refused is seen nowhere but in the refusal.
fn without_uids(text: &str) -> String {
    let is_uid = |word: &&str| uuid::Uuid::try_parse(word).is_ok();
    let words = text.split(|c: char| !(c.is_ascii_hexdigit() || c == '-'));
    words.filter(is_uid).fold(text.to_owned(), |text, uid| text.replace(uid, "UID"))
}

fn replaced(value: &Value, replacements: &[(&str, &str)]) -> Value {
    let text = replacements.iter().fold(value.to_string(), |text, (from, to)| text.replace(from, to));
    serde_json::from_str(&text).expect("JSON")
}

fn without_identity(job: &Value) -> Value {
    let mut job = job.clone();
    if let Some(meta) = job["metadata"].as_object_mut() {
        let is_identity =
            |key: &str| matches!(key, "uid" | "resourceVersion" | "creationTimestamp" | "managedFields");
        let generated = meta.contains_key("generateName");
        meta.retain(|key, _| !(is_identity(key) || generated && key == "name"));
    }
    job
}

async fn with_job() -> Cluster {
    let cluster = cluster().await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "status": {"succeeded": 1},
        "spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}},
    });
    assert_eq!(ask(&cluster, Method::POST, DEFAULT, Some(&job)).await.0, 201);
    cluster
}

const DEFAULT: &str = "/apis/batch/v1/namespaces/default/jobs";

#[tokio::test]
async fn api_14_what_the_controllers_may_do() {
    let Some(real) = testkit::ControlPlane::builder().for_test().await else { return };
    let roles: kube::Api<ClusterRole> = kube::Api::all(real.client());
    for (name, ours) in [
        ("system:controller:job-controller", &roles::JOB_CONTROLLER[..]),
        ("system:controller:ttl-after-finished-controller", &roles::TTL_AFTER_FINISHED[..]),
    ] {
        let role = roles.get(name).await.expect("a built-in role");
        let mut theirs = Vec::new();
        for rule in role.rules.into_iter().flatten() {
            let mut verbs = rule.verbs.clone();
            verbs.sort();
            for group in rule.api_groups.iter().flatten() {
                for resource in rule.resources.iter().flatten() {
                    theirs.push((group.clone(), resource.clone(), verbs.clone()));
                }
            }
        }
        theirs.sort();
        let text = |text: &str| text.to_owned();
        let ours: Vec<_> = ours
            .iter()
            .map(|rule| {
                (
                    text(rule.group),
                    text(rule.resource),
                    rule.verbs.iter().map(|verb| text(verb)).collect::<Vec<_>>(),
                )
            })
            .collect();
        assert_eq!(ours, theirs, "{name}");
    }
}

#[tokio::test]
async fn api_03_fields_that_can_be_selected() {
    let cluster = with_job().await;
    for (selector, found) in [("status.successful=0", 1), ("status.successful!=0", 0), ("metadata.name=j", 1)]
    {
        let path = format!("{DEFAULT}?fieldSelector={}", selector.replace('=', "%3D"));
        let (code, list, _) = ask(&cluster, Method::GET, &path, None).await;
        assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(found)), "{selector}");
    }
    let (code, answer, _) =
        ask(&cluster, Method::GET, &format!("{DEFAULT}?fieldSelector=spec.managedBy%3Dx"), None).await;
    assert_eq!(
        (code, &answer["message"]),
        (400, &json!("field label \"spec.managedBy\" not supported for Job"))
    );
}

#[tokio::test]
async fn api_04_a_put_never_creates() {
    let cluster = with_job().await;
    let body = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "other"}});
    let (code, answer, _) = ask(&cluster, Method::PUT, &format!("{DEFAULT}/other"), Some(&body)).await;
    assert_eq!((code, &answer["message"]), (404, &json!("jobs.batch \"other\" not found")));
}

#[tokio::test]
async fn w_05_deleting_a_job_warns_of_its_pods() {
    let cluster = with_job().await;
    let (code, job, warnings) = ask(&cluster, Method::DELETE, &format!("{DEFAULT}/j"), None).await;
    assert_eq!(
        (code, &job["metadata"]["finalizers"]),
        (200, &json!(["orphan"])),
        "X-01: pods stay by default"
    );
    assert!(warnings[0].starts_with("299 - \"child pods are preserved by default"), "{warnings:?}");
    let (_, _, warnings) =
        ask(&cluster, Method::DELETE, &format!("{DEFAULT}/j?propagationPolicy=Background"), None).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(ask(&cluster, Method::GET, &format!("{DEFAULT}/j"), None).await.0, 404);
}

#[tokio::test]
async fn api_13_an_endpoint_manages_only_its_own_part() {
    let cluster = with_job().await;
    let (_, mut job, _) = ask(&cluster, Method::GET, &format!("{DEFAULT}/j"), None).await;
    job["status"] = json!({"startTime": "2025-01-01T00:00:00Z"});
    job["spec"]["parallelism"] = json!(5);
    let (code, job, _) =
        ask(&cluster, Method::PUT, &format!("{DEFAULT}/j/status?fieldManager=s"), Some(&job)).await;
    assert_eq!(code, 200, "{job}");
    let entries = job["metadata"]["managedFields"].as_array().expect("entries");
    assert_eq!(entries.len(), 2, "{entries:?}");
    for entry in entries {
        let (own, other) =
            if entry["subresource"] == "status" { ("f:status", "f:spec") } else { ("f:spec", "f:status") };
        let fields = &entry["fieldsV1"];
        assert!(fields.get(own).is_some() && fields.get(other).is_none(), "{entry}");
    }
}
