//! The Job API: defaults, validation, and what the Job controller decides.

pub mod indexes;
