//! A control plane: etcd, kube-apiserver and, if asked for, kube-controller-manager, on loopback ports of their own.

use std::{
    fmt, fs,
    net::{Ipv4Addr, SocketAddrV4},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use http::Request;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::{
    Api, Client, Config,
    api::{ObjectMeta, PostParams},
    config::KubeConfigOptions,
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::{
    Builder, Error, Proxy,
    credentials::{Authority, User},
    program::Program,
    proxy::Forwarder,
};
use crate::{Simulator, process::Scratch, say, simulator};

/// The kubeconfig of the user `admin`, in the directory of its control plane.
pub(super) const ADMIN: &str = "kubeconfig";

/// A start takes seconds; this is for a machine on which everything is being built at once.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long to wait before looking again whether something is ready, and how long for each answer.
const POLL: Duration = Duration::from_millis(25);
const ANSWER: Duration = Duration::from_secs(5);

/// A running control plane. It ends, and its files go, when this is dropped or the process ends, whichever way.
///
/// When dropped by a panic its directory is kept, with logs and data, and its path printed.
pub struct ControlPlane {
    // Dropped in this order: clients of a server before the server.
    controller_manager: Option<Program>,
    apiserver: Program,
    etcd: Program,
    scratch: Scratch,
    authority: Authority,
    config: Config,
}

impl ControlPlane {
    /// A control plane of etcd and kube-apiserver and nothing else, to be added to.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A new client of the user `admin`, who is in `system:masters`.
    ///
    /// To be called inside a Tokio runtime, to which its connections then belong: so each test takes its own.
    pub fn client(&self) -> Client {
        client(&self.config)
    }

    /// What [`ControlPlane::client`] is made of, for a client with other timeouts or layers.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A kubeconfig file for the user `admin` of `system:masters`, who shows a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.scratch.path().join(ADMIN)
    }

    /// A kubeconfig file for a user of the given name and group, who shows a client certificate.
    ///
    /// `kubeconfig_for("admin", "system:masters")` may do everything; others what RBAC lets them.
    pub fn kubeconfig_for(&self, name: &str, group: &str) -> Result<PathBuf, Error> {
        let kubeconfig = self.authority.kubeconfig(self.apiserver.port, &User::Certified { name, group })?;
        write(self.scratch.path().join(unique("kubeconfig")), &kubeconfig)
    }

    /// Creates a namespace whose name starts with `prefix` and is given to nobody else.
    ///
    /// It has a service account `default`, as it would have on a whole cluster, so that pods can be created in it.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let (client, name) = (self.client(), unique(prefix));
        let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        let created = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
        created.map_err(Error::request("create a namespace"))?;
        create_default_service_account(client, &name).await?;
        Ok(name)
    }

    /// A proxy in front of the API server that can hold, delay, cut and lose what passes through it.
    pub async fn proxy(&self) -> Result<Proxy, Error> {
        self.forward(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).await
    }

    /// A proxy that listens where others expect the API server to be.
    pub async fn forward(&self, at: SocketAddrV4) -> Result<Proxy, Error> {
        let forwarder = Forwarder::start(at, self.apiserver.port)?;
        let kubeconfig = self.authority.kubeconfig(forwarder.port, &User::Admin)?;
        let config = config(&kubeconfig).await?;
        let path = write(self.scratch.path().join(unique("kubeconfig")), &kubeconfig)?;
        Ok(Proxy::new(forwarder, config, path))
    }

    /// A simulator of its pods, to be told more and started.
    pub fn simulator(&self) -> simulator::Builder {
        Simulator::builder(self.config.clone())
    }

    /// Stops every program of the control plane where it is (SIGSTOP): connections stay open, nothing is answered.
    pub fn freeze(&self) -> Result<(), Error> {
        self.programs().try_for_each(Program::freeze)
    }

    /// Lets a frozen control plane go on (SIGCONT).
    pub fn thaw(&self) -> Result<(), Error> {
        self.programs().try_for_each(Program::thaw)
    }

    /// Kills every program of the control plane (SIGKILL). Its data stay for [`ControlPlane::restart`].
    pub fn kill(&self) {
        self.programs().for_each(Program::kill);
    }

    /// Starts the control plane again, killing it first if it runs: the same data, ports and credentials.
    pub async fn restart(&self) -> Result<(), Error> {
        self.kill();
        self.run().await
    }

    /// The process ids of all that runs.
    pub fn process_ids(&self) -> Vec<u32> {
        self.programs().filter_map(Program::id).collect()
    }

    /// Where the logs, the data and the credentials are, for as long as the control plane is.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Leaves the directory behind for somebody to look into, and says where it is.
    pub(super) fn keep_directory(&self) {
        let path = self.scratch.path().display();
        match self.scratch.keep() {
            Ok(()) => say(&format!("logs and data of the control plane are kept in {path}")),
            Err(error) => say(&format!("could not keep the logs of the control plane in {path}: {error}")),
        }
    }

    pub(super) async fn start(
        scratch: Scratch,
        authority: Authority,
        etcd: Program,
        apiserver: Program,
        controller_manager: Option<Program>,
    ) -> Result<ControlPlane, Error> {
        let kubeconfig = authority.kubeconfig(apiserver.port, &User::Admin)?;
        write(scratch.path().join(ADMIN), &kubeconfig)?;
        let config = config(&kubeconfig).await?;
        let plane = ControlPlane { controller_manager, apiserver, etcd, scratch, authority, config };
        match plane.run().await {
            Ok(()) => Ok(plane),
            Err(error) => {
                if !error.is_port_taken() {
                    plane.keep_directory();
                }
                Err(error)
            }
        }
    }

    async fn run(&self) -> Result<(), Error> {
        self.etcd.start()?;
        self.until("etcd", &self.etcd, || self.etcd_answers()).await?;
        self.apiserver.start()?;
        let client = self.client();
        self.until("kube-apiserver", &self.apiserver, || self.apiserver_answers(&client)).await?;
        create_default_service_account(client, "default").await?;
        if let Some(program) = &self.controller_manager {
            program.start()?;
            // It listens when it has understood its arguments and reached the API server.
            let listens = async || {
                TcpStream::connect(("127.0.0.1", program.port))
                    .await
                    .map(drop)
                    .map_err(|error| error.to_string())
            };
            self.until("kube-controller-manager", program, listens).await?;
        }
        Ok(())
    }

    /// Repeats `probe` until it says nothing more, for as long as `program` runs.
    pub(super) async fn until<F: Future<Output = Result<(), String>>>(
        &self,
        what: &'static str,
        program: &Program,
        probe: impl Fn() -> F,
    ) -> Result<(), Error> {
        let started = Instant::now();
        loop {
            let answer = tokio::select! {
                answer = timeout(ANSWER, probe()) => answer.unwrap_or_else(|_| Err("no answer".to_owned())),
                ended = program.ended(POLL) => return Err(ended),
            };
            program.check()?; // the answer may have been somebody else's
            match answer {
                Ok(()) => return Ok(()),
                Err(last) if started.elapsed() > PATIENCE => {
                    let logs = self.scratch.path().to_owned();
                    return Err(Error::NotReady { what, seconds: PATIENCE.as_secs(), last, logs });
                }
                Err(_) => sleep(POLL).await,
            }
        }
    }

    /// Asks for the members of the cluster, which takes a leader to answer. Ours is named after our directory: an API
    /// server pointed at the etcd of somebody else would run without a complaint, on their data.
    async fn etcd_answers(&self) -> Result<(), String> {
        let ask = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.etcd.port)).await?;
            let request = "POST /v3/cluster/member/list HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = ask.await.map_err(|error| error.to_string())?;
        let name = self.scratch.path().display().to_string();
        if answer.contains(&name) { Ok(()) } else { Err(answer) }
    }

    async fn apiserver_answers(&self, client: &Client) -> Result<(), String> {
        let ready = Request::get("/readyz").body(Vec::new()).expect("a valid request");
        client.request_text(ready).await.map_err(|error| error.to_string())?;
        let namespace = Api::<Namespace>::all(client.clone()).get("default").await;
        namespace.map(drop).map_err(|error| error.to_string())
    }

    fn programs(&self) -> impl Iterator<Item = &Program> {
        self.controller_manager.iter().chain([&self.apiserver, &self.etcd])
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if thread::panicking() {
            self.keep_directory();
        }
    }
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("url", &self.config.cluster_url).finish_non_exhaustive()
    }
}

pub(super) fn client(config: &Config) -> Client {
    Client::try_from(config.clone()).expect("a configuration made from our own kubeconfig")
}

/// The work of kube-controller-manager's service account controller, without which no pod is let in.
async fn create_default_service_account(client: Client, namespace: &str) -> Result<(), Error> {
    let metadata = ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    let created = Api::namespaced(client, namespace).create(&PostParams::default(), &account).await;
    match created {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        created => created.map(drop).map_err(Error::request("create a service account")),
    }
}

async fn config(kubeconfig: &Value) -> Result<Config, Error> {
    let kubeconfig = serde_json::from_value(kubeconfig.clone()).expect("a kubeconfig of our own making");
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn write(path: PathBuf, kubeconfig: &Value) -> Result<PathBuf, Error> {
    fs::write(&path, format!("{kubeconfig:#}\n")).map(|()| path).map_err(Error::io("write a kubeconfig"))
}

fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{prefix}-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
