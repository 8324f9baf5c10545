//! What readers see: the present state, the states of the recent past, and the events that led from one to the next.
//!
//! Nothing gets here before it is durable, unless its writer asked for that. Readers never wait for a writer.

use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::error;
use crate::event::Event;
use crate::history::{self, History};
use crate::hub::{Hub, Window};
use crate::revision::Revision;
use crate::state::{State, View};

pub(crate) struct Present {
    state: ArcSwap<State>,
    pub(crate) history: History,
    pub(crate) hub: Arc<Hub>,
    revision: watch::Sender<Revision>,
}

impl Present {
    pub(crate) fn new(window: Window, history: history::Limits) -> Self {
        Present {
            state: ArcSwap::from_pointee(State::empty(Revision::default())),
            history: History::new(history),
            hub: Arc::new(Hub::new(window)),
            revision: watch::Sender::new(Revision::default()),
        }
    }

    pub(crate) fn view(&self) -> View {
        View(self.state.load_full())
    }

    /// The state at a revision that is not in the future.
    pub(crate) fn view_at(&self, revision: Revision) -> Result<View, error::Read> {
        let view = self.view();
        if revision > view.revision() {
            return Err(error::Read::Future { requested: revision, current: view.revision() });
        }
        let expired = |oldest| error::Read::Expired { requested: revision, oldest };
        if let Some(oldest) = self.hub.gap_around(revision) {
            return Err(expired(oldest));
        }
        self.history.at(revision).ok_or_else(|| expired(self.history.oldest()))
    }

    /// Starts with a state of which no events are known.
    pub(crate) fn begin(&self, state: State) {
        self.hub.begin(state.revision);
        self.show(state, Vec::new(), Instant::now());
    }

    /// Goes on with another revision after a start.
    pub(crate) fn leap(&self, mut state: State, start: Revision) -> State {
        self.hub.leap(state.revision, start);
        state.revision = start;
        self.show(state.clone(), Vec::new(), Instant::now());
        state
    }

    /// Shows the state after a batch. Whoever sees an event can read at its revision.
    pub(crate) fn publish(&self, state: State, events: Vec<Arc<Event>>) {
        let now = Instant::now();
        let published = events.clone();
        self.show(state, events, now);
        self.hub.publish(&published, now);
    }

    /// Lets go of what has become too old. True if there is more that will.
    pub(crate) fn trim(&self) -> bool {
        let now = Instant::now();
        let (history, hub) = (self.history.trim(now), self.hub.trim(now));
        history || hub
    }

    /// Waits until the store has come to a revision.
    pub(crate) async fn reached(&self, revision: Revision) {
        let mut current = self.revision.subscribe();
        let waited = current.wait_for(|current| *current >= revision).await;
        waited.expect("the sender is as alive as self");
    }

    fn show(&self, state: State, events: Vec<Arc<Event>>, now: Instant) {
        let state = Arc::new(state);
        self.history.push(View(state.clone()), events, now);
        self.revision.send_replace(state.revision);
        self.state.store(state);
    }
}
