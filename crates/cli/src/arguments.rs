//! What `ferry` can be asked. The texts here are its `--help`.

use std::ops::Range;
use std::path::PathBuf;

/// Multi-cluster batch for Kubernetes.
#[derive(clap::Parser)]
#[command(name = "ferry", version, arg_required_else_help = true, after_help = crate::failure::CODES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    Demo(Demo),
    Up(Up),
    Submit(crate::submit::Arguments),
    Get(crate::get::Arguments),
    Describe(crate::describe::Arguments),
    Explain(crate::explain::Arguments),
    Logs(crate::logs::Arguments),
    Top(crate::top::Arguments),
    Events(crate::events::Arguments),
    Wait(crate::wait::Arguments),
    Hold(crate::hold::Hold),
    Release(crate::hold::Release),
    Cancel(crate::cancel::Arguments),
    #[command(flatten)]
    Administration(crate::administration::Command),
    Cluster(Cluster),
    Operator(Operator),
    Check(Check),
    Crds(Crds),
    Simulate(Simulate),
    Completion(crate::shell::Completion),
    Man(crate::shell::Man),
}

/// See it work: three clusters in this process, a handful of Jobs, and what became of them.
///
/// Starts a management cluster and two workers, submits Jobs of several kinds, shows how they fare, and takes everything
/// away again. Pods are processes of this machine.
///
/// Exit status: 0 if everything ended as it should, 1 if not.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry demo")]
pub(crate) struct Demo {
    /// How many seconds everything may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

/// Run a management cluster and its workers in this process, to keep.
///
/// Jobs that name the queue `fleet` in their label kueue.x-k8s.io/queue-name run on a worker; others run on the manager.
/// What is there at the end is there again at the next start. Prints how to reach the clusters when they can be used;
/// ends on SIGTERM and SIGINT.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry up\n  ferry up --worker east --worker west --data ./fleet --port-base 7000\n  ferry up --kubeconfig ~/.kube/config --merge"
)]
pub(crate) struct Up {
    /// How many workers there are, called worker1, worker2 and so on [default: those that the data has, or 2].
    #[arg(long, value_name = "N")]
    pub(crate) workers: Option<usize>,

    /// The name of a worker; can be given several times. All that the data has must be among them.
    #[arg(long, value_name = "NAME", conflicts_with = "workers")]
    pub(crate) worker: Vec<String>,

    /// Where everything is kept [default: ferry, in the user's data directory].
    #[arg(long, value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,

    /// Keep nothing.
    #[arg(long)]
    pub(crate) ephemeral: bool,

    /// Where to write the kubeconfig, with a context for each cluster [default: beside the data]. A file with contexts of
    /// other clusters is not touched, unless --merge is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Add the contexts to those that the kubeconfig has, which stay, as does the current one.
    #[arg(long, requires = "kubeconfig")]
    pub(crate) merge: bool,

    /// What becomes of pods.
    #[arg(long, value_enum, default_value_t = PodRuntime::Process)]
    pub(crate) runtime: PodRuntime,

    /// Of how many pods that are gone each node keeps the logs, for `ferry logs` of Jobs that have ended.
    #[arg(long, value_name = "N", default_value_t = fleet::KEPT_LOGS)]
    pub(crate) kept_logs: usize,

    /// The port of the manager on 127.0.0.1, followed by those of the workers; 0 is any free ones.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub(crate) port_base: u16,
}

/// A name that nodes can begin with.
fn name_of_cluster(name: &str) -> Result<String, String> {
    match rules::names::dns_subdomain(name).into_iter().next() {
        None => Ok(name.to_owned()),
        Some(problem) => Err(problem),
    }
}

/// What becomes of pods.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PodRuntime {
    /// They are processes of this machine.
    Process,
    /// They only pretend to run, for as long and with the end that their annotations say.
    Simulated,
}

/// Print the definitions of Kueue's custom resources.
///
/// What `ferry operator` installs where it is missing, as YAML.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry crds | kubectl apply --server-side -f -")]
pub(crate) struct Crds {}

/// Judge manifests as an API server of Kubernetes v1.35 would, without one.
///
/// Reads batch/v1 Jobs from YAML or JSON files and prints every field error and every warning that creating them would
/// give, fields that the API does not know included. Other kinds are named and passed over.
///
/// Exit status: 0 if every Job would be accepted, 1 if one would be refused, 2 if a file cannot be read.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry check job.yaml\n  kubectl get job render -o yaml | ferry check -")]
pub(crate) struct Check {
    /// Files to read; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Refuse `managedBy: kubernetes.io/job-controller`, as a cluster can be told to do.
    #[arg(long)]
    pub(crate) refuse_reserved_managed_by: bool,
}

/// Run a Kubernetes-compatible cluster in this process.
///
/// It speaks the API of Kubernetes v1.35 on a loopback port, keeps what it acknowledged through a kill -9, and runs the
/// controllers that batch work needs. Prints one line when it can be used; ends on SIGTERM and SIGINT.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry cluster --ephemeral\n  ferry cluster --name lab --data ./lab --port 6443"
)]
pub(crate) struct Cluster {
    /// The name of the cluster in its kubeconfig, and the beginning of those of its nodes.
    #[arg(long, default_value = "ferry", value_parser = name_of_cluster)]
    pub(crate) name: String,

    /// The port on 127.0.0.1; 0 is any free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) port: u16,

    /// Where objects, certificates and the token are kept.
    #[arg(long, value_name = "DIR", required_unless_present = "ephemeral", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,

    /// Keep nothing.
    #[arg(long)]
    pub(crate) ephemeral: bool,

    /// Where to write the kubeconfig [default: in the data directory, or a temporary file]. A file with contexts of other
    /// clusters is not touched, unless --merge is given.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Add the context to those that the kubeconfig has, which stay, as does the current one.
    #[arg(long, requires = "kubeconfig")]
    pub(crate) merge: bool,

    /// How many nodes it has.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) nodes: usize,

    /// What becomes of pods.
    #[arg(long, value_enum, default_value_t = PodRuntime::Process)]
    pub(crate) runtime: PodRuntime,

    /// The network that pods are in: that of this machine, or one of their own, for which this has to be run by root.
    #[arg(long, value_enum, default_value_t = PodNetwork::Host)]
    pub(crate) network: PodNetwork,

    /// What an image is when pods are processes: a program of this machine, or a directory and the program in it, with
    /// arguments for containers that give none. May be repeated, and names may hold `*`. A container with a command needs
    /// none.
    #[arg(long = "image", value_name = "NAME=PATH[:ENTRYPOINT]")]
    pub(crate) images: Vec<rules::node::image::Entry>,

    /// A file of such images, one per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) image_file: Option<PathBuf>,

    /// Which controllers run: names, `*` for all, `-name` for all but one, `none` for the API server alone.
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    pub(crate) controllers: controllers::Selection,

    /// What to do about new Jobs with `managedBy: kubernetes.io/job-controller`.
    #[arg(long, value_enum, default_value_t = ReservedManagedBy::Accept)]
    pub(crate) reserved_managed_by: ReservedManagedBy,

    /// A name or an address by which clients know the cluster, for its certificate: that of a tunnel or of a proxy which leads to it. May
    /// be repeated.
    #[arg(long, value_name = "NAME", value_parser = name_or_address)]
    pub(crate) tls_san: Vec<String>,

    /// Authorities of front proxies, in PEM: whoever shows a certificate that one of them has signed is believed when he says
    /// in X-Remote-User, -Group, -Uid and -Extra- for whom he asks.
    #[arg(long, value_name = "FILE")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,

    /// The names that certificates of front proxies may have [default: any].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "requestheader_client_ca_file")]
    pub(crate) requestheader_allowed_names: Vec<String>,
}

/// A name or an address that a certificate can have; a name may begin with `*.`.
fn name_or_address(text: &str) -> Result<String, String> {
    let is_name = rules::names::dns_subdomain(text.strip_prefix("*.").unwrap_or(text)).is_empty();
    let is_good = is_name || text.parse::<std::net::IpAddr>().is_ok();
    is_good.then(|| text.to_owned()).ok_or_else(|| "it is neither a DNS name nor an IP address".to_owned())
}

/// The network that pods are in.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PodNetwork {
    /// That of this machine.
    Host,
    /// Every pod has an address and ports of its own, and services have theirs.
    Pods,
}

/// What to do about the reserved value of `managedBy` on create.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReservedManagedBy {
    /// Accept it, as Kubernetes does.
    Accept,
    /// Refuse it, so that the field names external controllers only.
    Refuse,
}

/// Run queues, quota and dispatch on a cluster that is there.
///
/// Reconciles Kueue's objects: Jobs that name a queue wait for quota, run when it is their turn, here or on a worker
/// cluster, and stop when they have to. Installs Kueue's definitions where they are missing. Only one acts at a time:
/// it takes the Lease that Kueue takes; while somebody else has it, it waits, answers webhooks and says who waits where. Prints
/// one line when it begins to act; ends on SIGTERM and SIGINT, and when it loses the Lease.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry operator --kubeconfig ~/.kube/config --context manager\n  ferry operator --listen 127.0.0.1:8080"
)]
pub(crate) struct Operator {
    /// The kubeconfig to use [default: that of the environment, or the service account of the pod].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context to use [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,

    /// Kueue's configuration file, in Kueue's words. Settings that cannot be had are named; arguments given here count more.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The namespace of the Lease, and of the Secrets with the kubeconfigs of workers [default: that of the configuration,
    /// or kueue-system].
    #[arg(long)]
    pub(crate) namespace: Option<String>,

    /// Where to serve /healthz, /readyz and /metrics; port 0 is any free one [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<std::net::SocketAddr>,

    /// Where to serve the webhooks that make Jobs wait for quota, by this address: for an operator outside of the cluster;
    /// port 0 is any free one [default: no webhooks].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) webhook_listen: Option<std::net::SocketAddr>,

    /// The Service by which the cluster reaches the webhooks, in the operator's namespace: for an operator inside of the
    /// cluster.
    #[arg(long, value_name = "NAME", requires = "webhook_listen")]
    pub(crate) webhook_service: Option<String>,

    /// The Service by which the cluster asks how to get from one version of an object to the other, which has to lead to pods
    /// that are not ready, too (publishNotReadyAddresses) [default: that of the webhooks].
    #[arg(long, value_name = "NAME", requires = "webhook_service")]
    pub(crate) conversion_service: Option<String>,

    /// Where to serve visibility.kueue.x-k8s.io, which says who waits where, to the API server of the cluster; port 0 is any
    /// free one [default: nowhere].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) visibility_listen: Option<std::net::SocketAddr>,

    /// The Service by which the cluster reaches it, in the operator's namespace; APIServices that name it are kept right
    /// [default: kueue-visibility-server].
    #[arg(long, value_name = "NAME", requires = "visibility_listen")]
    pub(crate) visibility_service: Option<String>,
}

/// Look for ways in which dispatch could go wrong.
///
/// Runs a management cluster, two workers and the operator in one thread with simulated time, while requests, answers and
/// watch events are delayed, lost, doubled and reordered, clusters freeze, the operator is killed and people interfere; and
/// checks after every moment that no Job runs on two clusters at once, none is lost, and ends are final. All chance comes
/// from a seed, and the same seed gives the same run.
///
/// Exit status: 0 if nothing was found, 1 if something was; then the seeds that show it are printed.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry simulate --seeds 1000\n  ferry simulate --seeds 1000 --seed 5000\n  \
                        RUST_LOG=info ferry simulate --seed 42"
)]
pub(crate) struct Simulate {
    /// How many seeds [default: 100, or 1 with --seed].
    #[arg(long, value_name = "N")]
    pub(crate) seeds: Option<u64>,

    /// The first seed, and the only one unless --seeds says otherwise [default: 0].
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
}

impl Simulate {
    /// All seeds.
    pub(crate) fn range(&self) -> Range<u64> {
        let first = self.seed.unwrap_or(0);
        let number = self.seeds.unwrap_or(if self.seed.is_some() { 1 } else { 100 });
        first..first.saturating_add(number)
    }
}
