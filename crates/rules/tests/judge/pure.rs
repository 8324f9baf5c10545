//! Our rules, as pure functions from the stored object and the body to the answer.

use rules::job::Settings;
use rules::job::endpoints;
use rules::meta::system::Identity;
use rules::wire;
use rules::write::{Accepted, Refused};
use serde_json::{Value, json};

use super::{NAMESPACE, Server, Verb, status};

/// Our rules.
#[derive(Default)]
pub(crate) struct Pure {
    created: u64,
}

impl Pure {
    fn answer(&mut self, verb: Verb, body: &Value, stored: Option<&Value>) -> Result<(u16, Accepted), Value> {
        let settings = Settings::default();
        let accepted = match (verb, stored) {
            (Verb::Create, _) => {
                let accepted = endpoints::create(&decode(body)?, NAMESPACE, self.identity(), &settings);
                accepted.map(|accepted| (201, accepted))
            }
            (Verb::Put, Some(stored)) => {
                endpoints::update(&decode(body)?, stored, &settings).map(|accepted| (200, accepted))
            }
            (Verb::PutStatus, Some(stored)) => {
                let mut new = stored.clone();
                new["status"] = body["status"].clone();
                endpoints::update_status(&decode(&new)?, stored).map(|accepted| (200, accepted))
            }
            (Verb::Put | Verb::PutStatus, None) => panic!("a case begins with a create"),
        };
        accepted.map_err(refused)
    }

    fn identity(&mut self) -> Identity {
        self.created += 1;
        Identity {
            uid: format!("00000000-0000-0000-0000-{:012x}", self.created),
            now: jiff::Timestamp::UNIX_EPOCH,
            suffix: "bcdfg".to_owned(),
        }
    }
}

impl Server for Pure {
    async fn send(&mut self, verb: Verb, body: &Value, stored: Option<&Value>) -> (u16, Value, Vec<String>) {
        match self.answer(verb, body, stored) {
            Ok((code, Accepted { mut object, warnings })) => {
                object["metadata"]["resourceVersion"] = json!("1");
                (code, object, warnings)
            }
            Err(status) => {
                let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).expect("a code");
                (code, status, Vec::new())
            }
        }
    }

    async fn forget(&mut self, _stored: &Value) {}
}

/// A body as an API server reads it, or its answer to one that it cannot read.
fn decode(body: &Value) -> Result<Value, Value> {
    let bad_request = |why: String| status(400, Some("BadRequest"), why, Vec::new());
    let bytes = serde_json::to_vec(body).expect("JSON prints");
    wire::expect_kind("batch", "v1", "Job", body, &bytes).map_err(bad_request)?;
    let decoded = schema::decode(wire::named(wire::JOB), &bytes)
        .map_err(|why| bad_request(format!("Job in version \"v1\" cannot be handled as a Job: {why}")))?;
    Ok(decoded.value)
}

fn refused(refused: Refused) -> Value {
    let message = refused.to_string();
    match refused {
        Refused::BadRequest(_) => status(400, Some("BadRequest"), message, Vec::new()),
        Refused::Conflict(_) => status(409, Some("Conflict"), message, Vec::new()),
        Refused::Internal(_) => status(500, None, message, Vec::new()),
        Refused::Invalid(errors) => {
            let cause = |error: &rules::field::Error| json!({"reason": error.kind.reason(), "field": error.path, "message": error.message()});
            status(422, Some("Invalid"), message, errors.iter().map(cause).collect())
        }
    }
}
