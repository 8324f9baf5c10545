//! Who has a say in writes.

mod plugins;
mod pods;
mod webhooks;
