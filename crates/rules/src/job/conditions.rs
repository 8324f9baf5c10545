//! The conditions of a Job's status: finding them, and changing them as the Job controller does.
//!
//! What a condition means is known to those who ask; here are only the list and its manners.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{COMPLETE, FAILED};

/// The condition of this type that is `True`, if there is one.
///
/// A list may hold the same type twice, when a user wrote a `False` entry by hand and the controller appended its own
/// (J-21, J-48); the `True` one counts, as it does for the API server's status rules (S-05).
pub fn find_true<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    list(status).iter().find(|condition| condition.type_ == kind && condition.status == "True")
}

/// The condition that makes the Job finished, if it is.
pub fn finished(job: &Job) -> Option<&JobCondition> {
    let conditions = list(job.status.as_ref()?);
    conditions.iter().find(|c| (c.type_ == COMPLETE || c.type_ == FAILED) && c.status == "True")
}

/// A new condition, noticed and changed `now`.
pub fn new(kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(wire_time(now)),
        last_transition_time: Some(wire_time(now)),
    }
}

/// Makes the condition of this type say this, and returns whether it had to be changed (J-55): an entry that says so
/// already keeps its times, another one is replaced where it stands, and an absent one is added unless it would say
/// `False`.
pub fn ensure(status: &mut JobStatus, wanted: JobCondition) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == wanted.type_) {
        Some(old) if says_the_same(old, &wanted) => false,
        Some(old) => {
            *old = wanted;
            true
        }
        None if wanted.status == "False" => {
            if conditions.is_empty() {
                status.conditions = None;
            }
            false
        }
        None => {
            conditions.push(wanted);
            true
        }
    }
}

/// A time as the API stores it: whole seconds.
pub fn wire_time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).expect("the second of a timestamp is a timestamp"))
}

fn says_the_same(a: &JobCondition, b: &JobCondition) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    a.status == b.status && text(&a.reason) == text(&b.reason) && text(&a.message) == text(&b.message)
}

fn list(status: &JobStatus) -> &[JobCondition] {
    status.conditions.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::{FAILURE_TARGET, SUSPENDED};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn status(conditions: &[(&str, &str, &str)]) -> JobStatus {
        let conditions: Vec<_> = conditions.iter().map(|(k, s, r)| new(k, s, r, "", at(1))).collect();
        JobStatus { conditions: (!conditions.is_empty()).then_some(conditions), ..JobStatus::default() }
    }

    fn text(status: &JobStatus) -> String {
        let entry = |c: &JobCondition| {
            let time = c.last_transition_time.as_ref().unwrap().0.as_second();
            format!("{}={}/{}@{time}", c.type_, c.status, c.reason.as_deref().unwrap_or_default())
        };
        list(status).iter().map(entry).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn j_55_ensure() {
        for (rule, old, wanted, changed, new_list) in [
            ("adds True", &[][..], ("A", "True", "r"), true, "A=True/r@9"),
            ("never adds False", &[], ("A", "False", "r"), false, ""),
            ("another type", &[("B", "True", "r")], ("A", "True", "r"), true, "B=True/r@1 A=True/r@9"),
            ("keeps what is right", &[("A", "True", "r")], ("A", "True", "r"), false, "A=True/r@1"),
            ("another reason", &[("A", "True", "r")], ("A", "True", "s"), true, "A=True/s@9"),
            ("True to False", &[("A", "True", "r")], ("A", "False", "r"), true, "A=False/r@9"),
            (
                "in place",
                &[("A", "False", "r"), ("B", "True", "r")],
                ("A", "True", "r"),
                true,
                "A=True/r@9 B=True/r@1",
            ),
        ] {
            let mut status = status(old);
            let (kind, value, reason) = wanted;
            assert_eq!(ensure(&mut status, new(kind, value, reason, "", at(9))), changed, "{rule}");
            assert_eq!(text(&status), new_list, "{rule}");
            assert_ne!(status.conditions, Some(vec![]), "{rule}: an empty list is no list");
        }
    }

    #[test]
    fn finished_only_by_a_true_terminal_condition() {
        for (conditions, expected) in [
            (&[][..], None),
            (&[("Complete", "True", "")], Some("Complete")),
            (&[("Complete", "False", "")], None),
            (&[("Complete", "Unknown", "")], None),
            (&[("Failed", "True", "")], Some("Failed")),
            (&[("Failed", "False", "")], None),
            (&[("Failed", "Unknown", "")], None),
            (&[("Suspended", "True", ""), ("Complete", "True", "")], Some("Complete")),
            (&[("FailureTarget", "True", ""), ("SuccessCriteriaMet", "True", "")], None),
        ] {
            let job = Job { status: Some(status(conditions)), ..Job::default() };
            assert_eq!(finished(&job).map(|c| c.type_.as_str()), expected);
        }
    }

    #[test]
    fn j_21_a_false_entry_hides_no_true_one() {
        let status = status(&[("FailureTarget", "False", "by hand"), ("FailureTarget", "True", "ours")]);
        assert_eq!(find_true(&status, FAILURE_TARGET).unwrap().reason.as_deref(), Some("ours"));
        assert_eq!(find_true(&status, SUSPENDED), None);
    }
}
