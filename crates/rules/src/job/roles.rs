//! What the built-in controllers of Jobs may do in a cluster (API-14): the rules of their ClusterRoles.

/// One rule of a role: what may be done with resources of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The resource, or a subresource of it.
    pub resource: &'static str,
    /// What may be done.
    pub verbs: &'static [&'static str],
}

const fn rule(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Rule {
    Rule { group, resource, verbs }
}

/// `system:controller:job-controller`.
pub const JOB_CONTROLLER: [Rule; 6] = [
    rule("", "events", &["create", "patch", "update"]),
    rule("", "pods", &["create", "delete", "list", "patch", "watch"]),
    rule("batch", "jobs", &["get", "list", "patch", "update", "watch"]),
    rule("batch", "jobs/finalizers", &["update"]),
    rule("batch", "jobs/status", &["update"]),
    rule("events.k8s.io", "events", &["create", "patch", "update"]),
];

/// `system:controller:ttl-after-finished-controller`.
pub const TTL_AFTER_FINISHED: [Rule; 3] = [
    rule("", "events", &["create", "patch", "update"]),
    rule("batch", "jobs", &["delete", "get", "list", "watch"]),
    rule("events.k8s.io", "events", &["create", "patch", "update"]),
];
