//! The certificates that sign those of a conversion webhook.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionSpec;
use rules::pem;

/// Why the certificates of a definition's webhook cannot be used, if it names some.
pub(super) fn problem(spec: &CustomResourceDefinitionSpec) -> Option<&'static str> {
    let config = spec.conversion.as_ref()?.webhook.as_ref()?.client_config.as_ref()?;
    unusable(&config.ca_bundle.as_ref()?.0)
}

/// Why there is no certificate in a text that should have one. One is enough, whatever stands beside it.
pub(super) fn unusable(bundle: &[u8]) -> Option<&'static str> {
    let is_certificate = |contents: &[u8]| {
        x509_parser::parse_x509_certificate(contents).is_ok_and(|(rest, _)| rest.is_empty())
    };
    let certificates =
        || pem::blocks(bundle).filter(|block| block.label == "CERTIFICATE" && !block.has_headers);
    if bundle.is_empty() || certificates().any(|block| is_certificate(&block.contents)) {
        return None;
    }
    if certificates().next().is_some() {
        return Some("failed to parse certificate: x509: malformed certificate");
    }
    let mut rest = bundle;
    while let Some((_, after)) = pem::decode(rest) {
        rest = after;
    }
    Some(if rest.is_empty() {
        "no valid certificate authority data seen"
    } else {
        "unable to parse bytes as PEM block"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_authority() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let made = rcgen::CertificateParams::default().self_signed(&key).expect("a certificate").pem();
        let (key, broken) =
            (key.serialize_pem(), "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n");
        let (unparsable, malformed, none) = (
            Some("unable to parse bytes as PEM block"),
            Some("failed to parse certificate: x509: malformed certificate"),
            Some("no valid certificate authority data seen"),
        );
        for (bundle, expected) in [
            (String::new(), None),
            (made.clone(), None),
            (format!("{broken}words\n{made}words"), None),
            ("words".to_owned(), unparsable),
            (format!("{key}words"), unparsable),
            (broken.to_owned(), malformed),
            (format!("{broken}words"), malformed),
            (key, none),
        ] {
            assert_eq!(unusable(bundle.as_bytes()), expected, "{bundle}");
        }
    }
}
