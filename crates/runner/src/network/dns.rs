//! The DNS server of a cluster, on the address that pods are told.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{Namespace, Service},
    discovery::v1::EndpointSlice,
};
use reconcile::{Cache, Key};
use rules::dns::{self, Answer, Names, Record};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    task::JoinSet,
    time::{sleep, timeout},
};
use tracing::warn;

use super::message::{Code, Question};

/// Where it listens, as Kubernetes' own set-ups have it.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);
const PORT: u16 = 53;
/// Index of slices by namespace and service, and of services by their address and those of their endpoints.
pub(super) const BY_SERVICE: &str = "service";
pub(super) const BY_ADDRESS: &str = "address";
/// The largest message.
const LARGEST: usize = 65_535;
/// How long others may take to answer.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);
/// After something that may pass.
const PAUSE: Duration = Duration::from_millis(200);
/// So many names may stand for each other.
const LONGEST_CHAIN: usize = 8;

/// What the names of a cluster are made from.
#[derive(Clone)]
pub(super) struct Objects {
    pub(super) namespaces: Cache<Namespace>,
    pub(super) services: Cache<Service>,
    pub(super) slices: Cache<EndpointSlice>,
}

impl Names for Objects {
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>> {
        self.services.get(&Key::new(namespace, name))
    }

    fn slices(&self, namespace: &str, service: &str) -> Vec<Arc<EndpointSlice>> {
        self.slices.by(BY_SERVICE, &format!("{namespace}/{service}"))
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.namespaces.get(&Key::new("", namespace)).is_some()
    }

    fn services_at(&self, address: Ipv4Addr) -> Vec<(String, String)> {
        let address = address.to_string();
        let own = self.services.by(BY_ADDRESS, &address).into_iter().filter_map(|service| {
            Some((service.metadata.namespace.clone()?, service.metadata.name.clone()?))
        });
        let behind = self.slices.by(BY_ADDRESS, &address).into_iter().filter_map(|slice| {
            let name = slice.metadata.labels.as_ref()?.get(rules::endpoint_slice::SERVICE_NAME)?;
            Some((slice.metadata.namespace.clone()?, name.clone()))
        });
        own.chain(behind).collect()
    }
}

/// Answers until it is dropped.
pub(super) async fn serve(objects: Objects) {
    let (datagrams, connections) = loop {
        match futures::join!(UdpSocket::bind((ADDRESS, PORT)), TcpListener::bind((ADDRESS, PORT))) {
            (Ok(datagrams), Ok(connections)) => break (datagrams, connections),
            (Err(error), _) | (_, Err(error)) => {
                warn!(%error, "failed to listen for questions about names, will be tried again");
                sleep(PAUSE).await;
            }
        }
    };
    futures::join!(receive(Arc::new(datagrams), objects.clone()), accept(connections, objects));
}

async fn receive(socket: Arc<UdpSocket>, objects: Objects) {
    let mut tasks = JoinSet::new();
    let mut datagram = vec![0; LARGEST];
    loop {
        while tasks.try_join_next().is_some() {} // those that are done
        // An error is about an answer that has reached nobody.
        let Ok((length, client)) = socket.recv_from(&mut datagram).await else { continue };
        let (asked, socket, objects) = (datagram[..length].to_vec(), Arc::clone(&socket), objects.clone());
        tasks.spawn(async move {
            if let Some((question, answer)) = answer(&objects, &asked).await {
                // A client that is gone asks nothing more.
                let _ = socket.send_to(&question.datagram(answer), client).await;
            }
        });
    }
}

async fn accept(listener: TcpListener, objects: Objects) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {} // those that are done
        match listener.accept().await {
            Ok((stream, _)) => drop(tasks.spawn(converse(stream, objects.clone()))),
            Err(error) => {
                warn!(%error, "failed to accept a connection to the DNS server");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Answers all questions of one connection. Before each message stands its length.
async fn converse(mut stream: TcpStream, objects: Objects) {
    while let Ok(Ok(length)) = timeout(IDLE, stream.read_u16()).await {
        let mut asked = vec![0; usize::from(length)];
        if !matches!(timeout(IDLE, stream.read_exact(&mut asked)).await, Ok(Ok(_))) {
            return;
        }
        let Some((_, answer)) = answer(&objects, &asked).await else { return };
        let Ok(length) = u16::try_from(answer.len()) else { return };
        let said = stream.write_all(&[&length.to_be_bytes(), answer.as_slice()].concat()).await;
        if said.is_err() {
            return;
        }
    }
}

async fn answer(objects: &Objects, asked: &[u8]) -> Option<(Question, Vec<u8>)> {
    let question = Question::read(asked)?;
    if !question.is_query() {
        let answer = question.answer(Code::NotImplemented, &[]);
        return Some((question, answer));
    }
    let mut records = Vec::new();
    let mut name = question.name.clone();
    for _ in 0..LONGEST_CHAIN {
        match dns::answer(objects, &name, question.kind) {
            Answer::Records(found) => {
                let next = found.iter().find_map(|record| match record {
                    Record::Cname(next) if question.kind != dns::Kind::Cname => Some(next.clone()),
                    _ => None,
                });
                records.extend(found.into_iter().map(|record| (name.clone(), record)));
                match next {
                    Some(next) => name = next,
                    None => break,
                }
            }
            Answer::NoSuchName if records.is_empty() => {
                let answer = question.answer(Code::NoSuchName, &[]);
                return Some((question, answer));
            }
            Answer::Elsewhere if records.is_empty() => {
                let answer = ask_others(asked).await;
                let answer = answer.unwrap_or_else(|| question.answer(Code::ServerFailed, &[]));
                return Some((question, answer));
            }
            // The client goes on from the last name.
            Answer::NoSuchName | Answer::Elsewhere => break,
        }
    }
    let answer = question.answer(Code::Fine, &records);
    Some((question, answer))
}

/// Asks those whom this machine asks.
async fn ask_others(asked: &[u8]) -> Option<Vec<u8>> {
    let text = fs::read_to_string("/etc/resolv.conf").ok()?;
    let servers = text.lines().filter_map(|line| line.strip_prefix("nameserver")?.trim().parse().ok());
    for server in servers {
        let server: IpAddr = server;
        if let Ok(Some(answer)) = timeout(PATIENCE, ask(SocketAddr::new(server, PORT), asked)).await {
            return Some(answer);
        }
    }
    None
}

async fn ask(server: SocketAddr, asked: &[u8]) -> Option<Vec<u8>> {
    let own: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { "::".parse().ok()? };
    let socket = UdpSocket::bind((own, 0)).await.ok()?;
    socket.connect(server).await.ok()?;
    socket.send(asked).await.ok()?;
    let mut answer = vec![0; LARGEST];
    loop {
        let length = socket.recv(&mut answer).await.ok()?;
        // Only an answer to this very question is one.
        if answer[..length].get(..2) == asked.get(..2) {
            answer.truncate(length);
            return Some(answer);
        }
    }
}
