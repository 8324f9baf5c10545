//! Nodes that are asked for before a Workload starts, and what the answer means for its checks: observed from the caches,
//! decided by [`rules::provisioning`].

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Resource,
    api::{ApiResource, DeleteParams, PostParams, Preconditions},
    core::DynamicObject,
};
use reconcile::{Cache, Change, Key, Next, Tasks};
use rules::provisioning::{self, Check, POD_TEMPLATE, Plan, REQUEST, Seen, Step, decide};
use rules::workload::{condition, patch::Manner, plan::Event, state};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tracing::{debug, info};
use types::autoscaling::ProvisioningRequest;
use types::kueue::{AdmissionCheck, ProvisioningRequestConfig, Workload};

use crate::error::{Error, is_outdated};
use crate::work::Work;
use crate::{Context, kinds, write};

/// How many Workloads are looked at at once.
const AT_ONCE: usize = 8;
/// How long the cache is given to see a request that is there already.
const BEHIND: Duration = Duration::from_secs(1);
/// Who tells what becomes of the nodes of Workloads, by Kueue's name.
const PROVISIONING: &str = "kueue-provisioning-request-controller";

/// Starts the controllers of requests and of the checks that lead to them.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let workloads = Arc::clone(context);
    tasks.spawn("provisioning", async move {
        workloads.caches.ready().await;
        let queue = workloads.work.provisioning.clone();
        queue.run(AT_ONCE, |key| reconcile(Arc::clone(&workloads), key)).await;
    });
    let checks = Arc::clone(context);
    tasks.spawn("provisioning checks", async move {
        checks.caches.ready().await;
        checks.caches.checks.all().iter().for_each(|it| checks.work.provisioning_checks.add(Key::of(&**it)));
        let queue = checks.work.provisioning_checks.clone();
        queue.run(1, |key| show(Arc::clone(&checks), key)).await;
    });
}

/// A request or a PodTemplate changed: whose it is, that Workload is looked at. What belongs to a request is looked at
/// with it.
pub(crate) fn changed(change: &Change<'_, DynamicObject>, work: &Work) {
    let Some(object) = change.latest() else { return };
    let owners = object.metadata.owner_references.iter().flatten();
    for owner in owners.filter(|owner| owner.kind == "Workload") {
        work.provisioning.add(Key::new(change.key.namespace.clone(), owner.name.clone()));
    }
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(workload) = context.caches.workloads.get(&key) else { return Ok(Next::Done) };
    let Some(nodes) = Nodes::of(&context) else { return Ok(Next::Done) };
    let plan = nodes.plan(&workload)?;
    if plan.step == Step::Wait {
        debug!(workload = %key, %plan, "decided about nodes");
        return Ok(Next::Done);
    }
    info!(workload = %key, %plan, "decided about nodes");
    let next = match nodes.apply(&workload, &plan.step).await {
        Ok(next) => next,
        // The caches will know, and the next decision is about that.
        Err(error) if is_outdated(&error) => return Ok(Next::Done),
        Err(source) => {
            if let Step::Ask { check, request, .. } = &plan.step {
                let name = request.metadata.name.as_deref().unwrap_or_default();
                let why = reconcile::chain(&source);
                nodes
                    .tell(&workload, check, &format!("Error creating {} {name:?}: {why}", REQUEST.kind))
                    .await?;
            }
            return Err(failed(doing(&plan.step), &key, source));
        }
    };
    if let Step::Stuck { check, why } = &plan.step {
        nodes.tell(&workload, check, why).await?;
        return Err(Error::Missing { kind: "Workload", job: key, why: why.clone() });
    }
    for event in &plan.events {
        context.recorder.tell(PROVISIONING, &*workload, event);
    }
    Ok(next)
}

fn doing(step: &Step) -> &'static str {
    match step {
        Step::Wait => "look at",
        Step::Say(_) => "write the checks of",
        Step::Delete(_) => "delete requests for nodes of",
        Step::Ask { .. } | Step::Stuck { .. } => "ask for nodes of",
        Step::HandOver { .. } => "hand over the templates of",
    }
}

fn failed(doing: &'static str, workload: &Key, source: kube::Error) -> Error {
    Error::Workload { doing, workload: workload.clone(), source: Box::new(source) }
}

/// A cluster whose autoscaler can be asked for nodes.
struct Nodes<'a> {
    context: &'a Context,
    requests: Cache<DynamicObject>,
    templates: Cache<DynamicObject>,
}

impl<'a> Nodes<'a> {
    /// `None` on a cluster that does not know requests, or before all of them were seen.
    fn of(context: &'a Context) -> Option<Nodes<'a>> {
        let (requests, templates) =
            (context.caches.kinds.seen(&REQUEST)?, context.caches.kinds.seen(&POD_TEMPLATE)?);
        Some(Nodes { context, requests, templates })
    }

    fn plan(&self, workload: &Workload) -> Result<Plan, Error> {
        let caches = &self.context.caches;
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        let mut checks: Vec<(&str, Option<Arc<ProvisioningRequestConfig>>)> = Vec::new();
        for said in state::checks(workload) {
            let object = caches.check(&said.name);
            if let Some(name) = object.as_deref().and_then(provisioning::config_name) {
                let config = name.ok().and_then(|name| caches.provisioning.get(&Key::new("", name)));
                checks.push((&said.name, config));
            }
        }
        let checks: Vec<Check<'_>> = checks
            .iter()
            .map(|(name, config)| Check { name, config: config.as_ref().map(|config| &config.spec) })
            .collect();
        let uid = workload.metadata.uid.as_deref().unwrap_or_default();
        let mut requests = Vec::new();
        for object in self.requests.by(crate::caches::OWNER_UID, uid) {
            requests.push(read::<ProvisioningRequest>(&REQUEST, &object)?);
        }
        let template = |name: &str| {
            let object = self.templates.get(&Key::new(namespace, name))?;
            // A template that cannot be read is one that somebody else made, and is left alone.
            read::<PodTemplate>(&POD_TEMPLATE, &object).ok().map(Arc::new)
        };
        let seen = Seen {
            workload,
            checks: &checks,
            requests: &requests,
            template: &template,
            flavor: &|name| caches.flavor(name),
        };
        Ok(decide(&seen, self.context.clock.now()))
    }

    /// Takes a step, and says when to look again.
    async fn apply(&self, workload: &Workload, step: &Step) -> Result<Next, kube::Error> {
        let namespace = workload.metadata.namespace.as_deref().unwrap_or_default();
        match step {
            Step::Wait | Step::Stuck { .. } => {}
            // It is written as all else that belongs to admission: what two writers own, one of them cannot take back.
            Step::Say(checks) => {
                let mut next = workload.status.clone().unwrap_or_default();
                next.admission_checks.clone_from(checks);
                self.context.apply_admission(workload, &next, Manner::Strict).await?;
            }
            Step::Delete(names) => {
                for name in names {
                    self.delete(namespace, name).await?;
                }
            }
            Step::Ask { templates, request, .. } => {
                for template in templates {
                    self.create(&POD_TEMPLATE, &self.templates, namespace, json!(template)).await?;
                }
                if !self.create(&REQUEST, &self.requests, namespace, json!(request)).await? {
                    return Ok(Next::After(BEHIND));
                }
                let name = request.metadata.name.as_deref().unwrap_or_default();
                let told = Event::normal(
                    "ProvisioningRequestCreated",
                    &format!("Created ProvisioningRequest: {name:?}"),
                );
                self.context.recorder.tell(PROVISIONING, workload, &told);
            }
            Step::HandOver { owner, templates } => {
                for template in templates {
                    self.hand_over(owner, template).await?;
                }
            }
        }
        // There may be more to do, about which no event tells.
        Ok(Next::After(Duration::ZERO))
    }

    fn api(&self, kind: &rules::framework::Kind, namespace: &str) -> (Api<DynamicObject>, ApiResource) {
        let resource = kinds::resource(kind);
        (Api::namespaced_with(self.context.client.clone(), namespace, &resource), resource)
    }

    /// Creates an object. Says whether it was not there already: one that the cache does not know yet was created in an
    /// attempt whose answer was lost.
    async fn create(
        &self,
        kind: &rules::framework::Kind,
        cache: &Cache<DynamicObject>,
        namespace: &str,
        mut object: Value,
    ) -> Result<bool, kube::Error> {
        let (api, _) = self.api(kind, namespace);
        object["apiVersion"] = kind.api_version().into();
        object["kind"] = kind.kind.into();
        let object = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &object).await {
            Ok(made) => {
                cache.put(made);
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, namespace: &str, name: &str) -> Result<(), kube::Error> {
        let Some(object) = self.requests.get(&Key::new(namespace, name)) else { return Ok(()) };
        let same = Preconditions { uid: object.metadata.uid.clone(), resource_version: None };
        let params = DeleteParams::background().preconditions(same);
        match self.api(&REQUEST, namespace).0.delete(name, &params).await {
            Ok(answer) => match answer.left() {
                Some(leaving) if leaving.metadata.finalizers.is_some() => self.requests.put(leaving),
                _ => self.requests.removed(&object),
            },
            Err(kube::Error::Api(status)) if status.is_not_found() => self.requests.removed(&object),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn hand_over(&self, owner: &OwnerReference, template: &PodTemplate) -> Result<(), kube::Error> {
        let metadata = &template.metadata;
        let others = metadata.owner_references.iter().flatten().filter(|it| it.controller != Some(true));
        let owners: Vec<&OwnerReference> = others.chain([owner]).collect();
        let version = &metadata.resource_version;
        let body = json!({ "metadata": { "ownerReferences": owners, "resourceVersion": version } });
        let (api, resource) = self.api(&POD_TEMPLATE, metadata.namespace.as_deref().unwrap_or_default());
        let mut of = DynamicObject::new("", &resource);
        *of.meta_mut() = metadata.clone();
        self.templates.put(write::patch_object(&api, &of, body).await?);
        Ok(())
    }

    /// Shows in a check why nodes cannot be asked for, unless that is there already.
    async fn tell(&self, workload: &Workload, check: &str, why: &str) -> Result<(), Error> {
        let mut next = workload.status.clone().unwrap_or_default();
        let why = condition::message(why);
        let said = next.admission_checks.iter_mut().find(|it| it.name == check);
        let Some(said) = said.filter(|said| said.message != why) else { return Ok(()) };
        said.message.clone_from(&why);
        self.context.recorder.tell(PROVISIONING, workload, &Event::warning("FailedCreate", &why));
        match self.context.apply_admission(workload, &next, Manner::Strict).await {
            Err(error) if !is_outdated(&error) => {
                Err(failed("write the checks of", &Key::of(workload), error))
            }
            _ => Ok(()),
        }
    }
}

/// An object as what it is.
fn read<T: DeserializeOwned>(kind: &rules::framework::Kind, object: &DynamicObject) -> Result<T, Error> {
    let parts = json!({ "metadata": object.metadata });
    let mut value = object.data.clone();
    if let (Some(value), Some(parts)) = (value.as_object_mut(), parts.as_object()) {
        value.extend(parts.clone());
    }
    serde_json::from_value(value).map_err(|why| Error::Missing {
        kind: kind.kind,
        job: Key::of(object),
        why: why.to_string(),
    })
}

/// Shows whether nodes can be asked for by a check.
async fn show(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(check) = context.caches.checks.get(&key) else { return Ok(Next::Done) };
    let Some(name) = provisioning::config_name(&check) else { return Ok(Next::Done) };
    let active =
        provisioning::active(name, |name| context.caches.provisioning.get(&Key::new("", name)).is_some());
    let Some(conditions) = active.among(&check, context.clock.now()) else { return Ok(Next::Done) };
    let body = json!({
        "metadata": { "resourceVersion": check.metadata.resource_version },
        "status": { "conditions": conditions },
    });
    let api: Api<AdmissionCheck> = Api::all(context.client.clone());
    match write::patch_status(&api, &*check, body).await {
        Ok(answer) => context.caches.checks.put(answer),
        Err(error) if is_outdated(&error) => {}
        Err(source) => {
            let (doing, source) = ("write the condition of", Box::new(source));
            return Err(Error::Object { doing, kind: "AdmissionCheck", name: key, source });
        }
    }
    Ok(Next::Done)
}
