//! Pods that carry the tracking finalizer although no Job will ever count them (A-10…A-12).

use reconcile::{Key, Next};
use rules::job::claims::controller_of;
use rules::job::orphans::is_orphan;

use super::{Controller, Error};

impl Controller {
    pub(super) async fn release_orphan(&self, key: Key) -> Result<Next, Error> {
        let Some(pod) = self.context.kinds.pods.get(&key) else { return Ok(Next::Done) };
        let named = controller_of(&pod).map(|controller| Key::new(&key.namespace, &controller.name));
        let named = named.and_then(|key| self.context.kinds.jobs.get(&key));
        if !is_orphan(&pod, named.as_deref()) {
            return Ok(Next::Done);
        }
        match self.take_off_finalizer(&pod).await {
            Ok(_) => Ok(Next::Done),
            Err(source) => Err(Error::Release { pod: key, source }),
        }
    }
}
