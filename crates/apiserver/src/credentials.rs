//! Who a cluster is and who may talk to it: its certificates and its first user (6.10, 6.11).

use std::path::Path;
use std::{fs, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::auth::signer::{Signer, Unusable};

/// Names and addresses by which the server is known (6.10).
const SERVING_NAMES: [&str; 9] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
    "10.244.0.1",
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
    certificate: String,
    key: String,
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
        let authority_key = KeyPair::generate()?;
        let key_pem = authority_key.serialize_pem();
        let authority = CertifiedIssuer::self_signed(authority_params()?, authority_key)?;
        let mut serving = CertificateParams::new(SERVING_NAMES.map(str::to_owned))?;
        serving.is_ca = IsCa::NoCa;
        serving.distinguished_name = named("ferry", None);
        serving.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        serving.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let certificate = serving.signed_by(&key, &authority)?;
        Ok(Credentials {
            authority: authority.pem(),
            authority_key: key_pem,
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            token: uuid::Uuid::new_v4().simple().to_string(),
            signing_key: KeyPair::generate()?.serialize_pem(),
        })
    }

    /// The credentials kept in a directory, made if there are none yet.
    pub fn kept_in(dir: &Path) -> Result<Self, Error> {
        let path = dir.join("credentials.json");
        let failed = |doing, path: &Path| {
            let path = path.display().to_string();
            move |source| Error::File { doing, path, source }
        };
        match fs::read(&path) {
            Ok(bytes) => {
                let invalid = |source: serde_json::Error| failed("read", &path)(io::Error::other(source));
                serde_json::from_slice(&bytes).map_err(invalid)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = Credentials::ephemeral()?;
                fs::create_dir_all(dir).map_err(failed("make", dir))?;
                write_secret(&path, &serde_json::to_vec(&made).expect("JSON prints"))
                    .map_err(failed("write", &path))?;
                Ok(made)
            }
            Err(error) => Err(failed("read", &path)(error)),
        }
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
        let issuer = Issuer::new(authority_params()?, KeyPair::from_pem(&self.authority_key)?);
        let mut client = CertificateParams::new(Vec::new())?;
        client.is_ca = IsCa::NoCa;
        client.distinguished_name = named(name, Some(group));
        client.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        Ok((client.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    }

    pub(crate) fn chain(
        &self,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rustls::pki_types::pem::Error> {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes())?;
        Ok((vec![certificate], PrivateKeyDer::from_pem_slice(self.key.as_bytes())?))
    }

    /// The certificate that signs the cluster's own, in PEM.
    pub fn authority_pem(&self) -> &str {
        &self.authority
    }

    /// A kubeconfig for the first user. He shows his token and no certificate, because a certificate would win over
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

/// What the certificate of the authority says; the same every time, so that its key is all that has to be kept.
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
    use std::os::unix::fs::OpenOptionsExt as _;
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
        let dir = tempfile::tempdir().expect("a directory");
        let first = Credentials::kept_in(dir.path()).expect("made");
        let second = Credentials::kept_in(dir.path()).expect("read");
        assert_eq!((first.token, first.authority), (second.token, second.authority));
        let config = dir.path().join("kubeconfig");
        second_kubeconfig(&config);
        for file in [dir.path().join("credentials.json"), config] {
            let mode = fs::metadata(&file).expect("the file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{}", file.display());
        }
    }

    fn second_kubeconfig(path: &Path) {
        let credentials = Credentials::ephemeral().expect("credentials");
        credentials.write_kubeconfig(path, "c", "https://127.0.0.1:1").expect("written");
    }
}
