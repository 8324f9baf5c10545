//! Probes and hooks: asking a container how it is, and telling it what happens.

mod http;

use std::time::Duration;

use ::http::Request;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::{
    api::core::v1::{Container, ExecAction, GRPCAction, LifecycleHandler, Probe, TCPSocketAction},
    apimachinery::pkg::util::intstr::IntOrString,
};
use rules::node::probe::{Purpose, Run, Schedule};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::sessions::Place;

/// How much of an answer is read.
const LONGEST: usize = 10 * 1024;

/// What one probe has found.
#[derive(Debug)]
pub(super) struct Found {
    /// Why it failed, or what is odd although it did not.
    pub(super) outcome: Result<Option<String>, String>,
    /// Whether there were enough equal ones in a row for it to count.
    pub(super) counts: bool,
}

/// Probes until the task is ended, and calls `tell` with what counts, and with every failure and warning.
pub(super) async fn watch(
    purpose: Purpose,
    probe: Probe,
    container: Container,
    ip: String,
    place: Place,
    mut started: watch::Receiver<bool>,
    mut tell: impl FnMut(Found),
) {
    let schedule = Schedule::of(&probe);
    let born = Instant::now();
    if purpose != Purpose::Startup && started.wait_for(|started| *started).await.is_err() {
        return;
    }
    sleep_until(born + schedule.initial_delay).await;
    let mut run = Run::default();
    loop {
        let outcome = timeout(schedule.timeout, once(&probe, &container, &ip, &place)).await;
        let outcome = outcome.unwrap_or_else(|_| Err("probe timed out".to_owned()));
        let is_success = outcome.is_ok();
        let counts = run.add(is_success, &schedule).is_some();
        if counts || !matches!(outcome, Ok(None)) {
            tell(Found { outcome, counts });
        }
        // A container that has come up, or will be started again, is not asked again.
        if counts && (purpose == Purpose::Startup || (purpose == Purpose::Liveness && !is_success)) {
            return;
        }
        sleep(schedule.period).await;
    }
}

/// Asks once. Who succeeds may still have something to warn of.
async fn once(
    probe: &Probe,
    container: &Container,
    ip: &str,
    place: &Place,
) -> Result<Option<String>, String> {
    if let Some(exec) = &probe.exec {
        return command(exec, place).await.map(|()| None);
    }
    if let Some(get) = &probe.http_get {
        return http::probe(get, container, ip).await;
    }
    if let Some(socket) = &probe.tcp_socket {
        return tcp(socket, container, ip).await.map(|()| None);
    }
    if let Some(action) = &probe.grpc {
        return grpc(action, ip).await.map(|()| None);
    }
    Err("the probe does not say what to ask".to_owned())
}

/// Does what a hook says. One that succeeds may still have something to warn of.
pub(super) async fn hook(
    handler: LifecycleHandler,
    container: Container,
    ip: String,
    place: Place,
) -> Result<Option<String>, String> {
    if let Some(exec) = &handler.exec {
        return command(exec, &place).await.map(|()| None);
    }
    if let Some(get) = &handler.http_get {
        return http::hook(get, &container, &ip).await;
    }
    if let Some(sleeping) = &handler.sleep {
        sleep(Duration::from_secs(u64::try_from(sleeping.seconds).unwrap_or_default())).await;
    }
    Ok(None)
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
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
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
    use super::*;

    #[test]
    fn health_is_asked_for_and_told_in_grpc_messages() {
        assert_eq!(health_question(""), [0, 0, 0, 0, 0]);
        assert_eq!(health_question("ab"), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert!(is_serving(&[0, 0, 0, 0, 2, 0x08, 1]));
        assert!(!is_serving(&[0, 0, 0, 0, 2, 0x08, 2]));
        assert!(!is_serving(&[]));
    }
}
