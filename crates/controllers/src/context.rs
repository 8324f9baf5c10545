//! What every controller stands on.

use std::sync::Arc;

use kube::Client;
use reconcile::{Clock, Tasks};

use crate::kinds::Kinds;
use crate::recorder::Recorder;
use crate::{Metrics, Settings};

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
}
