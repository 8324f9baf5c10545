//! Who may do what, and what is allowed: RBAC, admission, disruption, certificates, flow control.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rules::job::table::human;
use rules::meta::selector::in_go;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::Cells;
use super::value::{NONE, UNSET, age, at, count, filled, list, name, number, switch, text, text_or};

pub(super) fn find(group: &str, kind: &str) -> Option<(&'static str, Cells)> {
    Some(match (group, kind) {
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            ("Name:name|Role|Age|Users*|Groups*|ServiceAccounts*", role_binding)
        }
        ("policy", "PodDisruptionBudget") => {
            ("Name:name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age", disruption_budget)
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            ("Name:name|Age|SignerName|Requestor|RequestedDuration|Condition", signing_request)
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => ("Name:name|Webhooks:integer|Age", |o, now| {
            vec![name(o), json!(count(o, "webhooks")), age(o, now)]
        }),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy") => {
            ("Name:name|Validations:integer|ParamKind|Age", |o, now| policy(o, "spec/validations", now))
        }
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy") => {
            ("Name:name|Mutations:integer|ParamKind|Age", |o, now| policy(o, "spec/mutations", now))
        }
        (
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding",
        ) => ("Name:name|PolicyName|ParamRef|Age", policy_binding),
        ("scheduling.k8s.io", "PriorityClass") => {
            ("Name:name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy", priority_class)
        }
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => {
            ("Name:name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL", flow_schema)
        }
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => {
            ("Name:name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age", priority_level)
        }
        _ => return None,
    })
}

fn role_binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let role = format!("{}/{}", text(binding, "roleRef/kind"), text(binding, "roleRef/name"));
    let subjects = |kind: &str| {
        let of_kind = list(binding, "subjects").iter().filter(|subject| subject["kind"] == kind);
        let names = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "namespace"), text(subject, "name")),
            _ => text(subject, "name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![
        name(binding),
        json!(role),
        age(binding, now),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn disruption_budget(budget: &Value, now: Timestamp) -> Vec<Value> {
    let bound = |part: &str| match &budget["spec"][part] {
        Value::String(text) => json!(text),
        Value::Number(number) => json!(number.to_string()),
        _ => json!("N/A"),
    };
    vec![
        name(budget),
        bound("minAvailable"),
        bound("maxUnavailable"),
        json!(number(budget, "status/disruptionsAllowed")),
        age(budget, now),
    ]
}

fn signing_request(request: &Value, now: Timestamp) -> Vec<Value> {
    let has =
        |kind: &str| list(request, "status/conditions").iter().any(|condition| condition["type"] == kind);
    let mut condition = match () {
        () if has("Denied") => "Denied".to_owned(),
        () if has("Approved") => "Approved".to_owned(),
        () => "Pending".to_owned(),
    };
    if has("Failed") {
        condition.push_str(",Failed");
    }
    if !text(request, "status/certificate").is_empty() {
        condition.push_str(",Issued");
    }
    let seconds = at(request, "spec/expirationSeconds").as_u64();
    let lasts = seconds.map_or(NONE.to_owned(), |seconds| human(Duration::from_secs(seconds)));
    vec![
        name(request),
        age(request, now),
        json!(filled(request, "spec/signerName", NONE)),
        json!(text(request, "spec/username")),
        json!(lasts),
        json!(condition),
    ]
}

fn policy(policy: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = at(policy, "spec/paramKind");
    let kind = if kind.is_null() {
        UNSET.to_owned()
    } else {
        format!("{}/{}", text(kind, "apiVersion"), text(kind, "kind"))
    };
    vec![name(policy), json!(count(policy, rules)), json!(kind), age(policy, now)]
}

fn policy_binding(binding: &Value, now: Timestamp) -> Vec<Value> {
    let parameter = at(binding, "spec/paramRef");
    let shown = match text(parameter, "name") {
        "" if !at(parameter, "selector").is_null() => go_selector(at(parameter, "selector")),
        "" => UNSET.to_owned(),
        name => format!("{}/{name}", filled(parameter, "namespace", "*")),
    };
    vec![name(binding), json!(text(binding, "spec/policyName")), json!(shown), age(binding, now)]
}

/// A label selector as Go prints the struct.
fn go_selector(selector: &Value) -> String {
    LabelSelector::deserialize(selector).map(|selector| in_go(&selector)).unwrap_or_default()
}

fn priority_class(class: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        name(class),
        json!(number(class, "value")),
        json!(switch(class, "globalDefault", false)),
        age(class, now),
        json!(text(class, "preemptionPolicy")),
    ]
}

fn flow_schema(schema: &Value, now: Timestamp) -> Vec<Value> {
    let dangling = list(schema, "status/conditions").iter().find(|condition| condition["type"] == "Dangling");
    vec![
        name(schema),
        json!(text(schema, "spec/priorityLevelConfiguration/name")),
        json!(number(schema, "spec/matchingPrecedence")),
        json!(text_or(schema, "spec/distinguisherMethod/type", NONE)),
        age(schema, now),
        json!(dangling.map_or("?", |condition| text(condition, "status"))),
    ]
}

fn priority_level(level: &Value, now: Timestamp) -> Vec<Value> {
    let limited = at(level, "spec/limited");
    let queuing = at(limited, "limitResponse/queuing");
    let shown = |of: &Value, part: &str| match of {
        Value::Null => json!(NONE),
        of => json!(number(of, part)),
    };
    vec![
        name(level),
        json!(text(level, "spec/type")),
        shown(limited, "nominalConcurrencyShares"),
        shown(queuing, "queues"),
        shown(queuing, "handSize"),
        shown(queuing, "queueLengthLimit"),
        age(level, now),
    ]
}
