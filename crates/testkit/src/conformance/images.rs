//! What the images of the tests are on a node that pulls none: directories with the same programs in them.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::busybox;
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
    let ensure = |binary: Binary| binary.ensure().map_err(io::Error::other);
    let source = source()?.join("test/images");
    let small = root(&directory.join("busybox"))?;
    let large = agnhost(&directory.join("agnhost"), &source)?;
    let nautilus = agnhost(&directory.join("nautilus"), &source)?;
    for file in ["data.json", "nautilus.jpg"] {
        install(&source.join("nautilus/html").join(file), &nautilus.join(file), 0o644)?;
    }
    let programs = root(&directory.join("programs"))?;
    fs::create_dir_all(programs.join("usr/local/bin"))?;
    install(&ensure(Binary::Etcd)?, &programs.join("usr/local/bin/etcd"), 0o755)?;
    install(&ensure(Binary::SampleApiserver)?, &programs.join("sample-apiserver"), 0o755)?;
    // Whoever starts it becomes root, if that is allowed.
    install(&ensure(Binary::NoNewPrivileges)?, &programs.join("usr/local/bin/nnp"), 0o6755)?;
    let (small, large) = (small.display(), large.display());
    let (nautilus, programs) = (nautilus.display(), programs.display());
    Ok(vec![
        format!("*/busybox={small}:/bin/sh"),
        format!("*/agnhost={large}:/agnhost pause"),
        format!("*/jessie-dnsutils={large}:/agnhost pause"),
        format!("*/nginx={large}:/agnhost pause"),
        format!("*/pause={large}:/agnhost pause"),
        format!("*/nautilus={nautilus}:/agnhost test-webserver"),
        format!("*/etcd={programs}:/usr/local/bin/etcd"),
        format!("*/sample-apiserver={programs}:/sample-apiserver"),
        format!("*/nonewprivs={programs}:/usr/local/bin/nnp"),
    ])
}

/// What most pods of the tests are made of.
fn agnhost(directory: &Path, source: &Path) -> io::Result<PathBuf> {
    let agnhost = Binary::Agnhost.ensure().map_err(io::Error::other)?;
    let root = root(directory)?;
    install(&agnhost, &root.join("agnhost"), 0o755)?;
    symlink("agnhost", root.join("agnhost-2"))?;
    for file in ["localhost.crt", "localhost.key"] {
        install(&source.join("agnhost/porter").join(file), &root.join(file), 0o755)?;
    }
    fs::create_dir(root.join("uploads"))?;
    for program in ["curl", "getent"] {
        let found = Command::new("sh").args(["-c", "command -v \"$0\"", program]).output()?;
        match String::from_utf8_lossy(&found.stdout).trim() {
            "" => {
                say(&format!("there is no {program} on this machine for the tests that use it, which fail"));
            }
            path => borrow(Path::new(path), Path::new("/"), &root)?,
        }
    }
    fs::write(root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    let dig = with_dependencies("bind9-dnsutils")?;
    borrow(&dig.join("usr/bin/dig"), &dig, &root)?;
    // That of busybox knows only half of the words that the tests use.
    let netcat = with_dependencies("netcat-openbsd")?;
    borrow(&netcat.join("bin/nc.openbsd"), &netcat, &root)?;
    fs::remove_file(root.join("bin/nc"))?;
    symlink("nc.openbsd", root.join("bin/nc"))?;
    Ok(root)
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
    install(&busybox::ensure()?, &itself, 0o755)?;
    let names = Command::new(&itself).arg("--list").output()?;
    let names = String::from_utf8_lossy(&names.stdout).into_owned();
    for name in names.lines().filter(|name| *name != "busybox") {
        symlink("busybox", directory.join("bin").join(name))?;
    }
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
        install(path, &to, 0o755)?;
    }
    Ok(())
}

fn install(file: &Path, to: &Path, mode: u32) -> io::Result<()> {
    fs::copy(file, to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
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

pub(super) fn done(command: &mut Command) -> io::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| {
        io::Error::other(format!("{program} does not start ({error}), so there are no images for the tests"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim())))
}
