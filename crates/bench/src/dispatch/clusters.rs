//! Real control planes with an operator on each: a manager and its workers, and what all of them use.

use std::{collections::BTreeMap, fmt, fs, time::Duration};

use anyhow::Context as _;
use http::Request;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    core::GroupVersionKind,
};
use operator::definitions::{Conversion, install};
use serde_json::{Value, json};
use testkit::{Behaviour, ControlPlane, Kueue, Simulator};

use super::{
    load::Times,
    program::{Ferry, peak_memory},
};
use crate::usage::Cpu;

const KUEUE: &str = "kueue.x-k8s.io/v1beta2";

/// Whose operator is on the clusters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Who {
    Ferry,
    Kueue,
}

/// A manager and its workers.
pub(super) struct Clusters {
    // Dropped in this order: clients of a server before the server.
    manager: Cluster,
    workers: BTreeMap<&'static str, Cluster>,
}

struct Cluster {
    operator: Operator,
    _pods: Option<Simulator>,
    plane: ControlPlane,
}

enum Operator {
    Ferry(Ferry),
    Kueue(Kueue),
}

impl Operator {
    fn id(&self) -> anyhow::Result<u32> {
        match self {
            Operator::Ferry(ferry) => Ok(ferry.id()),
            Operator::Kueue(kueue) => kueue.id().context("Kueue has ended"),
        }
    }
}

/// What some Jobs took.
pub(super) struct Run {
    pub(super) times: Times,
    pub(super) servers: Duration,
    pub(super) operators: Duration,
    pub(super) requests: Requests,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, rate, samples) = (self.times.count(), self.times.rate(), self.times.samples());
        let (half, most) = (samples.percentile(50), samples.percentile(99));
        write!(f, "{count} Jobs, {rate:.1}/s, median {half:.2?}, 99 of 100 {most:.2?}, ")?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let (servers, operators) = (self.servers / count, self.operators / count);
        write!(
            f,
            "API servers {servers:.2?} and operators {operators:.2?} CPU each, {}",
            self.requests.each(count)
        )
    }
}

/// The most that operators had in memory, in bytes.
pub(super) struct Memory {
    pub(super) manager: u64,
    pub(super) all: u64,
}

impl Clusters {
    pub(super) async fn start(who: Who, names: &[&'static str]) -> anyhow::Result<Clusters> {
        let mut workers = BTreeMap::new();
        for name in names {
            let plane = plane(["job-controller", "garbage-collector-controller"]).await?;
            let ends =
                |_: &k8s_openapi::api::core::v1::Pod| Behaviour::exits(0).after(Duration::from_millis(100));
            let pods = plane.simulator().decide(ends).start().await?;
            prepare(&plane, &[]).await?;
            let operator = operate(who, &plane).await?;
            workers.insert(*name, Cluster { operator, _pods: Some(pods), plane });
        }
        let plane = plane(["job-controller", "garbage-collector-controller"]).await?;
        prepare(&plane, &["mk"]).await?;
        let client = plane.client();
        for (name, worker) in &workers {
            let kubeconfig = fs::read_to_string(worker.plane.kubeconfig_for("admin", "system:masters")?)?;
            let metadata = json!({"name": name, "namespace": "kueue-system"});
            let data = json!({"kubeconfig": kubeconfig});
            create(
                &client,
                json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}),
            )
            .await?;
            let source = json!({"kubeConfig": {"location": name, "locationType": "Secret"}});
            create(&client, kueue("MultiKueueCluster", name, json!({"clusterSource": source}))).await?;
        }
        create(&client, kueue("MultiKueueConfig", "all", json!({"clusters": names}))).await?;
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
        let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
        create(&client, kueue("AdmissionCheck", "mk", spec)).await?;
        let operator = operate(who, &plane).await?;
        let manager = Cluster { operator, _pods: None, plane };
        let clusters = Clusters { manager, workers };
        clusters.active().await?;
        Ok(clusters)
    }

    /// Waits until the queue takes Jobs, which needs its workers.
    async fn active(&self) -> anyhow::Result<()> {
        let api = api(&self.client(), &json!({"apiVersion": KUEUE, "kind": "ClusterQueue"}))?;
        let is_active =
            kube::runtime::wait::await_condition(api, "team", |object: Option<&DynamicObject>| {
                let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
                conditions
                    .is_some_and(|all| all.iter().any(|it| it["type"] == "Active" && it["status"] == "True"))
            });
        tokio::time::timeout(Duration::from_secs(120), is_active)
            .await
            .context("the queue takes no Jobs")??;
        Ok(())
    }

    pub(super) fn client(&self) -> Client {
        self.manager.plane.client()
    }

    pub(super) fn freeze(&self, worker: &str) -> anyhow::Result<()> {
        Ok(self.workers[worker].plane.freeze()?)
    }

    pub(super) fn thaw(&self, worker: &str) -> anyhow::Result<()> {
        Ok(self.workers[worker].plane.thaw()?)
    }

    /// What all use while something is done.
    pub(super) async fn measured(
        &self,
        doing: impl Future<Output = anyhow::Result<Times>>,
    ) -> anyhow::Result<Run> {
        let (servers, operators) = (self.servers()?, self.operators()?);
        let before = self.requests().await?;
        let (of_servers, of_operators) = (Cpu::of(&servers)?, Cpu::of(&operators)?);
        let times = doing.await?;
        let (of_servers, of_operators) =
            (Cpu::of(&servers)? - of_servers, Cpu::of(&operators)? - of_operators);
        let requests = self.requests().await?.since(&before);
        Ok(Run { times, servers: of_servers, operators: of_operators, requests })
    }

    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        let all: anyhow::Result<Vec<u64>> = self.operators()?.into_iter().map(peak_memory).collect();
        Ok(Memory { manager: peak_memory(self.manager.operator.id()?)?, all: all?.iter().sum() })
    }

    fn all(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.manager).chain(self.workers.values())
    }

    fn operators(&self) -> anyhow::Result<Vec<u32>> {
        self.all().map(|cluster| cluster.operator.id()).collect()
    }

    /// The processes of the API servers.
    fn servers(&self) -> anyhow::Result<Vec<u32>> {
        let ids = self.all().flat_map(|cluster| cluster.plane.process_ids());
        let mut servers = Vec::new();
        for id in ids {
            if fs::read_to_string(format!("/proc/{id}/comm"))?.trim() == "kube-apiserver" {
                servers.push(id);
            }
        }
        Ok(servers)
    }

    async fn requests(&self) -> anyhow::Result<Requests> {
        let mut requests = Requests::default();
        for cluster in self.all() {
            let metrics = Request::get("/metrics").body(Vec::new())?;
            requests.add(&cluster.plane.client().request_text(metrics).await?);
        }
        Ok(requests)
    }
}

/// How many requests were answered, by verb.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Requests(BTreeMap<String, u64>);

impl Requests {
    /// Adds what an API server counts.
    fn add(&mut self, metrics: &str) {
        for line in metrics.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let verb = line.split_once("verb=\"").and_then(|(_, rest)| rest.split('"').next());
            let count = line.rsplit(' ').next().and_then(|count| count.parse::<u64>().ok());
            if let (Some(verb), Some(count)) = (verb, count) {
                *self.0.entry(verb.to_owned()).or_default() += count;
            }
        }
    }

    fn since(&self, before: &Requests) -> Requests {
        let less = |verb: &String, count: &u64| count - before.0.get(verb).copied().unwrap_or(0).min(*count);
        Requests(self.0.iter().map(|(verb, count)| (verb.clone(), less(verb, count))).collect())
    }

    /// As many as there were for one of so many Jobs: the sum, and those that there were at all.
    #[expect(clippy::cast_precision_loss, reason = "a mean for people to read")]
    pub(super) fn each(&self, count: u32) -> String {
        let for_one = |all: u64| all as f64 / f64::from(count);
        let mut by_verb: Vec<(&String, u64)> = self.0.iter().map(|(verb, count)| (verb, *count)).collect();
        by_verb.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let some = by_verb.iter().filter(|(_, all)| for_one(*all) >= 0.05);
        let some: Vec<String> = some.map(|(verb, all)| format!("{verb} {:.1}", for_one(*all))).collect();
        format!("{:.1} ({})", for_one(self.0.values().sum()), some.join(", "))
    }
}

async fn plane<const N: usize>(controllers: [&str; N]) -> anyhow::Result<ControlPlane> {
    Ok(ControlPlane::builder().controller_manager(controllers).start().await?)
}

/// Definitions and queues that have room for every Job.
async fn prepare(plane: &ControlPlane, checks: &[&str]) -> anyhow::Result<()> {
    let client = plane.client();
    install(&client, &Conversion::Embedded).await?;
    create(&client, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}))
        .await?;
    create(&client, kueue("ResourceFlavor", "default", json!({}))).await?;
    let quota = json!([{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1M"}]}]);
    let mut spec = json!({
        "namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": quota}],
    });
    if !checks.is_empty() {
        let checks: Vec<Value> = checks.iter().map(|name| json!({"name": name})).collect();
        spec["admissionChecksStrategy"] = json!({"admissionChecks": checks});
    }
    create(&client, kueue("ClusterQueue", "team", spec)).await?;
    let mut queue = kueue("LocalQueue", "team", json!({"clusterQueue": "team"}));
    queue["metadata"]["namespace"] = json!("default");
    create(&client, queue).await
}

/// The dispatcher of ours, if it is not the usual one.
pub(super) fn dispatcher() -> Option<String> {
    std::env::var("BENCH_DISPATCHER").ok().filter(|name| !name.is_empty())
}

async fn operate(who: Who, plane: &ControlPlane) -> anyhow::Result<Operator> {
    match who {
        Who::Ferry => {
            let ferry = Ferry::operator(&plane.kubeconfig(), dispatcher().as_deref()).await?;
            Ok(Operator::Ferry(ferry))
        }
        Who::Kueue => {
            // What its manifest sets and the binary does not by itself.
            let concurrency = json!({
                "Job.batch": 5, "Pod": 5, "Workload.kueue.x-k8s.io": 10, "LocalQueue.kueue.x-k8s.io": 5,
                "Cohort.kueue.x-k8s.io": 1, "ClusterQueue.kueue.x-k8s.io": 5, "ResourceFlavor.kueue.x-k8s.io": 1,
            });
            let settings = json!({
                "controller": {"groupKindConcurrency": concurrency},
                "clientConnection": {"qps": 300, "burst": 500},
            });
            Ok(Operator::Kueue(plane.kueue(&settings).await?))
        }
    }
}

/// A Job for the manager.
pub(super) fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "backoffLimit": 0,
            "template": {"spec": {"restartPolicy": "Never", "containers": [
                {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}},
            ]}},
        },
    })
}

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn api(client: &Client, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
    let version = object["apiVersion"].as_str().context("an apiVersion")?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
    let resource = ApiResource::from_gvk(&kind);
    Ok(match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

async fn create(client: &Client, object: Value) -> anyhow::Result<()> {
    let parsed: DynamicObject = serde_json::from_value(object.clone())?;
    let created = api(client, &object)?.create(&PostParams::default(), &parsed).await;
    created.map(drop).with_context(|| format!("failed to create {object}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_verb() {
        let mut before = Requests::default();
        before.add("apiserver_request_total{code=\"200\",verb=\"GET\"} 4\n");
        let mut after = Requests::default();
        after.add("# HELP apiserver_request_total\napiserver_request_total{code=\"200\",verb=\"GET\"} 10\napiserver_request_total{code=\"404\",verb=\"GET\"} 2\napiserver_request_total{code=\"201\",verb=\"POST\"} 20\n");
        assert_eq!(after.since(&before).each(10), "2.8 (POST 2.0, GET 0.8)");
    }
}
