//! Jobs from create to Complete: an embedded cluster as `ferry cluster` runs it, beside kube-apiserver, etcd and
//! kube-controller-manager, with pods that only pretend to run on both; and then real processes on ours.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _, pin_mut, stream};
use http::Request;
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{ConfigMap, Namespace, ServiceAccount},
};
use kube::{
    Api, Client, Config,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use testkit::{Behaviour, ControlPlane};

use crate::{machine, report::Report, usage::Cpu};

/// Jobs of one pod each, and how many of them are being created at once.
const JOBS: u32 = 2000;
const AT_ONCE: usize = 32;
/// The indexes of one large Job, and how many of its pods run at once.
const INDEXES: u32 = 5000;
const PARALLELISM: u32 = 1000;
/// Pods that are processes, and how many of them run at once.
const PROCESSES: u32 = 500;
const PROCESSES_AT_ONCE: u32 = 50;
/// Nothing here takes so long, unless it never ends.
const PATIENCE: Duration = Duration::from_secs(1800);

pub(crate) async fn run() -> anyhow::Result<Report> {
    let scratch = Scratch::new()?;
    eprintln!("starting kube-apiserver, etcd and kube-controller-manager");
    let theirs = {
        let plane = ControlPlane::builder().controller_manager(["*"]).start().await?;
        let _pods = plane.simulator().decide(|_| Behaviour::exits(0)).start().await?;
        measure(&Side { client: plane.client(), ids: plane.process_ids(), name: "theirs" }).await?
    };
    eprintln!("starting ferry cluster, with simulated pods");
    let ours = {
        let ferry = Ferry::start(&scratch.0.join("simulated"), "simulated").await?;
        measure(&ferry.side("ours")).await?
    };
    eprintln!("starting ferry cluster, with pods as processes");
    let processes = {
        let ferry = Ferry::start(&scratch.0.join("process"), "process").await?;
        let side = ferry.side("ours, processes");
        side.prepare("bench").await?;
        let job = job("processes", PROCESSES, PROCESSES_AT_ONCE);
        side.timed("bench", vec![job]).await?
    };

    let about =
        format!("{JOBS} one-pod Jobs, and one Job of {INDEXES} indexes ({PARALLELISM} at once), to Complete");
    let us = "ferry cluster --runtime simulated, durable (every write synced)";
    let them = "kube-apiserver, etcd and kube-controller-manager v1.35.8, with the simulator of testkit";
    let report = Report::new("cluster", about, us, them)
        .measure("one of 2,000 Jobs", ours.jobs.time / JOBS, theirs.jobs.time / JOBS)
        .measure("processor time for it", ours.jobs.cpu / JOBS, theirs.jobs.cpu / JOBS)
        .measure("one of 5,000 indexes", ours.indexes.time / INDEXES, theirs.indexes.time / INDEXES)
        .measure("processor time for it", ours.indexes.cpu / INDEXES, theirs.indexes.cpu / INDEXES);
    let rate = |count: u32, time: Duration| f64::from(count) / time.as_secs_f64();
    let mut report = report
        .note(format!(
            "Jobs per second: ours {:.0}, theirs {:.0}; pods per second of the large Job: ours {:.0}, theirs {:.0}",
            rate(JOBS, ours.jobs.time),
            rate(JOBS, theirs.jobs.time),
            rate(INDEXES, ours.indexes.time),
            rate(INDEXES, theirs.indexes.time),
        ))
        .note(format!(
            "writes to the store for a one-pod Job: ours {:.1}, theirs {:.1}; for an index: ours {:.1}, theirs {:.1}",
            ours.jobs.writes_for(JOBS),
            theirs.jobs.writes_for(JOBS),
            ours.indexes.writes_for(INDEXES),
            theirs.indexes.writes_for(INDEXES),
        ));
    if let Some(requests) = theirs.requests {
        report = report.note(format!(
            "requests to kube-apiserver for a pod, reads included: {:.1}",
            requests / f64::from(JOBS + INDEXES)
        ));
    }
    Ok(report
        .note(format!("peak memory: ours {} MiB, theirs {} MiB", ours.memory >> 20, theirs.memory >> 20))
        .note(format!(
            "{PROCESSES} pods that are processes (`true`, {PROCESSES_AT_ONCE} at once), on ours: {:.1} s, {:.0} pods per second",
            processes.time.as_secs_f64(),
            rate(PROCESSES, processes.time),
        ))
        .note("theirs may make 1,000 requests a second for each controller, where 20 are usual; its etcd does not sync its writes")
        .note("ours includes scheduler and node; theirs does not: its simulator of pods is not counted"))
}

/// What one side took for both kinds of work.
struct Measured {
    jobs: Work,
    indexes: Work,
    requests: Option<f64>,
    memory: u64,
}

struct Work {
    time: Duration,
    cpu: Duration,
    writes: u64,
}

impl Work {
    #[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
    fn writes_for(&self, count: u32) -> f64 {
        self.writes as f64 / f64::from(count)
    }
}

async fn measure(side: &Side) -> anyhow::Result<Measured> {
    side.prepare("bench").await?;
    side.prepare("large").await?;
    let before = side.requests().await;
    let many = (0..JOBS).map(|number| job(&format!("job-{number}"), 1, 1)).collect();
    let jobs = side.timed("bench", many).await?;
    let indexes = side.timed("large", vec![job("large", INDEXES, PARALLELISM)]).await?;
    let after = side.requests().await;
    let requests = before.zip(after).map(|(before, after)| after - before);
    Ok(Measured { jobs, indexes, requests, memory: side.memory()? })
}

fn job(name: &str, completions: u32, parallelism: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {
            "completions": completions, "parallelism": parallelism,
            "completionMode": if completions > 1 { "Indexed" } else { "NonIndexed" },
            "template": {"spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none", "command": ["true"]}],
            }},
        },
    })
}

/// A cluster, and the processes that it consists of.
struct Side {
    client: Client,
    ids: Vec<u32>,
    name: &'static str,
}

impl Side {
    /// Makes a namespace, and waits until pods may be made in it.
    async fn prepare(&self, namespace: &str) -> anyhow::Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        while accounts.get_opt("default").await?.is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Creates Jobs, and waits until all of them are Complete.
    async fn timed(&self, namespace: &str, all: Vec<Value>) -> anyhow::Result<Work> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), namespace);
        let count = all.len();
        let (revision, cpu, started) = (self.revision().await?, Cpu::of(&self.ids)?, Instant::now());
        let objects: Vec<Job> = all.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
        let create = stream::iter(objects)
            .map(|job| {
                let jobs = jobs.clone();
                async move { jobs.create(&PostParams::default(), &job).await.map(drop) }
            })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>();
        let done = tokio::time::timeout(PATIENCE, futures::future::try_join(create, complete(&jobs, count)));
        done.await.context("the Jobs do not end")??;
        let (time, cpu) = (started.elapsed(), Cpu::of(&self.ids)? - cpu);
        let writes = self.revision().await?.saturating_sub(revision);
        eprintln!(
            "{}: {count} Jobs in {:.1} s, {:.1} s of processor time",
            self.name,
            time.as_secs_f64(),
            cpu.as_secs_f64()
        );
        Ok(Work { time, cpu, writes })
    }

    /// The revision of the store, which counts its writes.
    async fn revision(&self) -> anyhow::Result<u64> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), "default");
        let list = maps.list(&ListParams::default()).await?;
        Ok(list.metadata.resource_version.context("lists have a version")?.parse()?)
    }

    /// How many requests the API server has answered, if it counts them. Watches are one each.
    async fn requests(&self) -> Option<f64> {
        let request = Request::get("/metrics").body(Vec::new()).ok()?;
        let text = self.client.request_text(request).await.ok()?;
        let counts = text.lines().filter(|line| line.starts_with("apiserver_request_total{"));
        Some(counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// The most that the processes had in memory, together.
    fn memory(&self) -> anyhow::Result<u64> {
        let mut sum = 0;
        for id in &self.ids {
            let status = fs::read_to_string(format!("/proc/{id}/status"))?;
            let peak = machine::field(&status, "VmHWM").and_then(|text| machine::kibibytes(&text));
            sum += peak.context("no VmHWM in /proc")? * 1024;
        }
        Ok(sum)
    }
}

/// Waits until so many Jobs are Complete. A Job that fails is an error.
async fn complete(jobs: &Api<Job>, count: usize) -> kube::Result<()> {
    let mut done = BTreeSet::new();
    while done.len() < count {
        let list = jobs.list(&ListParams::default()).await?;
        done.extend(list.items.iter().filter_map(ended));
        let version = list.metadata.resource_version.unwrap_or_default();
        let events = jobs.watch(&WatchParams::default(), &version).await?;
        pin_mut!(events);
        while done.len() < count
            && let Some(event) = events.try_next().await?
        {
            match event {
                WatchEvent::Added(job) | WatchEvent::Modified(job) => done.extend(ended(&job)),
                // The watch is too old: the list begins anew.
                WatchEvent::Error(_) => break,
                WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
            }
        }
    }
    Ok(())
}

fn ended(job: &Job) -> Option<String> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is = |kind: &str| conditions.iter().any(|it| it.type_ == kind && it.status == "True");
    assert!(!is("Failed"), "Job {:?} has failed", job.metadata.name);
    is("Complete").then(|| job.metadata.name.clone()).flatten()
}

/// `ferry cluster`, built beside this program.
struct Ferry {
    child: Child,
    client: Client,
}

impl Ferry {
    async fn start(directory: &Path, runtime: &str) -> anyhow::Result<Ferry> {
        let program = std::env::current_exe()?.with_file_name("ferry");
        anyhow::ensure!(
            program.exists(),
            "{} is not there; `cargo build --release -p cli` makes it",
            program.display()
        );
        fs::create_dir_all(directory)?;
        let kubeconfig = directory.join("kubeconfig");
        let mut child = Command::new(program)
            .args(["cluster", "--runtime", runtime, "--data"])
            .arg(directory.join("data"))
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .spawn()
            .context("failed to start ferry cluster")?;
        // It says so when it can be used.
        let stdout = child.stdout.take().context("its output is piped")?;
        let said = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let said = said.await??;
        anyhow::ensure!(said.contains("is ready"), "ferry cluster did not start: {said}");
        let kubeconfig = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Ferry { child, client: Client::try_from(config)? })
    }

    fn side(&self, name: &'static str) -> Side {
        Side { client: self.client.clone(), ids: vec![self.child.id()], name }
    }
}

impl Drop for Ferry {
    fn drop(&mut self) {
        // Nothing of it is needed any more; pods that are processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A directory that goes with this.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Scratch> {
        let path = std::env::temp_dir().join(format!("ferry-bench-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_are_complete_have_ended() {
        let with = |conditions: Value| -> Job {
            let job = json!({"metadata": {"name": "a"}, "spec": {"template": {}}, "status": {"conditions": conditions}});
            serde_json::from_value(job).expect("a Job")
        };
        assert_eq!(ended(&with(json!([{"type": "Complete", "status": "True"}]))).as_deref(), Some("a"));
        assert_eq!(ended(&with(json!([{"type": "SuccessCriteriaMet", "status": "True"}]))), None);
    }

    #[test]
    fn the_jobs_are_jobs() {
        for value in [job("one", 1, 1), job("many", 10, 5)] {
            let job: Job = serde_json::from_value(value).expect("a Job");
            assert!(job.spec.is_some_and(|spec| spec.template.spec.is_some()));
        }
    }
}
