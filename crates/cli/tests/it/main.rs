//! The command as a user meets it, and the workspace as a whole.

mod administration;
mod architecture;
mod check;
mod cluster;
mod container;
mod dependencies;
mod docs;
mod failures;
mod fleet;
mod operator;
mod rules;
mod terminal;
mod verbs;
mod watching;
