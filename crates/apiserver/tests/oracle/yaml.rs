//! Bodies in YAML, good and bad, read by ours and by Kubernetes' own reader.

use apiserver::body::yaml;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::go;
use crate::random::{Random, seeds};

const HEADS: &[&str] = &[
    "",
    "",
    "",
    "---\n",
    "--- ",
    "%YAML 1.1\n---\n",
    "%YAML 1.2\n---\n",
    "%TAG !e! tag:e,1:\n---\n",
    "# c\n",
    "\n",
    "\u{feff}",
    "%FOO\n",
    "...",
    "z: &a 1\n",
    "z: &b {k: v, l: w}\n",
    "z: &c [1]\n",
];
const TAILS: &[&str] =
    &["", "", "", "\n", "\n---\nx\n", "\n...\n", "\n---", "\nrest", " x", "\n}", "\r\n# c", "\u{2028}"];
const SCALARS: &[&str] = &[
    "a",
    "key",
    "1",
    "0x1F",
    "0755",
    "08",
    "1_000",
    "1e3",
    "1.0",
    "-0",
    "+1",
    ".5",
    "5.",
    "~",
    "null",
    "yes",
    "No",
    "on",
    "2001-01-01",
    "12:30:45",
    "0b11",
    "-0b1",
    "0o17",
    "0b+1",
    "9223372036854775808",
    "123456789012345678901234567890",
    "1e400",
    "1e20",
    "1e21",
    "1e-7",
    "0.000001",
    "!!str 1",
    "!!int x",
    "!!int 3",
    "!!float 3",
    "!!bool yes",
    "!!null x",
    "!!binary aGk=",
    "!!binary x",
    "!foo bar",
    "! 12",
    "!!timestamp 2001-1-1",
    "!!timestamp x",
    "!e!x 1",
    "&a 1",
    "*a",
    "&b {k: v}",
    "*b",
    "*c",
    "'q''x'",
    "\"d\\n\\x41\\u00e9\"",
    "\"\\ud800\"",
    "\"\\q\"",
    "\"\\\n  x\"",
    "'a\n  b'",
    "|\n   text\n   more\n",
    "|-\n    x\n",
    "|+\n  x\n\n",
    ">\n  a\n  b\n\n  c\n",
    "|0\n",
    "|\n\tx",
    "a b",
    "a\n  b",
    "a # c",
    "#c",
    "a: b",
    "@x",
    "`x",
    "%x",
    "?",
    "-",
    ":",
    "{",
    "}",
    "[",
    "]",
    ",",
    "{a}",
    "[a: b]",
    "{? a : b}",
    "[? : x]",
    "[]",
    "[]: x",
    "{}: x",
    "é",
    "\t",
    "&x",
    "!",
    "!!map {a: 1}",
    "\"a\": 1",
    "<<",
];
const KEYS: &[&str] = &[
    "a",
    "a",
    "b",
    "1",
    "1.5",
    "1e6",
    "yes",
    "'x'",
    "\"y\"",
    "<<",
    "!!str 1",
    "*a",
    "&k z",
    "? a\n",
    "2001-01-01",
    "key with space",
    "0x10",
    "!!merge <<",
    "!!int 7",
    "12345678.9",
];
/// What is put into a text or taken out of it to break it.
const SPOILS: &[&str] =
    &[" ", "\n", "\t", ":", "-", "?", ",", "[", "]", "{", "}", "#", "&", "*", "!", "|", "'", "\"", "\u{1}"];

fn node(random: &mut Random, depth: usize) -> String {
    let count = random.below(4);
    let pair = |random: &mut Random| format!("{}: {}", random.one(KEYS), node(random, depth - 1));
    match random.below(if depth == 0 { 4 } else { 10 }) {
        0..=3 => (*random.one(SCALARS)).to_owned(),
        4 => {
            let items: Vec<String> = (0..count).map(|_| node(random, depth - 1)).collect();
            format!("[{}]", items.join(", "))
        }
        5 => {
            let pairs: Vec<String> = (0..count).map(|_| pair(random)).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        block => {
            let line = |random: &mut Random| {
                if block < 9 { pair(random) } else { format!("- {}", node(random, depth - 1)) }
            };
            let lines: Vec<String> = (0..=count).map(|_| line(random)).collect();
            let indent = " ".repeat(*random.one(&[0, 1, 2, 2, 4]));
            format!("\n{indent}{}", lines.join("\n").replace('\n', &format!("\n{indent}")))
        }
    }
}

fn document(seed: u64) -> Vec<u8> {
    let random = &mut Random::new(seed);
    let mut text = format!("{}{}{}", random.one(HEADS), node(random, 3), random.one(TAILS));
    for _ in 0..random.below(8).saturating_sub(5) {
        let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
        if places.is_empty() {
            break;
        }
        let place = *random.one(&places);
        if random.percent(50) {
            text.remove(place);
        } else {
            text.insert_str(place, random.one::<&str>(SPOILS));
        }
    }
    text.into_bytes()
}

/// Ours, as the oracle answers.
fn ours(body: &[u8]) -> Value {
    match yaml::read_all(body) {
        Err(why) => json!({"error": why}),
        Ok((value, repeated)) => {
            let strict = match repeated.join("\n  ") {
                lines if lines.is_empty() => lines,
                lines => format!("yaml: unmarshal errors:\n  {lines}"),
            };
            json!({"json": yaml::print(&value), "strict": strict})
        }
    }
}

#[test]
fn rule_8_25_yaml_is_read_as_go_reads_it() {
    if !go::is_here() {
        return;
    }
    let bodies: Vec<(u64, Vec<u8>)> = seeds(4000).map(|seed| (seed, document(seed))).collect();
    let questions: Vec<Value> =
        bodies.iter().map(|(_, body)| json!({"op": "yaml", "body": STANDARD.encode(body)})).collect();
    for ((seed, body), theirs) in bodies.iter().zip(go::ask(&questions)) {
        if theirs["panic"].is_null() {
            assert_eq!(ours(body), theirs, "seed {seed}: {:?}", String::from_utf8_lossy(body));
        }
    }
}
