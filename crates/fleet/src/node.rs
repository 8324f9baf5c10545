//! The nodes of a cluster as its API server sees them: output of containers, and commands in them, without a socket.

use apiserver::node::{Container, Ended, Streams, Unserved};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::{SignedDuration, Timestamp};
use reconcile::Key;
use rules::pod::logs::{LogOptions, Since, StreamOptions};
use runner::Unreachable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;
use tracing::debug;

/// What is on its way between a process and its client.
const IN_FLIGHT: usize = 64 * 1024;

/// A node of this process.
pub(crate) struct Node(pub(crate) runner::Node);

impl apiserver::node::Node for Node {
    fn logs(
        &self,
        of: Container,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, Unserved>> {
        let pod = Key::new(of.namespace.as_str(), of.pod.as_str());
        let lines = self.0.logs(&pod, &of.name, wanted(&options, Timestamp::now()));
        let lines = lines.map_err(unserved).map(|lines| {
            let whole = lines.scan((), move |(), chunk| {
                let read =
                    chunk.inspect_err(|error| debug!(%pod, %error, "a log could not be read to its end"));
                futures::future::ready(read.ok())
            });
            whole.boxed()
        });
        Box::pin(futures::future::ready(lines))
    }

    fn exec(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>> {
        Box::pin(async move {
            let pod = Key::new(of.namespace.as_str(), of.pod.as_str());
            let Streams { stdin, stdout, stderr, mut resize } = streams;
            let (input, of_client) = duplex(IN_FLIGHT);
            let (output, for_client) = duplex(IN_FLIGHT);
            let (errors, errors_for_client) = duplex(IN_FLIGHT);
            let (sizes, changes) = mpsc::channel(1);
            let connected = runner::Streams {
                input: options.stdin.then(|| Box::new(input) as _),
                output: options.stdout.then(|| Box::new(output) as _),
                errors: options.stderr.then(|| Box::new(errors) as _),
                terminal: options.tty,
                sizes: options.tty.then_some(changes),
            };
            let running = self.0.exec(&pod, &of.name, &options.command, connected);
            let typing = feed(stdin, of_client);
            let resizing = async {
                while let Some(size) = resize.recv().await {
                    if sizes.send((size.width, size.height)).await.is_err() {
                        break;
                    }
                }
                std::future::pending::<()>().await;
            };
            let showing = futures::future::join(show(for_client, stdout), show(errors_for_client, stderr));
            // The process ends first, then its output is shown to the end; typing goes on until then.
            let ended = async { futures::future::join(running, showing).await.0 };
            tokio::select! {
                biased;
                ended = ended => ended.map(|exit_code| Ended { exit_code }).map_err(unserved),
                () = typing => unreachable!("typing never ends by itself"),
                () = resizing => unreachable!("nor does resizing"),
            }
        })
    }

    fn attach(&self, of: Container, _: StreamOptions, _: Streams) -> BoxFuture<'_, Result<Ended, Unserved>> {
        let why = format!("container {} of pod {} takes no attachments; use exec or logs", of.name, of.pod);
        Box::pin(futures::future::ready(Err(Unserved::BadRequest(why))))
    }
}

/// Hands on what the client types, then closes the input and waits for the process to end.
async fn feed(mut from: mpsc::Receiver<Bytes>, mut to: DuplexStream) {
    while let Some(chunk) = from.recv().await {
        if to.write_all(&chunk).await.is_err() {
            break;
        }
    }
    drop(to);
    std::future::pending::<()>().await;
}

/// Shows the client what a process writes, until it writes no more or the client is gone.
async fn show(mut from: DuplexStream, to: mpsc::Sender<Bytes>) {
    let mut chunk = vec![0; IN_FLIGHT];
    loop {
        match from.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if to.send(Bytes::copy_from_slice(&chunk[..length])).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn wanted(options: &LogOptions, now: Timestamp) -> runner::LogOptions {
    runner::LogOptions {
        follow: options.follow,
        tail: options.tail_lines.and_then(|lines| usize::try_from(lines).ok()),
        since: options.since.map(|since| match since {
            Since::Seconds(seconds) => {
                now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN)
            }
            Since::Time(time) => time,
        }),
        timestamps: options.timestamps,
        limit: options.limit_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        previous: options.previous,
        stream: None,
    }
}

fn unserved(why: Unreachable) -> Unserved {
    match why {
        Unreachable::Unknown { .. } => Unserved::NotFound(why.to_string()),
        Unreachable::NotRunning { .. } | Unreachable::NoLog { .. } => Unserved::BadRequest(why.to_string()),
        _ => Unserved::Failed(reconcile::chain(&why)),
    }
}
