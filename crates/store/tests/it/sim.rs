//! A disk in memory that can be filled, can fail, can be held up, and can lose power: what was not synced is then lost in
//! part or whole, write by write, as chance has it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use store::disk::{Disk, File};

#[derive(Debug, Clone, Default)]
pub(crate) struct Sim(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    world: Mutex<World>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct World {
    /// By name: what a reader sees now, and what is there after a power loss.
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    files: Vec<Content>,
    locks: BTreeSet<PathBuf>,
    faults: Faults,
    syncs: u64,
    /// Syncs that wait because they are held.
    held: usize,
    dead: bool,
}

#[derive(Debug, Default, Clone)]
struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Truncate(usize),
}

/// What goes wrong.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Faults {
    /// All files together may have this many bytes.
    pub(crate) capacity: Option<usize>,
    /// Writes over what is already there find no space, as on file systems that copy on write.
    pub(crate) no_overwrite: bool,
    /// How syncs of segments in use go.
    pub(crate) syncs: Syncs,
    /// How syncs of the segment to come go.
    pub(crate) spare_syncs: Syncs,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncs {
    #[default]
    Work,
    Wait,
    Fail,
    Panic,
}

impl Sim {
    pub(crate) fn set(&self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.world().faults);
        self.0.changed.notify_all();
    }

    /// How many syncs of segments in use were asked for.
    pub(crate) fn syncs(&self) -> u64 {
        self.world().syncs
    }

    /// Waits until a sync is held.
    pub(crate) fn wait_held(&self) {
        drop(self.0.changed.wait_while(self.world(), |world| world.held == 0).expect("not poisoned"));
    }

    /// How many bytes all files have.
    pub(crate) fn used(&self) -> usize {
        self.world().used()
    }

    pub(crate) fn names(&self) -> Vec<PathBuf> {
        self.world().names.keys().cloned().collect()
    }

    pub(crate) fn content(&self, path: &Path) -> Vec<u8> {
        let world = self.world();
        world.files[world.names[path]].now.clone()
    }

    /// A disk of its own with the same files, one of them new or with another content.
    pub(crate) fn with(&self, path: &Path, content: Vec<u8>) -> Sim {
        let copy = self.copy();
        let mut world = copy.world();
        let id = world.files.len();
        world.files.push(Content { now: content.clone(), durable: content, unsynced: Vec::new() });
        world.names.insert(path.to_owned(), id);
        world.durable_names.insert(path.to_owned(), id);
        drop(world);
        copy
    }

    /// A disk of its own with the same files, but without one of them.
    pub(crate) fn without(&self, path: &Path) -> Sim {
        let copy = self.copy();
        copy.world().names.remove(path);
        copy.world().durable_names.remove(path);
        copy
    }

    /// A disk of its own with the same files.
    pub(crate) fn copy(&self) -> Sim {
        let world = self.world();
        let files = world.files.iter().map(|file| Content {
            now: file.now.clone(),
            durable: file.now.clone(),
            unsynced: Vec::new(),
        });
        let copy = World {
            names: world.names.clone(),
            durable_names: world.names.clone(),
            files: files.collect(),
            ..World::default()
        };
        Sim(Arc::new(Shared { world: Mutex::new(copy), changed: Condvar::new() }))
    }

    /// From now on nothing reaches this disk.
    pub(crate) fn die(&self) {
        self.world().dead = true;
        self.0.changed.notify_all();
    }

    /// The disk as it is found after the power was lost.
    pub(crate) fn after_power_loss(&self, mut chance: impl FnMut(usize) -> usize) -> Sim {
        let world = self.world();
        // Of the changed names all, none or some are found.
        let mut names = world.durable_names.clone();
        let changed: BTreeSet<_> = names.keys().chain(world.names.keys()).cloned().collect();
        let pending = changed.into_iter().filter(|name| names.get(name) != world.names.get(name));
        for name in pending.collect::<Vec<_>>() {
            if chance(2) == 0 {
                match world.names.get(&name) {
                    Some(id) => drop(names.insert(name, *id)),
                    None => drop(names.remove(&name)),
                }
            }
        }
        let files = world.files.iter().map(|file| {
            let mut content = file.durable.clone();
            for change in &file.unsynced {
                match (chance(3), change) {
                    (0, _) => {}
                    (1, change) => apply(&mut content, change),
                    (_, Change::Truncate(length)) => apply(&mut content, &Change::Truncate(*length)),
                    (_, Change::Write(offset, bytes)) => {
                        let torn = bytes[..chance(bytes.len() + 1)].to_vec();
                        apply(&mut content, &Change::Write(*offset, torn));
                    }
                }
            }
            Content { now: content.clone(), durable: content, unsynced: Vec::new() }
        });
        let after =
            World { names: names.clone(), durable_names: names, files: files.collect(), ..World::default() };
        Sim(Arc::new(Shared { world: Mutex::new(after), changed: Condvar::new() }))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.world.lock().expect("not poisoned")
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, World>> {
        let world = self.world();
        if world.dead { Err(io::Error::other("the power is off")) } else { Ok(world) }
    }
}

impl World {
    fn used(&self) -> usize {
        self.names.values().map(|id| self.files[*id].now.len()).sum()
    }

    fn find(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate(length) => content.truncate(*length),
        Change::Write(offset, bytes) => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
    }
}

impl Disk for Sim {
    fn create_dir(&self, _: &Path) -> io::Result<()> {
        self.alive().map(drop)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<Box<dyn Send>, String>> {
        if !self.alive()?.locks.insert(path.to_owned()) {
            return Ok(Err("somebody".to_owned()));
        }
        Ok(Ok(Box::new(Lock { disk: self.clone(), path: path.to_owned() })))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let world = self.alive()?;
        let names = world.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names.map(|path| path.file_name().expect("a name").to_str().expect("text").to_owned()).collect())
    }

    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let world = self.alive()?;
        let content = &world.files[world.find(path)?].now;
        Ok(content[..content.len().min(usize::try_from(most).unwrap_or(usize::MAX))].to_vec())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let mut world = self.alive()?;
        let id = world.files.len();
        world.files.push(Content::default());
        world.names.insert(path.to_owned(), id);
        Ok(Box::new(Handle { disk: self.clone(), id }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        let id = world.find(from)?;
        world.names.remove(from);
        world.names.insert(to.to_owned(), id);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.find(path)?;
        world.names.remove(path);
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        let mut world = self.alive()?;
        world.durable_names = world.names.clone();
        Ok(())
    }
}

struct Lock {
    disk: Sim,
    path: PathBuf,
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.world().locks.remove(&self.path);
    }
}

struct Handle {
    disk: Sim,
    id: usize,
}

impl Handle {
    fn change(&mut self, change: Change) -> io::Result<()> {
        let mut world = self.disk.alive()?;
        let file = &mut world.files[self.id];
        apply(&mut file.now, &change);
        file.unsynced.push(change);
        Ok(())
    }
}

impl File for Handle {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).expect("small files");
        let world = self.disk.alive()?;
        let (faults, used) = (world.faults, world.used());
        let overwrites = offset < world.files[self.id].now.len();
        let growth = (offset + bytes.len()).saturating_sub(world.files[self.id].now.len());
        drop(world);
        if faults.no_overwrite && overwrites {
            self.change(Change::Write(offset, bytes[..bytes.len() / 2].to_vec()))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(capacity) = faults.capacity
            && growth > 0
            && used + growth > capacity
        {
            let fitting = (bytes.len() - growth) + capacity.saturating_sub(used);
            self.change(Change::Write(offset, bytes[..fitting.min(bytes.len())].to_vec()))?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.change(Change::Write(offset, bytes.to_vec()))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut world = self.disk.alive()?;
        let has_name = |world: &World, is: fn(&Path) -> bool| {
            world.names.iter().any(|(name, id)| *id == self.id && is(name))
        };
        let is_segment = has_name(&world, |name| name.extension() == Some("log".as_ref()));
        let is_spare = has_name(&world, |name| name.ends_with("spare.tmp"));
        let kind = move |world: &World| match (is_segment, is_spare) {
            (true, _) => world.faults.syncs,
            (_, true) => world.faults.spare_syncs,
            (false, false) => Syncs::Work,
        };
        world.syncs += u64::from(is_segment);
        if kind(&world) == Syncs::Wait {
            world.held += 1;
            self.disk.0.changed.notify_all();
            let holds = |world: &mut World| kind(world) == Syncs::Wait && !world.dead;
            world = self.disk.0.changed.wait_while(world, holds).expect("not poisoned");
            world.held -= 1;
        }
        if kind(&world) == Syncs::Panic {
            drop(world);
            panic!("on purpose");
        }
        if kind(&world) == Syncs::Fail || world.dead {
            return Err(io::Error::other("input/output error"));
        }
        let file = &mut world.files[self.id];
        file.durable = file.now.clone();
        file.unsynced.clear();
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.change(Change::Truncate(usize::try_from(length).expect("small files")))
    }
}
