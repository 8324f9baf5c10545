//! The operator as a whole.

mod definitions;
mod dispatch;
mod scenarios;
mod webhooks;
mod world;
