//! Who the webhook server is: an authority of our own, and a certificate that it signs and renews.

use std::sync::Arc;

use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The Secret in which the replicas of an operator share their authority. It is not Kueue's, which keeps what it needs
/// where it was before us.
const SECRET: &str = "ferry-webhook-authority";
/// How long a serving certificate is good for, in days.
const SERVING_DAYS: i64 = 90;
/// After how many of them it is renewed.
const RENEWED_AFTER_DAYS: i64 = SERVING_DAYS * 2 / 3;

/// When a serving certificate that was made at some time is to be renewed.
pub(super) fn renewed_at(made: Timestamp) -> Timestamp {
    made.saturating_add(jiff::SignedDuration::from_hours(24 * RENEWED_AFTER_DAYS)).unwrap_or(made)
}

/// Signs the certificates of webhook servers.
pub(super) struct Authority {
    certificate: String,
    key: String,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One could not be made.
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    /// The one that was made, or found, cannot be used.
    #[error("failed to use the certificate of the webhooks")]
    Use(#[from] rustls::Error),
    /// What was found is no PEM.
    #[error("failed to read the certificate of the webhooks")]
    Read(#[from] rustls::pki_types::pem::Error),
    /// The Secret with the authority.
    #[error("failed to read or write secret {namespace}/{SECRET}")]
    Secret {
        /// Where it is.
        namespace: String,
        /// What the cluster said.
        source: kube::Error,
    },
    /// The Secret with the authority is there, and is somebody else's.
    #[error("secret {namespace}/{SECRET} has no {field}; delete it to have a new one made")]
    Field {
        /// Where it is.
        namespace: String,
        /// What is missing.
        field: &'static str,
    },
}

impl Authority {
    /// One that lives as long as this process.
    pub(super) fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        Ok(Authority { certificate: itself()?.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// The one that all replicas of an operator share; made by whoever comes first.
    pub(super) async fn shared(client: &Client, namespace: &str) -> Result<Self, Error> {
        let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let failed = |source| Error::Secret { namespace: namespace.to_owned(), source };
        let found = match api.get_opt(SECRET).await.map_err(failed)? {
            Some(found) => found,
            None => match api.create(&PostParams::default(), &Authority::new()?.secret()).await {
                Ok(made) => made,
                Err(kube::Error::Api(status)) if status.is_already_exists() => {
                    api.get(SECRET).await.map_err(failed)?
                }
                Err(source) => return Err(failed(source)),
            },
        };
        let field = |field: &'static str| {
            let bytes = found.data.as_ref().and_then(|data| data.get(field));
            let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or(Error::Field { namespace: namespace.to_owned(), field })
        };
        Ok(Authority { certificate: field("ca.crt")?, key: field("ca.key")? })
    }

    /// What clients trust, in PEM.
    pub(super) fn bundle(&self) -> &str {
        &self.certificate
    }

    /// A server by these names, from now on.
    pub(super) fn serving(&self, names: &[String], now: Timestamp) -> Result<Arc<ServerConfig>, Error> {
        let issuer = Issuer::new(itself()?, KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::new(names)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, "ferry-webhooks");
        // Clocks differ a little, and certificates count in days.
        let [(year, month, day), until] = [day(now, -1), day(now, SERVING_DAYS)];
        params.not_before = date_time_ymd(year, month, day);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate()?;
        let certificate = CertificateDer::from_pem_slice(params.signed_by(&key, &issuer)?.pem().as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_no_client_auth().with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }

    fn secret(&self) -> Secret {
        let data = [("ca.crt", &self.certificate), ("ca.key", &self.key)];
        Secret {
            metadata: ObjectMeta { name: Some(SECRET.to_owned()), ..ObjectMeta::default() },
            data: Some(
                data.map(|(field, text)| (field.to_owned(), ByteString(text.clone().into_bytes()))).into(),
            ),
            ..Secret::default()
        }
    }
}

/// What the authority's own certificate says: the same every time, so that its key is all it takes to sign.
fn itself() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.distinguished_name.push(DnType::CommonName, "ferry-webhooks-authority");
    Ok(params)
}

/// Year, month and day some days from now.
fn day(now: Timestamp, days: i64) -> (i32, u8, u8) {
    let date = now.to_zoned(jiff::tz::TimeZone::UTC).date().saturating_add(days.days());
    let part = |part: i8| u8::try_from(part).expect("months and days are small and positive");
    (i32::from(date.year()), part(date.month()), part(date.day()))
}
