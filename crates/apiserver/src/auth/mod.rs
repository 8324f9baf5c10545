//! Who asks, and whether that is allowed (section 6 of the rules).
//!
//! - [`user`]: who asks; [`attributes`]: what is asked, in the words of roles;
//! - `authn`: how a user is known; [`front_proxy`]: who is believed when he says for whom he asks; [`tokens`]: those of service accounts, which `token_request` makes and a [`signer`]
//!   signs; `openid`: how others check them;
//! - [`rbac`]: whether roles and bindings allow it;
//! - `impersonate`: asking as somebody else; [`Caller`]: asking from inside the process.
//!
//! - `reviews`: what can be asked about all this.
//!
//! Nothing here knows what becomes of a request that is allowed.

pub mod attributes;
pub(crate) mod authn;
mod caller;
pub mod front_proxy;
pub(crate) mod impersonate;
pub(crate) mod openid;
pub mod rbac;
pub(crate) mod reviews;
pub mod signer;
pub(crate) mod token_request;
pub mod tokens;
pub mod user;

pub use attributes::{Attributes, What};
pub use caller::Caller;
pub use user::User;

use std::sync::Arc;

use http::request;

use crate::cluster::Context;
use crate::request::{Asked, Query, Target, Verb};
use crate::status::{About, Refusal};

/// Whether a request is allowed, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// It is.
    pub allowed: bool,
    /// By what, or what went wrong in finding out; often empty.
    pub reason: String,
}

/// As whom a request is made, if that is allowed.
pub(crate) fn admitted(
    authorizer: &rbac::Authorizer,
    sender: &Arc<User>,
    head: &request::Parts,
    asked: &Asked,
    query: &Query,
) -> Result<Arc<User>, Refusal> {
    let user = impersonate::user(&head.headers, sender, authorizer)?;
    if !user.is_in(user::MASTERS) {
        let verb = attributes::verb(asked, &head.method);
        let name = attributes::selected_name(asked, head.uri.path(), query);
        authorizer.expect(&attributes::of(&user, &verb, asked, name.as_deref()))?;
    }
    Ok(user)
}

/// A write that makes an object, though it asks for a change, needs to be allowed to (2.41).
pub(crate) fn expect_create(context: &Context<'_>) -> Result<(), Refusal> {
    let target = Target { verb: Verb::Create, ..context.target.clone() };
    let asked = Asked::Resource(target);
    context.cluster.authorizer().expect(&attributes::of(context.user, "create", &asked, None))
}

/// Whoever talks to a container needs to be allowed to `create`, by whichever method (2.74): a WebSocket begins with
/// a GET, and must not need less than a POST.
pub(crate) fn expect_create_too(context: &Context<'_>) -> Result<(), Refusal> {
    if context.target.verb == Verb::Create {
        return Ok(());
    }
    let asked = Asked::Resource(context.target.clone());
    let decision = context.cluster.authorizer().decide(&attributes::of(context.user, "create", &asked, None));
    if decision.allowed { Ok(()) } else { Err(Refusal::forbidden(context.about(), &decision.reason)) }
}

/// The answer to a request that is not allowed (2.62).
pub(crate) fn forbidden(asked: &Attributes<'_>, reason: &str) -> Refusal {
    let (about, what) = match &asked.what {
        What::Path(path) => {
            let what = format!("{} path {}", asked.verb, types::go::quote(path));
            (About { group: "", resource: "", name: "" }, what)
        }
        What::Resource { group, resource, namespace, name, .. } => {
            let full = asked.what.qualified_resource();
            let scope = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {}", types::go::quote(namespace))
            };
            let (full, group_name) = (types::go::quote(&full), types::go::quote(group));
            let what = format!("{} resource {full} in API group {group_name} {scope}", asked.verb);
            (About { group, resource, name }, what)
        }
    };
    let why = format!("User {} cannot {what}", types::go::quote(&asked.user.name));
    // Whatever of it came from the client must not look like HTML.
    let why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let why = if reason.is_empty() { why } else { format!("{why}: {reason}") };
    Refusal::forbidden(about, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_2_62_forbidden_texts() {
        let user = User::named("u<b>");
        let mut asked = Attributes { user: &user, verb: "get", what: What::Path("/metrics") };
        let why = "forbidden: User \"u&lt;b&gt;\" cannot get path \"/metrics\"";
        assert_eq!(forbidden(&asked, "").to_string(), why);
        asked.what = What::Resource {
            group: "batch",
            version: "v1",
            resource: "jobs",
            subresource: "status",
            namespace: "n",
            name: "x",
        };
        let why = "jobs.batch \"x\" is forbidden: User \"u&lt;b&gt;\" cannot get resource \"jobs/status\" in API group \
                   \"batch\" in the namespace \"n\": because";
        assert_eq!(forbidden(&asked, "because").to_string(), why);
    }
}
