//! Who our servers are: an authority of our own, and certificates that it signs and renews.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use reconcile::Tasks;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use tokio::sync::watch;
use tracing::{info, warn};

/// The Secret in which the replicas of an operator share their authority. It is not Kueue's, which keeps what it needs
/// where it was before us.
const SECRET: &str = "ferry-webhook-authority";
/// How long a serving certificate is good for, in days.
const SERVING_DAYS: i64 = 90;
/// After how many of them it is renewed.
const RENEWED_AFTER_DAYS: i64 = SERVING_DAYS * 2 / 3;

/// How often it is looked whether a certificate is to be renewed.
pub(crate) const LOOK: Duration = Duration::from_secs(3600);

/// When a serving certificate that was made at some time is to be renewed.
fn renewed_at(made: Timestamp) -> Timestamp {
    made.saturating_add(jiff::SignedDuration::from_hours(24 * RENEWED_AFTER_DAYS)).unwrap_or(made)
}

/// A server that shows certificates.
pub(crate) struct Server {
    /// What it is called in them, and in logs.
    pub(crate) title: &'static str,
    /// By which names and addresses clients know it.
    pub(crate) names: Vec<String>,
    /// What becomes of certificates that clients show, if they may.
    pub(crate) clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// The names by which a cluster knows what is behind a Service.
pub(crate) fn names_of_service(namespace: &str, name: &str) -> Vec<String> {
    ["", ".svc", ".svc.cluster.local"].map(|end| format!("{name}.{namespace}{end}")).to_vec()
}

/// Signs the certificates of our servers.
#[derive(PartialEq, Eq)]
pub(crate) struct Authority {
    certificate: String,
    key: String,
}

/// The authority as it is now.
pub(crate) type Current = watch::Receiver<Arc<Authority>>;

/// Returns once there is another authority than the one that was seen.
pub(crate) async fn replaced(authority: &mut Current) {
    if authority.changed().await.is_err() {
        std::future::pending::<()>().await; // nobody replaces it
    }
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// One could not be made.
    #[error("failed to make a certificate")]
    Make(#[from] rcgen::Error),
    /// The one that was made, or found, cannot be used.
    #[error("failed to use a certificate")]
    Use(#[from] rustls::Error),
    /// What was found is no PEM.
    #[error("failed to read a certificate")]
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
    fn new() -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        Ok(Authority { certificate: itself()?.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }

    /// One that lives as long as this process.
    pub(crate) fn own() -> Result<Current, Error> {
        Ok(watch::channel(Arc::new(Authority::new()?)).1)
    }

    /// The one that all replicas of an operator share, for as long as `tasks` live: whoever wants another one deletes its
    /// Secret or writes to it, and then all of them have that one.
    pub(crate) async fn shared(
        client: &Client,
        namespace: &str,
        tasks: &mut Tasks,
    ) -> Result<Current, Error> {
        let first = Authority::found_or_made(client, namespace).await?;
        let (tell, current) = watch::channel(Arc::new(first));
        tasks.spawn("authority", follow(client.clone(), namespace.to_owned(), tell));
        Ok(current)
    }

    /// The one in the Secret, made by whoever comes first.
    async fn found_or_made(client: &Client, namespace: &str) -> Result<Self, Error> {
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
        Authority::read(&found, namespace)
    }

    fn read(found: &Secret, namespace: &str) -> Result<Self, Error> {
        let field = |field: &'static str| {
            let bytes = found.data.as_ref().and_then(|data| data.get(field));
            let text = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok());
            text.ok_or(Error::Field { namespace: namespace.to_owned(), field })
        };
        let read = Authority { certificate: field("ca.crt")?, key: field("ca.key")? };
        // What cannot be used is not told to anybody.
        CertificateDer::from_pem_slice(read.certificate.as_bytes())?;
        KeyPair::from_pem(&read.key)?;
        Ok(read)
    }

    /// What clients trust, in PEM.
    pub(crate) fn bundle(&self) -> &str {
        &self.certificate
    }

    /// How a server shows a certificate that is good from now on.
    pub(crate) fn serving(&self, server: &Server, now: Timestamp) -> Result<Arc<ServerConfig>, Error> {
        let issuer = Issuer::new(itself()?, KeyPair::from_pem(&self.key)?);
        let mut params = CertificateParams::new(server.names.as_slice())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.distinguished_name.push(DnType::CommonName, server.title);
        // Clocks differ a little, and certificates count in days.
        let [(year, month, day), until] = [day(now, -1), day(now, SERVING_DAYS)];
        params.not_before = date_time_ymd(year, month, day);
        params.not_after = date_time_ymd(until.0, until.1, until.2);
        let key = KeyPair::generate()?;
        let certificate = CertificateDer::from_pem_slice(params.signed_by(&key, &issuer)?.pem().as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = match &server.clients {
            None => config.with_no_client_auth(),
            Some(clients) => config.with_client_cert_verifier(Arc::clone(clients)),
        };
        let mut config = config.with_single_cert(vec![certificate], key)?;
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

/// Tells which authority is in the Secret, and makes one if there is none any more.
async fn follow(client: Client, namespace: String, tell: watch::Sender<Arc<Authority>>) {
    let api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let mut seen = Box::pin(watcher::watch_object(api, SECRET).default_backoff());
    while let Some(secret) = seen.next().await {
        // A watch that fails is started again.
        let Ok(secret) = secret else { continue };
        let authority = match secret {
            Some(secret) => Authority::read(&secret, &namespace),
            None => Authority::found_or_made(&client, &namespace).await,
        };
        match authority {
            Ok(authority) => {
                let is_another = tell.send_if_modified(|current| {
                    let is_another = **current != authority;
                    if is_another {
                        *current = Arc::new(authority);
                    }
                    is_another
                });
                if is_another {
                    info!(secret = SECRET, "there is another authority");
                }
            }
            Err(error) => {
                warn!(secret = SECRET, error = %reconcile::chain(&error), "the authority stays as it was");
            }
        }
    }
}

/// Renews the certificate of a server in time, and when there is another authority; connections that are there keep theirs.
pub(crate) struct Renewing {
    authority: Current,
    server: Server,
    /// When the one that is served was made.
    made: Timestamp,
    serving: Arc<ArcSwap<ServerConfig>>,
}

impl Renewing {
    /// With a certificate that is good from now on.
    pub(crate) fn begin(authority: Current, server: Server, now: Timestamp) -> Result<Self, Error> {
        let first = authority.borrow().serving(&server, now)?;
        let serving = Arc::new(ArcSwap::from(first));
        Ok(Renewing { authority, server, made: now, serving })
    }

    /// What is served at any time.
    pub(crate) fn serving(&self) -> Arc<ArcSwap<ServerConfig>> {
        Arc::clone(&self.serving)
    }

    /// Looks at the clock every so often: a machine may sleep, and a certificate that could not be made is tried again.
    pub(crate) async fn run(mut self, every: Duration, now: impl Fn() -> Timestamp) {
        let server = self.server.title;
        loop {
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                // Whatever was made before is of no use; also if this cannot be done at once.
                () = replaced(&mut self.authority) => self.made = Timestamp::MIN,
            }
            let now = now();
            if now < renewed_at(self.made) {
                continue;
            }
            let renewed = self.authority.borrow().serving(&self.server, now);
            match renewed {
                Ok(renewed) => {
                    self.serving.store(renewed);
                    self.made = now;
                    info!(server, "a certificate was renewed");
                }
                Err(error) => {
                    warn!(server, error = %reconcile::chain(&error), "failed to renew a certificate");
                }
            }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use jiff::SignedDuration;

    use super::*;

    /// A clock that goes a day with each look at it.
    #[tokio::test]
    async fn certificates_are_renewed_long_before_their_end() {
        let began = Timestamp::from_second(1_700_000_000).expect("a time");
        let server = Server { title: "test", names: vec!["localhost".to_owned()], clients: None };
        let renewing = Renewing::begin(Authority::own().expect("an authority"), server, began);
        let renewing = renewing.expect("a certificate");
        let serving = renewing.serving();
        // On each day, what is served.
        let served: Arc<Mutex<Vec<Arc<ServerConfig>>>> = Arc::default();
        let looked = Arc::clone(&served);
        let now = move || {
            let mut served = looked.lock().expect("nobody panics here");
            served.push(serving.load_full());
            began + SignedDuration::from_hours(24 * i64::try_from(served.len()).expect("a few days"))
        };
        let mut tasks = Tasks::new();
        tasks.spawn("renewing", renewing.run(Duration::from_millis(1), now));
        while served.lock().expect("nobody panics here").len() < 200 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tasks.stop().await;
        let served = served.lock().expect("nobody panics here");
        let changed: Vec<usize> =
            (1..200).filter(|day| !Arc::ptr_eq(&served[*day], &served[*day - 1])).collect();
        assert_eq!(changed, [60, 120, 180]);
    }
}
