//! The embedded set-up: management cluster and workers in one process.
