//! One rule of a role: what it allows (6.5), and what of it other rules cover (6.7).

use std::fmt::Write as _;

use serde::{Deserialize, Deserializer, Serialize};

const ALL: &str = "*";

/// What something is to be done with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What<'a> {
    /// A path that is no resource.
    Path(&'a str),
    /// Objects. Every part may be empty.
    Resource {
        /// The API group.
        group: &'a str,
        /// The version of the group.
        version: &'a str,
        /// The plural name of the resource.
        resource: &'a str,
        /// The subresource.
        subresource: &'a str,
        /// The namespace; empty for all, and for objects without one.
        namespace: &'a str,
        /// The name of the object.
        name: &'a str,
    },
}

impl What<'_> {
    /// `pods`, or `pods/status`; empty for a path.
    pub fn qualified_resource(&self) -> String {
        match self {
            What::Path(_) => String::new(),
            What::Resource { resource, subresource: "", .. } => (*resource).to_owned(),
            What::Resource { resource, subresource, .. } => format!("{resource}/{subresource}"),
        }
    }
}

/// What may be done with what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    /// What may be done.
    #[serde(deserialize_with = "maybe_null")]
    pub verbs: Vec<String>,
    /// With resources of which groups.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "maybe_null")]
    pub api_groups: Vec<String>,
    /// With which resources: `pods`, `pods/status`, `*/status` or `*`.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "maybe_null")]
    pub resources: Vec<String>,
    /// With which objects; all if none is named.
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "maybe_null")]
    pub resource_names: Vec<String>,
    /// With which paths that are no resources.
    #[serde(
        rename = "nonResourceURLs",
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "maybe_null"
    )]
    pub non_resource_urls: Vec<String>,
}

impl Rule {
    /// Whether it allows to do this with that.
    pub fn allows(&self, verb: &str, what: &What<'_>) -> bool {
        has(&self.verbs, verb)
            && match what {
                What::Path(path) => self.non_resource_urls.iter().any(|url| path_matches(url, path)),
                What::Resource { group, resource, subresource, name, .. } => {
                    has(&self.api_groups, group)
                        && self.resources.iter().any(|known| resource_matches(known, resource, subresource))
                        && (self.resource_names.is_empty()
                            || self.resource_names.iter().any(|known| known == name))
                }
            }
    }

    /// The rule as many that each allow one thing.
    fn breakdown(&self) -> Vec<Rule> {
        let mut parts = Vec::new();
        let one = |text: &String| vec![text.clone()];
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let part = Rule {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Rule::default()
                    };
                    if self.resource_names.is_empty() {
                        parts.push(part.clone());
                    }
                    parts.extend(
                        self.resource_names
                            .iter()
                            .map(|name| Rule { resource_names: one(name), ..part.clone() }),
                    );
                }
            }
        }
        for url in &self.non_resource_urls {
            parts.extend(self.verbs.iter().map(|verb| Rule {
                verbs: one(verb),
                non_resource_urls: one(url),
                ..Rule::default()
            }));
        }
        parts
    }

    /// Whether it allows all that a part of another rule allows.
    fn covers(&self, part: &Rule) -> bool {
        let all_of =
            |own: &[String], theirs: &[String]| own.iter().any(|o| o == ALL) || is_subset(theirs, own);
        let names = self.resource_names.is_empty()
            || !part.resource_names.is_empty() && is_subset(&part.resource_names, &self.resource_names);
        let urls = part
            .non_resource_urls
            .iter()
            .all(|url| self.non_resource_urls.iter().any(|known| path_matches(known, url)));
        all_of(&self.verbs, &part.verbs)
            && all_of(&self.api_groups, &part.api_groups)
            && self.covers_resources(&part.resources)
            && names
            && urls
    }

    fn covers_resources(&self, theirs: &[String]) -> bool {
        if self.resources.iter().any(|own| own == ALL) || is_subset(theirs, &self.resources) {
            return true;
        }
        theirs.iter().all(|resource| {
            self.resources.contains(resource)
                || resource
                    .split_once('/')
                    .is_some_and(|(_, sub)| self.resources.contains(&format!("*/{sub}")))
        })
    }

    /// How messages print it: `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    fn compact(&self) -> String {
        let mut parts = Vec::new();
        for (name, list) in [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ] {
            if !list.is_empty() {
                parts.push(format!("{name}:{}", quoted(list)));
            }
        }
        format!("{{{}}}", parts.join(", "))
    }
}

/// Go writes an absent list as null.
fn maybe_null<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A list of texts as Go's `%q` prints it.
pub fn quoted(list: &[String]) -> String {
    let mut out = String::from("[");
    for (i, text) in list.iter().enumerate() {
        let space = if i == 0 { "" } else { " " };
        write!(out, "{space}{}", types::go::quote(text)).expect("writing to memory");
    }
    out.push(']');
    out
}

/// What of `wanted` no rule of `held` covers, as rules that each allow one thing.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let parts = wanted.iter().flat_map(Rule::breakdown);
    parts.filter(|part| !held.iter().any(|rule| rule.covers(part))).collect()
}

/// What of `wanted` no rule of `held` covers, as messages print it, line by line; empty if all is covered.
pub fn uncovered(held: &[Rule], wanted: &[Rule]) -> Vec<String> {
    let mut lines: Vec<String> = compacted(missing(held, wanted)).iter().map(Rule::compact).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// Rules about the same one resource become one with all their verbs.
fn compacted(rules: Vec<Rule>) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for rule in rules {
        let is_simple =
            rule.resource_names.len() <= 1 && rule.non_resource_urls.is_empty() && rule.resources.len() == 1;
        let same = |known: &&mut Rule| {
            known.api_groups == rule.api_groups
                && known.resources == rule.resources
                && known.resource_names == rule.resource_names
                && known.non_resource_urls.is_empty()
        };
        match out.iter_mut().find(same).filter(|_| is_simple) {
            Some(known) => known.verbs.extend(rule.verbs),
            None => out.push(rule),
        }
    }
    out
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|known| known == ALL || known == wanted)
}

fn is_subset(small: &[String], large: &[String]) -> bool {
    small.iter().all(|item| large.contains(item))
}

/// `pods`, `pods/status`, `*/status` and `*`.
fn resource_matches(known: &str, resource: &str, subresource: &str) -> bool {
    if known == ALL {
        return true;
    }
    match known.split_once('/') {
        None => subresource.is_empty() && known == resource,
        Some((of, sub)) => !subresource.is_empty() && sub == subresource && (of == ALL || of == resource),
    }
}

/// A path, or all that start with what stands before a star.
fn path_matches(known: &str, path: &str) -> bool {
    known == ALL || known == path || known.ends_with(ALL) && path.starts_with(known.trim_end_matches(ALL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Rule {
        let list = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Rule { verbs: list(verbs), api_groups: list(groups), resources: list(resources), ..Rule::default() }
    }

    fn allows(rule: &Rule, verb: &str, group: &str, resource: &str, name: &str) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let what = What::Resource { group, version: "v1", resource, subresource, namespace: "n", name };
        rule.allows(verb, &what)
    }

    #[test]
    fn rule_6_5_resources() {
        for (resources, asked, expected) in [
            (&["pods"][..], "pods", true),
            (&["pods"], "pods/status", false),
            (&["pods/status"], "pods/status", true),
            (&["pods/status"], "pods", false),
            (&["*/status"], "pods/status", true),
            (&["*/status"], "pods/log", false),
            (&["*/status"], "pods", false),
            (&["*"], "pods/status", true),
        ] {
            assert_eq!(allows(&rule(&["get"], &[""], resources), "get", "", asked, ""), expected, "{asked}");
        }
        let named = Rule { resource_names: vec!["a".to_owned()], ..rule(&["*"], &["*"], &["pods"]) };
        assert!(allows(&named, "delete", "x", "pods", "a"));
        assert!(!allows(&named, "delete", "x", "pods", "b"));
        assert!(!allows(&named, "create", "x", "pods", ""));
    }

    #[test]
    fn rule_6_5_paths() {
        let rule = Rule {
            verbs: vec!["get".to_owned()],
            non_resource_urls: ["/a", "/b/*"].map(str::to_owned).to_vec(),
            ..Rule::default()
        };
        for (path, expected) in
            [("/a", true), ("/a/b", false), ("/b/", true), ("/b/c/d", true), ("/b", false)]
        {
            assert_eq!(rule.allows("get", &What::Path(path)), expected, "{path}");
        }
    }

    #[test]
    fn rule_6_7_what_is_not_covered() {
        let held = [rule(&["get"], &[""], &["pods", "*/scale"])];
        assert!(uncovered(&held, &[rule(&["get"], &[""], &["pods", "deployments/scale"])]).is_empty());
        assert_eq!(
            uncovered(&held, &[rule(&["get", "list", "watch"], &[""], &["pods"])]),
            [r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#]
        );
        let named = Rule { resource_names: vec!["a".to_owned()], ..rule(&["get"], &[""], &["pods"]) };
        assert!(uncovered(&held, std::slice::from_ref(&named)).is_empty());
        assert_eq!(uncovered(&[named], &held).len(), 2);
    }
}
