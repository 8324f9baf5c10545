//! Processes that cannot outlive the test that started them, however it ends.
//!
//! Each one runs behind a watcher that waits for its standard input to close, and then kills the process group that the
//! two share. The other end of that pipe is held by [`Process`] alone, so the kernel closes it when the test process
//! exits, panics, or is killed with SIGKILL: there is no moment at which a child could be left behind.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};

/// Forks the watcher and then becomes the program, which therefore has the process id that we know. The watcher reads
/// from a copy of standard input, because a shell gives `/dev/null` to what it starts in the background.
const WATCHED: &str = r#"exec 3<&0; (read -r _ <&3; kill -9 0) & exec "$@" </dev/null 3<&-"#;

/// A running program. Dropping it kills the program and everything that it has started in its process group.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `program`, with its output appended to `log`.
    pub fn spawn(program: &mut Command, log: &Path) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = watched(program, WATCHED);
        command.stdout(log.try_clone()?).stderr(log);
        Ok(Process { child: command.spawn()? })
    }

    /// Starts `program`, with what it complains of appended to `log`, and what it prints to be read.
    pub(crate) fn spawn_piped(program: &mut Command, log: &Path) -> io::Result<(Process, ChildStdout)> {
        let log = File::options().create(true).append(true).open(log)?;
        let mut command = watched(program, WATCHED);
        command.stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn()?;
        let output = child.stdout.take().expect("its standard output is piped");
        Ok((Process { child }, output))
    }

    /// How the program ended, if it has.
    pub fn exited(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits for the program to end by itself.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        // `Child::wait` would close the pipe first, which is the order to kill.
        let pipe = self.child.stdin.take();
        let status = self.child.wait();
        drop(pipe);
        status
    }

    /// Stops the program where it is (SIGSTOP): its connections stay open and nothing is answered.
    pub fn freeze(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a frozen program go on (SIGCONT).
    pub fn thaw(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// The process id of the program.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Killed directly and not only through the watcher: the program may have ended the watcher, or never have
        // started. An error means that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait(); // closes the pipe, whereupon the watcher kills the rest of the group
    }
}

/// `program` as the arguments of a shell script, in a process group of its own, so that neither Ctrl-C in a terminal
/// nor the script's own `kill 0` reaches anything else.
fn watched(program: &Command, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script, "watched"]).arg(program.get_program()).args(program.get_args());
    for (key, value) in program.get_envs() {
        match value {
            Some(value) => command.env(key, value),
            None => command.env_remove(key),
        };
    }
    if let Some(directory) = program.get_current_dir() {
        command.current_dir(directory);
    }
    command.stdin(Stdio::piped()).process_group(0);
    command
}

/// A directory that is removed with its contents when it is dropped, or when the process ends in whatever way; unless
/// [`Scratch::keep`] was called before.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    janitor: Child,
}

/// Waits for the end of the process that started it. What is in the directory may be killed at that very moment and
/// still be writing, hence the retries.
const JANITOR: &str =
    r#"read -r _; [ -e "$1/kept" ] || for _ in 1 2 3 4 5; do rm -rf "$1" && exit; sleep 0.2; done"#;

impl Scratch {
    pub(crate) fn new(prefix: &str) -> io::Result<Scratch> {
        let path = tempfile::Builder::new().prefix(prefix).tempdir()?.keep();
        let mut command = Command::new("sh");
        command.args([OsStr::new("-c"), OsStr::new(JANITOR), OsStr::new("janitor"), path.as_os_str()]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let janitor = command.spawn()?;
        Ok(Scratch { path, janitor })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory for somebody to look into.
    pub(crate) fn keep(&self) -> io::Result<()> {
        File::create(self.path().join("kept")).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The janitor's standard input closes in `wait`; it removes the directory, or finds that it is kept.
        let _ = self.janitor.wait();
    }
}
