//! The server that a recording is played against: its first user, and anybody else who has a token or none.

use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, Request};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::Error;

/// A server under test. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    admin: Client,
    anybody: Client,
    /// Host and port as they stand in answers.
    pub(super) address: String,
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) method: String,
    pub(super) path: String,
    /// A header without a value is not sent, not even if it usually is.
    pub(super) headers: Vec<(String, Option<String>)>,
    pub(super) body: Option<Vec<u8>>,
    /// A token to be used instead of the first user's credentials; empty for none at all.
    pub(super) token: Option<String>,
}

impl Server {
    /// The server that a kubeconfig tells of; its user is the administrator.
    pub async fn at(kubeconfig: &Path) -> Result<Self, Error> {
        let config = Kubeconfig::read_from(kubeconfig)?;
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        // Every answer is wanted, also one that says to come back.
        config.default_retry = false;
        config.read_timeout = Some(Duration::from_secs(60));
        let mut anybody = config.clone();
        anybody.auth_info = kube::config::AuthInfo::default();
        let client = |config: Config| {
            Client::try_from(config).map_err(|source| Error::Request { what: "make a client", source })
        };
        let address = config.cluster_url.authority().map(ToString::to_string).unwrap_or_default();
        Ok(Server { admin: client(config)?, anybody: client(anybody)?, address })
    }

    /// Sends a request and returns the head of the answer; the body is still to be read.
    pub(super) async fn send(&self, sent: &Sent) -> Result<http::Response<Body>, String> {
        let mut headers: Vec<(String, String)> = vec![("User-Agent".to_owned(), "goldens/1.0".to_owned())];
        if !sent.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("accept")) {
            headers.push(("Accept".to_owned(), "application/json".to_owned()));
        }
        headers.extend(sent.headers.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))));
        let client = match sent.token.as_deref() {
            None => &self.admin,
            Some(token) => {
                if !token.is_empty() {
                    headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
                }
                &self.anybody
            }
        };
        let mut request = Request::builder().method(sent.method.as_str()).uri(&sent.path);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let body = sent.body.clone().map_or_else(Body::empty, Body::from);
        let request = request.body(body).map_err(|error| error.to_string())?;
        client.send(request).await.map_err(|error| error.to_string())
    }
}

/// All values of a header.
pub(super) fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
}
