//! Finds out whether the API servers of others answer, and what they serve; writes what it finds into the status of their
//! APIServices. Every one is looked after on its own, so that a silent one delays nobody else.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures::future::select_ok;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full, Limited};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::{Key, Scope, Watch};
use tokio::task::{AbortHandle, JoinSet};

use super::remote::{Trust, condition, introduce};
use super::{Remote, SERVICES, Said};
use crate::auth::User;
use crate::auth::user::MASTERS;
use crate::cluster::{Cluster, Handle, MAX_BODY};
use crate::object;
use crate::webhook::service::SERVICE_NAME;

/// A server that answers is asked again so often, one that does not so often.
const WELL: Duration = Duration::from_secs(30);
const ILL: Duration = Duration::from_secs(2);
/// How long an answer may take.
const WITHIN: Duration = Duration::from_secs(5);
/// It is asked so often at once: one answer is enough.
const ATTEMPTS: usize = 5;

/// Works until the cluster is gone.
pub(crate) async fn run(handle: Handle) {
    let scope = Scope::resource(SERVICES);
    let mut tasks = JoinSet::new();
    let mut followed: BTreeMap<String, AbortHandle> = BTreeMap::new();
    loop {
        let Some(cluster) = handle.upgrade() else { return };
        let (view, mut watch) = cluster.store().view_and_watch(&scope);
        let names: Vec<String> = view.list(&scope).map(|service| service.key.name().to_owned()).collect();
        drop(view);
        followed.retain(|name, task| {
            let stays = names.contains(name);
            if !stays {
                task.abort();
                cluster.aggregator().forget(name);
            }
            stays
        });
        drop(cluster);
        for name in names {
            followed.entry(name.clone()).or_insert_with(|| tasks.spawn(follow(handle.clone(), name)));
        }
        // Nothing of the cluster is held while nothing changes.
        match watch.next().await {
            Some(_) => while tasks.try_join_next().is_some() {},
            None => return,
        }
    }
}

/// Looks after one APIService, as long as it is there.
async fn follow(handle: Handle, name: String) {
    let own = Scope::resource(SERVICES).name(&name);
    loop {
        let Some(cluster) = handle.upgrade() else { return };
        // What changes from here on is heard of, whatever is read below.
        let (_, mut changed) = cluster.store().view_and_watch(&own);
        let Some(stored) = cluster.store().get(&Key::new(SERVICES, "", &name)) else {
            drop(cluster);
            match changed.next().await {
                Some(_) => continue,
                None => return,
            }
        };
        let stored = object::read(&stored);
        let Some(remote) = Remote::read(&stored) else {
            write(&cluster, &stored, &Found::here()).await;
            drop(cluster);
            match changed.next().await {
                Some(_) => continue,
                None => return,
            }
        };
        let slices = Scope::resource("endpointslices.discovery.k8s.io").namespace(&remote.service_namespace);
        let service =
            Scope::resource("services").namespace(&remote.service_namespace).name(&remote.service_name);
        let (_, mut slices) = cluster.store().view_and_watch(&slices);
        let (_, mut service) = cluster.store().view_and_watch(&service);
        let found = look(&cluster, &remote).await;
        write(&cluster, &stored, &found).await;
        drop(cluster);
        let again = if found.is_available { WELL } else { ILL };
        tokio::select! {
            next = changed.next() => if next.is_none() { return },
            next = service.next() => if next.is_none() { return },
            () = endpoints_changed(&mut slices, &remote.service_name) => {}
            () = tokio::time::sleep(again) => {}
        }
    }
}

/// Returns when what is behind a Service has changed, or may have.
async fn endpoints_changed(watch: &mut Watch, service: &str) {
    while let Some(Ok(event)) = watch.next().await {
        let sides = [event.before(), event.after()];
        if sides.into_iter().flatten().any(|slice| slice.index.labels.has(SERVICE_NAME, service)) {
            return;
        }
    }
}

/// What was found out, in the words of the condition.
struct Found {
    is_available: bool,
    reason: &'static str,
    message: String,
}

impl Found {
    fn here() -> Found {
        let message = "Local APIServices are always available".to_owned();
        Found { is_available: true, reason: "Local", message }
    }

    fn not(reason: &'static str, message: String) -> Found {
        Found { is_available: false, reason, message }
    }
}

async fn look(cluster: &Cluster, remote: &Remote) -> Found {
    if let Err(found) = has_endpoints(cluster, remote) {
        return found;
    }
    let path = format!("/apis/{}/{}", remote.group, remote.version);
    let attempts = (0..ATTEMPTS).map(|_| Box::pin(get(cluster, remote, &path)));
    let list = match select_ok(attempts).await {
        Ok((list, _)) => list,
        Err(why) => {
            let url = format!(
                "https://{}.{}.svc:{}{path}",
                remote.service_name, remote.service_namespace, remote.port
            );
            return Found::not(
                "FailedDiscoveryCheck",
                format!("failing or missing response from {url}: {why}"),
            );
        }
    };
    // Whoever has no documents has none.
    let index = get(cluster, remote, "/openapi/v3").await.unwrap_or_default();
    let document = index["paths"].get(&path[1..]).filter(|entry| entry.is_object()).cloned();
    let resources = list["resources"].as_array().cloned().unwrap_or_default();
    cluster.aggregator().keep(&remote.name, Said { resources, document });
    Found { is_available: true, reason: "Passed", message: "all checks passed".to_owned() }
}

/// Whether there is a Service with anybody behind its port.
fn has_endpoints(cluster: &Cluster, remote: &Remote) -> Result<(), Found> {
    let Remote { service_namespace: namespace, service_name: name, port, .. } = remote;
    let shown = format!("service/{name} in {}", types::go::quote(namespace));
    let Some(service) = cluster.store().get(&Key::new("services", namespace, name)) else {
        return Err(Found::not("ServiceNotFound", format!("{shown} is not present")));
    };
    let service = object::read(&service);
    if service["spec"]["type"] != "ClusterIP" {
        return Ok(());
    }
    let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
    let Some(of_port) = ports.iter().find(|known| known["port"] == *port) else {
        return Err(Found::not("ServicePortError", format!("{shown} is not listening on port {port}")));
    };
    let port_name = object::text(of_port, &["name"]);
    let view = cluster.store().view();
    let scope = Scope::resource("endpointslices.discovery.k8s.io").namespace(namespace);
    let slices: Vec<Value> = view
        .list(&scope)
        .filter(|slice| slice.index.labels.has(SERVICE_NAME, name))
        .map(|slice| object::read(slice))
        .collect();
    if slices.is_empty() {
        return Err(Found::not("EndpointsNotFound", format!("cannot find endpointslices for {shown}")));
    }
    let is_used = |slice: &Value| {
        let all = |field: &str| slice[field].as_array().cloned().unwrap_or_default();
        all("endpoints").iter().any(|endpoint| endpoint["conditions"]["ready"].as_bool().unwrap_or(true))
            && all("ports")
                .iter()
                .any(|port| object::text(port, &["name"]) == port_name && port["port"].is_u64())
    };
    if slices.iter().any(is_used) {
        return Ok(());
    }
    let port_name = types::go::quote(port_name);
    Err(Found::not(
        "MissingEndpoints",
        format!("endpointslices for {shown} have no addresses with port name {port_name}"),
    ))
}

/// Asks as somebody who may everything. Who answers is not looked at: only that there is an answer counts.
async fn get(cluster: &Cluster, remote: &Remote, path: &str) -> Result<Value, String> {
    let asked = async {
        let request = Request::get(path).header(header::ACCEPT, "application/json");
        let mut request = request.body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
        let user = User::named("system:kube-aggregator").in_groups([MASTERS]);
        introduce(&user, request.headers_mut())?;
        let answer = remote.ask(cluster, request, Trust::Anybody).await?;
        let status = answer.status();
        if !status.is_success() {
            return Err(format!("bad status from {path}: {}", status.as_u16()));
        }
        let body = Limited::new(answer.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        // What is no JSON says nothing, but somebody answered.
        Ok(serde_json::from_slice(&body).unwrap_or_default())
    };
    tokio::time::timeout(WITHIN, asked).await.map_err(|_| "context deadline exceeded".to_owned())?
}

/// Writes the condition, if it says something else than before. Whoever comes between is an event that leads here again.
async fn write(cluster: &Cluster, stored: &Value, found: &Found) {
    let before = condition(stored);
    let status = if found.is_available { "True" } else { "False" };
    let same = |field: &str, value: &str| {
        before.is_some_and(|before| before[field].as_str().unwrap_or_default() == value)
    };
    if same("status", status) && same("reason", found.reason) && same("message", &found.message) {
        return;
    }
    let since = before.filter(|_| same("status", status)).map(|before| before["lastTransitionTime"].clone());
    let since = since.unwrap_or_else(|| json!(object::time(Timestamp::now())));
    let condition = json!({
        "type": "Available", "status": status, "lastTransitionTime": since, "reason": found.reason,
        "message": found.message,
    });
    let mut changed = stored.clone();
    let mut conditions = stored["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match conditions.iter_mut().find(|condition| condition["type"] == "Available") {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
    changed["status"]["conditions"] = json!(conditions);
    let name = object::text(stored, &["metadata", "name"]);
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("/apis/apiregistration.k8s.io/v1/apiservices/{name}/status?fieldManager=kube-apiserver"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(changed.to_string()));
    let Ok(request) = request else { return tracing::warn!(name, "an APIService has no name for a path") };
    match cluster.asked_by_itself(request).await {
        Ok(_) => {
            tracing::info!(name, reason = found.reason, message = found.message, "looked at an APIService");
        }
        Err(refusal) if refusal.code() == http::StatusCode::CONFLICT => {}
        Err(refusal) => tracing::warn!(name, %refusal, "the status of an APIService was not written"),
    }
}
