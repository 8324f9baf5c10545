//! Webhooks: whoever a MutatingWebhookConfiguration or ValidatingWebhookConfiguration names has a say (3.15–3.19).

mod conditions;
mod configuration;
mod dispatch;
mod matching;
mod review;

pub(super) use dispatch::{Mutating, Validating};
