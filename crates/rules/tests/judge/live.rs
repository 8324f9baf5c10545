//! A real API server, over HTTP.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::{NAMESPACE, Server, Verb};

/// A real API server.
pub(crate) struct Live {
    client: Client,
}

impl Live {
    /// Prepares the namespace of the cases.
    pub(crate) async fn new(client: Client) -> anyhow::Result<Self> {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        let live = Live { client };
        let (code, answer, _) = live.request(Method::POST, "/api/v1/namespaces", "json", &namespace).await?;
        anyhow::ensure!(code == 201 || code == 409, "the namespace was not created: {answer}");
        Ok(live)
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: &Value,
    ) -> anyhow::Result<(u16, Value, Vec<String>)> {
        let has_body = !body.is_null();
        let body = if has_body { Body::from(serde_json::to_vec(body)?) } else { Body::empty() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", format!("application/{content}"))
            .body(body)?;
        let response = self.client.send(request).await?;
        let warnings =
            response.headers().get_all("Warning").iter().filter_map(|value| text_of(value.to_str().ok()?));
        let (code, warnings) = (response.status().as_u16(), warnings.collect());
        let answer = response.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&answer).unwrap_or(Value::Null), warnings))
    }
}

/// The text of a header `299 - "text"`.
fn text_of(header: &str) -> Option<String> {
    serde_json::from_str(header.strip_prefix("299 - ")?).ok()
}

fn jobs() -> String {
    format!("/apis/batch/v1/namespaces/{NAMESPACE}/jobs")
}

fn job(stored: &Value) -> String {
    format!("{}/{}", jobs(), stored["metadata"]["name"].as_str().unwrap_or(""))
}

impl Server for Live {
    async fn send(&mut self, verb: Verb, body: &Value, stored: Option<&Value>) -> (u16, Value, Vec<String>) {
        let stored = stored.unwrap_or(&Value::Null);
        let answer = match verb {
            Verb::Create => self.request(Method::POST, &jobs(), "json", body).await,
            Verb::Put => self.request(Method::PUT, &job(stored), "json", body).await,
            Verb::PutStatus => {
                let mut new = stored.clone();
                new["status"] = body["status"].clone();
                self.request(Method::PUT, &format!("{}/status", job(stored)), "json", &new).await
            }
        };
        // Where a rule of upstream's panics, the connection ends without an answer.
        answer.unwrap_or_else(|error| (500, json!({"message": format!("no answer: {error}")}), Vec::new()))
    }

    async fn forget(&mut self, stored: &Value) {
        let finalizers = json!({"metadata": {"finalizers": null}});
        let patched = self.request(Method::PATCH, &job(stored), "merge-patch+json", &finalizers).await;
        patched.expect("the API server answers");
        let path = format!("{}?propagationPolicy=Background", job(stored));
        self.request(Method::DELETE, &path, "json", &Value::Null).await.expect("the API server answers");
    }
}
