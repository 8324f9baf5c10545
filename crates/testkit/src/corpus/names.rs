//! Names for what differs between two runs: uids, resource versions, times near now, generated names, ages.
//!
//! One of these is fed with the answers of a case in their order. A thing is named after the step that showed it first,
//! so that two answers are equal exactly if they show the same things in the same places.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use regex::{Captures, Regex};
use serde_json::{Map, Value, json};

use super::value::{drop_at, is_true, segments, sort_key};

static UUID: LazyLock<Regex> =
    LazyLock::new(|| regex("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"));
static STAMP: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
});
static JWT: LazyLock<Regex> = LazyLock::new(|| regex(r"^eyJ[\w-]+\.[\w-]+\.[\w-]+$"));
static AGE: LazyLock<Regex> = LazyLock::new(|| regex("^([0-9]+[smhdy]){1,2}$"));
static REVISION_IN_TEXT: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r#"(resourceVersion\\?":\\?"|resource version: |ResourceVersion in object meta: |"#,
        r"ResourceVersion in precondition: |precondition \(|in record \(|current: |version: \S+ \()([0-9]+)"
    ))
});
/// A comparison of Go values or of JSON texts at the end of a message.
static GO_DIFF: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?s)\n@@ -[0-9].*|\n\s*(core|apps|batch|v1)\.\w+\{.*"));
/// What generated names end with.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern of this file")
}

/// The names that were given in one case.
pub(super) struct Names {
    /// The step that is being played.
    pub(super) label: String,
    /// What a refused create would have been called, up to the generated end.
    pub(super) generated: Option<String>,
    words: Vec<(String, String)>,
    uids: BTreeMap<String, String>,
    revisions: BTreeMap<String, String>,
    newest: u64,
    managed: bool,
    descriptions: bool,
    ignored: Vec<Vec<String>>,
}

impl Names {
    pub(super) fn new(case: &Value, words: Vec<(String, String)>) -> Self {
        let ignored = case["ignore"].as_array().into_iter().flatten().filter_map(Value::as_str);
        Names {
            label: String::new(),
            generated: None,
            words,
            uids: BTreeMap::new(),
            revisions: BTreeMap::new(),
            newest: 0,
            managed: is_true(&case["managed"]),
            descriptions: is_true(&case["descriptions"]),
            ignored: ignored.map(segments).collect(),
        }
    }

    /// The body of an answer.
    pub(super) fn body(&mut self, body: &Value) -> Value {
        let mut body = body.clone();
        for path in &self.ignored {
            drop_at(&mut body, path);
        }
        let mut body = self.walk(&body, "");
        if body["kind"] == "Status" {
            tidy(&mut body);
        }
        body
    }

    /// An event of a watch. The revision of a bookmark lies between those of the events before and after it.
    pub(super) fn event(&mut self, event: &Value, low: u64, high: Option<u64>) -> Value {
        let Some(object) = event["object"].as_object() else { return self.walk(event, "") };
        if event["type"] != "BOOKMARK" {
            let mut out = event.clone();
            out["object"] = self.body(&event["object"]);
            return out;
        }
        let mut object = object.clone();
        let revision = object.get_mut("metadata").and_then(Value::as_object_mut);
        let revision = revision.and_then(|meta| meta.remove("resourceVersion"));
        let revision = revision.as_ref().and_then(Value::as_str).unwrap_or("").to_owned();
        if !object.contains_key("rows") {
            // Go adds empty fields of the kind.
            object.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
        }
        let mut object = self.body(&Value::Object(object));
        let number = revision.parse::<u64>().ok();
        let is_between = number.is_some_and(|number| low <= number && high.is_none_or(|high| number < high));
        object["metadata"]["resourceVersion"] = if is_between {
            json!("BOOKMARK")
        } else {
            json!(format!("BAD {revision}, not between {low} and {high:?}"))
        };
        json!({"type": "BOOKMARK", "object": object})
    }

    /// A resource version.
    pub(super) fn revision(&mut self, text: &str) -> String {
        if let Some(name) = self.revisions.get(text) {
            return name.clone();
        }
        let Some(number) = digits(text).filter(|number| *number != 0) else { return text.to_owned() };
        let is_older = number < self.newest;
        self.newest = self.newest.max(number);
        let mut name = fresh(&self.revisions, &format!("RV@{}", self.label));
        if is_older {
            name.push('<');
        }
        self.revisions.insert(text.to_owned(), name.clone());
        name
    }

    /// A text, with everything in it that differs from run to run.
    pub(super) fn text(&mut self, text: &str) -> Value {
        if JWT.is_match(text) { self.token(text) } else { Value::String(self.plain_text(text)) }
    }

    fn plain_text(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        if let Some(prefix) = &self.generated {
            text = without_generated(&text, prefix);
        }
        for (real, word) in &self.words {
            text = text.replace(real, word);
        }
        let label = &self.label;
        let uids = &mut self.uids;
        let text = UUID.replace_all(&text, |found: &Captures<'_>| {
            if !uids.contains_key(&found[0]) {
                let name = fresh(uids, &format!("UID@{label}"));
                uids.insert(found[0].to_owned(), name);
            }
            uids[&found[0]].clone()
        });
        let text = STAMP.replace_all(&text, near_now);
        let text = without_runs(&text);
        let text = REVISION_IN_TEXT.replace_all(&text, |found: &Captures<'_>| {
            let name = match self.revisions.get(&found[2]) {
                Some(name) => name.clone(),
                None if found[2].len() > 1 => "N".to_owned(),
                None => found[2].to_owned(),
            };
            format!("{}{name}", &found[1])
        });
        if text.contains('\n') && text.contains("may not") {
            return GO_DIFF.replace_all(&text, "").into_owned();
        }
        text.into_owned()
    }

    /// What a token claims, and for how long.
    fn token(&mut self, text: &str) -> Value {
        let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let part = text.split('.').nth(1).unwrap_or("");
        let claims = base64::Engine::decode(&engine, part).ok();
        let claims = claims.and_then(|bytes| serde_json::from_slice::<Map<String, Value>>(&bytes).ok());
        let Some(mut claims) = claims else { return json!("UNREADABLE JWT") };
        let number = |key: &str| claims.get(key).and_then(Value::as_i64).unwrap_or(0);
        let lifetime = number("exp") - number("iat");
        for key in ["exp", "iat", "nbf"] {
            claims.entry(key).and_modify(|value| *value = json!("NUMBER"));
        }
        json!({"jwtClaims": self.walk(&Value::Object(claims), ""), "lifetime": lifetime})
    }

    /// A value that stands at `key`. Members are taken in order, because names are numbered in it.
    pub(super) fn walk(&mut self, value: &Value, key: &str) -> Value {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(list) => list.iter().map(|item| self.walk(item, "")).collect(),
            Value::Object(map) => self.walk_object(map, key),
            other => other.clone(),
        }
    }

    fn walk_object(&mut self, object: &Map<String, Value>, key: &str) -> Value {
        let mut key = key.to_owned();
        let mut out = Map::new();
        if key == "metadata" {
            self.learn_generated(object);
        }
        let is_list = (object.contains_key("items") || object.contains_key("rows"))
            && object.get("metadata").is_some_and(Value::is_object);
        for (full, value) in object {
            let mut name = full.as_str();
            // A picked path stands for the member at its end.
            if let Some((parents, last)) = full.rsplit_once('/')
                && matches!(last, "continue" | "resourceVersion" | "managedFields")
                && full.contains("metadata/")
            {
                (key, name) = (parents.rsplit('/').next().unwrap_or("").to_owned(), last);
            }
            match (name, value) {
                ("managedFields", _) if key == "metadata" && !self.managed => {}
                ("metadata", Value::Object(meta)) if is_list => {
                    out.insert(name.to_owned(), self.list_meta(meta, object));
                }
                ("resourceVersion", Value::String(text)) if key == "metadata" => {
                    out.insert(full.clone(), json!(self.revision(text)));
                }
                ("resourceVersion", value) => {
                    let known = value.as_str().and_then(|text| self.revisions.get(text));
                    out.insert(full.clone(), known.map_or_else(|| value.clone(), |name| json!(name)));
                }
                ("continue", Value::String(token)) => {
                    if !token.is_empty() {
                        out.insert(full.clone(), json!("CONTINUE"));
                    }
                }
                ("cells", Value::Array(cells)) => {
                    let cells = cells.iter().map(|cell| match cell.as_str() {
                        Some(text) if AGE.is_match(text) => json!("AGE"),
                        _ => self.walk(cell, ""),
                    });
                    let cells = cells.collect();
                    out.insert(name.to_owned(), cells);
                }
                ("rows", Value::Null) => drop(out.insert(name.to_owned(), json!([]))),
                ("verbs", Value::Array(verbs)) => {
                    let mut verbs: Vec<String> = verbs.iter().map(super::value::printed).collect();
                    verbs.sort();
                    out.insert(name.to_owned(), json!(verbs));
                }
                ("columnDefinitions", Value::Array(columns)) if !self.descriptions => {
                    let mut columns = columns.clone();
                    for column in columns.iter_mut().filter_map(Value::as_object_mut) {
                        column.remove("description");
                    }
                    out.insert(name.to_owned(), Value::Array(columns));
                }
                ("managedFields", Value::Array(entries)) => {
                    let mut entries: Vec<Value> = entries.iter().map(|entry| self.walk(entry, "")).collect();
                    // The server orders by time first, which is a matter of luck.
                    let order = |entry: &Value| {
                        let part = |key: &str| entry.get(key).cloned().unwrap_or(Value::Null);
                        sort_key(&json!(["operation", "manager", "subresource", "apiVersion"].map(part)))
                    };
                    entries.sort_by_key(order);
                    out.insert(full.clone(), Value::Array(entries));
                }
                (name, value) => {
                    let named = self.plain_text(full);
                    let value = self.walk(value, name);
                    out.insert(named, value);
                }
            }
        }
        Value::Object(out)
    }

    /// The metadata of a list: its revision is that of the newest of its items, or newer.
    fn list_meta(&mut self, meta: &Map<String, Value>, list: &Map<String, Value>) -> Value {
        let rows = list.get("rows").and_then(Value::as_array).into_iter().flatten().map(|row| &row["object"]);
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let revision = |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(digits);
        let newest = if list.contains_key("rows") {
            rows.filter_map(revision).max()
        } else {
            items.filter_map(revision).max()
        };
        let mut meta = meta.clone();
        let own = meta.remove("resourceVersion");
        let mut out = self.walk(&Value::Object(meta), "");
        if let Some(own) = own {
            let text = super::value::printed(&own);
            out["resourceVersion"] = match digits(&text) {
                Some(number) if number >= newest.unwrap_or(0) => json!("LIST"),
                _ if text.is_empty() => json!(""),
                _ => json!(format!("BAD {text}")),
            };
        }
        out
    }

    fn learn_generated(&mut self, meta: &Map<String, Value>) {
        let text = |key: &str| meta.get(key).and_then(Value::as_str);
        let (Some(prefix), Some(name)) = (text("generateName"), text("name")) else { return };
        let Some(suffix) = name.strip_prefix(prefix) else { return };
        let is_generated = suffix.len() == 5 && suffix.chars().all(|c| GENERATED.contains(c));
        if is_generated && !self.words.iter().any(|(word, _)| word == name) {
            self.words.insert(0, (name.to_owned(), format!("{prefix}<gen@{}>", self.label)));
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A name that the table does not have yet: the first of a step is called after it, further ones are counted.
fn fresh(table: &BTreeMap<String, String>, name: &str) -> String {
    let base = |given: &String| given.trim_end_matches('<').split('#').next() == Some(name);
    match table.values().filter(|given| base(given)).count() {
        0 => name.to_owned(),
        count => format!("{name}#{}", count + 1),
    }
}

/// A time within half a day; others are what somebody said.
fn near_now(found: &Captures<'_>) -> String {
    let Ok(time) = found[0].parse::<Timestamp>() else { return found[0].to_owned() };
    if time.duration_since(Timestamp::now()).as_secs().abs() > 43_200 {
        return found[0].to_owned();
    }
    let fraction = found.get(1).map_or(0, |fraction| fraction.len() - 1);
    if fraction == 0 { "TIME".to_owned() } else { format!("TIME.{}", "0".repeat(fraction)) }
}

/// Runs of a hundred of the same character and more, by their length.
fn without_runs(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| c != first).unwrap_or(rest.len());
        let count = end / first.len_utf8();
        if count >= 100 {
            out.extend(format!("<{first}*{count}>").chars());
        } else {
            out.push_str(&rest[..end]);
        }
        rest = &rest[end..];
    }
    out
}

/// Generated names after a prefix, in a refusal of the object that was to have one.
fn without_generated(text: &str, prefix: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let (before, from) = rest.split_at(at + prefix.len());
        out.push_str(before);
        let suffix: String = from.chars().take_while(|c| GENERATED.contains(*c)).take(5).collect();
        let ends = !from[suffix.len()..].starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
        if suffix.len() == 5 && ends {
            out.push_str("<gen>");
            rest = &from[suffix.len()..];
        } else {
            rest = from;
        }
    }
    out.push_str(rest);
    out
}

/// Sorts the causes of a Status, and takes out of its message what only repeats them.
fn tidy(status: &mut Value) {
    static DUMP: LazyLock<Regex> = LazyLock::new(|| regex(r"(?s)Invalid value: [\[{].*[\]}]: "));
    const HIDDEN: &str = "Invalid value: <object>: ";
    let is_definition = status["details"]["group"] == "apiextensions.k8s.io";
    let mut causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    let mut message = status["message"].as_str().map(str::to_owned);
    if is_definition {
        // Go prints the internal form of parts of a definition as the invalid value.
        for cause in &mut causes {
            if let Some(text) = cause["message"].as_str() {
                cause["message"] = json!(DUMP.replace_all(text, HIDDEN));
            }
        }
        message = message.map(|text| match causes.len() {
            1 => DUMP.replace_all(&text, HIDDEN).into_owned(),
            _ => format!("{}: [<causes>]", text.split(": [").next().unwrap_or("")),
        });
    }
    causes.sort_by_key(sort_key);
    if let Some(text) = &message
        && causes.len() > 1
        && text.ends_with(']')
        && let Some((head, tail)) = text.split_once(": [")
    {
        let parts = |text: &str| {
            let mut parts: Vec<String> = text.split(", ").map(str::to_owned).collect();
            parts.sort();
            parts
        };
        let said = causes.iter().map(|cause| {
            format!(
                "{}: {}",
                super::value::printed(&cause["field"]),
                super::value::printed(&cause["message"])
            )
        });
        let mut said = parts(&said.collect::<Vec<_>>().join(", "));
        let shown = parts(&tail[..tail.len() - 1]);
        let mut distinct = shown.clone();
        distinct.dedup();
        said.dedup();
        message = Some(if said == distinct {
            format!("{head}: [<causes>]")
        } else {
            format!("{head}: [{}]", shown.join(", "))
        });
    } else if let Some(text) = &message
        && let Some((head, tail)) = text.split_once("strict decoding error: ")
    {
        let mut parts: Vec<&str> = tail.split(", ").collect();
        parts.sort_unstable();
        message = Some(format!("{head}strict decoding error: {}", parts.join(", ")));
    }
    if let Some(text) = message {
        status["message"] = json!(text);
    }
    if !causes.is_empty() {
        status["details"]["causes"] = Value::Array(causes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::new(&json!({}), vec![("g-abc".to_owned(), "{ns}".to_owned())]);
        names.label = "3".to_owned();
        names
    }

    #[test]
    fn things_are_named_after_the_step_that_showed_them() {
        let mut names = names();
        let uid = "0b0c5a0e-6f0f-4a37-a3ce-1c1a3d3b5b0e";
        let object = json!({"metadata": {"uid": uid, "resourceVersion": "17", "namespace": "g-abc"}});
        assert_eq!(
            names.body(&object),
            json!({"metadata": {"uid": "UID@3", "resourceVersion": "RV@3", "namespace": "{ns}"}})
        );
        names.label = "4".to_owned();
        assert_eq!(names.text(&format!("uid {uid}")), json!("uid UID@3"));
        assert_eq!(names.revision("12"), "RV@4<");
        assert_eq!(names.revision("18"), "RV@4#2");
        assert_eq!(names.text("resource version: 18"), json!("resource version: RV@4#2"));
    }

    #[test]
    fn times_runs_and_generated_names() {
        let mut names = names();
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        assert_eq!(names.text(&now), json!("TIME"));
        assert_eq!(names.text("2001-01-01T00:00:00Z"), json!("2001-01-01T00:00:00Z"));
        assert_eq!(names.text(&format!("a{}b", "x".repeat(120))), json!("a<x*120>b"));
        names.generated = Some("job-".to_owned());
        assert_eq!(names.text("\"job-bcdfg\" and job-bcdfghj"), json!("\"job-<gen>\" and job-bcdfghj"));
    }

    #[test]
    fn causes_are_sorted_and_told_once() {
        let mut names = names();
        let cause = |field: &str| json!({"field": field, "message": "Required value"});
        let status = json!({
            "kind": "Status", "message": "x is invalid: [b: Required value, a: Required value]",
            "details": {"causes": [cause("b"), cause("a")]},
        });
        let tidy = names.body(&status);
        assert_eq!(tidy["message"], "x is invalid: [<causes>]");
        assert_eq!(tidy["details"]["causes"], json!([cause("a"), cause("b")]));
    }
}
