//! What every controller stands on.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use kube::Client;
use reconcile::{Clock, Key, Next, Queue, Tasks};

use crate::kinds::Kinds;
use crate::recorder::Recorder;
use crate::{Metrics, Run, Settings};

/// What every controller stands on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) settings: Arc<Settings>,
    pub(crate) kinds: Kinds,
    pub(crate) metrics: Metrics,
    pub(crate) events: Recorder,
}

impl Context {
    pub(crate) fn new(client: Client, settings: Settings, clock: Clock, tasks: &mut Tasks) -> Self {
        Context {
            events: Recorder::start(client.clone(), clock.clone(), tasks),
            client,
            clock,
            settings: Arc::new(settings),
            kinds: Kinds::default(),
            metrics: Metrics::default(),
        }
    }

    /// The work of a controller: once everything that it reads is there, `sync` looks at each key that comes up.
    pub(crate) fn work<F, E>(
        &self,
        queue: Queue<Key>,
        at_once: usize,
        reads: impl IntoIterator<Item = BoxFuture<'static, ()>>,
        sync: impl Fn(Context, Key) -> F + Send + Sync + 'static,
    ) -> Run
    where
        F: Future<Output = Result<Next, E>> + Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        let (context, filled) = (self.clone(), join_all(reads));
        Box::pin(async move {
            filled.await;
            queue.run(at_once, |key| sync(context.clone(), key)).await;
        })
    }
}
