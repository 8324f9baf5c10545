//! What is remembered about Workloads on one worker and is in no object. All of it may be forgotten: then more is read,
//! and more is asked again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use reconcile::Key;
use rules::dispatch::Refusal;

/// The first wait after a worker refused a Workload; each further refusal doubles it.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// No refused Workload waits longer.
const LAST_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// Notes about one worker.
pub(super) struct Book {
    notes: Mutex<Notes>,
    doubt: SignedDuration,
}

type Notes = BTreeMap<Key, Note>;

#[derive(Default)]
struct Note {
    read_at: Option<Timestamp>,
    doubt_until: Option<Timestamp>,
    refusal: Option<Refusal>,
    refusals: u32,
}

impl Book {
    /// An empty one.
    pub(super) fn new(doubt: Duration) -> Book {
        let doubt = SignedDuration::try_from(doubt).unwrap_or(SignedDuration::MAX);
        Book { notes: Mutex::default(), doubt }
    }

    /// The worker is reached, for the first time or again: what it was sent before, by an earlier process or while it did
    /// not answer, it may carry out only now. Of Workloads that are not among those known by now nothing was sent.
    pub(super) fn opened(&self, known: impl Iterator<Item = Key>, now: Timestamp) {
        let until = now.saturating_add(self.doubt).unwrap_or(now);
        let mut notes = self.notes();
        for key in known {
            let note = notes.entry(key).or_default();
            (note.read_at, note.doubt_until) = (None, Some(until));
        }
    }

    /// When the worker was last seen to hold nothing of a Workload, if nothing can have arrived since.
    pub(super) fn read_at(&self, key: &Key) -> Option<Timestamp> {
        self.notes().get(key)?.read_at
    }

    /// Until when something may still arrive that nobody answered for.
    pub(super) fn doubt_until(&self, key: &Key) -> Option<Timestamp> {
        self.notes().get(key)?.doubt_until
    }

    /// Something is about to be written: what was read before no longer holds.
    pub(super) fn writes(&self, key: &Key) {
        if let Some(note) = self.notes().get_mut(key) {
            note.read_at = None;
        }
    }

    /// A job was sent, and nobody knows whether it arrived, or when it will.
    pub(super) fn doubts(&self, key: &Key, now: Timestamp) {
        let until = now.saturating_add(self.doubt).unwrap_or(now);
        self.notes().entry(key.clone()).or_default().doubt_until = Some(until);
    }

    /// What the worker holds was read. It counts from when nothing can arrive any more; until then, this long is to be
    /// waited.
    pub(super) fn read(&self, key: &Key, now: Timestamp) -> Option<SignedDuration> {
        let mut notes = self.notes();
        let note = notes.entry(key.clone()).or_default();
        if let Some(until) = note.doubt_until.filter(|until| *until > now) {
            return Some(until.duration_since(now));
        }
        note.doubt_until = None;
        note.read_at = Some(now);
        None
    }

    /// Why the worker is not asked.
    pub(super) fn refusal(&self, key: &Key) -> Option<Refusal> {
        self.notes().get(key)?.refusal.clone()
    }

    /// The worker refuses a Workload: it is not asked for a while. Says whether that is news.
    pub(super) fn refuse(&self, key: &Key, why: &str, now: Timestamp) -> bool {
        let mut notes = self.notes();
        let note = notes.entry(key.clone()).or_default();
        if note.refusal.as_ref().is_some_and(|refusal| refusal.until > now && refusal.why == why) {
            return false;
        }
        let wait = FIRST_WAIT.saturating_mul(2_i32.saturating_pow(note.refusals.min(20))).min(LAST_WAIT);
        note.refusals = note.refusals.saturating_add(1);
        let until = now.saturating_add(wait).unwrap_or(now);
        note.refusal = Some(Refusal { why: why.to_owned(), until });
        true
    }

    /// A Workload is over: nothing more is to be remembered.
    pub(super) fn forget(&self, key: &Key) {
        self.notes().remove(key);
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        // Nothing is left half done by a panic: every method makes one change.
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    #[test]
    fn a_read_counts_only_when_nothing_can_arrive_any_more() {
        let (book, key) = (Book::new(Duration::from_secs(60)), Key::new("ns", "w"));
        book.opened([key.clone()].into_iter(), at(0));
        assert_eq!(
            book.read(&key, at(10)),
            Some(SignedDuration::from_secs(50)),
            "an earlier process may have sent it"
        );
        assert_eq!(book.read_at(&key), None);
        assert_eq!(book.read(&key, at(60)), None);
        assert_eq!(book.read_at(&key), Some(at(60)));
        book.writes(&key);
        assert_eq!(book.read_at(&key), None);
        book.doubts(&key, at(100));
        assert_eq!(book.read(&key, at(101)), Some(SignedDuration::from_secs(59)));
        assert_eq!(book.read(&key, at(160)), None);
        assert_eq!(book.read_at(&key), Some(at(160)));
        // It was away for long: what waited there is carried out now.
        book.opened([key.clone()].into_iter(), at(900));
        assert_eq!(book.read_at(&key), None);
        assert_eq!(book.read(&key, at(900)), Some(SignedDuration::from_secs(60)));
    }

    #[test]
    fn nothing_was_sent_of_what_came_after_the_worker_was_reached() {
        let (book, new) = (Book::new(Duration::from_secs(60)), Key::new("ns", "new"));
        book.opened([Key::new("ns", "old")].into_iter(), at(0));
        assert_eq!(book.read(&new, at(1)), None);
        assert_eq!(book.read_at(&new), Some(at(1)));
    }

    #[test]
    fn refusals_are_remembered_longer_each_time() {
        let (book, key) = (Book::new(Duration::ZERO), Key::new("ns", "w"));
        assert!(book.refuse(&key, "no", at(0)));
        assert!(!book.refuse(&key, "no", at(1)), "that is known");
        assert_eq!(book.refusal(&key).map(|refusal| refusal.until), Some(at(5)));
        assert!(book.refuse(&key, "no", at(5)));
        assert_eq!(book.refusal(&key).map(|refusal| refusal.until), Some(at(15)));
        for _ in 0..40 {
            book.refuse(&key, "no", book.refusal(&key).expect("it was refused").until);
        }
        let last = book.refusal(&key).expect("it was refused").until;
        book.refuse(&key, "no", last);
        assert_eq!(book.refusal(&key).map(|refusal| refusal.until.duration_since(last)), Some(LAST_WAIT));
        book.forget(&key);
        assert_eq!(book.refusal(&key), None);
    }
}
