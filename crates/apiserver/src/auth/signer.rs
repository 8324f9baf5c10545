//! The key that signs the tokens of service accounts (6.2): JSON Web Tokens with ES256, and nothing else.
//!
//! One algorithm and one key, both ours, make a token's header a formality: it is never asked which algorithm to use.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// Signs tokens, and knows its own signature.
pub struct Signer {
    pair: EcdsaKeyPair,
    /// Names the key in headers: the hash of its public half, as upstream names keys.
    id: String,
    random: SystemRandom,
}

/// The key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key that signs tokens is no P-256 key in PKCS #8: {0}")]
pub struct Unusable(String);

impl Signer {
    /// A key that nobody else has.
    pub fn generate() -> Result<Self, Unusable> {
        let key = rcgen::KeyPair::generate().map_err(|error| Unusable(error.to_string()))?;
        Signer::from_pem(&key.serialize_pem())
    }

    /// A key that was kept.
    pub fn from_pem(pem: &str) -> Result<Self, Unusable> {
        let random = SystemRandom::new();
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes())
            .map_err(|error| Unusable(error.to_string()))?;
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der(), &random)
                .map_err(|error| Unusable(error.to_string()))?;
        let id = BASE64.encode(digest(&SHA256, pair.public_key().as_ref()));
        Ok(Signer { pair, id, random })
    }

    /// A token that makes these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "ES256", "kid": self.id});
        let text = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
        let signature = self.pair.sign(&self.random, text.as_bytes()).expect("the system has random numbers");
        format!("{text}.{}", BASE64.encode(signature))
    }

    /// Whether the signature of a token is ours.
    pub(crate) fn signed(&self, token: &Parsed<'_>) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.pair.public_key().as_ref());
        token.header["alg"] == "ES256" && key.verify(token.signed.as_bytes(), &token.signature).is_ok()
    }

    /// The public half, for whoever wants to check tokens.
    pub(crate) fn key_set(&self) -> Value {
        // An uncompressed point: a byte that says so, then both coordinates.
        let point = self.pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": BASE64.encode(x), "y": BASE64.encode(y),
        }]})
    }
}

/// A token in its parts; nothing about it is believed yet.
pub(crate) struct Parsed<'a> {
    header: Value,
    pub(crate) claims: Value,
    signed: &'a str,
    signature: Vec<u8>,
}

impl<'a> Parsed<'a> {
    pub(crate) fn read(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |text: &str| {
            let bytes = BASE64.decode(text).ok()?;
            serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object)
        };
        Some(Parsed {
            header: object(header)?,
            claims: object(claims)?,
            signed,
            signature: BASE64.decode(signature).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_6_2_only_its_own_signatures() {
        let (ours, theirs) = (Signer::generate().expect("a key"), Signer::generate().expect("a key"));
        let token = ours.sign(&json!({"sub": "x"}));
        let parsed = Parsed::read(&token).expect("a token");
        assert_eq!(parsed.claims, json!({"sub": "x"}));
        assert!(ours.signed(&parsed) && !theirs.signed(&parsed));
        let (head, signature) = token.rsplit_once('.').expect("three parts");
        let other = BASE64.encode(r#"{"sub":"y"}"#);
        let (header, _) = head.split_once('.').expect("three parts");
        for forged in [format!("{header}.{other}.{signature}"), format!("{head}."), format!("{head}.AAAA")] {
            assert!(!Parsed::read(&forged).is_some_and(|parsed| ours.signed(&parsed)), "{forged}");
        }
        for nothing in ["", "a.b.c", "..", "a.b"] {
            assert!(Parsed::read(nothing).is_none(), "{nothing}");
        }
    }
}
