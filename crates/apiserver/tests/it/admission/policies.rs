//! Policies, on our server and on a real one.

use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};

use crate::both::Both;

const MAPS: &str = "/api/v1/namespaces/n/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

fn policy(name: &str, spec: Value) -> Value {
    let mut policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {"matchConstraints": {
            "objectSelector": {"matchLabels": {"scenario": name}},
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
                               "operations": ["CREATE", "UPDATE", "DELETE"]}]}},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        policy["spec"][key] = value.clone();
    }
    policy
}

fn binding(name: &str, spec: Value) -> Value {
    let mut binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        binding["spec"][key] = value.clone();
    }
    binding
}

fn map(scenario: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": scenario, "labels": {"scenario": scenario}}, "data": data})
}

async fn post(client: &Client, path: &str, body: &Value) -> String {
    let request = Request::post(path).header("Content-Type", "application/json");
    let request = request.body(body.to_string().into_bytes()).expect("a request");
    client.request_text(request).await.unwrap_or_else(|error| error.to_string())
}

#[tokio::test]
async fn rule_3_20_policies_hold_alike_here_and_there() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n", "labels": {"team": "a"}}})).await;
    let validations = |list: Value| json!({"validations": list});
    let params = json!({"metadata": {"name": "params"}, "data": {"max": "2"}});
    both.make(MAPS, &params).await;
    let param_kind = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    let of_params = |name: &str, action: &str| json!({"paramRef": {"name": name, "namespace": "n", "parameterNotFoundAction": action}});
    let all: Vec<(&str, Value, Value)> = vec![
        ("plain", validations(json!([{"expression": "object.data.a == 'b'"}])), json!({})),
        (
            "message",
            validations(json!([{"expression": "object.data.a == 'b'", "message": " a must be b "}])),
            json!({}),
        ),
        (
            "computed",
            validations(json!([{"expression": "object.data.a == 'b'", "reason": "Forbidden",
                                "messageExpression": "'a is ' + object.data.a + ' in ' + namespaceObject.metadata.labels.team"}])),
            json!({}),
        ),
        ("failing", validations(json!([{"expression": "object.data.absent.x == 1"}])), json!({})),
        (
            "ignoring",
            json!({"failurePolicy": "Ignore", "validations": [{"expression": "object.data.absent.x == 1"}]}),
            json!({}),
        ),
        (
            "warning",
            validations(json!([{"expression": "false", "message": "mind"}])),
            json!({"validationActions": ["Warn"]}),
        ),
        (
            "variables",
            json!({"variables": [{"name": "a", "expression": "object.data.a"}, {"name": "long", "expression": "size(variables.a) > 2"}],
                   "validations": [{"expression": "!variables.long", "messageExpression": "variables.a + ' is long'"}]}),
            json!({}),
        ),
        (
            "params",
            json!({"paramKind": param_kind, "validations": [{"expression": "size(object.data) <= int(params.data.max)"}]}),
            of_params("params", "Deny"),
        ),
        (
            "no-params",
            json!({"paramKind": param_kind, "validations": [{"expression": "false"}]}),
            of_params("absent", "Deny"),
        ),
        (
            "allowed-without",
            json!({"paramKind": param_kind, "validations": [{"expression": "false"}]}),
            of_params("absent", "Allow"),
        ),
        (
            "condition",
            json!({"matchConditions": [{"name": "c", "expression": "request.operation == 'DELETE'"}],
                   "validations": [{"expression": "false", "message": "it stays"}]}),
            json!({}),
        ),
        (
            "elsewhere",
            validations(json!([{"expression": "false"}])),
            json!({"matchResources": {"namespaceSelector": {"matchLabels": {"team": "b"}}}}),
        ),
        (
            "immutable",
            validations(json!([{"expression": "oldObject == null || object.data == oldObject.data"}])),
            json!({}),
        ),
        (
            "authorizer",
            json!({"variables": [{"name": "may", "expression": "authorizer.group('').resource('pods').namespace('n').check('get')"}],
                   "validations": [{"expression": "variables.may.allowed() && !variables.may.errored() && object.data.a == 'b'"}]}),
            json!({}),
        ),
        (
            "authorizer-account",
            validations(
                json!([{"expression": "authorizer.serviceAccount('n', 'x').group('').resource('secrets').namespace('n').check('get').allowed()"}]),
            ),
            json!({}),
        ),
        (
            "authorizer-request",
            json!({"matchConditions": [{"name": "c", "expression": "authorizer.requestResource.check('create').allowed()"}],
                   "validations": [{"expression": "authorizer.path('/healthz').check('get').allowed() && object.data.a == 'b'"}]}),
            json!({}),
        ),
        (
            "authorizer-wrong",
            validations(json!([{"expression": "authorizer.group('').resource(' ').check('get').allowed()"}])),
            json!({}),
        ),
        ("last", validations(json!([{"expression": "false"}])), json!({})),
    ];
    for (name, spec, bound) in &all {
        for client in [both.ours(), both.real()] {
            for (plural, body) in [
                ("validatingadmissionpolicies", policy(name, spec.clone())),
                ("validatingadmissionpolicybindings", binding(name, bound.clone())),
            ] {
                let made = post(client, &format!("{REGISTRATION}/{plural}"), &body).await;
                assert!(made.contains("\"uid\""), "{name}: {made}");
            }
        }
    }
    // The real server learns of them a moment later, of the last one last.
    let marker = map("immutable", json!({"a": "b"}));
    for scenario in ["last", "plain", "no-params", "params", "failing"] {
        while !post(
            both.real(),
            &format!("{MAPS}?dryRun=All"),
            &map(scenario, json!({"a": "x", "b": "", "c": ""})),
        )
        .await
        .contains("denied request")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    for (name, ..) in &all {
        for data in [json!({"a": "b"}), json!({"a": "wrong", "b": "", "c": ""})] {
            let path = format!("{MAPS}?dryRun=All");
            both.ask(&[], &Method::POST, &path, Some(&map(name, data))).await;
        }
    }
    both.make(MAPS, &marker).await;
    let path = format!("{MAPS}/immutable");
    let (code, _) = both.ask(&[], &Method::PUT, &path, Some(&map("immutable", json!({"a": "c"})))).await;
    assert_eq!(code, 422);
    both.make(MAPS, &map("condition", json!({}))).await;
    let (code, _) = both.ask(&[], &Method::DELETE, &format!("{MAPS}/condition"), None).await;
    assert_eq!(code, 422);
}
