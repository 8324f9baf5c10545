//! Clients that others wrote: Go's informers and controller-runtime, Python's client, and a controller of kube-rs.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tempfile::TempDir;

use crate::{client, cluster};

/// The version of Python's client that is asked.
const PYTHON_CLIENT: &str = "kubernetes==37.0.2";

/// A server on a port, and a kubeconfig for it.
struct Served {
    dir: TempDir,
    _server: Server,
}

impl Served {
    async fn start() -> Self {
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(cluster().await, credentials.clone(), anywhere).await.expect("a server");
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("https://{}", server.address());
        credentials.write_kubeconfig(&dir.path().join("config"), "test", &url).expect("a kubeconfig");
        Served { dir, _server: server }
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("config")
    }
}

async fn output(mut command: Command) -> Output {
    let ended = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    ended.expect("the program starts")
}

fn expect_success(what: &str, output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what} failed:\n{said}\n{errors}");
    said
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_informers_and_a_controller_runtime_manager() {
    let Some(tools) = testkit::go::Tools::for_test("kubernetes/clients") else { return };
    let program = tokio::task::spawn_blocking(move || tools.program(".")).await.expect("no panic");
    let program = program.expect("the clients are built");
    let served = Served::start().await;
    let mut command = Command::new(program.path());
    command.arg(served.kubeconfig()).arg("default");
    let said = expect_success("clients", &output(command).await);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 4, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client() {
    let Some(python) = python() else { return };
    let served = Served::start().await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients.py");
    let mut command = Command::new(python);
    command.arg(script).env("KUBECONFIG", served.kubeconfig());
    let said = expect_success("clients.py", &output(command).await);
    assert_eq!(said.lines().filter(|line| line.starts_with("ok ")).count(), 5, "{said}");
}

/// An interpreter that knows the client: in an environment of its own in the cache, made the first time. `None`, loudly,
/// where there is no Python and none is required.
fn python() -> Option<PathBuf> {
    let has_python =
        Command::new("python3").arg("--version").output().is_ok_and(|said| said.status.success());
    if !has_python {
        let is_required = std::env::var_os("FERRY_REQUIRE_KUBERNETES").is_some();
        assert!(!is_required, "the test of Python's client needs python3, and there is none on PATH");
        eprintln!("SKIPPED the_python_client: there is no python3 on PATH");
        return None;
    }
    let place = testkit::go::cache().expect("a cache").join("ferry/python").join(PYTHON_CLIENT);
    let python = place.join("bin/python");
    std::fs::create_dir_all(&place).expect("a place in the cache");
    let lock = std::fs::File::create(place.join("lock")).expect("a lock");
    lock.lock().expect("a lock");
    let stamp = place.join("complete");
    if !stamp.exists() {
        let run = |program: &Path, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().expect("python starts");
            expect_success(&arguments.join(" "), &output);
        };
        let directory = place.to_str().expect("a path of UTF-8");
        run(Path::new("python3"), &["-m", "venv", "--clear", directory]);
        run(&python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT]);
        std::fs::write(&stamp, "").expect("a stamp");
    }
    Some(python)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_of_kube_rs_with_both_ways_to_list() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let client = client().await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
        for name in ["first", "second"] {
            let map = json!({"metadata": {"name": name}, "data": {"n": "1"}});
            let map = serde_json::from_value(map).expect("a map");
            maps.create(&PostParams::default(), &map).await.expect("made");
        }
        let controller = Controller::new(maps.clone(), config).run(doubled, failed, Arc::new(client));
        let working = tokio::spawn(controller.for_each(async |_| {}));
        let third = json!({"metadata": {"name": "third"}, "data": {"n": "4"}});
        let third = serde_json::from_value(third).expect("a map");
        maps.create(&PostParams::default(), &third).await.expect("made");
        let mut found = BTreeMap::new();
        for _ in 0..400 {
            let list = maps.list(&kube::api::ListParams::default()).await.expect("a list");
            let doubled = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("doubled").cloned());
            found = list.iter().filter_map(|map| Some((map.name_any(), doubled(map)?))).collect();
            if found.len() == 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        working.abort();
        let expected = [("first", "2"), ("second", "2"), ("third", "8")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(found, BTreeMap::from(expected));
    }
}

/// Applies what it works out, as controllers do.
async fn doubled(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let number = map.data.as_ref().and_then(|data| data.get("n")?.parse::<u32>().ok());
    if let Some(number) = number {
        let maps: Api<ConfigMap> = Api::default_namespaced((*client).clone());
        let patch = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"doubled": (2 * number).to_string()},
        });
        maps.patch(&map.name_any(), &PatchParams::apply("doubler"), &Patch::Apply(patch)).await?;
    }
    Ok(Action::await_change())
}

fn failed(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_millis(50))
}
