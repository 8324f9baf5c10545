//! The operator as a whole.

mod deaths;
mod default_queue;
mod definitions;
mod deploy;
mod differential;
mod dispatch;
mod leader;
mod multikueue_api;
mod rbac;
mod refused;
mod scale;
mod scenarios;
mod serve;
mod steady;
mod way;
mod webhooks;
mod world;
mod writes;
