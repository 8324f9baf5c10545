//! Controllers on an API server in this process, and on a real one.

mod beside;
mod cluster;
mod cron_job;
mod deployment;
mod disruption;
mod garbage;
mod guards;
mod history;
mod job;
mod namespace;
mod node;
mod pod_gc;
mod restart;
mod scheduler;
