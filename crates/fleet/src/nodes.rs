//! The way from a cluster's API server to its nodes: output, processes and terminals of containers, and
//! ports of pods.

use std::sync::Arc;

use apiserver::node::{Connection, Container, Ended, Introduced, Node, Pod, Size, Streams, Unserved};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use jiff::{SignedDuration, Timestamp};
use reconcile::{Clock, Key};
use rules::pod::logs::{LogOptions, Since, StreamOptions};
use runner::Unreachable;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::sync::mpsc;

/// Bytes of a stream that wait for the other side.
const WAITING: usize = 64 * 1024;

/// Makes nodes reachable through their cluster's API server, for as long as what is returned lives.
pub(crate) fn introduce(
    api: &apiserver::Cluster,
    nodes: Vec<runner::Node>,
    clock: &Clock,
) -> Vec<Introduced> {
    let introduce = |node: runner::Node| {
        let name = node.name().to_owned();
        api.introduce(&name, Arc::new(Reached { node, clock: clock.clone() }))
    };
    nodes.into_iter().map(introduce).collect()
}

/// A node, as the API server wants it.
struct Reached {
    node: runner::Node,
    clock: Clock,
}

impl Node for Reached {
    fn logs(
        &self,
        of: Container,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, Unserved>> {
        let options = log_options(&options, self.clock.now());
        let log = self.node.logs(&key(&of), &of.name, options).map_err(unserved);
        // A file that cannot be read any more has ended.
        let log = log.map(|log| log.take_while(|piece| std::future::ready(piece.is_ok())));
        futures::future::ready(log.map(|log| log.filter_map(|piece| std::future::ready(piece.ok())).boxed()))
            .boxed()
    }

    fn exec(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>> {
        async move {
            let (theirs, ours) = connect(&options, streams);
            let pod = key(&of);
            let running = self.node.exec(&pod, &of.name, &options.command, theirs);
            let exit_code = ours.accompany(running).await.map_err(unserved)?;
            Ok(Ended { exit_code })
        }
        .boxed()
    }

    fn attach(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>> {
        async move {
            let (theirs, ours) = connect(&options, streams);
            let pod = key(&of);
            let running = self.node.attach(&pod, &of.name, theirs);
            ours.accompany(running).await.map_err(unserved)?;
            Ok(Ended { exit_code: 0 })
        }
        .boxed()
    }

    fn forward(&self, to: Pod, port: u16) -> BoxFuture<'_, Result<Connection, Unserved>> {
        async move {
            let pod = Key::new(&to.namespace, &to.name);
            let connected = self.node.connect(&pod, &to.uid, port).await.map_err(unserved)?;
            Ok(Box::new(connected) as Connection)
        }
        .boxed()
    }
}

fn key(of: &Container) -> Key {
    Key::new(&of.namespace, &of.pod)
}

fn unserved(error: Unreachable) -> Unserved {
    let message = error.to_string();
    match error {
        Unreachable::Unknown { .. } => Unserved::NotFound(message),
        Unreachable::NotRunning { .. } | Unreachable::NoLog { .. } | Unreachable::Nothing { .. } => {
            Unserved::BadRequest(message)
        }
        Unreachable::Start { source, .. } | Unreachable::Connect { source, .. } => {
            Unserved::Failed(format!("{message}: {source}"))
        }
    }
}

fn log_options(asked: &LogOptions, now: Timestamp) -> runner::LogOptions {
    runner::LogOptions {
        follow: asked.follow,
        previous: asked.previous,
        timestamps: asked.timestamps,
        tail: asked.tail_lines.and_then(|lines| usize::try_from(lines).ok()),
        limit: asked.limit_bytes.and_then(|bytes| u64::try_from(bytes).ok()),
        since: asked.since.and_then(|since| match since {
            Since::Seconds(seconds) => now.saturating_sub(SignedDuration::from_secs(seconds)).ok(),
            Since::Time(time) => Some(time),
        }),
        stream: None,
    }
}

/// Our ends of a process's streams, and the client's.
struct Ours {
    input: Option<(mpsc::Receiver<Bytes>, DuplexStream)>,
    output: Option<(DuplexStream, mpsc::Sender<Bytes>)>,
    errors: Option<(DuplexStream, mpsc::Sender<Bytes>)>,
    sizes: (mpsc::Receiver<Size>, mpsc::Sender<(u16, u16)>),
}

fn connect(options: &StreamOptions, streams: Streams) -> (runner::Streams, Ours) {
    let pipe = |wanted: bool| if wanted { Some(duplex(WAITING)) } else { None };
    let (input, their_input) = pipe(options.stdin).unzip();
    let (output, their_output) = pipe(options.stdout).unzip();
    let (errors, their_errors) = pipe(options.stderr && !options.tty).unzip();
    let (resize, sizes) = mpsc::channel(1);
    let theirs = runner::Streams {
        input: their_input.map(|stream| Box::new(stream) as _),
        output: their_output.map(|stream| Box::new(stream) as _),
        errors: their_errors.map(|stream| Box::new(stream) as _),
        terminal: options.tty,
        sizes: Some(sizes),
    };
    let ours = Ours {
        input: input.map(|input| (streams.stdin, input)),
        output: output.map(|output| (output, streams.stdout)),
        errors: errors.map(|errors| (errors, streams.stderr)),
        sizes: (streams.resize, resize),
    };
    (theirs, ours)
}

impl Ours {
    /// Carries everything to and fro while the process runs, and what it wrote last to its reader.
    async fn accompany<T>(self, running: impl Future<Output = T>) -> T {
        let feeding = async {
            if let Some((mut typed, mut input)) = self.input {
                while let Some(bytes) = typed.recv().await {
                    if input.write_all(&bytes).await.is_err() {
                        break; // it does not read any more
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        let resizing = async {
            let (mut sizes, resize) = self.sizes;
            while let Some(size) = sizes.recv().await {
                if resize.send((size.width, size.height)).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let ending = async { futures::join!(running, carry(self.output), carry(self.errors)).0 };
        tokio::select! {
            ended = ending => ended,
            () = feeding => unreachable!("feeding never ends"),
            () = resizing => unreachable!("resizing never ends"),
        }
    }
}

/// From a process to the client, until one of them ends.
async fn carry(stream: Option<(DuplexStream, mpsc::Sender<Bytes>)>) {
    let Some((mut from, to)) = stream else { return };
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn streams_are_carried_to_a_process_and_back_until_it_ends() {
        let (typing, stdin) = mpsc::channel(4);
        let (stdout, mut read) = mpsc::channel(4);
        let (stderr, mut wrong) = mpsc::channel(4);
        let (resizing, resize) = mpsc::channel(4);
        let options = StreamOptions { stdin: true, stdout: true, stderr: true, ..StreamOptions::default() };
        let (theirs, ours) = connect(&options, Streams { stdin, stdout, stderr, resize });
        let process = async {
            let (mut input, mut output) = (theirs.input.expect("input"), theirs.output.expect("output"));
            let mut errors = theirs.errors.expect("errors");
            let size = theirs.sizes.expect("sizes").recv().await;
            let mut text = String::new();
            input.read_to_string(&mut text).await.expect("text");
            output.write_all(format!("{text} {size:?}").as_bytes()).await.expect("room");
            errors.write_all(b"err").await.expect("room");
            5
        };
        typing.send(Bytes::from_static(b"typed")).await.expect("a reader");
        drop(typing);
        resizing.send(Size { width: 80, height: 24 }).await.expect("a reader");
        assert_eq!(ours.accompany(process).await, 5);
        assert_eq!(read.recv().await.expect("output"), "typed Some((80, 24))");
        assert_eq!(wrong.recv().await.expect("errors"), "err");
        assert_eq!(read.recv().await, None);
    }

    #[test]
    fn options_say_since_when() {
        let asked = |name: &str| match name {
            "sinceSeconds" => Some("60"),
            "tailLines" => Some("7"),
            "previous" => Some("true"),
            _ => None,
        };
        let asked = LogOptions::read(asked).expect("options");
        let now = Timestamp::from_second(1_000).expect("a time");
        let options = log_options(&asked, now);
        assert_eq!(options.since, Timestamp::from_second(940).ok());
        assert_eq!((options.tail, options.previous, options.limit), (Some(7), true, None));
    }
}
