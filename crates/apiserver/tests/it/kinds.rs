//! Stories of single kinds that are longer than the random ones of `tests/kinds`: what is said of an object in one place and
//! holds in another.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::both::Both;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const MERGE: (&str, &str) = ("Content-Type", "application/merge-patch+json");
/// Somebody who may do everything, but is somebody.
const MALLORY: [(&str, &str); 3] =
    [("Impersonate-User", "mallory"), ("Impersonate-Group", "system:masters"), ("Impersonate-Group", "devs")];

/// A request for a certificate, and a certificate.
fn certificates() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["a.b".to_owned()]).expect("a name");
    let request = params.serialize_request(&key).and_then(|request| request.pem()).expect("a request");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    (STANDARD.encode(request), STANDARD.encode(certificate))
}

fn signing(name: &str, request: &str) -> Value {
    let spec = json!({"request": request, "signerName": "example.com/s", "usages": ["client auth"],
        "username": "system:node:n", "uid": "u", "groups": ["system:nodes"], "extra": {"a": ["b"]}});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn rule_3_14_who_asks_for_a_certificate_is_said_by_the_server() {
    let Some(both) = Both::start().await else { return };
    let (request, _) = certificates();
    // A name of the form that nodes choose.
    let made = signing("node-csr-AbC_x", &request);
    let (code, made) = both.ask(&MALLORY, &Method::POST, REQUESTS, Some(&made)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(made["spec"]["username"], "mallory");
    assert_eq!(made["spec"]["groups"], json!(["system:masters", "devs", "system:authenticated"]));
    assert!(made["spec"]["uid"].is_null() && made["spec"]["extra"].is_null(), "{made}");

    // What was asked for is not changed any more.
    let path = format!("{REQUESTS}/node-csr-AbC_x");
    let change = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"signerName": "example.com/other", "username": "root", "usages": ["any"]}});
    let (code, changed) = both.ask(&[MERGE], &Method::PATCH, &path, Some(&change)).await;
    assert_eq!((code, &changed["spec"]), (200, &made["spec"]));

    let spoilt = STANDARD.decode(&request).expect("base64");
    let spoilt = STANDARD.encode(String::from_utf8(spoilt).expect("PEM").replace("REQUEST", "REQ"));
    let nobody = [("signerName", Value::Null), ("signerName", json!("s")), ("request", json!(spoilt))];
    for (field, value) in nobody {
        let mut other = signing("other", &request);
        other["spec"][field] = value;
        let (code, said) = both.ask(&[], &Method::POST, REQUESTS, Some(&other)).await;
        assert_eq!(code, 422, "{said}");
    }
}

#[tokio::test]
async fn rule_3_14_who_signs_does_not_approve_and_who_approves_does_not_sign() {
    let Some(both) = Both::start().await else { return };
    let (request, certificate) = certificates();
    let (_, other) = certificates();
    let (code, made) = both.ask(&MALLORY, &Method::POST, REQUESTS, Some(&signing("a", &request))).await;
    assert_eq!(code, 201, "{made}");
    let (status, approval) = (format!("{REQUESTS}/a/status"), format!("{REQUESTS}/a/approval"));
    let is = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "r"});
    let patch = async |path: &str, status: Value| {
        both.ask(&[MERGE], &Method::PATCH, path, Some(&json!({"status": status}))).await
    };
    for (path, conditions) in [
        (&status, json!([is("Approved", "True")])),
        (&status, json!([is("Denied", "True")])),
        (&status, json!([is("Failed", "False")])),
        (&status, json!([is("", "True")])),
        (&status, json!([is("x", "")])),
        (&status, json!([is("x", "True"), is("x", "False")])),
        (&approval, json!([is("Approved", "False")])),
        (&approval, json!([is("Approved", "True"), is("Denied", "True")])),
    ] {
        let (code, said) = patch(path, json!({"conditions": conditions})).await;
        assert_eq!(code, 422, "{said}");
    }
    let approved = json!({"conditions": [is("Approved", "True")], "certificate": certificate});
    let (code, said) = patch(&approval, approved).await;
    assert_eq!((code, &said["status"]["certificate"]), (200, &Value::Null), "{said}");
    let condition = &said["status"]["conditions"][0];
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(), "{said}");

    // No way leads back, and a signer leaves the approval as it is.
    for (path, conditions) in
        [(&approval, json!([])), (&status, json!([])), (&approval, json!([is("x", "True")]))]
    {
        let (code, said) = patch(path, json!({"conditions": conditions})).await;
        assert_eq!(code, 422, "{said}");
    }
    let mut reworded = is("Approved", "True");
    reworded["message"] = json!("by the signer");
    let signed = json!({"conditions": [reworded], "certificate": certificate});
    let (code, said) = patch(&status, signed).await;
    assert_eq!((code, &said["status"]["certificate"]), (200, &json!(certificate)), "{said}");
    assert_eq!(said["status"]["conditions"][0]["message"], Value::Null, "{said}");
    for certificate in [json!(other), Value::Null] {
        let (code, said) = patch(&status, json!({"certificate": certificate})).await;
        assert_eq!(code, 422, "{said}");
    }
}

#[tokio::test]
async fn the_priorities_of_the_system_are_not_deleted() {
    let Some(both) = Both::start().await else { return };
    for name in ["system-node-critical", "system-cluster-critical"] {
        let path = format!("/apis/scheduling.k8s.io/v1/priorityclasses/{name}");
        let (code, said) = both.ask(&[], &Method::DELETE, &path, None).await;
        assert_eq!(code, 403, "{said}");
    }
}

#[tokio::test]
async fn autoscalers_lose_nothing_by_way_of_their_first_version() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let [first, second] = ["v1", "v2"]
        .map(|version| format!("/apis/autoscaling/{version}/namespaces/n/horizontalpodautoscalers"));
    let memory = json!({"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "Utilization", "averageUtilization": 70}}});
    let pods = json!({"type": "Pods", "pods": {"metric": {"name": "m"},
        "target": {"type": "AverageValue", "averageValue": "2"}}});
    let behavior = json!({"scaleDown": {"stabilizationWindowSeconds": 60}});
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let spec =
        json!({"maxReplicas": 3, "scaleTargetRef": target, "metrics": [memory, pods], "behavior": behavior});
    both.make(&second, &json!({"metadata": {"name": "a"}, "spec": spec})).await;
    let (first, second) = (format!("{first}/a"), format!("{second}/a"));
    let status = json!({"status": {"desiredReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True",
        "lastTransitionTime": "2025-01-01T00:00:00Z", "reason": "r", "message": "m"}]}});
    let (code, said) = both.ask(&[MERGE], &Method::PATCH, &format!("{second}/status"), Some(&status)).await;
    assert_eq!(code, 200, "{said}");
    let (_, before) = both.ask(&[], &Method::GET, &second, None).await;
    let (code, seen) = both.ask(&[], &Method::GET, &first, None).await;
    assert_eq!((code, seen["metadata"]["annotations"].as_object().map(serde_json::Map::len)), (200, Some(3)));
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let (code, said) = both.ask(&[MERGE], &Method::PATCH, &first, Some(&labels)).await;
    assert_eq!(code, 200, "{said}");
    let (_, after) = both.ask(&[], &Method::GET, &second, None).await;
    assert_eq!((&after["spec"], &after["status"]), (&before["spec"], &before["status"]));
    assert_eq!(after["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn rule_3_12_classes_of_claims_move_to_their_fields_and_stay() {
    const CLASS: &str = "volume.beta.kubernetes.io/storage-class";
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let claims = "/api/v1/namespaces/n/persistentvolumeclaims";
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "volumeAttributesClassName": "silver"});
    let annotated =
        |name: &str| json!({"metadata": {"name": name, "annotations": {CLASS: "gold"}}, "spec": spec});
    let gold = json!({"storageClassName": "gold"});
    for (name, change, expected) in [
        ("a", json!({"metadata": {"annotations": {CLASS: null}}, "spec": gold}), 200),
        ("b", json!({"spec": gold}), 200),
        ("c", json!({"spec": {"storageClassName": "lead"}}), 422),
        ("d", json!({"metadata": {"annotations": {CLASS: null}}}), 422),
    ] {
        both.make(claims, &annotated(name)).await;
        let (code, said) =
            both.ask(&[MERGE], &Method::PATCH, &format!("{claims}/{name}"), Some(&change)).await;
        assert_eq!(code, expected, "{said}");
    }
    let path = format!("{claims}/a");
    let bound = json!({"status": {"phase": "Bound", "currentVolumeAttributesClassName": "silver"}});
    let (code, said) = both.ask(&[MERGE], &Method::PATCH, &format!("{path}/status"), Some(&bound)).await;
    assert_eq!(code, 200, "{said}");
    for (class, expected) in [(Value::Null, 422), (json!(""), 422), (json!("gold"), 200)] {
        let change = json!({"spec": {"volumeAttributesClassName": class}});
        let (code, said) = both.ask(&[MERGE], &Method::PATCH, &path, Some(&change)).await;
        assert_eq!(code, expected, "{said}");
    }
    for status in [
        json!({"allocatedResources": {"storage": "-1"}}),
        json!({"allocatedResources": {"cpu": "1"}}),
        json!({"allocatedResourceStatuses": {"storage": "x"}}),
    ] {
        let change = json!({"status": status});
        let (code, said) = both.ask(&[MERGE], &Method::PATCH, &format!("{path}/status"), Some(&change)).await;
        assert_eq!(code, 422, "{said}");
    }
}

#[tokio::test]
async fn rule_2_75_evictions_are_of_pods_that_can_be_read() {
    let Some(both) = Both::start().await else { return };
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"},
        "deleteOptions": {"ignoreStoreReadErrorWithClusterBreakingPotential": true}});
    let path = "/api/v1/namespaces/n/pods/p/eviction";
    let (code, said) = both.ask(&[], &Method::POST, path, Some(&eviction)).await;
    assert_eq!(code, 422, "{said}");
}

#[tokio::test]
async fn rule_3_12_addresses_are_called_by_themselves() {
    let Some(both) = Both::start().await else { return };
    let spec = json!({"parentRef": {"resource": "services", "namespace": "n", "name": "s"}});
    for (name, expected) in
        [("10.200.0.1", 201), ("fe80:0::1", 422), ("010.0.0.1", 422), ("::ffff:1.2.3.4", 422), ("web", 422)]
    {
        let address = json!({"metadata": {"name": name}, "spec": spec});
        let path = "/apis/networking.k8s.io/v1/ipaddresses";
        let (code, said) = both.ask(&[], &Method::POST, path, Some(&address)).await;
        assert_eq!(code, expected, "{said}");
    }
}
