//! The states of the recent past, for lists that must be exact: pages of one list are all read from the same state.
//!
//! One state is kept per batch, with the events that led to it, so that a revision in the middle of a batch can be had
//! too. States share what they have in common; what they do not is bounded by age and by size. A list that was answered
//! in part holds its state beyond that, because somebody will come for the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::event::Event;
use crate::revision::Revision;
use crate::state::{State, View};

/// What a kept state costs besides the objects that only it holds: copied nodes on the way to each changed object.
const NODES: usize = 1024;

/// The most states that are held for unfinished lists.
const HELD: usize = 64;

/// How much of the past is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// For how long.
    pub age: Duration,
    /// In how much memory, about.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { age: Duration::from_secs(300), bytes: 64 << 20 }
    }
}

pub(crate) struct History {
    limits: Limits,
    kept: Mutex<Kept>,
}

struct Kept {
    /// Oldest first.
    steps: VecDeque<Step>,
    bytes: usize,
    held: VecDeque<(Instant, View)>,
}

/// A state and the events that led to it from the one before.
struct Step {
    at: Instant,
    view: View,
    events: Vec<Arc<Event>>,
    bytes: usize,
}

impl History {
    pub(crate) fn new(limits: Limits) -> Self {
        History { limits, kept: Mutex::new(Kept { steps: VecDeque::new(), bytes: 0, held: VecDeque::new() }) }
    }

    pub(crate) fn push(&self, view: View, events: Vec<Arc<Event>>, now: Instant) {
        let bytes = events.iter().map(|event| NODES + event.size()).sum();
        let mut kept = self.lock();
        kept.bytes += bytes;
        kept.steps.push_back(Step { at: now, view, events, bytes });
        kept.trim(&self.limits, now);
    }

    /// Lets go of what has become too old. True if there is more that will.
    pub(crate) fn trim(&self, now: Instant) -> bool {
        let mut kept = self.lock();
        kept.trim(&self.limits, now);
        kept.held.retain(|(at, _)| now.duration_since(*at) <= self.limits.age);
        kept.steps.len() > 1 || !kept.held.is_empty()
    }

    /// The state at a revision, if it is still known. The revision is not one of the future.
    pub(crate) fn at(&self, revision: Revision) -> Option<View> {
        let kept = self.lock();
        let next = kept.steps.partition_point(|step| step.view.revision() <= revision);
        let Some(last) = next.checked_sub(1) else {
            return kept.held.iter().map(|(_, view)| view).find(|view| view.revision() == revision).cloned();
        };
        let view = kept.steps[last].view.clone();
        let between: Vec<Arc<Event>> = kept.steps.get(next).map_or(Vec::new(), |step| {
            step.events.iter().filter(|event| event.revision() <= revision).cloned().collect()
        });
        drop(kept);
        if between.is_empty() {
            return Some(view);
        }
        let mut state = State::clone(&view.0);
        for event in between {
            state.repeat(&event);
        }
        Some(View(Arc::new(state)))
    }

    /// Keeps a state for the rest of a list. Whoever reads on has not begun anew: the time counts from the first page.
    pub(crate) fn hold(&self, view: &View, now: Instant) {
        let mut kept = self.lock();
        kept.held.retain(|(at, _)| now.duration_since(*at) <= self.limits.age);
        if kept.held.iter().any(|(_, other)| other.revision() == view.revision()) {
            return;
        }
        if kept.held.len() == HELD {
            kept.held.pop_front();
        }
        kept.held.push_back((now, view.clone()));
    }

    /// The oldest revision from which on all can be had.
    pub(crate) fn oldest(&self) -> Revision {
        self.lock().steps.front().map_or(Revision::default(), |step| step.view.revision())
    }

    /// How many states are kept, and about how much memory only they hold.
    pub(crate) fn size(&self) -> (usize, usize) {
        let kept = self.lock();
        (kept.steps.len() + kept.held.len(), kept.bytes)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while it holds the history")
    }
}

impl Kept {
    /// The latest state always stays.
    fn trim(&mut self, limits: &Limits, now: Instant) {
        while self.steps.len() > 1
            && (self.bytes > limits.bytes || now.duration_since(self.steps[0].at) > limits.age)
            && let Some(step) = self.steps.pop_front()
        {
            self.bytes -= step.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens of lists end, however often they are asked for (2.10).
    #[test]
    fn rule_2_10_a_state_is_held_from_its_first_page_on() {
        let history = History::new(Limits { age: Duration::from_secs(10), bytes: 0 });
        let (view, began) = (View(Arc::new(State::empty(Revision::default()))), Instant::now());
        history.hold(&view, began);
        history.hold(&view, began + Duration::from_secs(6));
        assert_eq!(history.lock().held.len(), 1);
        history.trim(began + Duration::from_secs(11));
        assert!(history.lock().held.is_empty());
    }
}
