//! Asking somebody else over HTTPS: admission webhooks, and whoever else a cluster is told to ask (3.15, 3.18).
//!
//! Knows how a `clientConfig` names its target, how a Service is reached, and what Go would say when that fails. What is
//! asked, and what the answer means, is not known here.

mod client;
pub(crate) mod service;
mod target;

pub(crate) use client::{Caller, trusting};
pub(crate) use target::Target;
