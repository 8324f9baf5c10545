//! The loop around every decision: what a cluster holds ([`Cache`]), what is to be looked at ([`Queue`]), what time it
//! is ([`Clock`]) and what is running ([`Tasks`]).
//!
//! Nothing here knows a kind. A controller feeds changes of its caches into a queue as keys, and for each key observes
//! from the caches, decides by a pure rule and applies. Order is kept everywhere (no hashing, no random delays), so
//! that on one thread with tokio's clock paused the same events give the same calls.

mod cache;
mod clock;
mod flag;
mod key;
mod queue;
mod tasks;

pub use cache::{Builder, Cache, Change};
pub use clock::Clock;
pub use key::Key;
pub use queue::{Next, Queue};
pub use tasks::Tasks;

/// An error and everything that caused it, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors repeat their source in their own text.
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}
