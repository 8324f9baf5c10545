//! Tests that do not pass, each with its reason, and the page that tells of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::group_of;

/// The first words of the file. It is read and written by a program, so no other comment survives.
const HEADER: &str = "\
# Conformance tests that do not pass on `ferry cluster`: a reason, and below it the tests that it keeps from passing.
# A test that passes is taken out by the command that runs it; nothing puts one in.
";

/// Tests that are known to fail, by the reason why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    reasons: BTreeMap<String, BTreeSet<String>>,
}

impl Known {
    /// Reads the file: a line that begins with `[` is a test, any other a reason; `#` begins a comment.
    pub fn parse(text: &str) -> Result<Known, String> {
        let mut known = Known::default();
        let mut reason = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if !line.starts_with('[') {
                reason = Some(known.reasons.entry(line.to_owned()).or_default());
                continue;
            }
            let tests = reason.as_mut().ok_or_else(|| format!("there is no reason above {line:?}"))?;
            if !tests.insert(line.to_owned()) {
                return Err(format!("{line:?} stands there twice"));
            }
        }
        Ok(known)
    }

    /// Why a test fails, if it is known to.
    pub fn reason(&self, test: &str) -> Option<&str> {
        self.reasons.iter().find(|(_, tests)| tests.contains(test)).map(|(reason, _)| reason.as_str())
    }

    /// Takes out tests that pass; true if there was one.
    pub fn remove(&mut self, passing: &BTreeSet<String>) -> bool {
        let before = self.len();
        for tests in self.reasons.values_mut() {
            tests.retain(|test| !passing.contains(test));
        }
        self.reasons.retain(|_, tests| !tests.is_empty());
        self.len() != before
    }

    /// Those that are no tests at all, or not any more.
    pub fn strangers<'a>(&'a self, names: &[String]) -> Vec<&'a str> {
        let known = self.reasons.values().flatten().map(String::as_str);
        known.filter(|test| !names.iter().any(|name| name == test)).collect()
    }

    fn len(&self) -> usize {
        self.reasons.values().map(BTreeSet::len).sum()
    }

    /// The file.
    pub fn file(&self) -> String {
        let mut text = HEADER.to_owned();
        for (reason, tests) in &self.reasons {
            write!(text, "\n{reason}\n").expect("a string takes everything");
            for test in tests {
                writeln!(text, "{test}").expect("a string takes everything");
            }
        }
        text
    }

    /// The page for people: how many of all tests passed in a run of them, by group, and why the others do not. `run` says
    /// which run that was.
    pub fn page(&self, names: &[String], passed: &BTreeSet<String>, run: &str) -> String {
        let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for name in names {
            let (all, passing) = groups.entry(group_of(name)).or_default();
            *all += 1;
            *passing += usize::from(passed.contains(name));
        }
        let (all, passing) =
            groups.values().fold((0, 0), |(all, passing), group| (all + group.0, passing + group.1));
        let mut page = format!(
            "# Conformance\n\n\
             Of the {all} conformance tests of Kubernetes v1.35, {passing} pass on `ferry cluster --network pods`: {run}. They are Kubernetes' own, built \
             unchanged from its module; `cargo run -p testkit --example conformance` runs those that pass, fails if one does not, and \
             writes this page if all of them ran. Their pods are processes of the machine; their images are directories with the \
             programs that the real ones have, built from pinned sources or taken from Debian, except that nginx and pause are an \
             agnhost that waits. The tests are run by root; without \
             `--network pods`, pods share the network of their machine, and tests of Services and DNS do not pass.\n\n\
             | group | pass | of |\n|---|---|---|\n"
        );
        for (group, (all, passing)) in &groups {
            writeln!(page, "| {group} | {passing} | {all} |").expect("a string takes everything");
        }
        writeln!(page, "| **all** | **{passing}** | **{all}** |").expect("a string takes everything");
        if !self.reasons.is_empty() {
            page.push_str("\n## What does not pass, and why\n");
        }
        for (reason, tests) in &self.reasons {
            write!(page, "\n### {reason}\n\n").expect("a string takes everything");
            for test in tests {
                writeln!(page, "- {}", test.replace(" [Conformance]", ""))
                    .expect("a string takes everything");
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# words\nThere is no network.\n[sig-network] A [Conformance]\n[sig-node] B\n\nNot yet.\n[sig-node] C\n";

    #[test]
    fn tests_stand_below_their_reasons() {
        let known = Known::parse(FILE).expect("a file");
        assert_eq!(known.reason("[sig-node] B"), Some("There is no network."));
        assert_eq!(known.reason("[sig-node] C"), Some("Not yet."));
        assert_eq!(known.reason("[sig-node] D"), None);
        assert_eq!(Known::parse(&known.file()), Ok(known));
        assert!(Known::parse("[sig-node] B").is_err());
        assert!(Known::parse("why\n[sig-node] B\n[sig-node] B").is_err());
    }

    #[test]
    fn what_passes_is_taken_out_with_the_reason_that_nobody_needs_any_more() {
        let mut known = Known::parse(FILE).expect("a file");
        let passing = ["[sig-node] C", "[sig-node] D"].map(str::to_owned).into();
        assert!(known.remove(&passing));
        assert!(!known.remove(&passing));
        assert!(!known.file().contains("Not yet."), "{}", known.file());
        assert_eq!(known.strangers(&["[sig-node] B".to_owned()]), ["[sig-network] A [Conformance]"]);
    }

    #[test]
    fn the_page_counts_by_group() {
        let known = Known::parse(FILE).expect("a file");
        let names = ["[sig-network] A [Conformance]", "[sig-node] B", "[sig-node] C", "[sig-node] D"];
        let passed = BTreeSet::from(["[sig-node] D".to_owned()]);
        let page = known.page(&names.map(str::to_owned), &passed, "yesterday");
        assert!(page.contains("1 pass on `ferry cluster --network pods`: yesterday."), "{page}");
        assert!(
            page.contains("| sig-network | 0 | 1 |\n| sig-node | 1 | 3 |\n| **all** | **1** | **4** |"),
            "{page}"
        );
        assert!(page.contains("### There is no network.\n\n- [sig-network] A\n- [sig-node] B\n"), "{page}");
    }
}
