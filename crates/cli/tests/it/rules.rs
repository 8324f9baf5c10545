//! Every rule that the source names by its code is written down in `docs/rules`, once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::architecture::workspace;

/// What is written down.
struct Rules {
    /// Their codes.
    codes: BTreeSet<String>,
    /// What codes with a dash begin with, `C` or `MK-FLOW`. Nothing else does, so that `UTF-8` and `GPL-3` are no codes.
    prefixes: BTreeSet<String>,
}

impl Rules {
    fn of(codes: impl IntoIterator<Item = String>) -> Rules {
        let codes: BTreeSet<String> = codes.into_iter().collect();
        let prefix = |code: &String| code.rsplit_once('-').map(|(prefix, _)| prefix.to_owned());
        Rules { prefixes: codes.iter().filter_map(prefix).collect(), codes }
    }

    /// The codes that a line of source names.
    fn named(&self, line: &str) -> Vec<String> {
        let mut named = self.in_text(line);
        named.extend(numbers_in(line));
        for after in line.split("fn ").skip(1) {
            let name = after.split(|it: char| !it.is_ascii_alphanumeric() && it != '_').next();
            named.extend(self.in_name(name.unwrap_or_default()));
        }
        named
    }

    /// Codes with a dash, wherever they stand.
    fn in_text(&self, text: &str) -> Vec<String> {
        let words = text.split(|it: char| !it.is_ascii_alphanumeric() && !matches!(it, '-' | '_'));
        words.filter(|word| self.is_code(word)).map(str::to_owned).collect()
    }

    fn is_code(&self, word: &str) -> bool {
        word.rsplit_once('-')
            .is_some_and(|(prefix, number)| self.prefixes.contains(prefix) && is_number(number))
    }

    /// The codes in the name of a function: `c_43_c_44_actions`, `mk_flow_07_…`, `rule_2_55_…`, `pruning_3_24`.
    fn in_name(&self, name: &str) -> Vec<String> {
        let numbered = name.strip_prefix('r').filter(|rest| rest.starts_with(|it: char| it.is_ascii_digit()));
        let words: Vec<&str> = numbered.unwrap_or(name).split('_').collect();
        let is_marked = numbered.is_some() || matches!(words[0], "rule" | "rules" | "spec" | "c" | "p");
        let mut named = Vec::new();
        let mut rest = words.as_slice();
        while let [_, others @ ..] = rest {
            rest = match self.begins(rest, is_marked) {
                Some((code, after)) => {
                    named.push(code);
                    after
                }
                None => others,
            };
        }
        named
    }

    /// The code that the words of a name begin with, and the words behind it. A number without a letter is a code in names
    /// that are marked by their first word, and at the end of others.
    fn begins<'a>(&self, words: &'a [&'a str], is_marked: bool) -> Option<(String, &'a [&'a str])> {
        let (code, after) = match words {
            [section, number, after @ ..] if is_section(section, number) => {
                let is_code = is_marked || after.is_empty();
                return is_code.then(|| (format!("{section}.{number}"), after));
            }
            // `c_2_13` is about 2.13.
            [_, section, number, ..] if is_section(section, number) => return None,
            ["mk", part, number, after @ ..] if !is_number(part) => {
                (code(&format!("mk-{part}"), number), after)
            }
            [prefix, number, after @ ..] => (code(prefix, number), after),
            _ => return None,
        };
        self.is_code(&code).then_some((code, after))
    }
}

/// A code as it is written in text.
fn code(prefix: &str, number: &str) -> String {
    let number = match number.split_at_checked(1) {
        Some((letter @ ("v" | "t"), digits)) => letter.to_uppercase() + digits,
        _ => number.to_owned(),
    };
    format!("{}-{number}", prefix.to_uppercase())
}

/// The number of a code: one or two digits, a letter before them for worked examples, one behind them for parts.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['V', 'T']).unwrap_or(text);
    let digits = text.trim_end_matches(|it: char| it.is_ascii_lowercase());
    is_digits(digits) && digits.len() <= 2 && text.len() - digits.len() <= 1
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// Whether two words are section and number of a rule of the API server.
fn is_section(section: &str, number: &str) -> bool {
    matches!(section.as_bytes(), [b'1'..=b'8'])
        && is_digits(number)
        && number.len() <= 2
        && !number.starts_with('0')
}

/// Codes without a prefix: in a comment those that a parenthesis or bracket begins with, anywhere those behind `rule`.
fn numbers_in(line: &str) -> Vec<String> {
    let comment = line.split_once("//").map_or("", |(_, comment)| comment);
    let mut named = Vec::new();
    for inside in comment.split(['(', '[']).skip(1) {
        let inside = inside.split([')', ']']).next().unwrap_or_default();
        let parts = inside.split([',', '–']).map(str::trim).skip_while(|part| part.starts_with('§'));
        named.extend(parts.take_while(|part| is_decimal(part)).map(str::to_owned));
    }
    for after in line.split("rule ").skip(1) {
        let number = after.split(|it: char| !it.is_ascii_digit() && it != '.').next().unwrap_or_default();
        named.extend(Some(number.trim_end_matches('.')).filter(|it| is_decimal(it)).map(str::to_owned));
    }
    named
}

fn is_decimal(text: &str) -> bool {
    text.split_once('.').is_some_and(|(section, number)| is_section(section, number))
}

/// All files of a kind below a directory.
fn files(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The documents, and what they say.
fn documents() -> Vec<(PathBuf, String)> {
    let paths = files(&workspace().join("docs/rules"), "md");
    paths.into_iter().map(|path| (path.clone(), read(&path))).collect()
}

/// The codes that a document gives a meaning: those of its items.
fn written_down(document: &str) -> impl Iterator<Item = String> {
    let items = document.lines().filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    items.map(|(code, _)| code.to_owned())
}

#[test]
fn every_rule_that_is_named_is_written_down() {
    let documents = documents();
    let rules = Rules::of(documents.iter().flat_map(|(_, text)| written_down(text)));
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    let mut note = |path: &Path, line: usize, codes: Vec<String>| {
        for code in codes {
            named.entry(code).or_insert_with(|| format!("{}:{}", path.display(), line + 1));
        }
    };
    for path in files(&workspace().join("crates"), "rs") {
        for (number, line) in read(&path).lines().enumerate() {
            note(&path, number, rules.named(line));
        }
    }
    for (path, text) in &documents {
        for (number, line) in text.lines().enumerate() {
            note(path, number, rules.in_text(line));
        }
    }
    assert!(named.len() > 900, "they are found: {}", named.len());
    named.retain(|code, _| !rules.codes.contains(code));
    assert!(named.is_empty(), "docs/rules does not say what these are: {named:#?}");
}

#[test]
fn every_rule_is_written_down_once() {
    let mut seen = BTreeSet::new();
    let all: Vec<String> = documents().iter().flat_map(|(_, text)| written_down(text)).collect();
    let twice: Vec<&String> = all.iter().filter(|code| !seen.insert(*code)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn codes_are_told_from_other_words() {
    let codes = ["C-43", "C-44", "P-01", "S-09a", "FA-7", "FA-V2", "SM-T1", "MK-3", "MK-FLOW-25"];
    let rules = Rules::of(codes.map(str::to_owned));
    let check = |line: &str, expected: &str| assert_eq!(rules.named(line).join(" "), expected, "{line}");
    check("/// Both (C-43…C-44), and S-09a.", "C-43 C-44 S-09a");
    check("\"MK-FLOW-25.2, MK-3\"", "MK-FLOW-25 MK-3");
    check("// UTF-8, P-256, GPL-3, DNS-1123 and X-Remote-User", "");
    check("//! As it is stored (2.55), and read (1.26, 2.24).", "2.55 1.26 2.24");
    check(
        "// From one to another (2.52–2.58), by kind (§9, 2.69), or not (2.60, as measured).",
        "2.52 2.58 2.69 2.60",
    );
    check("/// [5.17], [8.20]: as rule 1.1 says.", "5.17 8.20 1.1");
    check("let weight = scaled(2.5); // as HTTP/1.1 (and 1.5 times as much)", "");
    check("fn c_43_c_44_actions() {", "C-43 C-44");
    check("fn fa_7_fa_v2_sm_t1_s_09a() {", "FA-7 FA-V2 SM-T1 S-09a");
    check("fn mk_flow_25_and_mk_3() {", "MK-FLOW-25 MK-3");
    check("fn rule_2_6_2_15_options() {", "2.6 2.15");
    check("fn c_8_6_and_c_8_7_one_history() {", "8.6 8.7");
    check("fn p_4_9_ports() {", "4.9");
    check("fn r2_38_patches() {", "2.38");
    check("fn pruning_3_24() {", "3.24");
    check("fn versions_2_1_and_3_0_0() {", "");
}
