//! The operator as a whole.

mod definitions;
mod deploy;
mod differential;
mod dispatch;
mod multikueue_api;
mod rbac;
mod scale;
mod scenarios;
mod webhooks;
mod world;
