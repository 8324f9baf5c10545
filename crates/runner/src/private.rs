//! What is this user's alone. Others may have put something where files are kept, above all among temporary ones, and may
//! look into what is theirs to enter: what pods are told in confidence, and what they write.

use std::{
    fs::{self, DirBuilder, File, Metadata},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::Path,
};

use rustix::process::geteuid;

/// Makes a directory that nobody else may enter, with those above it. One that is there becomes such a one, and is refused
/// if another user has made it: whoever did says what is in there, and where it leads.
pub fn make(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    expect_ours(directory)?;
    let opened = File::open(directory)?;
    let found = opened.metadata()?;
    expect_owner(directory, &found)?;
    if found.permissions().mode() & 0o777 != 0o700 {
        opened.set_permissions(fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// That a file, a directory or a link was made by this user.
pub fn expect_ours(path: &Path) -> io::Result<()> {
    expect_owner(path, &path.symlink_metadata()?)
}

/// Whether this is a file or a directory of this user, and no link to one.
pub fn is_ours(path: &Path) -> bool {
    let found = path.symlink_metadata();
    found.is_ok_and(|found| !found.is_symlink() && found.uid() == geteuid().as_raw())
}

fn expect_owner(path: &Path, found: &Metadata) -> io::Result<()> {
    if found.uid() == geteuid().as_raw() {
        return Ok(());
    }
    let message = format!("{} belongs to another user ({})", path.display(), found.uid());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().expect("it is there").permissions().mode() & 0o7777
    }

    #[test]
    fn what_is_made_is_for_nobody_else_to_enter() {
        let all = tempfile::tempdir().expect("a directory");
        let new = all.path().join("deep/new");
        make(&new).expect("made");
        assert_eq!((mode(&new), mode(&all.path().join("deep"))), (0o700, 0o700));
        fs::set_permissions(&new, fs::Permissions::from_mode(0o777)).expect("opened");
        make(&new).expect("it is ours");
        assert_eq!(mode(&new), 0o700, "one that was open to others is closed");
        let link = all.path().join("link");
        symlink(&new, &link).expect("a link");
        make(&link).expect("a link of our own leads where we want");
        assert!(is_ours(&new) && !is_ours(&link) && !is_ours(&all.path().join("none")));
    }

    #[test]
    fn what_another_user_made_is_not_used() {
        if !geteuid().is_root() {
            eprintln!("only root can give something away: skipped");
            return;
        }
        let all = tempfile::tempdir().expect("a directory");
        let (ours, theirs, link) =
            (all.path().join("ours"), all.path().join("theirs"), all.path().join("link"));
        fs::create_dir(&ours).and_then(|()| fs::create_dir(&theirs)).expect("directories");
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o755)).expect("permissions");
        chown(&theirs, Some(65534), None).expect("given away");
        symlink(&ours, &link).and_then(|()| lchown(&link, Some(65534), None)).expect("a link");
        for path in [&theirs, &link] {
            let refused = make(path).expect_err("another's");
            assert!(refused.to_string().ends_with("belongs to another user (65534)"), "{refused}");
            assert!(!is_ours(path));
        }
        assert_eq!(mode(&ours), 0o755, "nothing is done to what a link of another leads to");
    }
}
