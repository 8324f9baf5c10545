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
    apiserver_args: Vec<String>,
    controller_manager_args: Vec<String>,
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

    /// Starts it, and returns when it can be used. Builds what is missing first (see [`Binary::ensure`]).
    pub async fn start(self) -> Result<ControlPlane, Error> {
        let with_controllers = self.controllers.is_some();
        let paths = tokio::task::spawn_blocking(move || Paths::ensure(with_controllers)).await;
        let paths = paths.expect("building does not panic")?;
        for _ in 1..ATTEMPTS {
            match self.attempt(&paths).await {
                Err(Error::Ended { tail, .. }) if tail.contains("address already in use") => {}
                done => return done,
            }
        }
        self.attempt(&paths).await
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
        for_test(self.start().await)
    }

    async fn attempt(&self, paths: &Paths) -> Result<ControlPlane, Error> {
        let scratch = Scratch::new("ferry-testkit-").map_err(Error::io("make a directory"))?;
        let directory = scratch.path();
        let authority = Authority::new()?;
        let files = authority.write(directory)?;
        let (etcd_port, port) = (ports::free()?, ports::free()?);
        let program = |name: &'static str, path: &Path, arguments: Vec<String>| {
            Program::new(name, path.to_owned(), arguments, directory.join(format!("{name}.log")))
        };
        let etcd = program("etcd", &paths.etcd, etcd(directory, etcd_port));
        let apiserver = program("kube-apiserver", &paths.apiserver, self.apiserver(&files, etcd_port, port));
        let controller_manager = paths.controller_manager.as_ref().map(|path| {
            program("kube-controller-manager", path, self.controller_manager_arguments(directory, &files))
        });
        ControlPlane::start(scratch, authority, (etcd, etcd_port), (apiserver, port), controller_manager)
            .await
    }

    fn apiserver(&self, files: &Files, etcd_port: u16, port: u16) -> Vec<String> {
        let mut arguments = vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
            format!("--secure-port={port}"),
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

    fn controller_manager_arguments(&self, directory: &Path, files: &Files) -> Vec<String> {
        let controllers = self.controllers.as_deref().unwrap_or_default();
        let mut arguments = vec![
            flag("kubeconfig", &directory.join(super::control_plane::ADMIN)),
            format!("--controllers={}", controllers.join(",")),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
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
/// killed process without being flushed to the disk, and tests pull no plugs.
fn etcd(directory: &Path, port: u16) -> Vec<String> {
    vec![
        flag("data-dir", &directory.join("etcd")),
        format!("--name={}", directory.display()),
        format!("--listen-client-urls=http://127.0.0.1:{port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{port}"),
        "--listen-peer-urls=http://127.0.0.1:0".to_owned(),
        "--log-level=warn".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
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
