//! What is asked, in the words that roles use.

use http::Method;
pub use rules::rbac::What;

use super::user::User;
use crate::options::integer;
use crate::request::{Asked, Query, Verb, decoded_path};
use crate::selector::{Fields, Labels};

/// Somebody asks something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Who asks.
    pub user: &'a User,
    /// What is to be done: a verb, or a method in lower case.
    pub verb: &'a str,
    /// With what.
    pub what: What<'a>,
}

/// Methods that ask something of a resource.
const STAND_FOR_VERBS: [Method; 6] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// The verb of a request, as authorization sees it.
pub(crate) fn verb(asked: &Asked, method: &Method) -> String {
    match asked {
        // A method that stands for no verb is one that only roles for all verbs allow.
        Asked::Resource(_) if !STAND_FOR_VERBS.contains(method) => String::new(),
        Asked::Resource(target) => target.verb.word().to_owned(),
        Asked::Path(_) => method.as_str().to_ascii_lowercase(),
    }
}

/// The name of the object that a list or a watch confines itself to (1.5): roles for single objects allow it too. Neither
/// a removal of many nor a watch by the deprecated path is so confined, nor what has options that cannot be read.
pub(crate) fn selected_name(asked: &Asked, path: &str, query: &Query) -> Option<String> {
    let Asked::Resource(target) = asked else { return None };
    let is_confined = target.name.is_none() && matches!(target.verb, Verb::List | Verb::Watch);
    let is_readable = ["limit", "timeoutSeconds"]
        .iter()
        .filter_map(|name| query.get(name))
        .all(|text| integer(text).is_ok())
        && Labels::parse(query.get("labelSelector").unwrap_or("")).is_ok();
    if !is_confined || !is_readable || is_watch_path(path) {
        return None;
    }
    let fields = Fields::parse(query.get("fieldSelector")?).ok()?;
    let name = fields.exact("metadata.name")?;
    rules::names::path_segment(name).is_empty().then(|| name.to_owned())
}

/// Whether a path says by itself that it watches.
fn is_watch_path(path: &str) -> bool {
    let path = decoded_path(path);
    let mut parts = path.trim_matches('/').split('/');
    let before = if parts.next() == Some("api") { 1 } else { 2 };
    parts.nth(before) == Some("watch")
}

/// What a request asks, once its parts are known.
pub(crate) fn of<'a>(
    user: &'a User,
    verb: &'a str,
    asked: &'a Asked,
    selected: Option<&'a str>,
) -> Attributes<'a> {
    let what = match asked {
        Asked::Path(path) => What::Path(path),
        Asked::Resource(target) => What::Resource {
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            // What follows the subresource, such as a path to be proxied, is nothing that roles speak of.
            subresource: target.subresource.as_deref().and_then(|text| text.split('/').next()).unwrap_or(""),
            namespace: target.namespace.as_deref().unwrap_or(""),
            name: target.name.as_deref().or(selected).unwrap_or(""),
        },
    };
    Attributes { user, verb, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_1_5_methods_without_a_verb() {
        let proxied = Asked::read(&Method::OPTIONS, "/api/v1/namespaces/n/pods/p/proxy", &Query::default());
        let proxied = proxied.expect("asked");
        assert_eq!(verb(&proxied, &Method::GET), "get");
        assert_eq!(verb(&proxied, &Method::HEAD), "get");
        assert_eq!(verb(&proxied, &Method::OPTIONS), "");
        assert_eq!(verb(&Asked::Path("/healthz".to_owned()), &Method::OPTIONS), "options");
    }

    #[test]
    fn rule_1_5_a_selector_of_one_name_names_it() {
        let name = |method: &Method, path: &str, selector: &str| {
            let query = Query::read(&format!("fieldSelector={selector}"));
            let asked = Asked::read(method, path, &query).expect("asked");
            selected_name(&asked, path, &query)
        };
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name=a"), Some("a".to_owned()));
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name=a&watch=1"), Some("a".to_owned()));
        assert_eq!(name(&Method::DELETE, "/api/v1/pods", "metadata.name=a"), None);
        assert_eq!(name(&Method::GET, "/api/v1/watch/pods", "metadata.name=a"), None);
        assert_eq!(name(&Method::GET, "/apis/batch/v1/watch/namespaces/n/jobs", "metadata.name=a"), None);
        assert_eq!(name(&Method::GET, "/api/v1/w%61tch/pods", "metadata.name=a"), None);
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name=a&limit=x"), None);
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name=a&labelSelector=,"), None);
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name!=a"), None);
        assert_eq!(name(&Method::GET, "/api/v1/namespaces/n/pods/b", "metadata.name=a"), None);
        assert_eq!(name(&Method::POST, "/api/v1/namespaces/n/pods", "metadata.name=a"), None);
    }
}
