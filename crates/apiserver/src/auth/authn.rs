//! Who sends a request (6.1): by the word of a front proxy, by the certificate of the connection, by a token, or nobody
//! knows.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use tls::any_certificate;
use tls::front_proxy::common_name;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::front_proxy::{self, FrontProxies, Judge};
use super::tokens::{ISSUER, Invalid, Tokens, Verified};
use super::user::{CREDENTIAL_ID, MASTERS, User};
use crate::credentials::Credentials;
use crate::status::Refusal;

/// Finds out who sends a request.
pub(crate) struct Authenticator {
    credentials: Arc<Credentials>,
    tokens: Arc<Tokens>,
    certificates: Arc<dyn ClientCertVerifier>,
    front_proxies: Judge,
    provider: Arc<CryptoProvider>,
    administrator: Arc<User>,
    anonymous: Arc<User>,
}

/// What the certificate of a connection says, found out once for all its requests.
pub(crate) struct Shown {
    certificate: Certificate,
    /// Whether whoever shows it is believed when he says for whom he asks.
    is_front_proxy: bool,
}

/// Whose a certificate is.
enum Certificate {
    /// There is none.
    None,
    /// It is somebody's.
    Of(Arc<User>),
    /// It is no user's.
    Invalid,
}

impl Authenticator {
    pub(crate) fn new(
        credentials: Arc<Credentials>,
        tokens: Arc<Tokens>,
        front_proxies: &FrontProxies,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let mut roots = RootCertStore::empty();
        roots.add(credentials.authority()?)?;
        let certificates =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
        let administrator = User::named("kubernetes-admin").in_groups([MASTERS]).authenticated();
        Ok(Authenticator {
            credentials,
            tokens,
            certificates,
            front_proxies: Judge::new(front_proxies, provider)?,
            provider: provider.clone(),
            administrator: Arc::new(administrator),
            anonymous: Arc::new(User::anonymous()),
        })
    }

    /// Lets every client show a certificate, whether or not it is good: a request that comes with a bad one is answered,
    /// with 401, instead of losing its connection.
    pub(crate) fn any_certificate(&self) -> Arc<dyn ClientCertVerifier> {
        let clients = self.certificates.root_hint_subjects().iter();
        let authorities = clients.chain(self.front_proxies.authorities()).cloned().collect();
        any_certificate(self.provider.clone(), authorities)
    }

    /// What the certificates of a connection are worth.
    pub(crate) fn shown(&self, chain: Option<&[CertificateDer<'_>]>) -> Shown {
        let Some([leaf, others @ ..]) = chain else {
            return Shown { certificate: Certificate::None, is_front_proxy: false };
        };
        let is_signed = self.certificates.verify_client_cert(leaf, others, UnixTime::now()).is_ok();
        let user = if is_signed { certified(leaf) } else { None };
        let certificate = user.map_or(Certificate::Invalid, |user| Certificate::Of(Arc::new(user)));
        Shown { certificate, is_front_proxy: self.front_proxies.believes(leaf, others) }
    }

    /// Who shows a token that is meant for one of these audiences: a service account, or whoever has the kubeconfig. His
    /// token is for the cluster itself.
    pub(crate) fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Verified, Invalid> {
        if audiences.iter().any(|audience| audience == ISSUER) && self.credentials.admits(token) {
            return Ok(Verified { user: self.administrator.clone(), audiences: vec![ISSUER.to_owned()] });
        }
        self.tokens.verify(token, audiences, now)
    }

    /// Who sends a request; 401 if nothing that was shown is any good.
    pub(crate) fn sender(&self, shown: &Shown, headers: &HeaderMap) -> Result<Arc<User>, Refusal> {
        if shown.is_front_proxy
            && let Some(user) = front_proxy::asks_for(headers)?
        {
            return Ok(Arc::new(user));
        }
        if let Certificate::Of(user) = &shown.certificate {
            return Ok(user.clone());
        }
        match (bearer(headers), &shown.certificate) {
            (Some(token), _) => {
                let verified = self.verify(&token, &[ISSUER.to_owned()], Timestamp::now());
                verified.map(|verified| verified.user).map_err(|why| {
                    tracing::debug!(%why, "a token was refused");
                    Refusal::unauthorized()
                })
            }
            (None, Certificate::Invalid) => Err(Refusal::unauthorized()),
            (None, _) => Ok(self.anonymous.clone()),
        }
    }
}

/// The user that a certificate names, if it names one.
fn certified(leaf: &CertificateDer<'_>) -> Option<User> {
    let name = common_name(leaf).filter(|name| !name.is_empty())?;
    let hash = digest(&SHA256, leaf);
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    let groups = leaf.subject().iter_organization().filter_map(|part| part.as_str().ok());
    let mut user = User::named(name).in_groups(groups).authenticated();
    let mut id = "X509SHA256=".to_owned();
    hash.as_ref().iter().try_for_each(|byte| write!(id, "{byte:02x}")).expect("writing to memory");
    user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
    Some(user)
}

/// The token in an `Authorization` header, if one is there and says that it is a token. One that is no text is a token, too,
/// and not a good one.
fn bearer(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let text = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = text.split(|byte| *byte == b' ');
    let is_token = parts.next()?.eq_ignore_ascii_case(b"bearer");
    parts.next().filter(|token| is_token && !token.is_empty()).map(String::from_utf8_lossy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::signer::Signer;

    /// Clients of Go show a certificate only if they are told of who has signed it.
    #[test]
    fn rule_6_12_clients_are_told_of_all_authorities() {
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let others = Credentials::ephemeral().expect("an authority");
        let believed = FrontProxies::signed_by(others.authority_pem(), Vec::new()).expect("an authority");
        let store = store::Store::open(store::Options::ephemeral()).expect("a store");
        let tokens = Arc::new(Tokens::new(store, Signer::generate().expect("a key")));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let authenticator =
            Authenticator::new(credentials, tokens, &believed, &provider).expect("an authenticator");
        assert_eq!(authenticator.any_certificate().root_hint_subjects().len(), 2);
    }

    #[test]
    fn rule_6_1_bearer_tokens() {
        for (text, expected) in [
            ("Bearer x", Some("x")),
            ("bearer x y", Some("x")),
            ("Bearer ", None),
            ("Bearer", None),
            ("Basic x", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, text.parse().expect("a value"))]);
            assert_eq!(bearer(&headers).as_deref(), expected, "{text}");
        }
        let no_text = http::HeaderValue::from_bytes(b"Bearer \xff").expect("a value");
        assert!(bearer(&HeaderMap::from_iter([(AUTHORIZATION, no_text)])).is_some());
    }
}
