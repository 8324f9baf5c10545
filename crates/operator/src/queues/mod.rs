//! What an administrator set up: how queues stand, who still needs what, and whose priority changed.

mod classes;
mod cluster_queues;
mod cohorts;
mod in_use;
mod local_queues;

use std::sync::Arc;

use reconcile::Tasks;

use crate::Context;

/// Starts the controllers of queues, flavors, checks and classes.
pub(crate) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    cluster_queues::start(context, tasks);
    local_queues::start(context, tasks);
    cohorts::start(context, tasks);
    in_use::start(context, tasks);
    classes::start(context, tasks);
}
