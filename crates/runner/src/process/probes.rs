//! Probes and hooks: asking a container how it is, and telling it what happens.

use std::time::Duration;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{ACCEPT, CONNECTION, HOST, USER_AGENT},
};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::{
    api::core::v1::{
        Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, TCPSocketAction,
    },
    apimachinery::pkg::util::intstr::IntOrString,
};
use rules::node::probe::{Purpose, Run, Schedule};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::sessions::Place;

/// What a request goes through.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// How much of an answer is read.
const LONGEST: usize = 10 * 1024;

/// Probes until the task is ended, and calls `counted` when enough equal answers have come.
pub(super) async fn watch(
    purpose: Purpose,
    probe: Probe,
    container: Container,
    ip: String,
    place: Place,
    mut started: watch::Receiver<bool>,
    mut counted: impl FnMut(bool, String),
) {
    let schedule = Schedule::of(&probe);
    let born = Instant::now();
    if purpose != Purpose::Startup && started.wait_for(|started| *started).await.is_err() {
        return;
    }
    sleep_until(born + schedule.initial_delay).await;
    let mut run = Run::default();
    loop {
        let answer = timeout(schedule.timeout, once(&probe, &container, &ip, &place)).await;
        let answer = answer.unwrap_or_else(|_| Err("probe timed out".to_owned()));
        let (success, message) = match answer {
            Ok(()) => (true, String::new()),
            Err(message) => (false, message),
        };
        if let Some(success) = run.add(success, &schedule) {
            counted(success, message);
            // A container that has come up, or will be started again, is not asked again.
            if purpose == Purpose::Startup || (purpose == Purpose::Liveness && !success) {
                return;
            }
        }
        sleep(schedule.period).await;
    }
}

async fn once(probe: &Probe, container: &Container, ip: &str, place: &Place) -> Result<(), String> {
    if let Some(exec) = &probe.exec {
        return command(exec, place).await;
    }
    if let Some(get) = &probe.http_get {
        return http(get, container, ip).await;
    }
    if let Some(socket) = &probe.tcp_socket {
        return tcp(socket, container, ip).await;
    }
    if let Some(action) = &probe.grpc {
        return grpc(action, ip).await;
    }
    Err("the probe does not say what to ask".to_owned())
}

/// Does what a hook says.
pub(super) async fn hook(
    handler: LifecycleHandler,
    container: Container,
    ip: String,
    place: Place,
) -> Result<(), String> {
    if let Some(exec) = &handler.exec {
        return command(exec, &place).await;
    }
    if let Some(get) = &handler.http_get {
        return http(get, &container, &ip).await;
    }
    if let Some(sleeping) = &handler.sleep {
        sleep(Duration::from_secs(u64::try_from(sleeping.seconds).unwrap_or_default())).await;
    }
    Ok(())
}

async fn command(exec: &ExecAction, place: &Place) -> Result<(), String> {
    match place.run(exec.command.as_deref().unwrap_or_default()).await {
        Ok((0, _)) => Ok(()),
        Ok((code, output)) => Err(format!("command exited with {code}: {}", output.trim_end())),
        Err(error) => Err(error.to_string()),
    }
}

async fn tcp(socket: &TCPSocketAction, container: &Container, ip: &str) -> Result<(), String> {
    let port = port_of(&socket.port, container)?;
    let host = socket.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    TcpStream::connect((host, port))
        .await
        .map(drop)
        .map_err(|error| format!("dial tcp {host}:{port}: {error}"))
}

async fn http(get: &HTTPGetAction, container: &Container, ip: &str) -> Result<(), String> {
    let port = port_of(&get.port, container)?;
    let host = get.host.as_deref().filter(|host| !host.is_empty()).unwrap_or(ip);
    let path = get.path.as_deref().filter(|path| !path.is_empty()).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let is_secure = get.scheme.as_deref() == Some("HTTPS");
    let url = format!("{}://{host}:{port}{path}", if is_secure { "https" } else { "http" });
    let failed = |error: &dyn std::fmt::Display| format!("Get {url:?}: {error}");
    let stream = TcpStream::connect((host, port)).await.map_err(|error| failed(&error))?;
    let stream: Box<dyn Connection> = if is_secure {
        Box::new(tls::connect(host, stream).await.map_err(|error| failed(&error))?)
    } else {
        Box::new(stream)
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let request = http::Request::get(path).body(Empty::<Bytes>::new());
    let mut request = request.map_err(|error| failed(&error))?;
    *request.headers_mut() = headers(get, &format!("{host}:{port}")).map_err(|error| failed(&error))?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = answer.status().as_u16();
        // Read, so that the one who answers does not see a broken connection; too much of it is no failure.
        let _ = Limited::new(answer.into_body(), LONGEST).collect().await;
        if (200..400).contains(&status) {
            Ok(())
        } else {
            Err(format!("HTTP probe failed with statuscode: {status}"))
        }
    };
    tokio::pin!(asking, connection);
    tokio::select! {
        biased;
        answer = &mut asking => answer,
        ended = &mut connection => {
            ended.map_err(|error| failed(&error))?;
            asking.await
        }
    }
}

/// What goes along with a request: what the probe says comes before what is usual.
fn headers(get: &HTTPGetAction, address: &str) -> Result<HeaderMap, http::Error> {
    let mut headers = HeaderMap::new();
    for own in get.http_headers.iter().flatten() {
        headers.append(HeaderName::try_from(&own.name)?, HeaderValue::try_from(&own.value)?);
    }
    // There is one host, and a name of none is the address.
    let host = headers.get(HOST).filter(|host| !host.is_empty()).cloned();
    headers.insert(HOST, host.map_or_else(|| HeaderValue::try_from(address), Ok)?);
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("kube-probe/1.35"));
    // Whoever says nothing here wants it not to be said.
    if headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*")).is_empty() {
        headers.remove(ACCEPT);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(headers)
}

/// Asks for the health of a service as gRPC does: a message with its name, and one with a number for an answer.
async fn grpc(action: &GRPCAction, ip: &str) -> Result<(), String> {
    let address = format!("{ip}:{}", action.port);
    let failed = |error: &dyn std::fmt::Display| format!("failed to ask {address} for its health: {error}");
    let stream = TcpStream::connect(&address).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(|error| failed(&error))?;
    let question = health_question(action.service.as_deref().unwrap_or_default());
    let request = http::Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.35")
        .body(Full::new(Bytes::from(question)))
        .map_err(|error| failed(&error))?;
    let asking = async {
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let bytes = Limited::new(answer.into_body(), LONGEST).collect().await;
        let bytes = bytes.map_err(|error| failed(&error))?.to_bytes();
        if is_serving(&bytes) { Ok(()) } else { Err("service unhealthy".to_owned()) }
    };
    tokio::pin!(asking, connection);
    tokio::select! {
        biased;
        answer = &mut asking => answer,
        ended = &mut connection => {
            ended.map_err(|error| failed(&error))?;
            asking.await
        }
    }
}

/// A message of one field, the name, after the five bytes that every message begins with.
fn health_question(service: &str) -> Vec<u8> {
    let name = &service.as_bytes()[..service.len().min(127)];
    let length = u8::try_from(name.len()).unwrap_or_default();
    let mut message = Vec::new();
    if length > 0 {
        message.extend_from_slice(&[0x0a, length]);
        message.extend_from_slice(name);
    }
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or_default().to_be_bytes());
    framed.extend_from_slice(&message);
    framed
}

/// Whether the first field of the answer is 1: serving.
fn is_serving(answer: &[u8]) -> bool {
    answer.get(5..) == Some(&[0x08, 1])
}

fn port_of(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => name.parse().ok().or_else(|| {
            let ports = container.ports.iter().flatten();
            ports.into_iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
        }),
    };
    number.and_then(|number| u16::try_from(number).ok()).ok_or_else(|| format!("there is no port {port:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_has_one_host_and_what_the_probe_says_comes_first() {
        let print = |own: &[(&str, &str)]| {
            let own: Vec<_> =
                own.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
            let get = serde_json::from_value(json!({ "port": 80, "httpHeaders": own })).expect("an action");
            let headers = headers(&get, "10.0.0.1:80").expect("headers");
            let mut lines: Vec<String> = headers
                .iter()
                .map(|(name, value)| format!("{name}: {}", value.to_str().expect("text")))
                .collect();
            lines.sort();
            lines
        };
        let usual = ["accept: */*", "connection: close", "host: 10.0.0.1:80", "user-agent: kube-probe/1.35"];
        assert_eq!(print(&[]), usual);
        assert_eq!(print(&[("Host", "")]), usual);
        assert_eq!(
            print(&[("Host", "a.example"), ("user-agent", "me"), ("Accept", ""), ("X", "1"), ("X", "2")]),
            ["connection: close", "host: a.example", "user-agent: me", "x: 1", "x: 2"]
        );
    }

    #[test]
    fn health_is_asked_for_and_told_in_grpc_messages() {
        assert_eq!(health_question(""), [0, 0, 0, 0, 0]);
        assert_eq!(health_question("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert!(is_serving(&[0, 0, 0, 0, 2, 0x08, 1]));
        assert!(!is_serving(&[0, 0, 0, 0, 2, 0x08, 2]));
        assert!(!is_serving(&[]));
    }
}
