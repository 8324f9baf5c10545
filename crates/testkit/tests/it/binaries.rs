//! Where programs come from, tried in processes with an environment of their own and a Go that is none.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use testkit::{Binary, ControlPlane};

use crate::endings::until_gone;

/// Set in a process that is to ask for etcd, or for a control plane.
const ASK: &str = "TESTKIT_ASK";

/// Notes that it was called, takes its time, and "builds" whatever is asked for.
const FAKE_GO: &str = r#"#!/bin/sh
[ "$1" = version ] && { echo go version go0.0 fake; exit; }
echo "$*" >> "$FAKE_GO_CALLS"
for last; do [ "$before" = -o ] && out=$last; before=$last; done
echo half > "$out"
sleep "$FAKE_GO_SECONDS"
echo whole > "$out"
"#;

/// A machine on which nothing is installed but a shell, and perhaps Go.
struct Machine {
    home: TempDir,
}

impl Machine {
    fn new(with_go: bool) -> anyhow::Result<Machine> {
        let home = tempfile::tempdir()?;
        let bin = home.path().join("bin");
        fs::create_dir(&bin)?;
        for tool in ["sh", "sleep", "rm"] {
            symlink(find(tool), bin.join(tool))?;
        }
        if with_go {
            fs::write(bin.join("go"), FAKE_GO)?;
            fs::set_permissions(bin.join("go"), fs::Permissions::from_mode(0o755))?;
        }
        Ok(Machine { home })
    }

    fn ask(&self, what: &str) -> Command {
        let mut command = Command::new(env::current_exe().expect("a path of our own"));
        command
            .args(["--exact", "binaries::asks", "--ignored", "--nocapture"])
            .env(ASK, what)
            .env("PATH", self.path("bin"));
        command.env("XDG_CACHE_HOME", self.path("cache")).env("FAKE_GO_CALLS", self.path("calls"));
        command.env("FAKE_GO_SECONDS", "0.3");
        command.env_remove("KUBEBUILDER_ASSETS").env_remove("FERRY_REQUIRE_KUBERNETES");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.home.path().join(name)
    }

    /// How often Go was asked to build something.
    fn builds(&self) -> usize {
        fs::read_to_string(self.path("calls")).unwrap_or_default().lines().count()
    }
}

fn find(tool: &str) -> std::path::PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|directory| directory.join(tool))
        .find(|path| path.exists())
        .expect("a usual tool")
}

/// What the process printed on standard output after `etcd: `, and all of its standard error.
fn answer(output: &Output) -> (String, String) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let line = out.lines().find_map(|line| line.split_once("etcd: ")).map(|(_, rest)| rest.to_owned());
    (line.unwrap_or_default(), err.into_owned())
}

#[tokio::test]
#[ignore = "not a test by itself: what the tests below run in a process of its own"]
async fn asks() {
    match env::var(ASK).expect("run by another test only").as_str() {
        "binary" => match Binary::Etcd.ensure() {
            Ok(path) => println!("etcd: {}", path.display()),
            Err(error) => println!("etcd: {error}"),
        },
        _ => assert!(ControlPlane::builder().for_test().await.is_none(), "there is nothing to start"),
    }
}

#[test]
fn assets_come_first_and_are_named_when_missing() -> anyhow::Result<()> {
    let machine = Machine::new(true)?;
    let assets = machine.path("assets");
    fs::create_dir(&assets)?;
    let ask = || machine.ask("binary").env("KUBEBUILDER_ASSETS", &assets).output();
    let (path, said) = answer(&ask()?);
    assert!(path.starts_with(&*machine.path("cache").to_string_lossy()), "{path}");
    assert!(said.contains("KUBEBUILDER_ASSETS has no etcd"), "{said}");
    fs::write(assets.join("etcd"), "")?;
    let (path, said) = answer(&ask()?);
    assert_eq!(Path::new(&path), assets.join("etcd"));
    assert_eq!(said, "");
    Ok(())
}

#[test]
fn a_binary_is_built_once_however_many_ask() -> anyhow::Result<()> {
    let machine = Machine::new(true)?;
    let asking: Vec<_> = (0..4).map(|_| machine.ask("binary").spawn()).collect::<Result<_, _>>()?;
    for asking in asking {
        let (path, said) = answer(&asking.wait_with_output()?);
        assert_eq!(fs::read_to_string(&path).unwrap_or_default(), "whole\n", "{path} {said}");
    }
    assert_eq!(machine.builds(), 1);
    let calls = fs::read_to_string(machine.path("calls"))?;
    assert!(calls.contains("-trimpath") && calls.contains("go.etcd.io/etcd/server/v3"), "{calls}");
    Ok(())
}

#[tokio::test]
async fn a_killed_build_leaves_no_binary_and_no_process() -> anyhow::Result<()> {
    let machine = Machine::new(true)?;
    let mut killed = machine.ask("binary").env("FAKE_GO_SECONDS", "600").spawn()?;
    while machine.builds() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.kill()?;
    killed.wait()?;
    until_gone(&[], machine.home.path()).await?;
    let (path, said) = answer(&machine.ask("binary").output()?);
    assert_eq!(fs::read_to_string(&path)?, "whole\n", "{said}");
    assert_eq!(machine.builds(), 2);
    Ok(())
}

#[test]
fn without_anything_a_test_is_skipped_aloud_or_fails_where_that_is_forbidden() -> anyhow::Result<()> {
    let machine = Machine::new(false)?;
    let skipped = machine.ask("control plane").output()?;
    let (_, said) = answer(&skipped);
    assert!(skipped.status.success(), "{said}");
    assert!(said.contains("SKIPPED binaries::asks: no etcd"), "{said}");
    let failed = machine.ask("control plane").env("FERRY_REQUIRE_KUBERNETES", "1").output()?;
    assert!(!failed.status.success());
    assert!(answer(&failed).1.contains("FERRY_REQUIRE_KUBERNETES is set"), "{failed:?}");
    Ok(())
}
