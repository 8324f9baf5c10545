//! Custom resources: the ecosystem's definitions, and random objects next to a real API server.

pub(crate) mod conversions;
pub(crate) mod differential;
mod ecosystem;
mod generate;
mod modules;
mod schemas;
mod serve;
mod twins;
