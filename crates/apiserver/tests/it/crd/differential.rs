//! Random definitions and random objects, to a real API server and to us: the same code, reason, causes and object.

use std::time::Duration;

use anyhow::{Context as _, bail};
use apiserver::crd::{Version, definition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, client::Body};
use rules::field::Errors;
use serde_json::{Value, json};
use testkit::{ControlPlane, Shared};

use super::{
    generate::{self, Random},
    schemas::{combined, crd, rules, values, wrong_definitions},
};

/// The real server of all tests in this program.
pub(crate) static CLUSTER: Shared = Shared::new(ControlPlane::builder);

/// Objects per schema; set `FERRY_DIFFERENTIAL_CASES` for a longer run.
fn cases() -> u64 {
    std::env::var("FERRY_DIFFERENTIAL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

fn parsed(definition: &Value) -> CustomResourceDefinition {
    let mut definition = serde_json::from_value(definition.clone()).expect("a definition");
    definition::apply_defaults(&mut definition);
    definition
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

struct Server {
    client: Client,
    namespace: String,
}

impl Server {
    async fn send(&self, method: &str, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let request =
            http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let response = self.client.send(request.body(Body::from(serde_json::to_vec(body)?))?).await?;
        let (parts, body) = response.into_parts();
        let bytes = body.collect_bytes().await?;
        Ok((parts.status.as_u16(), serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    }

    fn objects(&self, plural: &str) -> String {
        format!("/apis/differential.example.com/v1/namespaces/{}/{plural}", self.namespace)
    }

    /// Installs a definition and waits until objects of it are judged by it.
    async fn install(&self, plural: &str, schema: &Value) -> anyhow::Result<Version> {
        let definition = crd(plural, schema);
        let (code, answer) = self.send("POST", DEFINITIONS, &definition).await?;
        if code != 201 {
            bail!("{plural} is refused: {answer}");
        }
        for _ in 0..200 {
            if self.send("GET", &self.objects(plural), &json!(null)).await?.0 == 200 {
                return Version::all(&parsed(&definition)).pop().context("one version");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{plural} is not served")
    }
}

fn object(version: &Version, namespace: &str, name: &str, schema: &Value, random: &mut Random) -> Value {
    let mut object = generate::value(schema, random);
    if !object.is_object() {
        object = json!({});
    }
    for (field, value) in [
        ("apiVersion", json!(version.api_version())),
        ("kind", json!(version.names.kind)),
        ("metadata", json!({"name": name, "namespace": namespace})),
    ] {
        object[field] = value;
    }
    object
}

/// Causes as a Status has them, in no particular order.
fn causes(errors: &Errors) -> Vec<[String; 3]> {
    let mut causes: Vec<[String; 3]> = errors
        .iter()
        .map(|error| [error.kind.reason().to_owned(), error.path.clone(), masked(&error.message())])
        .collect();
    causes.sort();
    causes.dedup();
    causes
}

fn real_causes(status: &Value) -> Vec<[String; 3]> {
    let text = |cause: &Value, field: &str| cause[field].as_str().unwrap_or_default().to_owned();
    let listed = status["details"]["causes"].as_array().into_iter().flatten();
    let mut causes: Vec<[String; 3]> = listed
        .map(|cause| [text(cause, "reason"), text(cause, "field"), masked(&text(cause, "message"))])
        .collect();
    causes.sort();
    causes.dedup();
    causes
}

/// Structures print with Go's names and in Go's order, which nobody reads, and Go's time parser tells of its layouts.
pub(super) fn masked(message: &str) -> String {
    if let (Some((start, _)), Some((_, rule))) =
        (message.split_once(": Invalid date-time formatted string"), message.split_once(" evaluating rule: "))
    {
        return format!("{start}: <unreadable time> evaluating rule: {rule}");
    }
    for open in ["Invalid value: {", "Invalid value: ["] {
        if let Some(rest) = message.strip_prefix(open) {
            let detail =
                rest.rsplit_once("}: ").or(rest.rsplit_once("]: ")).map_or(rest, |(_, detail)| detail);
            return format!("Invalid value: <object>: {detail}");
        }
    }
    message.to_owned()
}

/// What is stored, without what the server alone knows.
fn stored(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(name);
        }
    }
    object
}

struct Tally {
    cases: usize,
    refused: usize,
    differences: Vec<String>,
}

impl Tally {
    fn note(&mut self, code: u16, answer: &Value, expected: Result<Value, Errors>, what: &str, sent: &Value) {
        self.cases += 1;
        let same = match (code, &expected) {
            (200 | 201, Ok(object)) => stored(answer) == stored(object),
            (422, Err(errors)) => {
                self.refused += 1;
                real_causes(answer) == causes(errors)
            }
            _ => false,
        };
        if !same {
            let ours = match &expected {
                Ok(object) => stored(object).to_string(),
                Err(errors) => only(&causes(errors), &real_causes(answer)),
            };
            let real = match (code, &expected) {
                (200 | 201, _) => stored(answer).to_string(),
                (_, Err(errors)) => only(&real_causes(answer), &causes(errors)),
                _ => answer["message"].to_string(),
            };
            self.differences.push(format!("{what} {sent}\n  real {code}: {real}\n  ours: {ours}"));
        }
    }

    /// Fails if anything was different.
    fn judge(self) {
        let Tally { cases, refused, differences } = self;
        assert!(
            differences.is_empty(),
            "{} of {cases} differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
        println!("{cases} cases alike, {refused} of them refusals");
        assert!(refused > 10 && cases - refused > 10, "{refused} of {cases} refused is no test of both");
    }
}

/// What one side says and the other does not.
fn only(causes: &[[String; 3]], others: &[[String; 3]]) -> String {
    let more: Vec<String> =
        causes.iter().filter(|cause| !others.contains(cause)).map(|cause| cause.join(" | ")).collect();
    format!("{more:#?}")
}

#[tokio::test]
async fn random_objects_are_judged_and_stored_alike() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let server = Server { client: cluster.client(), namespace: cluster.namespace("objects").await? };
    let mut tally = Tally { cases: 0, refused: 0, differences: Vec::new() };
    for (plural, schema) in [("values", values()), ("combined", combined()), ("rules", rules())] {
        let version = server.install(plural, &schema).await?;
        let mut accepted = Vec::new();
        for seed in 0..cases() {
            let name = format!("o{seed}");
            let sent = object(&version, &server.namespace, &name, &schema, &mut Random::new(seed));
            let (code, answer) = server.send("POST", &server.objects(plural), &sent).await?;
            if code == 201 {
                accepted.push(answer.clone());
            }
            tally.note(code, &answer, created(&version, &sent), plural, &sent);
        }
        for (seed, old) in (100_000..100_000 + cases() / 2).zip(accepted.iter().cycle()) {
            let name = old["metadata"]["name"].as_str().context("a name")?;
            let path = format!("{}/{name}", server.objects(plural));
            let (_, old) = server.send("GET", &path, &json!(null)).await?;
            let mut sent = object(&version, &server.namespace, name, &schema, &mut Random::new(seed));
            sent["metadata"] = old["metadata"].clone();
            let (code, answer) = server.send("PUT", &path, &sent).await?;
            tally.note(code, &answer, updated(&version, &sent, &old), plural, &sent);
        }
    }
    tally.judge();
    Ok(())
}

/// Objects that were stored before the schema became strict: what does not change may stay (3.27).
#[tokio::test]
async fn unchanged_parts_may_stay_invalid() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let server = Server { client: cluster.client(), namespace: cluster.namespace("ratchet").await? };
    let lax = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut tally = Tally { cases: 0, refused: 0, differences: Vec::new() };
    for (plural, schema) in [("strictvalues", values()), ("strictrules", rules())] {
        let version = server.install(plural, &lax).await?;
        let path = server.objects(plural);
        for seed in 0..cases() / 2 {
            let sent =
                object(&version, &server.namespace, &format!("o{seed}"), &schema, &mut Random::new(seed));
            let (code, answer) = server.send("POST", &path, &sent).await?;
            assert_eq!(code, 201, "{answer}");
        }
        let name = format!("{DEFINITIONS}/{plural}.differential.example.com");
        let strict = crd(plural, &schema);
        let (_, mut current) = server.send("GET", &name, &json!(null)).await?;
        current["spec"]["versions"] = strict["spec"]["versions"].clone();
        let (code, answer) = server.send("PUT", &name, &current).await?;
        assert_eq!(code, 200, "{answer}");
        let version = Version::all(&parsed(&strict)).pop().context("one version")?;
        let wrong = json!({"apiVersion": version.api_version(), "kind": version.names.kind, "metadata": {"name": "w"}, "spec": 1});
        while server.send("POST", &path, &wrong).await?.0 == 201 {
            server.send("DELETE", &format!("{path}/w"), &json!(null)).await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for seed in 0..cases() / 2 {
            let path = format!("{path}/o{seed}");
            let (_, old) = server.send("GET", &path, &json!(null)).await?;
            let mut sent = old.clone();
            let fresh = object(&version, &server.namespace, "x", &schema, &mut Random::new(seed + 50_000));
            // One field of the spec changes, or none.
            let fields: Vec<&String> =
                fresh["spec"].as_object().into_iter().flat_map(|fields| fields.keys()).collect();
            if let (Some(name), true) =
                (fields.get(usize::try_from(seed)? % fields.len().max(1)), sent["spec"].is_object())
            {
                sent["spec"][name.as_str()] = fresh["spec"][name.as_str()].clone();
            }
            sent["metadata"]["labels"] = json!({"touched": "yes"});
            let (code, answer) = server.send("PUT", &path, &sent).await?;
            tally.note(code, &answer, updated(&version, &sent, &old), plural, &sent);
        }
    }
    tally.judge();
    Ok(())
}

fn created(version: &Version, sent: &Value) -> Result<Value, Errors> {
    let mut object = sent.clone();
    version.decode(&mut object).map_err(|error| vec![error])?;
    version.prepare_create(&mut object);
    let errors = version.validate_create(&object);
    if errors.is_empty() { Ok(object) } else { Err(errors) }
}

fn updated(version: &Version, sent: &Value, old: &Value) -> Result<Value, Errors> {
    let (mut object, mut old) = (sent.clone(), old.clone());
    version.decode(&mut object).map_err(|error| vec![error])?;
    version.read(&mut old);
    version.prepare_update(&mut object, &old);
    let errors = version.validate_update(&object, &old, &mut Vec::new());
    if errors.is_empty() { Ok(object) } else { Err(errors) }
}

/// Status has an endpoint of its own, and unknown fields are refused to those who ask for it (2.35, 2.65).
#[tokio::test]
async fn statuses_and_unknown_fields_alike() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let server = Server { client: cluster.client(), namespace: cluster.namespace("status").await? };
    let mut schema = values();
    schema["properties"]["status"] = schema["properties"]["spec"].clone();
    schema["properties"]["status"]["x-kubernetes-validations"] =
        json!([{"rule": "!has(self.count) || self.count < 3", "message": "few"}]);
    schema["properties"]["spec"] = json!({"type": "object", "properties": {"kept": combined()["properties"]["spec"]["properties"]["kept"],
        "embedded": combined()["properties"]["spec"]["properties"]["embedded"], "list": {"type": "array", "items": {"type": "object"}}}});
    let version = server.install("statuses", &schema).await?;
    let path = server.objects("statuses");
    let mut tally = Tally { cases: 0, refused: 0, differences: Vec::new() };
    for seed in 0..cases() {
        let mut sent =
            object(&version, &server.namespace, &format!("o{seed}"), &schema, &mut Random::new(seed));
        let mut decoded = sent.clone();
        let unknown = version.decode(&mut decoded).map_err(|error| anyhow::anyhow!("{error}"))?;
        let (code, answer) = server.send("POST", &format!("{path}?fieldValidation=Strict"), &sent).await?;
        let said =
            unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect::<Vec<_>>().join(", ");
        let refused = answer["message"].as_str().unwrap_or_default().rsplit_once("strict decoding error: ");
        if code == 400 || !unknown.is_empty() {
            assert_eq!(refused.map(|(_, fields)| fields), Some(said.as_str()), "{sent}");
            continue;
        }
        tally.note(code, &answer, created(&version, &sent), "strict", &sent);
        if code != 201 {
            continue;
        }
        sent["metadata"] = answer["metadata"].clone();
        let (code, changed) = server.send("PUT", &format!("{path}/o{seed}/status"), &sent).await?;
        let expected = {
            let mut old = answer.clone();
            version.read(&mut old);
            decoded = version.with_status(&old, &decoded);
            let errors = version.validate_status_update(&decoded, &old, &mut Vec::new());
            if errors.is_empty() { Ok(decoded) } else { Err(errors) }
        };
        tally.note(code, &changed, expected, "status", &sent);
    }
    tally.judge();
    Ok(())
}

/// Definitions that are wrong in one way each, tried without storing them.
#[tokio::test]
async fn wrong_definitions_are_refused_alike() -> anyhow::Result<()> {
    let Some(cluster) = CLUSTER.for_test().await else { return Ok(()) };
    let server = Server { client: cluster.client(), namespace: "default".to_owned() };
    let mut tally = Tally { cases: 0, refused: 0, differences: Vec::new() };
    for (index, definition) in wrong_definitions().into_iter().enumerate() {
        let (code, answer) = server.send("POST", &format!("{DEFINITIONS}?dryRun=All"), &definition).await?;
        let errors = definition::validate(&parsed(&definition));
        let expected = if errors.is_empty() { Ok(answer.clone()) } else { Err(errors) };
        tally.note(code, &answer, expected, &format!("definition {index}"), &definition["spec"]);
    }
    tally.judge();
    Ok(())
}
