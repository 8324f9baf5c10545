//! Asking as somebody else (6.4): `Impersonate-User`, `-Group`, `-Uid` and `-Extra-…`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;

use super::attributes::{Attributes, What};
use super::rbac::Authorizer;
use super::user::{self, ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::status::Refusal;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// What the headers want to be.
#[derive(Default)]
struct Wanted<'a> {
    user: &'a str,
    groups: Vec<&'a str>,
    uid: &'a str,
    extra: BTreeMap<String, Vec<&'a str>>,
}

/// As whom a request is made: as its sender, or as whom the sender may impersonate.
pub(crate) fn user(
    headers: &HeaderMap,
    sender: &Arc<User>,
    authorizer: &Authorizer,
) -> Result<Arc<User>, Refusal> {
    let wanted = Wanted::read(headers)?;
    if wanted.is_nothing() {
        return Ok(sender.clone());
    }
    wanted.expect_user()?;
    for what in wanted.parts() {
        authorizer.expect(&Attributes { user: sender, verb: "impersonate", what })?;
    }
    Ok(Arc::new(wanted.user()))
}

impl<'a> Wanted<'a> {
    /// A header that says no text must not be passed over: the request would be made as its sender.
    fn read(headers: &'a HeaderMap) -> Result<Self, Refusal> {
        let texts = |name: &str| -> Result<Vec<&'a str>, Refusal> {
            let values = headers.get_all(name).iter().map(|value| std::str::from_utf8(value.as_bytes()));
            let no_text = |_| Refusal::bad_request(format!("the header {name} is not valid UTF-8"));
            values.collect::<Result<_, _>>().map_err(no_text)
        };
        let mut wanted = Wanted {
            user: texts(USER)?.first().copied().unwrap_or(""),
            groups: texts(GROUP)?,
            uid: texts(UID)?.first().copied().unwrap_or(""),
            extra: BTreeMap::new(),
        };
        for name in headers.keys().filter_map(|name| name.as_str().strip_prefix(EXTRA)) {
            let key = percent_encoding::percent_decode_str(name).decode_utf8_lossy().into_owned();
            wanted.extra.entry(key).or_default().extend(texts(&format!("{EXTRA}{name}"))?);
        }
        Ok(wanted)
    }

    fn is_nothing(&self) -> bool {
        self.user.is_empty() && self.groups.is_empty() && self.uid.is_empty() && self.extra.is_empty()
    }

    /// Groups and the rest are somebody's. The message prints what is wanted as Go prints references to objects.
    fn expect_user(&self) -> Result<(), Refusal> {
        if !self.user.is_empty() {
            return Ok(());
        }
        let reference = |kind: &str, name: &str, version: &str, field: &str| {
            format!("{{{kind}  {name}  {version}  {field}}}")
        };
        let groups = self.groups.iter().map(|name| reference("Group", name, "", ""));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(|value| reference("UserExtra", value, "authentication.k8s.io/v1", key))
        });
        let uid = (!self.uid.is_empty()).then(|| reference("UID", self.uid, "authentication.k8s.io/v1", ""));
        let all: Vec<String> = groups.chain(extra).chain(uid).collect();
        Err(Refusal::bad_request(format!("requested [{}] without impersonating a user", all.join(" "))))
    }

    /// Everything that has to be allowed.
    fn parts(&self) -> Vec<What<'_>> {
        let part = |group, version, resource, subresource, namespace, name| What::Resource {
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
        };
        let mut parts = Vec::new();
        parts.push(match user::as_service_account(self.user) {
            Some((namespace, name)) => part("", "", "serviceaccounts", "", namespace, name),
            None => part("", "", "users", "", "", self.user),
        });
        parts.extend(self.groups.iter().map(|name| part("", "", "groups", "", "", name)));
        for (key, values) in &self.extra {
            parts.extend(
                values.iter().map(|value| part("authentication.k8s.io", "v1", "userextras", key, "", value)),
            );
        }
        if !self.uid.is_empty() {
            parts.push(part("authentication.k8s.io", "v1", "uids", "", "", self.uid));
        }
        parts
    }

    fn user(&self) -> User {
        let mut groups: Vec<String> = self.groups.iter().map(|&group| group.to_owned()).collect();
        if let Some((namespace, _)) = user::as_service_account(self.user).filter(|_| groups.is_empty()) {
            groups = user::service_account_groups(namespace).into();
        }
        let has = |groups: &[String], name: &str| groups.iter().any(|group| group == name);
        if self.user == ANONYMOUS {
            if !has(&groups, UNAUTHENTICATED) {
                groups.push(UNAUTHENTICATED.to_owned());
            }
        } else if !has(&groups, AUTHENTICATED) && !has(&groups, UNAUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let extra = self.extra.iter();
        let extra =
            extra.map(|(key, values)| (key.clone(), values.iter().map(|&value| value.to_owned()).collect()));
        User { name: self.user.to_owned(), uid: self.uid.to_owned(), groups, extra: extra.collect() }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn rule_6_4_names_that_are_not_ascii_are_heard() {
        let headers = |name: &'static str, bytes: &[u8]| {
            HeaderMap::from_iter([(
                http::HeaderName::from_static(name),
                HeaderValue::from_bytes(bytes).expect("a value"),
            )])
        };
        let wanted = headers(USER, "jürgen".as_bytes());
        assert_eq!(Wanted::read(&wanted).expect("text").user, "jürgen");
        for name in [USER, GROUP, UID, "impersonate-extra-scope"] {
            let refusal = Wanted::read(&headers(name, b"\xff")).err().expect("no text");
            assert_eq!(refusal.code(), http::StatusCode::BAD_REQUEST, "{name}");
        }
    }
}
