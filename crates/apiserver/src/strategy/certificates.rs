//! What a server says of requests for certificates beside the rules (3.14): who asks, when something was said of one, and
//! what is wrong with what is written in them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rules::field::{Errors, Path};
use rules::kind::certificates::{set_requester, set_times};
use rules::pem;
use serde_json::{Value, json};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::oid_registry::{OID_KEY_TYPE_EC_PUBLIC_KEY, OID_SIG_ED25519};
use x509_parser::prelude::FromDer as _;

use crate::auth::user::User;
use crate::cluster::Context;
use crate::object;

const GROUP: &str = "certificates.k8s.io";
const KIND: &str = "CertificateSigningRequest";

/// A request with who asks, or with the times of what is said of it; other objects stay as they are. Nobody comes to
/// manage what is said here.
pub(crate) fn told<'a>(
    context: &Context<'_>,
    mut body: Cow<'a, Value>,
    old: Option<&Value>,
) -> Cow<'a, Value> {
    if (context.resource.group.as_str(), context.resource.kind.as_str()) != (GROUP, KIND) {
        return body;
    }
    match (old, context.target.subresource.as_deref()) {
        (None, _) => set_requester(body.to_mut(), &as_requester(context.user)),
        (Some(old), Some(_)) => set_times(body.to_mut(), old, &object::time(jiff::Timestamp::now())),
        (Some(_), None) => {}
    }
    body
}

/// A user with the names that a request has for them. What is empty is not said.
fn as_requester(user: &User) -> Value {
    let said = [
        ("username", json!(user.name)),
        ("uid", json!(user.uid)),
        ("groups", json!(user.groups)),
        ("extra", json!(user.extra)),
    ];
    let is_empty = |value: &Value| value == "" || *value == json!([]) || *value == json!({});
    said.into_iter().filter(|(_, value)| !is_empty(value)).collect()
}

/// What is wrong with what is written in a request for a certificate, and with the certificate that it got.
pub(crate) fn errors(group: &str, kind: &str, new: &Value) -> Errors {
    if (group, kind) != (GROUP, KIND) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    let request = &new["spec"]["request"];
    if let Err(why) = requested(request.as_str().unwrap_or(""), |request| {
        request.verify_signature().map_err(|error| unverified(request, &error))
    }) {
        let path = Path::new("spec").child("request");
        errors.push(path.invalid(rules::field::Value::json(request), why));
    }
    if let Err(why) = certificates(object::text(new, &["status", "certificate"])) {
        errors.push(Path::new("status").child("certificate").invalid("<certificate data>", why));
    }
    errors
}

/// What somebody makes of a request, once it is read.
pub(crate) fn requested<T>(
    request: &str,
    of: impl FnOnce(&X509CertificationRequest<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let request = STANDARD.decode(request).map_err(|why| why.to_string())?;
    let block = pem::decode(&request).map(|(block, _)| block);
    let Some(block) = block.filter(|block| block.label == "CERTIFICATE REQUEST") else {
        return Err("PEM block type must be CERTIFICATE REQUEST".to_owned());
    };
    match X509CertificationRequest::from_der(&block.contents) {
        Ok((rest, _)) if !rest.is_empty() => Err("asn1: syntax error: trailing data".to_owned()),
        Ok((_, parsed)) => of(&parsed),
        Err(why) => Err(format!("asn1: structure error: {why}")),
    }
}

/// Why it is not clear that whoever asks has the key, as Go says it.
fn unverified(request: &X509CertificationRequest<'_>, error: &X509Error) -> String {
    if *error != X509Error::SignatureVerificationError {
        return "x509: cannot verify signature: algorithm unimplemented".to_owned();
    }
    let key = &request.certification_request_info.subject_pki.algorithm.algorithm;
    let why = if *key == OID_KEY_TYPE_EC_PUBLIC_KEY {
        "x509: ECDSA verification failure"
    } else if *key == OID_SIG_ED25519 {
        "x509: Ed25519 verification failure"
    } else {
        "crypto/rsa: verification error"
    };
    why.to_owned()
}

/// Why something is no chain of certificates. None at all is one.
fn certificates(chain: &str) -> Result<(), String> {
    if chain.is_empty() {
        return Ok(());
    }
    let chain = STANDARD.decode(chain).map_err(|why| why.to_string())?;
    let mut count = 0;
    for block in pem::blocks(&chain) {
        if block.label != "CERTIFICATE" {
            let label = types::go::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.contents.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        let mut rest = block.contents.as_slice();
        while !rest.is_empty() {
            (rest, _) = x509_parser::parse_x509_certificate(rest)
                .map_err(|_| "x509: malformed certificate".to_owned())?;
        }
        count += 1;
    }
    if count == 0 {
        return Err("must contain at least one CERTIFICATE PEM block".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

    use super::*;

    /// A request in PEM, whose last byte is changed.
    fn spoilt(pem: &str) -> String {
        let (mut block, _) = pem::decode(pem.as_bytes()).expect("a block");
        *block.contents.last_mut().expect("bytes") ^= 1;
        let contents = STANDARD.encode(block.contents);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{contents}\n-----END CERTIFICATE REQUEST-----\n")
    }

    #[test]
    fn rule_3_14_who_asks_for_a_certificate_has_the_key() {
        let wrong = |pem: &str| {
            let request = json!({"spec": {"request": STANDARD.encode(pem)}});
            errors(GROUP, KIND, &request).first().map(|error| error.detail.clone())
        };
        for (key, why) in [
            (KeyPair::generate(), "x509: ECDSA verification failure"),
            (KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384), "x509: ECDSA verification failure"),
            (KeyPair::generate_for(&PKCS_ED25519), "x509: Ed25519 verification failure"),
        ] {
            let pem = CertificateParams::default().serialize_request(&key.expect("a key"));
            let pem = pem.and_then(|request| request.pem()).expect("a request");
            assert_eq!(wrong(&pem), None);
            assert_eq!(wrong(&format!("words\n{pem}")), None);
            assert_eq!(wrong(&spoilt(&pem)).as_deref(), Some(why));
            let other = wrong(&pem.replace("CERTIFICATE REQUEST", "CERTIFICATE"));
            assert_eq!(other.as_deref(), Some("PEM block type must be CERTIFICATE REQUEST"));
        }
    }

    #[test]
    fn rule_3_14_a_signer_gives_certificates() {
        let key = KeyPair::generate().expect("a key");
        let pem = CertificateParams::default().self_signed(&key).expect("a certificate").pem();
        let check = |chain: &str| certificates(&STANDARD.encode(chain)).err();
        assert_eq!(check(""), None);
        assert_eq!(check(&format!("{pem}{pem}")), None);
        assert_eq!(check("a").as_deref(), Some("must contain at least one CERTIFICATE PEM block"));
        let why = check(&pem.replace("CERTIFICATE", "PRIVATE KEY"));
        assert_eq!(why.as_deref(), Some("only CERTIFICATE PEM blocks are allowed, found \"PRIVATE KEY\""));
        let why = check("-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n");
        assert_eq!(why.as_deref(), Some("x509: malformed certificate"));
    }
}
