//! Job to Workload, quota reservation, dispatch, mirroring, worker connections, webhooks.

pub mod definitions;
