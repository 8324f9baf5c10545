//! TokenReview: whose a token is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::user_info;
use crate::auth::tokens::ISSUER;
use crate::cluster::Context;
use crate::object;
use crate::status::Refusal;

/// A review that can be answered.
pub(super) fn accepted(review: Value) -> Result<Value, Refusal> {
    if object::text(&review, &["spec", "token"]).is_empty() {
        return Err(Refusal::bad_request("token is required for TokenReview in authentication"));
    }
    Ok(review)
}

pub(super) fn answered(context: &Context<'_>, mut review: Value) -> Value {
    let token = object::text(&review, &["spec", "token"]);
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
    review
}
