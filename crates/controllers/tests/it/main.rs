//! Controllers on an API server in this process, and on a real one.

mod cluster;
mod garbage;
mod job;
mod namespace;
mod scheduler;
