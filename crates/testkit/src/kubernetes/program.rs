//! One program of a control plane: how to start it again as it was, and whether it runs.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::sleep;

use super::Error;
use crate::process::Process;

#[derive(Debug)]
pub(crate) struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: Vec<String>,
    /// The loopback port on which it listens, as its arguments say.
    pub(crate) port: u16,
    log: PathBuf,
    running: Mutex<Option<Process>>,
}

impl Program {
    /// A program that is not started yet. It will write its log into `directory`.
    pub(crate) fn new(
        name: &'static str,
        path: &Path,
        arguments: Vec<String>,
        port: u16,
        directory: &Path,
    ) -> Program {
        let log = directory.join(format!("{name}.log"));
        Program { name, path: path.to_owned(), arguments, port, log, running: Mutex::new(None) }
    }

    pub(crate) fn start(&self) -> Result<(), Error> {
        let process = Process::spawn(Command::new(&self.path).args(&self.arguments), &self.log);
        *self.lock() = Some(process.map_err(Error::io("start a program"))?);
        Ok(())
    }

    pub(crate) fn kill(&self) {
        *self.lock() = None;
    }

    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.lock().as_ref().map_or(Ok(()), Process::freeze).map_err(Error::io("freeze a program"))
    }

    pub(crate) fn thaw(&self) -> Result<(), Error> {
        self.lock().as_ref().map_or(Ok(()), Process::thaw).map_err(Error::io("thaw a program"))
    }

    pub(crate) fn id(&self) -> Option<u32> {
        self.lock().as_ref().map(Process::id)
    }

    /// An error if the program has ended by itself.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let status = self.lock().as_mut().map(Process::exited).transpose();
        match status.map_err(Error::io("look after a program"))?.flatten() {
            None => Ok(()),
            Some(status) => Err(Error::Ended {
                program: self.name,
                status: status.to_string(),
                log: self.log.clone(),
                tail: self.tail(),
            }),
        }
    }

    /// Waits for the program to end by itself, looking every `interval`.
    pub(crate) async fn ended(&self, interval: Duration) -> Error {
        loop {
            match self.check() {
                Ok(()) => sleep(interval).await,
                Err(ended) => return ended,
            }
        }
    }

    fn tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
