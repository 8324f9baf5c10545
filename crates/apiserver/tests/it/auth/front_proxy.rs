//! Front proxies before our server and before a real one: both believe the same of them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use apiserver::auth::front_proxy::FrontProxies;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use apiserver::{Cluster, Setup};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use serde_json::{Value, json};
use store::{Options, Store};
use testkit::ControlPlane;

/// The name that is allowed.
const PROXY: &str = "good-proxy";

/// Somebody who signs certificates.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("an authority"))
    }

    /// The user of a kubeconfig who shows a certificate for this name.
    fn user(&self, name: &str) -> Value {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.is_ca = IsCa::ExplicitNoCa;
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate").pem();
        json!({
            "client-certificate-data": STANDARD.encode(certificate),
            "client-key-data": STANDARD.encode(key.serialize_pem()),
        })
    }
}

/// What is looked at, with which kubeconfig and which headers.
type Question<'a> = (&'static str, Value, &'a [(&'a str, &'a str)]);

/// A server, and those who ask it.
struct Asked<'a> {
    /// Of its administrator, who has a token.
    administrator: Value,
    /// Of somebody whom the authority of clients calls as the proxy is called.
    namesake: Value,
    proxies: &'a Authority,
}

impl Asked<'_> {
    fn as_user(&self, user: Value) -> Value {
        let mut kubeconfig = self.administrator.clone();
        kubeconfig["users"][0]["user"] = user;
        kubeconfig
    }

    fn with_token(&self, mut user: Value, token: &str) -> Value {
        user["token"] = json!(token);
        self.as_user(user)
    }

    /// Who everybody is taken for.
    async fn answers(&self) -> Vec<(&'static str, u16, Value)> {
        let stranger = Authority::named("front-proxies");
        let token = self.administrator["users"][0]["user"]["token"].as_str().expect("a token");
        let proxy = self.proxies.user(PROXY);
        let jane = [("X-Remote-User", "jane")];
        let masters = [("X-Remote-User", "jane"), ("X-Remote-Group", "system:masters")];
        let all = [
            ("X-Remote-User", "jürgen"),
            ("X-Remote-User", "second"),
            ("X-Remote-Uid", "7"),
            ("X-Remote-Group", "a"),
            ("X-Remote-Group", ""),
            ("x-remote-group", "b"),
            ("X-Remote-Extra-Example.com%2FScope", "1"),
            ("X-Remote-Extra-example.com%2fscope", "2"),
            ("X-Remote-Extra-50%", ""),
        ];
        let nobody = [("X-Remote-User", "system:anonymous")];
        let unknown = [("X-Remote-User", "jane"), ("X-Remote-Group", "system:unauthenticated")];
        let other =
            [("X-Remote-User", "jane"), ("X-Remote-Group", "system:masters"), ("Impersonate-User", "joe")];
        let asked: Vec<Question<'_>> = vec![
            ("a proxy is believed", self.as_user(proxy.clone()), &all),
            ("it may ask for anybody", self.as_user(proxy.clone()), &masters),
            ("who may ask as others", self.as_user(proxy.clone()), &other),
            ("nobody", self.as_user(proxy.clone()), &nobody),
            ("somebody unknown", self.as_user(proxy.clone()), &unknown),
            ("it names nobody", self.as_user(proxy.clone()), &[]),
            (
                "an empty name",
                self.as_user(proxy.clone()),
                &[("X-Remote-User", ""), ("X-Remote-User", "jane")],
            ),
            ("groups alone", self.as_user(proxy.clone()), &[("X-Remote-Group", "system:masters")]),
            ("headers come before a token", self.with_token(proxy.clone(), token), &jane),
            ("a bad token", self.with_token(proxy.clone(), "bad"), &jane),
            ("a token without headers", self.with_token(proxy, token), &[]),
            ("another name", self.as_user(self.proxies.user("bad-proxy")), &masters),
            ("another name with a token", self.with_token(self.proxies.user("bad-proxy"), token), &jane),
            ("no name", self.as_user(self.proxies.user("")), &masters),
            ("another authority of the same name", self.as_user(stranger.user(PROXY)), &masters),
            ("the authority of clients", self.namesake.clone(), &masters),
            ("a token alone", self.administrator.clone(), &jane),
            ("nothing", self.as_user(json!({})), &masters),
        ];
        let mut answers = Vec::new();
        for (what, kubeconfig, headers) in asked {
            let (code, answer) = whoami(kubeconfig, headers).await;
            answers.push((what, code, answer));
        }
        answers
    }
}

/// Who is asking: a user, or why that is not told.
async fn whoami(kubeconfig: Value, headers: &[(&str, &str)]) -> (u16, Value) {
    let config: Kubeconfig = serde_json::from_value(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    let client = Client::try_from(config.expect("a config")).expect("a client");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let mut request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header("Content-Type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, value.as_bytes());
    }
    let body = Body::from(Bytes::from(review.to_string()));
    let answer = client.send(request.body(body).expect("a request")).await.expect("an answer");
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
    let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
    let told = if code == 201 { &answer["status"]["userInfo"] } else { &answer["message"] };
    (code, told.clone())
}

fn read(kubeconfig: &Path) -> Value {
    serde_json::from_slice(&fs::read(kubeconfig).expect("a kubeconfig")).expect("JSON")
}

/// Takes out what is told of credentials: it differs from certificate to certificate, and administrators have names.
fn without_credentials(mut answers: Vec<(&'static str, u16, Value)>) -> Vec<(&'static str, u16, Value)> {
    for (_, _, answer) in &mut answers {
        if let Some(credential) = answer.pointer_mut("/extra/authentication.kubernetes.io~1credential-id") {
            *credential = json!("ID");
        }
        let groups = answer.get("groups").cloned().unwrap_or_default();
        if groups == json!(["system:masters", "system:authenticated"]) && answer["username"] != "jane" {
            *answer = json!("ADMINISTRATOR");
        }
    }
    answers
}

async fn ours(proxies: &Authority) -> (Vec<(&'static str, u16, Value)>, Value) {
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let store = Store::open(Options::ephemeral()).expect("a store");
    let believed = FrontProxies::signed_by(&proxies.0.pem(), vec![PROXY.to_owned()]).expect("an authority");
    let setup = Setup { front_proxies: Some(believed), ..Setup::default() };
    let cluster = Cluster::open_with(store, setup).await.expect("a cluster");
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(cluster.clone(), credentials.clone(), anywhere).await.expect("a server");
    let url = format!("https://{}", server.address());
    let asked = Asked {
        administrator: credentials.kubeconfig("c", &url),
        namesake: credentials.kubeconfig_for("c", &url, PROXY, "team").expect("a certificate"),
        proxies,
    };
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let told = cluster.answer(Request::get(path).body(Bytes::new()).expect("a request")).await;
    let told = told.into_body().collect().await.expect("bodies do not fail").to_bytes();
    let told: Value = serde_json::from_slice(&told).expect("JSON");
    (asked.answers().await, told["data"].clone())
}

#[tokio::test]
async fn rule_6_12_front_proxies_are_believed_and_nobody_else() {
    let proxies = Authority::named("front-proxies");
    let (answers, told) = ours(&proxies).await;
    let find = |wanted: &str| {
        let (_, code, answer) = answers.iter().find(|(what, ..)| *what == wanted).expect("an answer");
        (*code, answer.clone())
    };
    let jurgen = json!({
        "username": "jürgen", "uid": "7", "groups": ["a", "b", "system:authenticated"],
        "extra": {"example.com/scope": ["1", "2"], "50%": [""]},
    });
    assert_eq!(find("a proxy is believed"), (201, jurgen));
    for what in
        ["another name", "no name", "another authority of the same name", "it names nobody", "groups alone"]
    {
        assert_eq!(find(what), (401, json!("Unauthorized")), "{what}");
    }
    assert_eq!(find("the authority of clients").1["groups"], json!(["team", "system:authenticated"]));
    assert_eq!(find("a token alone").1["username"], "kubernetes-admin");
    assert_eq!(find("nothing").0, 403);

    // Servers of others are told to believe the same.
    assert_eq!(told["requestheader-allowed-names"], json!(["front-proxy-client", PROXY]).to_string());
    let authorities = told["requestheader-client-ca-file"].as_str().expect("PEM");
    assert!(authorities.ends_with(&proxies.0.pem()), "{authorities}");
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 2, "{authorities}");

    let dir = tempfile::tempdir().expect("a directory");
    let authority = dir.path().join("front-proxies.crt");
    fs::write(&authority, proxies.0.pem()).expect("written");
    let arguments = [
        format!("--requestheader-client-ca-file={}", authority.display()),
        format!("--requestheader-allowed-names={PROXY}"),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ];
    let Some(real) = ControlPlane::builder().apiserver_args(arguments).for_test().await else { return };
    let asked = Asked {
        administrator: read(&real.kubeconfig()),
        namesake: read(&real.kubeconfig_for(PROXY, "team").expect("a certificate")),
        proxies: &proxies,
    };
    assert_eq!(without_credentials(answers), without_credentials(asked.answers().await));
}
