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
use x509_parser::prelude::{FromDer as _, X509Certificate};

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
    pub fn and(mut self, others: FrontProxies) -> Self {
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
    pub fn authorities_pem(&self) -> &str {
        &self.pem
    }

    /// Their names; any, if there are none.
    pub fn names(&self) -> &[String] {
        &self.names
    }
}

/// Tells front proxies from others.
#[derive(Debug)]
pub struct Judge {
    certificates: Arc<dyn ClientCertVerifier>,
    names: Vec<String>,
}

impl Judge {
    /// Believes these.
    pub fn new(
        believed: &FrontProxies,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(believed.authorities.clone());
        let certificates = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build()?;
        Ok(Judge { certificates, names: believed.names.clone() })
    }

    /// Who may have signed the certificate of a proxy.
    pub fn authorities(&self) -> &[DistinguishedName] {
        self.certificates.root_hint_subjects()
    }

    /// Whether the certificate of a connection is a front proxy's.
    pub fn believes(&self, leaf: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> bool {
        let is_signed = self.certificates.verify_client_cert(leaf, others, UnixTime::now()).is_ok();
        is_signed
            && (self.names.is_empty() || common_name(leaf).is_some_and(|name| self.names.contains(&name)))
    }
}

/// The name in a certificate: the last one, as Go reads it.
pub fn common_name(leaf: &CertificateDer<'_>) -> Option<String> {
    let (_, leaf) = X509Certificate::from_der(leaf).ok()?;
    let names = leaf.subject().iter_common_name().filter_map(|part| part.as_str().ok());
    names.last().map(str::to_owned)
}

/// For whom a front proxy asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named {
    /// His name.
    pub name: String,
    /// Tells two of the same name apart; often empty.
    pub uid: String,
    /// His groups.
    pub groups: Vec<String>,
    /// What else is known of him.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// What a header says of who asks is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a header that says who asks is no text")]
pub struct NotText;

/// The headers in which front proxies say for whom they ask, in small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Headers {
    /// Those of the name, of which the first counts that says one.
    pub user: Vec<String>,
    /// Those of the uid, in the same way.
    pub uid: Vec<String>,
    /// Those of groups, which all count.
    pub group: Vec<String>,
    /// What headers of everything else begin with.
    pub extra: Vec<String>,
}

impl Default for Headers {
    fn default() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Headers { user: one(USER), uid: one(UID), group: one(GROUP), extra: one(EXTRA) }
    }
}

impl Headers {
    /// For whom a request is asked; for nobody if no header says a name.
    pub fn name(&self, headers: &HeaderMap) -> Result<Option<Named>, NotText> {
        let texts = |name: &str| -> Result<Vec<String>, NotText> {
            let values = headers.get_all(name).iter();
            let values = values.map(|value| std::str::from_utf8(value.as_bytes()).map(str::to_owned));
            values.collect::<Result<_, _>>().map_err(|_| NotText)
        };
        let first = |names: &[String]| -> Result<String, NotText> {
            for name in names {
                let text = texts(name)?.into_iter().next().unwrap_or_default();
                if !text.is_empty() {
                    return Ok(text);
                }
            }
            Ok(String::new())
        };
        let name = first(&self.user)?;
        if name.is_empty() {
            return Ok(None);
        }
        let mut groups = Vec::new();
        for header in &self.group {
            groups.extend(texts(header)?.into_iter().filter(|group| !group.is_empty()));
        }
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for header in headers.keys() {
            for key in self.extra.iter().filter_map(|prefix| header.as_str().strip_prefix(prefix.as_str())) {
                extra.entry(unescaped(key)).or_default().extend(texts(header.as_str())?);
            }
        }
        Ok(Some(Named { name, uid: first(&self.uid)?, groups, extra }))
    }
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
pub fn says_for_whom(name: &HeaderName) -> bool {
    matches!(name.as_str(), USER | UID | GROUP) || name.as_str().starts_with(EXTRA)
}

/// Takes out what says for whom somebody asks, once that was believed or not.
pub fn strip(headers: &mut HeaderMap) {
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

    fn asked(all: &[(&'static str, &str)]) -> Option<Named> {
        Headers::default().name(&headers(all)).expect("text")
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
        let user = Named {
            name: "jürgen".to_owned(),
            uid: "7".to_owned(),
            groups: owned(vec!["a", "b"]),
            extra: extra.map(|(key, values)| (key.to_owned(), owned(values))).into(),
        };
        assert_eq!(asked(&all), Some(user));
        assert_eq!(asked(&[(GROUP, "system:masters"), (UID, "7")]), None, "groups are somebody's");
        assert_eq!(asked(&[(USER, ""), (USER, "second")]), None);
    }

    #[test]
    fn rule_6_12_what_is_no_text_names_nobody() {
        for name in [USER, UID, GROUP, "x-remote-extra-a"] {
            let mut headers = headers(&[(USER, "a")]);
            headers.insert(name, HeaderValue::from_bytes(b"\xff").expect("a value"));
            assert_eq!(Headers::default().name(&headers), Err(NotText), "{name}");
        }
    }

    /// A cluster may call its headers otherwise, and have several.
    #[test]
    fn rule_6_12_headers_of_other_names() {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let other = Headers {
            user: owned(&["x-user", "x-remote-user"]),
            uid: Vec::new(),
            group: owned(&["x-group", "x-team"]),
            extra: owned(&["x-more-"]),
        };
        let all = headers(&[
            (USER, "second"),
            (UID, "7"),
            (GROUP, "no"),
            ("x-group", "a"),
            ("x-team", "b"),
            ("x-more-c", "d"),
            ("x-remote-extra-e", "f"),
        ]);
        let extra = BTreeMap::from([("c".to_owned(), owned(&["d"]))]);
        let named =
            Named { name: "second".to_owned(), uid: String::new(), groups: owned(&["a", "b"]), extra };
        assert_eq!(other.name(&all), Ok(Some(named)));
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
