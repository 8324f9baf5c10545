//! Where the files of embedded clusters are: beside their data, or where temporary files go.

mod scratch;

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use runner::private;

use crate::failure::{Code, Failure, Hint as _};
use scratch::Scratch;

/// Where the files of embedded clusters are.
pub(crate) enum Place {
    /// Where they stay.
    Data(PathBuf),
    /// Where they go with this process.
    Scratch(Scratch),
}

impl Place {
    /// Here, or among temporary files. What is there of clusters of these names, which have directories of their own, and
    /// of one that has this directory has to be ours.
    pub(crate) fn of<'a>(
        data: Option<&Path>,
        clusters: impl IntoIterator<Item = &'a str>,
    ) -> anyhow::Result<Place> {
        let Some(dir) = data else { return Place::scratch() };
        expect_usable(dir)?;
        for name in BESIDE.into_iter().chain(OF_ONE).chain(clusters) {
            let private = expect_private(&dir.join(name));
            let failed = || format!("failed to use the data in {}", dir.display());
            private.with_context(failed).hint(ANOTHER)?;
        }
        Ok(Place::Data(std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned())))
    }

    /// Among temporary files. Those of processes that were killed go first.
    pub(crate) fn scratch() -> anyhow::Result<Place> {
        let made = Scratch::make().context("failed to make a temporary directory");
        Ok(Place::Scratch(
            made.hint("TMPDIR says where temporary files go: it has to be there, and writable")?,
        ))
    }

    /// The directory of all of them.
    pub(crate) fn directory(&self) -> &Path {
        match self {
            Place::Data(dir) => dir,
            Place::Scratch(scratch) => scratch.directory(),
        }
    }

    /// Where nodes have the files of their pods.
    pub(crate) fn nodes(&self) -> PathBuf {
        nodes_in(self.directory())
    }

    /// Where it is said how the clusters are reached.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        kubeconfig_in(self.directory())
    }

    /// Removes what nobody will need any more, once the clusters have stopped. Blocks.
    pub(crate) fn leave(self) -> anyhow::Result<()> {
        match self {
            Place::Data(_) => Ok(()),
            Place::Scratch(scratch) => {
                let directory = scratch.directory().display().to_string();
                let removed = scratch.remove().with_context(|| format!("failed to remove {directory}"));
                removed.hint(format!("nobody needs it any more: rm -r {directory}"))
            }
        }
    }
}

/// What there is beside the data of several clusters, none of which can be called so.
pub(crate) const BESIDE: [&str; 2] = ["nodes", "kubeconfig"];
/// What a cluster has that has the directory to itself.
const OF_ONE: [&str; 2] = ["store", "credentials.json"];

/// What helps where a directory is not ours alone.
const ANOTHER: &str = "run it as the user whose data it is, or name another directory: --data DIR";

/// That nobody else can put other files where ours are, in a directory that is there. One that is not will be made for us
/// alone. Whoever can is told to keep others out rather than that it is done: the directory may be for other things, too.
fn expect_usable(dir: &Path) -> anyhow::Result<()> {
    let Ok(found) = dir.metadata() else { return Ok(()) };
    let us = rustix::process::geteuid().as_raw();
    let Some(why) = in_the_way(found.uid(), found.permissions().mode(), us) else { return Ok(()) };
    let message = format!("{} cannot hold data: {why}", dir.display());
    let dir = dir.display();
    let hint = format!("name one that is not there yet, such as --data {dir}/ferry; or chmod go-w {dir}");
    Err(Failure::new(Code::Error, message).hint(hint).into())
}

/// Why a directory of this owner and mode holds no data of ours. Root may do anything, and may have given a group the right
/// to write there, as it is with volumes. Where the sticky bit is set, nobody moves what is not theirs.
fn in_the_way(owner: u32, mode: u32, us: u32) -> Option<&'static str> {
    let is_sticky = mode & 0o1000 != 0;
    match owner {
        _ if owner != us && owner != 0 => Some("it belongs to another user"),
        _ if !is_sticky && mode & 0o002 != 0 => Some("everybody may write there"),
        _ if !is_sticky && owner == us && mode & 0o020 != 0 => Some("others may write there"),
        _ => None,
    }
}

/// That something is not there, or was made by this user; a directory is closed to others.
fn expect_private(path: &Path) -> io::Result<()> {
    match path.metadata().as_ref().map(Metadata::is_dir) {
        Ok(true) => private::make(path),
        Ok(false) => private::expect_ours(path),
        // Nothing is there, or what leads nowhere, or where we may not look: whoever wants it says so.
        Err(_) if path.is_symlink() => private::expect_ours(path),
        Err(_) => Ok(()),
    }
}

/// The kubeconfig of embedded clusters, beside their data.
pub(crate) fn kubeconfig_in(data: &Path) -> PathBuf {
    data.join("kubeconfig")
}

/// The files of the nodes of embedded clusters, beside their data.
pub(crate) fn nodes_in(data: &Path) -> PathBuf {
    data.join("nodes")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn directories_in_which_others_can_put_something_hold_no_data() {
        let (us, other) = (1000, 1001);
        for (owner, mode, expected) in [
            (us, 0o700, None),
            (us, 0o755, None),
            (us, 0o775, Some("others may write there")),
            (us, 0o777, Some("everybody may write there")),
            (us, 0o1777, None),
            (other, 0o755, Some("it belongs to another user")),
            (other, 0o1777, Some("it belongs to another user")),
            (0, 0o2775, None),
            (0, 0o777, Some("everybody may write there")),
            (0, 0o1777, None),
        ] {
            assert_eq!(in_the_way(owner, mode, us), expected, "{owner} {mode:o}");
        }
    }

    #[test]
    fn what_others_have_put_beside_data_is_refused_and_our_own_is_closed() {
        let all = tempfile::tempdir().expect("a directory");
        let of = || Place::of(Some(all.path()), ["east"]).map(drop).map_err(|error| error.to_string());
        of().expect("nothing is there");
        let nodes = nodes_in(all.path());
        fs::create_dir(&nodes).expect("a directory");
        fs::set_permissions(&nodes, fs::Permissions::from_mode(0o755)).expect("permissions");
        of().expect("ours");
        assert_eq!(fs::metadata(&nodes).expect("it is there").permissions().mode() & 0o777, 0o700);
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can give something away: the rest is skipped");
            return;
        }
        for name in ["nodes", "east", "credentials.json", "kubeconfig"] {
            let path = all.path().join(name);
            let _ = fs::remove_dir(&path);
            std::os::unix::fs::symlink("/nowhere", &path).expect("a link");
            std::os::unix::fs::lchown(&path, Some(65534), None).expect("given away");
            let refused = of().expect_err("another's");
            assert!(refused.ends_with(&format!("{name} belongs to another user (65534)")), "{refused}");
            fs::remove_file(path).expect("removed");
        }
    }
}
