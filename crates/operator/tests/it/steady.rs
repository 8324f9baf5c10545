//! A way to a cluster on which is seen whether the operator asks for what it was told already, or writes what is so already.

use std::time::Duration;

use anyhow::Context as _;
use http::{Method, Request, Response};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::way::{Passed, through};

/// For how long nothing happens where nothing is left to be done.
const QUIET: Duration = Duration::from_secs(5);
/// How long it may take until nothing is left to be done.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came by this way.
pub(crate) struct Steady(UnboundedReceiver<Passer>);

/// A request, in a line, and what is wrong with it.
struct Passer {
    line: String,
    wrong: Option<&'static str>,
}

/// Such a way to the cluster of `client`.
pub(crate) fn watched(client: Client) -> (Client, Steady) {
    let (tell, told) = unbounded_channel();
    (through(move |request| pass(client.clone(), tell.clone(), request)), Steady(told))
}

impl Steady {
    /// Waits until nothing is asked or written any more, and returns an error if anything was that need not have been.
    pub(crate) async fn settles(mut self) -> anyhow::Result<()> {
        let (mut wrong, mut last) = (Vec::new(), String::new());
        let settling = async {
            while let Ok(Some(Passer { line, wrong: why })) = tokio::time::timeout(QUIET, self.0.recv()).await
            {
                wrong.extend(why.map(|why| format!("{why}: {line}")));
                last = line;
            }
        };
        let settled = tokio::time::timeout(PATIENCE, settling).await;
        settled.with_context(|| format!("it has no rest, but last {last}"))?;
        anyhow::ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}

fn pass(client: Client, tell: UnboundedSender<Passer>, request: Request<Body>) -> Passed {
    Box::pin(async move {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let line = format!("{method} {}", request.uri());
        let tell = move |wrong| {
            // Nobody listens any more once the test is over.
            let _ = tell.send(Passer { line, wrong });
        };
        if method == Method::GET {
            tell(is_of_one(&path).then_some("asked for what a watch tells"));
            return client.send(request).await.map_err(std::io::Error::other);
        }
        let changes = method == Method::PATCH || method == Method::PUT;
        let before = if changes { version(&client, &path).await } else { None };
        let (head, body) = client.send(request).await.map_err(std::io::Error::other)?.into_parts();
        let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
        let after = serde_json::from_slice(&body).ok().and_then(|answer: Value| version_in(&answer));
        let same = head.status.is_success() && before.is_some() && before == after;
        // What was deleted and is let go of has no version after its last.
        let vain = same && version(&client, &path).await == before;
        tell(vain.then_some("written without a change"));
        Ok(Response::from_parts(head, Body::from(body)))
    })
}

/// Whether a path leads to one object rather than to all of a kind.
fn is_of_one(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let (root, group) = (parts.next(), parts.next());
    if root == Some("apis") && group.is_some() {
        parts.next();
    }
    let parts: Vec<&str> = parts.collect();
    match parts[..] {
        ["namespaces", _, _] => false,
        ["namespaces", _, ..] => true,
        _ => parts.len() > 1,
    }
}

/// The version that an object has, if it is there.
async fn version(client: &Client, path: &str) -> Option<String> {
    let path = path.strip_suffix("/status").unwrap_or(path);
    let request = Request::get(path).body(Vec::new()).expect("a path of a request is one");
    version_in(&client.request::<Value>(request).await.ok()?)
}

fn version_in(object: &Value) -> Option<String> {
    object["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

#[test]
fn paths_lead_to_one_or_to_many() {
    for many in ["/api/v1/namespaces", "/apis/batch/v1/jobs", "/apis/batch/v1/namespaces/n/jobs"] {
        assert!(!is_of_one(many), "{many}");
    }
    let ones = [
        "/api/v1/namespaces/n",
        "/apis/batch/v1/namespaces/n/jobs/j",
        "/apis/kueue.x-k8s.io/v1beta2/cohorts/c",
    ];
    for one in ones {
        assert!(is_of_one(one), "{one}");
    }
}
