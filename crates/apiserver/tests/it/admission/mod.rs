//! Who has a say in writes.

mod plugins;
mod pods;
mod policies;
mod webhooks;
pub(crate) mod webhooks;
