//! The loop around every decision: what a cluster holds ([`Cache`]), what is to be looked at ([`Queue`]), what time it
//! is ([`Clock`]) and what is running ([`Tasks`]).
//!
//! Nothing here knows a kind. A controller feeds changes of its caches into a queue as keys, and for each key observes
//! from the caches, decides by a pure rule and applies. Order is kept everywhere (no hashing, no random delays), so
//! that on one thread with tokio's clock paused the same events give the same calls.

use std::error::Error;

use kube::core::Status;

mod cache;
mod clock;
mod flag;
mod key;
mod queue;
mod tasks;
mod unread;

pub use cache::{Builder, Cache, Change};
pub use clock::Clock;
pub use key::Key;
pub use queue::{Next, Queue};
pub use tasks::{Tasks, panicked};
pub use unread::create_unread;

/// An error and everything that caused it, in one line, in the words of whoever said it first.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let said = match cause.downcast_ref() {
            Some(kube::Error::Service(_)) => continue, // it says no more than what caused it
            Some(kube::Error::Api(status)) => status.message.clone(),
            _ => cause.to_string(),
        };
        // Some errors repeat their source in their own text.
        if !text.contains(&said) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&said);
        }
        if answer(cause).is_some() {
            break; // what else an answer holds is for programs
        }
    }
    text
}

/// Whether an API server refused a write because somebody else has written in between.
fn is_conflict(error: &(dyn Error + 'static)) -> bool {
    causes(error).find_map(answer).is_some_and(|status| status.code == 409)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// What an API server answered, if that is what the error is.
fn answer<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Status> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to write a Workload")]
    struct Failed(#[source] kube::Error);

    fn answered(code: u16) -> Failed {
        let status = Status::failure("the object has been modified", "Conflict").with_code(code);
        Failed(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn what_a_server_answered_is_told_in_its_words_and_once() {
        assert_eq!(chain(&answered(409)), "failed to write a Workload: the object has been modified");
        let nowhere = kube::Error::Service("nobody listens".into());
        assert_eq!(chain(&Failed(nowhere)), "failed to write a Workload: nobody listens");
    }

    #[test]
    fn a_conflict_is_one_however_it_is_wrapped() {
        assert!(is_conflict(&answered(409)));
        assert!(!is_conflict(&answered(500)));
    }
}
