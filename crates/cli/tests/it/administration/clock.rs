//! A cluster whose clock is wrong, as far as anybody sees: a way to it on which the dates of its answers are changed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use anyhow::Context as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use jiff::fmt::rfc2822::{self, DateTimePrinter};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::site::eventually;

/// A way to a cluster, for as long as this is held. Who takes it brings a token.
struct Shifted {
    address: SocketAddr,
    /// The certificate to trust, as a kubeconfig has it.
    authority: Value,
    /// By how many seconds the cluster's clock is ahead.
    ahead: Arc<AtomicI64>,
    serving: JoinHandle<()>,
}

impl Drop for Shifted {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Shifted {
    async fn start(to: Config) -> anyhow::Result<Shifted> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let ahead = Arc::new(AtomicI64::new(0));
        let (client, by) = (Client::try_from(to)?, Arc::clone(&ahead));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, client, by) = (acceptor.clone(), client.clone(), Arc::clone(&by));
                // Whoever goes away in the middle wants no more answers.
                tokio::spawn(async move { pass_on(&acceptor, stream, client, by).await.ok() });
            }
        });
        let authority = serde_json::to_value(ByteString(own.cert.pem().into_bytes()))?;
        Ok(Shifted { address, authority, ahead, serving })
    }
}

async fn pass_on(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
    client: Client,
    ahead: Arc<AtomicI64>,
) -> anyhow::Result<()> {
    let stream = TokioIo::new(acceptor.accept(stream).await?);
    let answer = service_fn(move |request: http::Request<Incoming>| {
        let (client, ahead) = (client.clone(), ahead.load(Ordering::Relaxed));
        async move {
            let (head, body) = request.into_parts();
            let body = Body::from(body.collect().await?.to_bytes().to_vec());
            let mut answer = client.send(http::Request::from_parts(head, body)).await?;
            let date = answer.headers().get(http::header::DATE).context("a date")?.to_str()?;
            let date = rfc2822::parse(date)?.timestamp() + SignedDuration::from_secs(ahead);
            let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&date)?;
            answer.headers_mut().insert(http::header::DATE, date.parse()?);
            anyhow::Ok(answer)
        }
    });
    hyper::server::conn::http1::Builder::new().serve_connection(stream, answer).await?;
    Ok(())
}

/// `ferry doctor` names a worker whose clock is wrong, how far it is, and what to do about it; and says nothing of clocks
/// that agree. The worker is one that was joined, so that its credentials are a token.
pub(super) async fn is_judged(
    manager: &Client,
    worker: &str,
    doctor: impl Fn(&[&str]) -> anyhow::Result<(Option<i32>, String)>,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(manager.clone(), "kueue-system");
    let name = format!("{worker}-kubeconfig");
    let data = secrets.get(&name).await?.data.and_then(|mut data| data.remove("kubeconfig"));
    let direct: Value = serde_json::from_slice(&data.context("a kubeconfig")?.0)?;
    let mut to: Kubeconfig = serde_json::from_value(direct.clone())?;
    for user in &mut to.auth_infos {
        user.auth_info = None;
    }
    let way =
        Shifted::start(Config::from_custom_kubeconfig(to, &KubeConfigOptions::default()).await?).await?;
    let mut shifted = direct.clone();
    let cluster = &mut shifted["clusters"][0]["cluster"];
    cluster["server"] = json!(format!("https://{}", way.address));
    cluster["certificate-authority-data"] = way.authority.clone();
    let use_way = async |kubeconfig: &Value| {
        let patch = Patch::Merge(json!({ "stringData": { "kubeconfig": kubeconfig.to_string() } }));
        secrets.patch(&name, &PatchParams::default(), &patch).await
    };
    use_way(&shifted).await?;
    let is_well = async |what: &str| {
        eventually(what, async || {
            let (code, said) = doctor(&["doctor"])?;
            Ok((code == Some(0) && !said.contains("clock")).then_some(()))
        })
        .await
    };
    is_well("all is well on another way").await?;
    let (_, said) = doctor(&["doctor", "--verbose"])?;
    assert!(said.contains(&format!("fine  the clock of worker {worker} is right\n")), "{said}");

    // Whole units, with room for as long as an answer may take.
    for (ahead, expected) in [(7230, "120m ahead of"), (-90_030, "25h behind")] {
        way.ahead.store(ahead, Ordering::Relaxed);
        let (code, said) = doctor(&["doctor"])?;
        assert_eq!(code, Some(1), "{said}");
        let what = format!("wrong the clock of worker {worker} is {expected} the management cluster's\n");
        let remedy =
            format!("      hint: set the clocks of {worker} and of the management cluster by the same");
        assert!(said.contains(&format!("{what}{remedy}")), "{said}");
        assert_eq!(said.matches("clock of").count(), 1, "the others agree: {said}");
    }
    way.ahead.store(0, Ordering::Relaxed);
    use_way(&direct).await?;
    is_well("all is well again").await
}
