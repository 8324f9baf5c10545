//! Front proxies (6.12): servers that ask for others, whom they name in headers, as API servers in front of each other do.
//!
//! Such headers count only from whoever shows a certificate that an authority made for this purpose has signed, under a
//! name that is allowed. From everybody else they are nothing, and nobody behind this server gets to see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DistinguishedName, RootCertStore};

use super::User;
use super::authn::common_name;
use crate::status::Refusal;

const USER: &str = "x-remote-user";
const UID: &str = "x-remote-uid";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Whom to believe when he says for whom he asks.
#[derive(Debug, Clone)]
pub struct FrontProxies {
    authorities: RootCertStore,
    /// The same, in PEM.
    pem: String,
    /// How a proxy may be called; without any, as it likes.
    names: Vec<String>,
}

/// Nobody can be believed by what was given as certificates of authorities.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is no PEM.
    #[error("failed to read the certificates of the authority of front proxies")]
    Pem(#[from] pem::Error),
    /// A certificate is not an authority's.
    #[error("failed to use a certificate as the authority of front proxies")]
    Certificate(#[from] rustls::Error),
    /// There is no certificate.
    #[error("there is no certificate of an authority of front proxies")]
    Empty,
}

impl FrontProxies {
    /// Those whom one of these authorities, in PEM, has signed, and who have one of these names; without names, all of them.
    pub fn signed_by(pem: &str, names: Vec<String>) -> Result<Self, Unusable> {
        let mut authorities = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            authorities.add(certificate?)?;
        }
        if authorities.is_empty() {
            return Err(Unusable::Empty);
        }
        Ok(FrontProxies { authorities, pem: pem.to_owned(), names })
    }

    /// These and those. Everybody is told one list of authorities and one of names, so any of both is believed.
    #[must_use]
    pub(crate) fn and(mut self, others: FrontProxies) -> Self {
        self.authorities.extend(others.authorities.roots);
        self.pem = format!("{}\n{}", self.pem.trim_end(), others.pem);
        if others.names.is_empty() {
            self.names.clear();
        } else if !self.names.is_empty() {
            self.names.extend(others.names);
        }
        self
    }

    /// Their authorities, in PEM.
    pub(crate) fn authorities_pem(&self) -> &str {
        &self.pem
    }

    /// Their names; any, if there are none.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

/// Tells front proxies from others.
pub(crate) struct Judge {
    certificates: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Judge {
    pub(crate) fn new(
        believed: &FrontProxies,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(believed.authorities.clone());
        let certificates = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        Ok(Judge { certificates, names: believed.names.clone() })
    }

    /// Who may have signed the certificate of a proxy.
    pub(crate) fn authorities(&self) -> &[DistinguishedName] {
        self.certificates.root_hint_subjects()
    }

    /// Whether the certificate of a connection is a front proxy's.
    pub(crate) fn believes(&self, leaf: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> bool {
        let is_signed = self.certificates.verify_client_cert(leaf, others, UnixTime::now()).is_ok();
        is_signed
            && (self.names.is_empty() || common_name(leaf).is_some_and(|name| self.names.contains(&name)))
    }
}

/// For whom a front proxy asks; nobody if it says no name, 401 if what it says is no text.
pub(crate) fn asks_for(headers: &HeaderMap) -> Result<Option<User>, Refusal> {
    let texts = |name: &str| -> Result<Vec<String>, Refusal> {
        let values = headers.get_all(name).iter();
        let values = values.map(|value| std::str::from_utf8(value.as_bytes()).map(str::to_owned));
        values.collect::<Result<_, _>>().map_err(|_| Refusal::unauthorized())
    };
    let first = |name: &str| Ok(texts(name)?.into_iter().next().unwrap_or_default());
    let name = first(USER)?;
    if name.is_empty() {
        return Ok(None);
    }
    let groups = texts(GROUP)?.into_iter().filter(|group| !group.is_empty()).collect();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA) {
            extra.entry(unescaped(key)).or_default().extend(texts(header.as_str())?);
        }
    }
    Ok(Some(User { name, uid: first(UID)?, groups, extra }.authenticated()))
}

/// A key as it was before it had to be the name of a header. One that is escaped badly was not escaped.
fn unescaped(key: &str) -> String {
    let is_byte = |after: &str| {
        after.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if key.split('%').skip(1).all(is_byte) {
        percent_decode_str(key).decode_utf8_lossy().into_owned()
    } else {
        key.to_owned()
    }
}

/// Whether a header says for whom somebody asks.
pub(crate) fn says_for_whom(name: &HeaderName) -> bool {
    matches!(name.as_str(), USER | UID | GROUP) || name.as_str().starts_with(EXTRA)
}

/// Takes out what says for whom somebody asks, once that was believed or not.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let said: Vec<HeaderName> = headers.keys().filter(|name| says_for_whom(name)).cloned().collect();
    for name in said {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).expect("a value");
        let mut headers = HeaderMap::new();
        for (name, text) in all {
            headers.append(*name, value(text));
        }
        headers
    }

    fn asked(all: &[(&'static str, &str)]) -> Option<User> {
        asks_for(&headers(all)).expect("text")
    }

    #[test]
    fn rule_6_12_whom_headers_name() {
        let all = [
            (USER, "jürgen"),
            (USER, "second"),
            (UID, "7"),
            (GROUP, "a"),
            (GROUP, ""),
            (GROUP, "b"),
            ("x-remote-extra-example.com%2fscope", "1"),
            ("x-remote-extra-example.com%2fscope", ""),
            ("x-remote-extra-50%", "2"),
        ];
        let extra = [("example.com/scope", vec!["1", ""]), ("50%", vec!["2"])];
        let owned = |values: Vec<&str>| values.into_iter().map(str::to_owned).collect();
        let user = User {
            name: "jürgen".to_owned(),
            uid: "7".to_owned(),
            groups: owned(vec!["a", "b", "system:authenticated"]),
            extra: extra.map(|(key, values)| (key.to_owned(), owned(values))).into(),
        };
        assert_eq!(asked(&all), Some(user));
        assert_eq!(asked(&[(GROUP, "system:masters"), (UID, "7")]), None, "groups are somebody's");
        assert_eq!(asked(&[(USER, ""), (USER, "second")]), None);
        let nobody = asked(&[(USER, "system:anonymous")]).expect("a name");
        assert_eq!(nobody.groups, [""; 0], "nobody is not known");
    }

    #[test]
    fn rule_6_12_what_is_no_text_names_nobody() {
        for name in [USER, UID, GROUP, "x-remote-extra-a"] {
            let mut headers = headers(&[(USER, "a")]);
            headers.insert(name, HeaderValue::from_bytes(b"\xff").expect("a value"));
            assert_eq!(asks_for(&headers).expect_err("no text").code(), 401, "{name}");
        }
    }

    #[test]
    fn rule_6_12_nothing_of_it_is_left() {
        let mut all = headers(&[
            (USER, "a"),
            (GROUP, "a"),
            (GROUP, "b"),
            (UID, "c"),
            ("x-remote-extra-d", "e"),
            ("accept", "f"),
        ]);
        strip(&mut all);
        assert_eq!(all.keys().collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn keys_are_what_they_were_before_they_were_names_of_headers() {
        for (key, expected) in
            [("a%2fb", "a/b"), ("a+b", "a+b"), ("%2", "%2"), ("%41%zz", "%41%zz"), ("%%41", "%%41")]
        {
            assert_eq!(unescaped(key), expected);
        }
    }

    #[test]
    fn an_authority_has_to_be_one() {
        let none = FrontProxies::signed_by("nothing", Vec::new());
        assert!(matches!(none, Err(Unusable::Empty)), "{none:?}");
        let broken = "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n";
        assert!(FrontProxies::signed_by(broken, Vec::new()).is_err());
    }
}
