//! Who is at the other end of a connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use apiserver::{Cluster, Setup};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use store::{Options, Store};

struct Served {
    server: Server,
    credentials: Arc<Credentials>,
}

async fn serve() -> Served {
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let store = Store::open(Options::ephemeral()).expect("a store");
    let signer = Some(credentials.signer().expect("a key"));
    let setup = Setup { signer, ..Setup::default() };
    let cluster = Cluster::open_with(store, setup).await.expect("a cluster");
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
    Served { server, credentials }
}

impl Served {
    /// A client of whoever a kubeconfig of `from` names, who trusts this server.
    async fn client(&self, write: impl FnOnce(&Credentials, &std::path::Path, &str)) -> Client {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("kubeconfig");
        write(&self.credentials, &path, &format!("https://{}", self.server.address()));
        let config = Kubeconfig::read_from(&path).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
        Client::try_from(config.expect("a config")).expect("a client")
    }

    /// A client who shows another token, or none.
    async fn with_token(&self, token: Option<&str>) -> Client {
        self.client(|credentials, path, server| {
            credentials.write_kubeconfig(path, "c", server).expect("written");
            let mut config: Value =
                serde_json::from_slice(&std::fs::read(path).expect("read")).expect("a kubeconfig");
            config["users"][0]["user"] = token.map_or(json!({}), |token| json!({"token": token}));
            std::fs::write(path, config.to_string()).expect("written");
        })
        .await
    }
}

async fn get(client: &Client, path: &str) -> Result<String, u16> {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    client.request_text(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.code,
        other => panic!("{other}"),
    })
}

async fn whoami(client: &Client) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .body(review.to_string().into_bytes())
        .expect("a request");
    let text = client.request_text(request).await.expect("a review");
    serde_json::from_str::<Value>(&text).expect("JSON")["status"]["userInfo"].clone()
}

#[tokio::test]
async fn rule_6_1_certificates_name_users() {
    let served = serve().await;
    let client = served
        .client(|credentials, path, server| {
            let config = credentials.kubeconfig_for("c", server, "alice", "team").expect("a certificate");
            apiserver::credentials::write_kubeconfig(path, &config).expect("written");
        })
        .await;
    let alice = whoami(&client).await;
    assert_eq!(
        (&alice["username"], &alice["groups"]),
        (&json!("alice"), &json!(["team", "system:authenticated"]))
    );
    let id = alice["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().expect("an id");
    assert_eq!((id.len(), &id[..11]), (11 + 64, "X509SHA256="));
    assert_eq!(get(&client, "/api/v1/namespaces").await, Err(403));
}

#[tokio::test]
async fn rule_6_1_certificates_of_strangers_get_401_not_a_broken_connection() {
    let served = serve().await;
    let stranger = Credentials::ephemeral().expect("other credentials");
    let (certificate, key) = stranger.client_certificate("alice", "system:masters").expect("a certificate");
    let client = served
        .client(|credentials, path, server| {
            use base64::Engine as _;
            let base64 = base64::engine::general_purpose::STANDARD;
            credentials.write_kubeconfig(path, "c", server).expect("written");
            let mut config: Value =
                serde_json::from_slice(&std::fs::read(path).expect("read")).expect("a kubeconfig");
            config["users"][0]["user"] = json!({
                "client-certificate-data": base64.encode(certificate), "client-key-data": base64.encode(key),
            });
            std::fs::write(path, config.to_string()).expect("written");
        })
        .await;
    assert_eq!(get(&client, "/healthz").await, Err(401));
}

#[tokio::test]
async fn rule_6_1_nobody_may_see_health_and_version_and_nothing_else() {
    let served = serve().await;
    let nobody = served.with_token(None).await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert!(get(&nobody, path).await.is_ok(), "{path}");
    }
    for path in ["/api", "/apis", "/metrics", "/api/v1/namespaces", "/openid/v1/jwks", "/nonsense"] {
        assert_eq!(get(&nobody, path).await, Err(403), "{path}");
    }
    let wrong = served.with_token(Some("wrong")).await;
    for path in ["/healthz", "/api", "/api/v1/namespaces"] {
        assert_eq!(get(&wrong, path).await, Err(401), "{path}");
    }
    let first = served.client(|credentials, path, server| {
        credentials.write_kubeconfig(path, "c", server).expect("written");
    });
    let groups = &whoami(&first.await).await["groups"];
    assert_eq!(groups, &json!(["system:masters", "system:authenticated"]));
}

#[tokio::test]
async fn rule_8_9_the_tokens_of_one_cluster_are_nothing_to_another() {
    let (east, west) = (serve().await, serve().await);
    let admin = |served: &Served| {
        let address = served.server.address();
        let credentials = served.credentials.clone();
        async move {
            let dir = tempfile::tempdir().expect("a directory");
            let path = dir.path().join("kubeconfig");
            credentials.write_kubeconfig(&path, "c", &format!("https://{address}")).expect("written");
            let config = Kubeconfig::read_from(&path).expect("a kubeconfig");
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
            Client::try_from(config.expect("a config")).expect("a client")
        }
    };
    let (east_admin, west_admin) = (admin(&east).await, admin(&west).await);
    for client in [&east_admin, &west_admin] {
        let account = json!({"metadata": {"name": "bot"}}).to_string();
        let path = "/api/v1/namespaces/default/serviceaccounts";
        let request = Request::post(path).body(account.into_bytes()).expect("a request");
        client.request_text(request).await.expect("made");
    }
    let path = "/api/v1/namespaces/default/serviceaccounts/bot/token";
    let request = Request::post(path).body(b"{\"spec\":{}}".to_vec()).expect("a request");
    let made: Value =
        serde_json::from_str(&east_admin.request_text(request).await.expect("a token")).expect("JSON");
    let token = made["status"]["token"].as_str().expect("a token");
    let name = &whoami(&east.with_token(Some(token)).await).await["username"];
    assert_eq!(name, "system:serviceaccount:default:bot");
    assert_eq!(get(&west.with_token(Some(token)).await, "/healthz").await, Err(401));
}

#[tokio::test]
async fn rule_6_8_the_token_of_the_kubeconfig_is_known_to_reviews() {
    let served = serve().await;
    let mut token = Value::Null;
    let client = served.client(|credentials, path, server| {
        credentials.write_kubeconfig(path, "c", server).expect("written");
        let config: Value =
            serde_json::from_slice(&std::fs::read(path).expect("read")).expect("a kubeconfig");
        token = config["users"][0]["user"]["token"].clone();
    });
    let client = client.await;
    assert!(token.is_string(), "a kubeconfig has a token");
    let review = async |audiences: Value| {
        let spec = json!({"token": token, "audiences": audiences});
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec});
        let request = Request::post("/apis/authentication.k8s.io/v1/tokenreviews")
            .body(body.to_string().into_bytes())
            .expect("a request");
        let text = client.request_text(request).await.expect("a review");
        serde_json::from_str::<Value>(&text).expect("JSON")["status"].clone()
    };
    let known = review(json!(null)).await;
    assert_eq!(
        (&known["authenticated"], &known["user"]["username"]),
        (&json!(true), &json!("kubernetes-admin"))
    );
    let other = review(json!(["others"])).await;
    assert_eq!(other["error"], "invalid bearer token", "it is not meant for others: {other}");
}

#[tokio::test]
async fn rule_6_1_a_token_that_is_no_text_is_no_good_token() {
    let served = serve().await;
    let client = served.with_token(None).await;
    let token = http::HeaderValue::from_bytes(b"Bearer \xff").expect("a value");
    let request =
        Request::get("/healthz").header("Authorization", token).body(Vec::new()).expect("a request");
    let refused = client.request_text(request).await.expect_err("it is no good");
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 401), "{refused}");
}
