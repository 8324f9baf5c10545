//! What a write costs, without a network: requests go straight into a cluster that keeps nothing, one after the other.
//!
//! `cargo run --release -p bench --example writes [COUNT [MEASURE]]` prints processor time for each; a profiler shows
//! where it goes, and `valgrind --tool=callgrind` counts instructions.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use apiserver::Cluster;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use rules::job::Settings;
use serde_json::{Value, json};
use store::{Options, Store};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";
const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: usize = arguments.next().map_or(Ok(2_000), |count| count.parse())?;
    let only = arguments.next();
    let store = Store::open(Options::ephemeral())?;
    let cluster =
        Cluster::open(store, Settings::default()).await.map_err(|error| anyhow::anyhow!("{error}"))?;
    let measures: [(&str, Measure); 13] = [
        ("create job", |i| (Method::POST, "jobs".to_owned(), JSON, job(&format!("created-{i}")))),
        ("patch job", |i| {
            let patch = json!({"metadata": {"annotations": {"example.com/turn": i.to_string()}}});
            (Method::PATCH, "jobs/first".to_owned(), MERGE, patch)
        }),
        ("patch job status", |i| (Method::PATCH, "jobs/first/status".to_owned(), MERGE, job_status(i))),
        ("apply job", |i| {
            let mut job = job("applied");
            job["spec"]["parallelism"] = json!(1 + i % 5);
            (Method::PATCH, "jobs/applied?fieldManager=bench&force=true".to_owned(), APPLY, job)
        }),
        ("create pod", |i| (Method::POST, "pods".to_owned(), JSON, pod(&format!("created-{i}")))),
        ("patch pod status", |i| (Method::PATCH, "pods/first/status".to_owned(), STRATEGIC, pod_status(i))),
        ("merge pod status", |i| (Method::PATCH, "pods/first/status".to_owned(), MERGE, pod_status(i))),
        ("create event", |i| (Method::POST, "events".to_owned(), JSON, event(i))),
        ("create new event", |i| (Method::POST, "new-events".to_owned(), JSON, new_event(i))),
        ("create workload", |i| {
            (Method::POST, "workloads".to_owned(), JSON, workload(&format!("created-{i}")))
        }),
        ("merge workload status", |i| {
            (Method::PATCH, "workloads/first/status".to_owned(), MERGE, workload_status(i))
        }),
        ("apply workload status", |i| {
            let mut status = workload_status(i);
            status["apiVersion"] = json!(KUEUE);
            status["kind"] = json!("Workload");
            status["metadata"] = json!({"name": "first"});
            let path = "workloads/first/status?fieldManager=bench&force=true";
            (Method::PATCH, path.to_owned(), APPLY, status)
        }),
        ("get pod", |_| (Method::GET, "pods/first".to_owned(), JSON, Value::Null)),
    ];
    ask(&cluster, (Method::POST, "jobs".to_owned(), JSON, job("first"))).await?;
    ask(&cluster, (Method::POST, "pods".to_owned(), JSON, pod("first"))).await?;
    let definitions = operator::definitions::all(&operator::definitions::Conversion::Embedded);
    let of_workloads = definitions.into_iter().find(|of| of["spec"]["names"]["plural"] == "workloads");
    ask(&cluster, (Method::POST, "definitions".to_owned(), JSON, of_workloads.unwrap_or_default())).await?;
    // A definition is served a moment after it was accepted, which is long where instructions are counted.
    let first = || ask(&cluster, (Method::POST, "workloads".to_owned(), JSON, workload("first")));
    let mut tries = 0;
    while let Err(error) = first().await {
        tries += 1;
        anyhow::ensure!(tries < 1_000, error.context("Workloads are not served"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (name, measure) in measures {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        ask(&cluster, measure(count)).await?;
        let (started, cpu) = (Instant::now(), processor_time()?);
        for i in 0..count {
            ask(&cluster, measure(i)).await?;
        }
        let each = |time: Duration| time.as_micros() / count as u128;
        let (time, cpu) = (started.elapsed(), processor_time()?.saturating_sub(cpu));
        println!("{name:20} {:5} µs, {:5} µs of processor time", each(time), each(cpu));
    }
    Ok(())
}

/// What is asked: the method, the path below a namespace, the type of the body, and the body.
type Asked = (Method, String, &'static str, Value);
type Measure = fn(usize) -> Asked;

async fn ask(cluster: &Cluster, (method, path, content, body): Asked) -> anyhow::Result<()> {
    let uri = match path.split('/').next() {
        Some("definitions") => "/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(),
        Some("jobs") => format!("/apis/batch/v1/namespaces/default/{path}"),
        Some("new-events") => "/apis/events.k8s.io/v1/namespaces/default/events".to_owned(),
        Some("workloads") => format!("/apis/{KUEUE}/namespaces/default/{path}"),
        _ => format!("/api/v1/namespaces/default/{path}"),
    };
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(&body)? };
    let request = Request::builder().method(method).uri(&uri).header("Content-Type", content);
    let answer = cluster.answer(request.body(Bytes::from(bytes))?).await;
    let code = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    anyhow::ensure!(code.is_success(), "{uri}: {code} {}", String::from_utf8_lossy(&body));
    Ok(())
}

/// Processor time of this process, in hundredths of a second. It is read from a file because valgrind, which counts
/// instructions whatever else a machine does, does not show programs the clock.
fn processor_time() -> anyhow::Result<Duration> {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(')').context("the name of the program stands in brackets")?;
    let [user, system] =
        [11, 12].map(|field| fields.split_whitespace().nth(field).unwrap_or("").parse::<u32>());
    Ok(TICK * (user? + system?))
}

fn template() -> Value {
    json!({
        "restartPolicy": "Never",
        "containers": [{
            "name": "main", "image": "registry.example.com/work:v1",
            "command": ["sh", "-c", "sleep 10"],
            "env": [{"name": "MODE", "value": "fast"}],
            "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
        }],
    })
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"app": "bench", "kueue.x-k8s.io/queue-name": "team-a"}},
        "spec": {
            "parallelism": 3, "completions": 3, "backoffLimit": 4, "suspend": false,
            "template": {"metadata": {"labels": {"app": "bench"}}, "spec": template()},
        },
    })
}

fn pod(name: &str) -> Value {
    let mut spec = template();
    spec["nodeName"] = json!("node-1");
    let meta = json!({"name": name, "labels": {"app": "bench"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
}

fn job_status(i: usize) -> Value {
    json!({"status": {
        "active": 1 + i % 7, "ready": 0, "startTime": "2026-01-01T00:00:00Z", "uncountedTerminatedPods": {},
    }})
}

fn pod_status(i: usize) -> Value {
    let since = "2026-01-01T00:00:00Z";
    let condition = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": since});
    json!({"status": {
        "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.2", "startTime": since,
        "podIPs": [{"ip": "10.1.0.2"}], "hostIPs": [{"ip": "10.0.0.1"}],
        "conditions": [
            condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"), condition("Ready"),
        ],
        "containerStatuses": [{
            "name": "main", "image": "registry.example.com/work:v1", "imageID": "sha256:1", "ready": true,
            "started": true, "restartCount": i % 5, "containerID": "ferry://1",
            "state": {"running": {"startedAt": since}},
        }],
    }})
}

fn about() -> Value {
    json!({"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "first", "uid": "1"})
}

fn event(i: usize) -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("first.{i:x}"), "namespace": "default"},
        "involvedObject": about(), "type": "Normal", "reason": "Started", "message": "Admitted by cluster queue team",
        "source": {"component": "bench"}, "reportingComponent": "bench", "firstTimestamp": at, "lastTimestamp": at,
        "count": 1,
    })
}

fn new_event(i: usize) -> Value {
    json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event",
        "metadata": {"name": format!("first.new-{i:x}"), "namespace": "default"},
        "regarding": about(), "type": "Normal", "reason": "Started", "note": "Admitted by cluster queue team",
        "reportingController": "bench", "reportingInstance": "bench-1", "action": "Started",
        "eventTime": "2026-01-01T00:00:00.000000Z",
    })
}

fn workload(name: &str) -> Value {
    let owner =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "first", "uid": "1", "controller": true});
    json!({
        "apiVersion": KUEUE, "kind": "Workload",
        "metadata": {
            "name": name, "finalizers": ["kueue.x-k8s.io/resource-in-use"], "ownerReferences": [owner],
            "labels": {"kueue.x-k8s.io/job-uid": "1"},
        },
        "spec": {
            "active": true, "queueName": "team-a", "priority": 0,
            "podSets": [{"name": "main", "count": 3, "template": {"metadata": {"labels": {"app": "bench"}}, "spec": template()}}],
        },
    })
}

fn workload_status(i: usize) -> Value {
    let since = "2026-01-01T00:00:00Z";
    let condition = |name: &str| {
        json!({
            "type": name, "status": "True", "reason": name, "message": format!("turn {i}"), "lastTransitionTime": since,
            "observedGeneration": 1,
        })
    };
    json!({"status": {
        "admission": {"clusterQueue": "team", "podSetAssignments": [{
            "name": "main", "count": 3, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1500m"},
        }]},
        "conditions": [condition("QuotaReserved"), condition("Admitted")],
    }})
}
