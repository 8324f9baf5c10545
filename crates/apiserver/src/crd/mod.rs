//! CustomResourceDefinitions and custom resources (3.4). Judging and changing objects are functions over values; what is
//! served, and who does it, comes on top.
//!
//! - [`decode`]: a body's text, with the fields that stand in it twice.
//! - [`definition`]: whether a definition is acceptable.
//! - `Version`: one version of an accepted definition, compiled; with the steps of a write (`object`).
//! - [`schema`]: the compiled schema, and what is done by it: [`prune`], [`defaults`], [`meta`], [`value`], [`lists`],
//!   [`rules`].
//! - `form`: [`prune`] and [`defaults`] in one walk; `canonical`: metadata that needs neither; `at`: where a walk stands.
//! - [`columns`], [`scale`], [`openapi`]: what clients see besides the object.
//! - [`kind`]: a definition as it is served, in all its versions; [`conversion`]: from one to another; `body` and `strategy`:
//!   how its objects come in; `definitions`: the task that makes and unmakes kinds.
//!
//! How deep an object or a schema nests is bounded by who parsed it.

mod at;
mod body;
mod canonical;
pub mod columns;
pub mod conversion;
mod correlate;
pub mod decode;
pub mod defaults;
pub mod definition;
pub(crate) mod definitions;
mod extent;
mod field_path;
mod form;
pub mod formats;
pub(crate) mod go;
pub mod kind;
pub mod lists;
pub mod meta;
mod object;
pub mod openapi;
pub mod pattern;
pub mod prune;
pub mod rules;
pub mod scale;
pub mod schema;
mod strategy;
#[cfg(test)]
mod tests;
pub mod value;
pub mod version;

pub use kind::{Custom, Kind};
pub use version::{Names, Version};
