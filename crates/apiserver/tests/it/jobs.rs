//! The Job API through the server: the recorded answers of a real one.

use std::path::Path;

use apiserver::Cluster;
use http::Method;
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

/// Plays a case: code, reason and causes must be as recorded, and the object where one is stored.
async fn play(cluster: &Cluster, name: &str, case: &Value) -> Result<(), String> {
    let mut stored = Value::Null;
    for step in case["steps"].as_array().into_iter().flatten() {
        let uid = stored["metadata"]["uid"].as_str().unwrap_or("UID").to_owned();
        let body = replaced(&step["body"], "NAME", name, &uid);
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
        let want = (expect["code"].clone(), expect["reason"].clone(), fields(&expect["causes"]));
        let causes: Value = answer["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| json!([cause["reason"], cause["field"], cause["message"]]))
            .collect();
        let reason = if code < 400 { Value::Null } else { answer["reason"].clone() };
        let got = (json!(code), reason, fields(&causes));
        if got != want {
            return Err(format!("want {want:?} got {got:?}: {answer}"));
        }
        if code < 300 {
            let object = without_identity(&replaced(&answer, name, "NAME", ""));
            let wanted = without_identity(&expect["object"]);
            if object["spec"]["completions"] != wanted["spec"]["completions"]
                || object["status"] != wanted["status"]
            {
                return Err(format!("stored {object} instead of {wanted}"));
            }
            stored = answer;
        }
    }
    Ok(())
}

fn fields(causes: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let mut fields: Vec<_> =
        causes.as_array().into_iter().flatten().map(|cause| (text(&cause[0]), text(&cause[1]))).collect();
    fields.sort();
    fields
}

fn replaced(value: &Value, from: &str, to: &str, uid: &str) -> Value {
    let text = value.to_string().replace(from, to);
    let text = if uid.is_empty() { text } else { text.replace("UID", uid) };
    serde_json::from_str(&text).expect("JSON")
}

fn without_identity(job: &Value) -> Value {
    let mut job = job.clone();
    if let Some(meta) = job["metadata"].as_object_mut() {
        meta.retain(|key, _| {
            !matches!(key.as_str(), "uid" | "resourceVersion" | "creationTimestamp" | "managedFields")
        });
    }
    job
}
