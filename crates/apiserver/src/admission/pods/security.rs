//! Pods keep to the security standards of their namespace (`rules::pod::standards`): those that violate what it enforces stay
//! out, and of the others, and of templates of pods, their users are warned.

use std::time::{Duration, Instant};

use futures::future::{BoxFuture, ready};
use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::pod::standards::{self, Level, Policy, Standard};
use rules::wire;
use serde_json::Value;
use store::{Key, Scope, Store};

use super::forbidden;
use crate::admission::plugin::{Operation, Plugin, Request};
use crate::object;
use crate::registry::Resource;
use crate::status::{About, Refusal};

/// Parts of a pod through which its spec does not change.
const OTHER_PARTS: [&str; 8] =
    ["attach", "binding", "eviction", "exec", "log", "portforward", "proxy", "status"];
/// How long the pods of a namespace are looked at.
const PATIENCE: Duration = Duration::from_secs(1);

/// Refuses pods, warns of templates, and reads the labels of namespaces that ask for it.
pub(in crate::admission) struct PodSecurity(pub(in crate::admission) Store);

impl Plugin for PodSecurity {
    fn wants(&self, operation: Operation, resource: &Resource, subresource: &str) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
            && match (resource.group.as_str(), resource.plural.as_str()) {
                ("", "pods") => !OTHER_PARTS.contains(&subresource),
                ("", "namespaces") => subresource.is_empty(),
                _ => subresource.is_empty() && template_of(resource).is_some(),
            }
    }

    fn mutates(&self, _: Operation, _: &Resource) -> bool {
        false
    }

    fn validate<'a>(&'a self, request: &'a Request<'_>) -> BoxFuture<'a, Result<(), Refusal>> {
        let Some(object) = &request.object else { return Box::pin(ready(Ok(()))) };
        let judged = match template_of(request.resource) {
            Some(path) => {
                self.warn_of_template(request, object.pointer(path));
                Ok(())
            }
            None if request.resource.plural == "namespaces" => self.judge_namespace(request, object),
            None => self.judge_pod(request, object),
        };
        Box::pin(ready(judged))
    }
}

/// Where objects of a resource have the template of their pods, if they have any.
fn template_of(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

impl PodSecurity {
    fn judge_pod(&self, request: &Request<'_>, pod: &Value) -> Result<(), Refusal> {
        let policy = self.policy(request.namespace);
        if policy.enforce.level == Level::Privileged && policy.warn.level == Level::Privileged {
            return Ok(());
        }
        let pod: Pod = wire::typed(pod);
        let is_unchanged = |old: &Value| !standards::is_judged_again(&pod, &wire::typed(old));
        if request.old.is_some_and(is_unchanged) {
            return Ok(());
        }
        let spec = pod.spec.unwrap_or_default();
        let found = standards::violations(policy.enforce, &pod.metadata, &spec);
        if !found.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {found}", policy.enforce);
            return Err(forbidden(request, &why));
        }
        warn(request, policy.warn, &pod.metadata, &spec);
        Ok(())
    }

    fn warn_of_template(&self, request: &Request<'_>, template: Option<&Value>) {
        let standard = self.policy(request.namespace).warn;
        if standard.level != Level::Privileged
            && let Some(template) = template.filter(|template| template.is_object())
        {
            let template: PodTemplateSpec = wire::typed(template);
            let (meta, spec) = (template.metadata.unwrap_or_default(), template.spec.unwrap_or_default());
            warn(request, standard, &meta, &spec);
        }
    }

    /// The labels of a namespace must say something, and whoever makes it stricter hears of pods that are there.
    fn judge_namespace(&self, request: &Request<'_>, namespace: &Value) -> Result<(), Refusal> {
        let name = object::text(namespace, &["metadata", "name"]);
        let (policy, errors) = policy_of(namespace);
        let before = request.old.map(policy_of);
        let errors_before = before.as_ref().map(|(_, errors)| errors);
        if !errors.is_empty() && errors_before != Some(&errors) {
            return Err(Refusal::invalid(About { group: "", resource: "Namespace", name }, &errors));
        }
        let Some((before, _)) = before else { return Ok(()) };
        if policy.is_stricter_than(&before) {
            let (pods, since) = (self.pods(name), Instant::now());
            let is_late = || since.elapsed() > PATIENCE;
            for warning in standards::existing(name, policy.enforce, &pods, is_late) {
                request.warn(warning);
            }
        }
        Ok(())
    }

    fn policy(&self, namespace: &str) -> Policy {
        let found = self.0.get(&Key::new("namespaces", "", namespace));
        let label = |name: &str| found.as_ref().and_then(|found| found.index.labels.get(name));
        Policy::of_labels(label).0
    }

    fn pods(&self, namespace: &str) -> Vec<Pod> {
        let (view, scope) = (self.0.view(), Scope::resource("pods").namespace(namespace));
        view.list(&scope).map(|pod| wire::typed(&object::read(pod))).collect()
    }
}

fn policy_of(namespace: &Value) -> (Policy, rules::field::Errors) {
    Policy::of_labels(|name| namespace["metadata"]["labels"][name].as_str())
}

fn warn(request: &Request<'_>, standard: Standard, meta: &ObjectMeta, spec: &PodSpec) {
    let found = standards::violations(standard, meta, spec);
    if !found.is_empty() {
        request.warn(format!("would violate PodSecurity \"{standard}\": {found}"));
    }
}
