//! The status of a pod in the words of a kubelet.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
        ContainerStatus, HostIP, Pod, PodIP, PodSpec, PodStatus, VolumeMountStatus,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::{
    conditions::{self, Facts},
    container::{Container, Exit, Kind, State},
    ending::Ending,
    phase::{self, Phase},
    plan,
    resize::Unsettled,
};

pub use super::conditions::is_owned;

/// What the message of a pod begins with that its node does not take.
const REJECTED: &str = "Pod was rejected: ";

/// Everything a pod's status follows from.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The pod as the API server has it.
    pub pod: &'a Pod,
    /// Its containers.
    pub containers: &'a [Container],
    /// Why it has to end, if it has to.
    pub ending: Option<&'a Ending>,
    /// What keeps it from the resources that it asks for.
    pub resize: Option<&'a Unsettled>,
    /// Nothing runs, and nothing will again ([`plan::Plan::over`]).
    pub over: bool,
    /// When the node took it.
    pub started: Option<Timestamp>,
    /// Its address, if it has one.
    pub ip: Option<&'a str>,
    /// The node's address.
    pub host_ip: &'a str,
    /// Its surroundings (namespaces, volumes) are there.
    pub sandboxed: bool,
    /// The time.
    pub now: Timestamp,
}

/// The whole status of the pod. What others have set and a node does not own is kept.
pub fn of(seen: &Seen<'_>) -> PodStatus {
    let old = seen.pod.status.clone().unwrap_or_default();
    let spec = seen.pod.spec.clone().unwrap_or_default();
    let ended;
    let containers = if seen.over && seen.ending.is_some() {
        ended = with_ends(seen.containers);
        &ended
    } else {
        seen.containers
    };
    let phase = phase_of(seen, &spec, containers, old.phase.as_deref());
    let facts = Facts {
        pod: seen.pod,
        containers,
        phase,
        disruption: match seen.ending {
            Some(Ending::Disrupted { reason, message }) => Some((reason, message)),
            _ => None,
        },
        resize: seen.resize,
        sandboxed: seen.sandboxed && !seen.over,
        now: seen.now,
    };
    let (mut reason, mut message) = (None, None);
    if old.phase.as_deref() == Some(phase.as_str()) {
        (reason, message) = (old.reason.clone(), old.message.clone());
    }
    if let Some((word, sentence)) = seen.ending.filter(|_| seen.over).and_then(Ending::words) {
        let prefix = if matches!(seen.ending, Some(Ending::Rejected { .. })) { REJECTED } else { "" };
        (reason, message) = (Some(word.to_owned()), Some(format!("{prefix}{sentence}")));
    }
    let of_kinds = |kinds: &[Kind]| -> Option<Vec<ContainerStatus>> {
        let some: Vec<ContainerStatus> = containers
            .iter()
            .filter(|one| kinds.contains(&one.kind))
            .map(|one| container(one, &spec))
            .collect();
        (!some.is_empty()).then_some(some)
    };
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason,
        message,
        conditions: Some(conditions::of(&facts)),
        observed_generation: seen.pod.metadata.generation,
        start_time: old.start_time.clone().or(seen.started.map(seconds)),
        host_ip: Some(seen.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: seen.host_ip.to_owned() }]),
        pod_ip: seen.ip.map(str::to_owned),
        pod_ips: seen.ip.map(|ip| vec![PodIP { ip: ip.to_owned() }]),
        container_statuses: of_kinds(&[Kind::Main]),
        init_container_statuses: of_kinds(&[Kind::Init, Kind::Sidecar]),
        ephemeral_container_statuses: of_kinds(&[Kind::Ephemeral]),
        ..old
    }
}

/// A pod that is over is Succeeded or Failed, and stays what it was once.
fn phase_of(seen: &Seen<'_>, spec: &PodSpec, containers: &[Container], old: Option<&str>) -> Phase {
    if let Some(old) = old.and_then(Phase::parse).filter(|old| old.is_final()) {
        return old;
    }
    let phase = phase::of(spec, containers, seen.over || seen.ending.is_some());
    if !seen.over && phase.is_final() {
        // While containers are being stopped the pod is what it was: nobody is to take its place before they have.
        return old.and_then(Phase::parse).unwrap_or(Phase::Running);
    }
    match seen.ending {
        Some(ending) if seen.over && ending.is_failure() => Phase::Failed,
        _ if seen.over && !phase.is_final() => Phase::Failed,
        _ => phase,
    }
}

/// A pod that was made to end leaves no container behind of which one could think that it still runs, or will.
fn with_ends(containers: &[Container]) -> Vec<Container> {
    let mut ended = containers.to_vec();
    let began = |one: &Container| one.latest_exit().is_some() || one.is_running();
    let inits = containers.iter().filter(|one| matches!(one.kind, Kind::Init | Kind::Sidecar)).count();
    let initialized = inits == 0
        || plan::is_initialized(containers)
        || containers[inits - 1].exit().is_some_and(|exit| exit.code == 0);
    // Init containers whose turn never came say so; the first one's always has.
    let reached = containers[..inits].iter().rposition(began).map_or(usize::from(inits > 0), |last| last + 1);
    for (index, container) in ended.iter_mut().enumerate() {
        let applies = match container.kind {
            Kind::Main => initialized,
            Kind::Init | Kind::Sidecar => index < reached,
            Kind::Ephemeral => began(container),
        };
        if applies && container.exit().is_none() {
            container.state =
                State::Exited(Exit::lost("The container could not be located when the pod was terminated"));
        }
    }
    ended
}

fn container(one: &Container, spec: &PodSpec) -> ContainerStatus {
    let specified = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let specified = specified.into_iter().find(|container| container.name == one.name);
    let created = one.id.is_some();
    let resources = one.resources.clone().filter(|_| created);
    let mounts = specified.and_then(|container| container.volume_mounts.as_ref()).map(|mounts| {
        let mount = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only.filter(|read_only| *read_only),
            recursive_read_only: mount
                .read_only
                .filter(|read_only| *read_only)
                .map(|_| mount.recursive_read_only.clone().unwrap_or_else(|| "Disabled".to_owned())),
        };
        mounts.iter().map(mount).collect()
    });
    ContainerStatus {
        name: one.name.clone(),
        image: one.image.clone(),
        image_id: one.image_id.clone(),
        container_id: one.id.clone(),
        ready: match one.kind {
            Kind::Init => one.exit().is_some_and(|exit| exit.code == 0),
            Kind::Main | Kind::Sidecar => conditions::is_ready(one),
            Kind::Ephemeral => false,
        },
        started: (one.kind != Kind::Ephemeral).then(|| one.is_running() && one.started),
        restart_count: one.restarts,
        state: Some(state(one, spec)),
        last_state: Some(ContainerState {
            terminated: one.last.as_ref().map(terminated),
            ..ContainerState::default()
        }),
        allocated_resources: resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources,
        volume_mounts: mounts,
        ..ContainerStatus::default()
    }
}

fn state(one: &Container, spec: &PodSpec) -> ContainerState {
    let waiting = |reason: &str, message: &str| ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()).filter(|message| !message.is_empty()),
        }),
        ..ContainerState::default()
    };
    match &one.state {
        State::New if spec.init_containers.as_ref().is_some_and(|inits| !inits.is_empty()) => {
            waiting("PodInitializing", "")
        }
        State::New => waiting("ContainerCreating", ""),
        State::Waiting { reason, message } => waiting(reason, message),
        State::Running { since } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(seconds(*since)) }),
            ..ContainerState::default()
        },
        State::Exited(exit) => {
            ContainerState { terminated: Some(terminated(exit)), ..ContainerState::default() }
        }
    }
}

fn terminated(exit: &Exit) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: exit.code,
        signal: exit.signal,
        reason: Some(exit.reason.clone()).filter(|reason| !reason.is_empty()),
        message: Some(exit.message.clone()).filter(|message| !message.is_empty()),
        started_at: exit.from.map(seconds),
        finished_at: exit.to.map(seconds),
        container_id: exit.id.clone(),
    }
}

/// As the API keeps it, so that what was written and what is read are the same.
pub(super) fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::node::container;

    /// Whoever replaces a pod that has failed would otherwise run beside it.
    #[test]
    fn a_pod_has_not_failed_before_its_containers_have_stopped() {
        let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "main" }] });
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
        let now = Timestamp::UNIX_EPOCH;
        let check = |ending: Option<&Ending>,
                     containers: &[Container],
                     over: bool,
                     expected: (&str, Option<&str>)| {
            let (resize, started, ip) = (None, Some(now), None);
            let (pod, host_ip, sandboxed) = (&pod, "127.0.0.1", true);
            let seen = Seen { pod, containers, ending, resize, over, started, ip, host_ip, sandboxed, now };
            let status = of(&seen);
            assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some(expected.0), expected.1));
        };
        let mut running = container::of_pod(&pod);
        running[0].start("id".to_owned(), String::new(), now);
        let mut ended = running.clone();
        ended[0].end(Exit::with_code(0, now, now));
        let evicted = Ending::Evicted { message: String::new() };
        for (ending, reason) in
            [(Ending::DeadlineExceeded, Some("DeadlineExceeded")), (evicted, Some("Evicted"))]
        {
            check(Some(&ending), &running, false, ("Running", None));
            check(Some(&ending), &ended, false, ("Running", None));
            check(Some(&ending), &ended, true, ("Failed", reason));
        }
        check(Some(&Ending::Deleted), &running, false, ("Running", None));
        check(Some(&Ending::Deleted), &ended, true, ("Succeeded", None));
        let mut looked_at = ended.clone();
        looked_at.push(Container::new("look", "", Kind::Ephemeral));
        looked_at[1].start("id".to_owned(), String::new(), now);
        check(None, &looked_at, false, ("Running", None));
        looked_at[1].end(Exit::with_code(143, now, now));
        check(None, &looked_at, true, ("Succeeded", None));
    }
}
