//! A cluster on a port.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apiserver::Cluster;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rules::job::Settings;
use serde_json::json;
use store::{Options, Store};

use crate::ask;

async fn start(store: &Store, credentials: Arc<Credentials>) -> Server {
    let cluster = Cluster::open(store.clone(), Settings::default()).await.expect("a cluster");
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Server::start(cluster, credentials, anywhere).await.expect("a server")
}

/// A client that talks to a cluster through a port, as long as the server lives.
pub(crate) async fn client_at_port(cluster: Cluster) -> (Client, Server) {
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
    (client(&server, &credentials).await, server)
}

async fn client(server: &Server, credentials: &Credentials) -> Client {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("kubeconfig");
    credentials.write_kubeconfig(&path, "test", &format!("https://{}", server.address())).expect("written");
    let config = Kubeconfig::read_from(&path).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    Client::try_from(config).expect("a client")
}

fn config_map(name: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn kube_rs_connects_by_the_kubeconfig() {
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let server = start(&Store::open(Options::ephemeral()).expect("a store"), credentials.clone()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server, &credentials).await);
    maps.create(&PostParams::default(), &config_map("a")).await.expect("created");
    assert_eq!(maps.get("a").await.expect("read").metadata.name.as_deref(), Some("a"));
    server.stop().await;
    assert!(maps.get("a").await.is_err(), "it stopped");
}

#[tokio::test]
async fn rule_6_1_strangers_get_401() {
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let server = start(&Store::open(Options::ephemeral()).expect("a store"), credentials).await;
    let stranger = Credentials::ephemeral().expect("other credentials");
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server, &stranger).await);
    assert!(maps.get("a").await.is_err(), "another authority, another token");
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let credentials = Arc::new(Credentials::kept_in(dir.path()).expect("credentials"));
    let data = dir.path().join("data");
    let store = Store::open(Options::disk(&data)).expect("a store");
    let server = start(&store, credentials.clone()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server, &credentials).await);
    let made = maps.create(&PostParams::default(), &config_map("a")).await.expect("created");
    server.stop().await;
    store.close().await;

    let again = Arc::new(Credentials::kept_in(dir.path()).expect("credentials"));
    let store = Store::open(Options::disk(&data)).expect("the store is closed and can be opened");
    let server = start(&store, again.clone()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&server, &again).await);
    assert_eq!(maps.get("a").await.expect("still there"), made);
}

#[tokio::test]
async fn a_kubeconfig_works_after_restarts_and_by_every_name_of_the_server() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(Options::ephemeral()).expect("a store");
    let mut address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut written = None;
    for _ in 0..2 {
        let credentials = Arc::new(Credentials::kept_in(dir.path()).expect("credentials"));
        let cluster = Cluster::open(store.clone(), Settings::default()).await.expect("a cluster");
        let server = Server::start(cluster, credentials.clone(), address).await.expect("a server");
        address = server.address();
        let config =
            written.get_or_insert_with(|| credentials.kubeconfig("c", &format!("https://{address}"))).clone();
        for name in ["127.0.0.1", "localhost"] {
            let mut config = config.clone();
            config["clusters"][0]["cluster"]["server"] = format!("https://{name}:{}", address.port()).into();
            let config: Kubeconfig = serde_json::from_value(config).expect("a kubeconfig");
            let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
            let client = Client::try_from(config.expect("a config")).expect("a client");
            client.apiserver_version().await.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        server.stop().await;
    }
}

/// What a server tells of where its API is: the service, its endpoints and its slice, without addresses and numbers.
async fn told(client: &Client) -> Vec<serde_json::Value> {
    let paths = [
        "/api/v1/namespaces/default/services/kubernetes",
        "/api/v1/namespaces/default/endpoints/kubernetes",
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
    ];
    let mut told = Vec::new();
    for path in paths {
        let mut attempts = 0;
        let mut object = loop {
            let request = http::Request::get(path).body(Vec::new()).expect("a request");
            match client.request::<serde_json::Value>(request).await {
                Ok(object) => break object,
                Err(error) => assert!(attempts < 200, "{path}: {error}"),
            }
            attempts += 1;
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        };
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
        }
        told.push(without_numbers(object));
    }
    told
}

fn without_numbers(value: serde_json::Value) -> serde_json::Value {
    use serde_json::Value;
    match value {
        Value::Number(_) => Value::from("number"),
        Value::String(text) if text.parse::<std::net::IpAddr>().is_ok() => Value::from("address"),
        Value::Array(list) => list.into_iter().map(without_numbers).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, without_numbers(value))).collect(),
        other => other,
    }
}

#[tokio::test]
async fn a_cluster_tells_where_its_api_is_as_a_real_one_does() {
    let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
    let outward = socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).and_then(|()| socket.local_addr());
    let Some(outward) = outward.ok().filter(|address| !address.ip().is_loopback()) else {
        eprintln!("this machine has no address that endpoints could have");
        return;
    };
    let arguments =
        ["--endpoint-reconciler-type=lease".to_owned(), format!("--advertise-address={}", outward.ip())];
    let builder = testkit::ControlPlane::builder().apiserver_args(arguments);
    let Some(real) = builder.for_test().await else { return };
    let store = Store::open(Options::ephemeral()).expect("a store");
    let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
    let server = start(&store, credentials.clone()).await;
    let ours = client(&server, &credentials).await;
    assert_eq!(told(&ours).await, told(&real.client()).await);
    let port = server.address().port();
    server.stop().await;
    let server = start(&store, credentials.clone()).await;
    assert_ne!(server.address().port(), port, "it listens elsewhere now");
    let slices: Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        Api::default_namespaced(client(&server, &credentials).await);
    let slice = slices.get("kubernetes").await.expect("a slice");
    let told = slice.ports.expect("ports")[0].port;
    assert_eq!(told, Some(i32::from(server.address().port())), "and says so");
}

#[tokio::test]
async fn rule_3_3_what_pods_and_nodes_need_comes_back() {
    let cluster = Cluster::open(Store::open(Options::ephemeral()).expect("a store"), Settings::default())
        .await
        .expect("a cluster");
    let (_client, _server) = client_at_port(cluster.clone()).await;
    let here = "/api/v1/namespaces/default";
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let range = "/apis/networking.k8s.io/v1/servicecidrs/kubernetes";
    let told = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let (service, endpoints) =
        (format!("{here}/services/kubernetes"), format!("{here}/endpoints/kubernetes"));
    let found = async |path: &str| ask(&cluster, Method::GET, path, None).await;
    let address = found(&service).await.1["spec"]["clusterIP"].clone();
    for path in [&service, &endpoints, &format!("{slices}/kubernetes"), range, told] {
        let before = found(path).await;
        if before.0 == 404 {
            // This machine has no address that others could reach.
            continue;
        }
        let gone = ask(&cluster, Method::DELETE, path, None).await;
        assert_eq!(gone.0, 200, "{path}: {}", gone.1);
        until(async || {
            let again = found(path).await;
            again.0 == 200 && again.1["metadata"]["uid"] != before.1["metadata"]["uid"]
        })
        .await;
    }
    assert_eq!(found(&service).await.1["spec"]["clusterIP"], address);

    let mut changed = found(&service).await.1;
    let port = changed["spec"]["ports"][0]["targetPort"].clone();
    changed["spec"]["ports"][0]["targetPort"] = json!(1);
    assert_eq!(ask(&cluster, Method::PUT, &service, Some(&changed)).await.0, 200);
    until(async || found(&service).await.1["spec"]["ports"][0]["targetPort"] == port).await;

    let namespace = "/api/v1/namespaces/kube-node-lease";
    let mut leaving = ask(&cluster, Method::DELETE, namespace, None).await.1;
    leaving["spec"]["finalizers"] = json!([]);
    let finalized = ask(&cluster, Method::PUT, &format!("{namespace}/finalize"), Some(&leaving)).await;
    assert_eq!(finalized.0, 200, "{}", finalized.1);
    until(async || found(namespace).await.1["status"]["phase"] == "Active").await;
}

/// Waits until something holds, as long as anybody would.
async fn until(holds: impl AsyncFn() -> bool) {
    for _ in 0..600 {
        if holds().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not come to that");
}
