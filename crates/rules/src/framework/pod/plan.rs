//! What to do next about a pod or a group of pods, one step at a time. A pod that is alone is a Job like others, except that
//! it ends when it stops; a group has a Workload of its name, which all its pods own.

use std::{fmt, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use types::kueue::{PodSet, ResourceFlavor, Workload};

use super::{
    IS_GROUP_WORKLOAD, POD, Unit,
    group::{self, Sorted, Unfit},
    is_held, name,
};
use crate::framework::{
    self, Observed, build, label, maximum_execution_time,
    plan::{self, DELETED, NO_MATCHING_WORKLOAD, Settings, WORKLOAD_DELETED, What},
    prebuilt_workload, priority, queue_name,
};
use crate::quota::wire::JOB_UID_LABEL;
use crate::workload::{REQUEUED, WAITING_FOR_REPLACEMENT_PODS, condition, evicted, plan::Event, state};

/// No Workload has more pod sets.
const MOST_ROLES: usize = 18;

/// Everything that one decision depends on.
#[derive(Clone, Copy)]
pub struct Seen<'a> {
    /// The pod, or the group.
    pub unit: &'a Unit<'a>,
    /// The Workloads that a pod of this name controls, or the one that has the name of the group.
    pub workloads: &'a [Arc<Workload>],
    /// The Workload that the first pod says somebody else made for it, if that exists.
    pub prebuilt: Option<&'a Arc<Workload>>,
    /// Whether a Workload runs on another cluster, so that its pods wait here until it has ended (JF-55).
    pub runs_elsewhere: &'a dyn Fn(&Workload) -> bool,
    /// The flavors that there are.
    pub flavor: &'a dyn Fn(&str) -> Option<Arc<ResourceFlavor>>,
    /// The priority classes that there are.
    pub classes: priority::Classes<'a>,
}

impl<'a> Seen<'a> {
    fn of(&self, unit: &'a Unit<'a>) -> framework::Seen<'a> {
        let Seen { workloads, prebuilt, flavor, classes, .. } = *self;
        framework::Seen { job: unit, workloads, prebuilt, pods: &[], flavor, classes }
    }
}

/// What to do, what to tell about the first pod, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What to do.
    pub step: Step,
    /// What to tell.
    pub events: Vec<Event>,
    /// When to look again, even if nothing happens.
    pub again_at: Option<Timestamp>,
}

/// What to do about pods.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// What is done about a Job of any kind. It starts by being let through the gate, and stops by being deleted.
    Job(plan::Step),
    /// Let go of these pods, whose end was seen or need not be.
    Release(Vec<String>),
    /// Let go of these pods and delete them: their group has enough.
    Excess(Vec<String>),
}

impl From<framework::Plan> for Plan {
    fn from(framework::Plan { step, events, again_at }: framework::Plan) -> Plan {
        Plan { step: Step::Job(step), events, again_at }
    }
}

impl From<Step> for Plan {
    fn from(step: Step) -> Plan {
        Plan { step, events: Vec::new(), again_at: None }
    }
}

fn wait(why: impl Into<String>) -> Plan {
    framework::Plan::wait(why).into()
}

/// Decides what to do about pods of which there is at least one.
pub fn decide(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    match seen.unit.group {
        None => single(seen, settings, now),
        Some(_) => group(seen, settings, now),
    }
}

/// What to do about the Workload of a group that has no pods any more: nobody waits for it. It goes with those who own it.
pub fn gone(workload: &Arc<Workload>) -> Option<Plan> {
    let is_ours = is_of_group(workload) || plan::controller_uid(workload).is_none();
    let step = plan::Step::Finalize(Arc::clone(workload));
    (is_ours && plan::is_held(workload)).then(|| framework::Plan::step(step).into())
}

fn single(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let unit = seen.unit;
    let pod = unit.first();
    if pod.metadata.deletion_timestamp.is_some() {
        let workloads = plan::gone(seen.workloads, now).map(Plan::from);
        return workloads.or_else(|| released(&[pod])).unwrap_or_else(|| wait("it is being deleted"));
    }
    let uid = pod.metadata.uid.as_deref();
    let own: Vec<&Arc<Workload>> =
        seen.workloads.iter().filter(|it| plan::controller_uid(it) == uid).collect();
    // A pod does not outlive its Workload, whether it has started or not.
    if let [workload] = own[..]
        && plan::is_leaving(workload)
        && plan::is_held(workload)
        && !state::is_finished(workload)
    {
        return deleted(unit).unwrap_or_else(|| wait("it is being deleted"));
    }
    let plan = of_pods(seen, unit, framework::decide(&seen.of(unit), settings, now));
    let rests = matches!(plan.step, Step::Job(plan::Step::Wait(_) | plan::Step::Finalize(_)));
    let is_over = unit.finished().is_some() || own.iter().any(|workload| state::is_finished(workload));
    let over = (rests && is_over).then(|| released(unit.pods())).flatten();
    over.unwrap_or(plan)
}

/// What is different about pods.
fn of_pods(seen: &Seen<'_>, unit: &Unit<'_>, plan: framework::Plan) -> Plan {
    let mut plan = Plan::from(plan);
    match &mut plan.step {
        Step::Job(plan::Step::Start { of, .. }) if (seen.runs_elsewhere)(of) => {
            wait("it runs on another cluster")
        }
        // Those of a group that have ended wait for nothing.
        Step::Job(plan::Step::Start { .. }) if unit.gated().next().is_none() => wait("it runs"),
        Step::Job(plan::Step::Status { of, next, what: What::Released })
            if unit.group.is_none() && !(seen.runs_elsewhere)(of) =>
        {
            // A pod that is gone does not come again.
            if let Some(requeued) = next.conditions.iter_mut().find(|it| it.type_ == REQUEUED) {
                "False".clone_into(&mut requeued.status);
                if let Some(before) = state::find(of, REQUEUED).filter(|before| before.status == "False") {
                    requeued.last_transition_time = before.last_transition_time.clone();
                }
            }
            plan
        }
        // Whoever made the pods of a group that serves moves them together with their Workload.
        Step::Job(plan::Step::Update { what: plan::QUEUE, .. }) if unit.is_serving() => wait("it serves"),
        Step::Job(plan::Step::Wait(_)) => {
            let again = unit
                .lingers_until()
                .and_then(|until| until.checked_add(jiff::SignedDuration::from_secs(1)).ok());
            plan.again_at = [plan.again_at, again].into_iter().flatten().min();
            plan
        }
        _ => plan,
    }
}

/// Lets go of those of these pods that are held.
fn released(pods: &[&Pod]) -> Option<Plan> {
    let held: Vec<String> = pods.iter().filter(|pod| is_held(pod)).map(|pod| name(pod)).collect();
    (!held.is_empty()).then(|| Step::Release(held).into())
}

/// The Workload is deleted, and all its pods are.
fn deleted(unit: &Unit<'_>) -> Option<Plan> {
    let (reason, why) = (WORKLOAD_DELETED.to_owned(), DELETED.to_owned());
    let any = unit.stoppable(true).next().is_some();
    any.then(|| framework::Plan::step(plan::Step::Stop { restored: None, reason, why }).into())
}

fn is_of_group(workload: &Workload) -> bool {
    framework::annotation(&workload.metadata, IS_GROUP_WORKLOAD) == Some("true")
}

/// The Workload of a group, its pods that count, and how many are missing.
type Ensured<'a> = Result<(Option<Arc<Workload>>, Unit<'a>, usize), Box<Plan>>;

fn group(seen: &Seen<'_>, settings: &Settings, now: Timestamp) -> Plan {
    let ensured = match prebuilt_workload(seen.unit.metadata()) {
        Some(_) => ensure_prebuilt(seen, now),
        None => ensure_one(seen, settings),
    };
    let (workload, unit, absent) = match ensured {
        Ok(found) => found,
        Err(plan) => return *plan,
    };
    if let Some(workload) = &workload {
        if let Some(plan) = replacements(workload, absent, now) {
            return plan;
        }
        if state::is_finished(workload) {
            let over = || framework::plan::ended(&unit, workload).map(Plan::from);
            return released(seen.unit.pods())
                .or_else(over)
                .unwrap_or_else(|| wait("its Workload has ended"));
        }
        if plan::is_leaving(workload) {
            let pods = deleted(seen.unit).or_else(|| released(seen.unit.pods()));
            return pods.unwrap_or_else(|| plan::let_go(&unit, workload).into());
        }
    }
    if let Some(end) = unit.finished() {
        return match &workload {
            Some(workload) => plan::finish(workload, "Succeeded", &end.message, now).into(),
            None => released(seen.unit.pods()).unwrap_or_else(|| wait("the group has ended")),
        };
    }
    let Some(workload) = workload else { return without_workload(seen, settings) };
    let plan = plan::with_workload(&seen.of(&unit), &workload, settings, settings.pods_ready, now);
    of_pods(seen, &unit, plan)
}

/// The Workload that somebody else made for a group: all its pods own it (MK-WRK-02).
fn ensure_prebuilt<'a>(seen: &Seen<'a>, now: Timestamp) -> Ensured<'a> {
    let unit = seen.unit;
    let none = || (None, unit.clone(), 0);
    let Some(workload) = seen.prebuilt.filter(|it| plan::controller_uid(it).is_none()) else {
        return Ok(none());
    };
    owned(workload, unit.pods())?;
    let pod_sets = build::sanitized(unit.pod_sets().map_err(|why| Box::new(wait(why)))?);
    if group::has_room(workload, &pod_sets) {
        return Ok((Some(Arc::clone(workload)), unit.clone(), 0));
    }
    if state::is_finished(workload) {
        return Ok(none());
    }
    let why = "The prebuilt workload is out of sync with its user job";
    Err(Box::new(plan::finish(workload, "OutOfSync", why, now).into()))
}

/// The one Workload of a group. Pods that are too many, and those that were replaced, go.
fn ensure_one<'a>(seen: &Seen<'a>, settings: &Settings) -> Ensured<'a> {
    let unit = seen.unit;
    let Some(workload) = seen.workloads.first() else {
        let why = "Missing Workload; unable to restore pod templates";
        let runs = !unit.is_suspended() && unit.finished().is_none();
        let stopped = runs.then(|| plan::stop(unit, None, NO_MATCHING_WORKLOAD, why)).flatten();
        return stopped.map_or_else(|| Ok((None, unit.clone(), 0)), |plan| Err(Box::new(plan.into())));
    };
    if !is_of_group(workload) {
        return Err(Box::new(taken(unit)));
    }
    let limit = maximum_execution_time(unit.metadata());
    let Sorted { kept, excess, replaced, absent } = group::sorted(unit, workload);
    let pod_sets = build::sanitized(group::roles(&kept).map_err(|why| Box::new(wait(why)))?);
    let is_same = workload.spec.maximum_execution_time_seconds == limit
        && !kept.is_empty()
        && group::has_room(workload, &pod_sets);
    if !is_same {
        return Err(Box::new(changed(seen, workload, settings)));
    }
    owned(workload, &kept)?;
    if !excess.is_empty() {
        return Err(Box::new(Step::Excess(excess.iter().map(|pod| name(pod)).collect()).into()));
    }
    if let Some(plan) = released(&replaced) {
        return Err(Box::new(plan));
    }
    let unit = unit.with(kept);
    if !plan::is_leaving(workload) {
        let followed = plan::follow(&seen.of(&unit), workload, &pod_sets);
        followed.map_err(|plan| Box::new(Plan::from(*plan)))?;
    }
    Ok((Some(Arc::clone(workload)), unit, absent))
}

/// A Workload that has the group's name and is none of a group's.
fn taken(unit: &Unit<'_>) -> Plan {
    let over: Vec<&Pod> = unit.pods().iter().copied().filter(|pod| !group::is_runnable(pod)).collect();
    if let Some(plan) = released(&over) {
        return plan;
    }
    let name = types::go::quote(unit.group.unwrap_or_default());
    let why = format!(
        "A Workload named {name} already exists but is not a pod group workload; this pod group cannot be admitted"
    );
    let mut plan = wait("a Workload of its name is not its own");
    plan.events.push(Event::warning("WorkloadNameConflict", &why));
    plan
}

/// A Workload that is not, or not any more, the one of the group becomes it if nothing of it runs, or goes.
fn changed(seen: &Seen<'_>, workload: &Arc<Workload>, settings: &Settings) -> Plan {
    let unit = seen.unit;
    if unit.is_suspended() && !state::has_quota(workload) && !plan::is_leaving(workload) {
        let mut built = match built(seen, settings) {
            Ok(built) => built,
            Err(plan) => return *plan,
        };
        built.spec.active = workload.spec.active;
        let mut next = Workload::clone(workload);
        next.spec = built.spec;
        let told = format!("Updated not matching Workload for suspended job: {}", plan::key(workload));
        return plan::update(workload, next, "its spec").telling("UpdatedWorkload", &told).into();
    }
    let why = "No matching Workload; restoring pod templates according to existent Workload";
    let running = !unit.is_suspended() && unit.finished().is_none();
    let stopped = running.then(|| plan::stop(unit, None, NO_MATCHING_WORKLOAD, why)).flatten();
    stopped.unwrap_or_else(|| plan::removed(unit, workload)).into()
}

/// Says whether pods are missing (SM-2).
fn replacements(workload: &Arc<Workload>, absent: usize, now: Timestamp) -> Option<Plan> {
    let before = state::find(workload, WAITING_FOR_REPLACEMENT_PODS);
    let waits = before.is_some_and(|it| it.status == "True");
    let (reason, message) = match (absent > 0, evicted(workload)) {
        (true, Some(evicted)) => (evicted.reason.as_str(), evicted.message.as_str()),
        (true, None) if !waits => ("PodsFailed", "Some Failed pods need replacement"),
        (false, _) if waits => ("PodsReady", "No pods need replacement"),
        _ => return None,
    };
    let generation = workload.metadata.generation;
    let kind = WAITING_FOR_REPLACEMENT_PODS;
    let mut next = Workload::clone(workload);
    let said = condition::new(kind, absent > 0, reason, message, generation, now);
    if before.is_some_and(|it| {
        (&it.status, &it.reason, &it.message) == (&said.status, &said.reason, &said.message)
    }) {
        return None;
    }
    condition::set(&mut next.status.get_or_insert_default().conditions, said);
    Some(plan::status(workload, next, What::Replacements).into())
}

/// A group that has no Workload waits for the one that is promised, or gets one once all its pods are there.
fn without_workload(seen: &Seen<'_>, settings: &Settings) -> Plan {
    let unit = seen.unit;
    let promised = prebuilt_workload(unit.metadata());
    if promised.is_some()
        && let Some(plan) = plan::stop(unit, None, NO_MATCHING_WORKLOAD, "missing workload")
    {
        return plan.into();
    }
    if unit.is_active() {
        return Plan { again_at: unit.lingers_until(), ..wait("it still has active pods") };
    }
    if let Some(name) = promised {
        return wait(format!("there is no Workload {name} for it"));
    }
    match built(seen, settings) {
        Ok(workload) => {
            let told = format!("Created Workload: {}", plan::key(&workload));
            framework::Plan::step(plan::Step::Create(Box::new(workload)))
                .telling("CreatedWorkload", &told)
                .into()
        }
        Err(plan) => *plan,
    }
}

/// The Workload of a group, once its pods are those that it should have.
fn built(seen: &Seen<'_>, settings: &Settings) -> Result<Workload, Box<Plan>> {
    let unit = seen.unit;
    let (mut active, over): (Vec<&Pod>, Vec<&Pod>) =
        unit.pods().iter().copied().partition(|pod| group::is_runnable(pod));
    if let Some(plan) = released(&over) {
        return Err(Box::new(plan));
    }
    let total = group::check(unit).map_err(|unfit| Box::new(unfit_plan(unfit)))?;
    if active.len() > total {
        active.sort_by(|a, b| group::sooner_kept(a, b));
        return Err(Box::new(Step::Excess(active[total..].iter().map(|pod| name(pod)).collect()).into()));
    }
    let pod_sets = build::sanitized(unit.pod_sets().map_err(|why| Box::new(complaint(&why)))?);
    if pod_sets.len() > MOST_ROLES {
        return Err(Box::new(complaint(&format!("pod group can't include more than {MOST_ROLES} roles"))));
    }
    of_group(seen, pod_sets, settings)
}

fn of_group(seen: &Seen<'_>, pod_sets: Vec<PodSet>, settings: &Settings) -> Result<Workload, Box<Plan>> {
    let unit = seen.unit;
    let retry = |why| Box::new(framework::Plan::step(plan::Step::Retry(why)).into());
    let priority = priority::of(unit, &pod_sets, seen.classes).map_err(|missing| retry(missing.0))?;
    let mut workload = build::workload(unit, pod_sets, priority, &settings.copied_labels);
    let metadata = &mut workload.metadata;
    metadata.name = unit.group.map(str::to_owned);
    metadata.owner_references = Some(unit.pods().iter().map(|pod| owner(pod)).collect());
    let labels = metadata.labels.get_or_insert_default();
    labels.remove(JOB_UID_LABEL);
    for key in &settings.copied_labels {
        for value in unit.pods().iter().filter_map(|pod| label(&pod.metadata, key)) {
            if labels.get(key).is_some_and(|there| there != value) {
                let why = "constructing workload: pods have different label values";
                return Err(retry(why.to_owned()));
            }
            labels.insert(key.clone(), value.to_owned());
        }
    }
    if labels.is_empty() {
        metadata.labels = None;
    }
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
    workload.spec.queue_name = queue_name(unit.metadata()).map(str::to_owned);
    Ok(workload)
}

fn unfit_plan(unfit: Unfit) -> Plan {
    match unfit {
        Unfit::Fewer(why) => complaint(&why),
        Unfit::Contradiction(why) => wait(why),
    }
}

/// Nothing can be done about a group before its user does something.
fn complaint(why: &str) -> Plan {
    let mut plan = wait(why);
    plan.events.push(Event::warning("ErrWorkloadCompose", why));
    plan
}

/// All these pods own their Workload.
fn owned(workload: &Arc<Workload>, pods: &[&Pod]) -> Result<(), Box<Plan>> {
    let there = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let is_missing = |pod: &&&Pod| {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        there.iter().all(|owner| owner.uid != uid)
    };
    let missing: Vec<OwnerReference> = pods.iter().filter(is_missing).map(|pod| owner(pod)).collect();
    if missing.is_empty() || plan::is_leaving(workload) {
        return Ok(());
    }
    let mut next = Workload::clone(workload);
    // Of two pods of one name the earlier is gone.
    let owners = next.metadata.owner_references.get_or_insert_default();
    owners.retain(|there| missing.iter().all(|new| (&there.name, &there.kind) != (&new.name, &new.kind)));
    owners.extend(missing);
    Err(Box::new(plan::update(workload, next, "its owners").into()))
}

fn owner(pod: &Pod) -> OwnerReference {
    OwnerReference {
        api_version: POD.api_version(),
        kind: POD.kind.to_owned(),
        name: name(pod),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Step::Job(step) => {
                framework::Plan { step: step.clone(), events: Vec::new(), again_at: None }.fmt(f)
            }
            Step::Release(pods) => write!(f, "let go of pods {}", pods.join(", ")),
            Step::Excess(pods) => write!(f, "delete pods {}, because they are too many", pods.join(", ")),
        }
    }
}
