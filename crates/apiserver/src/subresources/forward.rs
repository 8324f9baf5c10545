//! `pods/portforward`: connections of a client go on to ports of a pod, through one connection to here.
//!
//! `kubectl` speaks SPDY inside of a WebSocket, and older ones without: a stream for what goes through a connection, and one
//! for what goes wrong. Others send messages through a WebSocket, whose first byte names the channel: two for each of the
//! ports that they name.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, Stream, StreamExt as _};
use http::{HeaderName, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::spdy::{self, Frame, Reader, Why, Writer};
use super::{logs, streams};
use crate::answer::{Answer, Body};
use crate::cluster::Context;
use crate::node::{Connection, Node, Pod, Unserved};
use crate::status::Refusal;

/// What SPDY carries, and that in a WebSocket.
const PROTOCOL: &str = "portforward.k8s.io";
const TUNNELED: &str = "SPDY/3.1+portforward.k8s.io";
const CHANNELS: &str = "v4.channel.k8s.io";
const SPDY: &str = "SPDY/3.1";
const VERSIONS: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Streams that a client may have open.
const MOST_STREAMS: usize = 1000;
/// Pieces that wait for a slow side.
const WAITING: usize = 16;
/// The longest piece.
const PIECE: usize = 32 * 1024;

/// Answers a request for ports, and goes on with it once the connection is another one.
pub(super) fn connect(context: &Context<'_>) -> Result<Answer, Refusal> {
    let pod = logs::read(context)?;
    let Some(node) = logs::node_of(&pod) else {
        let why = format!("pod {} does not have a host assigned", context.name());
        return Err(Refusal::bad_request(why));
    };
    let node = logs::reach(context, node)?;
    let pod = Pod {
        namespace: context.namespace().to_owned(),
        name: context.name().to_owned(),
        uid: pod.metadata.uid.unwrap_or_default(),
    };
    let way = Arc::new(Way { node, pod });
    if !streams::wants_socket(context) {
        return directly(context, way);
    }
    let ports = ports(context)?;
    let (answer, upgrade, protocol) = streams::upgrade(context, &[TUNNELED, CHANNELS])?;
    if protocol == CHANNELS && ports.is_empty() {
        return Err(Refusal::bad_request("query parameter \"port\" is required"));
    }
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "no WebSocket"),
        };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let (mut to_client, from_client) = socket.split();
        // What is no message of bytes is the business of the socket.
        let piece = |message| match message {
            Ok(Message::Binary(bytes)) => Some(bytes),
            Ok(Message::Close(_)) | Err(_) => None,
            Ok(_) => Some(Bytes::new()),
        };
        let pieces = from_client.map(piece).take_while(|piece| std::future::ready(piece.is_some()));
        let pieces = pieces.filter_map(std::future::ready);
        let (say, mut said) = mpsc::channel::<Bytes>(WAITING);
        let writing = async {
            while let Some(bytes) = said.recv().await {
                if to_client.send(Message::Binary(bytes)).await.is_err() {
                    return; // nobody is there any more
                }
            }
            if let Err(error) = to_client.send(streams::end()).await {
                tracing::debug!(%error, "a client left before its ports");
            }
        };
        if protocol == CHANNELS {
            futures::join!(channels(pieces.boxed(), say, &ports, &way), writing);
        } else {
            futures::join!(converse(pieces.boxed(), say, way), writing);
        }
    });
    Ok(answer)
}

/// The ports that a client names.
fn ports(context: &Context<'_>) -> Result<Vec<u16>, Refusal> {
    let named = context.query.all("ports").flat_map(|ports| ports.split(','));
    named
        .map(|text| {
            let port = text.parse().ok().filter(|port: &u16| *port > 0);
            port.ok_or_else(|| {
                Refusal::bad_request(format!("unable to parse {} as a port", types::go::quote(text)))
            })
        })
        .collect()
}

/// SPDY without a WebSocket around it.
fn directly(context: &Context<'_>, way: Arc<Way>) -> Result<Answer, Refusal> {
    let headers = &context.head.headers;
    let asks = |name: &HeaderName, wanted: &str| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    let upgrade = context.head.extensions.get::<OnUpgrade>().cloned();
    let (Some(upgrade), true) = (upgrade, asks(&header::UPGRADE, SPDY)) else {
        return Err(Refusal::bad_request("Upgrade request required"));
    };
    if !asks(&VERSIONS, PROTOCOL) {
        return Err(Refusal::bad_request(format!("unable to upgrade: {PROTOCOL} is served")));
    }
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "no SPDY"),
        };
        let (from_client, mut to_client) = tokio::io::split(TokioIo::new(upgraded));
        let pieces = futures::stream::unfold(from_client, |mut from_client| async move {
            let mut piece = BytesMut::with_capacity(PIECE);
            let count = from_client.read_buf(&mut piece).await.ok()?;
            (count > 0).then(|| (piece.freeze(), from_client))
        });
        let (say, mut said) = mpsc::channel::<Bytes>(WAITING);
        let writing = async {
            while let Some(bytes) = said.recv().await {
                if to_client.write_all(&bytes).await.is_err() || to_client.flush().await.is_err() {
                    return; // nobody is there any more
                }
            }
        };
        futures::join!(converse(pieces.boxed(), say, way), writing);
    });
    let mut answer = Answer::new(Body::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in [(header::UPGRADE, SPDY), (header::CONNECTION, "Upgrade"), (VERSIONS, PROTOCOL)] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(answer)
}

/// The way to a pod.
struct Way {
    node: Arc<dyn Node>,
    pod: Pod,
}

impl Way {
    /// A connection to a port, or what is told of it.
    async fn open(&self, port: u16) -> Result<Connection, String> {
        self.node.forward(self.pod.clone(), port).await.map_err(|why: Unserved| {
            let Pod { name, uid, .. } = &self.pod;
            format!("error forwarding port {port} to pod {name}, uid {uid}: {why}")
        })
    }
}

/// Serves the streams of one client, until it goes.
async fn converse(mut pieces: impl Stream<Item = Bytes> + Unpin, say: mpsc::Sender<Bytes>, way: Arc<Way>) {
    let (mut reader, mut streams) = (Reader::new(), Streams::new(say, way));
    while let Some(piece) = pieces.next().await {
        reader.push(&piece);
        loop {
            match reader.next() {
                Ok(None) => break,
                Ok(Some(Frame::GoAway)) => return,
                Ok(Some(frame)) => {
                    if streams.take(frame).await.is_err() {
                        return; // nobody is there any more
                    }
                }
                Err(why) => return tracing::debug!(%why, "a client does not speak SPDY"),
            }
        }
    }
}

/// A client's streams.
struct Streams {
    say: mpsc::Sender<Bytes>,
    writer: Writer,
    way: Arc<Way>,
    open: HashMap<u32, Half>,
    /// Of connections that have only one of their two streams yet.
    single: HashMap<String, Single>,
    connections: JoinSet<()>,
}

/// What is kept of a stream.
enum Half {
    /// Nothing comes on it.
    Errors,
    /// What comes on it is for the pod, until the client has said all.
    Data {
        to_pod: Option<mpsc::Sender<Bytes>>,
        /// With it the connection ends.
        _open: oneshot::Sender<()>,
    },
}

#[derive(Default)]
struct Single {
    errors: Option<u32>,
    data: Option<Data>,
}

struct Data {
    stream: u32,
    port: u16,
    from_client: mpsc::Receiver<Bytes>,
    closed: oneshot::Receiver<()>,
}

type Gone = mpsc::error::SendError<Bytes>;

impl Streams {
    fn new(say: mpsc::Sender<Bytes>, way: Arc<Way>) -> Self {
        let (open, single) = (HashMap::new(), HashMap::new());
        Streams { say, writer: Writer::default(), way, open, single, connections: JoinSet::new() }
    }

    async fn take(&mut self, frame: Frame) -> Result<(), Gone> {
        while self.connections.try_join_next().is_some() {} // those that are done
        match frame {
            Frame::Open { stream, headers, ends } => self.begin(stream, &headers, ends).await,
            Frame::Data { stream, bytes, ends } => {
                if let Some(Half::Data { to_pod, .. }) = self.open.get_mut(&stream) {
                    if let Some(pod) = to_pod.as_ref().filter(|_| !bytes.is_empty())
                        && pod.send(bytes).await.is_err()
                    {
                        *to_pod = None; // it does not read any more
                    }
                    if ends {
                        *to_pod = None;
                    }
                }
                Ok(())
            }
            Frame::Reset { stream } => {
                self.open.remove(&stream);
                Ok(())
            }
            Frame::Ping { id } => self.say.send(spdy::pong(id)).await,
            Frame::GoAway => Ok(()),
        }
    }

    async fn begin(&mut self, stream: u32, headers: &[(String, String)], ends: bool) -> Result<(), Gone> {
        let header =
            |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        let port = header("port").and_then(|port| port.parse().ok()).filter(|port: &u16| *port > 0);
        let kind = header("streamtype").unwrap_or_default();
        let (Some(port), "error" | "data") = (port, kind) else {
            return self.say.send(spdy::reset(stream, Why::Protocol)).await;
        };
        if self.open.len() >= MOST_STREAMS || self.open.contains_key(&stream) {
            return self.say.send(spdy::reset(stream, Why::Refused)).await;
        }
        // Older clients do not say which streams belong together, but open one right after the other.
        let first = if kind == "data" { stream.saturating_sub(2) } else { stream };
        let request = header("requestid").map_or_else(|| first.to_string(), str::to_owned);
        let reply = self.writer.reply(stream);
        self.say.send(reply).await?;
        let pair = self.single.entry(request.clone()).or_default();
        if kind == "error" {
            self.open.insert(stream, Half::Errors);
            pair.errors = Some(stream);
        } else {
            let (to_pod, from_client) = mpsc::channel(WAITING);
            let (open, closed) = oneshot::channel();
            let to_pod = (!ends).then_some(to_pod);
            self.open.insert(stream, Half::Data { to_pod, _open: open });
            pair.data = Some(Data { stream, port, from_client, closed });
        }
        if let Single { errors: Some(_), data: Some(_) } = pair
            && let Some(Single { errors: Some(errors), data: Some(data) }) = self.single.remove(&request)
        {
            let (say, way) = (self.say.clone(), Arc::clone(&self.way));
            self.connections.spawn(async move {
                if carry(data, errors, &say, &way).await.is_err() {
                    tracing::trace!("a client left before its connection");
                }
            });
        }
        Ok(())
    }
}

/// Carries one connection, until the pod or the client has ended it; the client is always told that it has.
async fn carry(data: Data, errors: u32, say: &mpsc::Sender<Bytes>, way: &Way) -> Result<(), Gone> {
    let Data { stream, port, mut from_client, mut closed } = data;
    let opened = tokio::select! {
        opened = way.open(port) => opened,
        _ = &mut closed => return say.send(spdy::data(errors, &[], true)).await,
    };
    let connection = match opened {
        Ok(connection) => connection,
        Err(why) => {
            say.send(spdy::data(errors, why.as_bytes(), true)).await?;
            return say.send(spdy::reset(stream, Why::Internal)).await;
        }
    };
    let (mut from_pod, mut to_pod) = tokio::io::split(connection);
    let up = async {
        while let Some(bytes) = from_client.recv().await {
            if to_pod.write_all(&bytes).await.is_err() {
                return; // of which the other direction tells
            }
        }
        // A pod that has gone needs not be told.
        let _ = to_pod.shutdown().await;
    };
    let down = async {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = from_pod.read(&mut buffer).await {
            say.send(spdy::data(stream, &buffer[..count], false)).await?;
        }
        say.send(spdy::data(stream, &[], true)).await
    };
    // The pod's end is the end, and so is that the client wants no more of it.
    tokio::pin!(up, down);
    let mut is_up = true;
    loop {
        tokio::select! {
            told = &mut down => {
                told?;
                break;
            }
            () = &mut up, if is_up => is_up = false,
            _ = &mut closed => break,
        }
    }
    say.send(spdy::data(errors, &[], true)).await
}

/// Serves ports by channels of messages: one connection to each.
async fn channels(
    mut pieces: impl Stream<Item = Bytes> + Unpin,
    say: mpsc::Sender<Bytes>,
    ports: &[u16],
    way: &Arc<Way>,
) {
    let mut to_pods = Vec::new();
    let mut connections = JoinSet::new();
    for (number, port) in (0_u8..).step_by(2).zip(ports) {
        let (to_pod, from_client) = mpsc::channel(WAITING);
        to_pods.push(Some(to_pod));
        let (say, way, port) = (say.clone(), Arc::clone(way), *port);
        connections.spawn(async move {
            if carry_messages(number, port, from_client, &say, &way).await.is_err() {
                tracing::trace!("a client left before its connection");
            }
        });
    }
    drop(say);
    loop {
        tokio::select! {
            piece = pieces.next() => {
                let Some(piece) = piece else { return };
                let Some((channel, bytes)) = piece.split_first() else { continue };
                let place = to_pods.get_mut(usize::from(*channel) / 2).filter(|_| channel % 2 == 0);
                if let Some(to_pod) = place
                    && let Some(pod) = to_pod.as_ref()
                    && pod.send(piece.slice_ref(bytes)).await.is_err()
                {
                    *to_pod = None; // it does not read any more
                }
            }
            done = connections.join_next() => if done.is_none() { return },
        }
    }
}

async fn carry_messages(
    channel: u8,
    port: u16,
    mut from_client: mpsc::Receiver<Bytes>,
    say: &mpsc::Sender<Bytes>,
    way: &Way,
) -> Result<(), Gone> {
    let message = |channel: u8, bytes: &[u8]| Bytes::from([&[channel], bytes].concat());
    for channel in [channel, channel + 1] {
        say.send(message(channel, &port.to_le_bytes())).await?;
    }
    let connection = match way.open(port).await {
        Ok(connection) => connection,
        Err(why) => return say.send(message(channel + 1, why.as_bytes())).await,
    };
    let (mut from_pod, mut to_pod) = tokio::io::split(connection);
    let up = async {
        while let Some(bytes) = from_client.recv().await {
            if to_pod.write_all(&bytes).await.is_err() {
                break; // of which the other direction tells
            }
        }
        std::future::pending::<()>().await;
    };
    let down = async {
        let mut buffer = vec![0; PIECE];
        while let Ok(count @ 1..) = from_pod.read(&mut buffer).await {
            say.send(message(channel, &buffer[..count])).await?;
        }
        Ok(())
    };
    tokio::select! {
        told = down => told,
        () = up => Ok(()),
    }
}
