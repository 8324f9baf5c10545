//! What containers write to their outputs: kept on disk in the format of the container runtime interface, rotated, and
//! read as a stream.
//!
//! A line is `TIME STREAM F TEXT`; `P` instead of `F` says that the line goes on in the next one.

mod read;
mod write;

use std::path::{Path, PathBuf};

use tokio::sync::watch;

pub use read::Options;
pub(crate) use read::read;
pub(crate) use write::pump;

/// A file that grows so long is put aside.
const ROTATE_AT: u64 = 10 * 1024 * 1024;
/// How many of them there are, the one that grows included.
const KEPT: usize = 5;
/// The longest piece of a line that is written at once.
const LONGEST: usize = 16 * 1024;

/// The log of one instance of a container.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    path: PathBuf,
    news: watch::Sender<News>,
}

/// How far a log has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    /// Bytes written in all.
    written: u64,
    /// How often a file was put aside.
    rotations: u64,
    /// Nothing more will come.
    ended: bool,
}

impl Log {
    /// A log at this path.
    pub(crate) fn new(path: PathBuf) -> Log {
        Log { path, news: watch::Sender::default() }
    }

    /// A log of which nothing more will come.
    pub(crate) fn ended(path: PathBuf) -> Log {
        Log { path, news: watch::Sender::new(News { ended: true, ..News::default() }) }
    }

    /// Says that nothing more will come.
    pub(crate) fn end(&self) {
        self.news.send_modify(|news| news.ended = true);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its files, oldest first.
    fn files(&self) -> Vec<PathBuf> {
        let aside = (1..KEPT).rev().map(|number| self.file(number)).filter(|path| path.exists());
        aside.chain([self.path.clone()]).collect()
    }

    /// The file after which so many were begun.
    fn file(&self, number: usize) -> PathBuf {
        if number == 0 { self.path.clone() } else { aside(&self.path, number) }
    }
}

/// Where a file is put aside.
fn aside(path: &Path, number: usize) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}
