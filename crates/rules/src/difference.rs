//! The difference between two structures as error messages show it: a unified diff of their indented JSON.
//!
//! The matching is Ratcliff and Obershelp's, as Python's `difflib` has it: find the longest run of equal lines, then do
//! the same on both sides of it. Other algorithms find other, often shorter, differences.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;

use serde::Serialize;

use crate::wire;

/// Lines around a change.
const CONTEXT: usize = 3;
/// In a longer text than this, lines that stand in it too often are no anchors.
const LONG: usize = 200;

/// The difference between two values of a wire type, printed as Kubernetes' internal types are.
pub fn internal<T: Serialize>(wire_type: &str, old: &T, new: &T) -> String {
    let print = |value: &T| {
        let value = serde_json::to_value(value).expect("wire types have string keys and finite numbers");
        indented(&schema::internal::json(wire::named(wire_type), &value).unwrap_or_else(|| value.to_string()))
    };
    unified(&print(old), &print(new))
}

/// Compact JSON with one member a line, indented by one space a level.
fn indented(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    let mut chars = json.chars().peekable();
    let newline = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                if let Some(close) = chars.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth -= 1;
                newline(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                newline(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

/// A unified diff without file names; empty if nothing differs.
fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.split('\n').collect(), new.split('\n').collect());
    let mut out = String::new();
    for group in groups(edits(&old, &new)) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let (from, to) = (first.old.start..last.old.end, first.new.start..last.new.end);
        writeln!(out, "@@ -{} +{} @@", shown(&from), shown(&to)).expect("a String takes everything");
        for edit in &group {
            let (was, is) = (&old[edit.old.clone()], &new[edit.new.clone()]);
            let (gone, come) = if edit.same { (' ', None) } else { ('-', Some('+')) };
            for line in was {
                push(&mut out, gone, line);
            }
            for (mark, line) in come.into_iter().flat_map(|mark| is.iter().map(move |line| (mark, line))) {
                push(&mut out, mark, line);
            }
        }
    }
    out
}

fn push(out: &mut String, mark: char, line: &str) {
    out.push(mark);
    out.push_str(line);
    out.push('\n');
}

fn shown(lines: &Range<usize>) -> String {
    match lines.len() {
        1 => format!("{}", lines.start + 1),
        0 => format!("{},0", lines.start),
        length => format!("{},{length}", lines.start + 1),
    }
}

/// Lines that are the same, or lines that are replaced by others; either side may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Edit {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

fn edits(old: &[&str], new: &[&str]) -> Vec<Edit> {
    let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, line) in new.iter().enumerate() {
        places.entry(line).or_default().push(i);
    }
    if new.len() >= LONG {
        let often = new.len() / 100 + 1;
        places.retain(|_, places| places.len() <= often);
    }
    let mut matches = Vec::new();
    find_matches(old, new, &places, 0..old.len(), 0..new.len(), &mut matches);
    matches.push((old.len(), new.len(), 0));
    let mut edits: Vec<Edit> = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (at_old, at_new, length) in matches {
        if i < at_old || j < at_new {
            edits.push(Edit { same: false, old: i..at_old, new: j..at_new });
        }
        (i, j) = (at_old + length, at_new + length);
        match edits.last_mut() {
            Some(last) if last.same && length > 0 => (last.old.end, last.new.end) = (i, j),
            _ if length > 0 => edits.push(Edit { same: true, old: at_old..i, new: at_new..j }),
            _ => {}
        }
    }
    edits
}

fn find_matches(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    within_old: Range<usize>,
    within_new: Range<usize>,
    matches: &mut Vec<(usize, usize, usize)>,
) {
    let (i, j, length) = longest_match(old, new, places, &within_old, &within_new);
    if length == 0 {
        return;
    }
    if within_old.start < i && within_new.start < j {
        find_matches(old, new, places, within_old.start..i, within_new.start..j, matches);
    }
    matches.push((i, j, length));
    if i + length < within_old.end && j + length < within_new.end {
        find_matches(old, new, places, i + length..within_old.end, j + length..within_new.end, matches);
    }
}

fn longest_match(
    old: &[&str],
    new: &[&str],
    places: &HashMap<&str, Vec<usize>>,
    within_old: &Range<usize>,
    within_new: &Range<usize>,
) -> (usize, usize, usize) {
    let (mut i, mut j, mut length) = (within_old.start, within_new.start, 0);
    let mut runs: HashMap<usize, usize> = HashMap::new();
    for at_old in within_old.clone() {
        let mut longer = HashMap::new();
        for &at_new in places.get(old[at_old]).into_iter().flatten() {
            if !within_new.contains(&at_new) {
                continue;
            }
            let before = at_new.checked_sub(1).and_then(|before| runs.get(&before)).copied();
            let run = before.unwrap_or(0) + 1;
            longer.insert(at_new, run);
            if run > length {
                (i, j, length) = (at_old + 1 - run, at_new + 1 - run, run);
            }
        }
        runs = longer;
    }
    while i > within_old.start && j > within_new.start && old[i - 1] == new[j - 1] {
        (i, j, length) = (i - 1, j - 1, length + 1);
    }
    while i + length < within_old.end && j + length < within_new.end && old[i + length] == new[j + length] {
        length += 1;
    }
    (i, j, length)
}

/// Changes that are near each other, with some lines around them.
fn groups(mut edits: Vec<Edit>) -> Vec<Vec<Edit>> {
    let shorten_start = |edit: &Edit| {
        let skip = edit.old.len().saturating_sub(CONTEXT);
        Edit {
            same: true,
            old: edit.old.start + skip..edit.old.end,
            new: edit.new.start + skip..edit.new.end,
        }
    };
    let shorten_end = |edit: &Edit| {
        let skip = edit.old.len().saturating_sub(CONTEXT);
        Edit {
            same: true,
            old: edit.old.start..edit.old.end - skip,
            new: edit.new.start..edit.new.end - skip,
        }
    };
    if let Some(first) = edits.first_mut().filter(|first| first.same) {
        *first = shorten_start(first);
    }
    if let Some(last) = edits.last_mut().filter(|last| last.same) {
        *last = shorten_end(last);
    }
    let mut groups = Vec::new();
    let mut group = Vec::new();
    for mut edit in edits {
        if edit.same && edit.old.len() > 2 * CONTEXT {
            group.push(shorten_end(&edit));
            groups.push(std::mem::take(&mut group));
            edit = shorten_start(&edit);
        }
        group.push(edit);
    }
    groups.push(group);
    groups.retain(|group| !matches!(group.as_slice(), [] | [Edit { same: true, .. }]));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_as_go_does() {
        assert_eq!(
            indented(r#"{"A":null,"B":{},"C":["x","{,\"}"],"D":{"E":1}}"#),
            "{\n \"A\": null,\n \"B\": {},\n \"C\": [\n  \"x\",\n  \"{,\\\"}\"\n ],\n \"D\": {\n  \"E\": 1\n }\n}"
        );
    }

    #[test]
    fn differences_have_three_lines_around_them() {
        let old = "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl";
        assert_eq!(unified(old, old), "");
        assert_eq!(unified(old, &old.replace('e', "E")), "@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n");
        assert_eq!(unified(old, "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk"), "@@ -9,4 +9,3 @@\n i\n j\n k\n-l\n");
        assert_eq!(
            unified(old, &old.replace('a', "A").replace('l', "L")),
            "@@ -1,4 +1,4 @@\n-a\n+A\n b\n c\n d\n@@ -9,4 +9,4 @@\n i\n j\n k\n-l\n+L\n"
        );
        assert_eq!(unified("a\n", "a\nb\n"), "@@ -1,2 +1,3 @@\n a\n+b\n \n");
    }
}
