//! Roles that are made of others: what the clusterrole-aggregation controller of Kubernetes writes (6.7).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::rule::Rule;
use crate::meta::selector;

/// A role that others may be made of: its name, its labels and its rules, in whatever form.
pub type Part<'a, R = Rule> = (&'a str, &'a BTreeMap<String, String>, &'a [R]);

/// The rules of the role `name`, which takes those of every other role that one of its selectors matches: selector by
/// selector, role by role in the order of their names, each rule once.
pub fn aggregated<'a, R: Clone + PartialEq + 'a>(
    name: &str,
    selectors: &[LabelSelector],
    roles: impl IntoIterator<Item = Part<'a, R>> + Clone,
) -> Vec<R> {
    let mut rules: Vec<R> = Vec::new();
    for wanted in selectors {
        let mut matching: Vec<Part<'_, R>> = roles
            .clone()
            .into_iter()
            .filter(|(other, labels, _)| {
                *other != name && selector::matches(Some(wanted), labels) == Some(true)
            })
            .collect();
        matching.sort_by_key(|(other, ..)| *other);
        for rule in matching.iter().flat_map(|(_, _, rules)| *rules) {
            if !rules.contains(rule) {
                rules.push(rule.clone());
            }
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_6_7_roles_of_others() {
        let labels = |value: &str| BTreeMap::from([("to".to_owned(), value.to_owned())]);
        let rule = |verb: &str| Rule { verbs: vec![verb.to_owned()], ..Rule::default() };
        let (a, b, view, edit) = ([rule("a")], [rule("b"), rule("a")], labels("view"), labels("edit"));
        let roles: Vec<Part<'_>> =
            vec![("z", &view, &b[..]), ("y", &view, &a[..]), ("x", &edit, &b[..]), ("all", &view, &b[..])];
        let of =
            |value: &str| LabelSelector { match_labels: Some(labels(value)), ..LabelSelector::default() };
        assert_eq!(aggregated("all", &[of("view")], roles.clone()), [rule("a"), rule("b")]);
        assert_eq!(aggregated("all", &[of("none")], roles), []);
    }
}
