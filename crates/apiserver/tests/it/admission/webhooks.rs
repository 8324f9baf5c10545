//! Webhooks, asked by our server and by a real one: what comes of it is the same.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use kube::Client;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::both::Both;
use crate::crd::conversions;

/// A server that is asked, and what it was asked.
pub(crate) struct Hook {
    address: SocketAddr,
    authority: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    pub(crate) async fn start() -> Hook {
        let names = ["127.0.0.1", "hook.n.svc"].map(str::to_owned).to_vec();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
            )
            .expect("a server");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (acceptor, asked) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(Mutex::new(Vec::new())));
        let seen = asked.clone();
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let (acceptor, seen) = (acceptor.clone(), seen.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| answer(request, seen.clone()));
                    let builder = Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Hook { address, authority: STANDARD.encode(pem), asked }
    }

    pub(crate) fn config(&self, path: &str) -> Value {
        json!({"url": format!("https://{}{path}", self.address), "caBundle": self.authority})
    }
}

/// Answers by the path: what each does is what the test of it says.
async fn answer(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Value>>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    seen.lock().expect("no panics").push(review.clone());
    if path == "/convert" {
        return Ok(Response::new(Full::from(converted(&review["request"]).to_string())));
    }
    if let Some(how) = path.strip_prefix("/convert/") {
        let mut review = converted(&review["request"]);
        conversions::spoil(how, &mut review);
        return Ok(Response::new(Full::from(review.to_string())));
    }
    let label = |name: &str, value: &str| {
        let patch = json!([{"op": "add", "path": format!("/metadata/labels/{name}"), "value": value}]);
        json!({"patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
    };
    let mut response = match path.as_str() {
        "/mark" => label("marked", &review["request"]["operation"].as_str().unwrap_or("").to_lowercase()),
        "/count" => {
            let count = review["request"]["object"]["metadata"]["labels"]["count"].as_str();
            let count: u32 = count.and_then(|count| count.parse().ok()).unwrap_or(0);
            label("count", &(count + 1).to_string())
        }
        "/late" => label("late", "yes"),
        "/warn" => json!({"warnings": ["mind \"this\"", "and this"]}),
        "/deny" => json!({"allowed": false, "status": {"message": "no", "code": 418, "reason": "Teapot"}}),
        "/deny-reason" => json!({"allowed": false, "status": {"reason": "Because"}}),
        "/deny-plain" => json!({"allowed": false}),
        "/bad-uid" => json!({"uid": "other"}),
        "/bad-patch" => {
            json!({"patchType": "JSONPatch", "patch": STANDARD.encode(r#"[{"op":"remove","path":"/x/y"}]"#)})
        }
        "/no-type" => json!({"patch": STANDARD.encode("[]")}),
        "/slow" => {
            tokio::time::sleep(Duration::from_secs(3)).await;
            json!({})
        }
        "/broken" => {
            let broken = Response::builder().status(500).body(Full::from("out of order"));
            return Ok(broken.expect("an answer"));
        }
        _ => json!({}),
    };
    for (field, value) in [("uid", review["request"]["uid"].clone()), ("allowed", json!(true))] {
        if response[field].is_null() {
            response[field] = value;
        }
    }
    let review =
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::new(Full::from(review.to_string())))
}

/// One webhook, asked about ConfigMaps of this scenario.
/// What `v1` calls color, `v1beta1` calls hue.
fn converted(request: &Value) -> Value {
    let objects = request["objects"].as_array().into_iter().flatten().map(|object| {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        let is_beta = object["apiVersion"].as_str().is_some_and(|version| version.ends_with("v1beta1"));
        let (from, to) = if is_beta { ("color", "hue") } else { ("hue", "color") };
        if let Some(value) = object["spec"].as_object_mut().and_then(|spec| spec.remove(from)) {
            object["spec"][to] = value;
        }
        object
    });
    let objects: Vec<Value> = objects.collect();
    let response =
        json!({"uid": request["uid"], "convertedObjects": objects, "result": {"status": "Success"}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response})
}

fn webhook(hook: &Hook, scenario: &str, path: &str, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{}.example.com", path.trim_start_matches('/')), "clientConfig": hook.config(path),
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        "objectSelector": {"matchLabels": {"scenario": scenario}},
        "admissionReviewVersions": ["v1"], "sideEffects": "None",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        webhook[key] = value.clone();
    }
    webhook
}

fn configuration(kind: &str, webhooks: &[Value]) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "test"},
        "webhooks": webhooks,
    })
}

fn map(scenario: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": scenario, "labels": {"scenario": scenario}}, "data": {"a": "b"}})
}

const MAPS: &str = "/api/v1/namespaces/n/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The real server learns of configurations a moment later.
async fn settle(client: &Client, scenario: &str, until: impl Fn(&str) -> bool) {
    loop {
        let request = Request::post(format!("{MAPS}?dryRun=All")).header("Content-Type", "application/json");
        let body = map(scenario).to_string().into_bytes();
        let answer = client.request_text(request.body(body).expect("a request")).await;
        let text = answer.unwrap_or_else(|error| error.to_string());
        if until(&text) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn rule_3_15_3_17_webhooks_have_the_same_say_here_and_there() {
    let Some(both) = Both::start().await else { return };
    let hook = Hook::start().await;
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let of = |scenario: &str, path: &str, more: Value| webhook(&hook, scenario, path, more);
    let nobody = json!({"url": "https://127.0.0.1:1/x", "caBundle": hook.authority});
    let stranger = json!({"url": format!("https://{}/x", hook.address)});
    let condition = |text: &str| json!({"matchConditions": [{"name": "c", "expression": text}]});
    let named = |name: &str, more: Value| {
        let mut more = more;
        more["name"] = json!(format!("{name}.example.com"));
        more
    };
    let mutating = [
        of("again", "/count", json!({"reinvocationPolicy": "IfNeeded"})),
        of("again", "/late", json!({})),
        of("mark", "/mark", json!({})),
        of("bad-uid", "/bad-uid", json!({})),
        of("bad-patch", "/bad-patch", json!({})),
        of("no-type", "/no-type", json!({})),
        of("broken", "/broken", json!({})),
        of("nobody", "/x", named("nobody", json!({"clientConfig": nobody}))),
        of("ignored", "/x", named("ignored", json!({"clientConfig": nobody, "failurePolicy": "Ignore"}))),
        of("stranger", "/x", named("stranger", json!({"clientConfig": stranger}))),
        of("slow", "/slow", json!({"timeoutSeconds": 1})),
        of("condition-no", "/deny", named("condition-no", condition("object.metadata.name == 'other'"))),
        of(
            "condition-yes",
            "/deny",
            named("condition-yes", condition("request.operation == 'CREATE' && oldObject == null")),
        ),
        of("condition-bad", "/deny", named("condition-bad", condition("object.spec.x == 1"))),
        of("effects", "/mark", named("effects", json!({"sideEffects": "NoneOnDryRun"}))),
        of(
            "elsewhere",
            "/deny",
            named("elsewhere", json!({"namespaceSelector": {"matchLabels": {"x": "y"}}})),
        ),
    ];
    let validating = [
        of("deny", "/deny", json!({})),
        of("deny-reason", "/deny-reason", json!({})),
        of("deny-plain", "/deny-plain", json!({})),
        of("warn", "/warn", json!({})),
        of(
            "keep",
            "/deny",
            named(
                "keep",
                json!({"rules": [
                    {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["DELETE"], "scope": "Namespaced"},
                ]}),
            ),
        ),
    ];
    for (kind, plural, webhooks) in [
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &mutating[..]),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &validating[..]),
    ] {
        let path = format!("{REGISTRATION}/{plural}");
        for client in [both.ours(), both.real()] {
            let body = configuration(kind, webhooks).to_string().into_bytes();
            let request = Request::post(&path).header("Content-Type", "application/json").body(body);
            client.request_text(request.expect("a request")).await.expect("made");
        }
    }
    settle(both.real(), "mark", |text| text.contains("\"marked\":\"create\"")).await;
    settle(both.real(), "deny", |text| text.contains("denied the request")).await;

    for scenario in [
        "again",
        "mark",
        "bad-uid",
        "bad-patch",
        "no-type",
        "broken",
        "nobody",
        "ignored",
        "stranger",
        "slow",
        "condition-no",
        "condition-yes",
        "condition-bad",
        "effects",
        "elsewhere",
        "deny",
        "deny-reason",
        "deny-plain",
        "warn",
        "keep",
    ] {
        both.ask(&[], &Method::POST, MAPS, Some(&map(scenario))).await;
    }
    let (code, again) = both.ask(&[], &Method::GET, &format!("{MAPS}/again"), None).await;
    let labels = &again["metadata"]["labels"];
    assert_eq!((code, &labels["count"], &labels["late"]), (200, &json!("2"), &json!("yes")), "asked again");

    let merge = [("Content-Type", "application/merge-patch+json")];
    let change = json!({"data": {"c": "d"}});
    let (_, marked) = both.ask(&merge, &Method::PATCH, &format!("{MAPS}/mark"), Some(&change)).await;
    assert_eq!(marked["metadata"]["labels"]["marked"], "update");
    both.ask(&[], &Method::POST, &format!("{MAPS}?dryRun=All"), Some(&map("slow"))).await;
    let (code, _) = both.ask(&[], &Method::DELETE, &format!("{MAPS}/keep"), None).await;
    assert_eq!(code, 418, "its removal is refused");
    let (code, _) = both.ask(&[], &Method::DELETE, &format!("{MAPS}/mark"), None).await;
    assert_eq!(code, 500, "there is nothing to patch in what is removed");

    // What both told the webhook is the same, but for what differs anyway.
    let asked = hook.asked.lock().expect("no panics").clone();
    let creates = asked.iter().filter(|review| {
        let request = &review["request"];
        request["name"] == "mark" && request["operation"] == "CREATE" && request["dryRun"] == false
    });
    let mut told: Vec<Value> = creates.cloned().collect();
    for review in &mut told {
        crate::both::normalize(review);
        review["request"]["userInfo"] = Value::Null;
        review["request"]["options"]["fieldManager"] = Value::Null;
    }
    assert_eq!(told.len(), 2);
    assert_eq!(told[0], told[1]);
}

/// Somebody who connects is asked about as well, with the options of the request.
#[tokio::test]
async fn rule_3_15_webhooks_are_asked_about_connections() {
    let Some(both) = Both::start().await else { return };
    let hook = Hook::start().await;
    both.make("/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let account = json!({"metadata": {"name": "default"}});
    for client in [both.ours(), both.real()] {
        let request =
            Request::post("/api/v1/namespaces/n/serviceaccounts").header("Content-Type", "application/json");
        // A controller may have made it before.
        drop(client.request_text(request.body(account.to_string().into_bytes()).expect("a request")).await);
    }
    let pod = json!({"metadata": {"name": "p"}, "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}});
    both.make("/api/v1/namespaces/n/pods", &pod).await;
    let rules = json!({
        "objectSelector": {}, "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "n"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CONNECT"],
                   "resources": ["pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy"]}],
    });
    let webhooks = [webhook(&hook, "", "/deny", rules)];
    for client in [both.ours(), both.real()] {
        let body = configuration("ValidatingWebhookConfiguration", &webhooks).to_string().into_bytes();
        let path = format!("{REGISTRATION}/validatingwebhookconfigurations");
        let request = Request::post(&path).header("Content-Type", "application/json").body(body);
        client.request_text(request.expect("a request")).await.expect("made");
    }
    let at = |rest: &str| format!("/api/v1/namespaces/n/{rest}");
    loop {
        let request = Request::get(at("pods/p/attach")).body(Vec::new()).expect("a request");
        let answer = both.real().request_text(request).await.err().map(|error| error.to_string());
        if answer.is_some_and(|answer| answer.contains("denied the request")) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    hook.asked.lock().expect("no panics").clear();
    let connections = [
        "pods/p/exec?command=sh&command=-c&container=c&stdin=true&stdout=true&tty=true",
        "pods/p/exec?command=ls",
        "pods/p/attach?stdout=true",
        "pods/p/attach",
        "pods/p/portforward",
        "pods/p/portforward?ports=80",
        "pods/p/proxy",
        "pods/p/proxy/",
        "pods/p/proxy/a/b",
        "services/s/proxy/a",
    ];
    for connection in connections {
        let (code, answer) = both.ask(&[], &Method::GET, &at(connection), None).await;
        assert_eq!(code, 418, "{connection}: {answer}");
    }
    let mut told = hook.asked.lock().expect("no panics").clone();
    for review in &mut told {
        crate::both::normalize(review);
        review["request"]["userInfo"] = Value::Null;
    }
    assert_eq!(told.len(), 2 * connections.len());
    for pair in told.chunks(2) {
        assert_eq!(pair[0], pair[1]);
    }
}

#[tokio::test]
async fn rule_3_18_webhooks_behind_services() {
    let cluster = crate::cluster().await;
    let hook = Hook::start().await;
    let make = async |path: &str, body: Value| {
        let (code, answer, _) = crate::ask(&cluster, Method::POST, path, Some(&body)).await;
        assert_eq!(code, 201, "{answer}");
    };
    make("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let service =
        json!({"service": {"namespace": "n", "name": "hook", "path": "/mark"}, "caBundle": hook.authority});
    let webhooks = [webhook(&hook, "mark", "/mark", json!({"clientConfig": service}))];
    let path = format!("{REGISTRATION}/mutatingwebhookconfigurations");
    make(&path, configuration("MutatingWebhookConfiguration", &webhooks)).await;
    let create = async |expected: &str| {
        let (_, answer, _) = crate::ask(&cluster, Method::POST, MAPS, Some(&map("mark"))).await;
        let shown = answer["message"].as_str().or(answer["metadata"]["labels"]["marked"].as_str());
        assert_eq!(shown, Some(expected), "{answer}");
    };
    let failed = |why: &str| {
        format!(
            "Internal error occurred: failed calling webhook \"mark.example.com\": failed to call webhook: Post \
                 \"https://hook.n.svc:443/mark?timeout=10s\": {why}"
        )
    };
    create(&failed("service \"hook\" not found")).await;
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"port": 443}], "selector": {"a": "b"}}});
    make("/api/v1/namespaces/n/services", service).await;
    create(&failed("no endpoints available for service \"hook\"")).await;
    let slice = json!({
        "metadata": {"name": "hook-1", "labels": {"kubernetes.io/service-name": "hook"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": true}}],
        "ports": [{"name": "", "port": hook.address.port(), "protocol": "TCP"}],
    });
    make("/apis/discovery.k8s.io/v1/namespaces/n/endpointslices", slice).await;
    create("create").await;
}
