//! Who asks: a name, groups, and what else is vouched for.

use std::collections::BTreeMap;

/// The group of those who may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of all users that are known.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody who did not.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The name of the anonymous user.
pub const ANONYMOUS: &str = "system:anonymous";

/// What tells one credential of a user from another.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Somebody who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// His name.
    pub name: String,
    /// Tells two of the same name apart; often empty.
    pub uid: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// What else is known.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody of this name, in no group.
    pub fn named(name: impl Into<String>) -> Self {
        User { name: name.into(), ..User::default() }
    }

    /// He is in these groups too.
    pub fn in_groups<S: Into<String>>(mut self, groups: impl IntoIterator<Item = S>) -> Self {
        self.groups.extend(groups.into_iter().map(Into::into));
        self
    }

    /// The server itself, and whoever in its process says nothing else.
    pub fn server() -> Self {
        User::named("system:apiserver").in_groups([MASTERS, AUTHENTICATED])
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        User::named(ANONYMOUS).in_groups([UNAUTHENTICATED])
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        User::named(service_account_name(namespace, name)).in_groups(service_account_groups(namespace))
    }

    /// Whether the user is in a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|known| known == group)
    }

    /// The user is known by now, and in the group of all who are (6.1).
    pub(crate) fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.is_in(AUTHENTICATED) && !self.is_in(UNAUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// The name of a service account as a user.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT}{namespace}:{name}")
}

/// The groups that every service account of a namespace is in.
pub fn service_account_groups(namespace: &str) -> [String; 2] {
    ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

/// The namespace and name of the service account that a user is, if it is one.
pub fn as_service_account(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_name = rules::names::dns_subdomain(name).is_empty();
    (is_name && rules::names::dns_label(namespace).is_empty()).then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_told_by_their_names() {
        assert_eq!(as_service_account("system:serviceaccount:a:b.c"), Some(("a", "b.c")));
        for other in
            ["a", "system:serviceaccount:a", "system:serviceaccount:a:", "system:serviceaccount:a:b:c"]
        {
            assert_eq!(as_service_account(other), None, "{other}");
        }
    }
}
