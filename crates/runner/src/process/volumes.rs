//! The volumes of a pod on disk.

mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Component, Path, PathBuf},
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::{HostPathVolumeSource, Pod, Volume, VolumeMount},
    apimachinery::pkg::api::resource::Quantity,
};
use rules::node::{
    downward::Place,
    expand::expand,
    volume::{self, Content, Files},
};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags},
};
use tracing::debug;

use self::written::Written;
use super::objects::Objects;
use crate::{
    init::{Confined, Mount},
    private, threads,
};

/// Where a pod's own volumes on disk are, below its directory. They are there for as long as their pod.
const DISK: &str = "volumes";
/// Where those are that come from objects, and are made from them by every node anew.
pub(super) const OBJECTS: &str = "objects";
/// Directories that are in memory are below this one.
pub(super) const MEMORY: &str = "/dev/shm";
/// One of them is no volume, and so called what none can be: what containers share by it.
const SHARED: &str = "..shared";
const SHARED_BYTES: u64 = 64 * 1024 * 1024;

/// The volumes of one pod.
#[derive(Debug)]
pub(super) struct Volumes {
    disk: PathBuf,
    objects: PathBuf,
    memory: PathBuf,
    /// Where each volume is.
    places: BTreeMap<String, PathBuf>,
    /// Those that come from objects.
    written: BTreeMap<String, Written>,
    tokens: BTreeMap<(String, String), Token>,
}

#[derive(Clone, Debug)]
struct Token {
    text: String,
    renew: Timestamp,
}

/// Why a pod's volumes are not ready.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    Missing { volume: String, why: String },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Io { volume: String, source: io::Error },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {source}")]
    Api { volume: String, source: kube::Error },
}

impl Volumes {
    /// None yet; they will be below the pod's directory.
    pub(super) fn new(pod: &Path, uid: &str) -> Volumes {
        Volumes {
            disk: pod.join(DISK),
            objects: pod.join(OBJECTS),
            memory: memory_of(uid),
            places: BTreeMap::new(),
            written: BTreeMap::new(),
            tokens: BTreeMap::new(),
        }
    }

    /// Makes volumes that are not there, and brings those up to date that come from objects. Returns when to do so again.
    pub(super) async fn update(
        &mut self,
        pod: &Pod,
        objects: &Objects,
        place: &Place<'_>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes {
            self.update_one(pod, volume, objects, place, now).await?;
        }
        Ok(self.tokens.values().map(|token| token.renew).min())
    }

    async fn update_one(
        &mut self,
        pod: &Pod,
        volume: &Volume,
        objects: &Objects,
        place: &Place<'_>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let name = &volume.name;
        let io = |source| Error::Io { volume: name.clone(), source };
        let missing = |why: String| Error::Missing { volume: name.clone(), why };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let data = objects.data(namespace, volume::sources(volume)).await;
        let data = data.map_err(|source| Error::Api { volume: name.clone(), source })?;
        if let Some(files) = volume::files(volume, pod, &data, place).map_err(missing)? {
            let files = self.with_tokens(name, files, pod, objects, now).await;
            let files = files.map_err(|source| Error::Api { volume: name.clone(), source })?;
            let directory = self.objects.join(name);
            let known = self.written.remove(name).unwrap_or_else(|| Written::new(directory.clone()));
            let group = group_of(pod);
            let (written, done) = threads::blocking(move || {
                let mut volume = known;
                let done = if volume.has(&files) { Ok(()) } else { volume.write(files, group) };
                Ok((volume, done))
            })
            .await
            .map_err(io)?;
            self.written.insert(name.clone(), written);
            done.map_err(io)?;
            self.places.insert(name.clone(), directory);
            return Ok(());
        }
        if self.places.contains_key(name) {
            return Ok(());
        }
        let directory = if let Some(empty) = &volume.empty_dir {
            let is_in_memory = empty.medium.as_deref() == Some("Memory") && Path::new(MEMORY).is_dir();
            let directory = if is_in_memory { self.memory.join(name) } else { self.disk.join(name) };
            let (most, group) = (empty.size_limit.as_ref().and_then(size), group_of(pod));
            let memory = self.memory.clone();
            let make = move || {
                let made = if is_in_memory {
                    private::make(&memory).and_then(|()| in_memory(&directory, most, group))
                } else {
                    on_disk(&directory, group)
                };
                made.map(|()| directory)
            };
            threads::blocking(make).await.map_err(io)?
        } else if let Some(path) = volume.host_path.clone() {
            threads::blocking(move || Ok(host_path(&path))).await.map_err(io)?.map_err(missing)?
        } else {
            return Err(missing("volumes of this kind are not supported by this node".to_owned()));
        };
        self.places.insert(name.clone(), directory);
        Ok(())
    }

    /// The bytes of files, with tokens, which are renewed when most of their time is over.
    async fn with_tokens(
        &mut self,
        volume: &str,
        files: Files,
        pod: &Pod,
        objects: &Objects,
        now: Timestamp,
    ) -> kube::Result<written::Files> {
        let mut all = BTreeMap::new();
        for (path, file) in files {
            let bytes = match file.content {
                Content::Bytes(bytes) => bytes,
                Content::Token { audience, seconds } => {
                    let key = (volume.to_owned(), path.clone());
                    let known = self.tokens.get(&key).filter(|token| token.renew > now).cloned();
                    let token = if let Some(token) = known {
                        token
                    } else {
                        let (text, seconds) = objects.token(pod, audience.as_deref(), seconds).await?;
                        let wait = SignedDuration::from_secs(seconds.saturating_mul(8) / 10);
                        Token { text, renew: now.saturating_add(wait).unwrap_or(Timestamp::MAX) }
                    };
                    self.tokens.insert(key, token.clone());
                    token.text.into_bytes()
                }
            };
            all.insert(path, (bytes, file.mode));
        }
        Ok(all)
    }

    /// What a container mounts, outer before inner. Nobody changes what comes from objects but the node.
    pub(super) fn mounts(
        &self,
        wanted: &[VolumeMount],
        variables: &BTreeMap<String, String>,
    ) -> Result<Vec<Mount>, String> {
        let mut mounts = Vec::new();
        for mount in wanted {
            let volume = self.places.get(&mount.name);
            let volume = volume.ok_or_else(|| format!("volume {:?} is not there", mount.name))?;
            let expanded = mount
                .sub_path_expr
                .as_ref()
                .map(|path| expand(path, |name| variables.get(name).map(String::as_str)));
            let inside = expanded.as_ref().or(mount.sub_path.as_ref()).filter(|path| !path.is_empty());
            let inside = inside.map(|path| below(volume, path)).transpose()?;
            mounts.push(Mount {
                source: volume.clone(),
                inside,
                target: PathBuf::from(&mount.mount_path),
                read_only: mount.read_only == Some(true) || self.written.contains_key(&mount.name),
            });
        }
        mounts.sort_by_key(|mount| mount.target.components().count());
        Ok(mounts)
    }

    /// What all containers of the pod have at `/dev/shm`: as much as one has that is alone. `None` where there is no such
    /// place on the machine.
    pub(super) fn shared_memory(&self) -> io::Result<Option<PathBuf>> {
        let directory = self.memory.join(SHARED);
        if !Path::new(MEMORY).is_dir() || directory.exists() {
            return Ok(Some(directory).filter(|directory| directory.exists()));
        }
        private::make(&self.memory)?;
        fs::create_dir_all(&directory)?;
        bound(&directory, SHARED_BYTES)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777))?;
        Ok(Some(directory))
    }

    /// What files in volumes say, as far as they can be read.
    pub(super) async fn texts(
        &self,
        files: BTreeSet<(String, String)>,
    ) -> BTreeMap<(String, String), String> {
        let places = self.places.clone();
        let read = move || {
            let text = |(volume, path): &(String, String)| {
                let volume = Confined::volume(places.get(volume)?).ok()?;
                volume.read(Path::new(path)).inspect_err(|error| debug!(path, %error, "cannot be read")).ok()
            };
            Ok(files.into_iter().filter_map(|file| Some((file.clone(), text(&file)?))).collect())
        };
        threads::blocking(read).await.unwrap_or_default()
    }

    /// Where a volume is, if it is there.
    pub(super) fn place(&self, name: &str) -> Option<&PathBuf> {
        self.places.get(name)
    }

    /// Removes everything.
    pub(super) async fn remove(&mut self) -> io::Result<()> {
        self.places.clear();
        self.written.clear();
        let (disk, objects, memory) = (self.disk.clone(), self.objects.clone(), self.memory.clone());
        threads::blocking(move || {
            remove_tree(&disk)?;
            remove_tree(&objects)?;
            remove_memory(&memory)
        })
        .await
    }
}

/// Where a pod's directories in memory are.
pub(super) fn memory_of(uid: &str) -> PathBuf {
    Path::new(MEMORY).join(format!("ferry-{uid}"))
}

/// Removes a pod's directories in memory. Everybody may put something there: what others have called so is none of them.
pub(super) fn remove_memory(memory: &Path) -> io::Result<()> {
    let volumes = match fs::read_dir(memory) {
        _ if !private::is_ours(memory) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        volumes => volumes?,
    };
    for volume in volumes {
        // Most are plain directories.
        let _ = rustix::mount::unmount(volume?.path(), UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    remove_tree(memory)
}

/// Lets a directory in memory hold so many bytes and no more, where this user may say so.
fn bound(directory: &Path, bytes: u64) -> io::Result<()> {
    let options = CString::new(format!("mode=0777,size={bytes}")).map_err(io::Error::other)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match rustix::mount::mount("tmpfs", directory, "tmpfs", flags, options.as_c_str()) {
        Err(Errno::PERM) => {
            debug!(directory = %directory.display(), "the size of a volume in memory is not limited");
            Ok(())
        }
        mounted => Ok(mounted?),
    }
}

fn size(limit: &Quantity) -> Option<u64> {
    let bytes = limit.0.parse::<types::Quantity>().ok()?.units_saturating();
    u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

fn group_of(pod: &Pod) -> Option<u32> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    context.and_then(|context| context.fs_group).and_then(|group| u32::try_from(group).ok())
}

/// A path in a volume, which is made if it is not there and does not lead out of it. Others may change the volume at any time,
/// so that whoever opens it looks again.
fn below(volume: &Path, path: &str) -> Result<PathBuf, String> {
    let path = Path::new(path);
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("subPath {:?} must stay in its volume", path.display()));
    }
    let found = Confined::volume(volume).and_then(|confined| match confined.open(path) {
        Err(Errno::NOENT) => {
            let mode = fs::metadata(volume)?.permissions().mode() & 0o7777;
            confined.make_directories(path, mode).map(drop)
        }
        found => Ok(found.map(drop)?),
    });
    match found.map_err(|error| (error.raw_os_error(), error)) {
        Ok(()) => Ok(path.to_owned()),
        Err((Some(code), _)) if [Errno::XDEV, Errno::LOOP].map(Errno::raw_os_error).contains(&code) => {
            Err(format!("subPath {:?} leads out of its volume", path.display()))
        }
        Err((_, error)) => Err(format!("failed to prepare subPath {}: {error}", path.display())),
    }
}

/// Makes an empty directory on disk in which everybody may write. One that is there stays as its pod has left it.
fn on_disk(directory: &Path, group: Option<u32>) -> io::Result<()> {
    if directory.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    // Nobody who is killed leaves half of one. No volume is called so.
    let new = directory.with_file_name("..new");
    remove_tree(&new)?;
    fs::create_dir_all(&new)?;
    open_to_all(&new, group)?;
    fs::rename(new, directory)
}

/// Makes one in memory, which holds so many bytes at most.
fn in_memory(directory: &Path, most: Option<u64>, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if let Some(bytes) = most {
        bound(directory, bytes)?;
    }
    open_to_all(directory, group)
}

fn open_to_all(directory: &Path, group: Option<u32>) -> io::Result<()> {
    let mut mode = 0o777;
    if let Some(group) = group {
        chown(directory, None, Some(group))?;
        mode |= 0o2000;
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(mode))
}

fn host_path(source: &HostPathVolumeSource) -> Result<PathBuf, String> {
    let path = PathBuf::from(&source.path);
    let kind = source.type_.as_deref().unwrap_or_default();
    let failed = |error: io::Error| format!("hostPath {}: {error}", path.display());
    match kind {
        "" | "DirectoryOrCreate" if !path.exists() => fs::create_dir_all(&path).map_err(failed)?,
        "FileOrCreate" if !path.exists() => drop(fs::File::create(&path).map_err(failed)?),
        _ => {}
    }
    let fits = match kind {
        "Directory" | "DirectoryOrCreate" => path.is_dir(),
        "File" | "FileOrCreate" => path.is_file(),
        _ => path.exists(),
    };
    if fits {
        Ok(path)
    } else {
        Err(format!("hostPath type check failed: {} is not a {kind}", path.display()))
    }
}

/// Removes a directory with all that is in it, also where the kernel has left directories that nobody may look into.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_tree(path)?;
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

fn open_tree(path: &Path) -> io::Result<()> {
    if !path.symlink_metadata()?.is_dir() {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    fs::read_dir(path)?.try_for_each(|entry| open_tree(&entry?.path()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_stay_in_their_volume() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir(&volume).expect("a directory");
        let host = directory.path().join("host");
        fs::create_dir(&host).expect("a directory");
        symlink(&host, volume.join("out")).expect("a link");
        assert!(below(&volume, "new/one").is_ok() && volume.join("new/one").is_dir());
        assert!(below(&volume, "../other").is_err());
        for path in ["out", "out/new"] {
            assert_eq!(below(&volume, path), Err(format!("subPath {path:?} leads out of its volume")));
        }
        assert_eq!(fs::read_dir(host).expect("entries").count(), 0, "nothing is made there");
    }

    #[test]
    fn volumes_in_memory_are_neither_entered_nor_made_by_others() {
        let pod = tempfile::tempdir().expect("a directory");
        let volumes = Volumes::new(pod.path(), &format!("private-test-{}", std::process::id()));
        let Some(shared) = volumes.shared_memory().expect("made") else { return };
        assert!(shared.is_dir());
        assert_eq!(fs::metadata(&volumes.memory).expect("it is there").permissions().mode() & 0o777, 0o700);
        remove_memory(&volumes.memory).expect("removed");
        assert!(!volumes.memory.exists());
        // Whoever knows a pod's name can be there first.
        if rustix::process::geteuid().is_root() {
            let kept = pod.path().join("kept");
            fs::create_dir(&kept).expect("a directory");
            symlink(pod.path(), &volumes.memory).expect("a link");
            std::os::unix::fs::lchown(&volumes.memory, Some(65534), None).expect("another's");
            let refused = volumes.shared_memory().expect_err("it is another's");
            assert!(refused.to_string().contains("belongs to another user"), "{refused}");
            remove_memory(&volumes.memory).expect("left alone");
            assert!(kept.exists() && volumes.memory.is_symlink());
            fs::remove_file(&volumes.memory).expect("removed");
        }
    }
}
