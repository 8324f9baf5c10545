//! What is remembered about Workloads on one worker and is in no object. All of it may be forgotten: then more is read,
//! and more is asked again.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use reconcile::Key;
use rules::dispatch::{Left, Refusal};

/// The first wait after a worker refused a Workload; each further refusal doubles it.
const FIRST_WAIT: SignedDuration = SignedDuration::from_secs(5);
/// No refused Workload waits longer.
const LAST_WAIT: SignedDuration = SignedDuration::from_mins(5);

/// How soon to look again whether pods that were seen are gone: nobody tells.
const AGAIN: SignedDuration = SignedDuration::from_secs(5);

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
    left: Option<Left>,
    refusal: Option<Refusal>,
    refusals: u32,
}

impl Note {
    /// What is known of pods counts more than what is not.
    fn may_have_left(&mut self, pods: Option<SignedDuration>, now: Timestamp) {
        let until = pods.map(|pods| Left::Until(now.saturating_add(pods).unwrap_or(Timestamp::MAX)));
        self.left = match (self.left, until) {
            (Some(Left::Until(known)), Some(Left::Until(until))) => Some(Left::Until(known.max(until))),
            (Some(Left::Pods(count)), _) => Some(Left::Pods(count)),
            (None, until) => until,
            (known, _) => known,
        };
    }
}

impl Book {
    /// An empty one.
    pub(super) fn new(doubt: Duration) -> Book {
        let doubt = SignedDuration::try_from(doubt).unwrap_or(SignedDuration::MAX);
        Book { notes: Mutex::default(), doubt }
    }

    /// The worker is reached, for the first time or again: what it was sent before, by an earlier process or while it did
    /// not answer, it may carry out only now. Of Workloads that are not among those known by now nothing was sent. Of some a
    /// job may have gone from there meanwhile, and its pods may go on for so long.
    pub(super) fn opened(&self, known: impl Iterator<Item = (Key, Option<SignedDuration>)>, now: Timestamp) {
        let until = now.saturating_add(self.doubt).unwrap_or(now);
        let mut notes = self.notes();
        for (key, pods) in known {
            let note = notes.entry(key).or_default();
            (note.read_at, note.doubt_until) = (None, Some(until));
            note.may_have_left(pods, now);
        }
    }

    /// A job that was seen there is gone, and its pods may go on for so long if somebody else deleted it.
    pub(super) fn gone(&self, key: &Key, pods: Option<SignedDuration>, now: Timestamp) {
        self.writes(key);
        if pods.is_some() {
            self.notes().entry(key.clone()).or_default().may_have_left(pods, now);
        }
    }

    /// What a job that is gone from there may have left.
    pub(super) fn left(&self, key: &Key) -> Option<Left> {
        self.notes().get(key)?.left
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

    /// What the worker holds was asked for at that time, and read since. It counts from when nothing can arrive any more, and no
    /// pods are left, of which so many were counted if they could be; until then, this long is to be waited.
    pub(super) fn read(&self, key: &Key, now: Timestamp, pods: Option<usize>) -> Option<SignedDuration> {
        let mut notes = self.notes();
        let note = notes.entry(key.clone()).or_default();
        match (note.left, pods) {
            (_, Some(0)) => note.left = None,
            (_, Some(count)) => note.left = Some(Left::Pods(count)),
            (Some(Left::Until(until)), None) if until <= now => note.left = None,
            (_, None) => {}
        }
        match note.left {
            Some(Left::Until(until)) => return Some(until.duration_since(now)),
            Some(Left::Pods(_)) => return Some(AGAIN),
            None => {}
        }
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
        book.opened([(key.clone(), None)].into_iter(), at(0));
        assert_eq!(
            book.read(&key, at(10), None),
            Some(SignedDuration::from_secs(50)),
            "an earlier process may have sent it"
        );
        assert_eq!(book.read_at(&key), None);
        assert_eq!(book.read(&key, at(60), None), None);
        assert_eq!(book.read_at(&key), Some(at(60)));
        book.writes(&key);
        assert_eq!(book.read_at(&key), None);
        book.doubts(&key, at(100));
        assert_eq!(book.read(&key, at(101), None), Some(SignedDuration::from_secs(59)));
        assert_eq!(book.read(&key, at(160), None), None);
        assert_eq!(book.read_at(&key), Some(at(160)));
        // It was away for long: what waited there is carried out now.
        book.opened([(key.clone(), None)].into_iter(), at(900));
        assert_eq!(book.read_at(&key), None);
        assert_eq!(book.read(&key, at(900), None), Some(SignedDuration::from_secs(60)));
    }

    /// Never twice: somebody on the worker deletes a job, which is gone at once while its pods take their time. What was read
    /// before that does not count any more, and nothing counts before they are gone.
    #[test]
    fn a_job_that_somebody_deletes_leaves_its_pods() {
        let (book, key) = (Book::new(Duration::from_secs(60)), Key::new("ns", "w"));
        let pods = Some(SignedDuration::from_secs(40));
        assert_eq!(book.read(&key, at(0), None), None);
        book.gone(&key, None, at(1));
        assert_eq!((book.read_at(&key), book.left(&key)), (None, None), "its pods went before it");
        assert_eq!(book.read(&key, at(2), None), None);
        book.gone(&key, pods, at(10));
        assert_eq!((book.read_at(&key), book.left(&key)), (None, Some(Left::Until(at(50)))));
        assert_eq!(book.read(&key, at(20), None), Some(SignedDuration::from_secs(30)), "nobody may look");
        assert_eq!(book.read_at(&key), None);
        assert_eq!(book.read(&key, at(21), Some(2)), Some(AGAIN), "they are there");
        assert_eq!(book.left(&key), Some(Left::Pods(2)));
        assert_eq!(book.read(&key, at(90), None), Some(AGAIN), "nobody saw them go");
        assert_eq!(book.read(&key, at(900), Some(1)), Some(AGAIN), "their node does not answer");
        assert_eq!(book.read(&key, at(901), Some(0)), None);
        assert_eq!((book.read_at(&key), book.left(&key)), (Some(at(901)), None));
        // It went while nobody was there to see it.
        book.opened([(key.clone(), pods)].into_iter(), at(1000));
        assert_eq!(book.read(&key, at(1001), Some(0)), Some(SignedDuration::from_secs(59)));
        book.opened([(key.clone(), Some(SignedDuration::from_secs(100)))].into_iter(), at(1000));
        assert_eq!(book.read(&key, at(1070), None), Some(SignedDuration::from_secs(30)));
        assert_eq!(book.read(&key, at(1100), None), None);
    }

    #[test]
    fn nothing_was_sent_of_what_came_after_the_worker_was_reached() {
        let (book, new) = (Book::new(Duration::from_secs(60)), Key::new("ns", "new"));
        book.opened([(Key::new("ns", "old"), None)].into_iter(), at(0));
        assert_eq!(book.read(&new, at(1), None), None);
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
