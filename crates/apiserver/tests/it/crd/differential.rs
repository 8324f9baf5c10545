//! Random definitions and random objects, to a real API server and to us: the same code, reason, causes and object.

use std::time::Duration;

use anyhow::{Context as _, bail};
use apiserver::crd::{Version, definition};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, client::Body};
use rules::field::Errors;
use serde_json::{Value, json};
use testkit::{ControlPlane, Shared};

use super::generate::{self, Random};

static CLUSTER: Shared = Shared::new(ControlPlane::builder);

const CREATES_PER_SCHEMA: u64 = 60;
const UPDATES_PER_SCHEMA: u64 = 40;

/// Plain values: types, bounds, formats, enumerations, defaults, nulls, lists of every type.
fn values() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 4},
        "pattern": {"type": "string", "pattern": "^[a-z-]*$"},
        "choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "count": {"type": "integer", "minimum": 0, "maximum": 7, "default": 1},
        "ratio": {"type": "number", "minimum": 0.5, "exclusiveMinimum": true, "multipleOf": 0.5},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "span": {"type": "string", "format": "duration"},
        "address": {"type": "string", "format": "ipv4"},
        "link": {"type": "string", "format": "uri"},
        "flag": {"type": "boolean", "nullable": true},
        "amount": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%?$"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
            "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "default": 3}}}},
        "few": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "integer"}},
        "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "maxLength": 3}},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "object", "properties": {"leaf": {"type": "integer", "default": 9}}}}},
    }}}})
}

/// Combined schemas, embedded objects and preserved fields.
fn combined() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
    "properties": {
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "any": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "anyOf": [{"required": ["a"], "properties": {"a": {"minLength": 2}}}, {"properties": {"b": {"minimum": 2}}, "required": ["b"]}]},
        "all": {"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]},
        "not": {"type": "string", "not": {"enum": ["a"]}},
        "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
    }}}})
}

/// Rules of most kinds.
fn rules() -> Value {
    json!({"type": "object",
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name.size() < 60", "message": "long name"},
        {"rule": "has(self.spec)"},
    ],
    "properties": {"spec": {"type": "object",
    "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min over max", "fieldPath": ".min"},
        {"rule": "!has(self.words) || self.words.all(w, w.matches('^[a-z-]*$'))", "messageExpression": "'bad words: ' + self.words.join(',')"},
        {"rule": "!has(self.word) || self.word != 'b'", "reason": "FieldValueForbidden", "message": "not b"},
        {"rule": "self.?word.orValue('') != 'abc' || self.?min.orValue(0) > 0", "message": "abc needs min"},
        {"rule": "!has(self.span) || self.span <= duration('1m')", "message": "too long a span"},
        {"rule": "!has(self.size) || !isQuantity(self.size) || quantity(self.size).isLessThan(quantity('1Gi'))", "message": "too big"},
        {"rule": "!has(self.when) || self.when > timestamp('2026-01-02T00:00:00Z')", "message": "too early"},
        {"rule": "!has(self.items) || self.items.map(i, has(i.v) ? i.v : 0).sum() < 10"},
        {"rule": "!has(self.amount) || (type(self.amount) == int ? self.amount < 50 : self.amount.endsWith('%'))", "message": "amount"},
        {"rule": "!has(self.labels) || self.labels.all(k, self.labels[k].size() < 3)", "message": "label values"},
        {"rule": "duration(self.word) < duration('1h') || true", "message": "absorbed"},
        {"rule": "!has(self.link) || isURL(self.link) == self.link.startsWith('http')", "message": "links"},
    ],
    "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 1000", "message": "max too high"}]},
        "word": {"type": "string", "maxLength": 100, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]},
        "words": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 100}},
        "span": {"type": "string", "format": "duration"},
        "when": {"type": "string", "format": "date-time"},
        "size": {"type": "string", "maxLength": 100},
        "link": {"type": "string", "maxLength": 100},
        "amount": {"x-kubernetes-int-or-string": true},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 100}},
        "items": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 100}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.v) || !has(oldSelf.v) || self.v >= oldSelf.v", "message": "v only grows"},
                {"rule": "oldSelf.hasValue() || self.?v.orValue(0) < 100", "optionalOldSelf": true, "message": "new ones start small"},
            ]}},
    }}}})
}

/// A definition of its own for each schema.
fn crd(plural: &str, schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.differential.example.com")},
        "spec": {"group": "differential.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Widget".to_owned() + plural, "listKind": "List".to_owned() + plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    })
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
fn masked(message: &str) -> String {
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
        for seed in 0..CREATES_PER_SCHEMA {
            let name = format!("o{seed}");
            let sent = object(&version, &server.namespace, &name, &schema, &mut Random::new(seed));
            let (code, answer) = server.send("POST", &server.objects(plural), &sent).await?;
            if code == 201 {
                accepted.push(answer.clone());
            }
            tally.note(code, &answer, created(&version, &sent), plural, &sent);
        }
        for (seed, old) in (1000..1000 + UPDATES_PER_SCHEMA).zip(accepted.iter().cycle()) {
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
        for seed in 0..UPDATES_PER_SCHEMA {
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
        for seed in 0..UPDATES_PER_SCHEMA {
            let path = format!("{path}/o{seed}");
            let (_, old) = server.send("GET", &path, &json!(null)).await?;
            let mut sent = old.clone();
            let fresh = object(&version, &server.namespace, "x", &schema, &mut Random::new(seed + 500));
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
    let errors = version.validate_update(&object, &old);
    if errors.is_empty() { Ok(object) } else { Err(errors) }
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

fn wrong_definitions() -> Vec<Value> {
    let spec = |inner: Value| json!({"type": "object", "properties": {"spec": inner}});
    let rule = |rule: Value| {
        spec(
            json!({"type": "object", "properties": {"s": {"type": "string", "maxLength": 9}, "i": {"type": "integer"},
            "l": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 9}}}, "x-kubernetes-validations": [rule]}),
        )
    };
    let of = |rule_text: &str| rule(json!({"rule": rule_text}));
    let schemas = vec![
        spec(json!({"type": "object"})),
        spec(json!({})),
        json!({"type": "string"}),
        json!({"type": "object", "nullable": true}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}}}),
        json!({"type": "object", "properties": {"kind": {"type": "integer"}, "apiVersion": {"type": "string", "default": "x"}}}),
        spec(json!({"type": "array"})),
        spec(json!({"type": "unknown"})),
        spec(json!({"type": "null"})),
        spec(json!({"type": "array", "items": {}})),
        spec(json!({"type": "array", "items": [{"type": "string"}]})),
        spec(json!({"type": "string", "pattern": "^[a-z"})),
        spec(json!({"type": "string", "default": 5})),
        spec(json!({"type": "string", "default": "long", "maxLength": 2})),
        spec(json!({"type": "object", "default": {"x": 1}})),
        spec(json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "string"}}})),
        spec(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}})),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        ),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        spec(json!({"type": "object", "patternProperties": {"a": {"type": "string"}}})),
        spec(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
        spec(json!({"type": "string", "x-kubernetes-embedded-resource": true})),
        spec(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
        spec(json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true})),
        spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]})),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"properties": {"b": {"minLength": 1}}}]}),
        ),
        spec(
            json!({"type": "object", "allOf": [{"type": "object", "description": "x", "nullable": true, "default": {}}]}),
        ),
        spec(json!({"type": "object", "not": {"properties": {"metadata": {}}}})),
        spec(json!({"type": "string", "x-kubernetes-list-type": "set"})),
        spec(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"})),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"})),
        spec(
            json!({"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
        ),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
        spec(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        ),
        spec(
            json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        ),
        spec(
            json!({"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k", "z"]}),
        ),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-map-keys": ["k"]})),
        spec(json!({"type": "object", "x-kubernetes-map-type": "odd"})),
        spec(json!({"type": "string", "x-kubernetes-map-type": "atomic"})),
        of("self.s.size() > 1"),
        of("self.nope == 1"),
        of("self.s == 1"),
        of("self.s"),
        of("nope"),
        of("self.s.frob()"),
        of("self.l.all(x, x)"),
        of("self.i.all(x, true)"),
        of("self.s.size(1) > 1"),
        of("[1, 'a'].size() > 0"),
        of("duration('x') > duration('1s')"),
        of("self.s.matches('[')"),
        of("true || self.s in 5"),
        of("has(self)"),
        of("'%s %d'.format(['a', 1]) == ''"),
        of("self.i > 1.5 && self.i == 2"),
        of("self.i == 1.5"),
        of("self.s == null"),
        of("self.l == ['a'] && self.l[0] == 'a' && 'a' in self.l"),
        of("self.?s.orValue(1) == 1"),
        of("self.l.exists(x, y, true)"),
        of(""),
        rule(json!({"rule": "true", "message": " "})),
        rule(json!({"rule": "true", "message": "a\nb"})),
        rule(json!({"rule": "true\n"})),
        rule(json!({"rule": "true &&\n true"})),
        rule(json!({"rule": "true", "messageExpression": "1"})),
        rule(json!({"rule": "true", "messageExpression": "self.nope"})),
        rule(json!({"rule": "true", "messageExpression": " "})),
        rule(json!({"rule": "true", "reason": "Because"})),
        rule(json!({"rule": "true", "fieldPath": ".s"})),
        rule(json!({"rule": "true", "fieldPath": ".z"})),
        rule(json!({"rule": "true", "fieldPath": "s"})),
        rule(json!({"rule": "true", "optionalOldSelf": true})),
        rule(json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true})),
        rule(json!({"rule": "self == oldSelf"})),
        spec(
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        ),
        spec(
            json!({"type": "string", "default": "x", "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "not x"}]}),
        ),
    ];
    let mut definitions: Vec<Value> = schemas.iter().map(|schema| crd("wrongs", schema)).collect();
    let plain = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
        "status": {"type": "object"}}});
    let changed = |path: &str, value: Value| {
        let mut definition = crd("wrongs", &plain);
        let (parent, name) = path.rsplit_once('/').expect("a pointer");
        definition.pointer_mut(parent).expect("a place")[name] = value;
        definition
    };
    let version = "/spec/versions/0";
    definitions.extend([
        changed("/metadata/name", json!("other")),
        changed("/spec/group", json!("nodots")),
        changed("/spec/group", json!("Bad.example.com")),
        changed("/spec/group", json!("x.k8s.io")),
        changed("/spec/scope", json!("Somewhere")),
        changed("/spec/names/kind", json!("a b")),
        changed("/spec/names/listKind", json!("Widgetwrongs")),
        changed("/spec/names/shortNames", json!(["ok", "Not_"])),
        changed("/spec/names/singular", json!("Sing")),
        changed("/spec/names/categories", json!(["a b"])),
        changed(&format!("{version}/name"), json!("V1")),
        changed(&format!("{version}/storage"), json!(false)),
        changed(&format!("{version}/schema"), json!(null)),
        changed(&format!("{version}/deprecationWarning"), json!("x")),
        changed(&format!("{version}/subresources"), json!({"scale": {"specReplicasPath": "bad", "statusReplicasPath": ".spec.x"}})),
        changed(&format!("{version}/subresources"), json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".x"}})),
        changed(&format!("{version}/additionalPrinterColumns"), json!([{"name": "", "type": "bad", "jsonPath": "x[", "format": "odd"}])),
        changed(&format!("{version}/selectableFields"), json!([{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}, {"jsonPath": ".spec.zz"}, {"jsonPath": "spec.a"}, {"jsonPath": ".spec"}])),
        changed("/spec/conversion", json!({"strategy": "Webhook"})),
        changed("/spec/conversion", json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://x"}, "conversionReviewVersions": ["v2", "v2"]}})),
        changed("/spec/conversion", json!({"strategy": "None", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}})),
        changed("/spec/conversion", json!({"strategy": "Odd"})),
        changed("/spec/preserveUnknownFields", json!(true)),
        changed("/spec/versions", json!([])),
    ]);
    let two = |second: Value| {
        let mut definition = crd("wrongs", &plain);
        let mut version = definition["spec"]["versions"][0].clone();
        version["name"] = "v2".into();
        version["storage"] = false.into();
        version.as_object_mut().expect("a version").extend(second.as_object().expect("changes").clone());
        definition["spec"]["versions"].as_array_mut().expect("versions").push(version);
        definition
    };
    definitions.extend([
        two(json!({})),
        two(json!({"name": "v1"})),
        two(json!({"storage": true})),
        two(json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "array"}}}}})),
        two(json!({"subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}}})),
        two(json!({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "a"}]})),
    ]);
    definitions
}
