//! A cluster on a port.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use apiserver::Cluster;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rules::job::Settings;
use store::{Options, Store};

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
