//! Who has a say in writes.

mod plugins;
mod pods;
mod policies;
pub(crate) mod webhooks;
