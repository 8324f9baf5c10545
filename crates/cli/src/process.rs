//! What every command that talks to clusters does: a runtime, logs, and an end when it is told to.

use std::future::Future;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::failure::{Code, Failure};

/// What is given to threads that do something when all else has ended.
const LAST: Duration = Duration::from_secs(5);

/// Runs a verb to its end, with logs; or until it is interrupted, which its exit status tells.
pub(crate) fn run(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        let stopped = stopped()?;
        tokio::select! {
            biased;
            () = stopped => Ok(Code::Interrupted.into()),
            done = work => done,
        }
    });
    // A name that is still being looked up is nobody's business any more.
    runtime.shutdown_background();
    done
}

/// Runs what goes on until it is told to stop, and stops in its own way; or until a part of it panics: without that
/// part it must not look as if it were well.
pub(crate) fn serve(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = runtime()?;
    let done = runtime.block_on(async {
        tokio::select! {
            biased;
            done = work => done,
            () = reconcile::panicked() => {
                let failure = Failure::new(Code::Error, "a part of this process panicked, and it cannot go on without it");
                Err(failure.hint("start it again: what was acknowledged is kept. The log names the part: please report it").into())
            }
        }
    });
    // What it had to end it has waited for. Who waits for something that does not come is not waited for.
    runtime.shutdown_timeout(LAST);
    done
}

/// Goes on with something for as long as somebody reads standard output. Who waits for the next line would not notice
/// otherwise that nobody wants it.
pub(crate) async fn while_read<T>(
    work: impl Future<Output = anyhow::Result<T>>,
    unread: T,
) -> anyhow::Result<T> {
    tokio::select! {
        biased;
        done = work => done,
        () = closed_stdout() => Ok(unread),
    }
}

/// Waits until standard output is a pipe or a terminal that nobody reads any more.
async fn closed_stdout() {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        // Errors and hang-ups are told without being asked for.
        let mut looked_at = [PollFd::new(&stdout, PollFlags::empty())];
        while poll(&mut looked_at, None) == Err(Errno::INTR) {}
        // Whoever no longer listens has ended for another reason.
        tell.send(())
    });
    if told.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn runtime() -> anyhow::Result<Runtime> {
    // What keeps a client from its cluster is said once, at the end.
    log("warn,kube_client::client::builder=off");
    Runtime::new().context("failed to start the runtime")
}

/// Sends logs to standard error, as much as `RUST_LOG` asks for.
pub(crate) fn log(unless_asked: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(unless_asked));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Waits for SIGTERM or SIGINT, heard from now on.
pub(crate) fn stopped() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
