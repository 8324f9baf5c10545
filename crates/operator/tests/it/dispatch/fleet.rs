//! A manager and two workers, embedded or real, with the operator on all of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use operator::{
    Operator, Settings,
    definitions::{Conversion, install},
};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};
use testkit::{Behaviour, ControlPlane, Kueue, Proxy, Simulator};
use types::kueue::Workload;

use super::{
    faults::{Fault, Faults},
    pods::{self, Witness},
    written::Written,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The namespace of all Jobs.
pub(crate) const NAMESPACE: &str = "team";
/// The names of the workers.
pub(crate) const WORKERS: [&str; 2] = ["east", "west"];

/// Who acts on a cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    Ferry,
    Kueue,
}

/// A manager and its workers.
pub(crate) struct Fleet {
    pub(crate) manager: Site,
    pub(crate) workers: BTreeMap<&'static str, Site>,
    pub(crate) witness: Witness,
    pub(crate) settings: Settings,
    /// The clock of the manager's operator, from when it is started next.
    pub(crate) clock: Clock,
    /// What operators write.
    pub(crate) written: Written,
    /// The manager's operator, to be asked what it counted.
    pub(crate) operator: Option<Operator>,
    running: Option<Tasks>,
    _watching: Tasks,
}

/// A cluster.
pub(crate) struct Site {
    /// Kueue, where it acts instead of us.
    kueue: Option<Kueue>,
    pub(crate) client: Client,
    pub(crate) faults: Faults,
    pub(crate) plane: Option<ControlPlane>,
    pub(crate) proxy: Option<Proxy>,
    kubeconfig: String,
    tasks: Tasks,
    _pods: Option<Simulator>,
}

impl Site {
    async fn embedded(name: &str) -> anyhow::Result<Site> {
        let store = store::Store::open(store::Options::ephemeral())?;
        let cluster = apiserver::Cluster::open(store, rules::job::Settings::default()).await;
        let cluster = cluster.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        let client = Client::new(cluster, "default");
        let mut tasks = Tasks::new();
        let (selection, settings) = (controllers::Selection::all(), controllers::Settings::default());
        controllers::start(client.clone(), &selection, settings, Clock::system(), &mut tasks);
        pods::play(&client, &mut tasks);
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{name}.test")}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        });
        let faults = Faults::default();
        Ok(Site {
            kueue: None,
            client,
            faults,
            plane: None,
            proxy: None,
            kubeconfig: kubeconfig.to_string(),
            tasks,
            _pods: None,
        })
    }

    /// A real one, or none if there is no Kubernetes to be had here.
    async fn real() -> anyhow::Result<Option<Site>> {
        let controllers = [
            "job-controller",
            "garbage-collector-controller",
            "namespace-controller",
            "serviceaccount-controller",
        ];
        let Some(plane) = ControlPlane::builder().controller_manager(controllers).for_test().await else {
            return Ok(None);
        };
        let client = plane.client();
        let decide = |pod: &k8s_openapi::api::core::v1::Pod| {
            let annotation =
                |name: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).cloned();
            match (annotation("seconds").as_deref(), annotation("fails")) {
                (Some("forever"), _) => Behaviour::runs(),
                (_, Some(_)) => Behaviour::exits(1),
                _ => Behaviour::exits(0),
            }
        };
        let pods = plane.simulator().decide(decide).start().await?;
        let proxy = plane.proxy().await?;
        let kubeconfig = std::fs::read_to_string(proxy.kubeconfig())?;
        let (plane, proxy, pods) = (Some(plane), Some(proxy), Some(pods));
        Ok(Some(Site {
            kueue: None,
            client,
            faults: Faults::default(),
            plane,
            proxy,
            kubeconfig,
            tasks: Tasks::new(),
            _pods: pods,
        }))
    }

    pub(crate) fn api(&self, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
        let version = object["apiVersion"].as_str().context("an apiVersion")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
        let resource = ApiResource::from_gvk(&kind);
        Ok(match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        })
    }

    pub(crate) async fn create(&self, object: Value) -> anyhow::Result<()> {
        let parsed: DynamicObject = serde_json::from_value(object.clone())?;
        let created = self.api(&object)?.create(&PostParams::default(), &parsed).await;
        created.with_context(|| format!("failed to create {object}"))?;
        Ok(())
    }

    pub(crate) async fn patch(&self, object: Value, patch: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        self.api(&object)?.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn patch_status(&self, object: Value, patch: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        self.api(&object)?.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn job(&self, name: &str) -> anyhow::Result<Option<Job>> {
        Ok(Api::<Job>::namespaced(self.client.clone(), NAMESPACE).get_opt(name).await?)
    }

    pub(crate) async fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        Ok(Api::<Workload>::namespaced(self.client.clone(), NAMESPACE)
            .list(&ListParams::default())
            .await?
            .items)
    }

    /// The Workload of a Job.
    pub(crate) async fn workload(&self, job: &str) -> anyhow::Result<Option<Workload>> {
        let prefix = format!("job-{job}-");
        let all = self.workloads().await?;
        Ok(all
            .into_iter()
            .find(|it| it.metadata.name.as_deref().is_some_and(|name| name.starts_with(&prefix))))
    }

    /// Starts real Kueue here, which never waits long before it cleans up.
    async fn start_kueue(&mut self) -> anyhow::Result<()> {
        let plane = self.plane.as_ref().context("Kueue acts on real clusters only")?;
        self.kueue = Some(plane.kueue(&json!({"multiKueue": {"gcInterval": "5s"}})).await?);
        Ok(())
    }

    /// Queues with so much cpu.
    async fn queues(&self, cpu: &str, checks: &[&str]) -> anyhow::Result<()> {
        let kueue = "kueue.x-k8s.io/v1beta2";
        self.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
            .await?;
        self.create(json!({"apiVersion": kueue, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}})).await?;
        let checks: Vec<Value> = checks.iter().map(|name| json!({"name": name})).collect();
        let mut spec = json!({
            "namespaceSelector": {},
            "preemption": {"withinClusterQueue": "LowerPriority"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
                {"name": "default", "resources": [{"name": "cpu", "nominalQuota": cpu}]},
            ]}],
        });
        if !checks.is_empty() {
            spec["admissionChecksStrategy"] = json!({"admissionChecks": checks});
        }
        self.create(
            json!({"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": spec}),
        )
        .await?;
        let metadata = json!({"name": "team", "namespace": NAMESPACE});
        self.create(json!({"apiVersion": kueue, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "team"}})).await
    }
}

impl Fleet {
    /// Everything in this process.
    pub(crate) async fn embedded() -> anyhow::Result<Fleet> {
        let manager = Site::embedded("manager").await?;
        let mut workers = BTreeMap::new();
        for name in WORKERS {
            workers.insert(name, Site::embedded(name).await?);
        }
        Box::pin(Fleet::of(manager, Who::Ferry, workers, Who::Ferry)).await
    }

    /// Three real control planes, or none if there is no Kubernetes to be had here.
    pub(crate) async fn real() -> anyhow::Result<Option<Fleet>> {
        Fleet::real_with(Who::Ferry, Who::Ferry).await
    }

    /// Three real control planes on which we act, or Kueue.
    pub(crate) async fn real_with(manages: Who, works: Who) -> anyhow::Result<Option<Fleet>> {
        let Some(manager) = Site::real().await? else { return Ok(None) };
        let mut workers = BTreeMap::new();
        for name in WORKERS {
            let Some(worker) = Site::real().await? else { return Ok(None) };
            workers.insert(name, worker);
        }
        Ok(Some(Box::pin(Fleet::of(manager, manages, workers, works)).await?))
    }

    async fn of(
        manager: Site,
        manages: Who,
        mut workers: BTreeMap<&'static str, Site>,
        works: Who,
    ) -> anyhow::Result<Fleet> {
        let _ = tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
            .with_test_writer()
            .try_init();
        let (witness, written, mut watching) = (Witness::default(), Written::default(), Tasks::new());
        for (name, worker) in &mut workers {
            install(&worker.client, &Conversion::Embedded).await?;
            worker.queues("10", &[]).await?;
            match works {
                Who::Ferry => {
                    let client = written.on(worker.client.clone(), "worker", name);
                    let settings = Settings::default();
                    operator::start(client, settings, Clock::system(), &mut worker.tasks).ready().await;
                }
                Who::Kueue => worker.start_kueue().await?,
            }
            witness.watch(name, &worker.client, &mut watching);
        }
        install(&manager.client, &Conversion::Embedded).await?;
        let mut settings = Settings::default();
        settings.dispatch.heartbeat = Duration::from_millis(500);
        settings.dispatch.deadline = Duration::from_secs(3);
        settings.dispatch.clean_up = Duration::from_secs(2);
        settings.dispatch.doubt = Duration::from_secs(4);
        if manager.plane.is_none() {
            let sites: BTreeMap<String, (Client, Faults)> = workers
                .iter()
                .map(|(name, site)| {
                    let client = written.on(site.client.clone(), "manager", name);
                    (format!("https://{name}.test"), (client, site.faults.clone()))
                })
                .collect();
            settings.dispatch.connect = Arc::new(move |config| {
                let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap_or("").to_owned();
                let found = sites.get(&server).map(|(client, faults)| faults.on(client.clone()));
                Box::pin(async move {
                    found.ok_or_else(|| {
                        kube::Error::Service(format!("dial tcp: no such host {server}").into())
                    })
                })
            });
        } else {
            let (connect, written) = (Arc::clone(&settings.dispatch.connect), written.clone());
            settings.dispatch.connect = Arc::new(move |config| {
                let (connecting, written) = (connect(config), written.clone());
                Box::pin(async move { Ok(written.on(connecting.await?, "manager", "a worker")) })
            });
        }
        let mut fleet = Fleet {
            manager,
            workers,
            witness,
            settings,
            clock: Clock::system(),
            written,
            operator: None,
            running: None,
            _watching: watching,
        };
        fleet.configure().await?;
        match manages {
            Who::Ferry => fleet.start().await,
            Who::Kueue => fleet.manager.start_kueue().await?,
        }
        Ok(fleet)
    }

    /// Queues, a check, and the workers behind it.
    async fn configure(&self) -> anyhow::Result<()> {
        let kueue = "kueue.x-k8s.io/v1beta2";
        self.manager.queues("10", &["mk"]).await?;
        self.manager
            .create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}))
            .await?;
        for (name, worker) in &self.workers {
            let metadata = json!({"name": name, "namespace": "kueue-system"});
            let data = json!({"kubeconfig": worker.kubeconfig});
            self.manager
                .create(
                    json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}),
                )
                .await?;
            let source = json!({"kubeConfig": {"location": name, "locationType": "Secret"}});
            let spec = json!({"clusterSource": source});
            self.manager
                .create(json!({"apiVersion": kueue, "kind": "MultiKueueCluster", "metadata": {"name": name}, "spec": spec}))
                .await?;
        }
        let spec = json!({"clusters": WORKERS});
        self.manager
            .create(json!({"apiVersion": kueue, "kind": "MultiKueueConfig", "metadata": {"name": "all"}, "spec": spec}))
            .await?;
        let parameters = json!({"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"});
        let spec = json!({"controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters});
        self.manager.create(json!({"apiVersion": kueue, "kind": "AdmissionCheck", "metadata": {"name": "mk"}, "spec": spec})).await
    }

    /// Starts the manager's operator.
    pub(crate) async fn start(&mut self) {
        let mut tasks = Tasks::new();
        let client = self.written.on(self.manager.client.clone(), "manager", "manager");
        let operator = operator::start(client, self.settings.clone(), self.clock.clone(), &mut tasks);
        operator.ready().await;
        (self.operator, self.running) = (Some(operator), Some(tasks));
    }

    /// Ends the manager's operator, wherever it is.
    pub(crate) async fn kill(&mut self) {
        self.operator = None;
        if let Some(mut tasks) = self.running.take() {
            tasks.stop().await;
        }
    }

    /// Submits a Job whose pods have these annotations.
    pub(crate) async fn submit(&self, name: &str, annotations: Value) -> anyhow::Result<()> {
        self.manager.create(job(name, annotations)).await
    }

    /// The name of the worker that a Job runs on, says the manager.
    pub(crate) async fn cluster_of(&self, job: &str) -> anyhow::Result<Option<String>> {
        let workload = self.manager.workload(job).await?;
        Ok(workload.and_then(|workload| workload.status?.cluster_name))
    }

    /// What the check of a Job's Workload says.
    pub(crate) async fn check_of(&self, job: &str) -> anyhow::Result<String> {
        let status = self.manager.workload(job).await?.and_then(|workload| workload.status);
        let checks = status.map(|status| status.admission_checks).unwrap_or_default();
        Ok(checks.into_iter().map(|check| check.message).collect())
    }

    /// Waits until the manager shows that a Job's pods run, and says where.
    pub(crate) async fn running(&self, name: &str) -> anyhow::Result<String> {
        eventually(&format!("{name} runs"), async || {
            let active = self.manager.job(name).await?.and_then(|job| job.status?.active);
            let cluster = self.cluster_of(name).await?;
            Ok(cluster.filter(|_| active > Some(0)))
        })
        .await
    }

    /// Waits until a Job has a condition.
    pub(crate) async fn condition(&self, name: &str, condition: &str) -> anyhow::Result<Job> {
        eventually(&format!("{name} is {condition}"), async || {
            let job = self.manager.job(name).await?;
            Ok(job.filter(|job| {
                let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().any(|it| it.type_ == condition && it.status == "True")
            }))
        })
        .await
    }

    /// Waits until a Job is complete, and let go everywhere.
    pub(crate) async fn done(&self, job: &str) -> anyhow::Result<()> {
        self.condition(job, "Complete").await?;
        for (name, worker) in &self.workers {
            eventually(&format!("{name} is rid of {job}"), async || {
                let is_there = worker.job(job).await?.is_some() || worker.workload(job).await?.is_some();
                Ok((!is_there).then_some(()))
            })
            .await?;
        }
        eventually(&format!("the Workload of {job} is let go"), async || {
            let workload = self.manager.workload(job).await?;
            let held = |it: &Workload| !it.metadata.finalizers.as_deref().unwrap_or_default().is_empty();
            Ok(workload.filter(|it| !held(it)).map(|_| ()))
        })
        .await
    }

    /// Waits until no worker holds anything of ours.
    pub(crate) async fn clean(&self) -> anyhow::Result<()> {
        for (name, worker) in &self.workers {
            eventually(&format!("{name} is clean"), async || {
                let jobs = Api::<Job>::namespaced(worker.client.clone(), NAMESPACE)
                    .list(&ListParams::default())
                    .await?;
                let is_clean = jobs.items.is_empty() && worker.workloads().await?.is_empty();
                Ok(is_clean.then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Makes the way to a worker fail.
    pub(crate) fn fault(&self, worker: &str, fault: Fault) {
        let site = &self.workers[worker];
        let Some(proxy) = &site.proxy else { return site.faults.set(fault) };
        match fault {
            Fault::None => proxy.heal(),
            Fault::Hangs => proxy.inject(testkit::Fault::Drop),
            Fault::Refuses => proxy.inject(testkit::Fault::Cut),
            Fault::LosesAnswers => proxy.inject(testkit::Fault::SwallowAnswers),
            Fault::HidesJobs | Fault::ForbidsJobs | Fault::ForbidsWatches => {
                unreachable!("a proxy does not know what is asked")
            }
        }
    }

    /// The kubeconfig of a worker.
    pub(crate) fn kubeconfig(&self, worker: &str) -> String {
        self.workers[worker].kubeconfig.clone()
    }

    /// What the condition `Active` of an object says.
    pub(crate) async fn active(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind});
        let object = self.manager.api(&object)?.get(name).await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let active =
            conditions.into_iter().find(|condition| condition["type"] == "Active").unwrap_or_default();
        let text = |field: &str| active[field].as_str().unwrap_or("").to_owned();
        Ok(format!("{} {}: {}", text("status"), text("reason"), text("message")))
    }

    /// Waits until a worker is said to be connected, or not.
    pub(crate) async fn until_active(&self, worker: &str, is: bool) -> anyhow::Result<()> {
        let wanted = if is { "True" } else { "False" };
        eventually(&format!("{worker} is active: {wanted}"), async || {
            Ok(self.active("MultiKueueCluster", worker).await?.starts_with(wanted).then_some(()))
        })
        .await
    }

    /// Waits until the Workload of a Job has a condition.
    pub(crate) async fn workload_condition(&self, job: &str, kind: &str, reason: &str) -> anyhow::Result<()> {
        eventually(&format!("the Workload of {job} is {kind}: {reason}"), async || {
            let workload = self.manager.workload(job).await?;
            let conditions = workload
                .and_then(|workload| workload.status)
                .map(|status| status.conditions)
                .unwrap_or_default();
            let is = |it: &&k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
                it.type_ == kind && it.status == "True" && it.reason == reason
            };
            Ok(conditions.iter().find(is).map(|_| ()))
        })
        .await
    }

    /// A Workload by its Job, as something to be patched.
    pub(crate) async fn workload_object(&self, job: &str) -> anyhow::Result<Value> {
        let workload = self.manager.workload(job).await?.context("a Workload")?;
        let metadata = json!({"name": workload.metadata.name, "namespace": NAMESPACE});
        Ok(json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}))
    }

    pub(crate) async fn set_active(&self, job: &str, active: bool) -> anyhow::Result<()> {
        let object = self.workload_object(job).await?;
        self.manager.patch(object, json!({"spec": {"active": active}})).await
    }

    /// Never twice.
    pub(crate) fn check(&self) {
        let twice = self.witness.twice();
        assert!(twice.is_empty(), "pods on two clusters at once: {twice:?}");
    }
}

/// A Job for the manager.
pub(crate) fn job(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": "team"}},
        "spec": {
            "suspend": true, "managedBy": "kueue.x-k8s.io/multikueue", "ttlSecondsAfterFinished": 3600, "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
                    {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
                ]},
            },
        },
    })
}

/// Waits until something is there.
pub(crate) async fn eventually<T>(
    what: &str,
    look: impl AsyncFn() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut last = None;
    while tokio::time::Instant::now() < until {
        match look().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("waited in vain: {what} ({last:?})")
}

/// Deletes in the background.
pub(crate) async fn delete_job(client: &Client, name: &str) -> anyhow::Result<()> {
    Api::<Job>::namespaced(client.clone(), NAMESPACE).delete(name, &DeleteParams::background()).await?;
    Ok(())
}
