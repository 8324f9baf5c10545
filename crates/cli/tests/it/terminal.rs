//! A terminal of a given width, as a command sees it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs a command on a terminal that is so wide, and returns its exit status and all that it wrote there. What it writes to
/// standard output goes to `stdout` if that is given.
pub(crate) fn on_terminal(
    command: &mut Command,
    columns: u16,
    stdout: Option<File>,
) -> (Option<i32>, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("a terminal for us");
    let name = ptsname(&master, Vec::new()).expect("a terminal with a name");
    let slave =
        File::options().read(true).write(true).open(name.to_str().expect("a path")).expect("its other end");
    let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&slave, size).expect("a width");
    let other: OwnedFd = slave.try_clone().expect("another handle").into();
    let stdout = stdout.map_or_else(|| Stdio::from(other), Stdio::from);
    command.env("TERM", "xterm").stdin(Stdio::null()).stdout(stdout).stderr(slave);
    let mut child = command.spawn().expect("it starts");
    // What is left open here would keep the terminal from ending.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut written = Vec::new();
    let mut terminal = File::from(master);
    let mut buffer = [0; 4096];
    // A terminal whose other end is closed by all is an error on Linux, and that is its end.
    while let Ok(read @ 1..) = terminal.read(&mut buffer) {
        written.extend_from_slice(&buffer[..read]);
    }
    (child.wait().expect("it ends").code(), String::from_utf8_lossy(&written).into_owned())
}
