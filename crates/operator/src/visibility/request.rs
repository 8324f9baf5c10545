//! What a request asks for.

use http::{HeaderMap, Method, header};
use percent_encoding::percent_decode_str;
use rules::visibility::{GROUP, Page, VERSIONS};

use super::status::Refusal;

/// What a path asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked<'a> {
    /// Something of the API group.
    Resource(Target<'a>),
    /// Something else.
    Path(&'a str),
}

/// Something of the API group. What there is not is a target, too: whether somebody may ask for it is asked first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) version: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) resource: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) subresource: Option<&'a str>,
    /// Whether there is more than that in the path.
    pub(super) is_longer: bool,
}

/// A queue that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue<'a> {
    Cluster(&'a str),
    Local { namespace: &'a str, name: &'a str },
}

/// Reads a path. Its parts are taken as they stand: names of queues need no escapes.
pub(super) fn read(path: &str) -> Asked<'_> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let ["apis", group, version, rest @ ..] = parts.as_slice() else { return Asked::Path(path) };
    if *group != GROUP || !VERSIONS.contains(version) {
        return Asked::Path(path);
    }
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        rest => (None, rest),
    };
    let [resource, rest @ ..] = rest else { return Asked::Path(path) };
    let (name, subresource) = (rest.first().copied(), rest.get(1).copied());
    Asked::Resource(Target { version, namespace, resource, name, subresource, is_longer: rest.len() > 2 })
}

impl<'a> Target<'a> {
    /// The queue that it is about.
    pub(super) fn queue(&self) -> Option<Queue<'a>> {
        if self.subresource != Some("pendingworkloads") || self.is_longer {
            return None;
        }
        match (self.resource, self.namespace, self.name) {
            ("clusterqueues", None, Some(name)) => Some(Queue::Cluster(name)),
            ("localqueues", Some(namespace), Some(name)) => Some(Queue::Local { namespace, name }),
            _ => None,
        }
    }

    /// What is done to it, in the words of a role.
    pub(super) fn verb(&self, method: &Method) -> &'static str {
        match *method {
            Method::GET | Method::HEAD if self.name.is_some() => "get",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if self.name.is_some() => "delete",
            Method::DELETE => "deletecollection",
            // No role allows what has no name.
            _ => "",
        }
    }
}

/// The part of a queue that a query asks for; of a parameter that is there twice the first counts.
pub(super) fn page(query: &str) -> Result<Page, String> {
    let find = |wanted: &str| {
        let parameters = query.split('&').map(|part| part.split_once('=').unwrap_or((part, "")));
        let mut found = parameters.filter(|(name, _)| text(name) == wanted);
        found.next().map(|(_, value)| text(value))
    };
    Page::read(find("offset").as_deref(), find("limit").as_deref())
}

/// A part of a query as it was before it was one.
fn text(part: &str) -> String {
    percent_decode_str(&part.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Nothing here can be written.
pub(super) fn expect_read(method: &Method) -> Result<(), Refusal> {
    if [Method::GET, Method::HEAD].contains(method) { Ok(()) } else { Err(Refusal::MethodNotAllowed) }
}

/// Answers are JSON.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Refusal> {
    let takes = |clause: &str| {
        let media = clause.split(';').next().unwrap_or_default().trim();
        let is_another_form = clause.split(';').any(|part| part.trim().starts_with("as="));
        matches!(media, "" | "*/*" | "application/*" | "application/json") && !is_another_form
    };
    let accept = headers.get(header::ACCEPT).map_or(Ok(""), header::HeaderValue::to_str).unwrap_or_default();
    if accept.split(',').any(takes) { Ok(()) } else { Err(Refusal::NotAcceptable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vi_1_which_queue_is_asked_about() {
        let queue = |path: &'static str| match read(path) {
            Asked::Resource(target) => target.queue(),
            Asked::Path(_) => None,
        };
        let root = "/apis/visibility.kueue.x-k8s.io/v1beta2";
        let check = |path: &str, expected: Option<Queue<'_>>| {
            let path: &'static str = format!("{root}{path}").leak();
            assert_eq!(queue(path), expected, "{path}");
        };
        check("/clusterqueues/a.b/pendingworkloads", Some(Queue::Cluster("a.b")));
        let local = Queue::Local { namespace: "n", name: "q" };
        check("/namespaces/n/localqueues/q/pendingworkloads", Some(local));
        for path in [
            "",
            "/clusterqueues",
            "/clusterqueues/a",
            "/clusterqueues/a/status",
            "/clusterqueues/a/pendingworkloads/b",
            "/localqueues/q/pendingworkloads",
            "/namespaces/n/clusterqueues/q/pendingworkloads",
            "/namespaces/n",
            "/workloads/w/pendingworkloads",
        ] {
            check(path, None);
        }
        for path in ["/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a", "/apis/visibility.kueue.x-k8s.io/v1/a"] {
            assert!(matches!(read(path), Asked::Path(_)), "{path}");
        }
    }

    #[test]
    fn vi_1_parameters_of_a_query() {
        let of = |offset, limit| Ok(Page { offset, limit });
        assert_eq!(page(""), of(0, 1000));
        assert_eq!(page("limit=5&offset=2&pretty=true"), of(2, 5));
        assert_eq!(page("li%6Dit=%35&limit=6"), of(0, 5));
        assert!(page("limit").is_err() && page("offset=+1").is_err() && page("offset=a").is_err());
    }

    #[test]
    fn answers_are_taken_as_json_or_not_at_all() {
        let takes = |accept: &str| {
            let accept = accept.parse().expect("a value");
            expect_json(&HeaderMap::from_iter([(header::ACCEPT, accept)])).is_ok()
        };
        assert!(expect_json(&HeaderMap::new()).is_ok());
        assert!(
            takes("application/json, */*") && takes("application/vnd.kubernetes.protobuf,application/json")
        );
        assert!(!takes("application/vnd.kubernetes.protobuf") && !takes("application/yaml"));
        assert!(!takes("application/json;as=Table;v=v1;g=meta.k8s.io"));
        assert!(takes("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"));
    }
}
