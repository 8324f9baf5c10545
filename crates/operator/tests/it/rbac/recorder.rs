//! A way to a cluster on which somebody writes down what is asked, and what is refused.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use http::{Method, Request, StatusCode};
use kube::{Client, client::Body};

use crate::way::{Passed, through};

/// A verb, an API group and a resource.
pub(crate) type Asked = (String, String, String);

/// What was asked of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Record>>);

#[derive(Default)]
struct Record {
    asked: BTreeSet<Asked>,
    refused: BTreeSet<Asked>,
}

impl Recorder {
    /// A client whose requests are written down.
    pub(crate) fn on(&self, client: Client) -> Client {
        let recorder = self.clone();
        through(move |request| pass(recorder.clone(), client.clone(), request))
    }

    pub(crate) fn asked(&self) -> BTreeSet<Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).asked.clone()
    }

    /// What was answered with 403.
    pub(crate) fn refused(&self) -> BTreeSet<Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
    }

    fn note(&self, asked: Asked, is_refused: bool) {
        let mut record = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_refused {
            record.refused.insert(asked.clone());
        }
        record.asked.insert(asked);
    }
}

/// Passes a request on, and writes down what came of it.
fn pass(recorder: Recorder, client: Client, request: Request<Body>) -> Passed {
    let asked = asked(request.method(), request.uri().path(), request.uri().query().unwrap_or_default());
    Box::pin(async move {
        let answer = client.send(request).await.map_err(std::io::Error::other)?;
        if let Some(asked) = asked {
            recorder.note(asked, answer.status() == StatusCode::FORBIDDEN);
        }
        Ok(answer)
    })
}

/// What RBAC makes of a request; `None` for what is no resource.
fn asked(method: &Method, path: &str, query: &str) -> Option<Asked> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    parts.next()?; // the version
    let mut rest: Vec<&str> = parts.collect();
    if rest.len() > 2 && rest[0] == "namespaces" {
        rest.drain(..2);
    }
    let resource = match rest.as_slice() {
        [resource] | [resource, _] => (*resource).to_owned(),
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [] => return None,
    };
    let verb = match (method, rest.len()) {
        (&Method::GET, 1) if query.contains("watch=") => "watch",
        (&Method::GET, 1) => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, 1) => "deletecollection",
        (&Method::DELETE, _) => "delete",
        _ => return None,
    };
    Some((verb.to_owned(), group.to_owned(), resource))
}

#[test]
fn requests_are_read_as_rbac_reads_them() {
    let read = |method: Method, path: &str, query: &str| {
        asked(&method, path, query).map(|(verb, group, resource)| format!("{verb} {group}:{resource}"))
    };
    let expect = |said: &str| Some(said.to_owned());
    assert_eq!(read(Method::GET, "/api/v1/namespaces/a", ""), expect("get :namespaces"));
    assert_eq!(read(Method::GET, "/api/v1/namespaces/a/secrets", "watch=true"), expect("watch :secrets"));
    assert_eq!(
        read(Method::PATCH, "/apis/batch/v1/namespaces/a/jobs/b/status", "force=true"),
        expect("patch batch:jobs/status")
    );
    assert_eq!(read(Method::GET, "/version", ""), None);
}
