//! A way to an embedded cluster that can fail.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU8, Ordering},
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::json;

use crate::way::{Passed, through};

/// How the way fails now, and what was asked on it.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    now: Arc<AtomicU8>,
    asked: Arc<Mutex<Vec<String>>>,
    /// Another cluster to which the way leads by now.
    instead: Arc<Mutex<Option<Client>>>,
}

/// A way to fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not.
    None,
    /// Nothing arrives, and nobody says so.
    Hangs,
    /// Nothing arrives.
    Refuses,
    /// What changes something is carried out, and the answer does not come back.
    LosesAnswers,
    /// Nobody is told which Jobs there are.
    HidesJobs,
    /// Nobody may see which Jobs there are.
    ForbidsJobs,
    /// Nobody may watch anything.
    ForbidsWatches,
}

impl Faults {
    pub(crate) fn set(&self, fault: Fault) {
        self.now.store(fault as u8, Ordering::SeqCst);
    }

    /// The way leads to another cluster, or back. Nobody is told, and what was opened before stays open.
    pub(crate) fn lead(&self, to: Option<Client>) {
        *self.instead.lock().expect("nobody panics here") = to;
    }

    /// Every request so far: its method and its address.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("nobody panics here").clone()
    }

    /// A client that goes this way.
    pub(crate) fn on(&self, client: Client) -> Client {
        let faults = self.clone();
        through(move |request| pass(&faults, client.clone(), request))
    }
}

/// Passes a request on, as far as the fault lets it.
fn pass(faults: &Faults, client: Client, request: Request<Body>) -> Passed {
    let fault = faults.now.load(Ordering::SeqCst);
    let asked = format!("{} {}", request.method(), request.uri());
    faults.asked.lock().expect("nobody panics here").push(asked);
    let client = faults.instead.lock().expect("nobody panics here").clone().unwrap_or(client);
    Box::pin(async move {
        let refused = || std::io::Error::other("connect: connection refused");
        if fault == Fault::Hangs as u8 {
            return std::future::pending().await;
        }
        if fault == Fault::Refuses as u8 {
            return Err(refused());
        }
        let changes = request.method() != http::Method::GET;
        if fault == Fault::HidesJobs as u8 && !changes && request.uri().path().ends_with("/jobs") {
            return Err(refused());
        }
        let jobs = request.uri().path().ends_with("/jobs");
        let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if fault == Fault::ForbidsJobs as u8 && !changes && jobs
            || fault == Fault::ForbidsWatches as u8 && watches
        {
            return forbidden();
        }
        let answer = client.send(request).await.map_err(std::io::Error::other)?;
        if fault == Fault::LosesAnswers as u8 && changes {
            return std::future::pending().await;
        }
        Ok(answer)
    })
}

fn forbidden() -> std::io::Result<Response<Body>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": "that is forbidden",
    });
    let answer = Response::builder().status(403).header("content-type", "application/json");
    answer.body(Body::from(status.to_string().into_bytes())).map_err(std::io::Error::other)
}
