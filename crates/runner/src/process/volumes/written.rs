//! Volumes whose files come from objects. The node writes them and pods read them: whatever else is found in one was left by
//! somebody, and says nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::{PermissionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use super::remove_tree;

/// The link to what is valid now.
const DATA: &str = "..data";

/// The bytes of files and their modes, by their path.
pub(super) type Files = BTreeMap<String, (Vec<u8>, u32)>;

/// One such volume, as the node has written it.
#[derive(Debug)]
pub(super) struct Written {
    directory: PathBuf,
    /// What is in it, once that is so to the end.
    files: Option<Files>,
    /// Which of all directories of files is the valid one; the first is 1.
    generation: u64,
    /// The names that people see, which are links.
    names: BTreeSet<String>,
}

impl Written {
    /// One at this path, where nothing is yet.
    pub(super) fn new(directory: PathBuf) -> Written {
        Written { directory, files: None, generation: 0, names: BTreeSet::new() }
    }

    pub(super) fn has(&self, files: &Files) -> bool {
        self.files.as_ref() == Some(files)
    }

    /// Writes files so that whoever reads sees all old ones or all new ones: into a new directory, to which a link is then
    /// moved; the names that people see lead through that link. What fails leaves nothing behind.
    pub(super) fn write(&mut self, files: Files, group: Option<u32>) -> io::Result<()> {
        self.files = None;
        fs::create_dir_all(&self.directory)?;
        fs::set_permissions(&self.directory, fs::Permissions::from_mode(0o755))?;
        let (old, new) = (self.generation, self.generation + 1);
        let path = self.path(new);
        let moved = fill(&path, &files, group).and_then(|()| self.lead_to(new));
        if moved.is_err() {
            remove_tree(&path)?;
            return moved;
        }
        self.generation = new;
        let named = self.name(&files);
        if old > 0 {
            remove_tree(&self.path(old))?;
        }
        named?;
        self.files = Some(files);
        Ok(())
    }

    fn path(&self, generation: u64) -> PathBuf {
        self.directory.join(format!("..{generation}"))
    }

    fn lead_to(&self, generation: u64) -> io::Result<()> {
        let link = self.directory.join("..new");
        let _ = fs::remove_file(&link); // left by an attempt that failed after it
        symlink(format!("..{generation}"), &link)?;
        fs::rename(&link, self.directory.join(DATA))
    }

    /// Makes the names that people see, and removes those that we have made and that nobody is to see any more.
    fn name(&mut self, files: &Files) -> io::Result<()> {
        let wanted: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
        self.names.retain(|name| {
            let stays = wanted.contains(name.as_str());
            if !stays {
                let _ = fs::remove_file(self.directory.join(name)); // one that is no link any more is not ours
            }
            stays
        });
        for name in wanted {
            let link = self.directory.join(name);
            if !self.names.contains(name) {
                // A mount of what was not there has made an empty directory.
                let _ = fs::remove_dir(&link);
            }
            match symlink(Path::new(DATA).join(name), link) {
                Ok(()) => drop(self.names.insert(name.to_owned())),
                // Ours; or somebody else's, who keeps it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Writes all files into a new directory.
fn fill(directory: &Path, files: &Files, group: Option<u32>) -> io::Result<()> {
    remove_tree(directory)?;
    fs::create_dir(directory)?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for (path, (bytes, mode)) in files {
        let file = directory.join(path);
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(pairs: &[(&str, &str)]) -> Files {
        pairs.iter().map(|(path, text)| ((*path).to_owned(), (text.as_bytes().to_vec(), 0o640))).collect()
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("entries");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn files_change_all_at_once_and_old_ones_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("v");
        let mut volume = Written::new(path.clone());
        volume.write(files(&[("a", "1"), ("deep/b", "2")]), None).expect("files");
        let read = |name: &str| fs::read_to_string(path.join(name)).ok();
        assert_eq!((read("a").as_deref(), read("deep/b").as_deref()), (Some("1"), Some("2")));
        assert_eq!(fs::metadata(path.join("a")).expect("a file").permissions().mode() & 0o777, 0o640);
        volume.write(files(&[("a", "3"), ("c", "4")]), None).expect("files");
        assert_eq!(
            (read("a").as_deref(), read("deep/b"), read("c").as_deref()),
            (Some("3"), None, Some("4"))
        );
        assert_eq!(names(&path), ["..2", "..data", "a", "c"]);
    }

    #[test]
    fn what_a_pod_leaves_in_a_volume_leads_nowhere() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, host) = (directory.path().join("v"), directory.path().join("host"));
        fs::create_dir(&host).expect("a directory");
        fs::write(host.join("file"), "kept").expect("a file");
        let mut volume = Written::new(path.clone());
        volume.write(files(&[("a", "1")]), None).expect("files");
        for name in ["..data", "..2"] {
            let _ = fs::remove_file(path.join(name));
            symlink(&host, path.join(name)).expect("a link");
        }
        volume.write(files(&[("b", "2")]), None).expect("files");
        volume.write(files(&[("b", "3")]), None).expect("files");
        assert_eq!(fs::read_to_string(host.join("file")).expect("the host's file"), "kept");
        assert_eq!(fs::read_to_string(path.join("b")).expect("a file"), "3");
        assert_eq!(names(&path), ["..3", "..data", "b"]);
    }

    /// Whoever mounts a file that is not there makes a directory of its name.
    #[test]
    fn directories_in_a_volume_do_not_keep_it_from_changing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("v");
        let mut volume = Written::new(path.clone());
        volume.write(files(&[("a", "1")]), None).expect("files");
        fs::create_dir(path.join("missing")).expect("a directory");
        fs::create_dir_all(path.join("full/of")).expect("a directory");
        volume.write(files(&[("a", "2")]), None).expect("files");
        assert_eq!(names(&path), ["..2", "..data", "a", "full", "missing"]);
        volume.write(files(&[("missing", "3"), ("full", "4")]), None).expect("files");
        assert_eq!(fs::read_to_string(path.join("missing")).expect("a file"), "3");
        assert_eq!(names(&path), ["..3", "..data", "full", "missing"]);
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("v");
        let mut volume = Written::new(path.clone());
        volume.write(files(&[("a", "1")]), None).expect("files");
        let impossible = files(&[("a", "2"), ("b", "2"), ("b/c", "2")]);
        for _ in 0..2 {
            volume.write(impossible.clone(), None).expect_err("b cannot be both");
            assert!(!volume.has(&impossible));
            assert_eq!(names(&path), ["..1", "..data", "a"]);
        }
        assert_eq!(fs::read_to_string(path.join("a")).expect("a file"), "1");
    }
}
