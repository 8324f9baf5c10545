//! The busybox of the tests' images, in the version that they name and built from its source: Debian's forgets
//! environment variables whose names its shell cannot spell, and other shells use other words.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::images::done;
use crate::{go::cache, say};

const VERSION: &str = "1.37.0";

/// What is built, wherever it comes from.
const SHA256: &str = "3311dff32e746499f4df0d5df04d7eb396382d7e108bb9250e7b519b837043a4";

/// Where the source is: with its makers, and with Debian, which keeps it as it is.
const PLACES: [&str; 2] = [
    "https://busybox.net/downloads/busybox-1.37.0.tar.bz2",
    "http://deb.debian.org/debian/pool/main/b/busybox/busybox_1.37.0.orig.tar.bz2",
];

/// What differs from the usual configuration: no libraries are needed, and a program is left out that does not build with
/// the headers of newer kernels.
const CHANGES: [(&str, &str); 2] =
    [("# CONFIG_STATIC is not set", "CONFIG_STATIC=y"), ("CONFIG_TC=y", "# CONFIG_TC is not set")];

/// The program, built first if need be.
pub(super) fn ensure() -> io::Result<PathBuf> {
    let folder = cache()?.join("ferry/busybox").join(VERSION);
    let path = folder.join("busybox");
    if path.is_file() {
        return Ok(path);
    }
    fs::create_dir_all(&folder)?;
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    if path.is_file() {
        return Ok(path); // by the process whose lock we waited for
    }
    say(&format!("building busybox {VERSION}; this takes minutes, once"));
    let scratch = tempfile::tempdir_in(&folder)?;
    let archive = scratch.path().join("source.tar.bz2");
    download(&archive)?;
    done(Command::new("tar").arg("--extract").arg("--file").arg(&archive).current_dir(scratch.path()))?;
    let source = scratch.path().join(format!("busybox-{VERSION}"));
    build(&source)?;
    // Complete or not there: another process may look for it.
    fs::rename(source.join("busybox"), &path)?;
    Ok(path)
}

/// Takes the source from the first place that has it.
fn download(to: &Path) -> io::Result<()> {
    let mut refused = Vec::new();
    for place in PLACES {
        let got = done(
            Command::new("curl")
                .args(["--fail", "--silent", "--show-error", "--location", "--max-time", "120", "--output"])
                .arg(to)
                .arg(place),
        )
        .and_then(|()| expect_pinned(to));
        match got {
            Ok(()) => return Ok(()),
            Err(error) => refused.push(format!("{place}: {error}")),
        }
    }
    Err(io::Error::other(format!("no source of busybox {VERSION}: {}", refused.join("; "))))
}

fn expect_pinned(archive: &Path) -> io::Result<()> {
    let mut check = Command::new("sha256sum")
        .args(["--check", "--status"])
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::other(format!("sha256sum does not start ({error})")))?;
    let mut input = check.stdin.take().expect("its input is a pipe");
    writeln!(input, "{SHA256}  {}", archive.display())?;
    drop(input);
    if check.wait()?.success() {
        return Ok(());
    }
    Err(io::Error::other("it is not what was pinned"))
}

fn build(source: &Path) -> io::Result<()> {
    let make = || {
        let mut make = Command::new("make");
        make.current_dir(source).stdin(Stdio::null());
        make
    };
    done(make().arg("defconfig"))?;
    let file = source.join(".config");
    let mut config = fs::read_to_string(&file)?;
    for (from, to) in CHANGES {
        if !config.contains(from) {
            return Err(io::Error::other(format!("busybox's configuration does not say {from:?}")));
        }
        config = config.replace(from, to);
    }
    fs::write(&file, config)?;
    // What the changes make superfluous goes; nothing is asked.
    done(make().arg("silentoldconfig"))?;
    done(make().args(["-j2", "busybox"]))
}
