//! What operators write on their way to clusters, by what it is; and the end of one of them at a write that can be chosen.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use http::Request;
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::Notify;

use crate::way::{Passed, through};

/// What was written, in the order in which it was answered.
#[derive(Clone, Default)]
pub(crate) struct Written {
    writes: Arc<Mutex<Vec<Write>>>,
    fate: Arc<Mutex<Fate>>,
    died: Arc<Notify>,
}

/// What is to become of the manager's operator.
#[derive(Default)]
enum Fate {
    /// It lives.
    #[default]
    Lives,
    /// It dies at a write of these, after so many others of them.
    DiesAt { of: Of, after: usize, moment: Moment },
    /// The write at which it dies is under way, and no other is made any more.
    Dies,
    /// Nothing that it still says arrives anywhere.
    Dead,
}

/// The writes at which an operator can die.
#[derive(Clone, Debug)]
pub(crate) enum Of {
    /// Those for one Job.
    Job(String),
    /// Those for any Job or Workload.
    Anything,
}

impl Of {
    fn includes(&self, kind: &str, name: &str) -> bool {
        match self {
            Of::Job(job) => name == job || name.starts_with(&format!("job-{job}-")),
            Of::Anything => kind.starts_with("jobs") || kind.starts_with("workloads"),
        }
    }
}

/// When an operator dies at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before it is made.
    Before,
    /// When it is made, before the answer.
    After,
}

impl Fate {
    /// When the operator dies that makes a write of this kind and name, if it does.
    fn at(&mut self, kind: &str, name: &str) -> Option<Moment> {
        match self {
            Fate::Lives => None,
            Fate::Dies | Fate::Dead => Some(Moment::Before),
            Fate::DiesAt { of, .. } if !of.includes(kind, name) => None,
            Fate::DiesAt { after: 0, moment, .. } => {
                let moment = *moment;
                *self = if moment == Moment::Before { Fate::Dead } else { Fate::Dies };
                Some(moment)
            }
            Fate::DiesAt { after, .. } => {
                *after -= 1;
                None
            }
        }
    }
}

/// One write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Write {
    /// Whose operator wrote, and where.
    pub(crate) by: &'static str,
    pub(crate) on: &'static str,
    /// What it did, to what.
    pub(crate) verb: &'static str,
    pub(crate) kind: String,
    /// The object, or what an event is about.
    pub(crate) name: String,
    /// The conditions that it was written with, or the reason of an event.
    pub(crate) said: String,
    /// The status of the answer.
    pub(crate) answer: u16,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Write { by, on, verb, kind, name, said, answer } = self;
        write!(f, "{by} on {on}: {verb} {kind} {name} {said} ({answer})")
    }
}

impl Written {
    /// A client whose writes are noted.
    pub(crate) fn on(&self, client: Client, by: &'static str, on: &'static str) -> Client {
        let written = self.clone();
        through(move |request| pass(written.clone(), client.clone(), by, on, request))
    }

    /// Everything so far.
    pub(crate) fn all(&self) -> Vec<Write> {
        self.writes.lock().expect("nobody panics here").clone()
    }

    /// How many of these writes there were.
    pub(crate) fn number(&self, of: &Of) -> usize {
        self.all().iter().filter(|write| of.includes(&write.kind, &write.name)).count()
    }

    /// Forgets what was written.
    pub(crate) fn clear(&self) {
        self.writes.lock().expect("nobody panics here").clear();
    }

    /// Lets the manager's operator die at a write, after so many others. Returns when it is dead.
    pub(crate) fn death(&self, of: Of, after: usize, moment: Moment) -> impl Future<Output = ()> + use<> {
        *self.fate() = Fate::DiesAt { of, after, moment };
        let written = self.clone();
        async move {
            while !matches!(*written.fate(), Fate::Dead) {
                written.died.notified().await;
            }
        }
    }

    /// Lets the next operator of the manager live.
    pub(crate) fn life(&self) {
        *self.fate() = Fate::Lives;
    }

    fn fate(&self) -> MutexGuard<'_, Fate> {
        self.fate.lock().expect("nobody panics here")
    }

    /// The operator is dead: nobody hears of whatever it is doing.
    async fn nothing<T>(&self) -> T {
        self.died.notify_one();
        std::future::pending().await
    }
}

/// Passes a request on, and takes note of it if it changes something.
fn pass(
    written: Written,
    client: Client,
    by: &'static str,
    on: &'static str,
    request: Request<Body>,
) -> Passed {
    Box::pin(async move {
        if request.method() == http::Method::GET {
            return client.send(request).await.map_err(std::io::Error::other);
        }
        let (head, body) = request.into_parts();
        let bytes = body.collect_bytes().await.map_err(std::io::Error::other)?;
        let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let (kind, mut name) = of(head.uri.path());
        if name.is_empty() {
            body["metadata"]["name"].as_str().unwrap_or_default().clone_into(&mut name);
        }
        let death = (by == "manager").then(|| written.fate().at(&kind, &name)).flatten();
        if death == Some(Moment::Before) {
            return written.nothing().await;
        }
        let (verb, name, said) = match kind.as_str() {
            "events" => {
                let about = body["regarding"]["kind"].as_str().unwrap_or_default();
                ("POST", about.to_owned(), body["reason"].as_str().unwrap_or_default().to_owned())
            }
            _ => (verb(&head), name, said(&body)),
        };
        let answer = client.send(Request::from_parts(head, Body::from(bytes))).await;
        if death == Some(Moment::After) {
            *written.fate() = Fate::Dead;
            return written.nothing().await;
        }
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        let write = Write { by, on, verb, kind, name, said, answer: code };
        written.writes.lock().expect("nobody panics here").push(write);
        answer.map_err(std::io::Error::other)
    })
}

fn verb(head: &http::request::Parts) -> &'static str {
    let manner = head.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    match head.method.as_str() {
        "PATCH" if manner.contains("apply") => "APPLY",
        "PATCH" => "PATCH",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        _ => "?",
    }
}

/// The kind, with its part, and the name that an address is of.
fn of(path: &str) -> (String, String) {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let parts = if parts.first() == Some(&"api") { &parts[2..] } else { &parts[3..] };
    let parts = if parts.first() == Some(&"namespaces") && parts.len() > 2 { &parts[2..] } else { parts };
    let kind = parts.first().copied().unwrap_or_default();
    let name = parts.get(1).copied().unwrap_or_default().to_owned();
    match parts.get(2) {
        Some(part) => (format!("{kind}/{part}"), name),
        None => (kind.to_owned(), name),
    }
}

/// The conditions in a body and other parts of a status, or else which fields it has.
fn said(body: &Value) -> String {
    let mut said = Vec::new();
    for condition in body["status"]["conditions"].as_array().into_iter().flatten() {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        said.push(format!("{}={}/{}", text("type"), text("status"), text("reason")));
    }
    for part in ["metadata", "spec", "status"] {
        let fields = body[part].as_object().into_iter().flatten().map(|(key, _)| format!("{part}.{key}"));
        said.extend(fields.filter(|field| {
            ![
                "metadata.name",
                "metadata.namespace",
                "metadata.uid",
                "metadata.resourceVersion",
                "status.conditions",
            ]
            .contains(&field.as_str())
        }));
    }
    said.join(" ")
}
