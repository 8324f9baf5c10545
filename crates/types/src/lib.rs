//! Wire types, and the small values that are worth a type of their own because they could be swapped by mistake.
//!
//! Kubernetes' own objects are `k8s-openapi`'s; this crate adds what that one leaves open: exact quantities,
//! amounts that quota can count with, keys, and the way Go prints values, because error messages are part of the API.
//!
//! Nothing here does IO or reads a clock.

pub mod amount;
pub mod autoscaling;
pub mod go;
pub mod kueue;
pub mod quantity;
pub mod shared;

pub use amount::Amount;
pub use quantity::Quantity;
pub use shared::Shared;
