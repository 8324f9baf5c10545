//! POST to the `token` of a service account (2.78): a token for it, bound to what it is asked to be bound to.

use std::sync::OnceLock;

use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use rules::field::Path;
use serde_json::{Value, json};

use super::tokens::{ISSUER, Kubernetes, Reference, Tokens};
use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::registry::{Registry, Resource};
use crate::status::{About, Refusal};
use crate::{admission, body, object, verbs};

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";
/// How long a token lives if nobody says.
const USUAL_SECONDS: i64 = 3600;
/// What pods ask for, by the old agreement that such tokens live longer than they say.
const WARN_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 60 * 60;

pub(crate) async fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let body::Read { object, mut warnings } =
        body::read(&token_requests(), &context.head.headers, context.query, bytes)?;
    answer::warned(issue(context, object, &mut warnings).await, &warnings)
}

async fn issue(context: &Context<'_>, sent: Value, warnings: &mut Vec<String>) -> Result<Answer, Refusal> {
    let (namespace, name) = (context.namespace(), context.name());
    verbs::expect_namespace(context, &sent)?;
    let request = admission::mutated_part(context, &token_requests(), sent, warnings).await?;
    expect_same(context, &request)?;
    let tokens = context.cluster.tokens();
    let account =
        tokens.find("serviceaccounts", namespace, name).ok_or_else(|| verbs::absent(context, name))?;
    let uid = object::text(&account, &["metadata", "uid"]);
    let asked_uid = object::text(&request, &["metadata", "uid"]);
    if !asked_uid.is_empty() && asked_uid != uid {
        let why = format!(
            "the UID in the token request ({asked_uid}) does not match the UID of the service account ({uid})"
        );
        return Err(Refusal::conflict(About { group: GROUP, resource: KIND, name }, &why));
    }
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(USUAL_SECONDS);
    expect_lifetime(seconds)?;
    let audiences: Vec<String> = match request["spec"]["audiences"].as_array() {
        Some(list) if !list.is_empty() => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec![ISSUER.to_owned()],
    };
    let now = Timestamp::now();
    let mut request = request;
    let meta = &mut request["metadata"];
    (meta["name"], meta["namespace"], meta["uid"]) = (json!(name), json!(namespace), json!(uid));
    meta["creationTimestamp"] = json!(object::time(now));
    request["spec"]["audiences"] = json!(audiences);
    request["spec"]["expirationSeconds"] = json!(seconds);
    request["status"] = json!({});
    admission::validated_part(context, &token_requests(), &request, warnings).await?;
    let mut claims = Kubernetes {
        namespace: namespace.to_owned(),
        serviceaccount: Reference { name: name.to_owned(), uid: uid.to_owned() },
        ..Kubernetes::default()
    };
    bind(tokens, &request["spec"]["boundObjectRef"], &mut claims)?;
    let is_for_us = audiences.iter().all(|audience| audience == ISSUER);
    let lives = if claims.pod.is_some() && seconds == WARN_SECONDS && is_for_us {
        claims.warnafter = Some(now.as_second() + seconds);
        EXTENDED_SECONDS
    } else {
        seconds
    };
    let token = tokens.issue(claims, &audiences, now, lives);
    let mut answer = request;
    answer["status"] = json!({
        "token": token, "expirationTimestamp": object::time(now + SignedDuration::from_secs(seconds)),
    });
    answer["apiVersion"] = json!(format!("{GROUP}/v1"));
    answer["kind"] = json!(KIND);
    Ok(answer::value(StatusCode::CREATED, &schema::encode(token_requests().of_type(), &answer)))
}

/// Token requests are no resource of their own; this is what reading one needs to know.
fn token_requests() -> Resource {
    let accounts =
        Registry::built_in().get("", "v1", "serviceaccounts").expect("service accounts are served");
    Resource {
        group: GROUP.to_owned(),
        version: "v1".to_owned(),
        kind: KIND.to_owned(),
        subresources: Vec::new(),
        known_type: OnceLock::new(),
        ..Resource::clone(accounts)
    }
}

/// The name in the body is that of the path, if it is there.
fn expect_same(context: &Context<'_>, request: &Value) -> Result<(), Refusal> {
    let name = object::text(request, &["metadata", "name"]);
    if !name.is_empty() && name != context.name() {
        let why = "must match the service account name if specified";
        let error = Path::new("metadata").child("name").invalid(name, why);
        let about = About { group: GROUP, resource: KIND, name: context.name() };
        return Err(Refusal::invalid(about, &vec![error]));
    }
    Ok(())
}

fn expect_lifetime(seconds: i64) -> Result<(), Refusal> {
    let path = Path::new("spec").child("expirationSeconds");
    let why = if seconds < 600 {
        "may not specify a duration less than 10 minutes"
    } else if seconds > 1 << 32 {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let about = About { group: GROUP, resource: KIND, name: "" };
    Err(Refusal::invalid(about, &vec![path.invalid(seconds, why)]))
}

/// Binds a token to an object: it is good for as long as that one is there.
fn bind(tokens: &Tokens, reference: &Value, claims: &mut Kubernetes) -> Result<(), Refusal> {
    if reference.is_null() {
        return Ok(());
    }
    let text = |field: &str| object::text(reference, &[field]);
    let (kind, name, namespace) = (text("kind"), text("name"), claims.namespace.clone());
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let (plural, namespace) = match (group, kind) {
        ("", "Pod") => ("pods", namespace.as_str()),
        ("", "Secret") => ("secrets", namespace.as_str()),
        ("", "Node") => ("nodes", ""),
        _ => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Refusal::bad_request(why));
        }
    };
    let found = tokens
        .find(plural, namespace, name)
        .ok_or_else(|| Refusal::not_found(About { group: "", resource: plural, name }))?;
    let account = &claims.serviceaccount.name;
    if kind == "Pod" && object::text(&found, &["spec", "serviceAccountName"]) != account {
        return Err(Refusal::bad_request(format!(
            "cannot bind token for serviceaccount {} to pod running with different serviceaccount name.",
            types::go::quote(account)
        )));
    }
    let uid = object::text(&found, &["metadata", "uid"]).to_owned();
    let wanted = text("uid");
    if !wanted.is_empty() && wanted != uid {
        let why = format!(
            "the UID in the bound object reference ({wanted}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(Refusal::conflict(About { group: "", resource: kind, name }, &why));
    }
    let bound = Reference { name: name.to_owned(), uid };
    match kind {
        "Pod" => {
            let node = object::text(&found, &["spec", "nodeName"]);
            claims.node = (!node.is_empty()).then(|| {
                let uid = tokens.find("nodes", "", node);
                let uid = uid.map(|node| object::text(&node, &["metadata", "uid"]).to_owned());
                Reference { name: node.to_owned(), uid: uid.unwrap_or_default() }
            });
            claims.pod = Some(bound);
        }
        "Secret" => claims.secret = Some(bound),
        _ => claims.node = Some(bound),
    }
    Ok(())
}
