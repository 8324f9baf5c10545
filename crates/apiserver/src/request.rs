//! What a method and a path ask for (1.5), before anybody knows whether it exists.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

/// The subresource that passes requests on, of every method.
const PROXY: &str = "proxy";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// Something about objects.
    Resource(Target),
    /// Anything else: discovery, health, version, metrics.
    Path(String),
}

/// A request about objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What is to be done.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The namespace, if one is named.
    pub namespace: Option<String>,
    /// The plural name of the resource.
    pub resource: String,
    /// The name of the object, if one is named.
    pub name: Option<String>,
    /// The subresource and what follows it.
    pub subresource: Option<String>,
}

/// What can be done with objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Read one.
    Get,
    /// Read many.
    List,
    /// Be told of changes.
    Watch,
    /// Make one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Remove one.
    Delete,
    /// Remove many.
    DeleteCollection,
}

impl Verb {
    /// The word that authorization and discovery use.
    pub fn word(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }
}

impl Asked {
    /// Reads method, path and the query parameters that change the meaning of a GET. `None` if no verb fits the method. The path
    /// is decoded as a whole before anybody looks for its parts, so that a slash is one however it is written.
    pub fn read(method: &Method, path: &str, query: &Query) -> Option<Asked> {
        let path = &*decoded_path(path);
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, rest) = match parts.as_slice() {
            ["api", rest @ ..] => ("", rest),
            ["apis", group, rest @ ..] => (*group, rest),
            _ => return Some(Asked::Path(path.to_owned())),
        };
        let [version, rest @ ..] = rest else { return Some(Asked::Path(path.to_owned())) };
        let (watches, rest) = match rest {
            ["watch"] => return Some(Asked::Path(path.to_owned())),
            ["watch", rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        // `namespaces/x/jobs` is about Jobs in x, but `namespaces/x/status` is about the namespace x.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, third, rest @ ..]
                if !matches!(*third, "status" | "finalize") || !rest.is_empty() =>
            {
                (Some((*namespace).to_owned()).filter(|name| !name.is_empty()), [&[*third], rest].concat())
            }
            ["namespaces", name, rest @ ..] => {
                (Some((*name).to_owned()), [&["namespaces", *name], rest].concat())
            }
            rest => (None, rest.to_vec()),
        };
        let [resource, rest @ ..] = rest.as_slice() else { return Some(Asked::Path(path.to_owned())) };
        let (name, subresource) = match rest {
            [] => (None, None),
            [name] => (Some((*name).to_owned()), None),
            // What follows is for whoever is behind it.
            [name, PROXY, ..] => (Some((*name).to_owned()), Some(PROXY.to_owned())),
            [name, subresource @ ..] => (Some((*name).to_owned()), Some(subresource.join("/"))),
        };
        // Only a collection is watched by a parameter; the deprecated path watches what it names.
        let watches = watches || name.is_none() && query.watches();
        let verb = match (subresource.as_deref(), method.as_str()) {
            (Some(PROXY), "HEAD" | "OPTIONS") => Verb::Get,
            _ => verb(method, name.is_some(), watches)?,
        };
        Some(Asked::Resource(Target {
            verb,
            group: group.to_owned(),
            version: (*version).to_owned(),
            namespace,
            resource: (*resource).to_owned(),
            name,
            subresource,
        }))
    }
}

fn verb(method: &Method, has_name: bool, watches: bool) -> Option<Verb> {
    Some(match (method.as_str(), has_name) {
        ("GET", _) if watches => Verb::Watch,
        ("GET", true) => Verb::Get,
        ("GET", false) => Verb::List,
        ("POST", _) => Verb::Create,
        ("PUT", _) => Verb::Update,
        ("PATCH", _) => Verb::Patch,
        ("DELETE", true) => Verb::Delete,
        ("DELETE", false) => Verb::DeleteCollection,
        _ => return None,
    })
}

/// A path as it is meant.
pub(crate) fn decoded_path(path: &str) -> Cow<'_, str> {
    percent_decode_str(path).decode_utf8_lossy()
}

/// Whether every `%` of a path begins a byte.
pub(crate) fn is_decodable(path: &str) -> bool {
    let is_byte = |text: &str| text.len() > 1 && text.bytes().take(2).all(|digit| digit.is_ascii_hexdigit());
    path.split('%').skip(1).all(is_byte)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The parameters after the `?`, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads what stands after the `?`.
    pub fn read(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let plain = |text: &str| decoded(&text.replace('+', " "));
        Query(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (plain(k), plain(v)))
                .collect(),
        )
    }

    /// The first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// A switch: on unless it is absent, `0` or `false`, however that is spelled (§9, 2.6).
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    fn watches(&self) -> bool {
        self.is_on("watch")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(method: &str, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let method = method.parse().expect("a method");
        let got = match Asked::read(&method, path, &Query::read(query)) {
            None => "nothing".to_owned(),
            Some(Asked::Path(path)) => format!("path {path}"),
            Some(Asked::Resource(target)) => {
                let part = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
                format!(
                    "{} {}/{} {} {} {} {}",
                    target.verb.word(),
                    target.group,
                    target.version,
                    part(target.namespace),
                    target.resource,
                    part(target.name),
                    part(target.subresource)
                )
            }
        };
        assert_eq!(got, expected, "{method} {path}");
    }

    #[test]
    fn rule_1_5_paths() {
        check("GET", "/api/v1/pods", "list /v1 - pods - -");
        check("GET", "/api/v1/namespaces/a/pods", "list /v1 a pods - -");
        check("GET", "/api/v1/namespaces/a/pods/p/log", "get /v1 a pods p log");
        check("GET", "/api/v1/namespaces/a", "get /v1 a namespaces a -");
        check("PUT", "/api/v1/namespaces/a/status", "update /v1 a namespaces a status");
        check("PUT", "/api/v1/namespaces/a/finalize", "update /v1 a namespaces a finalize");
        check("GET", "/api/v1/namespaces", "list /v1 - namespaces - -");
        check("POST", "/apis/batch/v1/namespaces/a/jobs", "create batch/v1 a jobs - -");
        check("DELETE", "/apis/batch/v1/namespaces/a/jobs", "deletecollection batch/v1 a jobs - -");
        check("DELETE", "/apis/batch/v1/namespaces/a/jobs/j", "delete batch/v1 a jobs j -");
        check("PATCH", "/apis/batch/v1/namespaces/a/jobs/j/status", "patch batch/v1 a jobs j status");
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x",
            "get rbac.authorization.k8s.io/v1 - clusterroles system:x -",
        );
        check(
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%2Fb",
            "get rbac.authorization.k8s.io/v1 - clusterroles a b",
        );
        check("OPTIONS", "/api/v1/pods", "nothing");
        check("HEAD", "/api/v1/pods", "nothing");
        let proxied = "/api/v1/namespaces/n/pods/p/proxy/some/where";
        check("GET", proxied, "get /v1 n pods p proxy");
        check("OPTIONS", proxied, "get /v1 n pods p proxy");
    }

    #[test]
    fn rule_1_5_paths_are_decoded_before_they_are_split() {
        check("GET", "/api/v1/namespaces/kube%2Dsystem/pods", "list /v1 kube-system pods - -");
        check("GET", "/api/v1/namespaces/a%2Fpods%2Fp%2Flog", "get /v1 a pods p log");
        check("GET", "/%61pi%2Fv1/p%6fds/a%25b/%73tatus", "get /v1 - pods a%b status");
        check("GET", "/apis/b%61tch/v%31/w%61tch/jobs", "watch batch/v1 - jobs - -");
        check("GET", "/apis%2Fbatch", "path /apis/batch");
        for (path, expected) in
            [("/a%2fb", true), ("/a%", false), ("/a%2", false), ("/%zz", false), ("/a", true)]
        {
            assert_eq!(is_decodable(path), expected, "{path}");
        }
    }

    #[test]
    fn rule_1_5_watches() {
        for query in ["watch=true", "watch=1", "watch", "watch=yes"] {
            check("GET", &format!("/api/v1/pods?{query}"), "watch /v1 - pods - -");
        }
        for query in ["watch=false", "watch=False", "watch=FALSE", "watch=0", ""] {
            check("GET", &format!("/api/v1/pods?{query}"), "list /v1 - pods - -");
        }
        check("GET", "/api/v1/namespaces/a/pods/p?watch=true", "get /v1 a pods p -");
        check("GET", "/api/v1/watch/namespaces/a/pods/p", "watch /v1 a pods p -");
    }

    #[test]
    fn other_paths() {
        for path in [
            "/",
            "/version",
            "/healthz",
            "/api",
            "/api/v1",
            "/apis",
            "/apis/batch",
            "/apis/batch/v1",
            "/openapi/v3",
        ] {
            check("GET", path, &format!("path {path}"));
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::read("labelSelector=a%3Db%2Cc&dryRun=All&dryRun=x&empty");
        assert_eq!(query.get("labelSelector"), Some("a=b,c"));
        assert_eq!(query.all("dryRun").collect::<Vec<_>>(), ["All", "x"]);
        assert_eq!(query.get("empty"), Some(""));
        assert_eq!(query.get("absent"), None);
    }
}
