//! The events that the Job controller tells about a Job.

/// An event about a Job; its source component is `job-controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub kind: Kind,
    /// The machine-readable reason.
    pub reason: String,
    /// What is told.
    pub message: String,
}

/// Whether an event is one to worry about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All is well.
    Normal,
    /// Something is not.
    Warning,
}

impl Kind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        }
    }
}

impl Event {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        Event { kind: Kind::Normal, reason: reason.to_owned(), message: message.into() }
    }

    fn warning(reason: &str, message: impl Into<String>) -> Self {
        Event { kind: Kind::Warning, reason: reason.to_owned(), message: message.into() }
    }

    /// V-01: a pod was created.
    pub fn pod_created(name: &str) -> Self {
        Event::normal("SuccessfulCreate", format!("Created pod: {name}"))
    }

    /// V-02: a pod was not created. Not told when the namespace is terminating.
    pub fn pod_not_created(error: &str) -> Self {
        Event::warning("FailedCreate", format!("Error creating: {error}"))
    }

    /// V-03: a pod was deleted.
    pub fn pod_deleted(name: &str) -> Self {
        Event::normal("SuccessfulDelete", format!("Deleted pod: {name}"))
    }

    /// V-04: a pod was not deleted. Not told when it was gone.
    pub fn pod_not_deleted(error: &str) -> Self {
        Event::warning("FailedDelete", format!("Error deleting: {error}"))
    }

    /// V-05: the Job was suspended.
    pub(crate) fn suspended() -> Self {
        Event::normal("Suspended", "Job suspended")
    }

    /// V-05: the Job was resumed.
    pub(crate) fn resumed() -> Self {
        Event::normal("Resumed", "Job resumed")
    }

    /// V-06: the Job is complete, by whatever rule.
    pub(crate) fn completed() -> Self {
        Event::normal("Completed", "Job completed")
    }

    /// V-07: the Job has failed.
    pub(crate) fn failed(reason: &str, message: &str) -> Self {
        Event::warning(reason, message)
    }

    /// V-08: more pods succeeded than were wanted.
    pub(crate) fn too_many_succeeded() -> Self {
        Event::warning(
            "TooManySucceededPods",
            "Too many succeeded pods running after completion count reached",
        )
    }

    /// V-09: the Job is of a kind that this controller does not know.
    pub(crate) fn unknown_completion_mode() -> Self {
        Event::warning("UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v_01_to_v_09_as_users_read_them() {
        let too_many = "Too many succeeded pods running after completion count reached";
        for (event, kind, reason, message) in [
            (Event::pod_created("p"), "Normal", "SuccessfulCreate", "Created pod: p"),
            (Event::pod_not_created("no"), "Warning", "FailedCreate", "Error creating: no"),
            (Event::pod_deleted("p"), "Normal", "SuccessfulDelete", "Deleted pod: p"),
            (Event::pod_not_deleted("no"), "Warning", "FailedDelete", "Error deleting: no"),
            (Event::suspended(), "Normal", "Suspended", "Job suspended"),
            (Event::resumed(), "Normal", "Resumed", "Job resumed"),
            (Event::completed(), "Normal", "Completed", "Job completed"),
            (Event::failed("Why", "because"), "Warning", "Why", "because"),
            (Event::too_many_succeeded(), "Warning", "TooManySucceededPods", too_many),
            (
                Event::unknown_completion_mode(),
                "Warning",
                "UnknownCompletionMode",
                "Skipped Job sync because completion mode is unknown",
            ),
        ] {
            assert_eq!((event.kind.as_str(), &*event.reason, &*event.message), (kind, reason, message));
        }
    }
}
