//! What roles allow, what of it others cover, and what aggregated roles are made of (section 6 of the API server's rules).

mod aggregate;
mod rule;

pub use aggregate::{Part, aggregated};
pub use rule::{Rule, What, missing, quoted, uncovered};
