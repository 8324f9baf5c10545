//! By what the servers of others know that a request comes from here: a certificate of this process, signed by an
//! authority that has no other use. Both are new with every start; servers watch for the one to believe in.

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::auth::front_proxy::{FrontProxies, Unusable};
use crate::credentials::{AUTHORITY_DAYS, lasting};

/// Who this server is to others.
const CLIENT_NAME: &str = "front-proxy-client";

/// A certificate, its key, and the authority.
pub(crate) struct Identity {
    authority: String,
    certificate: CertificateDer<'static>,
    key: String,
}

impl Identity {
    pub(super) fn generate() -> Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        authority.distinguished_name.push(DnType::CommonName, "front-proxy-ca");
        lasting(&mut authority, Timestamp::now(), AUTHORITY_DAYS);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let mut client = CertificateParams::new(Vec::new())?;
        client.is_ca = IsCa::NoCa;
        client.distinguished_name.push(DnType::CommonName, CLIENT_NAME);
        // It is shown for as long as the process lives.
        lasting(&mut client, Timestamp::now(), AUTHORITY_DAYS);
        client.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = client.signed_by(&key, &authority)?;
        Ok(Identity {
            authority: authority.pem(),
            certificate: certificate.der().clone(),
            key: key.serialize_pem(),
        })
    }

    /// Who this server is to those who have to believe for whom it asks.
    pub(super) fn as_front_proxy(&self) -> Result<FrontProxies, Unusable> {
        FrontProxies::signed_by(&self.authority, vec![CLIENT_NAME.to_owned()])
    }

    /// What is shown to them.
    pub(super) fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key that was just made");
        (vec![self.certificate.clone()], key)
    }
}
