//! The operator as a whole.

mod definitions;
mod differential;
mod dispatch;
mod scale;
mod scenarios;
mod webhooks;
mod world;
