//! Directories that no path leads out of, whatever links containers have made in there, or make at this moment.

use std::{
    fs,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, fchmod, mkdirat, openat, openat2},
    io::Errno,
};

/// How often the kernel may say that something has moved while it looked.
const TRIES: usize = 100;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1024 * 1024;

/// A directory, and what becomes of links that lead out of it.
#[derive(Debug)]
pub(crate) struct Confined {
    top: OwnedFd,
    links: ResolveFlags,
}

impl Confined {
    /// A directory of ours in which others may do what they like. Links that lead out of it lead nowhere.
    pub(crate) fn volume(path: &Path) -> io::Result<Confined> {
        Confined::new(path, ResolveFlags::BENEATH)
    }

    /// Our root. Links from the root stay in there; those that the kernel makes to other places lead nowhere.
    pub(super) fn root() -> io::Result<Confined> {
        Confined::new(Path::new("/"), ResolveFlags::IN_ROOT)
    }

    fn new(path: &Path, links: ResolveFlags) -> io::Result<Confined> {
        let top = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Confined { top, links: links | ResolveFlags::NO_MAGICLINKS })
    }

    fn open_with(&self, path: &Path, flags: OFlags, mode: Mode) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        for _ in 0..TRIES {
            match openat2(&self.top, path, flags | OFlags::CLOEXEC, mode, self.links) {
                Err(Errno::AGAIN) => {}
                done => return done,
            }
        }
        Err(Errno::AGAIN)
    }

    /// What is at this path, to be mounted or looked at.
    pub(crate) fn open(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        self.open_with(path, OFlags::PATH, Mode::empty())
    }

    /// The text of a file, if it is one and not too large.
    pub(crate) fn read(&self, path: &Path) -> io::Result<String> {
        // Nobody waits for whoever may write to a pipe.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = fs::File::from(self.open_with(path, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() > LARGEST {
            return Err(io::Error::other("it is no file, or too large"));
        }
        let mut text = String::new();
        file.by_ref().take(LARGEST).read_to_string(&mut text)?;
        Ok(text)
    }

    /// What is at a path, after directories are made that are missing.
    pub(crate) fn make_directories(&self, path: &Path, mode: u32) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(mode);
        let (mut path_so_far, mut here) = (PathBuf::new(), self.open(Path::new("."))?);
        for part in path.components() {
            let name = match part {
                Component::Normal(name) => name,
                Component::ParentDir => "..".as_ref(),
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
            };
            path_so_far.push(name);
            here = match self.open(&path_so_far) {
                Err(Errno::NOENT) => {
                    match mkdirat(&here, name, mode) {
                        Ok(()) => {
                            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                            // As it is said, whatever this process usually leaves out.
                            fchmod(openat(&here, name, flags, Mode::empty())?, mode)?;
                        }
                        Err(Errno::EXIST) => {} // somebody else was faster, or it is a link to nowhere
                        Err(error) => return Err(error.into()),
                    }
                    self.open(&path_so_far)?
                }
                found => found?,
            };
        }
        Ok(here)
    }

    /// What is at this path; a file if nothing was.
    pub(super) fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        match self.open(path) {
            Err(Errno::NOENT) => {}
            found => return Ok(found?),
        }
        if let Some(parent) = path.parent() {
            self.make_directories(parent, 0o755)?;
        }
        // Nobody waits for whoever may be at the other end of a pipe that somebody has put here meanwhile.
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = fs::File::from(self.open_with(path, flags, Mode::from_raw_mode(0o644))?);
        fchmod(file, Mode::from_raw_mode(0o644))?;
        Ok(self.open(path)?)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::symlink,
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use rustix::fs::{RenameFlags, fstat, renameat_with, stat};

    use super::*;

    #[test]
    fn links_that_lead_out_lead_nowhere_and_nothing_is_made_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let (volume, host) = (directory.path().join("v"), directory.path().join("host"));
        fs::create_dir_all(volume.join("deep")).expect("a directory");
        fs::create_dir(&host).expect("a directory");
        for (to, link) in [("../host", "up"), ("deep", "within"), ("/proc/self/root", "magic")] {
            symlink(to, volume.join(link)).expect("a link");
        }
        symlink(&host, volume.join("out")).expect("a link");
        let confined = Confined::volume(&volume).expect("a volume");
        for path in ["up", "out", "magic", "up/new", "out/new", "magic/tmp/new", "../host"] {
            confined.open(Path::new(path)).expect_err(path);
        }
        for path in ["up/new", "out/new", "within/../../host/new"] {
            confined.make_directories(Path::new(path), 0o755).expect_err(path);
        }
        assert_eq!(fs::read_dir(&host).expect("entries").count(), 0);
        confined.make_directories(Path::new("within/new/er"), 0o2777).expect("directories");
        let mode = stat(volume.join("deep/new/er")).expect("a directory").st_mode;
        assert_eq!(mode & 0o7777, 0o2777);
    }

    #[test]
    fn only_files_that_are_inside_are_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir(&volume).expect("a directory");
        fs::write(directory.path().join("host"), "secret").expect("a file");
        fs::write(volume.join("own"), "text").expect("a file");
        symlink("own", volume.join("link")).expect("a link");
        symlink("../host", volume.join("out")).expect("a link");
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(CWD, volume.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        fs::File::create(volume.join("large")).expect("a file").set_len(LARGEST + 1).expect("a length");
        let confined = Confined::volume(&volume).expect("a volume");
        for path in ["own", "link"] {
            assert_eq!(confined.read(Path::new(path)).expect("text"), "text", "{path}");
        }
        for path in ["out", "pipe", "large", ".", "none", "../host"] {
            confined.read(Path::new(path)).expect_err(path);
        }
    }

    /// Whoever looks first and opens later can be fooled (CVE-2021-25741).
    #[test]
    fn what_is_exchanged_meanwhile_is_inside_or_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("v");
        fs::create_dir_all(volume.join("one/part")).expect("a directory");
        fs::create_dir_all(directory.path().join("host/part")).expect("a directory");
        symlink(directory.path().join("host"), volume.join("other")).expect("a link");
        let inside = stat(volume.join("one/part")).expect("a directory").st_ino;
        let confined = Confined::volume(&volume).expect("a volume");
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let (one, other) = (volume.join("one"), volume.join("other"));
                while !done.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("an exchange");
                }
            });
            for _ in 0..10_000 {
                if let Ok(found) = confined.open(Path::new("one/part")) {
                    assert_eq!(fstat(found).expect("a directory").st_ino, inside);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
