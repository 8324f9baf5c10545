//! Names for clusters, which only this command and what it starts can see.

use std::{env, fmt::Write as _, fs, os::unix::process::CommandExt as _, process::Command};

use anyhow::{Context as _, bail};

use crate::site::address;

/// Set in the process that has the names.
const INSIDE: &str = "FERRY_KUEUE_E2E_INSIDE";

/// Goes on in a mount namespace in which each name, in order, is that of a cluster's address.
pub(crate) fn enter(names: &[String]) -> anyhow::Result<()> {
    if env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let mut hosts = fs::read_to_string("/etc/hosts").unwrap_or_default();
    for (index, name) in names.iter().enumerate() {
        writeln!(hosts, "{} {name}", address(index))?;
    }
    let file = env::temp_dir().join(format!("ferry-kueue-e2e-hosts-{}", rustix::process::geteuid().as_raw()));
    fs::write(&file, hosts).with_context(|| format!("failed to write {}", file.display()))?;
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", r#"mount --bind "$1" /etc/hosts && shift && exec "$@""#, "sh"]);
    command.arg(file).arg(env::current_exe().context("failed to find this program")?);
    command.args(env::args_os().skip(1)).env(INSIDE, "1");
    let error = command.exec();
    bail!("failed to run unshare, of util-linux, which gives this command a hosts file of its own: {error}")
}
