//! What is refused about kubeconfigs and checks, in Kueue's words.

use serde_json::{Value, json};
use types::kueue::{AdmissionCheck, MultiKueueConfig};

use crate::dispatch::{check, kubeconfig};

fn config(change: impl FnOnce(&mut Value)) -> Value {
    let mut config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": "eA=="}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    change(&mut config);
    config
}

/// MK-CONN-03, MK-CONN-04, MK-CONN-05, MK-CONN-06.
#[test]
fn kubeconfigs() {
    let check = |change: &dyn Fn(&mut Value), expected: &str| {
        let said = kubeconfig::refuse(&config(change)).err().unwrap_or_default();
        assert_eq!(said, expected);
    };
    let cluster = |field: &'static str, value: Value| {
        move |c: &mut Value| c["clusters"][0]["cluster"][field] = value.clone()
    };
    let user =
        |field: &'static str, value: Value| move |c: &mut Value| c["users"][0]["user"][field] = value.clone();
    check(&|_| {}, "");
    check(&cluster("server", json!("https://kind-worker1-control-plane:6443")), "");
    check(&cluster("server", json!("https://[::1]:6443/path")), "");
    check(&user("client-certificate-data", json!("eA==")), "");
    check(&user("tokenFile", json!("/t")), "tokenFile is not allowed");
    check(
        &cluster("insecure-skip-tls-verify", json!(true)),
        "insecure TLS verification is not allowed for cluster k",
    );
    check(
        &cluster("certificate-authority", json!("/ca")),
        "certificate-authority file paths are not allowed, use certificate-authority-data for cluster k",
    );
    check(&cluster("server", json!("")), "server URL is required for cluster k");
    for server in
        ["http://10.0.0.1", "10.0.0.1:6443", "https://a_b", "https://u@host", "https://host:port", "ftp://h"]
    {
        check(&cluster("server", json!(server)), "untrusted server endpoint");
    }
    check(&user("password", json!("p")), "basic auth is not allowed");
    check(&user("exec", json!({"command": "c"})), "exec plugins are not allowed");
    check(&user("auth-provider", json!({"name": "n"})), "auth providers are not allowed");
    check(&user("client-key", json!("/k")), "client certificate and key file paths are not allowed");
    check(&|c| c["current-context"] = json!("x"), "context \"x\" does not exist");
    check(&|c| c["contexts"][0]["context"]["cluster"] = json!("x"), "cluster \"x\" does not exist");
    // All users and clusters are looked at, not only the current ones (MK-CONN-04).
    let second = |c: &mut Value| {
        let more = json!({"name": "other", "user": {"tokenFile": "/t"}});
        c["users"].as_array_mut().expect("users").push(more);
    };
    check(&second, "tokenFile is not allowed");
}

/// MK-AC-01, MK-AC-02, MK-AC-03.
#[test]
fn checks() {
    let of = |parameters: Value| -> AdmissionCheck {
        let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
        serde_json::from_value(json!({"metadata": {"name": "mk"}, "spec": spec})).expect("a check")
    };
    let good = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "c"});
    assert_eq!(check::config_name(&of(good)), Ok("c"));
    for (parameters, why) in [
        (Value::Null, "missing parameters reference"),
        (
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig"}),
            "empty name: bad parameters reference",
        ),
        (
            json!({"apiGroup": "g", "kind": "MultiKueueConfig", "name": "c"}),
            "wrong group \"g\", expecting \"kueue.x-k8s.io\": bad parameters reference",
        ),
        (
            json!({"apiGroup": "kueue.x-k8s.io", "kind": "K", "name": "c"}),
            "wrong kind \"K\", expecting \"MultiKueueConfig\": bad parameters reference",
        ),
    ] {
        assert_eq!(check::config_name(&of(parameters)), Err(why.to_owned()));
    }
    let config: MultiKueueConfig = serde_json::from_value(
        json!({"metadata": {"name": "c"}, "spec": {"clusters": ["d", "b", "a", "c"]}}),
    )
    .expect("a config");
    let say = |clusters: &[(&str, bool)]| {
        let active = check::active(Ok(&config), |name| {
            clusters.iter().find(|(other, _)| *other == name).map(|(_, is)| *is)
        });
        (active.status, active.reason, active.message)
    };
    let expect = |status, reason, message: &str| (status, reason, message.to_owned());
    assert_eq!(
        say(&[("a", true), ("b", true), ("c", true), ("d", true)]),
        expect(true, "Active", "The admission check is active")
    );
    assert_eq!(
        say(&[("a", true), ("c", false)]),
        expect(true, "SomeActiveClusters", "Missing clusters: [d b], Inactive clusters: [c]")
    );
    assert_eq!(
        say(&[("a", false), ("b", false), ("c", false), ("d", false)]),
        expect(false, "NoUsableClusters", "Inactive clusters: [d b a c]")
    );
    let bad = check::active(Err(check::config_not_found("c")), |_| None);
    assert_eq!(
        (bad.reason, bad.message.as_str()),
        (
            "BadConfig",
            "Cannot load the AdmissionChecks parameters: multikueueconfigs.kueue.x-k8s.io \"c\" not found"
        )
    );
}
