//! What is done about the nodes of a Workload next. One step at a time: what it writes comes back as an event, and the
//! next decision sees it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, OwnerReference};
use types::autoscaling::{
    ProvisioningRequest, ProvisioningRequestPodSet, ProvisioningRequestSpec, Reference,
};
use types::kueue::{
    self, AdmissionCheckState, CheckState, PodSetUpdate, ProvisioningRequestConfigSpec, ResourceFlavor,
    Workload,
};

use super::pods::{self, Group};
use super::{REQUEST, back_off, name};
use crate::framework::{PROVISIONING_PREFIX, pod::MANAGED, pod_set::Missing};
use crate::workload::plan::Event;
use crate::workload::{condition, state};

/// What is true of a request.
const ACCEPTED: &str = "Accepted";
const BOOKING_EXPIRED: &str = "BookingExpired";
const CAPACITY_REVOKED: &str = "CapacityRevoked";
const FAILED: &str = "Failed";
const PROVISIONED: &str = "Provisioned";

/// By these annotations pods use the nodes that were made for them.
const CONSUME: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";

const NOT_ACTIVE: &str = "the check is not active";
const NOT_NEEDED: &str = "the provisioning request is not needed";

/// A check that asks for nodes.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its settings; `None` if they do not exist.
    pub config: Option<&'a ProvisioningRequestConfigSpec>,
}

/// Everything that one decision depends on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The Workload.
    pub workload: &'a Workload,
    /// The checks of ours that it has to pass.
    pub checks: &'a [Check<'a>],
    /// The requests that were made for it.
    pub requests: &'a [ProvisioningRequest],
    /// The PodTemplate of this name, in its namespace.
    pub template: &'a dyn Fn(&str) -> Option<Arc<PodTemplate>>,
    /// The flavor of this name.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
}

/// What to do, and what to tell once it is done.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub step: Step,
    /// What to tell.
    pub events: Vec<Event>,
}

/// What to do about the nodes of a Workload.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing.
    Wait,
    /// Write what its checks say.
    Say(Vec<AdmissionCheckState>),
    /// Delete requests that nobody waits for any more.
    Delete(Vec<String>),
    /// Ask for nodes.
    Ask {
        /// For this check.
        check: String,
        /// What the pods are.
        templates: Vec<PodTemplate>,
        /// What is asked.
        request: Box<ProvisioningRequest>,
    },
    /// Let PodTemplates go with their request.
    HandOver {
        /// The owner that they get.
        owner: OwnerReference,
        /// Which.
        templates: Vec<Arc<PodTemplate>>,
    },
    /// It cannot be told what its pods are, for this reason.
    Stuck {
        /// For this check.
        check: String,
        /// Why.
        why: String,
    },
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Step::Wait => f.write_str("wait"),
            Step::Say(checks) => {
                let said: Vec<_> = checks.iter().map(|it| format!("{} {:?}", it.name, it.state)).collect();
                write!(f, "say {}", said.join(", "))
            }
            Step::Delete(names) => write!(f, "delete {}", names.join(", ")),
            Step::Ask { request, .. } => {
                let pods: i32 = request.spec.pod_sets.iter().map(|it| it.count).sum();
                write!(f, "ask for {pods} pods by {}", named(&request.metadata))
            }
            Step::HandOver { owner, .. } => write!(f, "hand templates over to {}", owner.name),
            Step::Stuck { check, why } => write!(f, "cannot ask for {check}: {why}"),
        }
    }
}

impl Plan {
    fn of(step: Step) -> Plan {
        Plan { step, events: Vec::new() }
    }

    fn delete<'a>(requests: impl Iterator<Item = &'a ProvisioningRequest>) -> Plan {
        let names: Vec<String> =
            requests.filter(|it| stays(it)).map(|it| named(&it.metadata).to_owned()).collect();
        Plan::of(if names.is_empty() { Step::Wait } else { Step::Delete(names) })
    }
}

/// A check, and how far it is.
struct Asked<'a> {
    check: Check<'a>,
    /// The pods for which nodes are needed.
    groups: Vec<Group<'a>>,
    /// The last request, and which attempt it is.
    last: Option<(&'a ProvisioningRequest, i32)>,
}

/// Decides what to do about the nodes of a Workload.
pub fn decide(seen: &Seen<'_>, now: Timestamp) -> Plan {
    let workload = seen.workload;
    if state::is_finished(workload) || state::is_evicted(workload) {
        return Plan::delete(seen.requests.iter());
    }
    if !state::has_quota(workload) {
        return Plan::of(Step::Wait);
    }
    let asked: Vec<Asked<'_>> = seen.checks.iter().map(|check| asked(seen, *check)).collect();
    if let Some(plan) = say(workload, &asked, now) {
        return plan;
    }
    let is_used = |request: &ProvisioningRequest| {
        let mut last = asked.iter().filter_map(|it| it.last);
        last.any(|(last, _)| last.metadata.name == request.metadata.name)
    };
    let unused = Plan::delete(seen.requests.iter().filter(|request| !is_used(request)));
    if unused.step != Step::Wait {
        return unused;
    }
    let next = asked.iter().find_map(|asked| ask(seen, asked).or_else(|| hand_over(seen, asked)));
    next.unwrap_or_else(|| Plan::of(Step::Wait))
}

fn asked<'a>(seen: &Seen<'a>, check: Check<'a>) -> Asked<'a> {
    let Some(config) = check.config else { return Asked { check, groups: Vec::new(), last: None } };
    let groups = pods::groups(seen.workload, config);
    let limit = back_off(config).limit.unwrap_or(0);
    let of = named(&seen.workload.metadata);
    let mine = seen.requests.iter().filter_map(|request| {
        let attempt = name::attempt(named(&request.metadata), of, check.name, limit)?;
        let counts = !groups.is_empty() && stays(request) && says_the_same(request, config);
        counts.then_some((request, attempt))
    });
    let last = mine.max_by_key(|(_, attempt)| *attempt);
    Asked { check, groups, last }
}

/// Whether nobody has deleted a request yet.
fn stays(request: &ProvisioningRequest) -> bool {
    request.metadata.deletion_timestamp.is_none()
}

/// Whether a request was made under the settings that are in force.
fn says_the_same(request: &ProvisioningRequest, config: &ProvisioningRequestConfigSpec) -> bool {
    request.spec.provisioning_class_name == config.provisioning_class_name
        && config.parameters.iter().all(|(key, value)| request.spec.parameters.get(key) == Some(value))
}

/// What the checks say, if that is something new (PRC-4).
fn say(workload: &Workload, asked: &[Asked<'_>], now: Timestamp) -> Option<Plan> {
    let mut events = Vec::new();
    let next = state::checks(workload).iter().map(|before| {
        let Some(asked) = asked.iter().find(|asked| asked.check.name == before.name) else {
            return before.clone();
        };
        let mut next = said(workload, asked, before);
        if next.state != before.state {
            next.last_transition_time = Some(condition::time(now));
            let AdmissionCheckState { name, state, message, .. } = &next;
            let mut told =
                format!("Admission check {name} updated state from {:?} to {state:?}", before.state);
            if !message.is_empty() {
                told = format!("{told} with message: {message}");
            }
            events.push(Event::normal("AdmissionCheckUpdated", &told));
        }
        next
    });
    let next: Vec<AdmissionCheckState> = next.collect();
    (next != state::checks(workload)).then_some(Plan { step: Step::Say(next), events })
}

/// What a check says, after what it said before.
fn said(workload: &Workload, asked: &Asked<'_>, before: &AdmissionCheckState) -> AdmissionCheckState {
    let next = |state: CheckState, message: &str| AdmissionCheckState {
        state,
        message: condition::message(message),
        ..before.clone()
    };
    let Some(config) = asked.check.config else { return next(CheckState::Pending, NOT_ACTIVE) };
    if asked.groups.is_empty() {
        return match before.state {
            CheckState::Ready => before.clone(),
            _ => AdmissionCheckState { pod_set_updates: Vec::new(), ..next(CheckState::Ready, NOT_NEEDED) },
        };
    }
    let Some((request, attempt)) = asked.last else { return before.clone() };
    let again = |why: &str, condition: &Condition| {
        let back_off = back_off(config);
        if back_off.limit.is_some_and(|limit| attempt > limit) {
            return next(CheckState::Rejected, &condition.message);
        }
        let message = format!("Retrying after {why}: {}", condition.message);
        let retries = before.retry_count.unwrap_or(0);
        if attempt <= retries {
            // That is known already, and the next attempt is about to begin.
            return next(before.state, &message);
        }
        let wait = back_off.wait(retries.saturating_add(1)).as_secs();
        AdmissionCheckState {
            requeue_after_seconds: Some(wait.try_into().unwrap_or(i32::MAX)),
            ..next(CheckState::Retry, &message)
        }
    };
    if let Some(failed) = request.is(FAILED) {
        return again("failure", failed);
    }
    if let Some(revoked) = request.is(CAPACITY_REVOKED) {
        // The nodes are gone: pods that take the place of others would wait for ever.
        let is_active = state::is_active(workload);
        return if is_active { next(CheckState::Rejected, &revoked.message) } else { before.clone() };
    }
    if let Some(expired) = request.is(BOOKING_EXPIRED) {
        // Who runs already needs no booking.
        let runs = state::is_admitted(workload);
        return if runs { before.clone() } else { again("booking expired", expired) };
    }
    if let Some(provisioned) = request.is(PROVISIONED) {
        return match before.state {
            CheckState::Ready => before.clone(),
            _ => AdmissionCheckState {
                pod_set_updates: updates(asked, request, config),
                ..next(CheckState::Ready, &provisioned.message)
            },
        };
    }
    if request.is(ACCEPTED).is_some() {
        // When the nodes will be there is told where it will be said that they are.
        return match request.condition(PROVISIONED) {
            Some(expected) => next(CheckState::Pending, &expected.message),
            None => before.clone(),
        };
    }
    next(CheckState::Pending, "")
}

/// What pods are given so that they use the nodes. Pod sets that were asked for as one all get it; upstream forgets all but
/// the first of them, whose pods alone could use the nodes then.
fn updates(
    asked: &Asked<'_>,
    request: &ProvisioningRequest,
    config: &ProvisioningRequestConfigSpec,
) -> Vec<PodSetUpdate> {
    let annotations = BTreeMap::from([
        (CONSUME.to_owned(), named(&request.metadata).to_owned()),
        (CLASS.to_owned(), request.spec.provisioning_class_name.clone()),
    ]);
    let selectors = config.pod_set_updates.iter().flat_map(|updates| &updates.node_selector);
    let node_selector: BTreeMap<String, String> = selectors
        .filter_map(|selector| {
            let details = &request.status.provisioning_class_details;
            let detail = details.get(&selector.value_from_provisioning_class_detail)?;
            Some((selector.key.clone(), detail.clone()))
        })
        .collect();
    let pod_sets = asked.groups.iter().flat_map(|group| &group.pod_sets);
    let update = |pod_set: &&kueue::PodSet| PodSetUpdate {
        name: pod_set.name().to_owned(),
        annotations: annotations.clone(),
        node_selector: node_selector.clone(),
        ..PodSetUpdate::default()
    };
    pod_sets.map(update).collect()
}

/// Asks for nodes, if nobody was asked yet or the last attempt came to nothing.
fn ask(seen: &Seen<'_>, asked: &Asked<'_>) -> Option<Plan> {
    let workload = seen.workload;
    let config = asked.check.config.filter(|_| !asked.groups.is_empty())?;
    let said = state::checks(workload).iter().find(|it| it.name == asked.check.name)?;
    if said.state == CheckState::Ready {
        return None;
    }
    let attempt = match asked.last {
        // Requests of earlier attempts may be gone; the check counts them.
        None => said.retry_count.unwrap_or(0).saturating_add(1),
        Some((last, attempt)) => {
            let is_over = last.is(FAILED).is_some()
                || (last.is(BOOKING_EXPIRED).is_some() && !state::is_admitted(workload));
            (is_over && said.state == CheckState::Pending).then(|| attempt.saturating_add(1))?
        }
    };
    let request = name::request(named(&workload.metadata), asked.check.name, attempt);
    if seen.requests.iter().any(|it| named(&it.metadata) == request) {
        // It was deleted, and its name is free once it is gone.
        return None;
    }
    Some(Plan::of(asking(seen, asked, config, &request).unwrap_or_else(|missing| Step::Stuck {
        check: asked.check.name.to_owned(),
        why: match missing {
            Missing::Flavor(name) => format!("flavor {name} does not exist"),
            Missing::Conflict(conflict) => conflict.0,
        },
    })))
}

fn asking(
    seen: &Seen<'_>,
    asked: &Asked<'_>,
    config: &ProvisioningRequestConfigSpec,
    request: &str,
) -> Result<Step, Missing> {
    let workload = seen.workload;
    let meta = |name: String| ObjectMeta {
        name: Some(name),
        namespace: workload.metadata.namespace.clone(),
        labels: Some([(MANAGED.to_owned(), "true".to_owned())].into()),
        owner_references: Some(vec![owner(kueue::API_VERSION, "Workload", &workload.metadata)]),
        ..ObjectMeta::default()
    };
    let mut templates = Vec::new();
    let mut pod_sets = Vec::new();
    for group in &asked.groups {
        let name = name::template(request, group.name());
        if (seen.template)(&name).is_none() {
            let template = pods::template(workload, group, seen.flavor)?;
            templates.push(PodTemplate { metadata: meta(name.clone()), template: Some(template) });
        }
        pod_sets.push(ProvisioningRequestPodSet { pod_template_ref: Reference { name }, count: group.count });
    }
    let mut parameters = config.parameters.clone();
    let annotations = workload.metadata.annotations.iter().flatten();
    parameters.extend(annotations.filter_map(|(key, value)| {
        key.strip_prefix(PROVISIONING_PREFIX).map(|parameter| (parameter.to_owned(), value.clone()))
    }));
    let request = ProvisioningRequest {
        metadata: meta(request.to_owned()),
        spec: ProvisioningRequestSpec {
            pod_sets,
            provisioning_class_name: config.provisioning_class_name.clone(),
            parameters,
        },
        ..ProvisioningRequest::default()
    };
    Ok(Step::Ask { check: asked.check.name.to_owned(), templates, request: Box::new(request) })
}

/// PodTemplates belong to the Workload until there is a request: they would be left over otherwise if it was never made.
fn hand_over(seen: &Seen<'_>, asked: &Asked<'_>) -> Option<Plan> {
    let (request, _) = asked.last?;
    let owner = owner(&REQUEST.api_version(), REQUEST.kind, &request.metadata);
    let names = request.spec.pod_sets.iter().map(|it| it.pod_template_ref.name.as_str());
    let is_owned = |template: &Arc<PodTemplate>| {
        template.metadata.owner_references.iter().flatten().any(|it| it.uid == owner.uid)
    };
    let templates: Vec<_> =
        names.filter_map(|name| (seen.template)(name)).filter(|template| !is_owned(template)).collect();
    (!templates.is_empty()).then(|| Plan::of(Step::HandOver { owner, templates }))
}

fn owner(api_version: &str, kind: &str, metadata: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: named(metadata).to_owned(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn named(metadata: &ObjectMeta) -> &str {
    metadata.name.as_deref().unwrap_or_default()
}
