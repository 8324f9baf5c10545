//! The operator as a whole.

mod deaths;
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
