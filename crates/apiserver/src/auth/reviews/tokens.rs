//! TokenReview: whose a token is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::user_info;
use crate::auth::tokens::ISSUER;
use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;

pub(super) fn review(context: &Context<'_>, mut review: Value) -> Result<Value, Refusal> {
    let token = object::text(&review, &["spec", "token"]);
    if token.is_empty() {
        return Err(Refusal::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<String> = match review["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![ISSUER.to_owned()],
    };
    let now = Timestamp::now();
    let verified = match context.cluster.authenticator() {
        Some(authenticator) => authenticator.verify(token, &audiences, now),
        None => context.cluster.tokens().verify(token, &audiences, now),
    };
    review["status"] = match verified {
        Ok(verified) => json!({
            "authenticated": true, "user": user_info(&verified.user), "audiences": verified.audiences,
        }),
        Err(why) => json!({"error": why.to_string(), "user": {}}),
    };
    Ok(review)
}
