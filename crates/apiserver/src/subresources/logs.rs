//! `pods/log`: the output of a container, from the node that has it (2.73).

use http::{StatusCode, header};
use k8s_openapi::api::core::v1::Pod;
use rules::pod::logs::{LogOptions, choose_container};
use rules::wire;

use super::streams;
use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::node::{Container, Node, Unserved};
use crate::object;
use crate::status::{About, Refusal};
use crate::verbs;

pub(super) async fn get(context: &Context<'_>) -> Result<Answer, Refusal> {
    let options = LogOptions::read(|name| context.query.get(name)).map_err(Refusal::bad_request)?;
    let errors = options.validate();
    if !errors.is_empty() {
        let about = About { group: "", resource: "PodLogOptions", name: context.name() };
        return Err(Refusal::invalid(about, &errors));
    }
    let pod = read(context)?;
    let container = container(context, &pod)?;
    let Some(node) = node_of(&pod) else { return Ok(nothing()) };
    let node = reach(context, node)?;
    let follows = options.follow;
    let output = node.logs(container, options).await.map_err(|why| unserved(context, why))?;
    tracing::debug!(pod = context.name(), follows, "shows the output of a container");
    if streams::wants_socket(context) {
        return streams::send(context, output);
    }
    Ok(answer::stream("text/plain", output))
}

/// A pod that is nowhere yet has no output, not even an empty one.
fn nothing() -> Answer {
    let mut answer = answer::text(StatusCode::NO_CONTENT, "");
    answer.headers_mut().remove(header::CONTENT_TYPE);
    answer
}

/// The pod that the path names.
pub(super) fn read(context: &Context<'_>) -> Result<Pod, Refusal> {
    let key = object::key(context.resource, context.namespace(), context.name());
    let found = context.cluster.store().get(&key).ok_or_else(|| verbs::absent(context, context.name()))?;
    Ok(wire::typed(&object::read(&found)))
}

/// The container of it that is meant.
pub(super) fn container(context: &Context<'_>, pod: &Pod) -> Result<Container, Refusal> {
    let asked = context.query.get("container").unwrap_or("");
    let name = choose_container(pod, asked).map_err(Refusal::bad_request)?;
    Ok(Container {
        namespace: context.namespace().to_owned(),
        pod: context.name().to_owned(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        name,
    })
}

/// The node that a pod is on.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// A node that was introduced.
pub(super) fn reach(context: &Context<'_>, node: &str) -> Result<std::sync::Arc<dyn Node>, Refusal> {
    let reached = context.cluster.nodes().get(node);
    reached.ok_or_else(|| Refusal::unknown(format!("error dialing backend: node {node} cannot be reached")))
}

/// What a node says when it does not answer.
pub(super) fn unserved(context: &Context<'_>, why: Unserved) -> Refusal {
    match why {
        Unserved::BadRequest(why) => Refusal::bad_request(why),
        Unserved::NotFound(_) => Refusal::not_found(context.about()),
        Unserved::Failed(why) => Refusal::unknown(why),
    }
}
