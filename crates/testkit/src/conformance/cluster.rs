//! A cluster to be judged.

use std::{
    ffi::OsStr,
    io::{self, BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::Command,
};

use super::busybox;
use crate::process::Process;

/// Brings the loopback device of a new network up, and becomes the program.
const WITH_LOOPBACK: &str = r#"busybox=$1; shift; "$busybox" ip link set lo up && exec "$@""#;

/// A cluster of its own process, which ends with it.
#[derive(Debug)]
pub struct Cluster {
    kubeconfig: PathBuf,
    process: Process,
    /// Its pods share a network with it and with nobody else.
    has_network: bool,
}

impl Cluster {
    /// Starts `program cluster` with these images and a log in `directory`; returns when it says that it can be used.
    ///
    /// Root gives every cluster a network of its own, and in there one to the pods, so that nothing of them is to be seen
    /// outside; for others pods are in the network of the machine.
    pub fn start(program: &Path, images: &[String], nodes: usize, directory: &Path) -> io::Result<Cluster> {
        let (kubeconfig, log) = (directory.join("kubeconfig"), directory.join("cluster.log"));
        let has_network = rustix::process::geteuid().is_root();
        let mut command = if has_network {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", WITH_LOOPBACK, "sh"]).arg(busybox::ensure()?).arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .args(["cluster", "--ephemeral", "--nodes", &nodes.to_string(), "--kubeconfig"])
            .arg(&kubeconfig);
        if has_network {
            command.args(["--network", "pods"]);
        }
        for image in images {
            command.args(["--image", image]);
        }
        let (process, output) = Process::spawn_piped(&mut command, &log)?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::Error::other(format!("the cluster did not start; its log is {}", log.display())));
        }
        Ok(Cluster { kubeconfig, process, has_network })
    }

    /// How to reach it, as its administrator.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A program that can reach it.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        if !self.has_network {
            return Command::new(program);
        }
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.process.id())).arg(program);
        command
    }
}
