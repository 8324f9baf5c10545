//! Who waits where, as users are told: by a cluster of ours, by a real one that asks us, and by one that asks Kueue.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use operator::definitions::{Conversion, install};
use operator::{Operator, Settings, deploy, roles, visibility};
use reconcile::{Clock, Tasks};
use serde_json::{Value, json};
use testkit::ControlPlane;

use crate::operated;

const GROUP: &str = "/apis/visibility.kueue.x-k8s.io";
const HOME: &str = "kueue-system";
const SERVICE: &str = "who-waits";
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A client of a real server that does not ask again when it is told to come back later.
fn asks_once(real: &ControlPlane) -> Client {
    let mut config = real.config();
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

/// Asks as `headers` say; what is no JSON is no answer worth comparing.
async fn ask(client: &Client, method: Method, path: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(Vec::new())).expect("a request");
    let asked = async {
        let answer = client.send(request).await.expect("an answer");
        (answer.status().as_u16(), answer.into_body().collect().await.expect("a body").to_bytes())
    };
    let (code, body) = tokio::time::timeout(Duration::from_secs(60), asked).await.expect("an answer in time");
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

async fn get(client: &Client, path: &str) -> (u16, Value) {
    ask(client, Method::GET, path, &[]).await
}

/// Waits for something that is heard of by a watch, or looked at every so often.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let waiting = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::time::timeout(Duration::from_secs(90), waiting).await;
    found.unwrap_or_else(|_| panic!("{what}: not in time"))
}

async fn apply(client: &Client, object: Value) -> anyhow::Result<()> {
    let version = object["apiVersion"].as_str().context("an apiVersion")?;
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().context("a kind")?);
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object["metadata"]["name"].as_str().context("a name")?;
    let params = PatchParams::apply("test").force();
    api.patch(name, &params, &Patch::Apply(&object)).await.with_context(|| object.to_string())?;
    Ok(())
}

fn kueue(kind: &str, namespace: Option<&str>, name: &str, spec: Value) -> Value {
    let metadata = json!({ "name": name, "namespace": namespace });
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec })
}

async fn namespace(client: &Client, name: &str) -> anyhow::Result<()> {
    apply(client, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await
}

/// Three LocalQueues of two namespaces lead to a ClusterQueue without quota; another leads nowhere, and one is stopped.
async fn queues(client: &Client) -> anyhow::Result<()> {
    for name in ["a", "b"] {
        namespace(client, name).await?;
    }
    apply(client, kueue("ResourceFlavor", None, "default", json!({}))).await?;
    let quota = json!({ "name": "cpu", "nominalQuota": "0" });
    let flavors = json!([{ "name": "default", "resources": [quota] }]);
    let groups = json!([{ "coveredResources": ["cpu"], "flavors": flavors }]);
    for name in ["all", "empty"] {
        let spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
        apply(client, kueue("ClusterQueue", None, name, spec)).await?;
    }
    let local = |namespace, name, to: &str, stop| {
        let spec = json!({ "clusterQueue": to, "stopPolicy": stop });
        apply(client, kueue("LocalQueue", Some(namespace), name, spec))
    };
    local("a", "one", "all", "None").await?;
    local("a", "two", "all", "None").await?;
    local("b", "one", "all", "None").await?;
    local("b", "astray", "nowhere", "None").await?;
    local("b", "stopped", "all", "Hold").await?;
    for (name, queue, namespace, priority) in [
        ("least", "one", "a", Some(-5)),
        ("most", "one", "a", Some(100)),
        ("usual", "two", "a", None),
        ("more", "one", "b", Some(7)),
        ("held", "stopped", "b", Some(50)),
        ("lost", "astray", "b", Some(60)),
    ] {
        workload(client, namespace, name, queue, priority).await?;
    }
    Ok(())
}

async fn workload(
    client: &Client,
    namespace: &str,
    name: &str,
    queue: &str,
    priority: Option<i32>,
) -> anyhow::Result<()> {
    let container = json!({ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    let pods = json!({ "name": "main", "count": 1, "template": { "spec": pod } });
    let mut spec = json!({ "queueName": queue, "podSets": [pods] });
    if let Some(priority) = priority {
        spec["priority"] = json!(priority);
    }
    let mut object = kueue("Workload", Some(namespace), name, spec);
    let owner = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1-2-3" });
    object["metadata"]["ownerReferences"] = json!([owner]);
    object["metadata"]["labels"] = json!({ "not": "shown" });
    apply(client, object).await
}

/// Everything that is asked, by its name.
fn questions() -> Vec<(Method, String)> {
    let mut all = Vec::new();
    for version in ["v1beta1", "v1beta2"] {
        let clusterwide = |rest: &str| format!("{GROUP}/{version}/clusterqueues/{rest}");
        let local = |rest: &str| format!("{GROUP}/{version}/namespaces/{rest}");
        let paths = [
            format!("{GROUP}/{version}"),
            clusterwide("all/pendingworkloads"),
            clusterwide("all/pendingworkloads?limit=2"),
            clusterwide("all/pendingworkloads?offset=2"),
            clusterwide("all/pendingworkloads?offset=1&limit=2"),
            clusterwide("all/pendingworkloads?offset=-1&limit=0"),
            clusterwide("all/pendingworkloads?limit=-1"),
            clusterwide("all/pendingworkloads?offset=9223372036854775807&limit=9223372036854775807"),
            clusterwide("all/pendingworkloads?limit=many"),
            clusterwide("all/pendingworkloads?offset="),
            clusterwide("all/pendingworkloads?offset=99999999999999999999"),
            clusterwide("empty/pendingworkloads"),
            clusterwide("nowhere/pendingworkloads"),
            local("a/localqueues/one/pendingworkloads"),
            local("a/localqueues/one/pendingworkloads?offset=1&limit=1"),
            local("a/localqueues/one/pendingworkloads?limit=x"),
            local("a/localqueues/two/pendingworkloads"),
            local("b/localqueues/one/pendingworkloads"),
            local("b/localqueues/two/pendingworkloads"),
            local("b/localqueues/astray/pendingworkloads"),
            local("b/localqueues/stopped/pendingworkloads"),
            local("nowhere/localqueues/one/pendingworkloads"),
        ];
        all.extend(paths.into_iter().map(|path| (Method::GET, path)));
        all.push((Method::POST, clusterwide("all/pendingworkloads")));
        all.push((Method::DELETE, local("a/localqueues/one/pendingworkloads")));
        all.push((Method::GET, clusterwide("all")));
        all.push((Method::GET, format!("{GROUP}/{version}/clusterqueues")));
        all.push((Method::GET, clusterwide("all/status")));
        all.push((Method::GET, format!("{GROUP}/{version}/localqueues/one/pendingworkloads")));
    }
    all.push((Method::GET, GROUP.to_owned()));
    all
}

/// What a cluster says to all of that, without what differs between any two clusters. Of refusals that come from routers of
/// Go only the code counts.
async fn told(client: &Client) -> anyhow::Result<Vec<(String, u16, Value)>> {
    queues(client).await?;
    let whole = format!("{GROUP}/v1beta2/clusterqueues/all/pendingworkloads");
    until("all four wait", async || {
        let (_, answer) = get(client, &whole).await;
        answer["items"].as_array().filter(|items| items.len() == 4).map(drop)
    })
    .await;
    until("the stopped queue is seen", async || {
        let path = format!("{GROUP}/v1beta2/namespaces/b/localqueues/stopped/pendingworkloads");
        (get(client, &path).await.0 == 404).then_some(())
    })
    .await;
    let mut told = Vec::new();
    for (method, path) in questions() {
        let (code, mut answer) = ask(client, method.clone(), &path, &[]).await;
        for item in answer["items"].as_array_mut().into_iter().flatten() {
            let made = item["metadata"].as_object_mut().and_then(|it| it.remove("creationTimestamp"));
            assert!(made.is_some_and(|made| made.is_string()), "{path}: {item}");
        }
        let is_own = code == 200 || code == 400 || answer["details"]["name"].is_string();
        told.push((format!("{method} {path}"), code, if is_own { answer } else { Value::Null }));
    }
    let (code, _) = ask(client, Method::GET, &whole, &[("Impersonate-User", "jane")]).await;
    assert_eq!(code, 403, "nobody said that she may");
    let all = until("it is discovered", async || {
        let (_, all) = ask(client, Method::GET, "/apis", &[("Accept", AGGREGATED)]).await;
        let items = all["items"].as_array()?;
        let mut found = items.iter().find(|it| it["metadata"]["name"] == GROUP[6..])?.clone();
        found["metadata"].as_object_mut()?.remove("creationTimestamp");
        let versions = found["versions"].as_array()?;
        (versions.len() == 2 && versions.iter().all(|it| it["freshness"] == "Current")).then_some(found)
    })
    .await;
    told.push(("discovery".to_owned(), 200, all));
    Ok(told)
}

/// Leads a real cluster to whoever says who waits on a loopback port.
async fn lead_to(client: &Client, port: u16, insecure: bool) -> anyhow::Result<()> {
    namespace(client, HOME).await?;
    let metadata = json!({ "name": SERVICE, "namespace": HOME });
    let spec = json!({ "type": "ExternalName", "externalName": "localhost" });
    apply(client, json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec }))
        .await?;
    for version in ["v1beta1", "v1beta2"] {
        let mut object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": format!("{version}.visibility.kueue.x-k8s.io") },
            "spec": {
                "group": "visibility.kueue.x-k8s.io", "version": version, "groupPriorityMinimum": 100,
                "versionPriority": 100, "service": { "namespace": HOME, "name": SERVICE, "port": port },
            },
        });
        if insecure {
            object["spec"]["insecureSkipTLSVerify"] = json!(true);
        }
        apply(client, object).await?;
    }
    Ok(())
}

/// An operator on a real cluster that says who waits.
async fn says(client: &Client, tasks: &mut Tasks, acts: bool) -> anyhow::Result<(Operator, SocketAddr)> {
    let start = if acts { operator::start } else { operator::observe };
    let operator = start(client.clone(), Settings::default(), Clock::system(), tasks);
    operator.ready().await;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let at = visibility::server::serve(operator.clone(), anywhere, SERVICE, tasks).await?;
    Ok((operator, at))
}

/// VI-1, VI-2, QU-2: the same questions have the same answers, here, on a real cluster that asks us, and from Kueue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vi_1_vi_2_who_waits_where() -> anyhow::Result<()> {
    let ours = operated("ours").await?;
    let here = told(&ours.client()).await?;
    // What it comes to, in the words of one answer.
    let (_, code, answer) = here
        .iter()
        .find(|(question, ..)| {
            question.ends_with("v1beta2/clusterqueues/all/pendingworkloads?offset=1&limit=2")
        })
        .context("an answer")?;
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1-2-3" }]);
    let item = |namespace: &str, name: &str, queue: &str, priority: i32, places: (i32, i32)| {
        json!({
            "metadata": { "name": name, "namespace": namespace, "ownerReferences": owner }, "priority": priority,
            "localQueueName": queue, "positionInClusterQueue": places.0, "positionInLocalQueue": places.1,
        })
    };
    let items = [item("b", "more", "one", 7, (1, 0)), item("a", "usual", "two", 0, (2, 0))];
    let kind = "PendingWorkloadsSummary";
    let version = "visibility.kueue.x-k8s.io/v1beta2";
    let expected = json!({ "kind": kind, "apiVersion": version, "metadata": {}, "items": items });
    assert_eq!((*code, answer), (200, &expected));

    let Some(plane) = ControlPlane::builder().front_proxy().for_test().await else { return Ok(()) };
    let client = asks_once(&plane);
    install(&client, &Conversion::Embedded).await?;
    namespace(&client, HOME).await?;
    let mut tasks = Tasks::new();
    let (_operator, at) = says(&client, &mut tasks, true).await?;
    lead_to(&client, at.port(), false).await?;
    until("the real server asks us", async || {
        (get(&client, &format!("{GROUP}/v1beta2")).await.0 == 200).then_some(())
    })
    .await;
    let there = told(&client).await?;
    for (here, there) in here.iter().zip(&there) {
        assert_eq!(here, there, "ours and a real one that asks us");
    }
    let index = until("the documents are there", async || {
        let (_, index) = get(&client, "/openapi/v3").await;
        let entry = &index["paths"][&format!("{}/v1beta2", &GROUP[1..])]["serverRelativeURL"];
        entry.as_str().map(str::to_owned)
    })
    .await;
    let (code, document) = get(&client, &index).await;
    let path = format!("{GROUP}/v1beta2/clusterqueues/{{name}}/pendingworkloads");
    assert!(code == 200 && document["paths"][&path]["get"].is_object(), "{code} {document}");
    tasks.stop().await;

    let Some(plane) = ControlPlane::builder().front_proxy().for_test().await else { return Ok(()) };
    let client = asks_once(&plane);
    install(&client, &Conversion::Embedded).await?;
    namespace(&client, HOME).await?;
    let kueue = plane.kueue(&json!({ "featureGates": { "VisibilityOnDemand": true } })).await?;
    lead_to(&client, kueue.visibility().context("a port")?, true).await?;
    until("the real server asks Kueue", async || {
        (get(&client, &format!("{GROUP}/v1beta2")).await.0 == 200).then_some(())
    })
    .await;
    let kueue = told(&client).await?;
    assert_eq!(here.len(), kueue.len());
    let differ = here.iter().zip(&kueue).filter(|(here, kueue)| here != kueue);
    let differ: Vec<String> = differ.map(|(here, kueue)| format!("{here:?}\n{kueue:?}")).collect();
    assert!(differ.is_empty(), "ours and Kueue's:\n{}", differ.join("\n\n"));
    Ok(())
}

/// A client of the server itself, that knows its authority, with these credentials.
async fn directly(client: &Client, at: SocketAddr, user: Value) -> anyhow::Result<Client> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), HOME);
    let secret = secrets.get("ferry-webhook-authority").await?;
    let authority = serde_json::to_value(&secret.data.context("data")?["ca.crt"])?;
    let cluster = json!({
        "server": format!("https://localhost:{}", at.port()), "certificate-authority-data": authority,
        "tls-server-name": format!("{SERVICE}.{HOME}.svc"),
    });
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": cluster }], "users": [{ "name": "u", "user": user }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    let kubeconfig: Kubeconfig = serde_json::from_value(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// A certificate that somebody signed whom nobody knows, as user data of a kubeconfig.
fn stranger() -> anyhow::Result<Value> {
    let mut params = rcgen::CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(rcgen::DnType::CommonName, "front-proxy-client");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let key = rcgen::KeyPair::generate()?;
    let base64 = |text: String| serde_json::to_value(k8s_openapi::ByteString(text.into_bytes()));
    let certificate = params.self_signed(&key)?.pem();
    Ok(
        json!({ "client-certificate-data": base64(certificate)?, "client-key-data": base64(key.serialize_pem())? }),
    )
}

/// VI-3: who does not act says the same. And whoever asks is known, and may ask: by the word of the API server, or by a
/// token; nobody else is let in, whatever his headers say.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vi_3_everyone_says_who_waits_to_whom_it_may() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::builder().front_proxy().for_test().await else { return Ok(()) };
    let client = asks_once(&plane);
    install(&client, &Conversion::Embedded).await?;
    namespace(&client, HOME).await?;
    let mut tasks = Tasks::new();
    let (_leader, leader) = says(&client, &mut tasks, true).await?;
    let (_follower, follower) = says(&client, &mut tasks, false).await?;
    queues(&client).await?;
    for role in roles::all() {
        apply(&client, role).await?;
    }

    let account = json!({ "name": "jane", "namespace": "a" });
    apply(&client, json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": account })).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "a");
    let wanted: TokenRequest = serde_json::from_value(json!({ "spec": { "audiences": [] } }))?;
    let token = accounts.create_token_request("jane", &PostParams::default(), &wanted).await?;
    let token = token.status.context("a token")?.token;

    let own = format!("{GROUP}/v1beta2/namespaces/a/localqueues/one/pendingworkloads");
    let all = format!("{GROUP}/v1beta2/clusterqueues/all/pendingworkloads");
    let says_admin = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    for (user, code) in [
        (json!({}), 401),
        (json!({ "token": "nobody's" }), 401),
        (stranger()?, 401),
        (json!({ "token": token }), 403),
    ] {
        let client = directly(&client, leader, user.clone()).await?;
        for path in [own.as_str(), all.as_str(), GROUP, "/metrics", "/"] {
            let (found, answer) = ask(&client, Method::GET, path, &says_admin).await;
            // What is served is no secret to who is known.
            let expected = if path == GROUP && code == 403 { 200 } else { code };
            assert_eq!(found, expected, "{user} {path}: {answer}");
            assert!(found == 200 || answer["kind"] == "Status", "{path}: {answer}");
        }
        assert_eq!(get(&client, "/healthz").await.0, 200);
    }
    let jane = directly(&client, leader, json!({ "token": token })).await?;
    let (_, refused) = get(&jane, &own).await;
    assert_eq!(
        refused["message"],
        "localqueues.visibility.kueue.x-k8s.io \"one\" is forbidden: User \"system:serviceaccount:a:jane\" cannot get \
         resource \"localqueues/pendingworkloads\" in API group \"visibility.kueue.x-k8s.io\" in the namespace \"a\""
    );

    // OB-3: Kueue's role for users allows to see the LocalQueues of a namespace, and nothing more.
    let subject = json!({ "kind": "ServiceAccount", "namespace": "a", "name": "jane" });
    let role = json!({
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-pending-workloads-lq-viewer-role",
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "jane", "namespace": "a" }, "roleRef": role, "subjects": [subject],
    });
    apply(&client, binding).await?;
    let seen = until("she may", async || {
        let (code, answer) = get(&jane, &own).await;
        (code == 200 && answer["items"].as_array()?.len() == 2).then_some(answer)
    })
    .await;
    let others = format!("{GROUP}/v1beta2/namespaces/b/localqueues/one/pendingworkloads");
    for path in [all.as_str(), others.as_str()] {
        assert_eq!(get(&jane, path).await.0, 403, "{path}");
    }
    let other = directly(&client, follower, json!({ "token": token })).await?;
    let also = until("who does not act sees it, too", async || {
        let (code, answer) = get(&other, &own).await;
        (code == 200 && answer["items"].as_array()?.len() == 2).then_some(answer)
    })
    .await;
    assert_eq!(seen, also);
    let place = |item: &Value| (item["metadata"]["name"].clone(), item["positionInClusterQueue"].clone());
    let places: Vec<_> = seen["items"].as_array().context("items")?.iter().map(place).collect();
    assert_eq!(places, [(json!("most"), json!(0)), (json!("least"), json!(3))]);

    // Who gets in waits no longer.
    let quota = json!({ "name": "cpu", "nominalQuota": "10" });
    let flavors = json!([{ "name": "default", "resources": [quota] }]);
    let groups = json!([{ "coveredResources": ["cpu"], "flavors": flavors }]);
    let spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
    apply(&client, kueue("ClusterQueue", None, "all", spec)).await?;
    for asked in [&jane, &other] {
        until("nobody waits", async || {
            let (code, answer) = get(asked, &own).await;
            (code == 200 && answer["items"] == json!([])).then_some(())
        })
        .await;
    }

    // Behind the API server it is her, too, and the authority is ours whoever writes another.
    lead_to(&client, leader.port(), false).await?;
    let as_jane = [("Impersonate-User", "system:serviceaccount:a:jane")];
    until("the server passes it on", async || {
        (ask(&client, Method::GET, &own, &as_jane).await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(ask(&client, Method::GET, &all, &as_jane).await.0, 403);
    let services: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService")),
    );
    let name = "v1beta1.visibility.kueue.x-k8s.io";
    let right = services.get(name).await?.data["spec"]["caBundle"].clone();
    assert!(right.is_string());
    let wrong = json!({ "spec": { "caBundle": null, "insecureSkipTLSVerify": true } });
    services.patch(name, &PatchParams::default(), &Patch::Merge(wrong)).await?;
    until("it is right again", async || {
        let spec = services.get(name).await.ok()?.data["spec"].clone();
        (spec["caBundle"] == right && spec["insecureSkipTLSVerify"] != true).then_some(())
    })
    .await;
    Ok(())
}

/// The objects that are installed are such as a real server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vi_1_what_is_installed_is_taken() -> anyhow::Result<()> {
    let Some(plane) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = plane.client();
    namespace(&client, HOME).await?;
    let access = deploy::access(HOME, &Settings::default());
    let operator = deploy::operator(&deploy::Deployment::default());
    for object in access.into_iter().chain(operator) {
        apply(&client, object).await?;
    }
    let (code, found) =
        get(&client, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.visibility.kueue.x-k8s.io").await;
    assert_eq!((code, &found["spec"]["service"]["name"]), (200, &json!(deploy::VISIBILITY_SERVICE)));
    Ok(())
}
