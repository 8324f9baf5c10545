//! Objects that a cluster cannot do without come back when somebody takes them away, and become again what they have to be.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::select_all;
use store::Scope;
use tokio::time::{sleep, timeout};

use crate::cluster::{Cluster, Handle};
use crate::status::Refusal;

/// How long one that changes is left alone: who takes it away again and again does not keep the cluster busy.
const PAUSE: Duration = Duration::from_secs(1);
/// When what failed is tried again, as a real server has it.
const RETRY: Duration = Duration::from_secs(10);

/// Puts objects right whenever one in these scopes changes, until the cluster is gone. It has to leave alone what is right.
pub(crate) async fn keep<F>(handle: Handle, scopes: Vec<Scope>, put_right: impl Fn(Cluster) -> F)
where
    F: Future<Output = Result<(), Refusal>>,
{
    while let Some(cluster) = handle.upgrade() {
        // From before it is looked at, so that nothing happens unseen.
        let mut changes = select_all(scopes.iter().map(|scope| cluster.store().view_and_watch(scope).1));
        // Nothing of the cluster is held while nothing changes.
        match put_right(cluster).await {
            Ok(()) => {
                // Whoever fell behind looks again, too.
                if changes.next().await.is_none() {
                    return;
                }
                sleep(PAUSE).await;
            }
            Err(refusal) => {
                tracing::warn!(%refusal, "an object that the cluster needs is not there");
                // Whatever is in its way may go.
                let _ = timeout(RETRY, changes.next()).await;
                sleep(PAUSE).await;
            }
        }
    }
}
