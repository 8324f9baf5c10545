//! `ferry cluster`.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};

/// A running `ferry cluster`, killed when it is dropped.
struct Ferry(Child);

impl Drop for Ferry {
    fn drop(&mut self) {
        self.0.kill().ok(); // it may have ended already
        self.0.wait().expect("ferry ends");
    }
}

impl Ferry {
    /// Starts it and waits for the line that says it can be used.
    fn start(arguments: &[&str]) -> (Ferry, String) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ferry"))
            .arg("cluster")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ferry starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("ferry says something");
        (Ferry(child), line)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a signal");
    }

    fn stderr(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        (self.0.wait().expect("ferry ends").code(), text)
    }
}

async fn maps(kubeconfig: &Path) -> Api<ConfigMap> {
    let config = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config =
        Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("a config");
    Api::default_namespaced(Client::try_from(config).expect("a client"))
}

fn map() -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    }
}

#[tokio::test]
async fn keeps_what_it_acknowledged_through_kill_9() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().to_str().expect("a plain path");
    let (ferry, line) = Ferry::start(&["--name", "lab", "--data", data]);
    assert!(line.starts_with("cluster lab is ready at https://127.0.0.1:"), "{line}");
    let kubeconfig = dir.path().join("kubeconfig");
    let made = maps(&kubeconfig).await.create(&PostParams::default(), &map()).await.expect("created");

    let second = Ferry::start(&["--data", data]).0;
    let (code, stderr) = second.stderr();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("is in use by"), "{stderr}");

    ferry.signal(Signal::KILL);
    drop(ferry);
    let (ferry, _) = Ferry::start(&["--data", data]);
    assert_eq!(maps(&kubeconfig).await.get("a").await.expect("still there"), made);
    ferry.signal(Signal::TERM);
    assert_eq!(ferry.stderr().0, Some(0), "it ends cleanly");
}

#[tokio::test]
async fn an_ephemeral_cluster_keeps_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let kubeconfig = dir.path().join("config");
    let path = kubeconfig.to_str().expect("a plain path");
    let (ferry, _) = Ferry::start(&["--ephemeral", "--kubeconfig", path]);
    maps(&kubeconfig).await.create(&PostParams::default(), &map()).await.expect("created");
    ferry.signal(Signal::INT);
    assert_eq!(ferry.stderr().0, Some(0));
    let (_ferry, _) = Ferry::start(&["--ephemeral", "--kubeconfig", path]);
    assert!(maps(&kubeconfig).await.get("a").await.is_err());
}

#[test]
fn data_or_ephemeral_must_be_said() {
    let (code, stderr) = Ferry::start(&[]).0.stderr();
    assert_eq!(code, Some(2));
    assert!(stderr.contains("--data <DIR>"), "{stderr}");
}
