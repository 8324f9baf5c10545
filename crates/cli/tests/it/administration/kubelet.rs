//! The part of a kubelet that has logs, for the node of simulated pods: every container wrote one line, with its name,
//! but for those that never begin.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Serves until it is dropped.
pub(crate) struct Kubelet(JoinHandle<()>);

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Kubelet {
    /// Starts it, and tells the cluster where the node has its logs.
    pub(crate) async fn start(cluster: &kube::Client) -> anyhow::Result<Kubelet> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                // An API server that goes away in the middle reads no more logs.
                tokio::spawn(async move { answer(&acceptor, stream).await.ok() });
            }
        });
        let nodes: Api<Node> = Api::all(cluster.clone());
        let status = json!({
            "addresses": [{ "type": "InternalIP", "address": "127.0.0.1" }],
            "daemonEndpoints": { "kubeletEndpoint": { "Port": port } },
        });
        nodes
            .patch_status("simulated", &PatchParams::default(), &Patch::Merge(json!({ "status": status })))
            .await?;
        Ok(Kubelet(serving))
    }
}

/// Answers one request: `GET /containerLogs/NAMESPACE/POD/CONTAINER?…`.
async fn answer(acceptor: &TlsAcceptor, stream: TcpStream) -> std::io::Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let mut request = String::new();
    stream.read_line(&mut request).await?;
    let mut header = String::new();
    while stream.read_line(&mut header).await? > 2 {
        header.clear();
    }
    let path = request.split_whitespace().nth(1).unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    let (status, text) = match path.strip_prefix("/containerLogs/") {
        // The second pod of an Indexed Job never begins.
        Some(container) if container.contains("-1-") => {
            ("400 Bad Request", "container \"c\" is waiting to start: ContainerCreating\n".to_owned())
        }
        Some(container) => ("200 OK", format!("written by {container}\n")),
        None => ("404 Not Found", String::new()),
    };
    let answer = format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n{text}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}
