//! Webhooks: whoever a MutatingWebhookConfiguration or ValidatingWebhookConfiguration names has a say (3.15–3.19).

mod configuration;
mod dispatch;
pub(super) mod review;

pub(super) use dispatch::{Mutating, Validating};
