//! YAML as Go's reader of Kubernetes manifests reads it: YAML 1.1, in which `yes`, `on` and `y` are switches, also as keys.
//!
//! - `text`: the characters of a body; `scanner`: its tokens; `parser`: the nodes of its first document;
//! - `resolve`: what a scalar is.
//!
//! Here nodes become values, with aliases and merged maps put in, and values become JSON.

mod parser;
mod resolve;
mod scanner;
mod text;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Number, Value};
use types::go;

use parser::{Content, Document, Id};
use resolve::{Scalar, TAGS};

use crate::apply::go::write_float;

/// How deep values may lie in each other, aliases included. Less is a document in the end.
const MAX_DEPTH: usize = 250;

/// Values are counted, and those that come of aliases may be no more than this share of them: all but a hundredth where there
/// are few, a tenth where there are many.
const FEW: usize = 400_000;
const MANY: usize = 4_000_000;

/// Why a text cannot be read.
#[derive(Debug)]
struct Failure(String);

impl Failure {
    fn new(problem: impl Into<String>) -> Self {
        Failure::at(0, problem)
    }

    /// In a line, which is not told if it is 0.
    fn at(line: usize, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Failure(match line {
            0 => format!("yaml: {problem}"),
            line => format!("yaml: line {line}: {problem}"),
        })
    }
}

/// Reads the first document. Keys that are no texts become texts.
pub fn read(bytes: &[u8]) -> Result<Value, String> {
    read_all(bytes).map(|(value, _)| value)
}

/// Reads the first document, and tells which keys stand more than once in it: the last one counts.
pub fn read_all(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let document = parser::parse(bytes).map_err(|Failure(why)| why)?;
    let Some(document) = document else { return Ok((Value::Null, Vec::new())) };
    let mut composer = Composer::new(&document);
    let tree = composer.tree(document.root).map_err(|Failure(why)| why)?;
    let value = json(tree)?;
    if !schema::nests_within(&value, schema::MAX_DEPTH) {
        let Failure(why) = Failure::new(format!("exceeded max depth of {}", schema::MAX_DEPTH));
        return Err(why);
    }
    Ok((value, composer.repeated))
}

/// The JSON that Go makes of what was read.
pub fn print(value: &Value) -> String {
    let mut text = String::new();
    write(&mut text, value);
    text
}

fn write(out: &mut String, value: &Value) {
    match value {
        Value::Array(items) => {
            for (i, item) in items.iter().enumerate() {
                out.push(if i == 0 { '[' } else { ',' });
                write(out, item);
            }
            out.push_str(if items.is_empty() { "[]" } else { "]" });
        }
        Value::Object(members) => {
            for (i, (key, member)) in members.iter().enumerate() {
                out.push(if i == 0 { '{' } else { ',' });
                go::write_json_string(out, key);
                out.push(':');
                write(out, member);
            }
            out.push_str(if members.is_empty() { "{}" } else { "}" });
        }
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => {
                let mut text = String::new();
                write_float(&mut text, float, -6..21);
                out.push_str(&text.replace("e-0", "e-"));
            }
            None => out.push_str(&number.to_string()),
        },
        other => out.push_str(&go::json(other)),
    }
}

/// A value with keys of all types.
enum Tree {
    Scalar(Scalar),
    List(Vec<Tree>),
    Map(Members),
}

#[derive(Default)]
struct Members {
    all: Vec<(Scalar, Tree)>,
    /// Where each is, by its key and what that is.
    places: HashMap<String, usize>,
}

struct Composer<'a> {
    document: &'a Document,
    repeated: Vec<String>,
    /// How many values were made, how many of them out of aliases, and within how many aliases this one is.
    made: usize,
    copied: usize,
    aliases: usize,
    /// The aliases that this value is in.
    open: HashSet<Id>,
    depth: usize,
}

impl<'a> Composer<'a> {
    fn new(document: &'a Document) -> Self {
        let (repeated, open) = (Vec::new(), HashSet::new());
        Composer { document, repeated, made: 1, copied: 0, aliases: 0, open, depth: 0 }
    }

    fn content(&self, id: Id) -> &'a Content {
        &self.document.nodes[id].content
    }

    /// Counts a value.
    fn count(&mut self) -> Result<(), Failure> {
        self.made += 1;
        self.copied += usize::from(self.aliases > 0);
        if self.copied > 100 && self.made > 1000 && ratio(self.copied, self.made) > allowed_ratio(self.made) {
            return Err(Failure::new("document contains excessive aliasing"));
        }
        Ok(())
    }

    /// Does something one level deeper.
    fn deeper<T>(&mut self, go: impl FnOnce(&mut Self) -> Result<T, Failure>) -> Result<T, Failure> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::new(format!("exceeded max depth of {MAX_DEPTH}")));
        }
        let done = go(self);
        self.depth -= 1;
        done
    }

    /// Does something with what an alias stands for.
    fn aliased<T>(
        &mut self,
        alias: Id,
        name: &str,
        go: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.open.insert(alias) {
            return Err(Failure::new(format!("anchor '{name}' value contains itself")));
        }
        self.aliases += 1;
        let done = self.deeper(go);
        self.aliases -= 1;
        self.open.remove(&alias);
        done
    }

    fn tree(&mut self, id: Id) -> Result<Tree, Failure> {
        self.count()?;
        match self.content(id) {
            Content::Alias(name, target) => self.aliased(id, name, |this| this.tree(*target)),
            Content::Scalar { tag, text, is_implicit } => {
                let is_text = tag.is_empty() && !is_implicit;
                Ok(Tree::Scalar(if is_text {
                    Scalar::Text(text.clone())
                } else {
                    resolve::resolve(tag, text)?
                }))
            }
            Content::List(items) => {
                let items = self.deeper(|this| items.iter().map(|item| this.tree(*item)).collect())?;
                Ok(Tree::List(items))
            }
            Content::Map(members) => {
                let mut map = Members::default();
                self.deeper(|this| this.fill(members, &mut map))?;
                Ok(Tree::Map(map))
            }
        }
    }

    fn fill(&mut self, members: &[(Id, Id)], map: &mut Members) -> Result<(), Failure> {
        for (key, value) in members {
            if is_merge(self.content(*key)) {
                self.merge(*value, map)?;
                continue;
            }
            let key = match self.tree(*key)? {
                Tree::Scalar(key) => key,
                other => return Err(Failure::new(format!("invalid map key: {}", shown(&other)))),
            };
            let tree = self.tree(*value)?;
            let name = format!("{key:?}");
            if let Some(place) = map.places.get(&name) {
                let (line, name) = (self.document.nodes[*value].line + 1, resolve::shown(&key));
                self.repeated.push(format!("line {line}: key {name} already set in map"));
                map.all[*place].1 = tree;
            } else {
                map.places.insert(name, map.all.len());
                map.all.push((key, tree));
            }
        }
        Ok(())
    }

    /// Puts the members of a map, or of several, into another one.
    fn merge(&mut self, id: Id, map: &mut Members) -> Result<(), Failure> {
        match self.content(id) {
            // The first one counts.
            Content::List(items) => items.iter().rev().try_for_each(|item| self.merge_one(*item, map)),
            _ => self.merge_one(id, map),
        }
    }

    fn merge_one(&mut self, id: Id, map: &mut Members) -> Result<(), Failure> {
        let want = || Failure::new("map merge requires map or sequence of maps as the value");
        match self.content(id) {
            Content::Map(members) => {
                self.count()?;
                self.deeper(|this| this.fill(members, map))
            }
            Content::Alias(name, target) => {
                let Content::Map(members) = self.content(*target) else { return Err(want()) };
                self.count()?;
                self.aliased(id, name, |this| {
                    this.count()?;
                    this.fill(members, map)
                })
            }
            _ => Err(want()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of some millions")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole as f64
}

fn allowed_ratio(made: usize) -> f64 {
    match made {
        ..=FEW => 0.99,
        MANY.. => 0.10,
        _ => 0.99 - 0.89 * ratio(made - FEW, MANY - FEW),
    }
}

/// Whether a key says that its value is to be merged.
fn is_merge(key: &Content) -> bool {
    let Content::Scalar { tag, text, is_implicit } = key else { return false };
    text == "<<" && (*is_implicit || tag.strip_prefix(TAGS) == Some("merge"))
}

/// A value as JSON.
fn json(tree: Tree) -> Result<Value, String> {
    Ok(match tree {
        Tree::Scalar(Scalar::Null) => Value::Null,
        Tree::Scalar(Scalar::Bool(value)) => value.into(),
        Tree::Scalar(Scalar::Int(value)) => value.into(),
        Tree::Scalar(Scalar::Uint(value)) => value.into(),
        Tree::Scalar(Scalar::Float(value)) => float(value)?,
        Tree::Scalar(Scalar::Text(text)) => text.into(),
        Tree::List(items) => Value::Array(items.into_iter().map(json).collect::<Result<_, _>>()?),
        Tree::Map(members) => {
            let mut map = Map::new();
            for (key, member) in members.all {
                map.insert(key_text(&key, &member)?, json(member)?);
            }
            Value::Object(map)
        }
    })
}

/// JSON has no infinities, and a whole number is an integer in it if that can hold it.
fn float(value: f64) -> Result<Value, String> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
    if value.fract() == 0.0 && value.abs() < TWO_TO_63 {
        return Ok((value as i64).into());
    }
    let unsupported = || format!("json: unsupported value: {}", resolve::shown(&Scalar::Float(value)));
    Number::from_f64(value).map(Value::Number).ok_or_else(unsupported)
}

fn key_text(key: &Scalar, member: &Tree) -> Result<String, String> {
    let unsupported = |of: &str| {
        let (key, value) = (resolve::shown(key), shown(member));
        Err(format!("unsupported map key of type: {of}, key: {key}, value: {value}"))
    };
    match key {
        Scalar::Text(text) => Ok(text.clone()),
        Scalar::Bool(value) => Ok(value.to_string()),
        Scalar::Int(value) => Ok(value.to_string()),
        Scalar::Float(value) => Ok(resolve::float_key(*value)),
        Scalar::Uint(_) => unsupported("uint64"),
        Scalar::Null => unsupported("%!s(<nil>)"),
    }
}

/// A value as Go shows it with its types.
fn shown(tree: &Tree) -> String {
    const NIL: &str = "interface {}(nil)";
    let within = |tree: &Tree| match tree {
        Tree::Scalar(Scalar::Null) => NIL.to_owned(),
        other => shown(other),
    };
    let key = |key: &Scalar| if *key == Scalar::Null { NIL.to_owned() } else { resolve::shown(key) };
    match tree {
        Tree::Scalar(scalar) => resolve::shown(scalar),
        Tree::List(items) => {
            let items: Vec<String> = items.iter().map(within).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Tree::Map(members) => {
            let each = |(name, member): &(Scalar, Tree)| format!("{}:{}", key(name), within(member));
            let mut members: Vec<String> = members.all.iter().map(each).collect();
            members.sort_unstable();
            format!("map[interface {{}}]interface {{}}{{{}}}", members.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rule_8_25_yaml_1_1() {
        for (text, expected) in [
            ("on: yes", json!({"true": true})),
            ("'on': 'yes'", json!({"on": "yes"})),
            ("a: 0755\nb: 1.5\nc: ~\n1: x", json!({"a": 493, "b": 1.5, "c": null, "1": "x"})),
            ("a: [y, N, off, \"y\"]", json!({"a": [true, false, false, "y"]})),
            ("a: 2001-01-01\nb: 1e3", json!({"a": "2001-01-01", "b": 1000})),
            ("# nothing", Value::Null),
            ("{a: '}', b: \"\\\"}\"}rest", json!({"a": "}", "b": "\"}"})),
            ("{a: 1, # }\n b: 2}", json!({"a": 1, "b": 2})),
            ("a: |\n  two\n  lines\n", json!({"a": "two\nlines\n"})),
            ("a: >-\n  two\n  lines\n\n  more\n", json!({"a": "two lines\nmore"})),
            ("p: &a {k: v}\nq: {<<: *a, l: w}", json!({"p": {"k": "v"}, "q": {"k": "v", "l": "w"}})),
            ("q: {<<: [{k: 1}, {k: 2, l: 3}]}", json!({"q": {"k": 1, "l": 3}})),
            ("a: 1\n---\nb: 2", json!({"a": 1})),
            ("%YAML 1.1\n%TAG !e! tag:yaml.org,2002:\n--- !e!str 1", json!("1")),
            ("[]: x", json!([])),
        ] {
            assert_eq!(read(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rule_8_25_numbers_and_tags() {
        for (text, expected) in [
            ("[0x1F, 0o17, 017, 0b11, -0b11, 0b+11, 08]", json!([31, 15, 15, 3, -3, 3, 8])),
            ("[1_000, 1__0, +1, -0, -0.0, .5, 5., 1e3, 1E+2]", json!([1000, 10, 1, 0, 0, 0.5, 5, 1000, 100])),
            ("[9223372036854775808, 1e400, 1e-400]", json!([9_223_372_036_854_775_808_u64, "1e400", 0])),
            ("[123456789012345678901234567890]", json!([123_456_789_012_345_678_901_234_567_890_f64])),
            ("[12:30:45, 1.2.3, 0x, 0xg, 1e, .e1]", json!(["12:30:45", "1.2.3", "0x", "0xg", "1e", ".e1"])),
            (
                "{1.5: a, 1e6: b, 0x10: c, .inf: d, yes: e}",
                json!({"1.5": "a", "1e+06": "b", "16": "c", ".inf": "d", "true": "e"}),
            ),
            (
                "[!!str 1, !!int '1', !!float 1, !!bool 'no', !!null '', ! 1, !own 1, !!map {}]",
                json!(["1", 1, 1, false, null, "1", "1", {}]),
            ),
            (
                "[!!binary aGk=, !!timestamp 2001-1-2, !!timestamp '2001-01-02t3:4:5.6+01:00']",
                json!(["hi", "2001-1-2", "2001-01-02t3:4:5.6+01:00"]),
            ),
        ] {
            assert_eq!(read(text.as_bytes()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_yaml_is_told_in_go_words() {
        for (text, expected) in [
            ("a: b: c", "yaml: mapping values are not allowed in this context"),
            ("a: [unclosed", "yaml: line 1: did not find expected ',' or ']'"),
            ("{", "yaml: line 1: did not find expected node content"),
            ("{,}", "yaml: did not find expected node content"),
            ("]", "yaml: did not find expected node content"),
            ("{\"a\": [1}}", "yaml: did not find expected ',' or ']'"),
            ("{\"a\": \"\\ud800\"}", "yaml: found invalid Unicode character escape code"),
            ("a: 1\n b: 2", "yaml: line 2: mapping values are not allowed in this context"),
            ("a:\n\t- b", "yaml: line 2: found character that cannot start any token"),
            ("a: *b", "yaml: unknown anchor 'b' referenced"),
            ("&a [*a]", "yaml: anchor 'a' value contains itself"),
            ("<<: 1", "yaml: map merge requires map or sequence of maps as the value"),
            ("!!int x", "yaml: cannot decode !!str `x` as a !!int"),
            ("!!timestamp 2001-02-30", "yaml: cannot decode !!str `2001-02-30` as a !!timestamp"),
            ("!!binary '!'", "yaml: !!binary value contains invalid base64 data"),
            ("!e!x 1", "yaml: found undefined tag handle"),
            ("%YAML 1.2\n---\n1", "yaml: found incompatible YAML document"),
            ("{[1]: {~: 2}}", "yaml: invalid map key: []interface {}{1}"),
            (
                "~: [~]",
                "unsupported map key of type: %!s(<nil>), key: <nil>, value: []interface {}{interface {}(nil)}",
            ),
            ("[.nan]", "json: unsupported value: NaN"),
            ("a: \u{1}", "yaml: control characters are not allowed"),
        ] {
            assert_eq!(read(text.as_bytes()), Err(expected.to_owned()), "{text}");
        }
        assert_eq!(read(b"\xff"), Err("yaml: invalid leading UTF-8 octet".to_owned()));
    }

    #[test]
    fn keys_that_are_repeated_are_told_by_the_lines_of_their_values() {
        let text = "a: 1\na:\n  2\nb: &b {x: 1}\nc: {x: 2, <<: *b, 1: 3, 1.0: 4}\n";
        let (_, repeated) = read_all(text.as_bytes()).expect("YAML");
        assert_eq!(
            repeated,
            ["line 3: key \"a\" already set in map", "line 4: key \"x\" already set in map"]
        );
    }

    #[test]
    fn what_would_not_end_is_refused() {
        let line = |i: usize| format!("a{i}: &a{i} [{}]", vec![format!("*a{}", i - 1); 10].join(", "));
        let bomb: Vec<String> = std::iter::once("a0: &a0 x".to_owned()).chain((1..9).map(line)).collect();
        assert_eq!(
            read(bomb.join("\n").as_bytes()),
            Err("yaml: document contains excessive aliasing".to_owned())
        );
        for deep in ["[", "{a: ", "- ", "? "] {
            assert!(read(deep.repeat(20_000).as_bytes()).is_err(), "{deep}");
        }
        let nested: Vec<String> = (0..1_000).map(|i| format!("{}a:", " ".repeat(i))).collect();
        assert!(read(nested.join("\n").as_bytes()).is_err());
        let list = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(read(list(schema::MAX_DEPTH).as_bytes()).is_ok());
        let too_deep = format!("yaml: exceeded max depth of {}", schema::MAX_DEPTH);
        assert_eq!(read(list(schema::MAX_DEPTH + 1).as_bytes()), Err(too_deep));
    }
}
