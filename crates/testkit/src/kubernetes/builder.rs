//! What a control plane is started with.
//!
//! Everything about the API server is as it is by default, RBAC and admission included, except where a machine without
//! a network or a test without patience needs it otherwise; `Settings::apiserver` has all of it.

use std::path::{Path, PathBuf};

use super::{
    Binary, ControlPlane, Error,
    credentials::{Authority, Files},
    for_test, ports,
    program::Program,
};
use crate::process::Scratch;

/// How often a control plane is started on other ports when somebody else took one of them in between.
const ATTEMPTS: usize = 5;

/// What a control plane is to be like. Made by [`ControlPlane::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder {
    controllers: Option<Vec<String>>,
    names: Vec<String>,
    apiserver_args: Vec<String>,
    controller_manager_args: Vec<String>,
    durable: bool,
    front_proxy: bool,
}

impl Builder {
    /// Runs kube-controller-manager too, with these controllers (`job-controller`; `*` for all that are on by default).
    pub fn controller_manager<I: IntoIterator<Item = S>, S: Into<String>>(
        mut self,
        controllers: I,
    ) -> Builder {
        self.controllers = Some(controllers.into_iter().map(Into::into).collect());
        self
    }

    /// Names by which its API server is also known, for those who reach it by another way ([`ControlPlane::forward`]).
    pub fn names<I: IntoIterator<Item = S>, S: Into<String>>(mut self, names: I) -> Builder {
        self.names.extend(names.into_iter().map(Into::into));
        self
    }

    /// Further arguments for kube-apiserver (`--feature-gates=…`). Of a flag given twice, the last one counts.
    pub fn apiserver_args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, arguments: I) -> Builder {
        self.apiserver_args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Further arguments for kube-controller-manager.
    pub fn controller_manager_args<I: IntoIterator<Item = S>, S: Into<String>>(
        mut self,
        arguments: I,
    ) -> Builder {
        self.controller_manager_args.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Lets the API server say to the API servers of others for whom it asks, by a certificate that they are told to believe.
    pub fn front_proxy(mut self) -> Builder {
        self.front_proxy = true;
        self
    }

    /// Lets etcd wait for the disk before it acknowledges, as it does by default: for whoever measures.
    pub fn durable(mut self) -> Builder {
        self.durable = true;
        self
    }

    /// Starts it, and returns when it can be used. Builds what is missing first (see [`Binary::ensure`]).
    pub async fn start(self) -> Result<ControlPlane, Error> {
        let with_controllers = self.controllers.is_some();
        let paths = tokio::task::spawn_blocking(move || Paths::ensure(with_controllers)).await;
        let paths = paths.expect("building does not panic")?;
        for _ in 1..ATTEMPTS {
            match self.attempt(&paths, Ports::free()?).await {
                Err(error) if error.is_port_taken() => {}
                done => return done,
            }
        }
        self.attempt(&paths, Ports::free()?).await
    }

    /// The control plane for a test, which returns early on `None`: then there is no Kubernetes to be had here, and that
    /// was said aloud. Anything else that goes wrong, and this too if `FERRY_REQUIRE_KUBERNETES` is set, is a panic.
    ///
    /// ```no_run
    /// # async fn example() {
    /// let Some(cluster) = testkit::ControlPlane::builder().for_test().await else { return };
    /// # }
    /// ```
    pub async fn for_test(self) -> Option<ControlPlane> {
        // What a test saw is still there however long it takes on a busy machine: by default it is forgotten after minutes.
        for_test(self.apiserver_args(["--etcd-compaction-interval=0"]).start().await)
    }

    async fn attempt(&self, paths: &Paths, ports: Ports) -> Result<ControlPlane, Error> {
        let scratch = Scratch::new("ferry-testkit-").map_err(Error::io("make a directory"))?;
        let directory = scratch.path();
        let authority = Authority::new()?;
        let files = authority.write(directory, &self.names)?;
        let arguments = etcd(directory, ports.etcd, self.durable);
        let etcd = Program::new("etcd", &paths.etcd, arguments, ports.etcd, directory);
        let mut arguments = self.apiserver(&files, &ports);
        if self.front_proxy {
            arguments.extend(Authority::new()?.write_front_proxy(directory)?);
        }
        let apiserver =
            Program::new("kube-apiserver", &paths.apiserver, arguments, ports.apiserver, directory);
        let controller_manager = paths.controller_manager.as_ref().map(|path| {
            let arguments = self.controller_manager_arguments(directory, &files, &ports);
            Program::new("kube-controller-manager", path, arguments, ports.controller_manager, directory)
        });
        ControlPlane::start(scratch, authority, etcd, apiserver, controller_manager).await
    }

    fn apiserver(&self, files: &Files, ports: &Ports) -> Vec<String> {
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
            format!("--secure-port={}", ports.apiserver),
            "--bind-address=127.0.0.1".to_owned(),
            // It would look for an address of a network interface otherwise, and refuse to start without one.
            "--advertise-address=127.0.0.1".to_owned(),
            // Endpoints of the service `kubernetes` may not be loopback addresses; nobody in a test follows them.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/16".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            flag("tls-cert-file", &files.certificate),
            flag("tls-private-key-file", &files.key),
            flag("client-ca-file", &files.authority),
            flag("token-auth-file", &files.tokens),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            flag("service-account-key-file", &files.service_account_public),
            flag("service-account-signing-key-file", &files.service_account_private),
        ];
        arguments.extend(self.apiserver_args.iter().cloned());
        arguments
    }

    fn controller_manager_arguments(&self, directory: &Path, files: &Files, ports: &Ports) -> Vec<String> {
        let controllers = self.controllers.as_deref().unwrap_or_default();
        let mut arguments = vec![
            flag("kubeconfig", &directory.join(super::control_plane::ADMIN)),
            format!("--controllers={}", controllers.join(",")),
            "--leader-elect=false".to_owned(),
            format!("--secure-port={}", ports.controller_manager),
            "--bind-address=127.0.0.1".to_owned(),
            flag("tls-cert-file", &files.certificate),
            flag("tls-private-key-file", &files.key),
            // By default a controller may make 20 requests a second, and a test of many Jobs waits for nothing else.
            "--kube-api-qps=1000".to_owned(),
            "--kube-api-burst=2000".to_owned(),
            flag("service-account-private-key-file", &files.service_account_private),
            flag("root-ca-file", &files.authority),
        ];
        arguments.extend(self.controller_manager_args.iter().cloned());
        arguments
    }
}

/// One member, on one port: the address for other members is never dialled, so the kernel may choose it. Data survive a
/// killed process without being flushed to the disk, and tests pull no plugs; who compares what durable writes cost
/// does not want that.
fn etcd(directory: &Path, port: u16, durable: bool) -> Vec<String> {
    let mut arguments = vec![
        flag("data-dir", &directory.join("etcd")),
        format!("--name={}", directory.display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    if !durable {
        arguments.push("--unsafe-no-fsync".to_owned());
    }
    arguments
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

struct Ports {
    etcd: u16,
    apiserver: u16,
    controller_manager: u16,
}

impl Ports {
    fn free() -> Result<Ports, Error> {
        Ok(Ports { etcd: ports::free()?, apiserver: ports::free()?, controller_manager: ports::free()? })
    }
}

struct Paths {
    etcd: PathBuf,
    apiserver: PathBuf,
    controller_manager: Option<PathBuf>,
}

impl Paths {
    fn ensure(with_controllers: bool) -> Result<Paths, Error> {
        Ok(Paths {
            etcd: Binary::Etcd.ensure()?,
            apiserver: Binary::KubeApiserver.ensure()?,
            controller_manager: with_controllers
                .then(|| Binary::KubeControllerManager.ensure())
                .transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_taken_port_is_told_from_other_failures() -> Result<(), Error> {
        let Some(paths) = for_test(Paths::ensure(false)) else { return Ok(()) };
        let somebody = TcpListener::bind("127.0.0.1:0").map_err(Error::io("listen"))?;
        let taken = somebody.local_addr().map_err(Error::io("listen"))?.port();
        for ports in [Ports { etcd: taken, ..Ports::free()? }, Ports { apiserver: taken, ..Ports::free()? }] {
            let error = ControlPlane::builder().attempt(&paths, ports).await.expect_err("the port is taken");
            assert!(error.is_port_taken(), "{error}");
        }
        Ok(())
    }
}
