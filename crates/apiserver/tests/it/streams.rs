//! Output of containers and processes in them, from a node in this process, through a port and a WebSocket.

use std::sync::Arc;

use apiserver::Cluster;
use apiserver::node::{Connection, Container, Ended, Node, Streams, Unserved};
use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, LogParams};
use rules::pod::logs::{LogOptions, StreamOptions};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::serve::client_at_port;
use crate::{ask, cluster};

/// A node on which every process repeats what it is told, and ends with the code that its command says.
pub(crate) struct Echo;

impl Node for Echo {
    fn logs(
        &self,
        of: Container,
        options: LogOptions,
    ) -> BoxFuture<'_, Result<BoxStream<'static, Bytes>, Unserved>> {
        Box::pin(async move {
            if options.previous {
                return Err(Unserved::BadRequest("nothing before".to_owned()));
            }
            let lines =
                (0..options.tail_lines.unwrap_or(2)).map(move |i| Bytes::from(format!("{} {i}\n", of.name)));
            Ok(stream::iter(lines).boxed())
        })
    }

    fn exec(
        &self,
        _: Container,
        options: StreamOptions,
        mut streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>> {
        Box::pin(async move {
            while let Some(bytes) = streams.stdin.recv().await {
                streams.stdout.send(bytes).await.map_err(|why| Unserved::Failed(why.to_string()))?;
            }
            let said = options.command.join(" ");
            streams.stderr.send(said.into()).await.map_err(|why| Unserved::Failed(why.to_string()))?;
            let exit_code = options.command.last().and_then(|word| word.parse().ok()).unwrap_or(0);
            Ok(Ended { exit_code })
        })
    }

    fn attach(
        &self,
        of: Container,
        options: StreamOptions,
        streams: Streams,
    ) -> BoxFuture<'_, Result<Ended, Unserved>> {
        self.exec(of, options, streams)
    }

    /// Port 80 repeats what it hears, and nobody is at the others.
    fn forward(&self, to: apiserver::node::Pod, port: u16) -> BoxFuture<'_, Result<Connection, Unserved>> {
        Box::pin(async move {
            if port != 80 {
                return Err(Unserved::Failed(format!("nobody is at port {port} of {}", to.name)));
            }
            let (ours, theirs) = tokio::io::duplex(64 * 1024);
            let (mut heard, mut said) = tokio::io::split(ours);
            tokio::spawn(async move {
                drop(tokio::io::copy(&mut heard, &mut said).await);
                drop(said.shutdown().await);
            });
            Ok(Box::new(theirs) as Connection)
        })
    }
}

pub(crate) async fn with_pod(cluster: &Cluster) {
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}});
    let (code, answer, _) = ask(cluster, Method::POST, "/api/v1/namespaces/default/pods", Some(&pod)).await;
    assert_eq!(code, 201, "{answer}");
}

#[tokio::test]
async fn rule_2_73_output_of_containers() {
    let cluster = cluster().await;
    with_pod(&cluster).await;
    let path = "/api/v1/namespaces/default/pods/p/log";
    let (code, answer, _) = ask(&cluster, Method::GET, path, None).await;
    assert_eq!((code, &answer["message"]), (500, &json!("error dialing backend: node n cannot be reached")));
    let introduced = cluster.introduce("n", Arc::new(Echo));
    let pods: Api<Pod> = Api::default_namespaced(kube::Client::new(cluster.clone(), "default"));
    assert_eq!(pods.logs("p", &LogParams::default()).await.expect("output"), "c 0\nc 1\n");
    let one = LogParams { tail_lines: Some(1), container: Some("c".to_owned()), ..LogParams::default() };
    assert_eq!(pods.logs("p", &one).await.expect("output"), "c 0\n");
    for (query, code, message) in [
        ("?container=x", 400, "container x is not valid for pod p"),
        ("?previous=true", 400, "nothing before"),
        (
            "?limitBytes=0",
            422,
            "PodLogOptions \"p\" is invalid: limitBytes: Invalid value: 0: must be greater than 0",
        ),
    ] {
        let (got, answer, _) = ask(&cluster, Method::GET, &format!("{path}{query}"), None).await;
        assert_eq!((got, answer["message"].as_str()), (code, Some(message)));
    }
    drop(introduced);
    assert_eq!(ask(&cluster, Method::GET, path, None).await.0, 500);
}

#[tokio::test]
async fn rule_2_74_processes_in_containers() {
    let cluster = cluster().await;
    with_pod(&cluster).await;
    let _introduced = cluster.introduce("n", Arc::new(Echo));
    let (client, _server) = client_at_port(cluster.clone()).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let params = AttachParams::default().stdin(true).stdout(true).stderr(true);
    let mut process = pods.exec("p", ["exit", "3"], &params).await.expect("a process");
    let mut stdin = process.stdin().expect("its input");
    let (mut stdout, mut stderr) =
        (process.stdout().expect("its output"), process.stderr().expect("its errors"));
    stdin.write_all(b"hello").await.expect("written");
    let mut heard = [0; 5];
    stdout.read_exact(&mut heard).await.expect("read");
    assert_eq!(&heard, b"hello");
    let status = process.take_status().expect("a status");
    stdin.shutdown().await.expect("closed");
    drop(stdin);
    let mut said = String::new();
    stderr.read_to_string(&mut said).await.expect("read");
    assert_eq!(said, "exit 3");
    let status = status.await.expect("an end");
    assert_eq!(status.reason.as_deref(), Some("NonZeroExitCode"), "{status:?}");
    let (code, answer, _) =
        ask(&cluster, Method::POST, "/api/v1/namespaces/default/pods/p/exec?command=x&stdout=true", None)
            .await;
    assert_eq!((code, &answer["message"]), (400, &json!("Upgrade request required")));
}

#[tokio::test]
async fn ports_of_pods_by_channels() {
    let cluster = cluster().await;
    with_pod(&cluster).await;
    let _introduced = cluster.introduce("n", Arc::new(Echo));
    let (client, _server) = client_at_port(cluster.clone()).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut forwarder = pods.portforward("p", &[80, 81]).await.expect("ports");
    let mut stream = forwarder.take_stream(80).expect("the port");
    let mut heard = [0; 5];
    stream.write_all(b"hello").await.expect("written");
    stream.read_exact(&mut heard).await.expect("read");
    assert_eq!(&heard, b"hello");
    let uid = pods.get("p").await.expect("the pod").metadata.uid.expect("a uid");
    let failed = forwarder.take_error(81).expect("the port").await.expect("an error");
    assert_eq!(failed, format!("error forwarding port 81 to pod p, uid {uid}: nobody is at port 81 of p"));
    for (path, message) in [
        ("/api/v1/namespaces/default/pods/p/portforward?ports=80", "Upgrade request required"),
        ("/api/v1/namespaces/default/pods/p/portforward", "Upgrade request required"),
    ] {
        let (code, answer, _) = ask(&cluster, Method::GET, path, None).await;
        assert_eq!((code, &answer["message"]), (400, &json!(message)));
    }
}
