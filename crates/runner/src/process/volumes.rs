//! The volumes of a pod on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::CString,
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
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

use super::objects::Objects;
use crate::{
    init::{Mount, Source},
    threads,
};

/// Directories that are in memory are below this one.
pub(super) const MEMORY: &str = "/dev/shm";
/// One of them is no volume, and so called what none can be: what containers share by it.
const SHARED: &str = "..shared";
const SHARED_BYTES: u64 = 64 * 1024 * 1024;
/// The link to what is valid now.
const DATA: &str = "..data";

/// The volumes of one pod.
#[derive(Debug)]
pub(super) struct Volumes {
    directory: PathBuf,
    memory: PathBuf,
    /// Where each volume is.
    places: BTreeMap<String, PathBuf>,
    /// What was written into those that come from objects.
    written: BTreeMap<String, BTreeMap<String, (Vec<u8>, u32)>>,
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
    /// None yet; they will be below `directory`.
    pub(super) fn new(directory: PathBuf, uid: &str) -> Volumes {
        Volumes {
            directory,
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
            if self.written.get(name) != Some(&files) {
                let directory = self.directory.join(name);
                let (place, group) = (directory.clone(), group_of(pod));
                let written = threads::blocking(move || write(&place, &files, group).map(|()| files)).await;
                self.written.insert(name.clone(), written.map_err(io)?);
                self.places.insert(name.clone(), directory);
            }
            return Ok(());
        }
        if self.places.contains_key(name) {
            return Ok(());
        }
        let directory = if let Some(empty) = &volume.empty_dir {
            let in_memory = empty.medium.as_deref() == Some("Memory") && Path::new(MEMORY).is_dir();
            let directory = if in_memory { self.memory.join(name) } else { self.directory.join(name) };
            let most = empty.size_limit.as_ref().and_then(size).filter(|_| in_memory);
            let group = group_of(pod);
            threads::blocking(move || empty_dir(&directory, most, group).map(|()| directory))
                .await
                .map_err(io)?
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
    ) -> kube::Result<BTreeMap<String, (Vec<u8>, u32)>> {
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

    /// What a container mounts, outer before inner.
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
            let source = match expanded.as_ref().or(mount.sub_path.as_ref()).filter(|path| !path.is_empty()) {
                Some(path) => below(volume, path)?,
                None => volume.clone(),
            };
            mounts.push(Mount {
                source: Source::Host(source),
                target: PathBuf::from(&mount.mount_path),
                read_only: mount.read_only == Some(true),
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
        fs::create_dir_all(&directory)?;
        bound(&directory, SHARED_BYTES)?;
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777))?;
        Ok(Some(directory))
    }

    /// Where a volume is, if it is there.
    pub(super) fn place(&self, name: &str) -> Option<&PathBuf> {
        self.places.get(name)
    }

    /// Removes everything.
    pub(super) async fn remove(&mut self) -> io::Result<()> {
        self.places.clear();
        self.written.clear();
        let (directory, memory) = (self.directory.clone(), self.memory.clone());
        threads::blocking(move || {
            remove_tree(&directory)?;
            remove_memory(&memory)
        })
        .await
    }
}

/// Where a pod's directories in memory are.
pub(super) fn memory_of(uid: &str) -> PathBuf {
    Path::new(MEMORY).join(format!("ferry-{uid}"))
}

/// Removes a pod's directories in memory.
pub(super) fn remove_memory(memory: &Path) -> io::Result<()> {
    let volumes = match fs::read_dir(memory) {
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

/// A path in a volume, which is made if it is not there and cannot lead out of it.
fn below(volume: &Path, path: &str) -> Result<PathBuf, String> {
    let path = Path::new(path);
    if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("subPath {:?} must stay in its volume", path.display()));
    }
    let whole = volume.join(path);
    if !whole.exists() {
        fs::create_dir_all(&whole)
            .map_err(|error| format!("failed to make subPath {}: {error}", path.display()))?;
    }
    let found = whole.canonicalize().map_err(|error| format!("subPath {}: {error}", path.display()))?;
    let root = volume.canonicalize().map_err(|error| error.to_string())?;
    if found.starts_with(root) {
        Ok(found)
    } else {
        Err(format!("subPath {:?} leads out of its volume", path.display()))
    }
}

/// Makes an empty directory in which everybody may write, in memory if it is to hold so many bytes at most.
fn empty_dir(directory: &Path, most: Option<u64>, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    if let Some(bytes) = most {
        bound(directory, bytes)?;
    }
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

/// Writes files so that whoever reads sees all old ones or all new ones: into a new directory, to which a link is then
/// moved; the names that people see lead through that link.
fn write(directory: &Path, files: &BTreeMap<String, (Vec<u8>, u32)>, group: Option<u32>) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    let old = fs::read_link(directory.join(DATA)).ok();
    let number = old
        .as_ref()
        .and_then(|old| old.to_str()?.strip_prefix("..")?.parse::<u64>().ok())
        .unwrap_or_default();
    let name = format!("..{}", number + 1);
    let new = directory.join(&name);
    remove_tree(&new)?;
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (path, (bytes, mode)) in files {
        let file = new.join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&file, bytes)?;
        let mut mode = *mode;
        if let Some(group) = group {
            chown(&file, None, Some(group))?;
            mode |= 0o040;
        }
        fs::set_permissions(&file, fs::Permissions::from_mode(mode))?;
    }
    let link = directory.join("..new");
    let _ = fs::remove_file(&link); // left by one who was interrupted here
    symlink(&name, &link)?;
    fs::rename(&link, directory.join(DATA))?;
    let tops: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let link = directory.join(top);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(top), link)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let is_ours = name.to_str().is_some_and(|name| name.starts_with("..") || tops.contains(name));
        if !is_ours {
            fs::remove_file(directory.join(name))?;
        }
    }
    match old {
        Some(old) => remove_tree(&directory.join(old)),
        None => Ok(()),
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
    use super::*;

    #[test]
    fn files_change_all_at_once_and_old_ones_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        let files = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o640))).collect()
        };
        write(&volume, &files(&[("a", "1"), ("deep/b", "2")]), None).expect("files");
        let read = |path: &str| fs::read_to_string(volume.join(path)).ok();
        assert_eq!((read("a").as_deref(), read("deep/b").as_deref()), (Some("1"), Some("2")));
        assert_eq!(fs::metadata(volume.join("a")).expect("a file").permissions().mode() & 0o777, 0o640);
        write(&volume, &files(&[("a", "3"), ("c", "4")]), None).expect("files");
        assert_eq!(
            (read("a").as_deref(), read("deep/b"), read("c").as_deref()),
            (Some("3"), None, Some("4"))
        );
        let mut left: Vec<String> = fs::read_dir(&volume)
            .expect("entries")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        left.sort();
        assert_eq!(left, ["..2", "..data", "a", "c"]);
    }

    #[test]
    fn paths_stay_in_their_volume() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir(&volume).expect("a directory");
        symlink("/etc", volume.join("out")).expect("a link");
        assert!(below(&volume, "new/one").expect("a path").ends_with("v/new/one"));
        assert!(below(&volume, "../other").is_err());
        assert!(below(&volume, "out").is_err());
    }
}
