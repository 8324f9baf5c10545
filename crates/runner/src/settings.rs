//! What a node is.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs,
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    sync::Arc,
};

use futures::future::BoxFuture;
use rules::node::image::{Found, Images};

use crate::init::{self, Isolation};

/// One node: its name, what it has, and what its pods are.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the Node object.
    pub name: String,
    /// What becomes of its pods.
    pub runtime: Runtime,
    /// Labels of the Node object, besides those that every node has.
    pub labels: BTreeMap<String, String>,
    /// What the node has, as quantities by resource name (`cpu`, `memory`, `pods`…).
    pub capacity: BTreeMap<String, String>,
    /// The address of the node, and of its pods if they have none of their own.
    pub address: IpAddr,
}

/// What becomes of the pods of a node.
#[derive(Clone, Debug)]
pub enum Runtime {
    /// They only pretend to run, as [`rules::node::script`] says.
    Simulated,
    /// They are processes of this machine, kept apart from it as far as the kernel permits. That is no boundary against who is
    /// not trusted: `docs/nodes.md` says what is kept from pods, and what is not.
    Process(Box<Process>),
}

/// How pods are run as processes.
#[derive(Clone, Debug)]
pub struct Process {
    /// Where the node keeps its pods' files and logs. No other node has the same.
    pub directory: PathBuf,
    /// What pods do not see of the host besides that directory, unless they mount it: directories with all that is in them,
    /// and files, which may not be there yet. What is in there may let its reader be the cluster's administrator.
    pub hidden: Vec<PathBuf>,
    /// What images are.
    pub images: Images,
    /// Asked for images that the table does not have, if there is one.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// The program, with its first arguments, that is a container's first process: its `main` hands the arguments after
    /// [`init::COMMAND`] to [`init::main`].
    pub init: Vec<OsString>,
    /// Where pods find the API server.
    pub server: Option<(String, u16)>,
    /// Keeps pods apart from their host no further than this; as far as the kernel permits if not said.
    pub isolation: Option<Isolation>,
    /// The network of its pods.
    pub network: PodNetwork,
    /// Of how many pods that are gone logs are kept, for [`crate::kept`].
    pub kept_logs: usize,
}

/// The network that pods are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PodNetwork {
    /// That of their machine, with all its ports.
    #[default]
    Host,
    /// Each has an address and ports of its own, unless it asks for the network of its host. Nodes of one cluster share the
    /// network, and get their addresses from it.
    Pods,
}

/// Finds out what an image is, by pulling it for instance.
pub trait Resolve: Send + Sync + fmt::Debug {
    /// What the image is; `None` if it is not known here either, and an error with what a person should know.
    fn resolve<'a>(&'a self, image: &'a str) -> BoxFuture<'a, Result<Option<Found>, String>>;
}

impl Settings {
    /// A node whose pods are simulated, with room for many of them.
    pub fn simulated(name: &str) -> Settings {
        let capacity = [("cpu", "1k"), ("memory", "4Ti"), ("ephemeral-storage", "10Ti"), ("pods", "100k")];
        Settings::new(name, Runtime::Simulated, &capacity.map(|(name, quantity)| (name, quantity.to_owned())))
    }

    /// A node whose pods are processes of this machine, and which has what the machine has.
    pub fn process(name: &str, directory: PathBuf) -> Settings {
        let cpu = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).to_string();
        let capacity = [
            ("cpu", cpu),
            ("memory", memory()),
            ("ephemeral-storage", "100Gi".to_owned()),
            ("pods", "1k".to_owned()),
        ];
        let process = Process {
            directory,
            hidden: Vec::new(),
            images: Images::default(),
            resolver: None,
            init: vec!["/proc/self/exe".into(), init::COMMAND.into()],
            server: None,
            isolation: None,
            network: PodNetwork::Host,
            kept_logs: 0,
        };
        Settings::new(name, Runtime::Process(Box::new(process)), &capacity)
    }

    fn new(name: &str, runtime: Runtime, capacity: &[(&str, String)]) -> Settings {
        Settings {
            name: name.to_owned(),
            runtime,
            labels: BTreeMap::new(),
            capacity: capacity
                .iter()
                .map(|(name, quantity)| ((*name).to_owned(), quantity.clone()))
                .collect(),
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

/// The memory of this machine, as the kernel counts it; little if it does not say.
fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kibibytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB"));
    kibibytes.map_or_else(|| "1Gi".to_owned(), |kibibytes| format!("{}Ki", kibibytes.trim()))
}
