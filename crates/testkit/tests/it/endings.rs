//! Nothing is left of a control plane, however its test ends.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::Context as _;
use testkit::ControlPlane;
use tokio::time::{Instant, sleep};

/// Set in a process that is to be a test of which the parent decides how it ends.
const VICTIM: &str = "TESTKIT_VICTIM";

#[tokio::test]
async fn dropping_it_leaves_no_process_and_no_file() -> anyhow::Result<()> {
    let Some(cluster) = ControlPlane::builder().controller_manager(["job-controller"]).for_test().await
    else {
        return Ok(());
    };
    let (ids, directory) = (cluster.process_ids(), cluster.directory().to_owned());
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| is_running(*id)) && mentions(&directory) >= 3 && directory.exists());
    drop(cluster);
    assert!(!ids.iter().any(|id| is_running(*id)), "the servers are gone when drop returns");
    assert!(!directory.exists(), "and so are their files");
    until_gone(&ids, &directory).await // and the shells that watched over them, a moment later
}

#[tokio::test]
async fn killing_the_test_process_kills_its_control_planes() -> anyhow::Result<()> {
    let Some((mut victim, ids, directory)) = start_victim("wait")? else { return Ok(()) };
    assert!(ids.iter().all(|id| is_running(*id)) && directory.exists());
    victim.kill()?;
    victim.wait()?;
    until_gone(&ids, &directory).await?;
    until(|| !directory.exists()).await.context("the files are removed, too")
}

#[tokio::test]
async fn a_frozen_control_plane_does_not_outlive_its_test_process() -> anyhow::Result<()> {
    let Some((mut victim, ids, directory)) = start_victim("freeze")? else { return Ok(()) };
    victim.kill()?;
    victim.wait()?;
    until_gone(&ids, &directory).await
}

#[tokio::test]
async fn a_panicking_test_leaves_the_logs_and_says_where() -> anyhow::Result<()> {
    let Some((victim, ids, directory)) = start_victim("panic")? else { return Ok(()) };
    let output = victim.wait_with_output()?;
    assert!(!output.status.success(), "the victim was to fail");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains(&format!("kept in {}", directory.display())), "{said}");
    assert!(fs::metadata(directory.join("kube-apiserver.log"))?.len() > 0);
    fs::remove_dir_all(&directory)?;
    until_gone(&ids, &directory).await
}

#[tokio::test]
#[ignore = "not a test by itself: what the tests above run in a process of its own"]
async fn victim() -> anyhow::Result<()> {
    let ending = env::var(VICTIM).context("run by another test only")?;
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    println!("{:?} {}", cluster.process_ids(), cluster.directory().display());
    match &*ending {
        "panic" => panic!("as asked"),
        "freeze" => cluster.freeze()?,
        _ => {}
    }
    println!("ready");
    sleep(Duration::from_secs(600)).await;
    Ok(())
}

/// Runs [`victim`] until it has a control plane; its process, those of the control plane, and their directory.
fn start_victim(ending: &str) -> anyhow::Result<Option<(Child, Vec<u32>, std::path::PathBuf)>> {
    let mut command = Command::new(env::current_exe()?);
    command.args(["--exact", "endings::victim", "--ignored", "--nocapture"]).env(VICTIM, ending);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    for line in &mut lines {
        let line = line?;
        if let Some((ids, directory)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) {
            let ids = ids.split(", ").map(str::parse).collect::<Result<_, _>>()?;
            if ending != "panic" {
                anyhow::ensure!(
                    lines.next().transpose()?.as_deref() == Some("ready"),
                    "the victim is not ready"
                );
            }
            return Ok(Some((child, ids, directory.into())));
        }
    }
    anyhow::ensure!(child.wait()?.success(), "the victim has failed before it had a control plane");
    Ok(None) // it was skipped, and said so
}

/// Whether a process exists and is more than the entry of one that has ended.
fn is_running(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// How many processes have `directory` in their arguments: servers, watchers and the janitor.
fn mentions(directory: &Path) -> usize {
    let needle = directory.as_os_str().as_encoded_bytes();
    let processes = fs::read_dir("/proc").expect("a list of processes").flatten();
    let commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    commands.filter(|command| command.windows(needle.len()).any(|window| window == needle)).count()
}

/// Waits for the end of the given servers and of all that belongs to `directory`.
pub(crate) async fn until_gone(ids: &[u32], directory: &Path) -> anyhow::Result<()> {
    let gone = || mentions(directory) == 0 && !ids.iter().any(|id| is_running(*id));
    until(gone).await.with_context(|| format!("processes of {} are left", directory.display()))
}

async fn until(done: impl Fn() -> bool) -> anyhow::Result<()> {
    let started = Instant::now();
    while !done() {
        anyhow::ensure!(started.elapsed() < Duration::from_secs(10), "still not so after 10 s");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
