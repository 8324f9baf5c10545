//! Nodes of a user who may nothing: what is left of keeping pods apart, and that they end all the same (4.13).

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Command, id},
};

use kube::api::DeleteParams;
use runner::init::Isolation;
use serde_json::json;

use crate::{
    bed::{Bed, Local, eventually, eventually_is, phase},
    isolation::condition,
    stopping::count_processes,
};

/// Who owns nothing.
const NOBODY: u32 = 65534;

/// As a user who may nothing: run by name, by the test below.
#[tokio::test]
#[ignore = "is for a user who may nothing, and is started by another test"]
async fn as_nobody() {
    for (number, told_to) in [None, Some(Isolation::Plain)].into_iter().enumerate() {
        let Some(bed) = Bed::new("nobody").await else { return };
        let local = bed.local(|process| process.isolation = told_to).await;
        let (isolated, message) = condition(&bed, "PodsIsolated").await;
        let root_of_its_own = match (isolated.as_str(), told_to) {
            ("True", None) => {
                assert!(message.ends_with("as an ordinary user"), "{message}");
                true
            }
            (_, None) => {
                eprintln!("not tested: {message}");
                false
            }
            (isolated, Some(_)) => {
                assert_eq!(
                    (isolated, message.contains("the node was told so")),
                    ("False", true),
                    "{message}"
                );
                false
            }
        };
        let (limited, message) = condition(&bed, "LimitsEnforced").await;
        assert_eq!(limited, "False", "{message}");
        assert!(message.starts_with("memory is limited per process, and CPU not at all: "), "{message}");

        let own = json!({ "resources": { "limits": { "memory": "64Mi" } } });
        let (pod, text) = bed.output(&local, bed.script("runs", "id -u; ulimit -d", own, json!({}))).await;
        let who = if root_of_its_own { 0 } else { rustix::process::geteuid().as_raw() };
        assert_eq!((phase(&pod), text), ("Succeeded", format!("{who}\n65536\n")));
        ends_whole(&bed, &local, &format!("{}.{}", 8000 + id(), number + 1)).await;
    }
}

/// Whatever a pod has started ends with it, also what has left its parent and its session.
async fn ends_whole(bed: &Bed, local: &Local, mark: &str) {
    let script = format!("trap '' TERM; (setsid sleep {mark} &); sleep {mark}; :");
    bed.create(bed.script("stays", &script, json!({}), json!({}))).await;
    bed.until_phase("stays", "Running").await;
    eventually(|| count_processes(mark) > 2).await;
    assert_eq!(bed.exec(local, "stays", "echo inside").await, (0, "inside\n".to_owned()));
    bed.pods().delete("stays", &DeleteParams::default().grace_period(1)).await.expect("deletion");
    bed.until_gone("stays").await;
    eventually_is(|| count_processes(mark), 0).await;
}

#[test]
fn a_user_who_may_nothing_can_run_pods_and_end_them_whole() {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "nobody::as_nobody", "--ignored", "--nocapture"]);
    command.env_remove("FERRY_TEST_SERVER");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = match command.output() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            eprintln!("not tested: nobody may not run this program: {error}");
            return;
        }
        output => output.expect("it runs"),
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
