//! `pods/exec` and `pods/attach`: a client and a process talk through a WebSocket (2.74).
//!
//! Each message is a byte that names the channel, and what goes through it. Only WebSockets are served, of the two newest
//! protocols: all clients since 1.30 begin with them.

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rules::pod::logs::StreamOptions;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error, Message};

use super::logs;
use crate::answer::{Answer, Body};
use crate::cluster::Context;
use crate::node::{Ended, Size, Streams, Unserved};
use crate::status::Refusal;

/// The protocols, best first. The newer one can end the client's input.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

/// How many messages wait for a slow side.
const WAITING: usize = 16;

/// Answers a request for a stream, and goes on with it once the connection is a WebSocket.
pub(super) fn connect(context: &Context<'_>, name: &str) -> Result<Answer, Refusal> {
    let pod = logs::read(context)?;
    let container = logs::container(context, &pod)?;
    let Some(node) = logs::node_of(&pod) else {
        let why = format!("pod {} does not have a host assigned", context.name());
        return Err(Refusal::bad_request(why));
    };
    let node = logs::reach(context, node)?;
    let options = options(context, name);
    if !(options.stdin || options.stdout || options.stderr) {
        let why = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Refusal::bad_request(why));
    }
    let (answer, upgrade) = upgrade(context)?;
    let is_exec = name == "exec";
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "no WebSocket"),
        };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        let (client, streams) = channels(&options);
        let process = async {
            if is_exec {
                node.exec(container, options.clone(), streams).await
            } else {
                node.attach(container, options.clone(), streams).await
            }
        };
        converse(socket, client, &options, process).await;
    });
    Ok(answer)
}

/// Ports are not forwarded.
pub(super) fn refuse_forwarding(context: &Context<'_>) -> Refusal {
    match logs::read(context) {
        Err(refusal) => refusal,
        Ok(pod) if logs::node_of(&pod).is_none() => {
            Refusal::bad_request(format!("pod {} does not have a host assigned", context.name()))
        }
        Ok(_) => Refusal::bad_request("unable to upgrade: ports are not forwarded"),
    }
}

fn options(context: &Context<'_>, name: &str) -> StreamOptions {
    let is_on = |name: &str| context.query.get(name).is_some_and(|text| text != "0" && text != "false");
    let mut options = StreamOptions {
        command: context.query.all("command").map(str::to_owned).collect(),
        stdin: is_on("stdin"),
        stdout: is_on("stdout"),
        stderr: is_on("stderr"),
        tty: is_on("tty"),
    };
    if name == "attach" {
        options.command.clear();
    }
    // A terminal has one stream for both.
    options.stderr &= !options.tty;
    options
}

/// The answer that makes a WebSocket of the connection.
fn upgrade(context: &Context<'_>) -> Result<(Answer, OnUpgrade), Refusal> {
    let headers = &context.head.headers;
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or("");
    let upgrade = context.head.extensions.get::<OnUpgrade>().cloned();
    let wants = text(header::UPGRADE).eq_ignore_ascii_case("websocket");
    let (Some(upgrade), true) = (upgrade, wants) else {
        return Err(Refusal::bad_request("Upgrade request required"));
    };
    let key = text(header::SEC_WEBSOCKET_KEY);
    let offered =
        headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
    let chosen = PROTOCOLS.into_iter().find(|known| offered.contains(known));
    let (Some(protocol), false) = (chosen, key.is_empty()) else {
        return Err(Refusal::bad_request(format!(
            "unable to upgrade: protocols {} are served",
            PROTOCOLS.join(", ")
        )));
    };
    let mut answer = Answer::new(Body::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let accept = accept.map_err(|why| Refusal::internal(why.to_string()))?;
    for (name, value) in [
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
        (header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
    ] {
        answer.headers_mut().insert(name, value);
    }
    Ok((answer, upgrade))
}

/// The server's ends of what the node holds.
struct Client {
    stdin: Option<mpsc::Sender<Bytes>>,
    stdout: mpsc::Receiver<Bytes>,
    stderr: mpsc::Receiver<Bytes>,
    resize: mpsc::Sender<Size>,
}

fn channels(options: &StreamOptions) -> (Client, Streams) {
    let (to_stdin, stdin) = mpsc::channel(WAITING);
    let (stdout, mut from_stdout) = mpsc::channel(WAITING);
    let (stderr, mut from_stderr) = mpsc::channel(WAITING);
    let (to_resize, resize) = mpsc::channel(WAITING);
    if !options.stdout {
        from_stdout.close();
    }
    if !options.stderr {
        from_stderr.close();
    }
    let client = Client {
        stdin: options.stdin.then_some(to_stdin),
        stdout: from_stdout,
        stderr: from_stderr,
        resize: to_resize,
    };
    (client, Streams { stdin, stdout, stderr, resize })
}

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Carries messages until the process ends or the client goes.
async fn converse(
    socket: Socket,
    mut client: Client,
    options: &StreamOptions,
    process: impl Future<Output = Result<Ended, Unserved>>,
) {
    let (mut to_client, mut from_client) = socket.split();
    // Tells the client that the stream is open, on the lowest channel that it reads.
    let first = if options.stdout {
        STDOUT
    } else if options.stderr {
        STDERR
    } else {
        ERROR
    };
    if to_client.send(message(first, &[])).await.is_err() {
        return;
    }
    tokio::pin!(process);
    let ended = loop {
        tokio::select! {
            Some(bytes) = client.stdout.recv() => {
                if to_client.send(message(STDOUT, &bytes)).await.is_err() { return }
            }
            Some(bytes) = client.stderr.recv() => {
                if to_client.send(message(STDERR, &bytes)).await.is_err() { return }
            }
            received = from_client.next() => match received {
                Some(Ok(received)) => receive(&received, &mut client).await,
                // Nobody is there any more; the process goes with the future.
                Some(Err(_)) | None => return,
            },
            ended = &mut process => break ended,
        }
    };
    // What the process wrote before it ended is still on its way.
    client.stdout.close();
    client.stderr.close();
    while let Some(bytes) = client.stdout.recv().await {
        if to_client.send(message(STDOUT, &bytes)).await.is_err() {
            return;
        }
    }
    while let Some(bytes) = client.stderr.recv().await {
        if to_client.send(message(STDERR, &bytes)).await.is_err() {
            return;
        }
    }
    let status = serde_json::to_vec(&ending(&ended)).expect("JSON prints");
    let said = async {
        to_client.send(message(ERROR, &status)).await?;
        to_client.send(Message::Close(None)).await?;
        Ok::<_, Error>(())
    };
    if let Err(error) = said.await {
        tracing::debug!(%error, "a client left before it heard how its process ended");
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut framed = BytesMut::with_capacity(bytes.len() + 1);
    framed.extend_from_slice(&[channel]);
    framed.extend_from_slice(bytes);
    Message::Binary(framed.freeze())
}

#[derive(Deserialize)]
struct Resized {
    #[serde(rename = "Width")]
    width: u16,
    #[serde(rename = "Height")]
    height: u16,
}

/// Passes on what the client says. What the node does not want to hear any more is lost.
async fn receive(received: &Message, client: &mut Client) {
    let bytes = match received {
        Message::Binary(bytes) => bytes.clone(),
        Message::Text(text) => Bytes::copy_from_slice(text.as_bytes()),
        _ => return,
    };
    match bytes.split_first() {
        Some((&STDIN, input)) => {
            if let Some(stdin) = &client.stdin
                && stdin.send(bytes.slice_ref(input)).await.is_err()
            {
                client.stdin = None;
            }
        }
        Some((&RESIZE, size)) => {
            if let Ok(Resized { width, height }) = serde_json::from_slice(size)
                && client.resize.send(Size { width, height }).await.is_err()
            {
                tracing::trace!("nobody looks at the size of the terminal");
            }
        }
        Some((&CLOSE, [STDIN])) => client.stdin = None,
        _ => {}
    }
}

/// What the client is told at the end.
fn ending(ended: &Result<Ended, Unserved>) -> Value {
    match ended {
        Ok(Ended { exit_code: 0 }) => json!({"metadata": {}, "status": "Success"}),
        Ok(Ended { exit_code }) => json!({
            "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": format!("command terminated with non-zero exit code: command terminated with exit code {exit_code}"),
            "details": {"causes": [{"reason": "ExitCode", "message": exit_code.to_string()}]},
        }),
        Err(why) => json!({
            "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
            "message": format!("Internal error occurred: {why}"),
            "details": {"causes": [{"message": why.to_string()}]},
        }),
    }
}
