//! `pods/exec` and `pods/attach`: a client and a process talk through a WebSocket (2.74).
//!
//! Each message is a byte that names the channel, and what goes through it. Only WebSockets are served: all clients since
//! 1.30 begin with them. Output that is only read goes through one, too, if a client wants it so.

use bytes::{Bytes, BytesMut};
use futures::{SinkExt as _, Stream, StreamExt as _};
use http::{HeaderValue, StatusCode, header};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use rules::pod::logs::StreamOptions;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::logs;
use crate::answer::{Answer, Body};
use crate::cluster::Context;
use crate::node::{Ended, Size, Streams, Unserved};
use crate::status::Refusal;

/// The protocols, best first. The newest can end the client's input, the oldest tells only of failures, in words.
const PROTOCOLS: [&str; 3] = ["v5.channel.k8s.io", "v4.channel.k8s.io", OLDEST];
const OLDEST: &str = "channel.k8s.io";
/// The protocol of streams that only the server writes.
const BINARY: &str = "binary.k8s.io";

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
    let (answer, upgrade, protocol) = upgrade(context, &PROTOCOLS)?;
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
        converse(socket, client, &options, protocol, process).await;
    });
    Ok(answer)
}

/// Whether a client wants to have a stream through a WebSocket.
pub(super) fn wants_socket(context: &Context<'_>) -> bool {
    let wants = context.head.headers.get(header::UPGRADE).and_then(|value| value.to_str().ok());
    wants.is_some_and(|wants| wants.eq_ignore_ascii_case("websocket"))
}

/// Sends bytes through a WebSocket, as they come.
pub(super) fn send(
    context: &Context<'_>,
    mut bytes: impl Stream<Item = Bytes> + Send + Unpin + 'static,
) -> Result<Answer, Refusal> {
    let (answer, upgrade, _) = upgrade(context, &[BINARY])?;
    tokio::spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::debug!(%error, "no WebSocket"),
        };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        while let Some(piece) = bytes.next().await {
            if socket.send(Message::Binary(piece)).await.is_err() {
                return;
            }
        }
        if let Err(error) = socket.send(end()).await {
            tracing::debug!(%error, "a client left before the end of what it read");
        }
    });
    Ok(answer)
}

fn options(context: &Context<'_>, name: &str) -> StreamOptions {
    let is_on = |name: &str| context.query.is_on(name);
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
pub(super) fn upgrade(
    context: &Context<'_>,
    protocols: &[&'static str],
) -> Result<(Answer, OnUpgrade, &'static str), Refusal> {
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
    let chosen = protocols.iter().copied().find(|known| offered.contains(known));
    let (Some(protocol), false) = (chosen, key.is_empty()) else {
        return Err(Refusal::bad_request(format!(
            "unable to upgrade: protocols {} are served",
            protocols.join(", ")
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
    Ok((answer, upgrade, protocol))
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
    protocol: &str,
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
    let said = async {
        if let Some(status) = told(&ending(&ended), protocol) {
            to_client.send(message(ERROR, &status)).await?;
        }
        to_client.send(end()).await?;
        Ok::<_, Error>(())
    };
    if let Err(error) = said.await {
        tracing::debug!(%error, "a client left before it heard how its process ended");
    }
}

/// The last message. Without a code some clients take it for a broken connection.
pub(super) fn end() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: "".into() }))
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

/// An ending in the words of a protocol, if it has any for it.
fn told(ending: &Value, protocol: &str) -> Option<Vec<u8>> {
    if protocol != OLDEST {
        return Some(serde_json::to_vec(ending).expect("JSON prints"));
    }
    ending["message"].as_str().map(|message| message.as_bytes().to_vec())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_protocol_tells_only_of_failures() {
        let (good, bad) = (ending(&Ok(Ended { exit_code: 0 })), ending(&Ok(Ended { exit_code: 3 })));
        assert_eq!(told(&good, OLDEST), None);
        let words = told(&bad, OLDEST).expect("words");
        assert!(String::from_utf8_lossy(&words).ends_with("exit code 3"));
        let status = told(&good, PROTOCOLS[0]).expect("a status");
        assert_eq!(serde_json::from_slice::<Value>(&status).expect("JSON")["status"], "Success");
    }
}
