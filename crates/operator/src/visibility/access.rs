//! Who may ask over HTTP. The API server of the cluster asks for others, whom it names in headers, and shows a certificate
//! that the cluster vouches for; anybody else shows a token. Whether he may is asked of the cluster.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::StreamExt as _;
use http::{HeaderMap, header, request};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rules::visibility::GROUP;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tls::front_proxy::{FrontProxies, Headers, Judge, Named, Unusable};
use tokio::time::Instant;
use tracing::{info, warn};
use types::go;

use super::request::{Asked, read};
use super::status::Refusal;

/// Where a cluster says who asks for others.
const NAMESPACE: &str = "kube-system";
const MAP: &str = "extension-apiserver-authentication";
/// Who may everything, which need not be asked.
const MASTERS: &str = "system:masters";
/// For how long it is remembered that somebody may.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How much of that is remembered at once.
const MUCH: usize = 1024;

/// Lets requests in.
pub(super) struct Gate {
    client: Client,
    believed: ArcSwapOption<Believed>,
    /// Who was allowed what, and when.
    allowed: Mutex<HashMap<String, Instant>>,
}

/// Who is believed when he says for whom he asks, and where he says it.
#[derive(Debug)]
struct Believed {
    judge: Judge,
    headers: Headers,
}

/// Why nobody can be believed.
#[derive(Debug, thiserror::Error)]
enum Unbelievable {
    #[error("{MAP} has no {0}")]
    Missing(&'static str),
    #[error("{0} in {MAP} is no list of texts")]
    NoList(&'static str, #[source] serde_json::Error),
    #[error("the authority of front proxies in {MAP} cannot be used")]
    Authority(#[from] Unusable),
    #[error("the authority of front proxies in {MAP} cannot be used")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl Believed {
    fn read(map: &ConfigMap) -> Result<Believed, Unbelievable> {
        let text = |key: &str| map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        let list = |key: &'static str| -> Result<Vec<String>, Unbelievable> {
            let Some(text) = text(key).filter(|text| !text.trim().is_empty()) else { return Ok(Vec::new()) };
            serde_json::from_str(text).map_err(|source| Unbelievable::NoList(key, source))
        };
        let headers =
            |key| Ok::<_, Unbelievable>(list(key)?.iter().map(|name| name.to_lowercase()).collect());
        let authority = "requestheader-client-ca-file";
        let pem = text(authority).ok_or(Unbelievable::Missing(authority))?;
        let believed = FrontProxies::signed_by(pem, list("requestheader-allowed-names")?)?;
        let headers = Headers {
            user: headers("requestheader-username-headers")?,
            uid: headers("requestheader-uid-headers")?,
            group: headers("requestheader-group-headers")?,
            extra: headers("requestheader-extra-headers-prefix")?,
        };
        if headers.user.is_empty() {
            return Err(Unbelievable::Missing("requestheader-username-headers"));
        }
        Ok(Believed { judge: Judge::new(&believed, &Arc::new(ring::default_provider()))?, headers })
    }
}

impl Gate {
    /// One of a cluster, which has looked once whom to believe.
    pub(super) async fn new(client: Client) -> Arc<Gate> {
        let (believed, allowed) = (ArcSwapOption::empty(), Mutex::default());
        let gate = Arc::new(Gate { client, believed, allowed });
        match gate.maps().get_opt(MAP).await {
            Ok(map) => gate.believe(map.as_ref()),
            Err(error) => {
                let error = reconcile::chain(&error);
                warn!(%error, "failed to read who asks for others; until that is known, only tokens count");
            }
        }
        gate
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Follows what the cluster says of whom to believe.
    pub(super) async fn follow(self: Arc<Gate>) {
        let mut seen = Box::pin(watcher::watch_object(self.maps(), MAP).default_backoff());
        while let Some(map) = seen.next().await {
            match map {
                Ok(map) => self.believe(map.as_ref()),
                // The watch is started again; meanwhile those are believed who were.
                Err(error) => {
                    let error = reconcile::chain(&error);
                    warn!(%error, "failed to watch who asks for others");
                }
            }
        }
    }

    fn believe(&self, map: Option<&ConfigMap>) {
        let believed = match map.map(Believed::read) {
            Some(Ok(believed)) => {
                info!("whoever asks for others is known");
                Some(Arc::new(believed))
            }
            Some(Err(error)) => {
                let error = reconcile::chain(&error);
                warn!(%error, "nobody is believed who asks for others");
                None
            }
            None => {
                warn!("the cluster does not say who asks for others, so nobody is believed who does");
                None
            }
        };
        self.believed.store(believed);
    }

    /// Lets a request in whose sender is known and may ask it.
    pub(super) async fn admit(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        head: &request::Parts,
    ) -> Result<(), Refusal> {
        let user = self.sender(chain, &head.headers).await?;
        if user.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let spec = review(&user, head);
        let key = json!(spec).to_string();
        if self.is_remembered(&key) {
            return Ok(());
        }
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let asked = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = api.create(&PostParams::default(), &asked).await;
        let answer = answer.map_err(|error| unknown("whether this is allowed", &error))?;
        if answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)) {
            self.remember(key);
            return Ok(());
        }
        Err(forbidden(&user, head))
    }

    /// Who asks, or that nobody knows.
    async fn sender(
        &self,
        chain: Option<&[CertificateDer<'_>]>,
        headers: &HeaderMap,
    ) -> Result<Named, Refusal> {
        if let (Some([leaf, others @ ..]), Some(believed)) = (chain, &*self.believed.load())
            && believed.judge.believes(leaf, others)
            && let Some(user) = believed.headers.name(headers).map_err(|_| Refusal::Unauthorized)?
        {
            return Ok(known(user));
        }
        let token = bearer(headers).ok_or(Refusal::Unauthorized)?;
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let spec = TokenReviewSpec { token: Some(token), audiences: None };
        let asked = TokenReview { spec, ..TokenReview::default() };
        let answer = api.create(&PostParams::default(), &asked).await;
        let status = answer.map_err(|error| unknown("whose token this is", &error))?.status;
        let status = status.filter(|status| status.authenticated == Some(true));
        let user = status.and_then(|status| status.user).ok_or(Refusal::Unauthorized)?;
        let name = user.username.filter(|name| !name.is_empty()).ok_or(Refusal::Unauthorized)?;
        Ok(known(Named {
            name,
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    fn is_remembered(&self, key: &str) -> bool {
        let allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        allowed.get(key).is_some_and(|since| since.elapsed() < REMEMBERED)
    }

    fn remember(&self, key: String) {
        let mut allowed = self.allowed.lock().unwrap_or_else(PoisonError::into_inner);
        if allowed.len() >= MUCH {
            allowed.retain(|_, since| since.elapsed() < REMEMBERED);
        }
        if allowed.len() < MUCH {
            allowed.insert(key, Instant::now());
        }
    }
}

/// Whoever is known is in the group of all who are.
fn known(mut user: Named) -> Named {
    let is_in = |wanted: &str| user.groups.iter().any(|group| group == wanted);
    if user.name != "system:anonymous" && !is_in("system:authenticated") && !is_in("system:unauthenticated") {
        user.groups.push("system:authenticated".to_owned());
    }
    user
}

/// The token that a request shows.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| token.to_owned())
}

fn unknown(what: &str, error: &kube::Error) -> Refusal {
    let error = reconcile::chain(error);
    warn!(%error, what, "the cluster did not say who may ask");
    Refusal::Unknown(format!("failed to find out {what}"))
}

/// What is asked of the cluster.
fn review(user: &Named, head: &request::Parts) -> SubjectAccessReviewSpec {
    let owned = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let (mut resource_attributes, mut non_resource_attributes) = (None, None);
    match read(head.uri.path()) {
        Asked::Resource(target) => {
            resource_attributes = Some(ResourceAttributes {
                group: owned(GROUP),
                version: owned(target.version),
                resource: owned(target.resource),
                subresource: target.subresource.and_then(owned),
                namespace: target.namespace.and_then(owned),
                name: target.name.and_then(owned),
                verb: owned(target.verb(&head.method)),
                ..ResourceAttributes::default()
            });
        }
        Asked::Path(path) => {
            let verb = owned(&head.method.as_str().to_lowercase());
            non_resource_attributes = Some(NonResourceAttributes { path: owned(path), verb });
        }
    }
    SubjectAccessReviewSpec {
        user: owned(&user.name),
        uid: owned(&user.uid),
        groups: Some(user.groups.clone()),
        extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
        resource_attributes,
        non_resource_attributes,
    }
}

fn forbidden(user: &Named, head: &request::Parts) -> Refusal {
    let user = go::quote(&user.name);
    match read(head.uri.path()) {
        Asked::Resource(target) => {
            let name = target.name.unwrap_or_default();
            let verb = target.verb(&head.method);
            let part = target.subresource.map(|part| format!("/{part}")).unwrap_or_default();
            let what = go::quote(&format!("{}{part}", target.resource));
            let place = match target.namespace {
                Some(namespace) => format!("in the namespace {}", go::quote(namespace)),
                None => "at the cluster scope".to_owned(),
            };
            let about = format!("{}.{GROUP}{}", target.resource, quoted(name));
            let message = format!(
                "{about} is forbidden: User {user} cannot {verb} resource {what} in API group {} {place}",
                go::quote(GROUP)
            );
            Refusal::Forbidden {
                about: json!({ "name": name, "group": GROUP, "kind": target.resource }),
                message,
            }
        }
        Asked::Path(path) => {
            let verb = head.method.as_str().to_lowercase();
            let message = format!("forbidden: User {user} cannot {verb} path {}", go::quote(path));
            Refusal::Forbidden { about: json!({}), message }
        }
    }
}

fn quoted(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" {}", go::quote(name)) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use http::Request;

    use super::*;

    fn head(path: &str) -> request::Parts {
        Request::get(path).body(()).expect("a request").into_parts().0
    }

    fn jane() -> Named {
        known(Named { name: "jane".to_owned(), groups: vec!["devs".to_owned()], ..Named::default() })
    }

    #[test]
    fn vi_1_what_is_asked_of_the_cluster_about_a_request() {
        let root = "/apis/visibility.kueue.x-k8s.io/v1beta2";
        let asked = |path: &str| serde_json::to_value(review(&jane(), &head(path))).expect("JSON");
        let groups = json!(["devs", "system:authenticated"]);
        assert_eq!(
            asked(&format!("{root}/namespaces/n/localqueues/q/pendingworkloads?limit=1")),
            json!({
                "user": "jane", "groups": groups,
                "resourceAttributes": {
                    "group": GROUP, "version": "v1beta2", "resource": "localqueues", "subresource": "pendingworkloads",
                    "namespace": "n", "name": "q", "verb": "get",
                },
            })
        );
        let path = json!({ "path": "/apis", "verb": "get" });
        assert_eq!(
            asked("/apis"),
            json!({ "user": "jane", "groups": groups, "nonResourceAttributes": path })
        );
    }

    #[test]
    fn vi_1_who_may_not_is_told_what() {
        let path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/q/pendingworkloads";
        let Refusal::Forbidden { message, .. } = forbidden(&jane(), &head(path)) else { panic!("forbidden") };
        assert_eq!(
            message,
            "clusterqueues.visibility.kueue.x-k8s.io \"q\" is forbidden: User \"jane\" cannot get resource \
             \"clusterqueues/pendingworkloads\" in API group \"visibility.kueue.x-k8s.io\" at the cluster scope"
        );
    }

    #[test]
    fn tokens_are_taken_from_who_says_that_it_is_one() {
        let token = |text: &str| {
            bearer(&HeaderMap::from_iter([(header::AUTHORIZATION, text.parse().expect("a value"))]))
        };
        assert_eq!(token("Bearer x").as_deref(), Some("x"));
        assert_eq!(token("bearer  x").as_deref(), Some("x"));
        assert_eq!((token("Bearer "), token("Basic x"), token("x")), (None, None, None));
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn whom_a_cluster_believes_is_read_whole_or_not_at_all() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("a certificate");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("an authority").pem();
        let map = |entries: &[(&str, &str)]| {
            let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let data: BTreeMap<String, String> = entries.collect();
            Believed::read(&ConfigMap { data: Some(data), ..ConfigMap::default() })
        };
        let authority = ("requestheader-client-ca-file", pem.as_str());
        let user = ("requestheader-username-headers", "[\"X-Remote-User\"]");
        let believed = map(&[authority, user, ("requestheader-allowed-names", "[]")]).expect("enough");
        assert_eq!(believed.headers.user, ["x-remote-user"]);
        assert!(matches!(map(&[user]), Err(Unbelievable::Missing("requestheader-client-ca-file"))));
        assert!(matches!(map(&[authority]), Err(Unbelievable::Missing("requestheader-username-headers"))));
        let no_list = ("requestheader-allowed-names", "front-proxy");
        assert!(matches!(map(&[authority, user, no_list]), Err(Unbelievable::NoList(..))));
        assert!(map(&[("requestheader-client-ca-file", "no PEM"), user]).is_err());
    }
}
