//! kubectl v1.35 against our server: what people type.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Cluster;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use tempfile::TempDir;
use testkit::Binary;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::cluster;
use crate::streams::{Echo, with_pod};

/// kubectl, a server for it, and a directory of their own.
struct Kubectl {
    program: PathBuf,
    dir: TempDir,
    _server: Server,
}

impl Kubectl {
    /// `None`, loudly, where there is no kubectl to be had.
    async fn start() -> Option<Self> {
        Kubectl::of(cluster().await).await
    }

    /// The same, for this cluster.
    async fn of(cluster: Cluster) -> Option<Self> {
        let program = match Binary::Kubectl.ensure() {
            Ok(program) => program,
            Err(why) if std::env::var_os("FERRY_REQUIRE_KUBERNETES").is_none() => {
                eprintln!("SKIPPED: {why}");
                return None;
            }
            Err(why) => panic!("{why}"),
        };
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
        let dir = tempfile::tempdir().expect("a directory");
        let url = format!("https://{}", server.address());
        credentials.write_kubeconfig(&dir.path().join("config"), "test", &url).expect("a kubeconfig");
        Some(Kubectl { program, dir, _server: server })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("KUBECONFIG", self.dir.path().join("config"))
            .env("HOME", self.dir.path())
            .env("EDITOR", "sed -i s/before/after/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command with something on its input; what it said, and whether it succeeded.
    async fn try_run(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut child = self.command(arguments).spawn().expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("an input");
        stdin.write_all(input.as_bytes()).await.expect("kubectl reads");
        drop(stdin);
        let waited = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
        let output = waited.expect("kubectl ends").expect("its output");
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.success(), text.concat())
    }

    async fn run(&self, arguments: &[&str], input: &str) -> String {
        let (succeeded, said) = self.try_run(arguments, input).await;
        assert!(succeeded, "kubectl {}: {said}", arguments.join(" "));
        said
    }

    /// Runs a line, split at spaces, and looks for a text in what it says.
    async fn says(&self, line: &str, expected: &str) {
        let said = self.run(&line.split(' ').collect::<Vec<_>>(), "").await;
        assert!(said.contains(expected), "kubectl {line}: {expected:?} is not in {said}");
    }

    async fn refuses(&self, line: &str, expected: &str) {
        let (succeeded, said) = self.try_run(&line.split(' ').collect::<Vec<_>>(), "").await;
        assert!(!succeeded && said.contains(expected), "kubectl {line}: {expected:?} is not in {said}");
    }
}

const JOB: &str = "
apiVersion: batch/v1
kind: Job
metadata: {name: sums, labels: {app: before}}
spec:
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sleep, '1']}]
";

#[tokio::test]
async fn objects_are_made_shown_changed_and_removed() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl.says("create namespace team", "namespace/team created").await;
    kubectl.says("create configmap settings --from-literal=a=before", "configmap/settings created").await;
    kubectl.refuses("create configmap settings", "configmaps \"settings\" already exists").await;
    kubectl.says("create job once --image=busybox -- true", "job.batch/once created").await;
    kubectl.says("create secret generic s --from-literal=k=v -n team", "secret/s created").await;

    let shown = kubectl.run(&["get", "configmaps", "settings"], "").await;
    let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "DATA", "AGE"]);
    assert_eq!(lines[1][..2], ["settings", "1"]);
    kubectl.says("get jobs -o wide", "SELECTOR").await;
    kubectl.says("get job once -o yaml", "completionMode: NonIndexed").await;
    kubectl.says("get secrets -A", "team").await;
    kubectl.says("get namespaces --show-labels", "kubernetes.io/metadata.name=team").await;
    kubectl.says("get cm settings -o jsonpath={.data.a}", "before").await;
    kubectl.refuses("get cm nothing", "configmaps \"nothing\" not found").await;
    kubectl.says("describe job once", "Parallelism:").await;
    kubectl.says("describe cm settings", "before").await;

    kubectl.says("edit cm settings", "configmap/settings edited").await;
    kubectl.says("get cm settings -o jsonpath={.data.a}", "after").await;
    kubectl.says("label cm settings tier=web", "configmap/settings labeled").await;
    kubectl.says("annotate cm settings note=yes", "configmap/settings annotated").await;
    kubectl.says("get cm -l tier=web -o name", "configmap/settings").await;
    for (kind, patch) in [
        ("merge", r#"{"data":{"m":"1"}}"#),
        ("json", r#"[{"op":"add","path":"/data/j","value":"1"}]"#),
        ("strategic", r#"{"data":{"s":"1"}}"#),
    ] {
        let said = kubectl.run(&["patch", "cm", "settings", "--type", kind, "-p", patch], "").await;
        assert!(said.contains("patched"), "{said}");
    }
    let data = kubectl.run(&["get", "cm", "settings", "-o", "jsonpath={.data}"], "").await;
    assert_eq!(data, r#"{"a":"after","j":"1","m":"1","s":"1"}"#);

    for cascade in ["background", "orphan", "foreground"] {
        kubectl.says("create cm gone", "created").await;
        // Without a garbage collector only the first of them removes the object.
        let line = format!("delete cm gone --cascade={cascade} --wait=false");
        kubectl.says(&line, "configmap \"gone\" deleted").await;
        if cascade != "background" {
            let finalizers =
                kubectl.run(&["get", "cm", "gone", "-o", "jsonpath={.metadata.finalizers}"], "").await;
            assert_eq!(
                finalizers,
                if cascade == "orphan" { r#"["orphan"]"# } else { r#"["foregroundDeletion"]"# }
            );
            let patch = r#"{"metadata":{"finalizers":null}}"#;
            kubectl.run(&["patch", "cm", "gone", "--type=merge", "-p", patch], "").await;
        }
        kubectl.refuses("get cm gone", "not found").await;
    }
    kubectl.says("delete cm settings", "configmap \"settings\" deleted").await;
    kubectl.says("api-resources --api-group=batch", "cronjobs").await;
    kubectl.says("api-versions", "batch/v1").await;
    kubectl.says("version", "Server Version: v1.35").await;
}

#[tokio::test]
async fn types_are_explained_and_permissions_told() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl.says("explain job.spec.parallelism", "FIELD: parallelism <integer>").await;
    kubectl.says("explain pod.spec.containers.resources --recursive", "limits").await;
    kubectl.says("api-resources --namespaced=false --verbs=list -o name", "namespaces").await;
    kubectl.says("auth can-i create jobs", "yes").await;
    kubectl.says("auth whoami", "system:masters").await;
    kubectl.refuses("auth can-i create jobs --as=nobody", "no").await;
    kubectl.refuses("get pods --as=nobody", "User \"nobody\" cannot list resource \"pods\"").await;
    kubectl
        .says("create role reader --verb=get,list --resource=pods", "role.rbac.authorization.k8s.io/reader")
        .await;
    kubectl.says("create rolebinding readers --role=reader --user=nobody", "readers created").await;
    kubectl.says("auth can-i list pods --as=nobody", "yes").await;
    kubectl.says("get pods --as=nobody", "No resources found").await;
    kubectl.says("auth can-i --list --as=nobody", "pods").await;
}

#[tokio::test]
async fn configurations_are_applied_on_either_side() {
    let Some(kubectl) = Kubectl::start().await else { return };
    let apply = |more: &'static [&'static str]| [&["apply", "-f", "-"], more].concat();
    assert!(kubectl.run(&apply(&[]), JOB).await.contains("job.batch/sums created"));
    assert!(kubectl.run(&apply(&[]), JOB).await.contains("unchanged"));
    let changed = JOB.replace("parallelism: 2", "parallelism: 3");
    let (differs, said) = kubectl.try_run(&["diff", "-f", "-"], &changed).await;
    assert!(!differs && said.contains("+  parallelism: 3"), "{said}");
    assert!(
        kubectl.run(&apply(&["--dry-run=server"]), &changed).await.contains("configured (server dry run)")
    );
    assert!(kubectl.run(&apply(&[]), &changed).await.contains("configured"));
    kubectl.says("get job sums -o jsonpath={.spec.parallelism}", "3").await;

    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}, data: {k: v}}";
    let server_side = ["--server-side"];
    assert!(
        kubectl
            .run(&[&["apply", "-f", "-"], &server_side[..]].concat(), map)
            .await
            .contains("serverside-applied")
    );
    let other = map.replace("k: v", "k: w");
    let by_another = ["apply", "-f", "-", "--server-side", "--field-manager=other"];
    let (succeeded, said) = kubectl.try_run(&by_another, &other).await;
    assert!(!succeeded && said.contains("conflict with \"kubectl\""), "{said}");
    let said = kubectl.run(&[&by_another[..], &["--force-conflicts"]].concat(), &other).await;
    assert!(said.contains("serverside-applied"), "{said}");
    let managers = "jsonpath={.metadata.managedFields[*].manager}";
    kubectl.says(&format!("get cm m -o {managers} --show-managed-fields"), "other").await;
    let (succeeded, said) = kubectl.try_run(&apply(&[]), &JOB.replace("parallelism", "paralelism")).await;
    assert!(!succeeded && said.contains("unknown field \"spec.paralelism\""), "{said}");
}

#[tokio::test]
async fn changes_are_watched_and_waited_for() {
    let Some(kubectl) = Kubectl::start().await else { return };
    kubectl.run(&["apply", "-f", "-"], JOB).await;
    let mut watching = kubectl.command(&["get", "jobs", "-w"]).spawn().expect("kubectl starts");
    let mut lines = BufReader::new(watching.stdout.take().expect("its output")).lines();
    let mut next = async || {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await;
        line.expect("a line in time").expect("readable").expect("a line")
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.starts_with("sums"));

    let waits = kubectl.command(&["wait", "job/sums", "--for=condition=Suspended", "--timeout=30s"]).spawn();
    let waits = waits.expect("kubectl starts");
    let condition = r#"{"status":{"conditions":[{"type":"Suspended","status":"True"}]}}"#;
    kubectl.run(&["patch", "job", "sums", "--subresource=status", "--type=merge", "-p", condition], "").await;
    let shown = next().await;
    assert!(shown.contains("Suspended"), "{shown}");
    let waited = waits.wait_with_output().await.expect("kubectl ends");
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    kubectl.says("delete job sums --wait=true", "deleted").await;
    watching.kill().await.expect("kubectl can be ended");
}

/// kubectl begins with a WebSocket; older ones, and newer ones that are told to, speak SPDY alone.
#[tokio::test]
async fn kubectl_forwards_ports() {
    let cluster = cluster().await;
    with_pod(&cluster).await;
    let running = serde_json::json!({"status": {"phase": "Running"}});
    let path = "/api/v1/namespaces/default/pods/p/status";
    let request = http::Request::patch(path).header("Content-Type", "application/merge-patch+json");
    let request = request.body(running.to_string().into()).expect("a request");
    assert_eq!(cluster.answer(request).await.status(), 200);
    let _introduced = cluster.introduce("n", Arc::new(Echo));
    let Some(kubectl) = Kubectl::of(cluster).await else { return };
    for sockets in ["true", "false"] {
        let mut command = kubectl.command(&["port-forward", "pod/p", ":80", ":81"]);
        let mut forwards =
            command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", sockets).spawn().expect("kubectl starts");
        let mut lines = BufReader::new(forwards.stdout.take().expect("its output")).lines();
        let mut errors = BufReader::new(forwards.stderr.take().expect("its errors")).lines();
        let talk = async {
            let mut ports = Vec::new();
            while ports.len() < 2 {
                let line = lines.next_line().await.expect("text").expect("kubectl goes on");
                if let Some(address) = line.strip_prefix("Forwarding from 127.0.0.1:") {
                    let (port, _) = address.split_once(' ').expect("a port");
                    ports.push(port.parse::<u16>().expect("a number"));
                }
            }
            // Several at once, with more than one piece each; who has said all still hears all.
            let port = ports[0];
            let ask = |text: String| async move {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("kubectl listens");
                let (mut from, mut to) = stream.into_split();
                let sent = text.clone();
                let saying = async move {
                    to.write_all(sent.as_bytes()).await.expect("written");
                    to.shutdown().await.expect("closed");
                };
                let mut heard = String::new();
                let ((), read) = tokio::join!(saying, from.read_to_string(&mut heard));
                read.expect("an end");
                assert!(heard == text, "{} of {} bytes came back", heard.len(), text.len());
            };
            tokio::join!(ask("a".repeat(300_000)), ask("b".to_owned()), ask(String::new()));
            ask("again".to_owned()).await;
            let mut nobody =
                TcpStream::connect((Ipv4Addr::LOCALHOST, ports[1])).await.expect("kubectl listens");
            let mut heard = Vec::new();
            // Closed or reset: either way nothing is said.
            drop(nobody.read_to_end(&mut heard).await);
            assert!(heard.is_empty());
            loop {
                let line = errors.next_line().await.expect("text").expect("kubectl goes on");
                if line.contains("nobody is at port 81 of p") {
                    break;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), talk).await.expect("kubectl forwards in time");
    }
}
