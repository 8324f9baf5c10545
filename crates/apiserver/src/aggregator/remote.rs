//! One API server of others: what its APIService says, and how it is asked.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, header, request};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tls::anybody;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::answer::{Answer, Body};
use crate::auth::User;
use crate::auth::front_proxy::says_for_whom;
use crate::cluster::Cluster;
use crate::object;
use crate::webhook::{service, trusting};

/// How long a server may take to let us in.
const WITHIN: Duration = Duration::from_secs(30);

/// What concerns only one connection, or tells who asked us.
const OWN: [&str; 8] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "authorization",
    "host",
    "content-length",
    "te",
];

/// What may not stand in the name of a header as it is, and `%`, which tells so.
const HEADER_NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// A group and version that is served elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remote {
    /// The name of the APIService.
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) group_priority: i64,
    pub(crate) version_priority: i64,
    pub(crate) is_available: bool,
    pub(super) service_namespace: String,
    pub(super) service_name: String,
    pub(super) port: u16,
    /// The certificates that sign the server's, in PEM; without them those that this machine trusts do.
    authority: Vec<u8>,
    /// Whoever answers is believed.
    is_insecure: bool,
}

/// Whether the certificate of a server is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    AsTold,
    Anybody,
}

impl Remote {
    /// What an APIService says, if it is served by others.
    pub(crate) fn read(object: &Value) -> Option<Remote> {
        let spec = &object["spec"];
        let service = spec["service"].as_object().map(|_| &spec["service"])?;
        let text = |value: &Value, field: &str| object::text(value, &[field]).to_owned();
        Some(Remote {
            name: object::text(object, &["metadata", "name"]).to_owned(),
            group: text(spec, "group"),
            version: text(spec, "version"),
            group_priority: spec["groupPriorityMinimum"].as_i64().unwrap_or(0),
            version_priority: spec["versionPriority"].as_i64().unwrap_or(0),
            is_available: condition(object).is_some_and(|condition| condition["status"] == "True"),
            service_namespace: text(service, "namespace"),
            service_name: text(service, "name"),
            port: service["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap_or(443),
            authority: STANDARD.decode(object::text(spec, &["caBundle"])).unwrap_or_default(),
            is_insecure: spec["insecureSkipTLSVerify"] == true,
        })
    }

    /// Passes a request on as the user's, and the answer back as it comes.
    pub(super) async fn pass_on(
        &self,
        cluster: &Cluster,
        head: &request::Parts,
        body: Bytes,
        user: &User,
    ) -> Result<Answer, String> {
        let upgrade =
            head.extensions.get::<OnUpgrade>().filter(|_| head.headers.contains_key(header::UPGRADE));
        let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let mut request = Request::builder().method(&head.method).uri(path);
        for (name, value) in head.headers.iter().filter(|(name, _)| is_passed(name)) {
            request = request.header(name, value);
        }
        if let Some(wanted) = head.headers.get(header::UPGRADE).filter(|_| upgrade.is_some()) {
            request = request.header(header::UPGRADE, wanted).header(header::CONNECTION, "Upgrade");
        }
        let mut request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        introduce(user, request.headers_mut())?;
        let mut answer = self.ask(cluster, request, Trust::AsTold).await?;
        if let (StatusCode::SWITCHING_PROTOCOLS, Some(upgrade)) = (answer.status(), upgrade) {
            let (here, there) = (upgrade.clone(), hyper::upgrade::on(&mut answer));
            tokio::spawn(async move {
                let joined = async {
                    let (here, there) = tokio::try_join!(here, there)?;
                    let (mut here, mut there) = (TokioIo::new(here), TokioIo::new(there));
                    tokio::io::copy_bidirectional(&mut here, &mut there).await?;
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
                };
                if let Err(error) = joined.await {
                    tracing::debug!(%error, "a connection to the API server of others broke");
                }
            });
            let (head, _) = answer.into_parts();
            return Ok(Response::from_parts(head, Body::default()));
        }
        let (mut head, body) = answer.into_parts();
        for name in ["connection", "keep-alive", "transfer-encoding"] {
            head.headers.remove(name);
        }
        // What broke has ended: there is no other way left to say it.
        let pieces = body.into_data_stream().take_while(|piece| std::future::ready(piece.is_ok()));
        let pieces = pieces.filter_map(|piece| std::future::ready(piece.ok()));
        let frames = pieces.map(|piece| Ok(Frame::data(piece)));
        Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
    }

    /// The answer to a request, or what a Go client would say of its failure.
    pub(super) async fn ask(
        &self,
        cluster: &Cluster,
        mut request: Request<Full<Bytes>>,
        trust: Trust,
    ) -> Result<Response<Incoming>, String> {
        let host = format!("{}:{}", self.server_name(), self.port);
        let host = HeaderValue::from_str(&host).map_err(|error| error.to_string())?;
        request.headers_mut().insert(header::HOST, host);
        let connecting = tokio::time::timeout(WITHIN, self.connect(cluster, trust));
        let mut sender = connecting.await.map_err(|_| "i/o timeout".to_owned())??;
        sender.send_request(request).await.map_err(|error| error.to_string())
    }

    async fn connect(&self, cluster: &Cluster, trust: Trust) -> Result<SendRequest<Full<Bytes>>, String> {
        let (host, port) =
            service::resolve(cluster.store(), &self.service_namespace, &self.service_name, self.port)?;
        let stream = TcpStream::connect((host.as_str(), port)).await;
        let stream = stream.map_err(|error| format!("dial tcp {host}:{port}: {error}"))?;
        // Small requests are not to wait for each other; that they may does no harm.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection to the API server of others may be slow");
        }
        let name = ServerName::try_from(self.server_name()).map_err(|error| error.to_string())?;
        let connector = TlsConnector::from(Arc::new(self.tls(cluster, trust)?));
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // It ends with the answer, or with the client who does not want it any more.
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to the API server of others ended early");
            }
        });
        Ok(sender)
    }

    fn tls(&self, cluster: &Cluster, trust: Trust) -> Result<ClientConfig, String> {
        let (chain, key) = cluster.aggregator().identity().chain();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = if trust == Trust::Anybody || self.is_insecure {
            config.dangerous().with_custom_certificate_verifier(anybody(provider))
        } else {
            config.with_root_certificates(trusting(&self.authority)?)
        };
        let mut config = config.with_client_auth_cert(chain, key).map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The name that its certificate must have.
    fn server_name(&self) -> String {
        format!("{}.{}.svc", self.service_name, self.service_namespace)
    }
}

/// What is known of whether a server answers.
pub(super) fn condition(service: &Value) -> Option<&Value> {
    let conditions = service["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Available")
}

/// Whether a header goes on: nobody else says who asks, and nobody is told by what we know it.
fn is_passed(name: &HeaderName) -> bool {
    !OWN.contains(&name.as_str()) && !says_for_whom(name) && !name.as_str().starts_with("impersonate-")
}

/// Says in headers who asks.
pub(super) fn introduce(user: &User, headers: &mut HeaderMap) -> Result<(), String> {
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|error| error.to_string());
    headers.insert("x-remote-user", value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert("x-remote-uid", value(&user.uid)?);
    }
    for group in &user.groups {
        headers.append("x-remote-group", value(group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("x-remote-extra-{}", utf8_percent_encode(&key.to_lowercase(), HEADER_NAME));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        for text in values {
            headers.append(&name, value(text)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_asks_is_said_in_headers_and_by_nobody_else() {
        let mut user = User::named("u").in_groups(["a", "b"]);
        user.uid = "id".to_owned();
        user.extra.insert("example.com/What Else".to_owned(), vec!["1".to_owned(), "2".to_owned()]);
        let mut headers = HeaderMap::new();
        introduce(&user, &mut headers).expect("headers");
        let all = |name: &str| {
            headers.get_all(name).iter().map(|value| value.to_str().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(all("x-remote-user"), ["u"]);
        assert_eq!(all("x-remote-uid"), ["id"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.com%2fwhat%20else"), ["1", "2"]);
        for name in ["authorization", "x-remote-user", "x-remote-extra-x", "impersonate-user", "host"] {
            assert!(!is_passed(&HeaderName::from_static(name)), "{name}");
        }
        assert!(is_passed(&header::ACCEPT));
        assert!(introduce(&User::named("a\nb"), &mut HeaderMap::new()).is_err());
    }

    #[test]
    fn an_api_service_without_a_service_is_served_here() {
        assert_eq!(Remote::read(&json!({"spec": {"group": "g", "version": "v1"}})), None);
        let remote = json!({"metadata": {"name": "v1.g"}, "spec": {"group": "g", "version": "v1",
            "service": {"namespace": "n", "name": "s"}, "groupPriorityMinimum": 5, "versionPriority": 6}});
        let remote = Remote::read(&remote).expect("a server of others");
        assert_eq!(
            (remote.server_name().as_str(), remote.port, remote.is_available),
            ("s.n.svc", 443, false)
        );
        assert_eq!((remote.group_priority, remote.version_priority), (5, 6));
    }
}
