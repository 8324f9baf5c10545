//! What the images of the tests are on a node that pulls none: directories with the same programs in them.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Binary,
    go::{Tools, cache},
    say,
};

/// Who there is in the images; the tests ask for the second one.
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nuser-defined-in-image:x:1000:1000::/home:/bin/sh\n";
const GROUP: &str =
    "root:x:0:\nuser-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

/// Makes the images in a directory; returns them as a node is told of them.
pub fn make(directory: &Path) -> io::Result<Vec<String>> {
    let agnhost = Binary::Agnhost.ensure().map_err(io::Error::other)?;
    let small = root(&directory.join("busybox"))?;
    let large = root(&directory.join("agnhost"))?;
    fs::copy(&agnhost, large.join("agnhost"))?;
    symlink("agnhost", large.join("agnhost-2"))?;
    let sources = source()?.join("test/images/agnhost/porter");
    for file in ["localhost.crt", "localhost.key"] {
        install(&sources.join(file), &large.join(file))?;
    }
    fs::create_dir(large.join("uploads"))?;
    borrow("curl", &large)?;
    let (small, large) = (small.display(), large.display());
    Ok(vec![
        format!("*/busybox={small}:/bin/sh"),
        format!("*/agnhost={large}:/agnhost pause"),
        format!("*/nginx={large}:/agnhost pause"),
        format!("*/pause={large}:/agnhost pause"),
    ])
}

/// Where Go keeps the sources of Kubernetes.
fn source() -> io::Result<PathBuf> {
    let tools =
        Tools::for_test("kubernetes/e2e").ok_or_else(|| io::Error::other("there is no Go toolchain"))?;
    Ok(tools.module("k8s.io/kubernetes"))
}

/// A small system: a shell, and the usual programs.
fn root(directory: &Path) -> io::Result<PathBuf> {
    for part in ["bin", "etc", "home", "root", "tmp", "usr/bin", "var"] {
        fs::create_dir_all(directory.join(part))?;
    }
    fs::set_permissions(directory.join("tmp"), fs::Permissions::from_mode(0o1777))?;
    fs::write(directory.join("etc/passwd"), PASSWD)?;
    fs::write(directory.join("etc/group"), GROUP)?;
    let itself = directory.join("bin/busybox");
    install(&busybox()?, &itself)?;
    let names = Command::new(&itself).arg("--list").output()?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    for name in names.lines().filter(|name| !matches!(*name, "busybox" | "sh")) {
        symlink("busybox", directory.join("bin").join(name))?;
    }
    // Debian's busybox has a shell that forgets variables whose names it cannot spell, which that of the image keeps.
    install(&debian("bash-static", "bin/bash-static")?, &directory.join("bin/sh"))?;
    Ok(directory.to_owned())
}

/// Puts a program of this machine into an image, with the libraries that it needs. Where there is none, tests that use it
/// fail and say so.
fn borrow(program: &str, root: &Path) -> io::Result<()> {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$0\" && ldd \"$(command -v \"$0\")\"", program])
        .output()?;
    if !found.status.success() {
        say(&format!("there is no {program} on this machine for the tests"));
        return Ok(());
    }
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    for path in said.split_whitespace().filter(|word| word.starts_with('/')) {
        let to = root.join(path.trim_start_matches('/'));
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        install(Path::new(path), &to)?;
    }
    Ok(())
}

fn install(program: &Path, to: &Path) -> io::Result<()> {
    fs::copy(program, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
}

/// A busybox that needs no libraries.
pub(super) fn busybox() -> io::Result<PathBuf> {
    debian("busybox-static", "bin/busybox")
}

/// A program of a package of Debian's, downloaded once.
fn debian(package: &str, path: &str) -> io::Result<PathBuf> {
    let folder = cache()?.join("ferry/debian").join(package);
    let program = folder.join("root").join(path);
    if program.is_file() {
        return Ok(program);
    }
    say(&format!("downloading {package} from Debian"));
    fs::create_dir_all(&folder)?;
    done(Command::new("apt-get").args(["download", package]).current_dir(&folder))?;
    let files = fs::read_dir(&folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let found = files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let package = found.ok_or_else(|| io::Error::other(format!("apt-get downloaded no {package}")))?;
    done(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(folder.join("root")))?;
    Ok(program)
}

fn done(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        io::Error::other(format!("{program} does not start ({error}), so there are no images for the tests"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
