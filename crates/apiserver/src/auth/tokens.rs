//! The tokens of service accounts (6.2, 6.3): what they claim, and whether it still holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::Store;

use super::signer::{Parsed, Signer};
use super::user::{User, service_account_name};
use crate::object;
use crate::registry::Registry;

/// Who signs the tokens, and for whom they are unless somebody says otherwise.
pub const ISSUER: &str = "https://kubernetes.default.svc";

/// How far clocks may differ.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);
/// So many signatures are remembered. A token that is forgotten is only checked again.
const REMEMBERED: usize = 4096;

/// Makes and checks tokens.
pub struct Tokens {
    store: Store,
    signer: Signer,
    /// The claims of tokens whose signatures were checked. What they claim is looked up every time.
    known: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

/// What a token says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) iss: String,
    pub(crate) sub: String,
    #[serde(deserialize_with = "one_or_many")]
    pub(crate) aud: Vec<String>,
    pub(crate) iat: i64,
    pub(crate) nbf: i64,
    pub(crate) exp: i64,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
}

/// Whose a token is, and what it is bound to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    pub(crate) serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) warnafter: Option<i64>,
}

/// An object, told from others of the same name.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

fn one_or_many<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Either {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Either::deserialize(from)? {
        Either::One(one) => vec![one],
        Either::Many(many) => many,
    })
}

/// Why a token is no good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Invalid {
    /// It is no token of ours.
    #[error("invalid bearer token")]
    Foreign,
    /// It is, but.
    #[error("[invalid bearer token, {0}]")]
    Refused(String),
}

/// Somebody who showed a good token.
pub(crate) struct Verified {
    pub(crate) user: Arc<User>,
    /// For whom the token is, of those who were asked about.
    pub(crate) audiences: Vec<String>,
}

impl Tokens {
    pub(crate) fn new(store: Store, signer: Signer) -> Self {
        Tokens { store, signer, known: Mutex::default() }
    }

    pub(crate) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// A token that claims this of a service account.
    pub(crate) fn issue(
        &self,
        kubernetes: Kubernetes,
        audiences: &[String],
        now: Timestamp,
        seconds: i64,
    ) -> String {
        let claims = Claims {
            iss: ISSUER.to_owned(),
            sub: service_account_name(&kubernetes.namespace, &kubernetes.serviceaccount.name),
            aud: audiences.to_vec(),
            iat: now.as_second(),
            nbf: now.as_second(),
            exp: now.as_second().saturating_add(seconds),
            jti: uuid::Uuid::new_v4().to_string(),
            kubernetes,
        };
        self.signer.sign(&json!(claims))
    }

    /// Who shows a token that is meant for one of these audiences.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Verified, Invalid> {
        let claims = self.signed_claims(token)?;
        let meant: Vec<String> = claims.aud.iter().filter(|own| audiences.contains(own)).cloned().collect();
        if meant.is_empty() {
            let quoted = rules::rbac::quoted;
            return Err(Invalid::Refused(format!(
                "token audiences {} is invalid for the target audiences {}",
                quoted(&claims.aud),
                quoted(audiences)
            )));
        }
        self.check(&claims, now).map_err(Invalid::Refused)?;
        Ok(Verified { user: Arc::new(user(&claims)), audiences: meant })
    }

    fn signed_claims(&self, token: &str) -> Result<Arc<Claims>, Invalid> {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(&hash) {
            return Ok(known.clone());
        }
        let parsed = Parsed::read(token).ok_or(Invalid::Foreign)?;
        if parsed.claims["iss"] != ISSUER {
            return Err(Invalid::Foreign);
        }
        if !self.signer.signed(&parsed) {
            return Err(Invalid::Refused("invalid signature".to_owned()));
        }
        let claims: Claims =
            serde_json::from_value(parsed.claims).map_err(|error| Invalid::Refused(error.to_string()))?;
        let claims = Arc::new(claims);
        let mut known = lock();
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(hash, claims.clone());
        Ok(claims)
    }

    /// Whether what was true when the token was made is still true.
    fn check(&self, claims: &Claims, now: Timestamp) -> Result<(), String> {
        let leeway = LEEWAY.as_secs();
        if now.as_second() > claims.exp.saturating_add(leeway) {
            return Err("service account token has expired".to_owned());
        }
        if now.as_second() < claims.nbf.saturating_sub(leeway) {
            return Err("service account token is not valid yet".to_owned());
        }
        let Kubernetes { namespace, serviceaccount, pod, secret, node, .. } = &claims.kubernetes;
        let invalidated = || "service account token has been invalidated".to_owned();
        let account = self.find("serviceaccounts", namespace, &serviceaccount.name);
        let account = account
            .ok_or_else(|| format!("serviceaccounts {} not found", types::go::quote(&serviceaccount.name)))?;
        let uid = object::text(&account, &["metadata", "uid"]);
        if uid != serviceaccount.uid {
            let claim = &serviceaccount.uid;
            return Err(format!("service account UID ({uid}) does not match claim ({claim})"));
        }
        if is_long_gone(&account, now) {
            return Err(format!("service account {namespace}/{} has been deleted", serviceaccount.name));
        }
        let node = node.as_ref().filter(|_| pod.is_none());
        for (kind, plural, namespace, bound) in [
            ("secret", "secrets", namespace.as_str(), secret.as_ref()),
            ("pod", "pods", namespace, pod.as_ref()),
            ("node", "nodes", "", node),
        ] {
            let Some(bound) = bound else { continue };
            let found = self.find(plural, namespace, &bound.name).ok_or_else(invalidated)?;
            let uid = object::text(&found, &["metadata", "uid"]);
            if uid != bound.uid {
                let claim = &bound.uid;
                return Err(format!(
                    "{kind} UID ({uid}) does not match service account {kind} ref claim ({claim})"
                ));
            }
            if is_long_gone(&found, now) {
                return Err(invalidated());
            }
        }
        Ok(())
    }

    /// An object of the core group.
    pub(crate) fn find(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = Registry::built_in().get("", "v1", plural)?;
        Some(object::read(&*self.store.get(&object::key(resource, namespace, name))?))
    }
}

/// Deleted, and only still there because somebody has to act on it.
fn is_long_gone(object: &Value, now: Timestamp) -> bool {
    let deleted = object::text(object, &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
    deleted.is_ok_and(|deleted| deleted < now - LEEWAY)
}

fn user(claims: &Claims) -> User {
    let Kubernetes { namespace, serviceaccount, pod, node, .. } = &claims.kubernetes;
    let mut user = User::service_account(namespace, &serviceaccount.name).authenticated();
    user.uid.clone_from(&serviceaccount.uid);
    let mut know = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value.to_owned()]);
        }
    };
    know("credential-id", &format!("JTI={}", claims.jti));
    for (kind, bound) in [("pod", pod), ("node", node)] {
        if let Some(bound) = bound {
            know(&format!("{kind}-name"), &bound.name);
            know(&format!("{kind}-uid"), &bound.uid);
        }
    }
    user
}
