//! What a node decides about its pods: which container runs next, which is stopped, and what all of it looks like in the
//! pod's status, as the kubelet of Kubernetes v1.35 writes it.
//!
//! A node observes ([`Container`] says what became of each container), asks [`plan::decide`] for the next steps, takes
//! them, and writes [`status::of`]. Whether a container is a process or a simulation is not known here.
//!
//! - [`container`]: what is known of one container; [`restart`]: whether and when it runs again.
//! - [`plan`]: the next steps of a pod; [`ending`]: why a pod has to end; [`admission`]: whether it may begin.
//! - [`storage`]: whether it has written more than it may.
//! - [`resize`]: whether a pod that runs may have other resources.
//! - [`phase`], [`conditions`], [`status`]: what the pod's status says.
//! - [`probe`]: from single probes to what they mean.
//! - [`environment`] with [`expand()`](expand::expand), [`env_file`] and [`downward`]: the variables of a container; [`volume`]: the files of a volume.
//! - [`hostname`]: what a pod is called.
//! - [`image`]: what images are on a node that runs programs of its host.
//! - [`namespaces`]: which of them containers share, and with whom.
//! - [`sysctl`]: settings of the kernel that a pod may ask for.
//! - [`script`]: what a simulated pod does.

pub mod admission;
pub mod conditions;
pub mod container;
pub mod downward;
pub mod ending;
pub mod env_file;
pub mod environment;
pub mod expand;
pub mod hostname;
pub mod image;
pub mod namespaces;
pub mod phase;
pub mod plan;
pub mod probe;
pub mod resize;
pub mod resolver;
pub mod restart;
pub mod script;
pub mod status;
pub mod storage;
pub mod sysctl;
pub mod volume;

pub use container::{Container, Exit, Kind, State};
pub use ending::Ending;
pub use plan::{Plan, Step};
