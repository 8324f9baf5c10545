//! The next segment, made on a thread of its own while the present one fills up, and made again and again while there
//! is no room for it.
//!
//! It is also the reserve: when it is taken into use and no other can be made, the disk counts as full, and what is left
//! of it is for deletions. That is at least half of it, since only deletions go there before it is known.

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tracing::{info, warn};

use crate::disk::Disk;
use crate::segment::Blank;

pub(crate) struct Spare {
    shared: Arc<Shared>,
    maker: Option<JoinHandle<()>>,
}

struct Shared {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    retry: Duration,
    /// Called whenever one was made or could not be made.
    notify: Box<dyn Fn() + Send + Sync>,
    slot: Mutex<Slot>,
    changed: Condvar,
    /// Held while one is being made.
    room: Arc<Mutex<()>>,
}

enum Slot {
    Idle,
    /// One of this length is being made.
    Wanted(u64),
    Made(Blank),
    /// One of this length could not be made, and is tried again from time to time.
    Short(u64, Arc<str>),
    Stopped,
}

impl Slot {
    fn room(&self) -> Result<(), Arc<str>> {
        match self {
            Slot::Made(_) => Ok(()),
            Slot::Short(_, reason) => Err(reason.clone()),
            Slot::Idle | Slot::Wanted(_) | Slot::Stopped => Err("there is no spare segment".into()),
        }
    }
}

impl Spare {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        retry: Duration,
        notify: Box<dyn Fn() + Send + Sync>,
    ) -> io::Result<Self> {
        let path = dir.join("spare.tmp");
        let (slot, changed) = (Mutex::new(Slot::Idle), Condvar::new());
        let shared = Arc::new(Shared { disk, path, retry, notify, slot, changed, room: Arc::default() });
        let maker = thread::Builder::new().name("store-spare".to_owned()).spawn({
            let shared = shared.clone();
            move || while shared.make_next() {}
        })?;
        Ok(Spare { shared, maker: Some(maker) })
    }

    /// Starts to make the next one. One that was made and not taken is given up.
    pub(crate) fn make(&mut self, length: u64) {
        self.shared.replace(Slot::Wanted(length));
    }

    /// Takes the one that was made; waits for it if need be. The error says why there is none.
    pub(crate) fn take(&mut self) -> Result<Blank, Arc<str>> {
        let mut slot = self.shared.known();
        slot.room()?;
        match mem::replace(&mut *slot, Slot::Idle) {
            Slot::Made(blank) => Ok(blank),
            Slot::Idle | Slot::Wanted(_) | Slot::Short(..) | Slot::Stopped => unreachable!("it has room"),
        }
    }

    /// Waits until it is known whether there is one. The error says why there is none.
    pub(crate) fn wait(&self) -> Result<(), Arc<str>> {
        self.shared.known().room()
    }

    /// While this is locked none is made, nor tried to be.
    pub(crate) fn room_lock(&self) -> Arc<Mutex<()>> {
        self.shared.room.clone()
    }

    /// Whether there is one, or why not; `None` while that is being found out.
    pub(crate) fn room(&self) -> Option<Result<(), Arc<str>>> {
        let slot = self.shared.slot();
        matches!(*slot, Slot::Made(_) | Slot::Short(..)).then(|| slot.room())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        self.shared.replace(Slot::Stopped);
        if let Some(maker) = self.maker.take()
            && maker.join().is_err()
        {
            warn!("the maker of spare segments panicked");
        }
    }
}

const UNPOISONED: &str = "nothing panics while it holds the slot";

impl Shared {
    /// Waits until one is wanted, and tries to make it. False when there is nothing more to do.
    fn make_next(&self) -> bool {
        let idle = |slot: &mut Slot| matches!(slot, Slot::Idle | Slot::Made(_));
        let length = match &*self.changed.wait_while(self.slot(), idle).expect(UNPOISONED) {
            Slot::Wanted(length) | Slot::Short(length, _) => *length,
            Slot::Idle | Slot::Made(_) | Slot::Stopped => return false,
        };
        let room = self.room.lock().expect("nothing panics while it makes room");
        let made = Blank::make(&*self.disk, &self.path, length);
        drop(room);
        let mut slot = self.slot();
        if matches!(*slot, Slot::Stopped) {
            drop(slot);
            if let Ok(blank) = made {
                self.discard(blank);
            }
            return false;
        }
        let was_short = matches!(*slot, Slot::Short(..));
        match made {
            Ok(blank) => {
                if was_short {
                    info!("there is room for the log again");
                }
                *slot = Slot::Made(blank);
            }
            Err(error) => {
                if !was_short {
                    warn!(%error, "failed to make room for the log, taking only deletions until it works");
                }
                *slot = Slot::Short(length, error.to_string().into());
            }
        }
        self.changed.notify_all();
        drop(slot);
        (self.notify)();
        let short = |slot: &mut Slot| matches!(slot, Slot::Short(..));
        drop(self.changed.wait_timeout_while(self.slot(), self.retry, short).expect(UNPOISONED));
        true
    }

    fn replace(&self, with: Slot) {
        let mut slot = self.slot();
        // One that was made goes before the maker may start on another, which will have the same name.
        if let Slot::Made(_) = *slot
            && let Slot::Made(blank) = mem::replace(&mut *slot, Slot::Idle)
        {
            self.discard(blank);
        }
        *slot = with;
        drop(slot);
        self.changed.notify_all();
    }

    fn discard(&self, blank: Blank) {
        if let Err(error) = blank.discard(&*self.disk) {
            warn!(%error, "failed to remove the spare segment, the next start will");
        }
    }

    /// The slot when nothing is being made.
    fn known(&self) -> MutexGuard<'_, Slot> {
        self.changed.wait_while(self.slot(), |slot| matches!(slot, Slot::Wanted(_))).expect(UNPOISONED)
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().expect(UNPOISONED)
    }
}
