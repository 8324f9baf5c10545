//! Requests for certificates.

use serde_json::{Value, json};

use super::{changed, create, endpoints, facts, kind_of, refused};
use crate::kind::certificates::{set_requester, set_times};
use crate::write::Refused;

const VERSION: &str = "certificates.k8s.io/v1";
const KIND: &str = "CertificateSigningRequest";

fn request() -> Value {
    json!({"metadata": {"name": "node-csr-AbC_x"},
        "spec": {"request": "AAAA", "signerName": "example.com/s", "usages": ["client auth"]}})
}

#[test]
fn rule_3_14_a_request_names_its_signer() {
    let of = |signer: &str, expected: &[&str]| {
        let mut request = request();
        request["spec"]["signerName"] = json!(signer);
        refused(VERSION, KIND, false, request, expected);
    };
    let path = "spec.signerName: Invalid value:";
    of("example.com/a.b", &[]);
    of("", &["spec.signerName: Required value"]);
    of("nodomain", &[&format!("{path} \"nodomain\": must be a fully qualified domain and path")]);
    of("a.b/c/d", &[&format!("{path} \"a.b/c/d\": must be a fully qualified domain and path")]);
    of("a/b", &[&format!("{path} \"a\": should be a domain with at least two segments")]);
    of("a.B/c", &[&format!("{path} \"a.B\": validating label \"B\": ")]);
    of("a.b/C", &[&format!("{path} \"C\": validating label \"C\": ")]);
    of("kubernetes.io/legacy-unknown", &[&format!("{path} \"kubernetes.io/legacy-unknown\": the legacy")]);
}

#[test]
fn rule_3_14_who_asks_is_not_what_is_sent() {
    let mut forged = request();
    forged["spec"]["username"] = json!("root");
    forged["spec"]["groups"] = json!(["system:masters"]);
    set_requester(&mut forged, &json!({"username": "mallory", "groups": ["devs"]}));
    assert_eq!(forged["spec"]["username"], "mallory");
    assert_eq!(forged["spec"]["groups"], json!(["devs"]));
    set_requester(&mut forged, &json!({"username": "mallory"}));
    assert_eq!(forged["spec"].get("groups"), None);
}

#[test]
fn rule_3_14_what_was_asked_for_stays() {
    let change = [("/spec/request", json!("BBBB")), ("/spec/signerName", json!("example.com/other"))];
    let made = changed(VERSION, KIND, request(), &change, &[]);
    assert_eq!(
        (&made["spec"]["request"], &made["spec"]["signerName"]),
        (&json!("AAAA"), &json!("example.com/s"))
    );
}

/// What becomes of the status of a request that has such a one, or the errors.
fn of_status(subresource: &str, old: &Value, new: &Value) -> Result<Value, String> {
    let facts = facts(VERSION, KIND, false);
    let mut stored = create(&facts, request()).expect("a request").object;
    stored["metadata"]["resourceVersion"] = json!("1");
    stored["status"] = old.clone();
    let mut sent = stored.clone();
    sent["status"] = new.clone();
    match endpoints::update_subresource(kind_of(&facts), &facts, subresource, &sent, &stored, &Vec::new()) {
        Ok(accepted) => Ok(accepted.object["status"].clone()),
        Err(Refused::Invalid(errors)) => {
            Err(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
        Err(other) => panic!("{other}"),
    }
}

fn is(kind: &str, status: &str) -> Value {
    let time = "2025-01-01T00:00:00Z";
    json!({"type": kind, "status": status, "lastUpdateTime": time, "lastTransitionTime": time})
}

#[test]
fn rule_3_14_conditions_of_requests() {
    let check = |subresource: &str, old: Value, new: Value, expected: &str| {
        let [old, new] = [old, new].map(|conditions| json!({"conditions": conditions}));
        assert_eq!(of_status(subresource, &old, &new).map(drop).err().unwrap_or_default(), expected, "{new}");
    };
    let (approved, denied, failed) = (is("Approved", "True"), is("Denied", "True"), is("Failed", "True"));
    let path = "status.conditions";
    let no = |what: &str| format!("{path}: Forbidden: updates may not {what}");
    check("approval", json!([]), json!([approved]), "");
    check("status", json!([]), json!([failed]), "");
    check("status", json!([]), json!([approved]), &no("add a condition of type \"Approved\""));
    check("status", json!([]), json!([denied]), &no("add a condition of type \"Denied\""));
    check("approval", json!([approved]), json!([]), &no("remove a condition of type \"Approved\""));
    check("status", json!([failed]), json!([]), &no("remove a condition of type \"Failed\""));
    let both =
        format!("{path}: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive");
    check("approval", json!([]), json!([approved, denied]), &both);
    // What is there already is let pass.
    check("approval", json!([approved, denied]), json!([approved, denied, is("x", "True")]), "");
    let only = format!("{path}[0].status: Unsupported value: \"False\": supported values: \"True\"");
    check("approval", json!([]), json!([is("Approved", "False")]), &only);
    check("status", json!([]), json!([is("x", "")]), &format!("{path}[0].status: Required value"));
    check("status", json!([]), json!([is("", "True")]), &format!("{path}[0].type: Required value"));
    let twice = json!([is("x", "True"), is("x", "False")]);
    check("status", json!([]), twice, &format!("{path}[1].type: Duplicate value: \"x\""));
}

#[test]
fn rule_3_14_who_approves_signs_nothing() {
    let approved = json!({"conditions": [is("Approved", "True")]});
    let with = |status: &Value, certificate: &str| {
        let mut status = status.clone();
        status["certificate"] = json!(certificate);
        status
    };
    let kept = of_status("approval", &json!({}), &with(&approved, "AAAA")).expect("an approval");
    assert_eq!(kept.get("certificate"), None);
    let signed = of_status("status", &approved, &with(&approved, "AAAA")).expect("a certificate");
    assert_eq!(signed["certificate"], "AAAA");
    let again = of_status("status", &signed, &with(&approved, "BBBB"));
    let why = "status.certificate: Forbidden: updates may not modify existing certificate content";
    assert_eq!(again.err().as_deref(), Some(why));
    let mut reworded = approved.clone();
    reworded["conditions"][0]["message"] = json!("by the signer");
    let kept = of_status("status", &approved, &reworded).expect("a change of nothing");
    assert_eq!(kept["conditions"], approved["conditions"]);
}

#[test]
fn rule_3_14_when_something_was_said() {
    let old = json!({"status": {"conditions": [is("Failed", "True")]}});
    let mut new = json!({"status": {"conditions": [{"type": "Failed", "status": "True"}, {"type": "x", "status": "True"}]}});
    set_times(&mut new, &old, "2026-01-01T00:00:00Z");
    let conditions = &new["status"]["conditions"];
    assert_eq!(conditions[0]["lastUpdateTime"], "2026-01-01T00:00:00Z");
    assert_eq!(conditions[0]["lastTransitionTime"], "2025-01-01T00:00:00Z");
    assert_eq!(conditions[1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
}
