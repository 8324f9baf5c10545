//! The operator as a whole.

mod definitions;
mod scenarios;
mod webhooks;
mod world;
