//! JSON text as Go reads it: the same documents are accepted, and the others are refused with the same words.

mod scan;
mod syntax;

pub(crate) use scan::{Scan, lossy, unquote};
pub use syntax::{MAX_DEPTH, check};
