//! What becomes of a pod.

use std::{collections::BTreeMap, time::Duration};

/// The exit code of a program that does nothing about SIGTERM, as a shell tells it.
const TERMINATED: i32 = 128 + 15;
/// And about SIGKILL.
pub(super) const KILLED: i32 = 128 + 9;

/// What a pod does from the moment it is told so: once it is bound, or when a test says otherwise.
///
/// ```
/// # use std::time::Duration;
/// # use testkit::Behaviour;
/// Behaviour::exits(0);
/// Behaviour::exits(1).after(Duration::from_secs(2));
/// Behaviour::exits(0).container("sidecar", 3);
/// Behaviour::runs().on_delete(0, Duration::from_millis(500));
/// Behaviour::disrupted("PreemptionByScheduler");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    pub(super) course: Course,
    pub(super) after: Duration,
    pub(super) codes: BTreeMap<String, i32>,
    pub(super) deleted_code: i32,
    pub(super) deleted_after: Duration,
}

/// How far a pod gets.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Course {
    Unschedulable,
    Creating,
    Running { ready: bool },
    Exiting { code: i32 },
    Disrupted { reason: String },
}

impl Behaviour {
    /// Runs, ready, until it is deleted.
    pub fn runs() -> Behaviour {
        Behaviour::new(Course::Running { ready: true })
    }

    /// Runs and never becomes ready.
    pub fn never_ready() -> Behaviour {
        Behaviour::new(Course::Running { ready: false })
    }

    /// Runs, and then every container ends with this exit code; `restartPolicy` decides what follows.
    pub fn exits(code: i32) -> Behaviour {
        Behaviour::new(Course::Exiting { code })
    }

    /// Runs, and then fails with the condition `DisruptionTarget` and this reason (`PreemptionByScheduler`,
    /// `EvictionByEvictionAPI`, `TerminationByKubelet`…), every container killed.
    pub fn disrupted(reason: &str) -> Behaviour {
        Behaviour::new(Course::Disrupted { reason: reason.to_owned() })
    }

    /// Is bound to the node, and its containers are never created.
    pub fn creating() -> Behaviour {
        Behaviour::new(Course::Creating)
    }

    /// Finds no node.
    pub fn unschedulable() -> Behaviour {
        Behaviour::new(Course::Unschedulable)
    }

    /// How long it runs before it ends. Unless said it ends at once, and is never seen running.
    pub fn after(mut self, run: Duration) -> Behaviour {
        self.after = run;
        self
    }

    /// Another exit code for one of the containers.
    pub fn container(mut self, name: &str, code: i32) -> Behaviour {
        self.codes.insert(name.to_owned(), code);
        self
    }

    /// What happens when the pod is deleted while it runs: so long after the signal it exits with `code`, or is killed
    /// when its grace period is over before. Unless said it exits with 143, at once.
    pub fn on_delete(mut self, code: i32, after: Duration) -> Behaviour {
        (self.deleted_code, self.deleted_after) = (code, after);
        self
    }

    fn new(course: Course) -> Behaviour {
        let codes = BTreeMap::new();
        Behaviour {
            course,
            after: Duration::ZERO,
            codes,
            deleted_code: TERMINATED,
            deleted_after: Duration::ZERO,
        }
    }
}
