//! When a Job's `successPolicy` is met.

use k8s_openapi::api::batch::v1::{SuccessPolicy, SuccessPolicyRule};

use super::indexes::IndexSet;

/// The position of the first rule that is met by the completed indexes. Without a completed index none is.
pub fn met(policy: &SuccessPolicy, completions: i32, completed: &IndexSet) -> Option<usize> {
    if completed.is_empty() {
        return None;
    }
    policy.rules.iter().position(|rule| is_met(rule, completions, completed))
}

fn is_met(rule: &SuccessPolicyRule, completions: i32, completed: &IndexSet) -> bool {
    let enough = |done: usize| {
        rule.succeeded_count.is_some_and(|count| usize::try_from(count).is_ok_and(|count| done >= count))
    };
    let Some(listed) = &rule.succeeded_indexes else { return enough(completed.len()) };
    let listed = IndexSet::read(listed, completions);
    let done = listed.common_len(completed);
    !listed.is_empty() && (done == listed.len() || enough(done))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn y_01_to_y_03() {
        for (name, rules, completed, expected) in [
            ("Y-01 no completed index", &[(None, Some(0))][..], "", None),
            ("Y-01 no rule", &[], "0-4", None),
            ("Y-01 first met wins", &[(Some("7"), None), (None, Some(2)), (None, Some(1))], "0,1", Some(1)),
            ("Y-02 all listed", &[(Some("0-2,5"), None)], "0-5", Some(0)),
            ("Y-02 one is missing", &[(Some("0-2,5"), None)], "0-4", None),
            ("Y-02 enough of any", &[(None, Some(3))], "0,4,9", Some(0)),
            ("Y-02 not enough", &[(None, Some(3))], "0,4", None),
            ("Y-02 none is enough", &[(None, Some(0))], "4", Some(0)),
            ("Y-02 enough of the listed", &[(Some("0-3"), Some(2))], "1,3,7", Some(0)),
            ("Y-02 others do not help", &[(Some("0-3"), Some(2))], "1,7-9", None),
            ("Y-02 all listed, count or not", &[(Some("0,1"), Some(2))], "0-5", Some(0)),
            ("Y-03 an empty list", &[(Some(""), Some(0))], "0-9", None),
            ("Y-03 an unreadable list", &[(Some("x-y"), Some(0))], "0-9", None),
            ("Y-03 a list beyond the range", &[(Some("10-12"), None)], "0-9", None),
            ("a list cut by the range", &[(Some("8-12"), None)], "8,9", Some(0)),
        ] {
            let rule = |(indexes, count): &(Option<&str>, Option<i32>)| SuccessPolicyRule {
                succeeded_indexes: indexes.map(str::to_owned),
                succeeded_count: *count,
            };
            let policy = SuccessPolicy { rules: rules.iter().map(rule).collect() };
            assert_eq!(met(&policy, 10, &IndexSet::read(completed, 10)), expected, "{name}");
        }
    }
}
