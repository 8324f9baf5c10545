//! Conditions of an object: finding them, and setting them the way Kubernetes does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use types::kueue::Workload;

/// The condition of this type.
pub(super) fn find<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == kind)
}

/// The condition of this type of a Workload.
pub(super) fn of<'a>(workload: &'a Workload, kind: &str) -> Option<&'a Condition> {
    find(workload.status.as_ref().map_or(&[], |status| &status.conditions), kind)
}

/// Whether the condition of this type is there and true.
pub(super) fn is_true(workload: &Workload, kind: &str) -> bool {
    of(workload, kind).is_some_and(|condition| condition.status == "True")
}

/// Sets a condition to true. Its time is `now` if it was not true before.
pub(super) fn set(
    conditions: &mut Vec<Condition>,
    kind: &str,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) {
    let since =
        find(conditions, kind).filter(|old| old.status == "True").map(|old| old.last_transition_time.clone());
    let new = Condition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since.unwrap_or_else(|| time(now)),
        observed_generation: generation,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(there) => *there = new,
        None => conditions.push(new),
    }
}

/// A point in time as it is written: in whole seconds.
pub(super) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).expect("a second of a valid time is valid"))
}

/// A message as long as a condition or a check may hold.
pub(super) fn truncated(message: &str) -> String {
    const LONGEST: usize = 32 * 1024;
    const DOTS: &str = " ...";
    if message.len() <= LONGEST {
        return message.to_owned();
    }
    let end = (0..=LONGEST - DOTS.len()).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{DOTS}", &message[..end])
}
