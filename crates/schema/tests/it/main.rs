//! Ours beside Kubernetes' own code: its golden files, and its decoder and converter on generated documents.
//!
//! Both need a Go toolchain. Without one the tests say aloud that they were skipped; where `FERRY_REQUIRE_KUBERNETES`
//! is set, that is a failure.

mod differential;
mod documents;
mod go;
mod golden_files;
mod properties;
