//! `pods/proxy`, `services/proxy` and `nodes/proxy`: a request goes on to where the object leads, and the answer comes back.

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::links;
use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;
use crate::webhook::service;

/// How many words of a path come before what is passed on.
const BEFORE: usize = 7;

/// The port of those who do not say theirs.
const HTTP: u16 = 80;

/// What concerns only one connection, and whom the other side must not learn of.
const OWN: [HeaderName; 5] =
    [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE, header::AUTHORIZATION, header::HOST];

pub(super) async fn pass_on(context: &Context<'_>, body: &[u8]) -> Result<Answer, Refusal> {
    let uri = &context.head.uri;
    let asked = Asked::read(context.name()).ok_or_else(|| {
        let kind = context.resource.kind.to_lowercase();
        Refusal::bad_request(format!("invalid {kind} request {}", types::go::quote(context.name())))
    })?;
    let (host, port) = match context.resource.plural.as_str() {
        "pods" => pod(context, &asked)?,
        "nodes" => return Err(node(context, &asked)),
        _ => behind_service(context, &asked)?,
    };
    let path = path_behind(uri.path());
    if path.is_none() && matches!(context.head.method, Method::GET | Method::HEAD) {
        // A server gives links that begin where it is.
        let mut answer = answer::text(StatusCode::MOVED_PERMANENTLY, "");
        let place =
            format!("{}/{}", uri.path(), uri.query().map_or(String::new(), |query| format!("?{query}")));
        answer.headers_mut().insert(header::LOCATION, place.parse().map_err(Refusal::internal)?);
        return Ok(answer);
    }
    let path = path.unwrap_or("/");
    let whole = format!("{path}{}", uri.query().map_or(String::new(), |query| format!("?{query}")));
    let mut request = Request::builder().method(&context.head.method).uri(whole);
    // Pages are to come so that they can be read here.
    let is_passed = |name: &HeaderName| !OWN.contains(name) && *name != header::ACCEPT_ENCODING;
    for (name, value) in context.head.headers.iter().filter(|(name, _)| is_passed(name)) {
        request = request.header(name, value);
    }
    let request =
        request.header(header::HOST, format!("{host}:{port}")).body(Full::new(Bytes::copy_from_slice(body)));
    let request = request.map_err(Refusal::internal)?;
    let failed = |why: String| Refusal::unavailable(format!("error trying to reach service: {why}"));
    let stream = TcpStream::connect((host.as_str(), port)).await;
    let stream = stream.map_err(|error| failed(format!("dial tcp {host}:{port}: {error}")))?;
    let stream: Box<dyn Connection> = if asked.is_secure() {
        Box::new(tls::connect(&host, stream).await.map_err(|error| failed(error.to_string()))?)
    } else {
        Box::new(stream)
    };
    let (mut sender, connection) =
        handshake(TokioIo::new(stream)).await.map_err(|error| failed(error.to_string()))?;
    // It ends with the answer, or with the client who does not want it any more.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection behind the proxy broke");
        }
    });
    let answer = sender.send_request(request).await.map_err(|error| failed(error.to_string()))?;
    let (mut head, body) = answer.into_parts();
    for name in &OWN {
        head.headers.remove(name);
    }
    // Pages have links, and are seen from elsewhere than where they were made.
    let prefix = uri.path().strip_suffix(path).unwrap_or(uri.path());
    if let Some(place) = head.headers.get(header::LOCATION).and_then(|place| place.to_str().ok()) {
        let place = links::through(place, prefix).parse().map_err(Refusal::internal)?;
        head.headers.insert(header::LOCATION, place);
    }
    if is_page(&head.headers) {
        let page = body.collect().await.map_err(|error| failed(error.to_string()))?.to_bytes();
        head.headers.remove(header::CONTENT_LENGTH);
        let page = Full::new(Bytes::from(links::rewritten(&page, prefix)));
        return Ok(Response::from_parts(head, page.boxed_unsync()));
    }
    // What broke has ended: there is no other way left to say it.
    let pieces = body.into_data_stream().take_while(|piece| std::future::ready(piece.is_ok()));
    let pieces = pieces.filter_map(|piece| std::future::ready(piece.ok()));
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
}

/// Whether an answer is a page of text that can be read as it is.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/html") && !headers.contains_key(header::CONTENT_ENCODING)
}

/// What a request goes on through.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// `[scheme:]name[:port]`.
#[derive(Debug, PartialEq)]
struct Asked<'a> {
    scheme: &'a str,
    name: &'a str,
    port: &'a str,
}

impl<'a> Asked<'a> {
    fn is_secure(&self) -> bool {
        self.scheme == "https"
    }

    fn read(name: &'a str) -> Option<Self> {
        let parts: Vec<&str> = name.split(':').collect();
        let asked = match parts.as_slice() {
            [name] => Asked { scheme: "", name, port: "" },
            [name, port] => Asked { scheme: "", name, port },
            [scheme @ ("" | "http" | "https"), name, port] => Asked { scheme, name, port },
            _ => return None,
        };
        Some(asked).filter(|asked| !asked.name.is_empty())
    }
}

/// What follows `/api/v1/namespaces/…/pods/…/proxy`; `None` if nothing does, not even a slash.
fn path_behind(path: &str) -> Option<&str> {
    let (place, _) = path.match_indices('/').nth(BEFORE)?;
    Some(&path[place..])
}

fn pod(context: &Context<'_>, asked: &Asked<'_>) -> Result<(String, u16), Refusal> {
    let pod = read(context, asked.name)?;
    let address = object::text(&pod, &["status", "podIP"]);
    if address.is_empty() {
        return Err(Refusal::bad_request("address not allowed"));
    }
    let containers = || pod["spec"]["containers"].as_array().into_iter().flatten();
    let first = || containers().find_map(|container| container["ports"][0]["containerPort"].as_u64());
    let port = match asked.port {
        "" => first().and_then(|port| u16::try_from(port).ok()).unwrap_or(HTTP),
        port => number(port)?,
    };
    Ok((address.to_owned(), port))
}

fn behind_service(context: &Context<'_>, asked: &Asked<'_>) -> Result<(String, u16), Refusal> {
    let (store, namespace) = (context.cluster.store(), context.namespace());
    let nobody = |name: &str| {
        Refusal::unavailable(format!("no endpoints available for service {}", types::go::quote(name)))
    };
    let service = read(context, asked.name)?;
    let ports = || service["spec"]["ports"].as_array().into_iter().flatten();
    let number: Option<u64> = asked.port.parse().ok();
    let is_it = |port: &&Value| {
        object::text(port, &["name"]) == asked.port
            || port["port"].as_u64().is_some_and(|it| Some(it) == number)
    };
    let found = ports().find(is_it).or_else(|| ports().next().filter(|_| asked.port.is_empty()));
    let port = found.and_then(|port| u16::try_from(port["port"].as_u64()?).ok());
    if let (Some(number), None) = (number, port) {
        let why = format!("no service port {number} found for service {}", types::go::quote(asked.name));
        return Err(Refusal::unavailable(why));
    }
    // A service without any endpoints is told to be missing itself (as measured).
    if !service::has_endpoints(store, namespace, asked.name) {
        return Err(Refusal::not_found(context.about_name(asked.name)));
    }
    let place = port.map(|port| service::resolve(store, namespace, asked.name, port));
    place.and_then(Result::ok).ok_or_else(|| nobody(context.name()))
}

/// Nodes are not listened on: what a cluster says of one that cannot be reached.
fn node(context: &Context<'_>, asked: &Asked<'_>) -> Refusal {
    let node = match read(context, asked.name) {
        Ok(node) => node,
        Err(refusal) => return refusal,
    };
    match node["status"]["addresses"].as_array().filter(|addresses| !addresses.is_empty()) {
        None => Refusal::unknown("no preferred addresses found; known addresses: []".to_owned()),
        Some(_) => Refusal::unavailable("error trying to reach service: nothing listens for this node"),
    }
}

fn read(context: &Context<'_>, name: &str) -> Result<Value, Refusal> {
    let key = object::key(context.resource, context.namespace(), name);
    let found = context.cluster.store().get(&key);
    found.map(|found| object::read(&found)).ok_or_else(|| Refusal::not_found(context.about_name(name)))
}

fn number(port: &str) -> Result<u16, Refusal> {
    port.parse().map_err(|_| Refusal::bad_request(format!("invalid port {}", types::go::quote(port))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_come_with_a_scheme_and_a_port() {
        let asked = |name, port| Some(Asked { scheme: "", name, port });
        assert_eq!(Asked::read("web"), asked("web", ""));
        assert_eq!(Asked::read("web:8080"), asked("web", "8080"));
        assert_eq!(Asked::read("http:web:named"), Some(Asked { scheme: "http", name: "web", port: "named" }));
        assert_eq!(Asked::read("https:web:443").map(|asked| asked.scheme), Some("https"));
        assert_eq!(Asked::read("a:b:c:d"), None);
    }

    #[test]
    fn what_follows_the_subresource_is_the_path_there() {
        assert_eq!(path_behind("/api/v1/namespaces/proxy/pods/proxy/proxy/a/proxy"), Some("/a/proxy"));
        assert_eq!(path_behind("/api/v1/namespaces/n/pods/p/proxy/"), Some("/"));
        assert_eq!(path_behind("/api/v1/namespaces/n/pods/p/proxy"), None);
    }
}
