//! The webhooks on a real API server: it asks us, and does as we say.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client};
use operator::definitions::{Conversion, all, install};
use operator::webhooks::server::{Reach, Webhooks};
use reconcile::{Clock, Tasks};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use testkit::ControlPlane;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::dispatch::fleet::eventually;
use crate::world::World;

fn api(client: &Client, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create(
    client: &Client,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    spec: Value,
) -> Result<DynamicObject, kube::Error> {
    let object = json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec });
    let object = serde_json::from_value(object).expect("an object");
    api(client, "v1beta2", kind, namespace).create(&PostParams::default(), &object).await
}

fn quota(amount: &str, lending: Option<&str>) -> Value {
    let mut resource = json!({ "name": "cpu", "nominalQuota": amount });
    if let Some(lending) = lending {
        resource["lendingLimit"] = json!(lending);
    }
    json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": [resource] }] }])
}

fn job(name: &str, queue: &str) -> Job {
    let object = json!({
        "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": queue } },
        "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } },
    });
    serde_json::from_value(object).expect("a Job")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh_1_a_real_server_asks_and_does_as_we_say() -> anyhow::Result<()> {
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = cluster.client();
    // A release that did not mind left the older version to be served although nobody converts.
    install(&client, &Conversion::Embedded).await?;
    install(&client, &Conversion::Nobody).await?;
    let older = api(&client, "v1beta1", "ClusterQueue", None);
    let is_served = async |wanted: bool| {
        eventually(&format!("API-2: the older version is served: {wanted}"), async || {
            let served = older.list(&ListParams::default()).await.is_ok();
            Ok((served == wanted).then_some(()))
        })
        .await
    };
    is_served(false).await?;
    let mut tasks = Tasks::new();
    let operator =
        operator::start(client.clone(), operator::Settings::default(), Clock::system(), &mut tasks);
    operator.ready().await;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut webhooks = Webhooks::start(operator.clone(), anywhere, Reach::Url, &mut tasks).await?;

    // Configurations take a moment to be heard of. A flavor that was made after that has its finalizer from us.
    let mut attempt = 0;
    loop {
        attempt += 1;
        let made = create(&client, "ResourceFlavor", None, &format!("probe-{attempt}"), json!({})).await?;
        if made.metadata.finalizers.is_some() {
            break;
        }
        assert!(attempt < 200, "the server does not ask");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    // CQ-1, in Kueue's words and under Kueue's name.
    let groups = quota("1", Some("2"));
    let refused =
        create(&client, "ClusterQueue", None, "q", json!({ "cohortName": "all", "resourceGroups": groups }))
            .await;
    let Err(kube::Error::Api(status)) = refused else { panic!("accepted: {refused:?}") };
    assert_eq!(status.code, 403);
    assert_eq!(
        status.message,
        "admission webhook \"vclusterqueue.kb.io\" denied the request: spec.resourceGroups[0].flavors[0].resources[0].lendingLimit: \
         Invalid value: \"2\": must be less than or equal to the nominalQuota"
    );

    // JF-6 (c) and (d): a queued Job waits, and one of a dispatching queue has a manager.
    create(&client, "ResourceFlavor", None, "default", json!({})).await?;
    create(
        &client,
        "AdmissionCheck",
        None,
        "dispatch",
        json!({ "controllerName": "kueue.x-k8s.io/multikueue" }),
    )
    .await?;
    let checks = json!({ "admissionChecks": [{ "name": "dispatch" }] });
    let spec = json!({ "cohortName": "all", "resourceGroups": quota("1", None), "namespaceSelector": {}, "admissionChecksStrategy": checks });
    create(&client, "ClusterQueue", None, "q", spec).await?;
    create(&client, "LocalQueue", Some("default"), "queue", json!({ "clusterQueue": "q" })).await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let mut attempt = 0;
    let made = loop {
        attempt += 1;
        let made = jobs.create(&PostParams::default(), &job(&format!("j{attempt}"), "queue")).await?;
        let spec = made.spec.clone().expect("a spec");
        assert_eq!(spec.suspend, Some(true));
        // The operator learns of the queue by a watch.
        if spec.managed_by.is_some() {
            break made;
        }
        assert!(attempt < 200, "the operator does not see the queue");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(made.spec.expect("a spec").managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));

    // API-2: the same object in the older version, by our conversion.
    is_served(true).await?;
    let old = older.get("q").await?;
    assert_eq!(old.data["spec"]["cohort"], "all");
    assert!(old.data["spec"]["cohortName"].is_null());

    // WH-2: the system's own namespace is not asked about.
    let system: Api<Job> = Api::namespaced(client.clone(), "kube-system");
    let made = system.create(&PostParams::default(), &job("j", "queue")).await?;
    assert_eq!(made.spec.expect("a spec").suspend, Some(false));

    // Who leaves cleanly leaves a cluster that goes on.
    webhooks.leave().await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    assert!(mutating.list(&ListParams::default()).await?.items.is_empty());
    assert!(validating.list(&ListParams::default()).await?.items.is_empty());
    is_served(false).await?;
    drop(tasks);
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert!(namespaces.get("default").await.is_ok());
    Ok(())
}

/// What Kueue's manifests left: a webhook that we answer, reached by a Service, and one about Pods that nobody answers any more.
fn left_by_kueue(kind: &str, name: &str) -> Value {
    let webhook = |name: &str, path: &str, group: &str, resource: &str| {
        json!({
            "name": name, "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
            "clientConfig": { "service": { "namespace": "kueue-system", "name": "kueue-webhook-service", "path": path } },
            "rules": [{ "apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource] }],
        })
    };
    let letter = if kind.starts_with('M') { "m" } else { "v" };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
        "webhooks": [
            webhook(&format!("{letter}job.kb.io"), "/old", "batch", "jobs"),
            webhook(&format!("{letter}pod.kb.io"), "/pods", "", "configmaps"),
        ],
    })
}

/// WH-1: where Kueue was before, nothing of it is asked any more that nobody answers, and its certificates are let alone.
/// Whoever changes or deletes the configurations finds them set again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wh_1_configurations_are_kept_right() -> anyhow::Result<()> {
    const NAMES: [(&str, &str); 2] = [
        ("MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration"),
        ("ValidatingWebhookConfiguration", "kueue-validating-webhook-configuration"),
    ];
    let Some(cluster) = ControlPlane::builder().for_test().await else { return Ok(()) };
    let client = cluster.client();
    // Kueue's definitions convert by asking Kueue, who is no longer there.
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let kueue = json!({ "service": { "namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert" } });
    for mut definition in all(&Conversion::Webhook(kueue.clone())) {
        definition["metadata"]["annotations"] = json!({});
        definitions.create(&PostParams::default(), &serde_json::from_value(definition)?).await?;
    }
    install(&client, &Conversion::Embedded).await?;
    let converts = async |name: &str| -> anyhow::Result<Value> {
        let name = format!("{name}.kueue.x-k8s.io");
        Ok(definitions.get(&name).await?.data["spec"]["conversion"]["webhook"]["clientConfig"].take())
    };
    let home = json!({ "metadata": { "name": "kueue-system" } });
    Api::<Namespace>::all(client.clone())
        .create(&PostParams::default(), &serde_json::from_value(home)?)
        .await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kueue-system");
    let theirs = json!({
        "metadata": { "name": "kueue-webhook-server-cert" },
        "stringData": { "ca.crt": "theirs", "ca.key": "-----BEGIN RSA PRIVATE KEY-----" },
    });
    let theirs = secrets.create(&PostParams::default(), &serde_json::from_value(theirs)?).await?;
    let of = |kind: &str| {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&kind))
    };
    for (kind, name) in NAMES {
        let left = serde_json::from_value(left_by_kueue(kind, name))?;
        of(kind).create(&PostParams::default(), &left).await?;
    }

    let mut tasks = Tasks::new();
    let operator =
        operator::start(client.clone(), operator::Settings::default(), Clock::system(), &mut tasks);
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let service = Reach::Service {
        namespace: "kueue-system".to_owned(),
        name: "ferry-webhooks".to_owned(),
        conversion: "ferry-conversion".to_owned(),
    };
    let inside = Webhooks::start(operator.clone(), anywhere, service, &mut tasks).await?;
    assert_eq!(secrets.get("kueue-webhook-server-cert").await?, theirs);
    assert!(secrets.get("ferry-webhook-authority").await?.data.is_some());
    let asked = converts("localqueues").await?;
    assert_eq!(asked["service"]["name"], "ferry-conversion", "also while nobody is ready");
    let authority = BASE64.decode(asked["caBundle"].as_str().expect("an authority"))?;
    let mut config = kube::Config::new(format!("https://{}", inside.address()).parse()?);
    config.root_cert = Some(vec![CertificateDer::from_pem_slice(&authority)?.to_vec()]);
    config.tls_server_name = Some("ferry-conversion.kueue-system.svc".to_owned());
    let known =
        Client::try_from(config)?.send(http::Request::get("/convert").body(Vec::new().into())?).await?;
    assert_eq!(known.status(), 405, "the certificate has the name of that Service");
    for (kind, name) in NAMES {
        let all = of(kind).get(name).await?;
        let all = all.data["webhooks"].as_array().cloned().unwrap_or_default();
        let asked = |it: &Value| it["clientConfig"]["service"]["name"] == "ferry-webhooks";
        assert!(!all.is_empty() && all.iter().all(asked), "{kind}");
    }
    // Who is uninstalled, inside of the cluster, goes after its configurations, and does not make them again meanwhile.
    for (kind, name) in NAMES {
        of(kind).delete(name, &DeleteParams::default()).await?;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    for (kind, name) in NAMES {
        assert!(of(kind).get_opt(name).await?.is_none(), "{kind} stays away");
    }
    drop(inside);
    // What is installed belongs to who installs it: it is filled in, and installing it again changes nothing.
    let install_again = async || {
        let mut all = Vec::new();
        for object in operator::deploy::configurations() {
            let name = object["metadata"]["name"].as_str().expect("a name");
            let kind = object["kind"].as_str().expect("a kind");
            let by = PatchParams::apply("ferry");
            all.push(of(kind).patch(name, &by, &Patch::Apply(&object)).await?);
        }
        anyhow::Ok(all)
    };
    assert!(install_again().await?.iter().all(|it| it.data["webhooks"].is_null()));
    // The same by an address: what is reached by a Service no longer is.
    let mut webhooks = Webhooks::start(operator.clone(), anywhere, Reach::Url, &mut tasks).await?;
    let start = format!("https://{}/", webhooks.address());
    let ours = |object: &DynamicObject| {
        let all = object.data["webhooks"].as_array().cloned().unwrap_or_default();
        let leads_here =
            |it: &Value| it["clientConfig"]["url"].as_str().is_some_and(|url| url.starts_with(&start));
        all.len() > 3 && all.iter().all(leads_here)
    };
    let filled: Vec<_> = install_again().await?.iter().map(ours).collect();
    assert_eq!(filled, [true, true], "who installs again takes nothing away");
    let leads = converts("localqueues").await?;
    assert!(leads["url"].as_str().is_some_and(|url| url.starts_with(&start)), "{leads}");
    create(&client, "LocalQueue", Some("kueue-system"), "q", json!({ "clusterQueue": "c" })).await?;
    let old = api(&client, "v1beta1", "LocalQueue", Some("kueue-system"));
    eventually("API-2: a queue is shown in the older version by asking us", async || {
        Ok(old.get_opt("q").await.ok().flatten().map(drop))
    })
    .await?;
    for (kind, name) in NAMES {
        assert!(ours(&of(kind).get(name).await?), "{kind}");
        let patch = json!({ "webhooks": left_by_kueue(kind, name)["webhooks"] });
        of(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        eventually(&format!("{kind} is set again"), async || {
            Ok(ours(&of(kind).get(name).await?).then_some(()))
        })
        .await?;
        of(kind).delete(name, &DeleteParams::default()).await?;
        eventually(&format!("{kind} is made again"), async || {
            Ok(of(kind).get_opt(name).await?.filter(|it| ours(it)).map(drop))
        })
        .await?;
    }
    webhooks.leave().await?;
    for (kind, name) in NAMES {
        assert!(of(kind).get_opt(name).await?.is_none(), "{kind} is not made again by one that left");
    }
    for name in ["localqueues", "workloads"] {
        assert_eq!(
            converts(name).await?["service"]["name"],
            "kueue-webhook-service",
            "{name} asks whom it asked"
        );
    }
    Ok(())
}

/// Whoever wants another authority deletes the Secret, and all replicas are known by the next one, without being started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_authority_is_followed_by_all() -> anyhow::Result<()> {
    let client = World::embedded_cluster().await?;
    install(&client, &Conversion::Embedded).await?;
    let home = json!({ "metadata": { "name": "kueue-system" } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.create(&PostParams::default(), &serde_json::from_value(home)?).await?;
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let service = Reach::Service {
        namespace: "kueue-system".to_owned(),
        name: "ferry-webhooks".to_owned(),
        conversion: "ferry-conversion".to_owned(),
    };
    let mut tasks = Tasks::new();
    let mut operator =
        || operator::observe(client.clone(), operator::Settings::default(), Clock::system(), &mut tasks);
    let (leads, waits) = (operator(), operator());
    let leads = Webhooks::start(leads, anywhere, service.clone(), &mut tasks).await?;
    let waits = Webhooks::listen(waits, anywhere, service, &mut tasks).await?;

    let secrets: Api<Secret> = Api::namespaced(client.clone(), "kueue-system");
    let authority = async || -> anyhow::Result<Option<Vec<u8>>> {
        let secret = secrets.get_opt("ferry-webhook-authority").await?;
        Ok(secret.and_then(|it| it.data).and_then(|data| data.get("ca.crt").map(|it| it.0.clone())))
    };
    let first = authority().await?.context("an authority")?;
    secrets.delete("ferry-webhook-authority", &DeleteParams::default()).await?;
    let next = eventually("there is another authority", async || {
        Ok(authority().await?.filter(|next| *next != first))
    })
    .await?;
    let known = |address: SocketAddr, name: &'static str| {
        let next = next.clone();
        async move || -> anyhow::Result<Option<()>> {
            let mut config = kube::Config::new(format!("https://{address}").parse()?);
            config.root_cert = Some(vec![CertificateDer::from_pem_slice(&next)?.to_vec()]);
            config.tls_server_name = Some(name.to_owned());
            let request = http::Request::get("/convert").body(Vec::new().into())?;
            Ok(Client::try_from(config)?.send(request).await.ok().map(drop))
        }
    };
    for webhooks in [&leads, &waits] {
        let name = "ferry-webhooks.kueue-system.svc";
        eventually("its certificate is of that", known(webhooks.address(), name)).await?;
    }
    let bundle = BASE64.encode(&next);
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually("the cluster knows it", async || {
        let asked = configurations.get("kueue-validating-webhook-configuration").await?;
        let asked = serde_json::to_value(asked.webhooks)?;
        let asked: Vec<&Value> =
            asked.as_array().into_iter().flatten().map(|it| &it["clientConfig"]["caBundle"]).collect();
        let converted = serde_json::to_value(definitions.get("localqueues.kueue.x-k8s.io").await?)?;
        let converted = &converted["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"];
        let is_known = !asked.is_empty() && asked.iter().all(|it| **it == bundle) && *converted == bundle;
        Ok(is_known.then_some(()))
    })
    .await?;

    // What is no authority is not followed.
    let none = json!({ "stringData": { "ca.crt": "none", "ca.key": "none" } });
    secrets.patch("ferry-webhook-authority", &PatchParams::default(), &Patch::Merge(none)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    for webhooks in [&leads, &waits] {
        let name = "ferry-webhooks.kueue-system.svc";
        anyhow::ensure!(known(webhooks.address(), name)().await?.is_some(), "it stays as it was");
    }
    Ok(())
}

/// Who has begun to ask is answered, also by one that ends meanwhile: a write would be refused otherwise. Nobody can begin then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_asked_is_answered_by_one_that_ends() -> anyhow::Result<()> {
    let mut tasks = Tasks::new();
    let client = World::embedded_cluster().await?;
    let operator = operator::observe(client, operator::Settings::default(), Clock::system(), &mut tasks);
    let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let webhooks = Webhooks::listen(operator, anywhere, Reach::Url, &mut tasks).await?;
    let address = webhooks.address();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config =
        config.dangerous().with_custom_certificate_verifier(tls::anybody(provider)).with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = tokio::net::TcpStream::connect(address).await?;
    let mut stream = connector.connect(ServerName::IpAddress(address.ip().into()), stream).await?;

    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": { "uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [] },
    });
    let review = review.to_string();
    // One that wants to be told when its review is read knows that it was heard.
    let head = format!(
        "POST /convert HTTP/1.1\r\nHost: {address}\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        review.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let heard = b"HTTP/1.1 100 Continue\r\n\r\n";
    let mut told = vec![0; heard.len()];
    stream.read_exact(&mut told).await?;
    assert_eq!(told, heard);
    let ending = tokio::spawn(webhooks.end());
    eventually("nobody can begin to ask", async || {
        Ok(tokio::net::TcpStream::connect(address).await.is_err().then_some(()))
    })
    .await?;
    stream.write_all(review.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, answer) = answer.split_once("\r\n\r\n").context("a head and a body")?;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let answer: Value = serde_json::from_str(answer)?;
    assert_eq!(answer["response"]["result"]["status"], "Success", "{answer}");
    tokio::time::timeout(Duration::from_secs(60), ending).await??;
    Ok(())
}
