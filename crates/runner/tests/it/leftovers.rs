//! That nothing is left: after many pods, and after a node that was killed.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Stdio},
    task::{Context, Poll},
    time::Instant,
};

use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Client,
    api::{DeleteParams, ListParams},
    client::Body,
};
use reconcile::{Clock, Tasks};
use runner::Node;
use serde_json::json;
use tokio::sync::watch;
use tower_service::Service;

use crate::{
    bed::{Bed, container, eventually, eventually_is, phase, process_settings},
    stopping::count_processes,
};

/// How many short pods run, all at once.
const MANY: usize = 500;

/// What a node must not leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    processes: usize,
    mounts: usize,
    cgroups: usize,
    directories: usize,
    files_in_memory: usize,
}

const NOTHING: Left = Left { processes: 0, mounts: 0, cgroups: 0, directories: 0, files_in_memory: 0 };

fn left(directory: &Path, uids: &BTreeSet<String>) -> Left {
    let place = directory.display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let bases = fs::read_to_string(directory.join("cgroups")).unwrap_or_default();
    let inside = |path: &Path| {
        fs::read_dir(path).map_or(0, |entries| {
            entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count()
        })
    };
    let memory = |uid: &&String| Path::new("/dev/shm").join(format!("ferry-{uid}")).exists();
    Left {
        processes: count_processes(&place),
        mounts: mounts.lines().filter(|line| line.contains(&place)).count(),
        cgroups: bases.lines().map(|base| inside(Path::new(base))).sum(),
        directories: inside(&directory.join("pods")),
        files_in_memory: uids.iter().filter(memory).count(),
    }
}

/// What this process has open, without connections to the API server, which its client keeps for the next request.
fn open_files() -> usize {
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"]
        .map(|table| fs::read_to_string(table).unwrap_or_default());
    let connections: BTreeSet<String> = tables
        .iter()
        .flat_map(|table| table.lines().skip(1))
        .filter_map(|line| line.split_whitespace().nth(9))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let open = fs::read_dir("/proc/self/fd").expect("open files").flatten();
    let targets = open.filter_map(|file| fs::read_link(file.path()).ok());
    targets.filter(|target| !connections.contains(&*target.to_string_lossy())).count()
}

fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("threads");
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flatten().map(|task| of(task).split_whitespace().count()).sum()
}

/// Alone in its process, because it counts what the process has: run by name, by the test below.
#[tokio::test]
#[ignore = "counts what its process has, and is started by another test"]
async fn many_short_pods() {
    let Some(bed) = Bed::new("stress").await else { return };
    let local = bed.local(|_| {}).await;
    // What opens once and stays open: connections, watches, the first process of a kind.
    bed.output(&local, bed.script("first", "true", json!({}), json!({}))).await;
    bed.delete("first").await;
    bed.until_gone("first").await;
    let (files, processes) = (open_files(), children());
    let began = Instant::now();
    let names: Vec<String> = (0..MANY).map(|number| format!("short-{number}")).collect();
    let own = json!({ "volumeMounts": [{ "name": "m", "mountPath": "/m" }] });
    let more = json!({ "volumes": [{ "name": "m", "emptyDir": { "medium": "Memory" } }] });
    let pods = names.iter().map(|name| {
        let (bed, local, own, more) = (&bed, &local, own.clone(), more.clone());
        async move {
            bed.create(bed.script(name, "echo out > /m/file; cat /m/file; exit 3", own, more)).await;
            let pod = bed.until_phase(name, "Failed").await;
            assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 3);
            assert_eq!(bed.log(local, name, "main", runner::LogOptions::default()).await, "out\n");
            pod.metadata.uid.expect("a uid")
        }
    });
    let uids: BTreeSet<String> = futures::future::join_all(pods).await.into_iter().collect();
    assert_eq!(uids.len(), MANY);
    eprintln!("{MANY} pods ran to their end in {:?}", began.elapsed());
    let all = DeleteParams::default().grace_period(0);
    bed.pods().delete_collection(&all, &ListParams::default()).await.expect("deletion");
    for name in &names {
        bed.until_gone(name).await;
    }
    let directory = local.directory.path();
    eventually_is(|| left(directory, &uids), NOTHING).await;
    eventually_is(|| open_files().saturating_sub(files), 0).await;
    assert_eq!(children(), processes, "no process was left to its fate");
}

#[test]
fn five_hundred_pods_at_once_leave_nothing_behind() {
    let test = std::env::current_exe().expect("this program");
    let mut command = Command::new(test);
    command.args(["--exact", "leftovers::many_short_pods", "--ignored", "--nocapture"]);
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A node in a process of its own, which is killed: started by the test below.
#[tokio::test]
#[ignore = "runs until it is killed, and is started by another test"]
async fn a_node_to_be_killed() {
    let (Ok(directory), Ok(name)) = (std::env::var("FERRY_TEST_DIRECTORY"), std::env::var("FERRY_TEST_NODE"))
    else {
        return;
    };
    let config = kube::Config::infer().await.expect("a cluster");
    let client = Client::try_from(config).expect("a client");
    let mut tasks = Tasks::new();
    let settings = process_settings(&name, Path::new(&directory), |_| {});
    Node::start(client, settings, Clock::system(), &mut tasks).await.expect("a node");
    tasks.ended().await;
}

#[tokio::test]
async fn a_node_that_was_killed_leaves_nothing_and_the_next_one_goes_on() {
    let Some(bed) = Bed::real("killed").await else { return };
    let directory = tempfile::Builder::new().prefix("ferry-node-").tempdir().expect("a directory");
    let mut node = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "leftovers::a_node_to_be_killed", "--ignored", "--nocapture"])
        .env("FERRY_TEST_DIRECTORY", directory.path())
        .env("FERRY_TEST_NODE", bed.node("local"))
        .env("KUBECONFIG", bed.kubeconfig())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a process");
    let mark = format!("{}.75", 4000 + std::process::id());
    let script = format!("trap '' TERM; (setsid sleep {mark} &); sleep {mark}; :");
    let own = json!({ "volumeMounts": [{ "name": "m", "mountPath": "/m" }] });
    let more = json!({ "volumes": [{ "name": "m", "emptyDir": { "medium": "Memory" } }] });
    bed.create(bed.script("batch", &script, own.clone(), more.clone())).await;
    let mut service = bed.script("service", &script, own, more);
    service["spec"]["restartPolicy"] = json!("Always");
    bed.create(service).await;
    let mut uids = BTreeSet::new();
    for name in ["batch", "service"] {
        uids.insert(bed.until_phase(name, "Running").await.metadata.uid.expect("a uid"));
    }
    eventually(|| count_processes(&mark) >= 4).await;
    node.kill().expect("it can be killed");
    assert_eq!(node.wait().expect("it ended").signal(), Some(9));
    // Even before anybody starts again, no process is left.
    eventually(|| {
        count_processes(&mark) == 0 && count_processes(&directory.path().display().to_string()) == 0
    })
    .await;

    let mut tasks = Tasks::new();
    let settings = process_settings(&bed.node("local"), directory.path(), |_| {});
    let started =
        Node::start(bed.client.clone(), settings, Clock::system(), &mut tasks).await.expect("a node");
    let batch = bed.until_phase("batch", "Failed").await;
    let ended = &container(&batch, "main")["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("ContainerStatusUnknown"), &json!(137)));
    let again = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            let main = container(pod, "main");
            main["restartCount"] == 1 && main["state"]["running"].is_object()
        })
    };
    let service = bed.until("service", again).await.expect("it runs again");
    assert_eq!(phase(&service), "Running");
    for name in ["batch", "service"] {
        bed.pods().delete(name, &DeleteParams::default().grace_period(0)).await.expect("deletion");
        bed.until_gone(name).await;
    }
    eventually_is(|| left(directory.path(), &uids), NOTHING).await;
    assert_eq!(started.name(), bed.node("local"));
}

#[tokio::test]
async fn a_node_that_is_stopped_ends_its_pods() {
    let Some(bed) = Bed::new("stopped").await else { return };
    let local = bed.local(|_| {}).await;
    let mark = format!("{}.625", 5000 + std::process::id());
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/fast" }] });
    let more = json!({ "volumes": [{ "name": "v", "emptyDir": { "medium": "Memory" } }] });
    bed.create(bed.script("pod", &format!("echo x > /fast/x; sleep {mark}; :"), own, more)).await;
    let uid = bed.until_phase("pod", "Running").await.metadata.uid.expect("a uid");
    eventually(|| count_processes(&mark) > 0).await;
    let directory = local.stop().await;
    // Its files stay for its logs, until the pod is gone or the whole node is removed.
    let uids = [uid].into();
    eventually_is(|| left(directory.path(), &uids), Left { directories: 1, ..NOTHING }).await;
    assert_eq!(count_processes(&mark), 0);
    runner::remove(directory.path()).expect("removed");
    assert!(!directory.path().exists());
}

/// A new node gives pods new surroundings. What they have on disk they keep; what was in memory, init containers make anew.
#[tokio::test]
async fn pods_that_go_on_after_a_restart_of_their_node_are_made_ready_anew() {
    let Some(bed) = Bed::new("anew").await else { return };
    let local = bed.local(|_| {}).await;
    if !crate::isolation::is_isolated(&bed, &local).await {
        return;
    }
    let mounts =
        json!([{ "name": "disk", "mountPath": "/disk" }, { "name": "memory", "mountPath": "/memory" }]);
    let volumes =
        json!([{ "name": "disk", "emptyDir": {} }, { "name": "memory", "emptyDir": { "medium": "Memory" } }]);
    let one = |name: &str, script: &str| {
        let command = json!(["sh", "-c", script]);
        json!({ "name": name, "image": "any", "command": command, "volumeMounts": mounts })
    };
    let mut beside =
        one("beside", "test -e /memory/first || exit 1; echo beside >> /disk/told; exec sleep 1000");
    beside["restartPolicy"] = json!("Always");
    let first = one("first", "sleep 0.3; echo first >> /disk/told; touch /memory/first");
    let script = "test -e /memory/first || exit 1; until [ $(grep -c beside /disk/told) = $(grep -c first /disk/told) ]; do sleep 0.05; done; echo main >> /disk/told; chmod 711 /disk; exec sleep 1000";
    let more = json!({ "volumes": volumes, "initContainers": [first, beside], "restartPolicy": "OnFailure" });
    bed.create(bed.script("anew", script, json!({ "volumeMounts": mounts }), more)).await;
    let runs = |restarts: i32| {
        move |pod: Option<&Pod>| {
            pod.is_some_and(|pod| {
                let of = |name: &str| container(pod, name);
                let restarted =
                    ["first", "beside", "main"].iter().all(|name| of(name)["restartCount"] == restarts);
                restarted && of("main")["state"]["running"].is_object()
            })
        }
    };
    bed.until("anew", runs(0)).await;
    let told = "until grep -c main /disk/told; do sleep 0.1; done; cat /disk/told; stat -c %a /disk";
    assert_eq!(bed.exec(&local, "anew", told).await, (0, "1\nfirst\nbeside\nmain\n711\n".to_owned()));
    let directory = local.stop().await;
    let local = bed.local_in(directory, bed.client.clone(), |_| {}).await;
    bed.until("anew", runs(1)).await;
    let told =
        "until grep -c main /disk/told | grep 2; do sleep 0.1; done; tail -3 /disk/told; stat -c %a /disk";
    assert_eq!(bed.exec(&local, "anew", told).await, (0, "2\nfirst\nbeside\nmain\n711\n".to_owned()));
}

/// A way to a cluster on which whoever asks for pods waits until the test lets him through.
#[derive(Clone)]
struct Gate {
    client: Client,
    asked: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Service<Request<Body>> for Gate {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let gate = self.clone();
        Box::pin(async move {
            if request.uri().path() == "/api/v1/pods" {
                gate.asked.send_replace(true);
                until(&gate.open).await;
            }
            gate.client.send(request).await
        })
    }
}

/// Waits until this is so.
async fn until(so: &watch::Sender<bool>) {
    so.subscribe().wait_for(|so| *so).await.expect("the sender is here");
}

/// A node knows of pods that went while it was away only when it has seen those that are there (4.15).
#[tokio::test]
async fn pods_that_went_while_their_node_was_away_are_forgotten() {
    let Some(bed) = Bed::new("away").await else { return };
    let local = bed.local(|_| {}).await;
    let mut uids = [const { String::new() }; 2];
    for (name, uid) in ["gone", "stays"].into_iter().zip(&mut uids) {
        let (pod, _) = bed.output(&local, bed.script(name, "echo said", json!({}), json!({}))).await;
        *uid = pod.metadata.uid.expect("a uid");
    }
    let directory = local.stop().await;
    bed.pods().delete("gone", &DeleteParams::default().grace_period(0)).await.expect("deletion");
    bed.until_gone("gone").await;

    let gate =
        Gate { client: bed.client.clone(), asked: watch::Sender::default(), open: watch::Sender::default() };
    let local = bed.local_in(directory, Client::new(gate.clone(), "default"), |_| {}).await;
    let [gone, stays] = uids.map(|uid| local.directory.path().join("pods").join(uid));
    until(&gate.asked).await;
    assert!(gone.exists() && stays.exists(), "it does not know yet");
    gate.open.send_replace(true);
    eventually(|| !gone.exists()).await;
    let log = fs::read_to_string(stays.join("logs/main/0.log")).expect("a log");
    assert!(log.ends_with(" F said\n"), "{log}");
}
