//! How often something is told: which event becomes a new object, which adds to one, and which is not worth telling.
//!
//! As every component of Kubernetes does it: the same event again raises a count; many that differ in their message
//! only are told as one; and who tells too much about one object is not listened to for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;

/// So many events about one object at once, before the source has to wait.
const BURST: f64 = 25.0;
/// A source that has used up its burst may tell one more event about an object in this time.
const REFILL: SignedDuration = SignedDuration::from_mins(5);
/// So many events that differ in their message only are told one by one, within [`SIMILAR_WITHIN`].
const MOST_SIMILAR: usize = 10;
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// What is remembered of events at most; the oldest is forgotten first.
const REMEMBERED: usize = 4096;
/// How long the name of an object may be.
const LONGEST_NAME: usize = 253;

/// What an event about the object of this name is called: as no other is whose number is another, and not too long.
pub fn name(about: &str, number: i128) -> String {
    let end = format!(".{number:x}");
    let start: String = about.chars().take(LONGEST_NAME - end.len()).collect();
    let start = start.trim_end_matches(|it: char| !it.is_ascii_alphanumeric());
    format!("{start}{end}")
}

/// Who is told about, by whom, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// The component that tells it.
    pub source: String,
    /// The object: kind, namespace, name and uid, in whatever form is the same for the same object.
    pub object: String,
}

impl Subject {
    /// The object of a reference, or the part of it that is meant.
    pub fn new(source: &str, about: &ObjectReference) -> Self {
        let parts = [&about.kind, &about.namespace, &about.name, &about.uid, &about.field_path];
        let object = parts.map(|part| part.as_deref().unwrap_or_default()).join("/");
        Subject { source: source.to_owned(), object }
    }
}

/// What is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct News {
    /// `Normal` or `Warning`.
    pub kind: String,
    /// The machine-readable reason.
    pub reason: String,
    /// What people read.
    pub message: String,
}

/// What to do about an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Telling {
    /// Create an event with this message.
    New(String),
    /// Set the count of the event of this name, which was created earlier, and its message.
    Again {
        /// The event's name.
        name: String,
        /// How often it was told by now.
        count: i32,
        /// When it was told first.
        first: Timestamp,
        /// The message.
        message: String,
    },
    /// Leave it.
    Never,
}

/// What was told lately.
#[derive(Debug, Default)]
pub struct Lately {
    buckets: BTreeMap<Subject, (f64, Timestamp)>,
    similar: BTreeMap<(Subject, String, String), Similar>,
    told: BTreeMap<(Subject, News), Told>,
    order: VecDeque<Forget>,
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Timestamp,
}

#[derive(Debug)]
struct Told {
    name: String,
    count: i32,
    first: Timestamp,
}

/// What is dropped when too much is remembered.
#[derive(Debug)]
enum Forget {
    Bucket(Subject),
    Similar((Subject, String, String)),
    Told((Subject, News)),
}

impl Lately {
    /// Decides about an event. `name` is what a new event would be called; it is remembered if there is to be one.
    pub fn tell(&mut self, subject: &Subject, news: News, name: &str, now: Timestamp) -> Telling {
        if !self.may_speak(subject, now) {
            return Telling::Never;
        }
        let (news, message) = self.combine(subject, news, now);
        let key = (subject.clone(), news);
        if let Some(told) = self.told.get_mut(&key) {
            told.count = told.count.saturating_add(1);
            return Telling::Again { name: told.name.clone(), count: told.count, first: told.first, message };
        }
        self.remember(Forget::Told(key.clone()));
        self.told.insert(key, Told { name: name.to_owned(), count: 1, first: now });
        Telling::New(message)
    }

    /// To be called when an event that was told before turns out to be gone: it is told anew next time.
    pub fn forget(&mut self, name: &str) {
        self.told.retain(|_, told| told.name != name);
    }

    fn may_speak(&mut self, subject: &Subject, now: Timestamp) -> bool {
        if !self.buckets.contains_key(subject) {
            self.remember(Forget::Bucket(subject.clone()));
        }
        let (tokens, since) = self.buckets.entry(subject.clone()).or_insert((BURST, now));
        let waited = now.duration_since(*since).max(SignedDuration::ZERO);
        *tokens = (*tokens + waited.as_secs_f64() / REFILL.as_secs_f64()).min(BURST);
        *since = now;
        if *tokens < 1.0 {
            return false;
        }
        *tokens -= 1.0;
        true
    }

    /// Many that differ in their message only become one, under a common key.
    fn combine(&mut self, subject: &Subject, news: News, now: Timestamp) -> (News, String) {
        let key = (subject.clone(), news.kind.clone(), news.reason.clone());
        if !self.similar.contains_key(&key) {
            self.remember(Forget::Similar(key.clone()));
        }
        let similar =
            self.similar.entry(key).or_insert_with(|| Similar { messages: BTreeSet::new(), last: now });
        if now.duration_since(similar.last) > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        similar.messages.insert(news.message.clone());
        if similar.messages.len() < MOST_SIMILAR {
            let message = news.message.clone();
            return (news, message);
        }
        // The set stays as it is, however many more come.
        similar.messages.pop_first();
        let message = format!("(combined from similar events): {}", news.message);
        (News { message: "(combined from similar events)".to_owned(), ..news }, message)
    }

    fn remember(&mut self, what: Forget) {
        self.order.push_back(what);
        if self.order.len() > REMEMBERED {
            match self.order.pop_front() {
                Some(Forget::Bucket(key)) => drop(self.buckets.remove(&key)),
                Some(Forget::Similar(key)) => drop(self.similar.remove(&key)),
                Some(Forget::Told(key)) => drop(self.told.remove(&key)),
                None => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn subject() -> Subject {
        Subject { source: "job-controller".to_owned(), object: "Job/ns/a/u".to_owned() }
    }

    fn news(reason: &str, message: &str) -> News {
        News { kind: "Normal".to_owned(), reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn events_of_objects_with_long_names_have_names() {
        let number = at(1_700_000_000).as_nanosecond();
        assert_eq!(name("job", number), "job.17979cfe362a0000");
        let long = name(&format!("{}-{}", "a".repeat(235), "b".repeat(17)), number);
        assert_eq!(long, format!("{}.17979cfe362a0000", "a".repeat(235)));
        assert!(name(&"a".repeat(253), number).len() <= LONGEST_NAME);
    }

    #[test]
    fn containers_of_a_pod_are_told_about_apart() {
        let container = |name: &str| ObjectReference {
            name: Some("p".to_owned()),
            field_path: Some(format!("spec.containers{{{name}}}")),
            ..ObjectReference::default()
        };
        assert_eq!(Subject::new("kubelet", &container("a")), Subject::new("kubelet", &container("a")));
        assert_ne!(Subject::new("kubelet", &container("a")), Subject::new("kubelet", &container("b")));
    }

    #[test]
    fn the_same_again_is_counted() {
        let mut lately = Lately::default();
        assert_eq!(lately.tell(&subject(), news("R", "m"), "a.1", at(0)), Telling::New("m".to_owned()));
        let again =
            |count| Telling::Again { name: "a.1".to_owned(), count, first: at(0), message: "m".to_owned() };
        assert_eq!(lately.tell(&subject(), news("R", "m"), "a.2", at(1)), again(2));
        assert_eq!(lately.tell(&subject(), news("R", "m"), "a.3", at(2)), again(3));
        lately.forget("a.1");
        assert_eq!(lately.tell(&subject(), news("R", "m"), "a.4", at(3)), Telling::New("m".to_owned()));
    }

    #[test]
    fn similar_ones_become_one() {
        let mut lately = Lately::default();
        for i in 0..9 {
            let told = lately.tell(&subject(), news("R", &i.to_string()), &format!("a.{i}"), at(i));
            assert_eq!(told, Telling::New(i.to_string()));
        }
        let combined = |i: i64| format!("(combined from similar events): {i}");
        let told = lately.tell(&subject(), news("R", "9"), "a.9", at(9));
        assert_eq!(told, Telling::New(combined(9)));
        let told = lately.tell(&subject(), news("R", "10"), "a.10", at(10));
        let expected =
            Telling::Again { name: "a.9".to_owned(), count: 2, first: at(9), message: combined(10) };
        assert_eq!(told, expected);
        let told = lately.tell(&subject(), news("Other", "x"), "a.11", at(11));
        assert_eq!(told, Telling::New("x".to_owned()), "another reason is another matter");
    }

    #[test]
    fn who_tells_too_much_waits() {
        let mut lately = Lately::default();
        for _ in 0..25 {
            assert_ne!(lately.tell(&subject(), news("R", "m"), "a", at(0)), Telling::Never);
        }
        assert_eq!(lately.tell(&subject(), news("R", "m"), "a", at(1)), Telling::Never);
        let other = Subject { object: "Job/ns/b/v".to_owned(), ..subject() };
        assert_eq!(lately.tell(&other, news("R", "m"), "b", at(1)), Telling::New("m".to_owned()));
        assert_ne!(lately.tell(&subject(), news("R", "m"), "a", at(301)), Telling::Never);
    }

    #[test]
    fn memory_is_bounded() {
        let mut lately = Lately::default();
        for i in 0..10_000 {
            let subject = Subject { object: i.to_string(), ..subject() };
            lately.tell(&subject, news("R", "m"), "a", at(i));
        }
        assert!(lately.order.len() <= REMEMBERED);
        assert!(lately.told.len() + lately.buckets.len() + lately.similar.len() <= REMEMBERED);
    }
}
