//! Who sends a request (6.1): by the certificate of the connection, by a token, or nobody knows.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::tokens::{ISSUER, Invalid, Tokens, Verified};
use super::user::{CREDENTIAL_ID, MASTERS, User};
use crate::credentials::Credentials;
use crate::status::Refusal;

/// Finds out who sends a request.
pub(crate) struct Authenticator {
    credentials: Arc<Credentials>,
    tokens: Arc<Tokens>,
    certificates: Arc<dyn ClientCertVerifier>,
    administrator: Arc<User>,
    anonymous: Arc<User>,
}

/// What the certificate of a connection says, found out once for all its requests.
pub(crate) enum Certificate {
    /// There is none, or none that means anything here.
    None,
    /// It is somebody's.
    Of(Arc<User>),
    /// It is not good.
    Invalid,
}

impl Authenticator {
    pub(crate) fn new(
        credentials: Arc<Credentials>,
        tokens: Arc<Tokens>,
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
            administrator: Arc::new(administrator),
            anonymous: Arc::new(User::anonymous()),
        })
    }

    /// Lets every client show a certificate, whether or not it is good: a request that comes with a bad one is answered,
    /// with 401, instead of losing its connection.
    pub(crate) fn any_certificate(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Anybody(self.certificates.clone()))
    }

    /// Whose the certificates of a connection are.
    pub(crate) fn certificate(&self, chain: Option<&[CertificateDer<'_>]>) -> Certificate {
        let Some([leaf, others @ ..]) = chain else { return Certificate::None };
        if self.certificates.verify_client_cert(leaf, others, UnixTime::now()).is_err() {
            return Certificate::Invalid;
        }
        let hash = digest(&SHA256, leaf);
        let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return Certificate::Invalid };
        let texts = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect::<Vec<_>>();
        let name = texts(leaf.subject().iter_common_name().filter_map(|part| part.as_str().ok()).collect());
        let groups =
            texts(leaf.subject().iter_organization().filter_map(|part| part.as_str().ok()).collect());
        match name.into_iter().next().filter(|name| !name.is_empty()) {
            Some(name) => {
                let mut user = User::named(name).in_groups(groups).authenticated();
                let mut id = "X509SHA256=".to_owned();
                hash.as_ref()
                    .iter()
                    .try_for_each(|byte| write!(id, "{byte:02x}"))
                    .expect("writing to memory");
                user.extra.insert(CREDENTIAL_ID.to_owned(), vec![id]);
                Certificate::Of(Arc::new(user))
            }
            None => Certificate::None,
        }
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
    pub(crate) fn sender(
        &self,
        certificate: &Certificate,
        headers: &HeaderMap,
    ) -> Result<Arc<User>, Refusal> {
        if let Certificate::Of(user) = certificate {
            return Ok(user.clone());
        }
        match (bearer(headers), certificate) {
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

/// The token in an `Authorization` header, if one is there and says that it is a token. One that is no text is a token, too,
/// and not a good one.
fn bearer(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let text = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = text.split(|byte| *byte == b' ');
    let is_token = parts.next()?.eq_ignore_ascii_case(b"bearer");
    parts.next().filter(|token| is_token && !token.is_empty()).map(String::from_utf8_lossy)
}

/// Takes every certificate whose owner has its key. What it is worth is judged later.
#[derive(Debug)]
struct Anybody(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
