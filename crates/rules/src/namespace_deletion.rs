//! What is told about a namespace that is being deleted: what went wrong, and what is left.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::NamespaceCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The finalizer in `spec.finalizers` that keeps a namespace until its content is deleted.
pub const FINALIZER: &str = "kubernetes";

/// How far the deletion of the content has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Why it is not known what the namespace can contain.
    pub discovery_error: Option<String>,
    /// What could not be deleted, and why.
    pub content_errors: Vec<String>,
    /// How many objects are left, by resource and group.
    pub remaining: BTreeMap<(String, String), usize>,
    /// How many objects each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
}

impl Progress {
    /// Whether everything is known to be gone.
    pub fn is_done(&self) -> bool {
        self.discovery_error.is_none() && self.content_errors.is_empty() && self.remaining.is_empty()
    }
}

/// The conditions of a namespace after another attempt; `None` if they say all that already.
pub fn conditions(
    before: &[NamespaceCondition],
    progress: &Progress,
    now: Timestamp,
) -> Option<Vec<NamespaceCondition>> {
    let mut after = before.to_vec();
    for (kind, failure, ok_reason, ok_message) in [
        (
            "NamespaceDeletionDiscoveryFailure",
            progress.discovery_error.clone().map(|error| ("DiscoveryFailed", error)),
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        (
            "NamespaceDeletionContentFailure",
            content_failure(progress),
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        (
            "NamespaceContentRemaining",
            content_remains(progress),
            "ContentRemoved",
            "All content successfully removed",
        ),
        (
            "NamespaceFinalizersRemaining",
            finalizers_remain(progress),
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ] {
        let (status, reason, message) = match failure {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", ok_reason, ok_message.to_owned()),
        };
        let new = NamespaceCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match after.iter_mut().find(|condition| condition.type_ == kind) {
            None => after.push(new),
            Some(old) => {
                let since = if old.status == new.status {
                    old.last_transition_time.clone()
                } else {
                    new.last_transition_time
                };
                *old = NamespaceCondition { last_transition_time: since, ..new };
            }
        }
    }
    (after != before).then_some(after)
}

fn content_failure(progress: &Progress) -> Option<(&'static str, String)> {
    let mut errors = progress.content_errors.clone();
    errors.sort();
    let message =
        format!("Failed to delete all resource types, {} remaining: {}", errors.len(), errors.join(", "));
    (!errors.is_empty()).then_some(("ContentDeletionFailed", message))
}

fn content_remains(progress: &Progress) -> Option<(&'static str, String)> {
    let remaining = progress.remaining.iter();
    let mut list: Vec<String> = remaining
        .map(|((resource, group), count)| format!("{resource}.{group} has {count} resource instances"))
        .collect();
    list.sort();
    let message = format!("Some resources are remaining: {}", list.join(", "));
    (!list.is_empty()).then_some(("SomeResourcesRemain", message))
}

fn finalizers_remain(progress: &Progress) -> Option<(&'static str, String)> {
    let finalizers = progress.finalizers.iter();
    let list: Vec<String> =
        finalizers.map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let message = format!("Some content in the namespace has finalizers remaining: {}", list.join(", "));
    (!list.is_empty()).then_some(("SomeFinalizersRemain", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn print(conditions: &[NamespaceCondition]) -> Vec<String> {
        let line = |condition: &NamespaceCondition| {
            let NamespaceCondition { type_, status, message, last_transition_time, .. } = condition;
            let since = last_transition_time.as_ref().map_or(0, |time| time.0.as_second());
            format!("{type_}={status} since {since}: {}", message.clone().unwrap_or_default())
        };
        conditions.iter().filter(|condition| condition.status == "True").map(line).collect()
    }

    #[test]
    fn p_4_5_conditions_follow_what_is_left() {
        let mut progress = Progress::default();
        progress.remaining.insert(("pods".to_owned(), String::new()), 2);
        progress.remaining.insert(("jobs".to_owned(), "batch".to_owned()), 1);
        progress.finalizers.insert("example.com/a".to_owned(), 3);
        let first = conditions(&[], &progress, at(1)).unwrap();
        assert_eq!(first.len(), 5);
        assert_eq!(
            print(&first),
            [
                "NamespaceContentRemaining=True since 1: Some resources are remaining: jobs.batch has 1 resource \
                 instances, pods. has 2 resource instances",
                "NamespaceFinalizersRemaining=True since 1: Some content in the namespace has finalizers remaining: \
                 example.com/a in 3 resource instances",
            ]
        );
        assert_eq!(conditions(&first, &progress, at(2)), None, "nothing new");
        progress.remaining.remove(&("jobs".to_owned(), "batch".to_owned()));
        progress.finalizers.clear();
        progress.content_errors = vec!["b".to_owned(), "a".to_owned()];
        let second = conditions(&first, &progress, at(3)).unwrap();
        assert_eq!(
            print(&second),
            [
                "NamespaceDeletionContentFailure=True since 3: Failed to delete all resource types, 2 remaining: a, b",
                "NamespaceContentRemaining=True since 1: Some resources are remaining: pods. has 2 resource instances",
            ]
        );
        assert!(!progress.is_done());
        let third = conditions(&second, &Progress::default(), at(4)).unwrap();
        assert!(print(&third).is_empty());
        assert!(Progress::default().is_done());
    }
}
