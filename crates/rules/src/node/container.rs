//! What a node knows of one container of a pod, and how that changes.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{
        ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodSpec, ResourceRequirements,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};

use super::restart::Backoff;

/// The exit code of a container of which nobody knows how it ended.
pub const LOST: i32 = 137;

/// One container: its present instance, and the one before.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Container {
    /// Its name in the pod.
    pub name: String,
    /// The image as the pod names it.
    pub image: String,
    /// What the image is on this node; empty until the container was created.
    pub image_id: String,
    /// When it runs relative to the others.
    pub kind: Kind,
    /// How often it was started again.
    pub restarts: i32,
    /// The present instance.
    pub state: State,
    /// How the instance before ended.
    pub last: Option<Exit>,
    /// The id of the present instance, with its scheme.
    pub id: Option<String>,
    /// What the present instance was given, which is not always what the pod says now.
    pub resources: Option<ResourceRequirements>,
    /// Whether the present instance has come up: its `postStart` is done and its startup probe has succeeded.
    pub started: bool,
    /// Whether its readiness probe, if it has one, succeeds.
    pub ready: bool,
    /// A probe has decided that it must start again, whatever its exit code says.
    pub unhealthy: bool,
    /// How long to wait before it starts again.
    pub backoff: Backoff,
    /// What is known of it was in earlier surroundings of its pod, which went with their node: namespaces, and what was in
    /// memory. Init containers made the pod ready there, and not here.
    pub before: bool,
}

/// When a container runs relative to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container that starts in its turn and then keeps running beside the others.
    Sidecar,
    /// Runs when all init containers are done.
    Main,
    /// Was added to a pod that runs, for somebody to look around. It runs once, and the pod does not depend on it.
    Ephemeral,
}

/// What a container does at the moment.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Was not created yet, for no other reason than that its time has not come.
    New,
    /// Could not be started, or not yet again.
    Waiting {
        /// A word for programs: `CrashLoopBackOff`, `ErrImageNeverPull`…
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// Runs.
    Running {
        /// Since when.
        since: Timestamp,
    },
    /// Has ended.
    Exited(Exit),
}

/// The end of one instance of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    /// The exit code; 128 and the signal if a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// `Completed`, `Error`, `OOMKilled`…
    pub reason: String,
    /// The termination message.
    pub message: String,
    /// When it began; unknown if it never did.
    pub from: Option<Timestamp>,
    /// When it ended; unknown if nobody saw it.
    pub to: Option<Timestamp>,
    /// The id of the instance.
    pub id: Option<String>,
}

impl Exit {
    /// The end of an instance that ran from `from` to `to`, with the reason that its code alone gives.
    pub fn with_code(code: i32, from: Timestamp, to: Timestamp) -> Exit {
        let reason = if code == 0 { "Completed" } else { "Error" };
        Exit {
            code,
            signal: None,
            reason: reason.to_owned(),
            message: String::new(),
            from: Some(from),
            to: Some(to),
            id: None,
        }
    }

    /// The end of an instance that was running once and cannot be found any more.
    pub fn lost(message: &str) -> Exit {
        Exit {
            code: LOST,
            signal: None,
            reason: "ContainerStatusUnknown".to_owned(),
            message: message.to_owned(),
            from: None,
            to: None,
            id: None,
        }
    }
}

impl Container {
    /// A container that has not been created yet.
    pub fn new(name: &str, image: &str, kind: Kind) -> Container {
        Container {
            name: name.to_owned(),
            image: image.to_owned(),
            image_id: String::new(),
            kind,
            restarts: 0,
            state: State::New,
            last: None,
            id: None,
            resources: None,
            started: false,
            ready: false,
            unhealthy: false,
            backoff: Backoff::default(),
            before: false,
        }
    }

    /// Whether an instance runs.
    pub fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// How its present instance ended, if it has.
    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// How its latest instance that ended did so, if none is running or can be started now.
    pub fn latest_exit(&self) -> Option<&Exit> {
        match &self.state {
            State::Exited(exit) => Some(exit),
            State::Waiting { .. } => self.last.as_ref(),
            State::New | State::Running { .. } => None,
        }
    }

    /// A new instance runs. One that was there before becomes the last one.
    pub fn start(&mut self, id: String, image_id: String, now: Timestamp) {
        if self.latest_exit().is_some() {
            self.restarts += 1;
        }
        if let State::Exited(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.state = State::Running { since: now };
        (self.id, self.image_id) = (Some(id), image_id);
        (self.started, self.ready, self.unhealthy, self.before) = (false, false, false, false);
    }

    /// The instance has ended.
    pub fn end(&mut self, mut exit: Exit) {
        if exit.id.is_none() {
            exit.id.clone_from(&self.id);
        }
        // An instance that ended before it ever ran, because it could not be made to run, is still one more instance.
        if !self.is_running() && self.latest_exit().is_some() {
            self.restarts += 1;
            if let State::Exited(before) = &self.state {
                self.last = Some(before.clone());
            }
        }
        self.state = State::Exited(exit);
        (self.started, self.ready, self.before) = (false, false, false);
    }

    /// The instance cannot be started, for now.
    pub fn wait(&mut self, reason: &str, message: String) {
        if let State::Exited(exit) = &self.state {
            self.last = Some(exit.clone());
        }
        self.state = State::Waiting { reason: reason.to_owned(), message };
        (self.started, self.ready) = (false, false);
    }
}

/// The containers of a pod in the order in which they start, with what the pod's status remembers of them. A node that
/// starts again finds none of them running: what was is lost.
pub fn of_pod(pod: &Pod) -> Vec<Container> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let statuses = |of: fn(&k8s_openapi::api::core::v1::PodStatus) -> Option<&Vec<ContainerStatus>>| {
        pod.status.as_ref().and_then(of).map_or(&[][..], Vec::as_slice)
    };
    let inits = statuses(|status| status.init_container_statuses.as_ref());
    let mains = statuses(|status| status.container_statuses.as_ref());
    let ephemerals = statuses(|status| status.ephemeral_container_statuses.as_ref());
    let mut containers = specified(spec);
    for container in &mut containers {
        let of = match container.kind {
            Kind::Main => mains,
            Kind::Init | Kind::Sidecar => inits,
            Kind::Ephemeral => ephemerals,
        };
        if let Some(status) = of.iter().find(|status| status.name == container.name) {
            remember(container, status);
        }
    }
    containers
}

fn specified(spec: &PodSpec) -> Vec<Container> {
    let new = |one: &k8s_openapi::api::core::v1::Container, kind| {
        Container::new(&one.name, one.image.as_deref().unwrap_or_default(), kind)
    };
    let inits = spec.init_containers.iter().flatten().map(|one| {
        new(one, if one.restart_policy.as_deref() == Some("Always") { Kind::Sidecar } else { Kind::Init })
    });
    let mains = spec.containers.iter().map(|one| new(one, Kind::Main));
    inits.chain(mains).chain(ephemerals(spec)).collect()
}

/// The containers that were added to a pod that runs. They come after all others, in the order in which they were added.
pub fn ephemerals(spec: &PodSpec) -> impl Iterator<Item = Container> {
    let added = spec.ephemeral_containers.iter().flatten();
    added.map(|one| Container::new(&one.name, one.image.as_deref().unwrap_or_default(), Kind::Ephemeral))
}

fn remember(container: &mut Container, status: &ContainerStatus) {
    container.restarts = status.restart_count;
    container.image_id.clone_from(&status.image_id);
    container.id.clone_from(&status.container_id);
    container.resources.clone_from(&status.resources);
    container.last = status.last_state.as_ref().and_then(terminated);
    container.before = true;
    match status.state.as_ref() {
        Some(ContainerState { terminated: Some(exit), .. }) => container.state = State::Exited(exit_of(exit)),
        Some(ContainerState { running: Some(running), .. }) => {
            let mut exit = Exit::lost(
                "The container could not be located after the node was started again.  It used to be Running",
            );
            exit.from = running.started_at.as_ref().map(|time| time.0);
            exit.id.clone_from(&status.container_id);
            container.state = State::Exited(exit);
        }
        // Why it waited is found out anew, but that it ran before is not forgotten.
        _ => {
            if let Some(last) = container.last.take() {
                container.state = State::Exited(last);
            }
        }
    }
}

fn terminated(state: &ContainerState) -> Option<Exit> {
    state.terminated.as_ref().map(exit_of)
}

fn exit_of(exit: &ContainerStateTerminated) -> Exit {
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0);
    Exit {
        code: exit.exit_code,
        signal: exit.signal,
        reason: exit.reason.clone().unwrap_or_default(),
        message: exit.message.clone().unwrap_or_default(),
        from: time(&exit.started_at),
        to: time(&exit.finished_at),
        id: exit.container_id.clone(),
    }
}
