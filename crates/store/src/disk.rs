//! The few things that a store asks of a file system, as a trait, so that tests can be the disk that fails.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// A file system. [`Os`] is the real one.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Makes a directory, and those above it, if it is not there.
    fn create_dir(&self, dir: &Path) -> io::Result<()>;
    /// Takes a lock that nobody else can take until the guard is dropped. The error is the holder's name if somebody
    /// has it.
    fn lock(&self, path: &Path) -> io::Result<Result<Box<dyn Send>, String>>;
    /// The names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// The content of a file, of a longer one the first `most` bytes.
    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>>;
    /// A new empty file for writing; one of this name is emptied.
    fn create(&self, path: &Path) -> io::Result<Box<dyn File>>;
    /// Gives a file another name, replacing what had that name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// A file open for writing.
pub trait File: Send {
    /// Writes all bytes at an offset.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes what was written durable.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file off.
    fn truncate(&mut self, length: u64) -> io::Result<()>;
}

/// The file system of the operating system. Files are readable by their owner only.
#[derive(Debug, Clone, Copy, Default)]
pub struct Os;

impl Disk for Os {
    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Result<Box<dyn Send>, String>> {
        let mut file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                write!(file, "process {}", std::process::id())?;
                Ok(Ok(Box::new(file)))
            }
            Err(fs::TryLockError::WouldBlock) => {
                let mut holder = String::new();
                file.read_to_string(&mut holder)?;
                Ok(Err(if holder.is_empty() { "another process".to_owned() } else { holder }))
            }
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            // A name that is not text is none of ours.
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn read(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let file = fs::File::open(path)?;
        let length = file.metadata()?.len().min(most);
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn File>> {
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        fs::File::open(dir)?.sync_all()
    }
}

impl File for fs::File {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }
}
