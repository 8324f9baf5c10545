//! Random objects of every kind, made and changed on our server and on a real one: code, reason, causes, warnings and the
//! stored object must be the same.
//!
//! `cargo test -p apiserver --test kinds -- --cases 200 --kind Deployment --seed 7`. A difference is shrunk and printed.

mod bases;
#[path = "../../../rules/tests/chance/mod.rs"]
mod chance;
#[path = "../../../rules/tests/judge/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use apiserver::Cluster;
use apiserver::registry::Registry;
use bases::Base;
use chance::Chance;
use clap::Parser as _;
use generate::{Edit, apply, edit, smaller};
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use rules::job::Settings;
use schema::{Pack, Type};
use serde_json::{Value, json};
use store::{Options, Store};

const NAMESPACE: &str = "kinds";

#[derive(clap::Parser)]
struct Arguments {
    /// How many random cases of each kind.
    #[arg(long, default_value_t = 4)]
    cases: u64,
    /// Where chance begins.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these kinds.
    #[arg(long)]
    kind: Vec<String>,
    /// How many differences of a kind to show before going on with the next.
    #[arg(long, default_value_t = 3)]
    show: u64,
    /// Only count what differs.
    #[arg(long)]
    lenient: bool,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse_from(std::env::args().filter(|argument| argument != "--nocapture"));
    let Some(real) = testkit::ControlPlane::builder().for_test().await else {
        return Ok(ExitCode::SUCCESS);
    };
    let store = Store::open(Options::ephemeral())?;
    let ours = Client::new(Cluster::open(store, Settings::default()).await?, "default");
    let judges = Judges { ours, theirs: real.client() };
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    for client in [&judges.ours, &judges.theirs] {
        ask(client, Method::POST, "/api/v1/namespaces", &namespace).await?;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        ask(client, Method::POST, &path, &account).await?;
    }
    let mut failed_kinds = Vec::new();
    for base in bases::all() {
        let name = format!("{}.{}", base.kind, base.group);
        let is_meant = arguments.kind.iter().any(|kind| *kind == base.kind || *kind == name);
        if !arguments.kind.is_empty() && !is_meant {
            continue;
        }
        let (mut failed, mut refused) = (0, 0);
        for case in 0..arguments.cases {
            let mut chance = Chance::new(arguments.seed.wrapping_mul(1_000_003).wrapping_add(case));
            let random = Random::new(&mut chance, &base);
            let id = format!("k{:x}-{case}", arguments.seed);
            let verdict = judges.compare(&base, &random, &id).await?;
            refused += u64::from(verdict.refused);
            if let Some(difference) = verdict.difference {
                failed += 1;
                let (small, difference) = judges.shrink(&base, random, difference, &id).await?;
                if failed <= arguments.show {
                    println!("{name} case {case}: {small:?}\n{difference}\n");
                }
            }
        }
        println!("{name}: {} of {} agree, {refused} refused", arguments.cases - failed, arguments.cases);
        if failed > 0 && !arguments.lenient {
            failed_kinds.push(name);
        }
    }
    println!("differ: {failed_kinds:?}");
    Ok(if failed_kinds.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A random object, and perhaps a random change of it.
#[derive(Debug, Clone)]
struct Random {
    create: Vec<Edit>,
    then: Option<(bool, Vec<Edit>)>,
}

impl Random {
    fn new(chance: &mut Chance, base: &Base) -> Self {
        let of = type_of(base);
        let whole = base.document("NAME");
        let edits = *chance.pick(&[0, 1, 1, 1, 2, 3]);
        let create: Vec<Edit> = (0..edits).map(|_| random_edit(chance, &whole, base)).collect();
        let changed = apply(&whole, &create);
        let count = *chance.pick(&[1, 1, 2]);
        let then = match chance.below(4) {
            0 => None,
            1 if !base.status.is_null() => {
                let mut with = changed.clone();
                with["status"] = base.status.clone();
                let status = Edit::new(&["status"], base.status.clone());
                let edits = (0..count - 1).map(|_| edit(chance, &with, &["status"], status_of(of)));
                Some((true, std::iter::once(status).chain(edits).collect()))
            }
            _ => Some((false, (0..count).map(|_| random_edit(chance, &changed, base)).collect())),
        };
        Random { create, then }
    }

    fn smaller(&self) -> Vec<Random> {
        let mut all = Vec::new();
        if let Some((status, edits)) = &self.then {
            all.push(Random { then: None, ..self.clone() });
            let fewer = smaller(edits).into_iter().filter(|edits| !edits.is_empty());
            all.extend(fewer.map(|edits| Random { then: Some((*status, edits)), ..self.clone() }));
        }
        all.extend(smaller(&self.create).into_iter().map(|create| Random { create, ..self.clone() }));
        all
    }
}

impl Base {
    fn document(&self, name: &str) -> Value {
        let mut object = self.object.clone();
        object["apiVersion"] = json!(if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        });
        object["kind"] = json!(self.kind);
        object["metadata"]["name"] = json!(match self.kind {
            "APIService" => "v1.g.io".to_owned(),
            "IPAddress" => "10.200.0.1".to_owned(),
            _ => name.to_owned(),
        });
        serde_json::from_str(&object.to_string().replace("NAMESPACE", NAMESPACE)).expect("JSON")
    }
}

fn type_of(base: &Base) -> Type {
    Pack::v1_35().of_kind(base.group, base.version, base.kind).expect("a built-in kind")
}

fn status_of(of: Type) -> Type {
    of.field("status").expect("a kind with a status").of_type()
}

/// An edit anywhere but in what every kind has.
fn random_edit(chance: &mut Chance, document: &Value, base: &Base) -> Edit {
    let of = type_of(base);
    if !base.annotations.is_empty() && chance.percent(30) {
        let (name, values) = *chance.pick(base.annotations);
        let value = if chance.percent(10) { Value::Null } else { json!(*chance.pick(values)) };
        return Edit::new(&["metadata", "annotations", name], value);
    }
    let own: Vec<&str> = of
        .fields()
        .map(schema::pack::Field::name)
        .filter(|name| !matches!(*name, "" | "apiVersion" | "kind" | "metadata" | "status"))
        .collect();
    if own.is_empty() || chance.percent(5) {
        return Edit::new(&["metadata", "labels"], json!({"l": *chance.pick(&["1", "-", ""])}));
    }
    let field = *chance.pick(&own);
    edit(chance, document, &[field], of.field(field).expect("one of its own").of_type())
}

struct Verdict {
    refused: bool,
    difference: Option<String>,
}

struct Judges {
    ours: Client,
    theirs: Client,
}

impl Judges {
    async fn compare(&self, base: &Base, random: &Random, name: &str) -> anyhow::Result<Verdict> {
        let (ours, theirs) =
            tokio::try_join!(play(&self.ours, base, random, name), play(&self.theirs, base, random, name))?;
        let refused = theirs.iter().any(|answer| answer["code"].as_u64().is_some_and(|code| code >= 300));
        // What admission refuses is judged elsewhere.
        let is_refused_before = theirs.iter().any(|answer| answer["code"] == json!(403));
        let difference = (ours != theirs && !is_refused_before).then(|| {
            let pairs = ours.iter().zip(&theirs).enumerate().filter(|(_, (ours, theirs))| ours != theirs);
            pairs.map(|(i, (ours, theirs))| different(i, ours, theirs)).collect::<Vec<_>>().join("\n")
        });
        Ok(Verdict { refused, difference })
    }

    async fn shrink(
        &self,
        base: &Base,
        mut random: Random,
        mut difference: String,
        name: &str,
    ) -> anyhow::Result<(Random, String)> {
        let mut tries = 0;
        'again: loop {
            for smaller in random.smaller() {
                tries += 1;
                if tries > 60 {
                    break 'again;
                }
                if let Some(still) = self.compare(base, &smaller, name).await?.difference {
                    (random, difference) = (smaller, still);
                    continue 'again;
                }
            }
            break;
        }
        Ok((random, difference))
    }
}

/// What differs between two answers, place by place.
fn different(step: usize, ours: &Value, theirs: &Value) -> String {
    fn walk(path: &str, ours: &Value, theirs: &Value, out: &mut Vec<String>) {
        match (ours, theirs) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let none = &Value::Null;
                    walk(
                        &format!("{path}.{key}"),
                        a.get(key).unwrap_or(none),
                        b.get(key).unwrap_or(none),
                        out,
                    );
                }
            }
            (a, b) if a == b => {}
            (a, b) => out.push(format!("  {path}\n    ours   {a}\n    theirs {b}")),
        }
    }
    let mut out = Vec::new();
    walk(&format!("step {step} "), ours, theirs, &mut out);
    out.join("\n")
}

/// Makes and changes an object, and removes it again. Returns what was answered.
async fn play(client: &Client, base: &Base, random: &Random, name: &str) -> anyhow::Result<Vec<Value>> {
    let resource = Registry::built_in().of_kind(base.group, base.version, base.kind);
    let resource = resource.ok_or_else(|| anyhow::anyhow!("{} is not served", base.kind))?;
    let prefix = if base.group.is_empty() {
        "/api/v1".to_owned()
    } else {
        format!("/apis/{}", resource.api_version())
    };
    let collection = if resource.namespaced {
        format!("{prefix}/namespaces/{NAMESPACE}/{}", resource.plural)
    } else {
        format!("{prefix}/{}", resource.plural)
    };
    let document = apply(&base.document(name), &random.create);
    let (code, made, warnings) = ask(client, Method::POST, &collection, &document).await?;
    let mut answers = vec![normal(base, code, &made, warnings)];
    if code == 201 {
        let path = format!("{collection}/{}", made["metadata"]["name"].as_str().unwrap_or(""));
        // What is found out about the servers of others is written down at any moment.
        let made = if base.kind == "APIService" { with_condition(client, &path).await? } else { made };
        if let Some((status, edits)) = &random.then {
            let mut changed = apply(&made, edits);
            changed["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
            let path = if *status { format!("{path}/{}", base.through) } else { path.clone() };
            let mut answer = ask(client, Method::PUT, &path, &changed).await?;
            // The server itself writes to some, whenever it comes to it.
            while base.kind == "FlowSchema" && answer.0 == 409 {
                let (_, now, _) = ask(client, Method::GET, &path, &Value::Null).await?;
                changed["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
                answer = ask(client, Method::PUT, &path, &changed).await?;
            }
            let (code, answer, warnings) = answer;
            answers.push(normal(base, code, &answer, warnings));
        }
        let now = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        ask(client, Method::DELETE, &path, &now).await?;
        let free = json!({"metadata": {"finalizers": null}});
        let request = Request::patch(&path).header("Content-Type", "application/merge-patch+json");
        drop(client.send(request.body(Body::from(serde_json::to_vec(&free)?))?).await);
        if base.kind == "Namespace" {
            let mut gone = made.clone();
            gone["spec"] = json!({});
            gone["metadata"].as_object_mut().map(|meta| meta.remove("resourceVersion"));
            ask(client, Method::PUT, &format!("{path}/finalize"), &gone).await?;
        }
    }
    Ok(answers)
}

/// An object, once it has a condition.
async fn with_condition(client: &Client, path: &str) -> anyhow::Result<Value> {
    let waiting = async {
        loop {
            let (_, object, _) = ask(client, Method::GET, path, &Value::Null).await?;
            if object.pointer("/status/conditions/0").is_some() {
                return Ok(object);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await?
}

/// An answer without what differs from server to server and from time to time.
fn normal(base: &Base, code: u16, answer: &Value, mut warnings: Vec<String>) -> Value {
    warnings.sort();
    if code >= 300 {
        let mut causes: Vec<String> = answer["details"]["causes"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|cause| {
                let field = cause["field"].as_str().unwrap_or("");
                // Which port a service was given twice is by chance.
                let is_given = base.kind == "Service" && field.ends_with(".nodePort");
                let message = if is_given && cause["reason"] == "FieldValueDuplicate" {
                    &Value::Null
                } else {
                    &cause["message"]
                };
                format!("{field}: {message} ({})", cause["reason"])
            })
            .collect();
        causes.sort();
        let message = if causes.is_empty() { answer["message"].clone() } else { Value::Null };
        return json!({"code": code, "reason": answer["reason"], "causes": causes, "message": message});
    }
    let mut object = answer.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink"] {
        object["metadata"].as_object_mut().map(|meta| meta.remove(field));
    }
    if matches!(base.kind, "Pod" | "APIService") {
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            condition.as_object_mut().map(|condition| condition.remove("lastTransitionTime"));
        }
    }
    if base.kind == "Pod" {
        // What admission adds is another part's business.
        for field in ["priority", "preemptionPolicy", "tolerations"] {
            object["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
    }
    for finalizer in
        ["kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes.io/vac-protection"]
    {
        if object["metadata"]["finalizers"] == json!([finalizer]) {
            object["metadata"].as_object_mut().map(|meta| meta.remove("finalizers"));
        }
    }
    if base.kind == "Node" {
        let not_ready = json!({"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"});
        let taints = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut);
        let is_empty = taints.is_some_and(|taints| {
            taints.retain(|taint| *taint != not_ready);
            taints.is_empty()
        });
        if is_empty {
            object["spec"].as_object_mut().map(|spec| spec.remove("taints"));
        }
    }
    if base.kind == "FlowSchema" {
        let status = object["status"].as_object_mut();
        let conditions = status.and_then(|status| status.get_mut("conditions")).and_then(Value::as_array_mut);
        if let Some(conditions) = conditions {
            conditions.retain(|condition| condition["type"] != "Dangling");
        }
        if object["status"]["conditions"] == json!([]) {
            object["status"] = json!({});
        }
    }
    if base.kind == "PersistentVolume" {
        object["status"].as_object_mut().map(|status| status.remove("lastPhaseTransitionTime"));
    }
    if base.kind == "CertificateSigningRequest" {
        for field in ["username", "uid", "groups", "extra"] {
            object["spec"].as_object_mut().map(|spec| spec.remove(field));
        }
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            for field in ["lastUpdateTime", "lastTransitionTime"] {
                condition[field] = json!(!condition[field].is_null());
            }
        }
    }
    if base.kind == "Service" {
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            if !object["spec"][field].is_null() && object["spec"][field] != json!("None") {
                object["spec"][field] = json!("given");
            }
        }
        let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for port in ports.into_iter().flatten() {
            if !port["nodePort"].is_null() {
                port["nodePort"] = json!("given");
            }
        }
    }
    json!({"code": code, "object": object, "warnings": warnings})
}

async fn ask(
    client: &Client,
    method: Method,
    path: &str,
    body: &Value,
) -> anyhow::Result<(u16, Value, Vec<String>)> {
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    // Where a rule of upstream's panics, the connection ends without an answer.
    let response = match client.send(request.body(Body::from(serde_json::to_vec(body)?))?).await {
        Ok(response) => response,
        Err(error) => return Ok((500, json!({"message": format!("no answer: {error}")}), Vec::new())),
    };
    let warnings: BTreeSet<String> = response
        .headers()
        .get_all("Warning")
        .iter()
        .filter_map(|value| value.to_str().ok().map(str::to_owned))
        .collect();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings.into_iter().collect()))
}
