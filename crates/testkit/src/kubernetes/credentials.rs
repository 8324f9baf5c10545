//! Who may talk to a control plane, and what they need to know for it: certificates, tokens and kubeconfig files.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};

use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

use super::Error;

/// The token of the user `admin`. Not a secret: the API server listens on the loopback interface and lives for a test.
const TOKEN: &str = "admin-token";

/// The certificate authority of one control plane: it vouches for the server and for clients.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// The files that kube-apiserver and kube-controller-manager are pointed at.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) authority: PathBuf,
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) service_account_public: PathBuf,
    pub(crate) service_account_private: PathBuf,
    pub(crate) tokens: PathBuf,
}

/// How a client says who it is.
pub(crate) enum User<'a> {
    /// `admin` of `system:masters`, by bearer token.
    Admin,
    /// Anybody, by client certificate.
    /// One group only, because rcgen writes one organization into a name.
    Certified { name: &'a str, group: &'a str },
}

impl Authority {
    pub(crate) fn new() -> Result<Authority, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("testkit-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
        Ok(Authority { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate()?)? })
    }

    /// Writes what the servers need into `directory`; they are also known by `names`.
    pub(crate) fn write(&self, directory: &Path, names: &[String]) -> Result<Files, Error> {
        let file = |name: &str, content: String| {
            let path = directory.join(name);
            fs::write(&path, content).map(|()| path).map_err(Error::io("write credentials"))
        };
        let mut known = vec!["localhost".to_owned(), "kubernetes.default.svc".to_owned()];
        known.extend(names.iter().cloned());
        let mut params = CertificateParams::new(known)?;
        params.subject_alt_names.push(SanType::IpAddress(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        params.distinguished_name = common_name("kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = self.issue(params)?;
        let service_account = KeyPair::generate()?;
        Ok(Files {
            authority: file("ca.crt", self.issuer.pem())?,
            certificate: file("tls.crt", certificate)?,
            key: file("tls.key", key)?,
            service_account_public: file("service-account.pub", service_account.public_key_pem())?,
            service_account_private: file("service-account.key", service_account.serialize_pem())?,
            tokens: file("tokens.csv", format!("{TOKEN},admin,admin,system:masters\n"))?,
        })
    }

    /// Writes into `directory` what an API server needs to ask others for its users, signed by this authority alone, and
    /// returns the arguments that say so.
    pub(crate) fn write_front_proxy(&self, directory: &Path) -> Result<Vec<String>, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name("front-proxy-client");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.issue(params)?;
        let file = |flag: &str, name: &str, content: String| {
            let path = directory.join(name);
            fs::write(&path, content).map_err(Error::io("write credentials"))?;
            Ok::<_, Error>(format!("--{flag}={}", path.display()))
        };
        Ok(vec![
            file("requestheader-client-ca-file", "front-proxy-ca.crt", self.issuer.pem())?,
            file("proxy-client-cert-file", "front-proxy.crt", certificate)?,
            file("proxy-client-key-file", "front-proxy.key", key)?,
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ])
    }

    /// A kubeconfig for `user` and the API server on the given loopback port. Everything is inline, so that the file can
    /// be copied elsewhere.
    pub(crate) fn kubeconfig(&self, port: u16, user: &User<'_>) -> Result<Value, Error> {
        let user = match user {
            User::Admin => json!({ "token": TOKEN }),
            User::Certified { name, group } => {
                let mut params = CertificateParams::default();
                params.distinguished_name = common_name(name);
                params.distinguished_name.push(DnType::OrganizationName, *group);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
                let (certificate, key) = self.issue(params)?;
                json!({ "client-certificate-data": base64(&certificate), "client-key-data": base64(&key) })
            }
        };
        let cluster = json!({
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority-data": base64(&self.issuer.pem()),
        });
        Ok(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testkit",
            "clusters": [{ "name": "testkit", "cluster": cluster }],
            "users": [{ "name": "testkit", "user": user }],
            "contexts": [{ "name": "testkit", "context": { "cluster": "testkit", "user": "testkit" } }],
        }))
    }

    /// A certificate and its key. Never that of an authority: rustls refuses one as a server's own.
    fn issue(&self, mut params: CertificateParams) -> Result<(String, String), Error> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }
}

fn base64(pem: &str) -> ByteString {
    ByteString(pem.as_bytes().to_vec()) // which prints itself so
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
