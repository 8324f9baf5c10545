//! What the operator and a manager's credentials are allowed is what they ask for: on real API servers with RBAC.

mod recorder;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, Config};
use operator::definitions::{Conversion, install};
use operator::deploy::Deployment;
use operator::leader::{Leader, Leadership, lead};
use operator::rbac::Ask;
use operator::webhooks::server::{Reach, Webhooks};
use operator::{Operator, Settings, deploy, rbac, visibility};
use reconcile::{Clock, Tasks};
use rules::framework::pod::is_gated;
use serde_json::{Value, json};
use testkit::{Behaviour, ControlPlane, Simulator};
use types::kueue::Workload;

use super::dispatch::fleet::eventually;
use super::world::define_requests;
use recorder::{Asked, Recorder};

const HOME: &str = deploy::NAMESPACE;
const TEAM: &str = "team";
/// A queue in which pods are placed by topology.
const PLACED: &str = "placed";

/// A real cluster with an operator that is allowed what is installed and nothing else.
struct Site {
    plane: ControlPlane,
    admin: Client,
    recorder: Recorder,
    operator: Option<Operator>,
    tasks: Tasks,
    leader: Option<Leader>,
    _pods: Simulator,
}

impl Site {
    async fn start() -> anyhow::Result<Option<Site>> {
        let controllers = ["job-controller", "garbage-collector-controller"];
        let Some(plane) = ControlPlane::builder().controller_manager(controllers).for_test().await else {
            return Ok(None);
        };
        let pods = plane.simulator().decide(|_| Behaviour::exits(0)).start().await?;
        let admin = plane.client();
        let site = Site {
            plane,
            admin,
            recorder: Recorder::default(),
            operator: None,
            tasks: Tasks::new(),
            leader: None,
            _pods: pods,
        };
        site.apply(deploy::namespace(HOME)).await?;
        for object in deploy::access(HOME, &Settings::default()) {
            site.apply(object).await?;
        }
        Ok(Some(site))
    }

    /// Starts the operator, as its service account.
    async fn operate(&mut self) -> anyhow::Result<()> {
        let client = client(self.kubeconfig_of(deploy::NAME).await?).await?;
        let client = self.recorder.on(client);
        let leader = lead(client.clone(), Leadership::new(HOME, "test"), Clock::system()).await?;
        install(&client, &Conversion::Embedded).await?;
        let mut settings = Settings::default();
        settings.dispatch.heartbeat = Duration::from_millis(500);
        // A busy machine may lose the connection, and then what has ended is kept for so long.
        settings.dispatch.doubt = Duration::from_secs(5);
        let operator = operator::start(client, settings, Clock::system(), &mut self.tasks);
        tokio::time::timeout(Duration::from_secs(60), operator.ready())
            .await
            .context("it sees everything")?;
        (self.operator, self.leader) = (Some(operator), Some(leader));
        Ok(())
    }

    /// A kubeconfig of a service account.
    async fn kubeconfig_of(&self, account: &str) -> anyhow::Result<Value> {
        let api: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), HOME);
        let asked: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [] } }))?;
        let token = api.create_token_request(account, &PostParams::default(), &asked).await?;
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(self.plane.kubeconfig())?)?;
        let token = token.status.context("a token")?.token;
        config["users"][0]["user"] = json!({ "token": token });
        Ok(config)
    }

    fn api(&self, object: &Value) -> anyhow::Result<Api<DynamicObject>> {
        let version = object["apiVersion"].as_str().context("an apiVersion")?;
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
        let resource = ApiResource::from_gvk(&kind);
        Ok(match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        })
    }

    async fn apply(&self, object: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let params = PatchParams::apply("test").force();
        let applied = self.api(&object)?.patch(name, &params, &Patch::Apply(&object)).await;
        applied.with_context(|| format!("failed to apply {object}"))?;
        Ok(())
    }

    /// Takes a Job through a queue whose Workloads start once an autoscaler, which is played here, has made nodes.
    async fn with_nodes(&self) -> anyhow::Result<()> {
        define_requests(&self.admin).await?;
        let config = json!({ "provisioningClassName": "nodes.example.com" });
        self.apply(kueue("ProvisioningRequestConfig", "nodes", config)).await?;
        let parameters =
            json!({ "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "nodes" });
        let check =
            json!({ "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters });
        self.apply(kueue("AdmissionCheck", "nodes", check)).await?;
        self.queues(Some("nodes")).await?;
        self.submit("on-nodes", None).await?;
        let request = json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": { "namespace": TEAM },
        });
        let requests = self.api(&request)?;
        let name = eventually("nodes are asked for", async || {
            Ok(requests.list(&ListParams::default()).await?.items.pop().and_then(|it| it.metadata.name))
        })
        .await?;
        let condition = json!({
            "type": "Provisioned", "status": "True", "reason": "Played", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let status = json!({ "status": { "conditions": [condition] } });
        requests.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        self.complete("on-nodes").await?;
        eventually("the request is gone", async || Ok(requests.get_opt(&name).await?.is_none().then_some(())))
            .await
    }

    async fn queues(&self, check: Option<&str>) -> anyhow::Result<()> {
        self.apply(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": TEAM } })).await?;
        let account = json!({ "name": "default", "namespace": TEAM });
        self.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
        self.apply(kueue("ResourceFlavor", "default", json!({}))).await?;
        self.apply(kueue("Cohort", "all", json!({}))).await?;
        let quota = json!({ "name": "cpu", "nominalQuota": "10" });
        let flavors = json!([{ "name": "default", "resources": [quota] }]);
        let mut spec = json!({
            "namespaceSelector": {}, "cohortName": "all",
            "resourceGroups": [{ "coveredResources": ["cpu"], "flavors": flavors }],
        });
        if let Some(check) = check {
            spec["admissionChecksStrategy"] = json!({ "admissionChecks": [{ "name": check }] });
        }
        self.apply(kueue("ClusterQueue", TEAM, spec)).await?;
        let mut queue = kueue("LocalQueue", TEAM, json!({ "clusterQueue": TEAM }));
        queue["metadata"]["namespace"] = json!(TEAM);
        self.apply(queue).await
    }

    /// A queue in which pods are placed on the only node there is.
    async fn places(&self) -> anyhow::Result<()> {
        let host = "kubernetes.io/hostname";
        self.apply(kueue("Topology", "hosts", json!({ "levels": [{ "nodeLabel": host }] }))).await?;
        let flavor = json!({ "nodeLabels": { "kubernetes.io/os": "linux" }, "topologyName": "hosts" });
        self.apply(kueue("ResourceFlavor", "hosts", flavor)).await?;
        let quota = json!({ "name": "cpu", "nominalQuota": "10" });
        let flavors = json!([{ "name": "hosts", "resources": [quota] }]);
        let groups = json!([{ "coveredResources": ["cpu"], "flavors": flavors }]);
        let spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
        self.apply(kueue("ClusterQueue", PLACED, spec)).await?;
        let mut queue = kueue("LocalQueue", PLACED, json!({ "clusterQueue": PLACED }));
        queue["metadata"]["namespace"] = json!(TEAM);
        self.apply(queue).await
    }

    fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.admin.clone(), TEAM)
    }

    async fn submit(&self, name: &str, managed_by: Option<&str>) -> anyhow::Result<()> {
        self.submit_to(TEAM, name, managed_by).await
    }

    async fn submit_to(&self, queue: &str, name: &str, managed_by: Option<&str>) -> anyhow::Result<()> {
        let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
        // One that stays may wait for slices.
        let elastic = (managed_by.is_none() && queue == TEAM).then_some("kueue.x-k8s.io/elastic-job");
        let annotations: BTreeMap<&str, &str> = elastic.into_iter().map(|key| (key, "true")).collect();
        let gates: Vec<Value> = elastic.into_iter().map(|name| json!({ "name": name })).collect();
        let labels = json!({ "kueue.x-k8s.io/queue-name": queue });
        let pod = json!({ "restartPolicy": "Never", "containers": [container], "schedulingGates": gates });
        let job = json!({
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "suspend": true, "managedBy": managed_by, "template": { "spec": pod } },
        });
        self.jobs().create(&PostParams::default(), &serde_json::from_value(job)?).await?;
        Ok(())
    }

    /// A pod that is queued, starts, and has to stop.
    async fn lets_a_pod_go(&self) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.admin.clone(), TEAM);
        let workloads: Api<Workload> = Api::namespaced(self.admin.clone(), TEAM);
        let labels = json!({ "kueue.x-k8s.io/queue-name": TEAM, "kueue.x-k8s.io/managed": "true" });
        let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
        let pod = json!({
            "metadata": { "name": "alone", "labels": labels, "finalizers": ["kueue.x-k8s.io/managed"] },
            "spec": { "containers": [container], "schedulingGates": [{ "name": "kueue.x-k8s.io/admission" }] },
        });
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        eventually("the pod is let through", async || {
            Ok((!is_gated(&pods.get("alone").await?)).then_some(()))
        })
        .await?;
        let all = workloads.list(&ListParams::default()).await?.items;
        let of_pod =
            |it: &Workload| it.metadata.name.as_deref().is_some_and(|name| name.starts_with("pod-alone-"));
        let workload =
            all.into_iter().find(of_pod).and_then(|it| it.metadata.name).context("its Workload")?;
        let stop = Patch::Merge(json!({ "spec": { "active": false } }));
        workloads.patch(&workload, &PatchParams::default(), &stop).await?;
        eventually("the pod is told to go", async || {
            let left = pods.get_opt("alone").await?;
            Ok(left.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()).then_some(()))
        })
        .await
    }

    /// Has the operator say who waits: to somebody with a token, and to a cluster that is told its authority.
    async fn says_who_waits(&mut self) -> anyhow::Result<()> {
        for object in deploy::operator(&Deployment::default()) {
            if object["kind"] == "APIService" {
                self.apply(object).await?;
            }
        }
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let operator = self.operator.clone().context("an operator")?;
        let service = deploy::VISIBILITY_SERVICE;
        let at = visibility::server::serve(operator, anywhere, service, &mut self.tasks).await?;
        let mut config = self.kubeconfig_of(deploy::NAME).await?;
        let server = format!("https://localhost:{}", at.port());
        config["clusters"][0]["cluster"] = json!({ "server": server, "insecure-skip-tls-verify": true });
        let groups = client(config).await?.list_api_groups().await?;
        assert_eq!(groups.groups.len(), 1, "whoever is known may know what is served");
        eventually("both versions have its authority", async || {
            let asked = self.recorder.asked();
            let all = ["list", "watch", "patch"]
                .map(|verb| (verb.to_owned(), "apiregistration.k8s.io".to_owned(), "apiservices".to_owned()));
            Ok(all.iter().all(|it| asked.contains(it)).then_some(()))
        })
        .await
    }

    async fn complete(&self, name: &str) -> anyhow::Result<()> {
        eventually(&format!("{name} is complete"), async || {
            let conditions = self.jobs().get(name).await?.status.and_then(|status| status.conditions);
            let is = |it: &k8s_openapi::api::batch::v1::JobCondition| {
                it.type_ == "Complete" && it.status == "True"
            };
            Ok(conditions.unwrap_or_default().iter().any(is).then_some(()))
        })
        .await
    }
}

fn kinds() -> Vec<&'static rules::dispatch::Adapter> {
    Settings::default().dispatch.kinds
}

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

async fn client(kubeconfig: Value) -> anyhow::Result<Client> {
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// What is allowed and was not asked for.
fn left_over(asks: &[Ask], asked: &BTreeSet<Asked>) -> Vec<String> {
    let mut left = Vec::new();
    for ask in asks {
        for resource in &ask.resources {
            for verb in &ask.verbs {
                let wanted = ((*verb).to_owned(), ask.group.to_owned(), resource.clone());
                if !asked.contains(&wanted) {
                    left.push(format!("{verb} {resource}.{}: {}", ask.group, ask.why));
                }
            }
        }
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_installed_is_enough_and_not_too_much() -> anyhow::Result<()> {
    let (Some(mut manager), Some(mut worker)) = (Site::start().await?, Site::start().await?) else {
        return Ok(());
    };
    for site in [&mut manager, &mut worker] {
        site.operate().await?;
    }

    // The worker lets the manager do what a manager has to do there.
    let account = json!({ "name": "manager", "namespace": HOME });
    worker.apply(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
    worker.apply(rbac::role("manager", None, &rbac::worker(&kinds()))).await?;
    worker.apply(rbac::binding("manager", None, (HOME, "manager"))).await?;
    let kubeconfig = worker.kubeconfig_of("manager").await?;
    worker.queues(None).await?;

    let metadata = json!({ "name": "east", "namespace": HOME });
    let data = json!({ "kubeconfig": kubeconfig.to_string() });
    manager
        .apply(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data }))
        .await?;
    let source = json!({ "kubeConfig": { "locationType": "Secret", "location": "east" } });
    manager.apply(kueue("MultiKueueCluster", "east", json!({ "clusterSource": source }))).await?;
    manager.apply(kueue("MultiKueueConfig", "all", json!({ "clusters": ["east"] }))).await?;
    let parameters = json!({ "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all" });
    let check = json!({ "controllerName": "kueue.x-k8s.io/multikueue", "parameters": parameters });
    manager.apply(kueue("AdmissionCheck", "all", check)).await?;
    manager.queues(Some("all")).await?;

    manager.submit("away", Some("kueue.x-k8s.io/multikueue")).await?;
    manager.complete("away").await?;
    eventually("the mirror is gone", async || {
        Ok(worker.jobs().get_opt("away").await?.is_none().then_some(()))
    })
    .await?;
    worker.submit("here", None).await?;
    worker.complete("here").await?;
    worker.lets_a_pod_go().await?;
    worker.places().await?;
    worker.submit_to(PLACED, "placed", None).await?;
    worker.complete("placed").await?;
    // From here on, all who are in the queue wait for nodes.
    worker.with_nodes().await?;
    let jobs = [(&manager, "away"), (&worker, "here"), (&worker, "on-nodes"), (&worker, "placed")];
    for (site, job) in jobs {
        site.jobs().delete(job, &DeleteParams::background()).await?;
    }

    // Who places nothing watches no nodes.
    let watches_nodes = |site: &Site| {
        site.recorder.asked().contains(&("watch".to_owned(), String::new(), "nodes".to_owned()))
    };
    assert!(watches_nodes(&worker) && !watches_nodes(&manager));
    let refused = |site: &Site| site.recorder.refused();
    assert_eq!(refused(&manager), BTreeSet::new(), "the manager's operator asks for more than it may");
    assert_eq!(refused(&worker), BTreeSet::new(), "the worker's operator asks for more than it may");

    // The rest of what one inside of the cluster asks: certificates and configurations of webhooks.
    let reach = Reach::Service {
        namespace: HOME.to_owned(),
        name: deploy::WEBHOOK_SERVICE.to_owned(),
        conversion: deploy::CONVERSION_SERVICE.to_owned(),
    };
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let operator = worker.operator.clone().context("an operator")?;
    let _webhooks = Webhooks::start(operator, anywhere, reach, &mut worker.tasks).await?;
    eventually("the configurations are looked at", async || {
        let asked = worker.recorder.asked();
        let both = |verb: &str| {
            asked.iter().filter(|it| it.0 == verb && it.2.ends_with("webhookconfigurations")).count() == 2
        };
        Ok((both("list") && both("watch")).then_some(()))
    })
    .await?;
    assert_eq!(refused(&worker), BTreeSet::new(), "the webhooks ask for more than they may");

    worker.says_who_waits().await?;
    assert_eq!(refused(&worker), BTreeSet::new(), "who says who waits asks for more than it may");

    worker.leader.take().context("a leader")?.release().await?;

    let asked: BTreeSet<Asked> = manager.recorder.asked().union(&worker.recorder.asked()).cloned().collect();
    let rare = [
        "/finalizers.",                           // only clusters that guard owners ask
        "delete jobs.batch",                      // Jobs that are to go with their Workload
        "delete workloads.kueue.x-k8s.io",        // Workloads of Jobs that left their queue
        "patch cohorts/status",                   // with fair sharing
        ": whose part a Job is",                  // of kinds that are not there
        "create mutatingwebhookconfigurations",   // asked of RBAC by an apply that creates
        "create validatingwebhookconfigurations", // the same
    ];
    // Of kinds that the cluster does not know, nothing can be asked.
    let known = worker.admin.list_api_groups().await?;
    let known: BTreeSet<&str> = known.groups.iter().map(|group| group.name.as_str()).chain([""]).collect();
    let mut asks = rbac::operator(&Settings::default());
    asks.retain(|ask| known.contains(ask.group));
    let left = left_over(&asks, &asked);
    let left: Vec<&String> = left.iter().filter(|it| !rare.iter().any(|rare| it.contains(rare))).collect();
    assert!(left.is_empty(), "allowed, and never asked for: {left:#?}");

    // Without one of the rules it does not go.
    let asks = rbac::operator(&Settings::default());
    let less: Vec<&Ask> = asks
        .iter()
        .filter(|ask| !ask.at_home && !ask.resources.iter().any(|it| it == "workloads/status"))
        .collect();
    manager.apply(rbac::role(deploy::NAME, None, less)).await?;
    manager.submit("stuck", Some("kueue.x-k8s.io/multikueue")).await?;
    eventually("it is refused", async || {
        let refused = refused(&manager);
        let wanted = ("patch".to_owned(), "kueue.x-k8s.io".to_owned(), "workloads/status".to_owned());
        Ok(refused.contains(&wanted).then_some(()))
    })
    .await
}
