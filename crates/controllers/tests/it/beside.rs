//! Deployments, StatefulSets, DaemonSets and the endpoints of services beside the real controllers: kube-controller-manager keeps them
//! on one cluster, our controllers on another, the same happens to both, and after each step they must look the same.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apiserver::Setup;
use apiserver::credentials::Credentials;
use apiserver::serve::Server;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Endpoints, Event, Node, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, ResourceExt as _};
use reconcile::Tasks;
use regex::Regex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use store::{Options, Store};
use testkit::{Behaviour, ControlPlane, ControllerManager, Simulator};
use tokio::time::{Instant, sleep};

use crate::cluster::{api, create, eventually, start};

const NAMES: [&str; 9] = [
    "deployment-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "statefulset-controller",
    "daemonset-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "serviceaccount-controller",
];
/// The real controllers try again after growing waits.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing more happens after this long.
const REST: Duration = Duration::from_millis(1500);

/// One of the two clusters.
struct World {
    client: Client,
    _node: Simulator,
    /// Whatever it consists of ends with it.
    _parts: Box<dyn Any>,
}

impl World {
    /// kube-controller-manager on kube-apiserver.
    async fn theirs() -> Option<World> {
        let cluster = ControlPlane::builder().controller_manager(NAMES).for_test().await?;
        Some(World::of(cluster.config(), Box::new(cluster)).await)
    }

    /// Our controllers on kube-apiserver.
    async fn our_controllers() -> Option<World> {
        let cluster = ControlPlane::builder().for_test().await?;
        let mut tasks = Tasks::new();
        start(&cluster.client(), &NAMES.join(","), &mut tasks);
        Some(World::of(cluster.config(), Box::new((cluster, tasks))).await)
    }

    /// kube-controller-manager on our API server.
    async fn our_server() -> World {
        let store = Store::open(Options::ephemeral()).expect("a store");
        let setup = Setup { service_accounts: true, ..Setup::default() };
        let cluster = apiserver::Cluster::open_with(store, setup).await.expect("a cluster");
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::start(cluster, credentials.clone(), anywhere).await.expect("a server");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("kubeconfig");
        let url = format!("https://{}", server.address());
        credentials.write_kubeconfig(&path, "ours", &url).expect("a kubeconfig");
        let manager = ControllerManager::start(&path, NAMES).await.expect("the real controllers");
        let kubeconfig = Kubeconfig::read_from(&path).expect("a kubeconfig");
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.expect("a configuration");
        World::of(config, Box::new((manager, server, directory))).await
    }

    async fn of(config: Config, parts: Box<dyn Any>) -> World {
        let client = Client::try_from(config.clone()).expect("a client");
        let node = Simulator::builder(config).decide(|_| Behaviour::runs()).start().await.expect("a node");
        eventually("the service account", || async {
            api::<ServiceAccount>(&client).get_opt("default").await.expect("an answer")
        })
        .await;
        World { client, _node: node, _parts: parts }
    }

    async fn listed<K>(&self) -> Vec<Value>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let list = api::<K>(&self.client).list(&ListParams::default()).await.expect("a list");
        // Where the API server itself is, is its own matter.
        let others = list.items.iter().filter(|object| object.meta().name.as_deref() != Some("kubernetes"));
        others.map(|object| serde_json::to_value(object).expect("JSON")).collect()
    }

    /// What can be seen, without what differs from one cluster to the next.
    async fn look(&self) -> Vec<String> {
        let mut seen = Vec::new();
        let pods = self.listed::<Pod>().await;
        for pod in &pods {
            let (meta, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
            let ready = status["conditions"].as_array().into_iter().flatten();
            let ready = ready.filter(|it| it["type"] == "Ready").map(|it| it["status"].clone()).next();
            seen.push(json!({
                "pod": stable(meta["name"].as_str().unwrap_or_default(), &meta["generateName"]),
                "labels": without_hash(meta), "owner": meta["ownerReferences"][0]["kind"],
                "leaving": !meta["deletionTimestamp"].is_null(), "ready": ready, "phase": status["phase"],
                "image": spec["containers"][0]["image"], "hostname": spec["hostname"], "subdomain": spec["subdomain"],
                "affinity": spec["affinity"], "tolerations": spec["tolerations"],
                "claims": spec["volumes"].as_array().into_iter().flatten()
                    .filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str()).collect::<Vec<_>>(),
            }));
        }
        for set in self.listed::<StatefulSet>().await {
            seen.push(json!({"set": set["metadata"]["name"], "status": set["status"]}));
        }
        for set in self.listed::<DaemonSet>().await {
            seen.push(json!({"daemons": set["metadata"]["name"], "status": set["status"]}));
        }
        for deployment in self.listed::<Deployment>().await {
            let (meta, status) = (&deployment["metadata"], without_times(&deployment["status"]));
            seen.push(
                json!({"deployment": meta["name"], "annotations": meta["annotations"], "status": status}),
            );
        }
        for set in self.listed::<ReplicaSet>().await {
            seen.push(json!({
                "replicas of": set["metadata"]["ownerReferences"][0]["name"], "annotations": set["metadata"]["annotations"],
                "image": set["spec"]["template"]["spec"]["containers"][0]["image"],
                "wanted": set["spec"]["replicas"], "status": without_steps(&set["status"]),
            }));
        }
        for controller in self.listed::<ReplicationController>().await {
            let status = without_times(&controller["status"]);
            seen.push(json!({"controller": controller["metadata"]["name"], "status": status}));
        }
        for revision in self.listed::<ControllerRevision>().await {
            let meta = &revision["metadata"];
            let owner = meta["ownerReferences"][0]["kind"].clone();
            // How a DaemonSet's templates are hashed is known to Go alone.
            let name = if owner == "DaemonSet" { json!("X") } else { meta["name"].clone() };
            seen.push(json!({
                "revision": revision["revision"], "name": name, "labels": without_hash(meta), "owner": owner,
                "annotations": meta["annotations"], "data": revision["data"],
            }));
        }
        for claim in self.listed::<PersistentVolumeClaim>().await {
            let meta = &claim["metadata"];
            let owners = meta["ownerReferences"].as_array().into_iter().flatten();
            seen.push(json!({
                "claim": meta["name"], "labels": meta["labels"], "spec": claim["spec"],
                "owners": owners.map(|owner| json!([owner["kind"], owner["name"]])).collect::<Vec<_>>(),
            }));
        }
        for mut endpoints in self.listed::<Endpoints>().await {
            // Ports are in the order of a hash that only Go programs know.
            for subset in endpoints["subsets"].as_array_mut().into_iter().flatten() {
                if let Some(ports) = subset["ports"].as_array_mut() {
                    ports.sort_by_key(|port| port["name"].to_string());
                }
            }
            seen.push(json!({
                "endpoints": endpoints["metadata"]["name"], "labels": endpoints["metadata"]["labels"],
                "subsets": endpoints["subsets"],
            }));
        }
        for slice in self.listed::<EndpointSlice>().await {
            let mut endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
            endpoints.sort_by_key(|endpoint| {
                (endpoint["targetRef"]["name"].to_string(), endpoint["addresses"].to_string())
            });
            seen.push(json!({
                "slice": slice["metadata"]["generateName"], "labels": slice["metadata"]["labels"],
                "type": slice["addressType"], "ports": slice["ports"], "endpoints": endpoints,
                "owner": slice["metadata"]["ownerReferences"][0]["name"],
            }));
        }
        let ips = pods.iter().filter_map(|pod| Some((pod["status"]["podIP"].as_str()?, pod)));
        let mut texts: Vec<String> = seen.iter().map(ToString::to_string).collect();
        for (ip, pod) in ips {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let known = stable(name, &pod["metadata"]["generateName"]);
            for text in &mut texts {
                *text = text.replace(&format!("\"{ip}\""), &format!("\"ip of {known}\""));
                *text = text.replace(&format!("\"name\":\"{name}\""), &format!("\"name\":\"{known}\""));
            }
        }
        // How templates are hashed is known to Go alone.
        let patterns = [
            ("\"uid\":\"[^\"]*\"", "\"uid\":\"X\""),
            ("\"pod-template-hash\":\"[^\"]*\"", "\"pod-template-hash\":\"X\""),
            ("rollout-[a-z0-9]{6,10}\\b(-[a-z0-9]{5}\\b)?", "rollout-X"),
        ];
        let patterns = patterns.map(|(pattern, by)| (Regex::new(pattern).expect("a pattern"), by));
        let replaced = |text: String| {
            patterns.iter().fold(text, |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
        };
        let mut texts: Vec<String> = texts.into_iter().map(replaced).collect();
        texts.sort();
        texts
    }

    /// What was told, each thing once.
    async fn told(&self) -> BTreeSet<String> {
        let events = api::<Event>(&self.client).list(&ListParams::default()).await.expect("a list");
        let random = Regex::new("daemon-[a-z0-9]{5}").expect("a pattern");
        let ours = events.items.into_iter().filter(|event| {
            matches!(event.involved_object.kind.as_deref(), Some("StatefulSet" | "DaemonSet"))
        });
        ours.map(|event| {
            let message = event.message.unwrap_or_default();
            let message = random.replace_all(&message, "daemon-X");
            format!("{} {}: {message}", event.type_.unwrap_or_default(), event.reason.unwrap_or_default())
        })
        // Whoever is slow to see that a pod is gone deletes it again, and says that it is not there.
        .filter(|told| !(told.starts_with("Warning FailedDelete") && told.ends_with("not found")))
        .collect()
    }
}

/// A name without what chance has put behind it, which can be five digits. The ordinals of StatefulSets are shorter.
fn stable(name: &str, generated_from: &Value) -> String {
    let chance = generated_from.as_str().and_then(|base| name.strip_prefix(base));
    match chance.filter(|chance| chance.len() == 5) {
        Some(chance) => format!("{}X", name.strip_suffix(chance).unwrap_or(name)),
        None => name.to_owned(),
    }
}

/// A status, without when its conditions came to be so, and in which order.
fn without_times(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.sort_by_key(|condition| condition["type"].to_string());
    }
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(condition) = condition.as_object_mut() {
            condition.retain(|field, _| !["lastUpdateTime", "lastTransitionTime"].contains(&field.as_str()));
        }
    }
    status
}

/// The status of a ReplicaSet, without in how many steps it came to its size.
fn without_steps(status: &Value) -> Value {
    let mut status = without_times(status);
    status["observedGeneration"] = json!("X");
    status
}

/// Labels, without the hash of a DaemonSet's template.
fn without_hash(meta: &Value) -> Value {
    let mut labels = meta["labels"].clone();
    if meta["ownerReferences"][0]["kind"] == "DaemonSet" && !labels["controller-revision-hash"].is_null() {
        labels["controller-revision-hash"] = json!("X");
    }
    labels
}

/// Waits until both look the same and nothing changes any more.
async fn alike(theirs: &World, ours: &World, after: &str) {
    let deadline = Instant::now() + PATIENCE;
    let mut since = Instant::now();
    let mut last = Vec::new();
    loop {
        let (real, own) = (theirs.look().await, ours.look().await);
        if real == own && own == last && since.elapsed() > REST {
            return;
        }
        if own != last || real != own {
            since = Instant::now();
        }
        if Instant::now() > deadline {
            let only = |one: &[String], other: &[String]| -> Vec<String> {
                one.iter().filter(|line| !other.contains(line)).cloned().collect()
            };
            panic!("after {after}\ntheirs: {:#?}\nours: {:#?}", only(&real, &own), only(&own, &real));
        }
        last = own;
        sleep(Duration::from_millis(100)).await;
    }
}

fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [
            {"name": "main", "image": image, "ports": [{"name": "web", "containerPort": 8080}]},
        ]},
    })
}

async fn change<K>(worlds: [&World; 2], name: &str, patch: Value)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    for world in worlds {
        let objects: Api<K> = api(&world.client);
        objects.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a change");
    }
}

#[tokio::test]
async fn sets_daemons_and_endpoints_are_kept_as_the_real_controllers_keep_them() {
    let (Some(theirs), Some(ours)) = tokio::join!(World::theirs(), World::our_controllers()) else { return };
    live(&theirs, &ours).await;
    rollouts(&theirs, &ours).await;
}

#[tokio::test]
async fn real_controllers_do_on_our_server_what_they_do_on_a_real_one() {
    let Some(theirs) = World::theirs().await else { return };
    let ours = World::our_server().await;
    live(&theirs, &ours).await;
    rollouts(&theirs, &ours).await;
}

async fn live(theirs: &World, ours: &World) {
    let both = [theirs, ours];
    for world in both {
        let client = &world.client;
        let headless = json!({"metadata": {"name": "web", "labels": {"l": "1"}}, "spec": {
            "clusterIP": "None", "selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        }});
        create::<Service>(client, headless).await;
        let balanced = json!({"metadata": {"name": "all"}, "spec": {
            "selector": {"app": "daemon"}, "ports": [{"port": 80, "targetPort": 9}, {"name": "b", "port": 81}],
        }});
        let mut balanced = balanced;
        balanced["spec"]["ports"][0]["name"] = json!("a");
        create::<Service>(client, balanced).await;
        let elsewhere =
            json!({"metadata": {"name": "elsewhere"}, "spec": {"ports": [{"name": "p", "port": 80}]}});
        create::<Service>(client, elsewhere).await;
        let written = json!({"metadata": {"name": "elsewhere", "labels": {"l": "1"}}, "subsets": [{
            "addresses": [{"ip": "10.1.2.3", "hostname": "h"}, {"ip": "2001:db8::1"}],
            "notReadyAddresses": [{"ip": "10.1.2.4"}], "ports": [{"name": "p", "port": 8080}],
        }]});
        create::<Endpoints>(client, written).await;
        let claim = json!({"metadata": {"name": "data", "labels": {"own": "1"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}},
        }});
        let set = json!({"metadata": {"name": "web", "annotations": {"a": "1"}}, "spec": {
            "replicas": 3, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
            "template": template("web", "one"), "volumeClaimTemplates": [claim],
        }});
        create::<StatefulSet>(client, set).await;
        let daemons = json!({"metadata": {"name": "daemon"}, "spec": {
            "selector": {"matchLabels": {"app": "daemon"}}, "template": template("daemon", "one"),
        }});
        create::<DaemonSet>(client, daemons).await;
    }
    alike(theirs, ours, "they were made").await;

    change::<StatefulSet>(both, "web", json!({"spec": {"replicas": 1}})).await;
    let written =
        json!({"subsets": [{"addresses": [{"ip": "10.1.2.5"}], "ports": [{"name": "p", "port": 8080}]}]});
    change::<Endpoints>(both, "elsewhere", written).await;
    alike(theirs, ours, "the set was scaled down, and somebody wrote other endpoints").await;
    let partition = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    let edit = json!({"spec": {
        "replicas": 3, "updateStrategy": partition, "template": template("web", "two"),
    }});
    change::<StatefulSet>(both, "web", edit).await;
    change::<DaemonSet>(both, "daemon", json!({"spec": {"template": template("daemon", "two")}})).await;
    alike(theirs, ours, "there were new templates").await;
    let partition = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    change::<StatefulSet>(both, "web", partition).await;
    for world in both {
        let endpoints: Api<Endpoints> = api(&world.client);
        endpoints.delete("elsewhere", &DeleteParams::default()).await.expect("deleted");
    }
    alike(theirs, ours, "the partition was lifted, and written endpoints went").await;
    change::<StatefulSet>(both, "web", json!({"spec": {"template": template("web", "one")}})).await;
    for world in both {
        let nodes: Api<Node> = Api::all(world.client.clone());
        let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}});
        nodes.patch("simulated", &PatchParams::default(), &Patch::Merge(&taint)).await.expect("a taint");
    }
    alike(theirs, ours, "one went back, and the node was tainted").await;
    let policy = json!({"spec": {"replicas": 2, "ordinals": {"start": 1},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}});
    change::<StatefulSet>(both, "web", policy).await;
    alike(theirs, ours, "ordinals began elsewhere").await;
    for world in both {
        let pods: Api<Pod> = api(&world.client);
        pods.delete("web-1", &DeleteParams::default()).await.expect("deleted");
        let patch = json!({"status": {"phase": "Failed"}});
        pods.patch_status("web-2", &PatchParams::default(), &Patch::Merge(&patch)).await.expect("a status");
    }
    alike(theirs, ours, "pods went").await;
    let (real, own) = (theirs.told().await, ours.told().await);
    assert_eq!(own, real, "what was told");
}

/// Deployments and ReplicationControllers, through everything that a rollout can meet.
async fn rollouts(theirs: &World, ours: &World) {
    let both = [theirs, ours];
    for world in both {
        let nodes: Api<Node> = Api::all(world.client.clone());
        let untainted = json!({"spec": {"taints": null}});
        nodes.patch("simulated", &PatchParams::default(), &Patch::Merge(&untainted)).await.expect("no taint");
        let deployment = json!({"metadata": {"name": "rollout"}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"app": "rollout"}}, "template": template("rollout", "one"),
        }});
        create::<Deployment>(&world.client, deployment).await;
        let controller = json!({"metadata": {"name": "old"}, "spec": {
            "replicas": 2, "selector": {"app": "old"}, "template": template("old", "one"),
        }});
        create::<ReplicationController>(&world.client, controller).await;
    }
    alike(theirs, ours, "deployments were made").await;
    let image = |image: &str| json!({"spec": {"template": template("rollout", image)}});
    change::<Deployment>(both, "rollout", image("two")).await;
    change::<ReplicationController>(both, "old", json!({"spec": {"replicas": 0}})).await;
    alike(theirs, ours, "a new template was rolled out").await;
    change::<Deployment>(both, "rollout", json!({"spec": {"paused": true, "replicas": 5}})).await;
    change::<Deployment>(both, "rollout", image("three")).await;
    alike(theirs, ours, "it was scaled and changed while it was paused").await;
    change::<Deployment>(both, "rollout", json!({"spec": {"paused": false}})).await;
    alike(theirs, ours, "it went on").await;
    change::<Deployment>(both, "rollout", image("one")).await;
    alike(theirs, ours, "it went back").await;
    let recreate =
        json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}, "revisionHistoryLimit": 1}});
    change::<Deployment>(both, "rollout", recreate).await;
    change::<Deployment>(both, "rollout", image("four")).await;
    alike(theirs, ours, "all were replaced at once, and history was cut").await;
    change::<Deployment>(both, "rollout", json!({"spec": {"replicas": 0}})).await;
    alike(theirs, ours, "nothing was wanted any more").await;
    for world in both {
        quota(world, json!({"pods": "2"})).await;
    }
    change::<Deployment>(both, "rollout", json!({"spec": {"replicas": 3}})).await;
    alike(theirs, ours, "not all of its pods were allowed").await;
    let deployment = ours.listed::<Deployment>().await;
    assert!(deployment[0]["status"].to_string().contains("ReplicaFailure"), "{deployment:?}");
    for world in both {
        quota(world, json!({"count/replicasets.apps": "0"})).await;
    }
    alike(theirs, ours, "all of them were").await;
    change::<Deployment>(both, "rollout", image("five")).await;
    alike(theirs, ours, "no new set was allowed").await;
    let deployment = ours.listed::<Deployment>().await;
    assert!(deployment[0]["status"].to_string().contains("ReplicaSetCreateError"), "{deployment:?}");
    for world in both {
        quota(world, json!({})).await;
    }
    alike(theirs, ours, "it was").await;
}

/// There may be so many of these, and of nothing else than these. Nobody counts but the API server.
async fn quota(world: &World, hard: Value) {
    let quotas: Api<ResourceQuota> = api(&world.client);
    let used: Map<String, Value> =
        hard.as_object().into_iter().flatten().map(|(name, _)| (name.clone(), json!("0"))).collect();
    if let Some(known) = quotas.get_opt("quota").await.expect("an answer") {
        quotas.delete(&known.name_any(), &DeleteParams::default()).await.expect("deleted");
    }
    create::<ResourceQuota>(&world.client, json!({"metadata": {"name": "quota"}, "spec": {"hard": &hard}}))
        .await;
    let counted = Patch::Merge(json!({"status": {"hard": &hard, "used": used}}));
    quotas.patch_status("quota", &PatchParams::default(), &counted).await.expect("counted");
}
