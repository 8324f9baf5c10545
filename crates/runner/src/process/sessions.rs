//! Commands in containers that run: for people, probes and hooks.

use std::{
    fs, io,
    path::PathBuf,
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    process::{Child, Command},
    sync::mpsc,
};

use super::{
    instance::write_private,
    machine,
    streams::{Terminal, feed},
};
use crate::init::{EXEC, Isolation, Processes, Session, User};

/// Where a command can be run: in a container that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    pub(crate) process: Option<i32>,
    pub(crate) isolation: Isolation,
    pub(crate) processes: Processes,
    pub(crate) variables: std::collections::BTreeMap<String, String>,
    pub(crate) directory: Option<PathBuf>,
    pub(crate) user: User,
    pub(crate) cgroups: Vec<PathBuf>,
    /// For orders.
    pub(crate) orders: PathBuf,
    pub(crate) init: Vec<std::ffi::OsString>,
}

/// What a command is connected to.
#[derive(Default)]
pub struct Streams {
    /// What it reads.
    pub input: Option<Box<dyn AsyncRead + Send + Unpin>>,
    /// Where its output goes.
    pub output: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Where its errors go; with a terminal they go where the output goes.
    pub errors: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    /// Give it a terminal.
    pub terminal: bool,
    /// Columns and rows of the terminal, as they change.
    pub sizes: Option<mpsc::Receiver<(u16, u16)>>,
}

impl Place {
    fn start(
        &self,
        command: &[String],
        terminal: Option<PathBuf>,
        stdio: impl FnOnce(&mut Command),
    ) -> io::Result<Killed> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let session = Session {
            process: self.process,
            isolation: self.isolation,
            processes: self.processes,
            command: command.to_vec(),
            variables: self.variables.clone(),
            directory: self.directory.clone(),
            user: self.user.clone(),
            cgroups: self.cgroups.clone(),
            terminal,
        };
        let (leads_a_session, is_alone) = (session.terminal.is_some(), session.is_alone());
        let path = self.orders.join(format!("session-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        write_private(&path, &serde_json::to_vec(&session)?)?;
        let mut init = Command::new(&self.init[0]);
        init.args(&self.init[1..]).arg(EXEC).arg(&path);
        // A group of its own, so that all of it can be killed; a session brings one along.
        if !leads_a_session {
            init.process_group(0);
        }
        stdio(&mut init);
        Ok(Killed(init.spawn()?, is_alone))
    }

    /// Runs a command and returns its exit code and the beginning of what it wrote.
    pub(crate) async fn run(&self, command: &[String]) -> io::Result<(i32, String)> {
        let mut child = self.start(command, None, |init| {
            init.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        })?;
        let (out, err) = (child.0.stdout.take(), child.0.stderr.take());
        let (out, err) = futures::join!(beginning(out), beginning(err));
        let status = child.0.wait().await?;
        Ok((status.code().unwrap_or(137), out + &err))
    }

    /// Runs a command connected to these streams; returns its exit code.
    pub(crate) async fn attach(&self, command: &[String], streams: Streams) -> io::Result<i32> {
        let Streams { input, output, errors, terminal, sizes } = streams;
        if terminal {
            return self.attach_terminal(command, input, output, sizes).await;
        }
        let pipe = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
        let mut child = self.start(command, None, |init| {
            init.stdin(pipe(input.is_some())).stdout(pipe(output.is_some())).stderr(pipe(errors.is_some()));
        })?;
        let (stdin, out, err) = (child.0.stdin.take(), child.0.stdout.take(), child.0.stderr.take());
        let feeding = async move {
            if let (Some(mut input), Some(mut stdin)) = (input, stdin) {
                // One that does not read to the end is not to be told of it.
                let _ = tokio::io::copy(&mut input, &mut stdin).await;
                let _ = stdin.shutdown().await;
            }
            futures::future::pending::<()>().await;
        };
        let ending = async {
            futures::try_join!(copy(out, output), copy(err, errors))?;
            child.0.wait().await
        };
        let status = tokio::select! {
            status = ending => status?,
            () = feeding => unreachable!("feeding never ends"),
        };
        Ok(status.code().unwrap_or(137))
    }

    async fn attach_terminal(
        &self,
        command: &[String],
        input: Option<Box<dyn AsyncRead + Send + Unpin>>,
        output: Option<Box<dyn AsyncWrite + Send + Unpin>>,
        sizes: Option<mpsc::Receiver<(u16, u16)>>,
    ) -> io::Result<i32> {
        let (terminal, name) = Terminal::open()?;
        let mut child = self.start(command, Some(name), |init| {
            init.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        })?;
        let (mut reading, writing, sizing) = (terminal.clone(), terminal.clone(), terminal);
        let feeding = async move {
            if let Some(input) = input {
                let _ = feed(input, &writing).await; // it ends when the terminal does
            }
            futures::future::pending::<()>().await;
        };
        let resizing = async move {
            if let Some(mut sizes) = sizes {
                while let Some((columns, rows)) = sizes.recv().await {
                    sizing.resize(columns, rows);
                }
            }
            futures::future::pending::<()>().await;
        };
        let ending = async {
            if let Some(mut output) = output {
                // The kernel says that there is no terminal any more when the last one has left it.
                let _ = tokio::io::copy(&mut reading, &mut output).await;
                output.flush().await?;
            }
            child.0.wait().await
        };
        let status = tokio::select! {
            status = ending => status?,
            () = feeding => unreachable!("feeding never ends"),
            () = resizing => unreachable!("resizing never ends"),
        };
        Ok(status.code().unwrap_or(137))
    }
}

async fn copy(
    from: Option<impl AsyncRead + Unpin>,
    to: Option<Box<dyn AsyncWrite + Send + Unpin>>,
) -> io::Result<()> {
    if let (Some(mut from), Some(mut to)) = (from, to) {
        tokio::io::copy(&mut from, &mut to).await?;
        to.flush().await?;
    }
    Ok(())
}

/// As much of it as somebody might want to read in an event.
async fn beginning(from: Option<impl AsyncRead + Unpin>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut from) = from {
        let _ = (&mut from).take(10 * 1024).read_to_end(&mut bytes).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await; // the rest has to go somewhere
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A process that is killed, with its group, when nobody waits for it any more; and with all that it has started, if
/// nothing else holds that.
struct Killed(Child, bool);

impl Drop for Killed {
    fn drop(&mut self) {
        let Some(process) = self.0.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
            return;
        };
        // Those in sessions of their own are not in its group. It lives until they are gone, so that they are found.
        for _ in 0..if self.1 { ROUNDS } else { 0 } {
            let found = descendants(process);
            if found.is_empty() {
                break;
            }
            for descendant in found {
                let _ = kill_process(descendant, Signal::KILL); // it may have ended just now
            }
        }
        let _ = kill_process_group(process, Signal::KILL); // the same
    }
}

/// Whoever starts new ones faster than they are killed has so many lives.
const ROUNDS: usize = 10;

/// The processes below this one that live.
fn descendants(process: Pid) -> Vec<Pid> {
    let mut found = Vec::new();
    let mut ancestors = vec![process];
    while let Some(ancestor) = ancestors.pop() {
        let threads = fs::read_dir(format!("/proc/{}/task", ancestor.as_raw_nonzero()));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?));
            ancestors.extend(children.clone());
            found.extend(children);
        }
    }
    found.retain(|process| machine::birth_of(*process).is_some());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_command_has_started_is_killed_with_it_in_whatever_session() {
        let script = "setsid sh -c 'sleep 1000 & sleep 1000' & echo started; wait";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).process_group(0);
        let mut child = Killed(command.spawn().expect("a shell"), true);
        let process = child.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)).expect("a process");
        let mut said = [0; 7];
        let mut out = child.0.stdout.take().expect("an output");
        out.read_exact(&mut said).await.expect("it says something");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let found = loop {
            let found = descendants(process);
            if found.len() == 3 {
                break found;
            }
            assert!(std::time::Instant::now() < deadline, "{found:?}");
            tokio::task::yield_now().await;
        };
        drop(child);
        let lives = || found.iter().any(|process| machine::birth_of(*process).is_some());
        while lives() {
            assert!(std::time::Instant::now() < deadline, "{found:?} live");
            tokio::task::yield_now().await;
        }
    }
}
