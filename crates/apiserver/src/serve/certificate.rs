//! The certificate by which clients know the server: made when it starts, and made anew before it ends.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::credentials::Credentials;

/// How long one is shown: two thirds of the year for which it is good.
const SHOWN: Duration = Duration::from_secs(243 * 24 * 60 * 60);

/// The certificate of a server.
pub(super) struct Serving {
    credentials: Arc<Credentials>,
    known_as: Vec<String>,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

struct Current {
    key: Arc<CertifiedKey>,
    until: Timestamp,
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Serving {
    /// For a server that is known by these names and addresses, too.
    pub(super) fn new(
        credentials: Arc<Credentials>,
        known_as: Vec<String>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, Failed> {
        let current = Mutex::new(Current::made(&credentials, &known_as, &provider, Timestamp::now())?);
        Ok(Serving { credentials, known_as, provider, current })
    }

    fn at(&self, now: Timestamp) -> Arc<CertifiedKey> {
        // It is replaced whole.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= current.until {
            match Current::made(&self.credentials, &self.known_as, &self.provider, now) {
                Ok(made) => *current = made,
                Err(error) => tracing::warn!(%error, "the certificate of the server was not made anew"),
            }
        }
        current.key.clone()
    }
}

impl Current {
    fn made(
        credentials: &Credentials,
        known_as: &[String],
        provider: &CryptoProvider,
        now: Timestamp,
    ) -> Result<Self, Failed> {
        let (certificate, key) = credentials.serving_certificate(known_as, now)?;
        let key = CertifiedKey::from_der(vec![certificate], key, provider)?;
        Ok(Current { key: Arc::new(key), until: now.checked_add(SHOWN)? })
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.at(Timestamp::now()))
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("known_as", &self.known_as).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_anew_before_it_ends() {
        let credentials = Arc::new(Credentials::ephemeral().expect("credentials"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let serving = Serving::new(credentials, Vec::new(), provider).expect("a certificate");
        let in_days = |days: u64| Timestamp::now() + Duration::from_secs(days * 86_400);
        let first = serving.at(in_days(0));
        assert!(Arc::ptr_eq(&first, &serving.at(in_days(240))));
        let second = serving.at(in_days(250));
        assert_ne!(first.cert, second.cert);
        assert!(Arc::ptr_eq(&second, &serving.at(in_days(400))), "and is good for as long");
    }
}
