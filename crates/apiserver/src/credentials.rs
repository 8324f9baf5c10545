//! Who a cluster is and who may talk to it: its certificates and its first user (6.10, 6.11).
//!
//! What is kept is the authority with its key: kubeconfigs believe in it. What it signs is made when it is needed, and is good
//! for a year.

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::auth::signer::{Signer, Unusable};

/// How long an authority is believed in, in days, and how long what it signs.
pub(crate) const AUTHORITY_DAYS: i32 = 3650;
const SIGNED_DAYS: i32 = 365;
/// An authority that ends in less than so many days is made anew: with the key that it had, so that kubeconfigs that know
/// the older one go on to work until that one ends.
const RENEWED_DAYS: i64 = 730;

/// Names and addresses by which every server is known (6.10).
const SERVING_NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// What the first user and the listener of a cluster need to know each other, and the keys with which others are vouched
/// for.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    authority: String,
    authority_key: String,
    token: String,
    /// Signs the tokens of service accounts.
    signing_key: String,
}

/// Credentials could not be made, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A certificate could not be made.
    #[error("failed to make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// A file could not be read or written.
    #[error("failed to {doing} {path}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: String,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Credentials {
    /// The credentials of a cluster that keeps nothing.
    pub fn ephemeral() -> Result<Self, Error> {
        Credentials::made(Timestamp::now())
    }

    fn made(now: Timestamp) -> Result<Self, Error> {
        let authority_key = KeyPair::generate()?;
        Ok(Credentials {
            authority: authority(&authority_key, now)?,
            authority_key: authority_key.serialize_pem(),
            token: uuid::Uuid::new_v4().simple().to_string(),
            signing_key: KeyPair::generate()?.serialize_pem(),
        })
    }

    /// The credentials kept in a directory, made if there are none yet.
    pub fn kept_in(dir: &Path) -> Result<Self, Error> {
        Credentials::kept_at(dir, Timestamp::now())
    }

    fn kept_at(dir: &Path, now: Timestamp) -> Result<Self, Error> {
        let path = dir.join("credentials.json");
        let failed = |doing, path: &Path| {
            let path = path.display().to_string();
            move |source| Error::File { doing, path, source }
        };
        let current = match fs::read(&path) {
            Ok(bytes) => {
                let kept: Credentials = serde_json::from_slice(&bytes)
                    .map_err(|source| failed("read", &path)(io::Error::other(source)))?;
                if kept.authority_ends().map_err(failed("read", &path))? - now.as_second()
                    > RENEWED_DAYS * 86_400
                {
                    return Ok(kept);
                }
                Credentials { authority: authority(&KeyPair::from_pem(&kept.authority_key)?, now)?, ..kept }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut private = fs::DirBuilder::new();
                private.recursive(true).mode(0o700).create(dir).map_err(failed("make", dir))?;
                Credentials::made(now)?
            }
            Err(error) => return Err(failed("read", &path)(error)),
        };
        write_secret(&path, &serde_json::to_vec(&current).expect("JSON prints"))
            .map_err(failed("write", &path))?;
        Ok(current)
    }

    /// Until when the authority is believed in, in seconds.
    fn authority_ends(&self) -> io::Result<i64> {
        let authority = self.authority().map_err(io::Error::other)?;
        let (_, authority) = X509Certificate::from_der(&authority).map_err(io::Error::other)?;
        Ok(authority.validity().not_after.timestamp())
    }

    /// Whether a token is the first user's.
    pub(crate) fn admits(&self, token: &str) -> bool {
        // Every byte is compared, so that the time it takes tells nothing.
        let differs = self.token.bytes().zip(token.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
        self.token.len() == token.len() && differs == 0
    }

    /// Signs the tokens of service accounts.
    pub fn signer(&self) -> Result<Signer, Unusable> {
        Signer::from_pem(&self.signing_key)
    }

    /// The certificate of the authority that vouches for clients.
    pub(crate) fn authority(&self) -> Result<CertificateDer<'static>, rustls::pki_types::pem::Error> {
        CertificateDer::from_pem_slice(self.authority.as_bytes())
    }

    /// A certificate and its key, by which somebody is known by this name and in this group.
    pub fn client_certificate(&self, name: &str, group: &str) -> Result<(String, String), Error> {
        let mut client = CertificateParams::new(Vec::new())?;
        client.distinguished_name = named(name, Some(group));
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.signed(client, Timestamp::now())?;
        Ok((certificate.pem(), key.serialize_pem()))
    }

    /// A certificate and its key, by which a server is known at these addresses, too.
    pub(crate) fn serving_certificate(
        &self,
        known_as: &[String],
        now: Timestamp,
    ) -> Result<(CertificateDer<'static>, PrivateKeyDer<'static>), Error> {
        let known_as = known_as.iter().cloned();
        let mut names: Vec<String> = SERVING_NAMES.map(str::to_owned).into_iter().chain(known_as).collect();
        names.sort_unstable();
        names.dedup();
        let mut serving = CertificateParams::new(names)?;
        serving.distinguished_name = named("ferry", None);
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = self.signed(serving, now)?;
        Ok((certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into()))
    }

    fn signed(&self, mut params: CertificateParams, now: Timestamp) -> Result<(Certificate, KeyPair), Error> {
        let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&self.authority_key)?);
        params.is_ca = IsCa::NoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        lasting(&mut params, now, SIGNED_DAYS);
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &issuer)?, key))
    }

    /// The certificate that signs the cluster's own, in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.authority
    }

    /// A kubeconfig for the first user. It has a token and no certificate, because a certificate would win over
    /// every other token that somebody tries with the same file.
    pub fn kubeconfig(&self, cluster: &str, server: &str) -> Value {
        self.kubeconfig_with(cluster, server, &json!({"token": self.token}))
    }

    /// A kubeconfig for somebody who is known by a certificate.
    pub fn kubeconfig_for(
        &self,
        cluster: &str,
        server: &str,
        name: &str,
        group: &str,
    ) -> Result<Value, Error> {
        let (certificate, key) = self.client_certificate(name, group)?;
        let user = json!({"client-certificate-data": BASE64.encode(certificate), "client-key-data": BASE64.encode(key)});
        Ok(self.kubeconfig_with(cluster, server, &user))
    }

    fn kubeconfig_with(&self, cluster: &str, server: &str, user: &Value) -> Value {
        let authority = BASE64.encode(&self.authority);
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": cluster, "user": user}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": cluster}}],
        })
    }

    /// Writes a kubeconfig for the first user, which only its owner can read.
    pub fn write_kubeconfig(&self, path: &Path, cluster: &str, server: &str) -> Result<(), Error> {
        write_kubeconfig(path, &self.kubeconfig(cluster, server))
    }
}

/// Writes a kubeconfig, which only its owner can read.
pub fn write_kubeconfig(path: &Path, config: &Value) -> Result<(), Error> {
    let text = serde_json::to_vec_pretty(config).expect("JSON prints");
    write_secret(path, &text).map_err(|source| Error::File {
        doing: "write",
        path: path.display().to_string(),
        source,
    })
}

/// The certificate of the authority with this key, in PEM.
fn authority(key: &KeyPair, now: Timestamp) -> Result<String, Error> {
    let mut params = authority_params()?;
    lasting(&mut params, now, AUTHORITY_DAYS);
    Ok(params.self_signed(key)?.pem())
}

/// Makes a certificate good for so many days, and from the day before on: clocks differ.
pub(crate) fn lasting(params: &mut CertificateParams, now: Timestamp, days: i32) {
    let day = |offset: i32| {
        let date = now.to_zoned(TimeZone::UTC).date().saturating_add(offset.days());
        rcgen::date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = day(-1);
    params.not_after = day(days);
}

/// What the certificate of the authority says besides; the same every time, so that its key is all that signing takes.
fn authority_params() -> Result<CertificateParams, rcgen::Error> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    authority.distinguished_name = named("ferry-ca", None);
    Ok(authority)
}

fn named(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut named = DistinguishedName::new();
    named.push(DnType::CommonName, name);
    if let Some(group) = group {
        named.push(DnType::OrganizationName, group);
    }
    named
}

/// Replaces a file in one step, readable by its owner only.
fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new = parent.join(format!(".{}.new", uuid::Uuid::new_v4().simple()));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_token_admits() {
        let credentials = Credentials::ephemeral().expect("credentials");
        let right = &credentials.token;
        assert!(credentials.admits(right));
        for wrong in ["", "x", &format!("{right}x"), &right[..right.len() - 1]] {
            assert!(!credentials.admits(wrong), "{wrong}");
        }
    }

    #[test]
    fn kept_credentials_are_the_same_again_and_secret() {
        let all = tempfile::tempdir().expect("a directory");
        let dir = all.path().join("new");
        let first = Credentials::kept_in(&dir).expect("made");
        let second = Credentials::kept_in(&dir).expect("read");
        assert_eq!((first.token, first.authority), (second.token, second.authority));
        assert_eq!(fs::metadata(&dir).expect("it is there").permissions().mode() & 0o777, 0o700);
        let config = dir.join("kubeconfig");
        second_kubeconfig(&config);
        for file in [dir.join("credentials.json"), config] {
            let mode = fs::metadata(&file).expect("the file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    const DAY: i64 = 86_400;

    fn in_days(days: i64) -> Timestamp {
        Timestamp::from_second(Timestamp::now().as_second() + days * DAY).expect("a time")
    }

    #[test]
    fn an_authority_near_its_end_is_made_anew_with_its_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let first = Credentials::kept_in(dir.path()).expect("made");
        let ends = first.authority_ends().expect("a certificate") - Timestamp::now().as_second();
        assert!((3648 * DAY..=3650 * DAY).contains(&ends), "{ends}");
        let before = Credentials::kept_at(dir.path(), in_days(2900)).expect("read");
        assert_eq!(before.authority, first.authority);
        let renewed = Credentials::kept_at(dir.path(), in_days(3000)).expect("made anew");
        assert_ne!(renewed.authority, first.authority);
        assert_eq!((&renewed.authority_key, &renewed.token), (&first.authority_key, &first.token));
        assert!(renewed.authority_ends().expect("a certificate") > first.authority_ends().expect("another"));
        let again = Credentials::kept_at(dir.path(), in_days(3001)).expect("read");
        assert_eq!(again.authority, renewed.authority);
        // Whoever believes in the older one knows a server by what the newer one signs.
        let (certificate, _) = renewed.serving_certificate(&[], in_days(3000)).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(first.authority().expect("a certificate")).expect("an authority");
        let provider = rustls::crypto::ring::default_provider();
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate).expect("a certificate");
        let at = std::time::Duration::from_secs(in_days(3000).as_second().unsigned_abs());
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &roots,
            &[],
            rustls::pki_types::UnixTime::since_unix_epoch(at),
            provider.signature_verification_algorithms.all,
        )
        .expect("it is believed in");
    }

    #[test]
    fn rule_6_10_a_server_is_known_by_its_names_and_addresses_for_a_year() {
        let credentials = Credentials::ephemeral().expect("credentials");
        let known_as = ["192.0.2.7", "east.example.net"].map(str::to_owned);
        let (certificate, _) =
            credentials.serving_certificate(&known_as, Timestamp::now()).expect("a certificate");
        let parsed = rustls::server::ParsedCertificate::try_from(&certificate).expect("a certificate");
        let is_known = |name: &str| {
            let name = rustls::pki_types::ServerName::try_from(name).expect("a name");
            rustls::client::verify_server_name(&parsed, &name).is_ok()
        };
        for name in SERVING_NAMES.iter().chain(&["192.0.2.7", "east.example.net"]) {
            assert!(is_known(name), "{name}");
        }
        assert!(!is_known("192.0.2.8") && !is_known("example.com"));
        let (_, certificate) = X509Certificate::from_der(&certificate).expect("a certificate");
        let (begins, ends) = (certificate.validity().not_before, certificate.validity().not_after);
        let now = Timestamp::now().as_second();
        assert!((now - 3 * DAY..now).contains(&begins.timestamp()));
        assert!((now + 363 * DAY..=now + 365 * DAY).contains(&ends.timestamp()));
    }

    #[test]
    fn credentials_of_before_are_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = Credentials::kept_in(dir.path()).expect("made");
        let path = dir.path().join("credentials.json");
        let mut kept: Value = serde_json::from_slice(&fs::read(&path).expect("the file")).expect("JSON");
        kept["certificate"] = json!("kept, before it was made when it is needed");
        fs::write(&path, kept.to_string()).expect("written");
        assert_eq!(Credentials::kept_in(dir.path()).expect("read").authority, made.authority);
    }

    fn second_kubeconfig(path: &Path) {
        let credentials = Credentials::ephemeral().expect("credentials");
        credentials.write_kubeconfig(path, "c", "https://127.0.0.1:1").expect("written");
    }
}
