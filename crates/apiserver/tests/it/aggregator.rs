//! API servers of others behind ours, and behind a real one: the same is told of them, and they are asked the same.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
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
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Client};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use testkit::ControlPlane;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::cluster;
use crate::deadline::{answer, asks_once};
use crate::serve::client_at_port;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const NAME: &str = "v1.things.example";
const ROOT: &str = "/apis/things.example/v1";
const THINGS: &str = "/apis/things.example/v1/namespaces/default/things";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The API server of somebody else, which repeats what it is asked.
struct Other {
    port: u16,
    authority: String,
}

impl Other {
    /// Lets in only those whom this authority vouches for, if there is one.
    async fn start(vouches: Option<&str>) -> Other {
        let made =
            rcgen::generate_simple_self_signed(["things.others.svc".to_owned()]).expect("a certificate");
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let tls = match vouches {
            None => tls.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots
                    .add(CertificateDer::from_pem_slice(authority.as_bytes()).expect("a certificate"))
                    .expect("an authority");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                tls.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let tls = tls
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key"),
            )
            .expect("a server");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let builder = Builder::new(TokioExecutor::new());
                    drop(builder.serve_connection(TokioIo::new(stream), service_fn(repeat)).await);
                });
            }
        });
        Other { port, authority: STANDARD.encode(pem) }
    }

    fn api_service(&self) -> Value {
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME},
            "spec": {"group": "things.example", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 200,
                "caBundle": self.authority, "service": {"namespace": "others", "name": "things", "port": self.port}},
        })
    }
}

/// Tells what it serves, and repeats everything else.
async fn repeat(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path();
    let (code, answer) = if path == ROOT {
        let things = json!({"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
            "verbs": ["get", "list"], "shortNames": ["th"]});
        (
            200,
            json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "things.example/v1", "resources": [things]}),
        )
    } else if path == "/openapi/v3" {
        let url = format!("/openapi/v3{ROOT}?hash=1");
        (200, json!({"paths": {&ROOT[1..]: {"serverRelativeURL": url}}}))
    } else if path == format!("/openapi/v3{ROOT}") {
        (200, json!({"openapi": "3.0.0", "info": {"title": "things", "version": "1"}, "paths": {}}))
    } else if path == format!("{THINGS}/slow") {
        tokio::time::sleep(Duration::from_secs(3)).await;
        (200, json!({}))
    } else if path.starts_with(THINGS) {
        let all = |name: &str| -> Vec<&str> {
            head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
        };
        let secrets = [all("authorization"), all("impersonate-user"), all("impersonate-group")].concat();
        let told = json!({
            "method": head.method.as_str(), "path": head.uri.to_string(), "body": String::from_utf8_lossy(&body),
            "user": all("x-remote-user"), "groups": all("x-remote-group"), "extra": all("x-remote-extra-why%2fthis"),
            "secrets": secrets,
        });
        (if head.method == Method::POST { 201 } else { 200 }, told)
    } else {
        (404, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}))
    };
    let response = Response::builder().status(code).header("Content-Type", "application/json");
    Ok(response.body(Full::from(answer.to_string())).expect("an answer"))
}

async fn ask(
    client: &Client,
    headers: &[(&str, &str)],
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(Bytes::from(body))).expect("a request");
    let asking = async {
        let answer = client.send(request).await.expect("an answer");
        let code = answer.status().as_u16();
        (code, answer.into_body().collect().await.expect("a body").to_bytes())
    };
    let asked = tokio::time::timeout(Duration::from_secs(60), asking).await;
    let (code, bytes) = asked.unwrap_or_else(|_| panic!("{path} is not answered"));
    let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

/// Asks until the answer is as it should be.
async fn until(
    client: &Client,
    headers: &[(&str, &str)],
    path: &str,
    is_it: impl Fn(u16, &Value) -> bool,
) -> Value {
    let waiting = async {
        loop {
            let (code, answer) = ask(client, headers, Method::GET, path, None).await;
            if is_it(code, &answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if let Ok(answer) = tokio::time::timeout(Duration::from_secs(60), waiting).await {
        return answer;
    }
    panic!("{path} stayed {:?}", ask(client, headers, Method::GET, path, None).await)
}

async fn make(client: &Client, path: &str, object: &Value) {
    let (code, answer) = ask(client, &[], Method::POST, path, Some(object)).await;
    assert_eq!(code, 201, "{answer}");
}

async fn until_condition(client: &Client, reason: &str) -> Value {
    let path = format!("{SERVICES}/{NAME}");
    let service =
        until(client, &[], &path, |_, service| service["status"]["conditions"][0]["reason"] == reason).await;
    let mut condition = service["status"]["conditions"][0].clone();
    condition.as_object_mut().expect("a condition").remove("lastTransitionTime").expect("a time");
    condition
}

/// The whole life of an APIService.
async fn live(client: &Client, other: &Other) {
    make(client, "/api/v1/namespaces", &json!({"metadata": {"name": "others"}})).await;
    make(client, SERVICES, &other.api_service()).await;
    let condition = until_condition(client, "ServiceNotFound").await;
    let why = "service/things in \"others\" is not present";
    assert_eq!(
        condition,
        json!({"type": "Available", "status": "False", "reason": "ServiceNotFound", "message": why})
    );

    let service = json!({"metadata": {"name": "things"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    make(client, "/api/v1/namespaces/others/services", &service).await;
    let condition = until_condition(client, "Passed").await;
    let why = "all checks passed";
    assert_eq!(condition, json!({"type": "Available", "status": "True", "reason": "Passed", "message": why}));

    // What is asked goes on, and so does who asks.
    let told = until(client, &[], &format!("{THINGS}?limit=7"), |code, _| code == 200).await;
    assert_eq!((&told["method"], &told["path"]), (&json!("GET"), &json!(format!("{THINGS}?limit=7"))));
    assert_eq!(told["secrets"], json!([]));
    let (code, told) = ask(client, &[], Method::POST, THINGS, Some(&json!({"a": 1}))).await;
    assert_eq!((code, &told["body"]), (201, &json!("{\"a\":1}")));
    let jane = [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "devs"),
        ("Impersonate-Extra-why%2Fthis", "because"),
        // Nobody believes these, and nobody is told of them (6.12).
        ("X-Remote-User", "eve"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Extra-why%2Fthis", "I say so"),
    ];
    let (code, _) = ask(client, &jane, Method::GET, THINGS, None).await;
    assert_eq!(code, 403, "whether she may is decided here");
    let role = json!({"metadata": {"name": "things"}, "rules": [{"apiGroups": ["things.example"], "resources": ["things"], "verbs": ["list"]}]});
    let binding = json!({"metadata": {"name": "things"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "things"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]});
    make(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    make(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
    let told = until(client, &jane, THINGS, |code, _| code == 200).await;
    assert_eq!(
        told,
        json!({"method": "GET", "path": THINGS, "body": "", "user": ["jane"], "groups": ["devs", "system:authenticated"],
            "extra": ["because"], "secrets": []})
    );

    // What is served is told, in every form.
    let list = until(client, &[], ROOT, |code, _| code == 200).await;
    assert_eq!(list["resources"][0]["name"], "things");
    let (_, group) = ask(client, &[], Method::GET, "/apis/things.example", None).await;
    let version = json!({"groupVersion": "things.example/v1", "version": "v1"});
    assert_eq!(
        group,
        json!({"kind": "APIGroup", "apiVersion": "v1", "name": "things.example", "versions": [version], "preferredVersion": version})
    );
    let find = |list: &Value, name: &str| {
        let name = name.to_owned();
        list.as_array()
            .into_iter()
            .flatten()
            .find(|entry| entry["name"] == name || entry["metadata"]["name"] == name)
            .cloned()
    };
    let groups = until(client, &[], "/apis", |_, all| find(&all["groups"], "things.example").is_some()).await;
    assert_eq!(find(&groups["groups"], "things.example").expect("the group")["preferredVersion"], version);
    let is_current = |all: &Value| {
        find(&all["items"], "things.example")
            .is_some_and(|group| group["versions"][0]["freshness"] == "Current")
    };
    let all = until(client, &[("Accept", AGGREGATED)], "/apis", |_, all| is_current(all)).await;
    let mut described = find(&all["items"], "things.example").expect("the group");
    described["metadata"].as_object_mut().expect("metadata").remove("creationTimestamp");
    assert_eq!(
        described,
        json!({"metadata": {"name": "things.example"}, "versions": [{"version": "v1", "freshness": "Current", "resources": [
            {"resource": "things", "responseKind": {"group": "", "version": "", "kind": "Thing"},
             "scope": "Namespaced", "singularResource": "thing", "verbs": ["get", "list"], "shortNames": ["th"]}]}]})
    );
    let index = until(client, &[], "/openapi/v3", |_, index| index["paths"][&ROOT[1..]].is_object()).await;
    let url = index["paths"][&ROOT[1..]]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let document = until(client, &[], &url, |code, _| code == 200).await;
    assert_eq!(document["info"]["title"], "things");

    // Once it is gone, so is all that was told of it.
    let (code, _) = ask(client, &[], Method::DELETE, &format!("{SERVICES}/{NAME}"), None).await;
    assert_eq!(code, 200);
    until(client, &[], THINGS, |code, _| code == 404).await;
    until(client, &[], "/apis", |_, all| find(&all["groups"], "things.example").is_none()).await;
}

#[tokio::test]
async fn rule_3_33_api_servers_of_others() {
    let cluster = cluster().await;
    let (client, _server) = client_at_port(cluster.clone()).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let told =
        maps.get("extension-apiserver-authentication").await.expect("whom to believe").data.expect("data");
    assert_eq!(told["requestheader-allowed-names"], "[\"front-proxy-client\"]");
    assert!(told["client-ca-file"].starts_with("-----BEGIN CERTIFICATE-----"), "{told:?}");
    // A client of kube-rs would ask again and again.
    let mut unserved = Other { port: 1, authority: String::new() }.api_service();
    unserved["metadata"]["name"] = json!("v1.nobody.example");
    unserved["spec"]["group"] = json!("nobody.example");
    make(&client, SERVICES, &unserved).await;
    let request = Request::get("/apis/nobody.example/v1/things").body(Bytes::new()).expect("a request");
    let answer = cluster.answer(request).await;
    assert_eq!(answer.status(), 503);
    let said = answer.into_body().collect().await.expect("bodies do not fail").to_bytes();
    assert_eq!(said, "service unavailable\n");
    // It lets nobody in but us, who show a certificate of the authority that servers are told of.
    let other = Other::start(Some(&told["requestheader-client-ca-file"])).await;
    live(&client, &other).await;
}

/// What is answered for somebody who is slower than the client wants to wait.
async fn late(client: &Client, other: &Other) -> (u16, String, Value) {
    make(client, "/api/v1/namespaces", &json!({"metadata": {"name": "others"}})).await;
    let service = json!({"metadata": {"name": "things"}, "spec": {"type": "ExternalName", "externalName": "localhost"}});
    make(client, "/api/v1/namespaces/others/services", &service).await;
    make(client, SERVICES, &other.api_service()).await;
    until_condition(client, "Passed").await;
    until(client, &[], THINGS, |code, _| code == 200).await;
    answer(client, Method::GET, &format!("{THINGS}/slow?timeout=1s"), &json!({})).await
}

#[tokio::test]
async fn rule_1_3_a_slow_api_server_of_others_is_waited_for_as_long_as_the_client_says() {
    let other = Other::start(None).await;
    let ours = late(&Client::new(cluster().await, "default"), &other).await;
    let why = "Timeout: request did not complete within the allotted timeout";
    assert_eq!((ours.0, &ours.2["message"]), (504, &json!(why)));
    let Some(real) = ControlPlane::builder().for_test().await else { return };
    assert_eq!(ours, late(&asks_once(&real), &other).await);
}

#[tokio::test]
async fn rule_3_33_api_servers_of_others_behind_a_real_one() {
    let Some(real) = ControlPlane::builder().for_test().await else { return };
    let other = Other::start(None).await;
    live(&real.client(), &other).await;
}
