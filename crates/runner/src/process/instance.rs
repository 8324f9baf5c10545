//! One instance of a container while it runs: its guard, its outputs, and the way to stop it.

use std::{io, os::fd::OwnedFd, path::PathBuf, process::Stdio, time::Duration};

use rustix::process::Signal;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    process::{Child, Command},
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until, timeout, timeout_at},
};
use tracing::warn;

use super::{
    cgroups::Cgroup,
    machine,
    sessions::Place,
    streams::{Input, Terminal},
};
use crate::{
    init::{GUARD, Order, Report},
    logs::{self, Log},
};

/// How long outputs may stay open after everything has ended.
const DRAIN: Duration = Duration::from_secs(2);
/// Nothing is given longer to end, whatever it asks for.
pub(super) const LONGEST_GRACE: Duration = Duration::from_secs(365 * 24 * 3600);
/// What is left at least for the signal if a hook, or others that had to stop first, have taken all the time.
pub(super) const LEAST: Duration = Duration::from_secs(2);

/// A running instance. Dropping it ends the container.
pub(super) struct Instance {
    /// Which one it is of its container.
    pub(super) number: i32,
    pub(super) directory: PathBuf,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) log: Log,
    /// How to run something in it.
    pub(super) place: Place,
    /// Where what it reads is written.
    pub(super) input: Option<Input>,
    /// Whether it has come up; probes wait for it.
    pub(super) started: watch::Sender<bool>,
    /// What goes on for as long as it runs: probes, hooks, the order to stop.
    pub(super) tasks: JoinSet<()>,
    signals: mpsc::UnboundedSender<Signal>,
    /// What comes before the stop has begun. It is over when nobody holds the other end.
    prepared: Option<watch::Receiver<()>>,
    stopping: Option<Instant>,
}

/// How an instance ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) code: i32,
    pub(super) signal: Option<i32>,
}

/// What is needed to start one.
pub(super) struct Start<'a> {
    pub(super) init: &'a [std::ffi::OsString],
    pub(super) order: Order,
    pub(super) number: i32,
    pub(super) directory: PathBuf,
    pub(super) cgroup: Option<Cgroup>,
    pub(super) log: Log,
    pub(super) place: Place,
    /// The side of a terminal that we read.
    pub(super) terminal: Option<Terminal>,
    /// Where what it reads is written.
    pub(super) input: Option<Input>,
}

/// Why an instance does not run.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("failed to start the guard of a container")]
    Guard(#[source] io::Error),
    #[error("{message}")]
    Failed { code: i32, message: String },
}

impl Instance {
    /// Starts an instance; `ended` is called when it has ended and all it wrote is in its log.
    pub(super) async fn start(
        start: Start<'_>,
        ended: impl FnOnce(End) + Send + 'static,
    ) -> Result<Instance, Error> {
        let path = start.directory.join("order");
        let text = serde_json::to_vec(&start.order).map_err(|error| Error::Guard(error.into()))?;
        write_private(&path, &text).map_err(Error::Guard)?;
        let (node, guard) = std::os::unix::net::UnixStream::pair().map_err(Error::Guard)?;
        node.set_nonblocking(true).map_err(Error::Guard)?;
        let node = UnixStream::from_std(node).map_err(Error::Guard)?;
        let mut command = Command::new(&start.init[0]);
        command.args(&start.init[1..]).arg(GUARD).arg(&path).stdin(Stdio::from(OwnedFd::from(guard)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut guard = command.spawn().map_err(Error::Guard)?;
        drop(command); // and with it our copy of the guard's end of the socket
        if let Some(id) = guard.id() {
            machine::record_guard(&start.directory, id).map_err(Error::Guard)?;
        }
        let (out, err) = (guard.stdout.take(), guard.stderr.take());
        let log = start.log.clone();
        let outputs = match (start.terminal, out, err) {
            (Some(terminal), _, _) => {
                tokio::spawn(pump(log, terminal, None::<tokio::process::ChildStderr>, true))
            }
            (None, Some(out), err) => tokio::spawn(pump(log, out, err, false)),
            (None, None, err) => tokio::spawn(pump(log, tokio::io::empty(), err, false)),
        };
        let (reports, mut orders) = node.into_split();
        let mut reports = BufReader::new(reports).lines();
        let first = reports.next_line().await.map_err(Error::Guard)?;
        let process = match first.as_deref().map(serde_json::from_str::<Report>) {
            Some(Ok(Report::Started { process })) => process,
            Some(Ok(Report::Failed { code, message })) => {
                reap(&mut guard).await;
                let _ = timeout(DRAIN, outputs).await; // there is hardly anything in there
                return Err(Error::Failed { code, message });
            }
            other => {
                reap(&mut guard).await;
                let message = format!("the guard of a container said {other:?}");
                return Err(Error::Failed { code: 128, message });
            }
        };
        let (signals, mut wanted) = mpsc::unbounded_channel::<Signal>();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let report = loop {
                tokio::select! {
                    line = reports.next_line() => break line,
                    Some(signal) = wanted.recv() => {
                        let order = format!("signal {}\n", signal.as_raw());
                        // One that has just ended cannot be told, and is heard of next.
                        let _ = orders.write_all(order.as_bytes()).await;
                    }
                }
            };
            reap(&mut guard).await;
            // Whatever has inherited the outputs is gone, so this takes no time.
            let _ = timeout(DRAIN, outputs).await;
            ended(match report.ok().flatten().map(|line| serde_json::from_str(&line)) {
                Some(Ok(Report::Exited { code, signal })) => End { code, signal },
                // The guard itself was killed, and its container with it.
                _ => End { code: 137, signal: Some(9) },
            });
        });
        let place = Place { process: Some(process), ..start.place };
        Ok(Instance {
            number: start.number,
            directory: start.directory,
            cgroup: start.cgroup,
            log: start.log,
            place,
            input: start.input,
            started: watch::Sender::new(false),
            tasks,
            signals,
            prepared: None,
            stopping: None,
        })
    }

    /// Begins with what comes before the stop, unless that has begun: `hook` is done while others may still stop.
    pub(super) fn prepare_stop(&mut self, hook: impl Future<Output = ()> + Send + 'static) {
        if self.prepared.is_none() {
            let (done, prepared) = watch::channel(());
            self.prepared = Some(prepared);
            self.tasks.spawn(async move {
                hook.await;
                drop(done);
            });
        }
    }

    /// Whether what comes before the stop has begun.
    pub(super) fn is_prepared(&self) -> bool {
        self.prepared.is_some()
    }

    /// Stops it: what comes before has its time, then the signal, and when `grace` is over the end; at once if there is none.
    /// A later, shorter grace counts.
    pub(super) fn stop(&mut self, grace: Duration) {
        let deadline = Instant::now() + grace.min(LONGEST_GRACE);
        if self.stopping.is_some_and(|earlier| earlier <= deadline) {
            return;
        }
        let first = self.stopping.replace(deadline).is_none();
        let (signals, prepared) = (self.signals.clone(), self.prepared.clone());
        self.tasks.spawn(async move {
            let mut deadline = deadline;
            if first && !grace.is_zero() {
                if let Some(mut prepared) = prepared {
                    let _ = timeout_at(deadline, prepared.changed()).await; // one that takes too long has had its time
                    deadline = deadline.max(Instant::now() + LEAST);
                }
                let _ = signals.send(Signal::TERM);
            }
            sleep_until(deadline).await;
            let _ = signals.send(Signal::KILL);
        });
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.is_some()
    }
}

async fn pump(log: Log, out: impl AsyncRead + Unpin, err: Option<impl AsyncRead + Unpin>, at_once: bool) {
    let path = log.path().to_owned();
    if let Err(error) = logs::pump(log, out, err, at_once).await
        // The kernel says so when the last one has left a terminal.
        && error.raw_os_error() != Some(rustix::io::Errno::IO.raw_os_error())
    {
        warn!(log = %path.display(), %error, "failed to keep the output of a container");
    }
}

async fn reap(guard: &mut Child) {
    if let Err(error) = guard.wait().await {
        warn!(%error, "failed to wait for the guard of a container");
    }
}

/// Orders hold secrets.
pub(super) fn write_private(path: &std::path::Path, text: &[u8]) -> io::Result<()> {
    use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _};
    let mut file = std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(path)?;
    file.write_all(text)
}
