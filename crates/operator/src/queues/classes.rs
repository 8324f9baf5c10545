//! Workloads follow the value of the class that they name (WPC-2).

use std::sync::Arc;

use reconcile::{Key, Next, Tasks};
use rules::workload::is_finished;
use types::kueue::Workload;

use crate::{Context, Error, caches::CLASS, error::is_outdated};

/// Starts the controller.
pub(super) fn start(context: &Arc<Context>, tasks: &mut Tasks) {
    let context = Arc::clone(context);
    tasks.spawn("priority classes", async move {
        context.caches.ready().await;
        let queue = context.work.classes.clone();
        queue.run(1, |key| reconcile(Arc::clone(&context), key)).await;
    });
}

async fn reconcile(context: Arc<Context>, key: Key) -> Result<Next, Error> {
    let Some(class) = context.caches.workload_classes.get(&key) else { return Ok(Next::Done) };
    let mut missed = false;
    for workload in context.caches.workloads.by(CLASS, &key.name) {
        if workload.spec.priority == Some(class.value) || is_finished(&workload) {
            continue;
        }
        let mut next = Workload::clone(&workload);
        next.spec.priority = Some(class.value);
        match context.patch_workload(&workload, &next).await {
            Ok(_) => {}
            Err(error) if is_outdated(&error) => missed = true,
            Err(source) => {
                let (workload, source) = (Key::of(&*workload), Box::new(source));
                return Err(Error::Workload { doing: "change the priority of", workload, source });
            }
        }
    }
    // Those that changed meanwhile are looked at again when they are seen as they are.
    Ok(if missed { Next::After(std::time::Duration::from_millis(100)) } else { Next::Done })
}
