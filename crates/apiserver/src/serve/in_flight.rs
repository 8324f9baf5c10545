//! How many requests are answered at one time: for all clients, and for each of them (3.2).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The requests that are being answered.
#[derive(Debug, Default)]
pub(super) struct InFlight(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    by_user: HashMap<Arc<str>, usize>,
}

/// A request that is being answered, until this is dropped.
pub(super) struct Place {
    of: Arc<InFlight>,
    user: Arc<str>,
}

impl InFlight {
    /// A place for one more request of a user; `None` if there are `most` in all, or two thirds of them are that user's: the others
    /// have a server, too.
    pub(super) fn begin(self: &Arc<Self>, user: &str, most: usize) -> Option<Place> {
        let mut counts = self.lock();
        let own = counts.by_user.get(user).copied().unwrap_or(0);
        if counts.all >= most || own >= (most * 2).div_ceil(3) {
            return None;
        }
        let user: Arc<str> = user.into();
        counts.all += 1;
        counts.by_user.insert(user.clone(), own + 1);
        Some(Place { of: self.clone(), user })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.of.lock();
        counts.all -= 1;
        let left = counts.by_user.get(&self.user).map_or(0, |own| own - 1);
        if left == 0 {
            counts.by_user.remove(&self.user);
        } else {
            counts.by_user.insert(self.user.clone(), left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_3_2_nobody_takes_all_places() {
        let places = Arc::new(InFlight::default());
        let of_a: Vec<_> = (0..4).map(|_| places.begin("a", 6).expect("a place")).collect();
        assert!(places.begin("a", 6).is_none(), "he has his share");
        let of_b: Vec<_> = (0..2).map(|_| places.begin("b", 6).expect("a place")).collect();
        assert!(places.begin("c", 6).is_none(), "all are taken");
        drop(of_b);
        assert!(places.begin("c", 6).is_some());
        drop(of_a);
        let counts = places.lock();
        assert_eq!((counts.all, counts.by_user.len()), (0, 0));
    }
}
