//! What is asked, in the words that roles use.

use http::Method;
pub use rules::rbac::What;

use super::user::User;
use crate::request::{Asked, Query, Verb};
use crate::selector::Fields;

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

/// The verb of a request, as authorization sees it.
pub(crate) fn verb(asked: &Asked, method: &Method) -> String {
    match asked {
        Asked::Resource(target) => target.verb.word().to_owned(),
        Asked::Path(_) => method.as_str().to_ascii_lowercase(),
    }
}

/// The name of an object that a request for many confines itself to (1.5): roles for single objects allow it too.
pub(crate) fn selected_name(asked: &Asked, query: &Query) -> Option<String> {
    let Asked::Resource(target) = asked else { return None };
    if target.name.is_some() || !matches!(target.verb, Verb::List | Verb::Watch | Verb::DeleteCollection) {
        return None;
    }
    let fields = Fields::parse(query.get("fieldSelector")?).ok()?;
    let name = fields.exact("metadata.name")?;
    rules::names::path_segment(name).is_empty().then(|| name.to_owned())
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
    fn rule_1_5_a_selector_of_one_name_names_it() {
        let name = |method: &Method, path: &str, selector: &str| {
            let query = Query::read(&format!("fieldSelector={selector}"));
            let asked = Asked::read(method, path, &query).expect("asked");
            selected_name(&asked, &query)
        };
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name=a"), Some("a".to_owned()));
        assert_eq!(name(&Method::DELETE, "/api/v1/pods", "metadata.name=a"), Some("a".to_owned()));
        assert_eq!(name(&Method::GET, "/api/v1/pods", "metadata.name!=a"), None);
        assert_eq!(name(&Method::GET, "/api/v1/namespaces/n/pods/b", "metadata.name=a"), None);
        assert_eq!(name(&Method::POST, "/api/v1/namespaces/n/pods", "metadata.name=a"), None);
    }
}
