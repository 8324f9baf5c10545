//! All roles and bindings of a cluster, arranged so that what holds for a user is found without looking at the others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Deserialize;

use crate::auth::User;
use crate::auth::user::as_service_account;
use rules::rbac::Rule;

/// Namespace (empty for the cluster's) and name of a role or binding.
type Id = (String, String);

/// Roles and bindings. A clone shares nothing that changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Policy {
    roles: HashMap<Id, Arc<[Rule]>>,
    bindings: BTreeMap<Id, Arc<Binding>>,
    /// The names of the bindings of a namespace that name a subject.
    bound: HashMap<(String, Who), BTreeSet<String>>,
}

/// Somebody whom a binding names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Who {
    User(String),
    Group(String),
    ServiceAccount(String, String),
}

/// A binding: these may do what that role allows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Binding {
    subjects: Option<Vec<Subject>>,
    role_ref: RoleRef,
}

impl Binding {
    fn subjects(&self) -> &[Subject] {
        self.subjects.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

/// The role that a binding names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct Role {
    #[serde(default)]
    rules: Option<Vec<Rule>>,
}

/// A rule that holds for somebody, and the binding that makes it so, or the reason why it cannot be found.
pub(crate) type Held<'a> = Result<(&'a Rule, Source<'a>), Missing>;

/// Why the role that a binding names cannot be found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Missing {
    #[error("unsupported role reference kind: {}", types::go::quote(.0))]
    Unsupported(String),
    #[error("{singular}.rbac.authorization.k8s.io {} not found", types::go::quote(.name))]
    Absent { singular: &'static str, name: String },
}

/// Where a rule comes from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    id: &'a Id,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl Policy {
    /// Takes in a role, or forgets it.
    pub(crate) fn put_role(&mut self, namespace: &str, name: &str, bytes: Option<&[u8]>) {
        let id = (namespace.to_owned(), name.to_owned());
        match bytes.and_then(read::<Role>) {
            Some(role) => self.roles.insert(id, role.rules.unwrap_or_default().into()),
            None => self.roles.remove(&id),
        };
    }

    /// Takes in a binding, or forgets it.
    pub(crate) fn put_binding(&mut self, namespace: &str, name: &str, bytes: Option<&[u8]>) {
        let id = (namespace.to_owned(), name.to_owned());
        if let Some(old) = self.bindings.remove(&id) {
            for who in old.subjects().iter().filter_map(|subject| subject.who(namespace)) {
                let at = (namespace.to_owned(), who);
                if let Some(names) = self.bound.get_mut(&at) {
                    names.remove(name);
                    if names.is_empty() {
                        self.bound.remove(&at);
                    }
                }
            }
        }
        let Some(binding) = bytes.and_then(read::<Binding>) else { return };
        for who in binding.subjects().iter().filter_map(|subject| subject.who(namespace)) {
            self.bound.entry((namespace.to_owned(), who)).or_default().insert(name.to_owned());
        }
        self.bindings.insert(id, Arc::new(binding));
    }

    /// What nodes may do.
    pub(crate) fn node_rules(&self) -> &[Rule] {
        let id = (String::new(), "system:node".to_owned());
        self.roles.get(&id).map(AsRef::as_ref).unwrap_or_default()
    }

    /// All rules that hold for a user: the cluster's, then those of a namespace, each by the name of the binding.
    pub(crate) fn held<'a>(&'a self, user: &'a User, namespace: &'a str) -> impl Iterator<Item = Held<'a>> {
        let namespaces = if namespace.is_empty() { vec![""] } else { vec!["", namespace] };
        namespaces.into_iter().flat_map(move |namespace| {
            let names = self.bindings_of(user, namespace);
            names.into_iter().flat_map(move |name| self.held_by(user, namespace, name))
        })
    }

    /// The names of the bindings of one namespace that name a user.
    fn bindings_of(&self, user: &User, namespace: &str) -> BTreeSet<&str> {
        let account = as_service_account(&user.name)
            .map(|(namespace, name)| Who::ServiceAccount(namespace.to_owned(), name.to_owned()));
        let groups = user.groups.iter().map(|group| Who::Group(group.clone()));
        let whos = [Who::User(user.name.clone())].into_iter().chain(groups).chain(account);
        whos.filter_map(|who| self.bound.get(&(namespace.to_owned(), who)))
            .flatten()
            .map(String::as_str)
            .collect()
    }

    fn held_by<'a>(&'a self, user: &User, namespace: &str, name: &str) -> Vec<Held<'a>> {
        let found = self.bindings.get_key_value(&(namespace.to_owned(), name.to_owned()));
        let (id, binding) = found.expect("what is bound has a binding");
        let subject = binding.subjects().iter().find(|subject| subject.is(user, namespace));
        let Some(subject) = subject else { return Vec::new() };
        match self.rules_of(&binding.role_ref, namespace) {
            Ok(rules) => rules.iter().map(|rule| Ok((rule, Source { id, binding, subject }))).collect(),
            Err(why) => vec![Err(why)],
        }
    }

    /// The rules of the role that a binding of a namespace names.
    pub(crate) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], Missing> {
        let (of, singular) = match role.kind.as_str() {
            "Role" => (namespace, "role"),
            "ClusterRole" => ("", "clusterrole"),
            kind => return Err(Missing::Unsupported(kind.to_owned())),
        };
        let found = self.roles.get(&(of.to_owned(), role.name.clone()));
        found.map(AsRef::as_ref).ok_or_else(|| Missing::Absent { singular, name: role.name.clone() })
    }
}

/// What is stored passed the rules of its kind. Should it not be what is expected all the same, it allows nothing.
fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let read = serde_json::from_slice(bytes);
    read.inspect_err(|error| tracing::warn!(%error, "a role or binding cannot be read")).ok()
}

impl Subject {
    fn who(&self, namespace: &str) -> Option<Who> {
        match self.kind.as_str() {
            "User" => Some(Who::User(self.name.clone())),
            "Group" => Some(Who::Group(self.name.clone())),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                Some(Who::ServiceAccount(namespace.to_owned(), self.name.clone()))
            }
            _ => None,
        }
    }

    fn is(&self, user: &User, namespace: &str) -> bool {
        match self.who(namespace) {
            Some(Who::User(name)) => name == user.name,
            Some(Who::Group(name)) => user.is_in(&name),
            Some(Who::ServiceAccount(of, name)) => {
                as_service_account(&user.name) == Some((of.as_str(), name.as_str()))
            }
            None => false,
        }
    }
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Source { id: (namespace, name), binding, subject } = self;
        let quote = types::go::quote;
        let (kind, name) = if namespace.is_empty() {
            ("ClusterRoleBinding", quote(name))
        } else {
            ("RoleBinding", quote(&format!("{name}/{namespace}")))
        };
        let whom = if subject.kind == "ServiceAccount" {
            let of = if subject.namespace.is_empty() { namespace } else { &subject.namespace };
            quote(&format!("{}/{of}", subject.name))
        } else {
            quote(&subject.name)
        };
        let role = &binding.role_ref;
        write!(f, "{kind} {name} of {} {} to {} {whom}", role.kind, quote(&role.name), subject.kind)
    }
}
