//! How others check the tokens of service accounts: the issuer's metadata and its keys (1.10).

use http::{HeaderValue, StatusCode, header, request};
use serde_json::json;

use super::tokens::{ISSUER, Tokens};
use crate::answer::{self, Answer};

const KEYS: &str = "/openid/v1/jwks";

/// The answer to one of the two paths, if it is one of them.
pub(crate) fn answer(tokens: &Tokens, path: &str, head: &request::Parts) -> Option<Answer> {
    let (content, document) = match path.trim_end_matches('/') {
        KEYS => ("application/jwk-set+json", tokens.signer().key_set()),
        "/.well-known/openid-configuration" => {
            let host = head.uri.authority().map(http::uri::Authority::as_str);
            let host = host.or_else(|| head.headers.get(header::HOST)?.to_str().ok());
            let keys = host.map_or_else(|| format!("{ISSUER}{KEYS}"), |host| format!("https://{host}{KEYS}"));
            let document = json!({
                "issuer": ISSUER, "jwks_uri": keys, "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"], "id_token_signing_alg_values_supported": ["ES256"],
            });
            ("application/json", document)
        }
        _ => return None,
    };
    let mut answer = answer::value(StatusCode::OK, &document);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Some(answer)
}
