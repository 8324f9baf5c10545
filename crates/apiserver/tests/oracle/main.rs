//! Ours beside Kubernetes' own code on generated input: merging and comparing, stories of several managers, patches, YAML.
//!
//! All of it needs a Go toolchain. Without one the tests say aloud that they were skipped; where
//! `FERRY_REQUIRE_KUBERNETES` is set, that is a failure. `FERRY_SEED` and `FERRY_CASES` choose other input and more.

mod go;
mod kinds;
mod patches;
mod random;
mod schema;
mod stories;

mod typed;
mod yaml;
