//! Where a cluster's own API is, told by the objects that clients inside of it look at: the Service
//! `default/kubernetes`, its Endpoints and its EndpointSlice; which addresses services have; and whom the API servers of
//! others are to believe.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use store::Scope;

use crate::cluster::{Cluster, Handle};
use crate::credentials::Credentials;
use crate::kept;
use crate::object;
use crate::registry::Registry;
use crate::status::Refusal;

const NAMESPACE: &str = "default";
const NAME: &str = "kubernetes";
/// Where the API servers of others learn whom to believe.
const SYSTEM: &str = "kube-system";
const AUTHENTICATION: &str = "extension-apiserver-authentication";
/// The first address of the network of services.
const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// All addresses of services.
const SERVICES: &str = "10.96.0.0/12";

/// Tells it again whenever somebody changes it or takes it away, until the cluster is gone.
pub(crate) async fn keep(
    cluster: Handle,
    credentials: Arc<Credentials>,
    address: SocketAddr,
    known_at: Option<IpAddr>,
) {
    let of = |resource: &str, namespace: &str, name: &str| {
        Scope::resource(resource).namespace(namespace).name(name)
    };
    let scopes = vec![
        of("services", NAMESPACE, NAME),
        of("endpoints", NAMESPACE, NAME),
        of("endpointslices.discovery.k8s.io", NAMESPACE, NAME),
        of("servicecidrs.networking.k8s.io", "", NAME),
        of("configmaps", SYSTEM, AUTHENTICATION),
    ];
    let put_right = |cluster: Cluster| {
        let credentials = credentials.clone();
        async move { publish(&cluster, &credentials, address, known_at).await }
    };
    kept::keep(cluster, scopes, put_right).await;
}

/// Tells where a cluster listens, and corrects what was told when it listened elsewhere.
pub(crate) async fn publish(
    cluster: &Cluster,
    credentials: &Credentials,
    address: SocketAddr,
    known_at: Option<IpAddr>,
) -> Result<(), Refusal> {
    tell_others(cluster, credentials).await?;
    let port = address.port();
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": NAME, "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "clusterIP": SERVICE_ADDRESS.to_string(), "ipFamilyPolicy": "SingleStack",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
            "sessionAffinity": "None", "type": "ClusterIP",
        },
    });
    ensure(cluster, "", "services", service, &[&["spec", "ports"]]).await?;
    let range = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": NAME}, "spec": {"cidrs": [SERVICES]},
    });
    ensure(cluster, "networking.k8s.io", "servicecidrs", range, &[]).await?;
    let Some(ip) = known_at.or_else(|| outward(address.ip())) else { return Ok(()) };
    let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let endpoints = json!({
        "apiVersion": "v1", "kind": "Endpoints",
        "metadata": {"namespace": NAMESPACE, "name": NAME, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": [{"addresses": [{"ip": ip.to_string()}], "ports": ports}],
    });
    ensure(cluster, "", "endpoints", endpoints, &[&["subsets"]]).await?;
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": NAMESPACE, "name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
        "addressType": if ip.is_ipv4() { "IPv4" } else { "IPv6" },
        "endpoints": [{"addresses": [ip.to_string()], "conditions": {"ready": true}}],
        "ports": ports,
    });
    ensure(cluster, "discovery.k8s.io", "endpointslices", slice, &[&["endpoints"], &["ports"]]).await
}

/// Tells the API servers of others how they know clients and this server, which says in headers for whom it asks.
async fn tell_others(cluster: &Cluster, credentials: &Credentials) -> Result<(), Refusal> {
    let list = |word: &str| json!([word]).to_string();
    let front_proxies = cluster.aggregator().front_proxies();
    let told = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": SYSTEM, "name": AUTHENTICATION},
        "data": {
            "client-ca-file": credentials.authority_pem(),
            "requestheader-allowed-names": json!(front_proxies.names()).to_string(),
            "requestheader-client-ca-file": front_proxies.authorities_pem(),
            "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
            "requestheader-group-headers": list("X-Remote-Group"),
            "requestheader-uid-headers": list("X-Remote-Uid"),
            "requestheader-username-headers": list("X-Remote-User"),
        },
    });
    ensure(cluster, "", "configmaps", told, &[&["data"]]).await
}

/// The address by which others reach this machine, for a server that says none: endpoints are never local. As
/// kube-apiserver does, one is told even if it listens locally only.
pub(crate) fn outward(listens_on: IpAddr) -> Option<IpAddr> {
    if !listens_on.is_unspecified() && !listens_on.is_loopback() {
        return Some(listens_on);
    }
    // Nothing is sent; the system only says from where it would be.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let own = socket.local_addr().ok()?.ip();
    (!own.is_loopback() && !own.is_unspecified()).then_some(own)
}

/// Makes an object, or puts right these fields of the one that is there.
async fn ensure(
    cluster: &Cluster,
    group: &str,
    plural: &str,
    wanted: Value,
    fields: &[&[&str]],
) -> Result<(), Refusal> {
    let meta = |field: &str| object::text(&wanted, &["metadata", field]).to_owned();
    let (namespace, name) = (meta("namespace"), meta("name"));
    let resource = Registry::built_in().get(group, "v1", plural).ok_or_else(Refusal::unknown_resource)?;
    let api = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/v1") };
    let path = if resource.namespaced {
        format!("{api}/namespaces/{namespace}/{plural}")
    } else {
        format!("{api}/{plural}")
    };
    let known = cluster.store().get(&object::key(resource, &namespace, &name));
    let Some(known) = known else {
        return match ask(cluster, Method::POST, path, &wanted).await {
            Err(refusal) if refusal.code() == StatusCode::CONFLICT => Ok(()),
            done => done,
        };
    };
    let mut changed = object::read(&known);
    for field in fields {
        let part = field.iter().fold(&wanted, |value, name| &value[*name]).clone();
        *field.iter().fold(&mut changed, |value, name| &mut value[*name]) = part;
    }
    if changed == object::read(&known) {
        return Ok(());
    }
    ask(cluster, Method::PUT, format!("{path}/{name}"), &changed).await
}

async fn ask(cluster: &Cluster, method: Method, path: String, body: &Value) -> Result<(), Refusal> {
    let request = Request::builder()
        .method(method)
        .uri(format!("{path}?fieldManager=kube-apiserver"))
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(body.to_string()))
        .map_err(Refusal::internal)?;
    cluster.asked_by_itself(request).await.map(drop)
}
