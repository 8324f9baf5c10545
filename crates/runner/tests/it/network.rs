//! The network of pods. Every test runs again in a network namespace of its own, for there is one network in each, and
//! only loopback and pods are in it. Where the kernel does not let us make one, the test says so and ends.

use std::{fs, io::Write as _, process::Command, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use reconcile::{Clock, Tasks};
use runner::{Node, PodNetwork, Process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, UdpSocket},
    time::timeout,
};

use crate::bed::{Bed, Local, eventually, phase, process_settings};

/// Says that a test is in its own network already.
const INSIDE: &str = "FERRY_TEST_INSIDE";
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether the test is in a network of its own, and is to go on. If not, it is run there, and has passed when this
/// returns.
fn is_inside(test: &str) -> bool {
    if std::env::var(INSIDE).is_ok() {
        return true;
    }
    let permitted = Command::new("unshare").args(["--net", "true"]).output();
    if !permitted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: network namespaces are not permitted here");
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args(["--exact", &format!("network::{test}"), "--nocapture"])
        .env(INSIDE, "yes")
        .output()
        .expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

fn with_pods(process: &mut Process) {
    process.network = PodNetwork::Pods;
}

fn ip(pod: &Pod) -> String {
    pod.status.as_ref().and_then(|status| status.pod_ip.clone()).expect("an address")
}

/// The names of all links of this network.
fn links() -> Vec<String> {
    let table = fs::read_to_string("/proc/thread-self/net/dev").expect("links");
    let mut names: Vec<String> =
        table.lines().filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect();
    names.sort();
    names
}

/// Answers every connection with the words in its environment: the server in the pods of these tests.
#[test]
#[ignore = "runs until it is killed, in a pod"]
fn a_server() {
    let Ok(words) = std::env::var("FERRY_TEST_WORDS") else { return };
    let listener = std::net::TcpListener::bind("0.0.0.0:80").expect("a port of its own");
    for stream in listener.incoming() {
        let _ = stream.and_then(|mut stream| stream.write_all(words.as_bytes())); // one that is gone does not ask
    }
}

/// A pod with that server, whose words are the pod's name. Its program is brought along: where it is here, there may be
/// something of the pod's own.
fn server(bed: &Bed, name: &str, mut container: Value) -> Value {
    let program = std::env::current_exe().expect("this program");
    let file = program.file_name().expect("a name").to_string_lossy();
    let script =
        format!("FERRY_TEST_WORDS={name} exec /mnt/program/{file} --exact network::a_server --ignored");
    container["volumeMounts"] = json!([{ "name": "program", "mountPath": "/mnt/program", "readOnly": true }]);
    let from = json!({ "path": program.parent(), "type": "Directory" });
    let volumes = json!({ "volumes": [{ "name": "program", "hostPath": from }] });
    bed.script(name, &script, container, volumes)
}

async fn ask(address: &str) -> String {
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        let mut said = String::new();
        stream.read_to_string(&mut said).await?;
        std::io::Result::Ok(said)
    };
    timeout(PATIENCE, talk).await.expect("in time").unwrap_or_else(|error| format!("{:?}", error.kind()))
}

async fn until_said(address: &str, words: &str) {
    let waiting = async {
        while ask(address).await != words {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{address} never said {words:?}"));
}

/// What a script in a pod says of what it reads from there.
async fn ask_from(bed: &Bed, local: &Local, pod: &str, host: &str, port: u16) -> String {
    let script = format!("exec 3<>/dev/tcp/{host}/{port} && cat <&3");
    let (_, said) = bed.exec(local, pod, &format!("bash -c '{script}'")).await;
    said
}

/// What is said at a port of a pod to whoever connects from its inside.
async fn ask_inside(bed: &Bed, local: &Local, pod: &str, port: u16) -> Result<String, std::io::ErrorKind> {
    let uid = bed.pods().get(pod).await.expect("the pod").metadata.uid.expect("a uid");
    match timeout(PATIENCE, local.node.connect(&bed.key(pod), &uid, port)).await.expect("in time") {
        Ok(mut stream) => {
            let mut said = String::new();
            stream.read_to_string(&mut said).await.expect("words");
            Ok(said)
        }
        Err(runner::Unreachable::Connect { source, .. }) => Err(source.kind()),
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn pods_have_addresses_and_ports_of_their_own() {
    if !is_inside("pods_have_addresses_and_ports_of_their_own") {
        return;
    }
    let Some(bed) = Bed::new("own").await else { return };
    let local = bed.local(with_pods).await;
    let probe = json!({ "readinessProbe": { "tcpSocket": { "port": 80 }, "periodSeconds": 1 } });
    for name in ["one", "two"] {
        bed.create(server(&bed, name, probe.clone())).await;
    }
    bed.create(bed.script("hosts", "sleep 1000", json!({}), json!({ "hostNetwork": true }))).await;
    let ready = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| crate::bed::conditions(pod).contains(&"Ready=True ".to_owned()))
    };
    let one = ip(&bed.until("one", ready).await.expect("it runs"));
    let two = ip(&bed.until("two", ready).await.expect("it runs"));
    let hosts = bed.until_phase("hosts", "Running").await;
    assert!(one != two && one.starts_with("10.244.0.") && two.starts_with("10.244.0."), "{one} {two}");
    let status = hosts.status.as_ref().expect("a status");
    assert_eq!((ip(&hosts).as_str(), status.host_ip.as_deref()), ("10.244.0.1", Some("10.244.0.1")));
    // From the node, from the other pod, from one in the node's network, and from itself.
    assert_eq!(
        (ask(&format!("{one}:80")).await, ask(&format!("{two}:80")).await),
        ("one".into(), "two".into())
    );
    assert_eq!(ask_from(&bed, &local, "one", &two, 80).await, "two");
    // And as a process of the pod would ask.
    for name in ["one", "two"] {
        assert_eq!(ask_inside(&bed, &local, name, 80).await.as_deref(), Ok(name));
        assert_eq!(ask_inside(&bed, &local, name, 81).await, Err(std::io::ErrorKind::ConnectionRefused));
    }
    assert_eq!(ask_from(&bed, &local, "hosts", &two, 80).await, "two");
    assert_eq!(ask_from(&bed, &local, "two", "127.0.0.1", 80).await, "two");
    assert!(links().len() > 3, "{:?}", links());
    for name in ["one", "two", "hosts"] {
        bed.delete(name).await;
        bed.until_gone(name).await;
    }
    eventually(|| links() == ["ferry0", "lo"]).await;
    drop(local);
    eventually(|| links() == ["lo"]).await;
}

/// Makes a service of the pods with this label, whose endpoints are these.
async fn serve(bed: &Bed, name: &str, spec: Value, addresses: &[String]) -> Value {
    let ports = spec["ports"].clone();
    bed.make("v1", "Service", json!({ "metadata": { "name": name }, "spec": spec })).await;
    let services: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::namespaced(bed.client.clone(), &bed.namespace);
    let made = services.get(name).await.expect("the service");
    let endpoints: Vec<Value> = addresses.iter().map(|ip| json!({ "addresses": [ip] })).collect();
    let targets: Vec<Value> = ports
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| json!({ "name": port["name"].as_str().unwrap_or(""), "port": port["targetPort"], "protocol": "TCP" }))
        .collect();
    let labels = json!({ "kubernetes.io/service-name": name });
    let slice = json!({
        "metadata": { "name": name, "labels": labels }, "addressType": "IPv4", "endpoints": endpoints, "ports": targets,
    });
    let slice = serde_json::from_value(slice).expect("a slice");
    let slices: kube::Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        kube::Api::namespaced(bed.client.clone(), &bed.namespace);
    slices.create(&kube::api::PostParams::default(), &slice).await.expect("a slice");
    serde_json::to_value(made).expect("JSON")
}

#[tokio::test]
async fn services_lead_to_their_endpoints() {
    if !is_inside("services_lead_to_their_endpoints") {
        return;
    }
    let Some(bed) = Bed::new("services").await else { return };
    let api = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = api.local_addr().expect("an address").port();
    let answering = tokio::spawn(async move {
        while let Ok((mut stream, _)) = api.accept().await {
            let _ = stream.write_all(b"server").await;
        }
    });
    let local = bed
        .local(|process| {
            with_pods(process);
            process.server = Some(("127.0.0.1".to_owned(), port));
        })
        .await;
    let mut addresses = Vec::new();
    for name in ["one", "two"] {
        bed.create(server(&bed, name, json!({}))).await;
        let address = ip(&bed.until_phase(name, "Running").await);
        until_said(&format!("{address}:80"), name).await;
        addresses.push(address);
    }
    let ports = json!([{ "name": "web", "port": 8080, "targetPort": 80 }]);
    let made = serve(&bed, "both", json!({ "type": "NodePort", "ports": ports }), &addresses).await;
    let own = format!("{}:8080", made["spec"]["clusterIP"].as_str().expect("an address"));
    let node = format!("10.244.0.1:{}", made["spec"]["ports"][0]["nodePort"]);
    for address in [&own, &node] {
        until_said(address, "one").await;
        until_said(address, "two").await;
    }
    let names =
        ask_from(&bed, &local, "one", &format!("both.{}.svc.cluster.local", bed.namespace), 8080).await;
    assert!(matches!(names.as_str(), "one" | "two"), "{names}");
    // The shorter name is completed by what the pod searches.
    let names = ask_from(&bed, &local, "one", "both", 8080).await;
    assert!(matches!(names.as_str(), "one" | "two"), "{names}");
    // A client that is to come back does.
    bed.patch("v1", "Service", "both", json!({ "spec": { "sessionAffinity": "ClientIP" } })).await;
    let sticks = async {
        loop {
            let first = ask(&own).await;
            let mut all = Vec::new();
            for _ in 0..5 {
                all.push(ask(&own).await);
            }
            if all.iter().all(|one| *one == first) {
                return;
            }
        }
    };
    timeout(PATIENCE, sticks).await.expect("it comes back to the same one");
    // The server of the cluster has a service too, which the test makes because its server listens nowhere.
    let spec = json!({ "metadata": { "name": "kubernetes", "namespace": "default" }, "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443 }] } });
    let services: kube::Api<k8s_openapi::api::core::v1::Service> =
        kube::Api::namespaced(bed.client.clone(), "default");
    let kubernetes = serde_json::from_value(spec).expect("a service");
    services.create(&kube::api::PostParams::default(), &kubernetes).await.expect("a service");
    until_said("10.96.0.1:443", "server").await;
    assert_eq!(ask_from(&bed, &local, "two", "10.96.0.1", 443).await, "server");
    // Nobody is behind it any more: nobody answers.
    bed.delete("one").await;
    let slices: kube::Api<k8s_openapi::api::discovery::v1::EndpointSlice> =
        kube::Api::namespaced(bed.client.clone(), &bed.namespace);
    slices.delete("both", &kube::api::DeleteParams::default()).await.expect("deletion");
    until_said(&own, "ConnectionRefused").await;
    answering.abort();
}

#[tokio::test]
async fn a_pod_gets_a_port_of_its_node() {
    if !is_inside("a_pod_gets_a_port_of_its_node") {
        return;
    }
    let Some(bed) = Bed::new("ports").await else { return };
    let local = bed.local(with_pods).await;
    let own = json!({ "ports": [{ "containerPort": 80, "hostPort": 8081 }, { "containerPort": 80, "hostPort": 8082, "hostIP": "127.0.0.1" }] });
    bed.create(server(&bed, "one", own)).await;
    until_said("10.244.0.1:8081", "one").await;
    until_said("127.0.0.1:8082", "one").await;
    assert_eq!(ask("127.0.0.1:8081").await, "ConnectionRefused");
    bed.delete("one").await;
    until_said("10.244.0.1:8081", "ConnectionRefused").await;
    drop(local);
}

#[tokio::test]
async fn names_are_answered_by_datagrams() {
    if !is_inside("names_are_answered_by_datagrams") {
        return;
    }
    let Some(bed) = Bed::new("names").await else { return };
    let _local = bed.local(with_pods).await;
    bed.make("v1", "Service", json!({ "metadata": { "name": "web" }, "spec": { "clusterIP": "10.96.7.8", "ports": [{ "port": 80 }] } })).await;
    let mut asked = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in ["web", &bed.namespace, "svc", "cluster", "local"] {
        asked.push(u8::try_from(label.len()).expect("short"));
        asked.extend_from_slice(label.as_bytes());
    }
    asked.extend_from_slice(&[0, 0, 1, 0, 1]);
    let answered = async {
        loop {
            let socket = UdpSocket::bind("0.0.0.0:0").await.expect("a socket");
            socket.connect("10.96.0.10:53").await.expect("a way");
            let mut answer = [0; 512];
            if socket.send(&asked).await.is_ok()
                && let Ok(Ok(length)) = timeout(Duration::from_secs(1), socket.recv(&mut answer)).await
                && answer[..length].ends_with(&[10, 96, 7, 8])
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, answered).await.expect("the address of the service");
}

/// A node in a process of its own, which is killed: started by the test below.
#[tokio::test]
#[ignore = "runs until it is killed, and is started by another test"]
async fn a_network_to_be_left() {
    let Ok(directory) = std::env::var("FERRY_TEST_DIRECTORY") else { return };
    let Some(bed) = Bed::new("left").await else { return };
    let mut tasks = Tasks::new();
    let settings = process_settings(&bed.node("local"), directory.as_ref(), with_pods);
    Node::start(bed.client.clone(), settings, Clock::system(), &mut tasks).await.expect("a node");
    bed.create(bed.script("pod", "sleep 1000", json!({}), json!({}))).await;
    bed.until_phase("pod", "Running").await;
    fs::write(format!("{directory}/runs"), "").expect("a file");
    tasks.ended().await;
}

#[tokio::test]
async fn a_network_that_was_left_is_removed_by_the_next_one() {
    if !is_inside("a_network_that_was_left_is_removed_by_the_next_one") {
        return;
    }
    let Some(bed) = Bed::new("next").await else { return };
    let directory = tempfile::Builder::new().prefix("ferry-node-").tempdir().expect("a directory");
    let mut node = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "network::a_network_to_be_left", "--ignored"])
        .env("FERRY_TEST_DIRECTORY", directory.path())
        .spawn()
        .expect("a process");
    eventually(|| directory.path().join("runs").exists()).await;
    // While the first one lives, there is no place for another.
    let settings = process_settings(&bed.node("local"), directory.path(), with_pods);
    let mut tasks = Tasks::new();
    let refused = Node::start(bed.client.clone(), settings.clone(), Clock::system(), &mut tasks).await;
    let refused = refused.expect_err("a second network");
    assert!(matches!(refused, runner::Error::Network { .. }), "{refused}");
    node.kill().expect("it can be killed");
    node.wait().expect("it ended");
    // The pod is ended by its guard, and its link goes with it; the bridge stays until the next start.
    eventually(|| links() == ["ferry0", "lo"]).await;
    Node::start(bed.client.clone(), settings, Clock::system(), &mut tasks).await.expect("a node");
    bed.create(bed.script("pod", "sleep 1000", json!({}), json!({}))).await;
    let pod = bed.until_phase("pod", "Running").await;
    assert_eq!((phase(&pod), ip(&pod).as_str()), ("Running", "10.244.0.2"));
    drop(tasks);
    eventually(|| links() == ["lo"]).await;
}
