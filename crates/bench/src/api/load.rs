//! What is asked of an API server, and how long it takes to answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::{StreamExt as _, future::try_join_all, stream};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// The namespace whose Jobs are listed in the end; others hold what is only written.
pub(crate) const LISTED: &str = "listed";

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// An API server, seen from outside.
#[derive(Clone)]
pub(crate) struct Load(pub(crate) Client);

impl Load {
    pub(crate) async fn create_namespace(&self, name: &str) -> anyhow::Result<()> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await.map(drop)
    }

    /// Creates Jobs, so many at a time; how many in a second.
    pub(crate) async fn create(&self, namespace: &str, count: usize, at_once: usize) -> anyhow::Result<f64> {
        let uri = jobs(namespace);
        self.rate(count, at_once, |i| {
            let (uri, job) = (uri.clone(), job(&format!("job-{at_once}-{i}")));
            async move { self.send(Method::POST, &uri, JSON, &job).await }
        })
        .await
    }

    /// Writes what a controller writes while a Job runs; how often in a second.
    pub(crate) async fn patch_status(
        &self,
        namespace: &str,
        count: usize,
        at_once: usize,
    ) -> anyhow::Result<f64> {
        let uri = jobs(namespace);
        self.rate(count, at_once, |i| {
            let uri = format!("{uri}/job-{at_once}-{}/status", i % (count / 4).max(1));
            let patch = json!({"status": {
                "active": 1 + i % 7, "ready": 0, "startTime": "2026-01-01T00:00:00Z",
                "uncountedTerminatedPods": {},
            }});
            async move { self.send(Method::PATCH, &uri, MERGE, &patch).await }
        })
        .await
    }

    /// Applies a changed Job on the server's side; how often in a second.
    pub(crate) async fn apply(&self, namespace: &str, count: usize, at_once: usize) -> anyhow::Result<f64> {
        let uri = jobs(namespace);
        self.rate(count, at_once, |i| {
            let name = format!("applied-{}", i % (count / 4).max(1));
            let uri = format!("{uri}/{name}?fieldManager=bench&force=true");
            let mut job = job(&name);
            job["metadata"]["annotations"] = json!({"example.com/turn": i.to_string()});
            job["spec"]["parallelism"] = json!(1 + i % 5);
            async move { self.send(Method::PATCH, &uri, APPLY, &job).await }
        })
        .await
    }

    /// Reads one Job again and again; how long each time took.
    pub(crate) async fn get(&self, namespace: &str, count: usize) -> anyhow::Result<Vec<Duration>> {
        let uri = format!("{}/job-32-0", jobs(namespace));
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let started = Instant::now();
            self.send(Method::GET, &uri, JSON, &Value::Null).await?;
            times.push(started.elapsed());
        }
        Ok(times)
    }

    /// Lists all Jobs of a namespace at once; how long it took until the last byte, and how many bytes there were.
    pub(crate) async fn list(&self, namespace: &str) -> anyhow::Result<(Duration, usize)> {
        let started = Instant::now();
        let bytes = self.send(Method::GET, &jobs(namespace), JSON, &Value::Null).await?;
        Ok((started.elapsed(), bytes))
    }

    /// Creates Jobs while others watch; how many events were delivered in a second, until everybody had all of them.
    pub(crate) async fn fan_out(
        &self,
        namespace: &str,
        watchers: usize,
        count: usize,
    ) -> anyhow::Result<f64> {
        let uri = format!("{}?watch=true&timeoutSeconds=300", jobs(namespace));
        let streams = try_join_all((0..watchers).map(|_| self.open(&uri))).await?;
        let started = Instant::now();
        let watching = tokio::spawn(try_join_all(streams.into_iter().map(|body| until_lines(body, count))));
        self.create(namespace, count, 8).await?;
        watching.await.context("a watcher panicked")??;
        Ok(per_second(watchers * count, started.elapsed()))
    }

    async fn open(&self, uri: &str) -> anyhow::Result<Body> {
        let response = self.0.send(Request::get(uri).body(Body::empty())?).await?;
        anyhow::ensure!(response.status().is_success(), "a watch was answered with {}", response.status());
        Ok(response.into_body())
    }

    /// Does something so many times, some of them at once; how often in a second.
    async fn rate<F: Future<Output = anyhow::Result<usize>>>(
        &self,
        count: usize,
        at_once: usize,
        request: impl Fn(usize) -> F,
    ) -> anyhow::Result<f64> {
        let started = Instant::now();
        let next = Arc::new(AtomicUsize::new(0));
        let workers = (0..at_once).map(|_| async {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    return anyhow::Ok(());
                }
                request(i).await?;
            }
        });
        let mut workers = stream::iter(workers).buffer_unordered(at_once);
        while let Some(done) = workers.next().await {
            done?;
        }
        Ok(per_second(count, started.elapsed()))
    }

    /// One request; how long its answer is. Anything but success is an error.
    async fn send(&self, method: Method, uri: &str, of: &str, body: &Value) -> anyhow::Result<usize> {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let request = Request::builder().method(method).uri(uri).header("Content-Type", of).body(body)?;
        let response = self.0.send(request).await?;
        let code = response.status();
        let mut body = response.into_body();
        if !code.is_success() {
            let answer = body.collect_bytes().await?;
            anyhow::bail!("{uri} was answered with {code}: {}", String::from_utf8_lossy(&answer));
        }
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, bytes::Bytes::len);
        }
        Ok(bytes)
    }
}

/// Reads a watch until so many events have come.
async fn until_lines(mut body: Body, count: usize) -> anyhow::Result<()> {
    let mut seen = 0;
    while seen < count {
        let frame = body.frame().await.context("a watch ended early")??;
        let data = frame.data_ref().map_or(&[] as &[u8], |data| data);
        seen += data.split(|byte| *byte == b'\n').count() - 1;
    }
    Ok(())
}

fn jobs(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

#[expect(clippy::cast_precision_loss, reason = "a count of requests")]
fn per_second(count: usize, within: Duration) -> f64 {
    count as f64 / within.as_secs_f64()
}

/// A Job as people write it: one container with a command, a variable and resources.
fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"app": "bench", "kueue.x-k8s.io/queue-name": "team-a"}},
        "spec": {
            "parallelism": 3, "completions": 3, "backoffLimit": 4, "suspend": true,
            "template": {
                "metadata": {"labels": {"app": "bench"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "registry.example.com/work:v1",
                        "command": ["sh", "-c", "sleep 10"],
                        "env": [{"name": "MODE", "value": "fast"}],
                        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
                    }],
                },
            },
        },
    })
}
