//! What the containers of a pod have in common before any of them is there: the namespace of their processes, if they are
//! to see each other.

use std::{fs, io, path::Path, time::Duration};

use tokio::sync::oneshot;

use super::{
    Shared,
    instance::{Error, Instance, Start},
    launch::Directories,
    machine,
    sessions::Place,
    volumes,
};
use crate::{
    init::{COMMAND, Order, PAUSE, Processes},
    logs::Log,
};

/// Holds a namespace of processes. When it ends, so do all that are in there.
pub(super) struct Sandbox {
    instance: Instance,
    ended: oneshot::Receiver<()>,
}

impl Sandbox {
    pub(super) async fn start(shared: &Shared, directories: &Directories) -> Result<Sandbox, Error> {
        let directory = directories.sandbox();
        let order = order(shared, &directory).map_err(Error::Guard)?;
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
        Ok(Sandbox { instance, ended })
    }

    /// Whose namespace it is; `None` if it has ended.
    pub(super) fn processes(&mut self) -> Option<Processes> {
        match self.ended.try_recv() {
            Err(oneshot::error::TryRecvError::Empty) => self.instance.place.process.map(Processes::Of),
            _ => None,
        }
    }

    /// Ends it.
    pub(super) async fn end(mut self) {
        self.instance.stop(Duration::ZERO, None::<std::future::Ready<()>>);
        let _ = self.ended.await; // whoever would tell is gone only with what it tells of
    }
}

fn order(shared: &Shared, directory: &Path) -> io::Result<Order> {
    volumes::remove_tree(directory)?;
    fs::create_dir_all(directory)?;
    let hidden = [shared.settings.directory.clone()];
    let root = machine::root_in(directory, Path::new("/"), &hidden, true)?;
    Ok(Order {
        isolation: shared.machine.isolation,
        command: ["/proc/self/exe", COMMAND, PAUSE].map(str::to_owned).into(),
        root: Some(root),
        ..Order::default()
    })
}
