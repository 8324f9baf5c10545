//! A cluster with the operator on it, and what a user does and sees there. Job controllers are played by the test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::Context as _;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, events::v1::Event};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt as _, watcher},
};
use operator::{
    Operator, Settings,
    definitions::{Conversion, install},
};
use reconcile::{Clock, Tasks};
use rules::framework::{batch::JOB, name::workload_name};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use types::kueue::{ClusterQueue, LocalQueue, Workload};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster with an operator.
pub(crate) struct World {
    pub(crate) client: Client,
    /// How the operator reaches the cluster.
    pub(crate) way: Client,
    pub(crate) namespace: String,
    /// Ends the operator when it is dropped.
    pub(crate) operator: Option<Tasks>,
    /// What it counts.
    counts: Option<Operator>,
    settings: Settings,
    /// Whether it is not us who acts here.
    judge: bool,
}

impl World {
    /// The operator on an embedded cluster.
    pub(crate) async fn embedded() -> anyhow::Result<World> {
        World::on(World::embedded_cluster().await?).await
    }

    /// An embedded cluster without an operator.
    pub(crate) async fn embedded_cluster() -> anyhow::Result<Client> {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let store = store::Store::open(store::Options::ephemeral())?;
        let cluster = apiserver::Cluster::open(store, rules::job::Settings::default()).await;
        let cluster = cluster.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        Ok(Client::new(cluster, "default"))
    }

    /// The operator on a cluster that is there.
    pub(crate) async fn on(client: Client) -> anyhow::Result<World> {
        World::with(client, Settings::default()).await
    }

    /// The same under other settings.
    pub(crate) async fn with(client: Client, settings: Settings) -> anyhow::Result<World> {
        let way = client.clone();
        World::by_way(client, way, settings).await
    }

    /// The same with an operator that reaches the cluster by a way of its own.
    pub(crate) async fn by_way(client: Client, way: Client, settings: Settings) -> anyhow::Result<World> {
        install(&client, &Conversion::Embedded).await?;
        let namespace = String::new();
        let mut world =
            World { client, way, namespace, operator: None, counts: None, settings, judge: false };
        world.start().await;
        Ok(world)
    }

    /// A real control plane with real Kueue instead of us.
    pub(crate) async fn of_kueue(
        plane: &testkit::ControlPlane,
        settings: &Value,
    ) -> anyhow::Result<(World, testkit::Kueue)> {
        let world = World::before_kueue(plane).await?;
        let kueue = plane.kueue(settings).await?;
        Ok((world, kueue))
    }

    /// A real control plane with all that Kueue needs, but without Kueue.
    pub(crate) async fn before_kueue(plane: &testkit::ControlPlane) -> anyhow::Result<World> {
        let client = plane.client();
        install(&client, &Conversion::Embedded).await?;
        let (namespace, way) = ("kueue-system".to_owned(), client.clone());
        let settings = Settings::default();
        let mut world = World { client, way, namespace, operator: None, counts: None, settings, judge: true };
        // It looks once whether nodes can be asked for.
        define_requests(&world.client).await?;
        world.begin("kueue-system").await?;
        Ok(world)
    }

    /// Begins a scenario: in a namespace of its own, with an operator that runs.
    pub(crate) async fn begin(&mut self, scenario: &str) -> anyhow::Result<()> {
        self.namespace = scenario.to_owned();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": scenario } });
        self.create(namespace).await?;
        Ok(())
    }

    /// Ends a scenario: its queues take no part in the next one, and the operator runs whatever it left.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        if self.operator.is_none() && !self.judge {
            self.start().await;
        }
        Ok(())
    }

    /// The name of something that belongs to no namespace, so that scenarios do not meet.
    pub(crate) fn name_of(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// Starts the operator, again if it was stopped.
    pub(crate) async fn start(&mut self) {
        if self.judge {
            return;
        }
        let mut tasks = Tasks::new();
        let operator = operator::start(self.way.clone(), self.settings.clone(), Clock::system(), &mut tasks);
        operator.ready().await;
        (self.operator, self.counts) = (Some(tasks), Some(operator));
    }

    /// Whether our operator counts this of something of the scenario. What others count is theirs to say.
    pub(crate) fn counts(&self, line: &str) -> bool {
        self.counts.as_ref().is_none_or(|operator| operator.metrics().lines().any(|it| it.starts_with(line)))
    }

    /// Ends the operator, wherever it is.
    pub(crate) async fn kill(&mut self) {
        if let Some(mut tasks) = self.operator.take() {
            tasks.stop().await;
        }
    }

    fn api_of(&self, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (version, kind) = (version.context("an apiVersion")?, kind.context("a kind")?);
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let cluster_wide = [
            "Namespace",
            "Node",
            "ClusterQueue",
            "Cohort",
            "ResourceFlavor",
            "AdmissionCheck",
            "Topology",
            "ProvisioningRequestConfig",
            "WorkloadPriorityClass",
            "PriorityClass",
        ];
        Ok(if cluster_wide.contains(&kind) {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
        })
    }

    /// Creates an object.
    pub(crate) async fn create(&self, object: Value) -> anyhow::Result<DynamicObject> {
        let api = self.api_of(&object)?;
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        api.create(&PostParams::default(), &parsed)
            .await
            .with_context(|| format!("failed to create {object}"))
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) -> anyhow::Result<()> {
        let api = self.api_of(&of_kind(kind))?;
        let params = PatchParams::default();
        api.patch(name, &params, &Patch::Merge(&patch))
            .await
            .with_context(|| format!("{kind} {name}: {patch}"))?;
        Ok(())
    }

    /// Changes the status of an object by a merge patch.
    pub(crate) async fn patch_status(&self, kind: &str, name: &str, status: Value) -> anyhow::Result<()> {
        let api = self.api_of(&of_kind(kind))?;
        let patch = json!({ "status": status });
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("status of {kind} {name}: {patch}"))?;
        Ok(())
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        self.api_of(&of_kind(kind))?.delete(name, &DeleteParams::background()).await?;
        Ok(())
    }

    /// A ClusterQueue with so much cpu, and a LocalQueue that leads there. Returns the name of the former.
    pub(crate) async fn queue(&self, name: &str, cpu: &str, more: Value) -> anyhow::Result<String> {
        let cluster_queue = self.cluster_queue(name, cpu, more).await?;
        self.local_queue(name, &cluster_queue, json!({})).await?;
        Ok(cluster_queue)
    }

    /// A LocalQueue that leads to a ClusterQueue.
    pub(crate) async fn local_queue(
        &self,
        name: &str,
        cluster_queue: &str,
        more: Value,
    ) -> anyhow::Result<()> {
        let mut queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": { "name": name },
            "spec": { "clusterQueue": cluster_queue },
        });
        json_patch::merge(&mut queue["spec"], &more);
        self.create(queue).await?;
        Ok(())
    }

    /// A ClusterQueue with so much cpu of the flavor `default`, which is made if need be.
    pub(crate) async fn cluster_queue(&self, name: &str, cpu: &str, more: Value) -> anyhow::Result<String> {
        let flavor = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": { "name": "default" },
            "spec": { "nodeLabels": { "pool": "default" } },
        });
        match self.create(flavor).await {
            Err(error) if !format!("{error:#}").contains("AlreadyExists") => return Err(error),
            _ => {}
        }
        let name = self.name_of(name);
        let mut queue = World::quota(cpu);
        queue["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
        queue["kind"] = "ClusterQueue".into();
        queue["metadata"] = json!({ "name": name });
        queue["spec"]["namespaceSelector"] = json!({});
        json_patch::merge(&mut queue["spec"], &more);
        self.create(queue).await?;
        Ok(name)
    }

    /// The part of a ClusterQueue that says how much it has.
    pub(crate) fn quota(cpu: &str) -> Value {
        json!({ "spec": { "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": [
            { "name": "default", "resources": [{ "name": "cpu", "nominalQuota": cpu }] },
        ] }] } })
    }

    /// A class of Workloads.
    pub(crate) async fn class(&self, name: &str, value: i32) -> anyhow::Result<()> {
        self.create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
            "metadata": { "name": self.name_of(name) }, "value": value,
        }))
        .await?;
        Ok(())
    }

    /// The part of a Job that says how important it is.
    pub(crate) fn priority(&self, class: &str) -> Value {
        json!({ "metadata": { "labels": { "kueue.x-k8s.io/priority-class": self.name_of(class) } } })
    }

    /// Whether there is no such Workload.
    pub(crate) async fn no_workload(&self, name: &str) -> anyhow::Result<bool> {
        Ok(self.workloads().get_opt(name).await?.is_none())
    }

    /// Waits until an object is kept from going.
    pub(crate) async fn holds(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let api = self.api_of(&of_kind(kind))?;
        let held = |object: Option<&DynamicObject>| {
            object.is_some_and(|it| it.metadata.finalizers.as_ref().is_some_and(|it| !it.is_empty()))
        };
        let waiting = kube::runtime::wait::await_condition(api, name, held);
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .with_context(|| format!("{kind} {name} is not held"))??;
        Ok(())
    }

    /// Waits until an object is there and as it should be.
    pub(crate) async fn there(
        &self,
        kind: &str,
        name: &str,
        is_right: impl Fn(&DynamicObject) -> bool,
    ) -> anyhow::Result<DynamicObject> {
        let api = self.api_of(&of_kind(kind))?;
        let right = |object: Option<&DynamicObject>| object.is_some_and(&is_right);
        let waiting = kube::runtime::wait::await_condition(api, name, right);
        let found = tokio::time::timeout(PATIENCE, waiting)
            .await
            .with_context(|| format!("{kind} {name} is not there, or not right"))??;
        found.context("it was there")
    }

    /// Waits until an object has a condition, given as `type=status/reason`.
    pub(crate) async fn is(&self, kind: &str, name: &str, condition: &str) -> anyhow::Result<()> {
        let has = |object: &DynamicObject| {
            let conditions = object.data["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|it| {
                let text = |key: &str| it[key].as_str().unwrap_or_default();
                format!("{}={}/{}", text("type"), text("status"), text("reason")) == condition
            })
        };
        self.there(kind, name, has).await.map(drop).with_context(|| condition.to_owned())
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: &str, name: &str) -> anyhow::Result<()> {
        let api = self.api_of(&of_kind(kind))?;
        let uid = api.get_opt(name).await?.and_then(|object| object.metadata.uid);
        let Some(uid) = uid else { return Ok(()) };
        let deleted = kube::runtime::conditions::is_deleted(&uid);
        let waiting = kube::runtime::wait::await_condition(api, name, deleted);
        tokio::time::timeout(PATIENCE, waiting).await.with_context(|| format!("{kind} {name} stays"))??;
        Ok(())
    }

    /// Submits a suspended Job that asks for so much cpu per pod. Returns the name of its Workload.
    pub(crate) async fn job(
        &self,
        name: &str,
        queue: &str,
        cpu: &str,
        more: Value,
    ) -> anyhow::Result<String> {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": queue } },
            "spec": {
                "suspend": true, "parallelism": 1, "completions": 1,
                "template": { "spec": { "restartPolicy": "Never", "containers": [{
                    "name": "c", "image": "i", "resources": { "requests": { "cpu": cpu } },
                }] } },
            },
        });
        json_patch::merge(&mut job, &more);
        let made = self.create(job).await?;
        let uid = made.metadata.uid.context("a uid")?;
        Ok(workload_name(JOB, name, &uid, None))
    }

    /// The name of the slice that an elastic Job has for one of its generations.
    pub(crate) async fn slice_name(&self, job: &str, generation: i64) -> anyhow::Result<String> {
        let uid = self.jobs().get(job).await?.metadata.uid.context("a uid")?;
        Ok(workload_name(JOB, job, &uid, Some(&generation.to_string())))
    }

    /// Waits until the slice by which a Job runs is of this size, and returns it.
    pub(crate) async fn runs_by(&self, job: &str, pods: i32) -> anyhow::Result<Workload> {
        let of_job = |it: &Workload| {
            it.metadata.owner_references.iter().flatten().any(|owner| owner.name == job)
                && rules::workload::is_admitted(it)
                && !rules::workload::is_finished(it)
        };
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let all = self.workloads().list(&ListParams::default()).await?.items;
            let mut slices: Vec<Workload> = all.into_iter().filter(of_job).collect();
            if slices.len() == 1 && slices[0].spec.pod_sets[0].count == pods {
                return slices.pop().context("a slice");
            }
            let sizes: Vec<i32> = slices.iter().map(|it| it.spec.pod_sets[0].count).collect();
            anyhow::ensure!(tokio::time::Instant::now() < until, "{job} runs by {sizes:?}, not {pods}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Namespace and name of something of the scenario.
    pub(crate) fn key_of(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    /// The names of the pods here that wait for a slice.
    pub(crate) async fn gated(&self) -> anyhow::Result<Vec<String>> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let is_gated = |pod: &Pod| {
            pod.spec.as_ref().is_some_and(|spec| spec.scheduling_gates.iter().flatten().next().is_some())
        };
        let all = api.list(&ListParams::default()).await?.items.into_iter();
        Ok(all.filter(is_gated).filter_map(|pod| pod.metadata.name).collect())
    }

    /// Waits until these pods and no others wait for a slice.
    pub(crate) async fn until_gated(&self, pods: &[&str]) -> anyhow::Result<()> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let gated = self.gated().await?;
            if gated == pods {
                return Ok(());
            }
            anyhow::ensure!(tokio::time::Instant::now() < until, "{gated:?} wait, not {pods:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Plays the Job controller: a pod of a Job, as its template says.
    pub(crate) async fn pod_of(&self, job: &str, name: &str) -> anyhow::Result<()> {
        self.pod_with(job, name, json!({})).await
    }

    /// The same with something of its own.
    pub(crate) async fn pod_with(&self, job: &str, name: &str, more: Value) -> anyhow::Result<()> {
        let job = self.jobs().get(job).await?;
        let mut pod = serde_json::to_value(job.spec.context("a spec")?.template)?;
        json_patch::merge(&mut pod, &more);
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = name.into();
        self.create(pod).await?;
        Ok(())
    }

    /// A node of the scenario that is ready: in this rack, with so much cpu.
    pub(crate) async fn node(&self, name: &str, rack: &str, cpu: &str) -> anyhow::Result<()> {
        let (name, pool) = (self.name_of(name), self.name_of("pool"));
        let labels = json!({
            "kubernetes.io/hostname": name, "example.com/rack": rack, "example.com/pool": pool,
        });
        let node =
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } });
        self.create(node).await?;
        let now = Timestamp::now().to_string();
        let amounts = json!({ "cpu": cpu, "memory": "8Gi", "pods": "110" });
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let status = json!({ "capacity": amounts, "allocatable": amounts, "conditions": [ready] });
        self.patch_status("Node", &name, status).await?;
        // A node is not ready when it is made, which nobody here takes back.
        self.patch("Node", &name, json!({ "spec": { "taints": null } })).await
    }

    /// Waits until an object is as `is` says, and returns it.
    pub(crate) async fn until<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        is: impl Fn(&K) -> bool,
    ) -> anyhow::Result<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
    {
        let mut versions = self.versions(api, name, what, is).await?;
        versions.pop().context("there is the one that was waited for")
    }

    /// Every version of an object from now on, up to the first that is as `is` says.
    pub(crate) async fn versions<K>(
        &self,
        api: Api<K>,
        name: &str,
        what: &str,
        is: impl Fn(&K) -> bool,
    ) -> anyhow::Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + Serialize + DeserializeOwned + 'static,
    {
        let mut versions = Vec::new();
        let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let mut events = Box::pin(watcher::watcher(api, config).applied_objects());
        let found = tokio::time::timeout(PATIENCE, async {
            while let Some(event) = events.next().await {
                // A watch that fails is started again.
                let Ok(object) = event else { continue };
                let found = is(&object);
                versions.push(object);
                if found {
                    return true;
                }
            }
            false
        });
        if let Ok(true) = found.await {
            return Ok(versions);
        }
        let mut last = serde_json::to_value(versions.last())?;
        last["metadata"] = Value::Null;
        anyhow::bail!("{} {name} never was {what}, but last {last:#}", K::kind(&()))
    }

    pub(crate) fn workloads(&self) -> Api<Workload> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Who told something about an object of the scenario so far.
    pub(crate) async fn tellers(&self, kind: &str, name: &str) -> anyhow::Result<BTreeSet<String>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let all = api.list(&ListParams::default()).await?.items.into_iter();
        let about = all.filter(|event| {
            let about = event.regarding.clone().unwrap_or_default();
            (about.kind.as_deref(), about.name.as_deref()) == (Some(kind), Some(name))
        });
        Ok(about.filter_map(|event| event.reporting_controller).collect())
    }

    /// What was told about an object of the scenario, each as `Reason: note`, once all of `reasons` are among it, in the
    /// order of the words.
    pub(crate) async fn told(&self, kind: &str, name: &str, reasons: &[&str]) -> anyhow::Result<Vec<String>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let mut events = Box::pin(watcher::watcher(api, watcher::Config::default()).applied_objects());
        let mut told = BTreeMap::new();
        let waiting = tokio::time::timeout(PATIENCE, async {
            while let Some(event) = events.next().await {
                // A watch that fails is started again.
                let Ok(event) = event else { continue };
                let about = event.regarding.clone().unwrap_or_default();
                if (about.kind.as_deref(), about.name.as_deref()) != (Some(kind), Some(name)) {
                    continue;
                }
                let reason = event.reason.clone().unwrap_or_default();
                let note = event.note.clone().unwrap_or_default();
                told.insert(event.metadata.name.clone(), (reason.clone(), format!("{reason}: {note}")));
                if reasons.iter().all(|wanted| told.values().any(|(reason, _)| reason == wanted)) {
                    return;
                }
            }
        });
        let waited = waiting.await;
        let mut told: Vec<String> = told.into_values().map(|(_, told)| told).collect();
        told.sort();
        waited.with_context(|| format!("{kind} {name} is told to be {told:#?}, not {reasons:?}"))?;
        Ok(told)
    }

    /// Waits until the conditions of a Workload are exactly these, each as `Type=Status/Reason`, by type.
    pub(crate) async fn shows(&self, workload: &str, conditions: &[&str]) -> anyhow::Result<Workload> {
        let what = format!("{conditions:?}");
        // Kueue says again that an evicted Workload ran too long, and takes back only what nobody else wrote. The
        // condition then ends the Workload once more when it is activated again, so we do neither.
        let counts = |it: &String| !self.judge || !it.starts_with("DeactivationTarget=True/");
        let same = |it: &Workload| shown(it).iter().filter(|it| counts(it)).eq(conditions.iter().copied());
        self.until(self.workloads(), workload, &what, same).await
    }

    /// Waits until a Workload is as `is` says.
    pub(crate) async fn workload(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Workload) -> bool,
    ) -> anyhow::Result<Workload> {
        self.until(self.workloads(), name, what, is).await
    }

    /// Waits until a Job is as `is` says.
    pub(crate) async fn sees_job(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Job) -> bool,
    ) -> anyhow::Result<Job> {
        self.until(self.jobs(), name, what, is).await
    }

    /// Waits until a ClusterQueue is as `is` says.
    pub(crate) async fn sees_queue(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&ClusterQueue) -> bool,
    ) -> anyhow::Result<ClusterQueue> {
        self.until(Api::all(self.client.clone()), name, what, is).await
    }

    /// Waits until a LocalQueue is as `is` says.
    pub(crate) async fn sees_local_queue(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&LocalQueue) -> bool,
    ) -> anyhow::Result<LocalQueue> {
        self.until(Api::namespaced(self.client.clone(), &self.namespace), name, what, is).await
    }

    /// Waits until a Job is started, and says that its pod runs.
    pub(crate) async fn runs(&self, job: &str) -> anyhow::Result<()> {
        self.sees_job(job, "started", |job| !suspended(job)).await?;
        let now = Timestamp::now().to_string();
        self.patch_status("Job", job, json!({ "active": 1, "ready": 1, "startTime": now })).await
    }

    /// Waits until a Job is stopped, and says that its pods are gone.
    pub(crate) async fn stops(&self, job: &str) -> anyhow::Result<()> {
        self.sees_job(job, "stopped", suspended).await?;
        self.patch_status("Job", job, json!({ "active": 0, "ready": 0 })).await
    }

    /// Says that a Job has done its work.
    pub(crate) async fn completes(&self, job: &str) -> anyhow::Result<()> {
        let now = Timestamp::now().to_string();
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "CompletionsReached",
                "message": "Reached expected number of succeeded pods", "lastTransitionTime": now,
            })
        };
        let status = json!({
            "active": 0, "ready": 0, "succeeded": 1, "completionTime": now,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
        });
        self.patch_status("Job", job, status).await
    }

    /// A check whose controller is played by the test.
    pub(crate) async fn check(&self, name: &str) -> anyhow::Result<()> {
        self.create(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "AdmissionCheck", "metadata": { "name": name },
            "spec": { "controllerName": "example.com/played" },
        }))
        .await?;
        let active = json!({ "conditions": [{
            "type": "Active", "status": "True", "reason": "Played", "message": "",
            "lastTransitionTime": Timestamp::now().to_string(),
        }] });
        self.patch_status("AdmissionCheck", name, active).await
    }

    /// What a check says about a Workload.
    pub(crate) async fn check_says(&self, workload: &str, check: Value) -> anyhow::Result<()> {
        let mut check = check;
        check["lastTransitionTime"] = Timestamp::now().to_string().into();
        self.patch_status("Workload", workload, json!({ "admissionChecks": [check] })).await
    }
}

/// Has a cluster know requests for nodes, by the definition of those who answer them. Says whether it does: without a Go
/// toolchain the definition is not to be had.
pub(crate) async fn define_requests(client: &Client) -> anyhow::Result<bool> {
    let Some(tools) = testkit::go::Tools::for_test("crds") else { return Ok(false) };
    let folder = tools.module("k8s.io/autoscaler/cluster-autoscaler/apis").join("config/crd");
    let text = std::fs::read_to_string(folder.join("autoscaling.x-k8s.io_provisioningrequests.yaml"))?;
    let definition: Value = serde_saphyr::from_str(&text)?;
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    match api.create(&PostParams::default(), &definition).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        made => drop(made?),
    }
    Ok(true)
}

fn of_kind(kind: &str) -> Value {
    let version = match kind {
        "Job" => "batch/v1",
        "StatefulSet" => "apps/v1",
        "LeaderWorkerSet" => "leaderworkerset.x-k8s.io/v1",
        "Namespace" | "Node" | "Pod" | "PodTemplate" | "LimitRange" | "ServiceAccount" => "v1",
        "ProvisioningRequest" => "autoscaling.x-k8s.io/v1",
        "PriorityClass" => "scheduling.k8s.io/v1",
        _ => "kueue.x-k8s.io/v1beta2",
    };
    json!({ "apiVersion": version, "kind": kind })
}

/// The conditions of a Workload, each as `Type=Status/Reason`, by type; without `PodsReady`, which goes its own way.
pub(crate) fn shown(workload: &Workload) -> Vec<String> {
    let conditions = rules::workload::conditions(workload).iter().filter(|it| it.type_ != "PodsReady");
    let mut shown: Vec<String> =
        conditions.map(|it| format!("{}={}/{}", it.type_, it.status, it.reason)).collect();
    shown.sort();
    shown
}

/// The message of a condition.
pub(crate) fn message(workload: &Workload, kind: &str) -> String {
    let condition = rules::workload::state::find(workload, kind);
    condition.map(|it| it.message.clone()).unwrap_or_default()
}

/// Whether a Job is suspended, and nothing is left to be taken out of it.
pub(crate) fn suspended(job: &Job) -> bool {
    rules::framework::Observed::is_suspended(&rules::framework::batch::Batch(job))
}
