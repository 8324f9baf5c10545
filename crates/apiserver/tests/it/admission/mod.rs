//! Who has a say in writes.

mod plugins;
mod pods;
mod policies;
mod quotas;
pub(crate) mod webhooks;
