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

/// Where libraries of Debian's packages are.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

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
    for program in ["curl", "getent"] {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output()?;
        match String::from_utf8_lossy(&found.stdout).trim() {
            "" => {
                say(&format!("there is no {program} on this machine for the tests that use it, which fail"));
            }
            path => borrow(Path::new(path), Path::new("/"), &large)?,
        }
    }
    fs::write(large.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    let dig = with_dependencies("bind9-dnsutils")?;
    borrow(&dig.join("usr/bin/dig"), &dig, &large)?;
    // That of busybox knows only half of the words that the tests use.
    let netcat = with_dependencies("netcat-openbsd")?;
    borrow(&netcat.join("bin/nc.openbsd"), &netcat, &large)?;
    fs::remove_file(large.join("bin/nc"))?;
    symlink("nc.openbsd", large.join("bin/nc"))?;
    let (small, large) = (small.display(), large.display());
    Ok(vec![
        format!("*/busybox={small}:/bin/sh"),
        format!("*/agnhost={large}:/agnhost pause"),
        format!("*/jessie-dnsutils={large}:/agnhost pause"),
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

/// Puts a program that is below `from` into an image, with the libraries that it needs: those below `from`, or this
/// machine's.
fn borrow(program: &Path, from: &Path, root: &Path) -> io::Result<()> {
    let libraries = LIBRARIES.map(|directory| from.join(directory).display().to_string()).join(":");
    let found = Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", libraries).output()?;
    if !found.status.success() {
        return Err(io::Error::other(format!("{} cannot be run here", program.display())));
    }
    let said = String::from_utf8_lossy(&found.stdout).into_owned();
    let needed = said.split_whitespace().filter(|word| word.starts_with('/')).map(Path::new);
    for path in needed.chain([program]) {
        let inside = path.strip_prefix(from).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
        let to = root.join(inside);
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        install(path, &to)?;
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
    let root = downloaded(package, package, &[package.to_owned()])?;
    Ok(root.join(path))
}

/// A directory with a package of Debian's and all that it depends on, downloaded once.
fn with_dependencies(package: &str) -> io::Result<PathBuf> {
    let mut ask = Command::new("apt-cache");
    ask.args(["depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"]);
    let said = ask.args(["--no-replaces", "--no-enhances", package]).output()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    // Names of packages stand at the beginning of lines, and those of ideas in angle brackets.
    let is_library = |name: &&str| name.starts_with("lib") || name.starts_with("bind9") || *name == package;
    let all: Vec<String> = said.lines().filter(is_library).map(str::to_owned).collect();
    downloaded(&format!("{package}-and-libraries"), package, &all)
}

/// Where packages are unpacked together.
fn downloaded(name: &str, package: &str, all: &[String]) -> io::Result<PathBuf> {
    let folder = cache()?.join("ferry/debian").join(name);
    let root = folder.join("root");
    if root.is_dir() {
        return Ok(root);
    }
    say(&format!("downloading {package} from Debian"));
    fs::create_dir_all(&folder)?;
    done(Command::new("apt-get").arg("download").args(all).current_dir(&folder))?;
    // Complete or not there: another process may look for it.
    let unpacked = tempfile::tempdir_in(&folder)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            done(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(unpacked.path()))?;
            fs::remove_file(&path)?;
        }
    }
    fs::set_permissions(unpacked.path(), fs::Permissions::from_mode(0o755))?;
    match fs::rename(unpacked.path(), &root) {
        Err(_) if root.is_dir() => {} // somebody else was faster
        moved => moved?,
    }
    Ok(root)
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
