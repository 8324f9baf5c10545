//! What the containers of a pod have in common before any of them is there: what they talk to each other through, and the
//! namespace of their processes, if they are to see each other.

use std::{fs, io, path::Path, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use rules::node::namespaces;
use tokio::sync::oneshot;

use super::{
    Shared,
    instance::{self, Instance, Start},
    ipc,
    launch::Directories,
    machine,
    sessions::Place,
    volumes,
};
use crate::{
    init::{COMMAND, Ipc, Order, PAUSE, Processes},
    logs::Log,
};

/// What a pod's containers have in common, for as long as it is held.
pub(super) struct Sandbox {
    /// `None` if they share that with their host.
    ipc: Option<ipc::Namespace>,
    /// `None` if each sees its own processes.
    holder: Option<Holder>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("failed to make a namespace for what containers share")]
    Ipc(#[source] io::Error),
    #[error("failed to hold the namespace of processes that containers share")]
    Holder(#[from] instance::Error),
}

impl Sandbox {
    pub(super) async fn start(
        shared: &Shared,
        pod: &Pod,
        directories: &Directories,
    ) -> Result<Sandbox, Error> {
        let mut sandbox = Sandbox { ipc: None, holder: None };
        if !namespaces::is_hosts_ipc(pod) {
            let made = ipc::Namespace::make(shared.machine.isolation, &shared.settings.init).await;
            sandbox.ipc = Some(made.map_err(Error::Ipc)?);
        }
        if namespaces::are_processes_shared(pod) {
            sandbox.holder = Some(Holder::start(shared, directories, sandbox.ipc()).await?);
        }
        Ok(sandbox)
    }

    /// Whether nothing of it has ended.
    pub(super) fn is_whole(&mut self) -> bool {
        self.holder.as_mut().is_none_or(|holder| holder.processes().is_some())
    }

    /// Whose namespace of processes is shared; `None` if none is, or it has ended.
    pub(super) fn processes(&mut self) -> Option<Processes> {
        self.holder.as_mut().and_then(Holder::processes)
    }

    /// Through what the containers talk to each other.
    pub(super) fn ipc(&self) -> Ipc {
        self.ipc.as_ref().map_or(Ipc::Host, ipc::Namespace::order)
    }

    /// Ends it.
    pub(super) async fn end(self) {
        if let Some(holder) = self.holder {
            holder.end().await;
        }
    }
}

/// Holds a namespace of processes. When it ends, so do all that are in there.
struct Holder {
    instance: Instance,
    ended: oneshot::Receiver<()>,
}

impl Holder {
    async fn start(shared: &Shared, directories: &Directories, ipc: Ipc) -> Result<Holder, instance::Error> {
        let directory = directories.sandbox();
        let order = order(shared, &directory, ipc).map_err(instance::Error::Guard)?;
        let (tell, ended) = oneshot::channel();
        let start = Start {
            init: &shared.settings.init,
            order,
            number: 0,
            log: Log::new(directory.join("log")),
            directory,
            cgroup: None,
            place: Place::default(),
            terminal: None,
            input: None,
        };
        let ended_now = move |_| {
            let _ = tell.send(()); // a pod that is gone does not listen any more
        };
        let instance = Instance::start(start, ended_now).await?;
        Ok(Holder { instance, ended })
    }

    /// Whose namespace it is; `None` if it has ended.
    fn processes(&mut self) -> Option<Processes> {
        match self.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => self.instance.place.process.map(Processes::Of),
            _ => None,
        }
    }

    async fn end(mut self) {
        self.instance.stop(Duration::ZERO);
        let _ = self.ended.await; // whoever would tell is gone only with what it tells of
    }
}

fn order(shared: &Shared, directory: &Path, ipc: Ipc) -> io::Result<Order> {
    volumes::remove_tree(directory)?;
    fs::create_dir_all(directory)?;
    let root = machine::root_in(directory, Path::new("/"), &shared.hidden(), true)?;
    Ok(Order {
        isolation: shared.machine.isolation,
        ipc,
        command: ["/proc/self/exe", COMMAND, PAUSE].map(str::to_owned).into(),
        root: Some(root),
        ..Order::default()
    })
}
