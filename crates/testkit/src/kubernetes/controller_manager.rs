//! kube-controller-manager on a cluster that somebody else runs.

use std::{path::Path, time::Duration};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use super::{Binary, Error, ports, program::Program};
use crate::process::Scratch;

/// How long it may take to reach the cluster.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A running kube-controller-manager. It ends when this is dropped.
#[derive(Debug)]
pub struct ControllerManager {
    program: Program,
    _scratch: Scratch,
}

impl ControllerManager {
    /// Runs these controllers on the cluster to which a kubeconfig leads, and returns when they do. Builds the program
    /// first if it is missing (see [`Binary::ensure`]).
    pub async fn start<I: IntoIterator<Item = S>, S: AsRef<str>>(
        kubeconfig: &Path,
        controllers: I,
    ) -> Result<ControllerManager, Error> {
        let ensured = tokio::task::spawn_blocking(|| Binary::KubeControllerManager.ensure()).await;
        let path = ensured.expect("building does not panic")?;
        let scratch = Scratch::new("ferry-testkit-").map_err(Error::io("make a directory"))?;
        let port = ports::free()?;
        let names: Vec<String> = controllers.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let arguments = vec![
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", names.join(",")),
            "--leader-elect=false".to_owned(),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--cert-dir={}", scratch.path().display()),
            // Nobody asks it anything.
            "--authentication-skip-lookup=true".to_owned(),
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
        ];
        let program = Program::new("kube-controller-manager", &path, arguments, port, scratch.path());
        program.start()?;
        let started = Instant::now();
        while let Err(error) = TcpStream::connect(("127.0.0.1", port)).await {
            program.check()?;
            if started.elapsed() > PATIENCE {
                let logs = scratch.path().to_owned();
                let (what, seconds, last) =
                    ("kube-controller-manager", PATIENCE.as_secs(), error.to_string());
                return Err(Error::NotReady { what, seconds, last, logs });
            }
            sleep(POLL).await;
        }
        Ok(ControllerManager { program, _scratch: scratch })
    }

    /// Its process, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.program.id()
    }
}
