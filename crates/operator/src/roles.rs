//! Roles for people: whoever administers queues, whoever submits jobs, and whoever only looks (OB-3).
//!
//! They have Kueue's names and labels, so that bindings that are there stay true. None of them is for the operator.

use rules::framework::{Kind, apps::STATEFUL_SET, kinds, pod::POD};
use serde_json::{Value, json};

const KUEUE: &str = "kueue.x-k8s.io";
const VISIBILITY: &str = "visibility.kueue.x-k8s.io";
const EDIT: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const VIEW: [&str; 3] = ["get", "list", "watch"];

/// Who may see objects of a kind without being asked to administer queues, and who may change them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    /// Administrators do both.
    Administrators,
    /// Everybody sees them, administrators change them.
    Everybody,
    /// Everybody does both.
    Users,
}

/// Kueue's own kinds: their name, their name in paths, whether they have a status, and for whom they are.
const OWN: [(&str, &str, bool, For); 6] = [
    ("clusterqueue", "clusterqueues", true, For::Administrators),
    ("cohort", "cohorts", false, For::Administrators),
    ("localqueue", "localqueues", true, For::Everybody),
    ("resourceflavor", "resourceflavors", false, For::Administrators),
    ("topology", "topologies", false, For::Administrators),
    ("workload", "workloads", true, For::Everybody),
];

/// All of them.
pub fn all() -> Vec<Value> {
    let mut roles = vec![aggregated("batch-admin"), aggregated("batch-user")];
    for (name, plural, status, whose) in OWN {
        roles.extend(of_kind(name, KUEUE, plural, status, whose));
    }
    // What Kubernetes itself brings along, beside Jobs, its own roles speak of.
    let others = kinds().filter(|kind| ![POD.group, STATEFUL_SET.group].contains(&kind.group));
    for Kind { group, kind, plural, .. } in others {
        roles.extend(of_kind(&kind.to_lowercase(), group, plural, true, For::Users));
    }
    let pending = |queues: &str| [rule(VISIBILITY, &format!("{queues}/pendingworkloads"), &VIEW)];
    roles.push(role("pending-workloads-cq-viewer", Seen::ByAll, false, &pending("clusterqueues")));
    roles.push(role("pending-workloads-lq-viewer", Seen::ByAll, true, &pending("localqueues")));
    roles
}

/// A role that is the sum of those with a label. What is in it is for the cluster to say.
fn aggregated(name: &str) -> Value {
    let label = format!("rbac.kueue.x-k8s.io/{name}");
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": format!("kueue-{name}-role") },
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { label: "true" } }] },
    })
}

/// Into which of the roles that every cluster has a role goes.
#[derive(Clone, Copy)]
enum Seen {
    Nowhere,
    ByAdministrators,
    ByAll,
}

fn of_kind(name: &str, group: &str, plural: &str, status: bool, whose: For) -> [Value; 2] {
    let rules = |verbs: &[&str]| {
        let mut rules = vec![rule(group, plural, verbs)];
        if status {
            rules.push(rule(group, &format!("{plural}/status"), &["get"]));
        }
        rules
    };
    let seen = if whose == For::Administrators { Seen::ByAdministrators } else { Seen::ByAll };
    [
        role(&format!("{name}-editor"), Seen::Nowhere, whose == For::Users, &rules(&EDIT)),
        role(&format!("{name}-viewer"), seen, whose != For::Administrators, &rules(&VIEW)),
    ]
}

fn role(name: &str, seen: Seen, of_users: bool, rules: &[Value]) -> Value {
    let mut labels = json!({ "rbac.kueue.x-k8s.io/role": name, "rbac.kueue.x-k8s.io/batch-admin": "true" });
    if of_users {
        labels["rbac.kueue.x-k8s.io/batch-user"] = "true".into();
    }
    let into: &[&str] = match seen {
        Seen::Nowhere => &[],
        Seen::ByAdministrators => &["admin"],
        Seen::ByAll => &["admin", "edit", "view"],
    };
    for role in into {
        labels[format!("rbac.authorization.k8s.io/aggregate-to-{role}")] = "true".into();
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": format!("kueue-{name}-role"), "labels": labels },
        "rules": rules,
    })
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}
