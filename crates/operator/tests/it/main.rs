//! The operator as a whole.

mod definitions;
mod deploy;
mod differential;
mod dispatch;
mod rbac;
mod scale;
mod scenarios;
mod webhooks;
mod world;
