//! Conditions of an object: finding them, and setting them the way Kubernetes does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message of a condition, and the longest of an event (API-7).
const LONGEST_MESSAGE: usize = 32 * 1024;
const LONGEST_EVENT: usize = 1024;

/// The condition of this type.
pub fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// Whether the condition of this type is there and true.
pub fn is_true(conditions: &[Condition], kind: &str) -> bool {
    find(conditions, kind).is_some_and(|condition| condition.status == "True")
}

/// Sets a condition. Its time is `now` if its status changes, and stays what it was otherwise (SM-4). True if anything
/// changed at all.
pub fn set(conditions: &mut Vec<Condition>, new: Condition) -> bool {
    let Some(there) = conditions.iter_mut().find(|condition| condition.type_ == new.type_) else {
        conditions.push(new);
        return true;
    };
    let new = if there.status == new.status {
        Condition { last_transition_time: there.last_transition_time.clone(), ..new }
    } else {
        new
    };
    let changed = *there != new;
    *there = new;
    changed
}

/// Takes a condition away. True if it was there.
pub fn remove(conditions: &mut Vec<Condition>, kind: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.len() < before
}

/// A condition as it is set first. Objects keep whole seconds.
pub fn new(
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    Condition {
        type_: kind.to_owned(),
        status: if status { "True" } else { "False" }.to_owned(),
        reason: reason.to_owned(),
        message: self::message(message),
        observed_generation: generation.filter(|generation| *generation != 0),
        last_transition_time: time(now),
    }
}

/// A point in time as objects keep it: to the second.
pub fn time(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The message of a condition, or of a check, which may be cut.
pub fn message(message: &str) -> String {
    truncated(message, LONGEST_MESSAGE)
}

/// The text of an event, which may be cut.
pub fn event_message(message: &str) -> String {
    truncated(message, LONGEST_EVENT)
}

fn truncated(message: &str, longest: usize) -> String {
    const REST: &str = " ...";
    if message.len() <= longest {
        return message.to_owned();
    }
    let mut end = longest - REST.len();
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{REST}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millisecond(second * 1000 + 400).expect("a time")
    }

    #[test]
    fn sm_4_times_change_with_the_status_only() {
        let mut all = Vec::new();
        assert!(set(&mut all, new("Ready", false, "No", "not yet", Some(1), at(1))));
        assert!(!set(&mut all, new("Ready", false, "No", "not yet", Some(1), at(2))));
        assert!(set(&mut all, new("Ready", false, "No", "still not", Some(1), at(3))));
        assert_eq!(all[0].last_transition_time.0.as_second(), 1);
        assert!(set(&mut all, new("Ready", true, "Yes", "now", Some(2), at(4))));
        assert_eq!(all[0].last_transition_time.0, Timestamp::from_second(4).expect("a time"));
        assert!(is_true(&all, "Ready") && remove(&mut all, "Ready") && !remove(&mut all, "Ready"));
    }

    #[test]
    fn api_7_long_messages_are_cut() {
        let long = "ä".repeat(20_000);
        let cut = new("Ready", true, "Yes", &long, None, at(0)).message;
        assert!(cut.len() <= 32 * 1024 && cut.ends_with("ä ..."), "{}", cut.len());
        assert_eq!(event_message(&"x".repeat(1025)).len(), 1024);
        assert_eq!(event_message("short"), "short");
    }
}
