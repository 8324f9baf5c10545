//! The operator as a whole.

mod definitions;
