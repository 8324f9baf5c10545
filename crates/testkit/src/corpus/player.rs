//! Plays a case: its requests in order, each with what the ones before have saved.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine as _;
use futures::TryStreamExt as _;
use http::HeaderMap;
use kube::client::Body;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use regex::{Captures, Regex};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::names::Names;
use super::server::{Sent, Server, values};
use super::value::{find, is_true, members, merged, printed, segments};
use super::{Outcome, diff, view};

/// How long an answer, a case and a wait may take, and for how long a stream may outlive the time that was asked for.
const ANSWER: Duration = Duration::from_secs(20);
const CASE: Duration = Duration::from_secs(120);
const WAIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(6);
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b':')
    .remove(b'%')
    .remove(b'~')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_');
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'~').remove(b'-').remove(b'.').remove(b'_');
const HEADERS: [&str; 3] = ["Content-Type", "Warning", "Retry-After"];

static VARIABLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{([A-Za-z_]\w*)(?:([+-][0-9]+)|:([0-9]+))?\}").expect("a pattern"));
static UNSAVED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?:\{|%7B)([A-Za-z_]\w*)(?:\}|%7D|\+|%2B)").expect("a pattern"));

/// Plays a case in a namespace of its own.
pub(super) async fn play(server: &Server, case: &Value, compare: bool) -> Outcome {
    let mut player = Player::new(server, case);
    let mut outcome = Outcome { id: printed(&case["id"]), answers: Vec::new(), differences: Vec::new() };
    if let Err(why) = player.play_all(case, compare, &mut outcome).await {
        outcome.differences.push(format!("stopped at step {}: {why}", outcome.answers.len()));
    }
    player.clean_up().await;
    outcome
}

/// A case with the answers that it got. Those of steps during a watch stay with the watch's.
pub(super) fn with_answers(case: &Value, answers: &[Value]) -> Value {
    let mut case = case.clone();
    for (step, answer) in case["steps"].as_array_mut().into_iter().flatten().zip(answers) {
        step["expect"] = answer.clone();
        let during = step["during"].as_array_mut().into_iter().flatten();
        for (step, answer) in during.zip(answer["during"].as_array().into_iter().flatten()) {
            if step["only"] == "code" {
                step["expect"] = json!({"code": answer["code"]});
            }
        }
        if step["during"].is_null() {
            step.as_object_mut().map(|step| step.remove("during"));
        }
    }
    case
}

struct Player<'a> {
    server: &'a Server,
    saved: BTreeMap<String, Value>,
    names: Names,
    made: Vec<String>,
    ends: Instant,
}

/// An answer that was read whole.
struct Whole {
    code: u16,
    headers: HeaderMap,
    body: Value,
}

impl<'a> Player<'a> {
    fn new(server: &'a Server, case: &Value) -> Self {
        let word: String = random_word();
        let namespace = format!("g-{word}");
        let words = vec![
            (namespace.clone(), "{ns}".to_owned()),
            (word.clone(), "{u}".to_owned()),
            (server.address.clone(), "SERVER".to_owned()),
        ];
        let saved = BTreeMap::from([("ns".to_owned(), json!(namespace)), ("u".to_owned(), json!(word))]);
        let names = Names::new(case, words);
        Player { server, saved, names, made: Vec::new(), ends: Instant::now() + CASE }
    }

    async fn play_all(&mut self, case: &Value, compare: bool, outcome: &mut Outcome) -> Result<(), String> {
        self.prepare().await?;
        for (i, step) in case["steps"].as_array().into_iter().flatten().enumerate() {
            let answer = self.step(step, &i.to_string()).await?;
            outcome.answers.push(answer.clone());
            if !compare {
                if answer.get("wait").is_some() || answer.get("stream").is_some() {
                    return Err(format!("waited in vain: {answer}"));
                }
                continue;
            }
            let found = diff::difference(&step["expect"], &answer);
            let query = self.query(step);
            for line in &found {
                let (method, path) = (printed(&step["method"]), printed(&step["path"]));
                outcome.differences.push(format!("step {i} {method} {path}{query}: {line}"));
            }
            if !found.is_empty() && step["only"] == "code" {
                return Err("a set-up step failed, the rest was not played".to_owned());
            }
        }
        Ok(())
    }

    /// A namespace with the service account that admission may ask for.
    async fn prepare(&mut self) -> Result<(), String> {
        let namespace = printed(&self.saved["ns"]);
        let object =
            |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
        let made = self.post("/api/v1/namespaces", &object("Namespace", &namespace)).await?;
        if made.code != 201 {
            return Err(format!("cannot make the namespace: {} {}", made.code, made.body));
        }
        "ns".clone_into(&mut self.names.label);
        self.names.body(&json!({"metadata": made.body["metadata"]}));
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        self.post(&accounts, &object("ServiceAccount", "default")).await?;
        Ok(())
    }

    async fn post(&self, path: &str, object: &Value) -> Result<Whole, String> {
        let json = ("Content-Type".to_owned(), Some("application/json".to_owned()));
        let sent = Sent {
            method: "POST".to_owned(),
            path: path.to_owned(),
            headers: vec![json],
            body: Some(object.to_string().into_bytes()),
            token: None,
        };
        self.call(&sent).await
    }

    /// Removes what the case has made outside its namespace, and the namespace.
    async fn clean_up(&self) {
        let namespace = format!("/api/v1/namespaces/{}", printed(&self.saved["ns"]));
        for path in std::iter::once(&namespace).chain(self.made.iter().rev()) {
            let sent = Sent {
                method: "DELETE".to_owned(),
                path: path.clone(),
                headers: Vec::new(),
                body: None,
                token: None,
            };
            // The next case has a namespace of its own, so nothing depends on this.
            drop(timeout(Duration::from_secs(5), self.call(&sent)).await);
        }
    }

    async fn step(&mut self, step: &Value, label: &str) -> Result<Value, String> {
        if Instant::now() > self.ends {
            return Err("the case took too long".to_owned());
        }
        if let Some(seconds) = step["sleep"].as_f64() {
            sleep(Duration::from_secs_f64(seconds)).await;
        }
        if is_true(&step["watch"]) {
            return Box::pin(self.watch(step, label)).await;
        }
        let sent = self.request(step)?;
        let (whole, in_vain) = self.call_until(step, &sent).await?;
        self.remember_made(&sent, &whole);
        self.save(step, &whole.body);
        label.clone_into(&mut self.names.label);
        self.names.generated = self.refused_prefix(step, whole.code);
        let mut answer = json!({"code": whole.code});
        if in_vain {
            answer["wait"] = json!("timed out");
        }
        // What an object shows is named before the view leaves some of it out.
        let is_list = whole.body.get("items").is_some() || whole.body.get("rows").is_some();
        if whole.body["metadata"].is_object() && !is_list {
            let meta = &whole.body["metadata"];
            self.names.revision(meta["resourceVersion"].as_str().unwrap_or(""));
            self.names.text(meta["uid"].as_str().unwrap_or(""));
        }
        let headers = self.headers(&whole.headers, step);
        let body = self.names.body(&view::reduced(&whole.body, &self.expanded(&step["view"])));
        if step["only"] != "code" {
            answer["headers"] = headers;
            answer["body"] = body;
        }
        Ok(answer)
    }

    /// Asks once, or until the answer is as the step waits for it. Also tells whether it waited in vain.
    async fn call_until(&self, step: &Value, sent: &Sent) -> Result<(Whole, bool), String> {
        let wait = &step["wait"];
        let until = Instant::now() + WAIT;
        loop {
            let answer = self.call(sent).await;
            if wait.is_null() {
                return Ok((answer?, false));
            }
            match answer {
                Ok(whole) if self.is_awaited(wait, &whole) => return Ok((whole, false)),
                Ok(whole) if Instant::now() > until => return Ok((whole, true)),
                Err(why) if Instant::now() > until => return Err(why),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    fn is_awaited(&self, wait: &Value, whole: &Whole) -> bool {
        if u64::from(whole.code) != wait["code"].as_u64().unwrap_or(200) {
            return false;
        }
        let Some(path) = wait["path"].as_str() else { return true };
        let found = find(&whole.body, &segments(&self.expanded_text(path)));
        if wait.get("contains").is_some() {
            return found.contains(&&self.expanded(&wait["contains"]));
        }
        if is_true(&wait["exists"]) {
            return !found.is_empty();
        }
        found.first().copied().unwrap_or(&Value::Null) == &self.expanded(&wait["equals"])
    }

    fn remember_made(&mut self, sent: &Sent, whole: &Whole) {
        let meta = &whole.body["metadata"];
        let is_cluster_wide = !sent.path.contains("/namespaces/");
        if sent.method == "POST" && whole.code == 201 && is_cluster_wide && meta["uid"].is_string() {
            let path = sent.path.split('?').next().unwrap_or("");
            self.made.push(format!("{path}/{}", printed(&meta["name"])));
        }
    }

    /// The prefix of the name that a refused object would have got.
    fn refused_prefix(&self, step: &Value, code: u16) -> Option<String> {
        let prefix = step["generated"].as_str().or(step["body"]["metadata"]["generateName"].as_str());
        let prefix = prefix.filter(|prefix| code >= 400 && !prefix.is_empty())?;
        Some(self.expanded_text(prefix).chars().take(58).collect())
    }

    fn save(&mut self, step: &Value, body: &Value) {
        for (name, path) in members(&step["save"]) {
            match find(body, &segments(path.as_str().unwrap_or(""))).first() {
                Some(value) => drop(self.saved.insert(name.clone(), (*value).clone())),
                None => drop(self.saved.remove(name)),
            }
        }
    }

    fn headers(&mut self, headers: &HeaderMap, step: &Value) -> Value {
        let usual = if is_true(&step["no_headers"]) { &[] } else { &HEADERS[..] };
        let wanted = step["want_headers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut out = json!({});
        for name in usual.iter().copied().chain(wanted) {
            let mut found = values(headers, name);
            if found.is_empty() {
                continue;
            }
            found.sort_unstable();
            let value = if name == "Warning" { json!(found) } else { json!(values(headers, name)[0]) };
            out[name] = self.names.walk(&value, "");
        }
        out
    }

    async fn watch(&mut self, step: &Value, label: &str) -> Result<Value, String> {
        let sent = self.request(step)?;
        let asked = printed(&self.expanded(&step["query"]["timeoutSeconds"]));
        let lasts = Duration::from_secs(asked.parse().unwrap_or(5)) + GRACE;
        let opened = timeout(ANSWER, self.server.send(&sent)).await;
        let opened = opened.map_err(|_| "no answer in time".to_owned())??;
        let (head, body) = opened.into_parts();
        let is_stream = head.status == 200;
        let reading = tokio::spawn(async move { read_lines(body, Instant::now() + lasts).await });
        let mut during = Vec::new();
        for (i, sub) in step["during"].as_array().into_iter().flatten().enumerate() {
            let answer = self.step(sub, &format!("{label}.{i}")).await?;
            let failed = sub["only"] == "code"
                && sub.get("expect").is_some_and(|expect| expect["code"] != answer["code"]);
            during.push(answer);
            if failed {
                break;
            }
        }
        let (bytes, is_closed) = reading.await.map_err(|error| error.to_string())?;
        label.clone_into(&mut self.names.label);
        let mut answer = json!({"code": head.status.as_u16(), "headers": self.headers(&head.headers, step)});
        if is_stream {
            let events = events(step, &bytes);
            self.save(step, &Value::Array(events.clone()));
            let named = self.named_events(step, &events);
            if !named.is_empty() {
                answer["events"] = json!(named);
            }
            if !is_closed {
                answer["stream"] = json!("not ended by the server");
            }
        } else {
            let body = parsed(&bytes, &head.headers);
            answer["body"] = self.names.body(&body);
        }
        if !during.is_empty() {
            answer["during"] = json!(during);
        }
        Ok(answer)
    }

    fn named_events(&mut self, step: &Value, events: &[Value]) -> Vec<Value> {
        let revisions: Vec<u64> = events.iter().map(revision_of).collect();
        let view = self.expanded(&step["view"]);
        let mut named = Vec::new();
        for (i, event) in events.iter().enumerate() {
            let later = revisions[i + 1..].iter().zip(&events[i + 1..]);
            let later = later.filter(|(revision, event)| **revision > 0 && event["type"] != "BOOKMARK");
            let low = revisions[..i].iter().copied().max().unwrap_or(0);
            let high = later.map(|(revision, _)| *revision).min();
            named.push(self.names.event(&view::reduced(event, &view), low, high));
        }
        named
    }

    fn request(&self, step: &Value) -> Result<Sent, String> {
        let body = self.body(step)?;
        let path = utf8_percent_encode(&self.expanded_text(&printed(&step["path"])), PATH).to_string();
        let path = format!("{path}{}", self.query(step));
        let mut headers: Vec<(String, Option<String>)> = members(&step["headers"])
            .map(|(name, value)| (name.clone(), value.as_str().map(|text| self.expanded_text(text))))
            .collect();
        let token = step["token"].as_str().map(|token| self.expanded_text(token));
        let texts = headers.iter().filter_map(|(_, value)| value.as_deref());
        for text in texts.chain([path.as_str()]).chain(token.as_deref()) {
            if let Some(found) = UNSAVED.captures(text) {
                return Err(format!("nothing was saved as {}", &found[1]));
            }
        }
        if body.is_some() && !headers.iter().any(|(name, _)| name == "Content-Type") {
            headers.push(("Content-Type".to_owned(), Some("application/json".to_owned())));
        }
        Ok(Sent { method: printed(&step["method"]), path, headers, body, token })
    }

    fn body(&self, step: &Value) -> Result<Option<Vec<u8>>, String> {
        if let Some(body) = step.get("body") {
            return Ok(Some(self.expanded(body).to_string().into_bytes()));
        }
        if let Some(raw) = step["raw"].as_str() {
            return Ok(Some(self.expanded_text(raw).into_bytes()));
        }
        if let Some(text) = step["b64"].as_str() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            return bytes.map(Some).map_err(|error| error.to_string());
        }
        if let Some([value, count]) = step["many"].as_array().map(Vec::as_slice) {
            let count = usize::try_from(count.as_u64().unwrap_or(0)).unwrap_or(0);
            let list = vec![value.to_string(); count].join(",");
            return Ok(Some(format!("[{list}]").into_bytes()));
        }
        let Some(name) = step["from"].as_str() else { return Ok(None) };
        let saved = self.saved.get(name).ok_or_else(|| format!("nothing was saved as {name}"))?;
        let patch = step.get("merge").map_or(json!({}), |patch| self.expanded(patch));
        Ok(Some(merged(saved, &patch).to_string().into_bytes()))
    }

    fn query(&self, step: &Value) -> String {
        let mut pairs = Vec::new();
        for (name, value) in members(&step["query"]) {
            let value = self.expanded(value);
            let values = value.as_array().cloned().unwrap_or_else(|| vec![value]);
            for value in values {
                let encoded = |text: &str| utf8_percent_encode(text, QUERY).to_string();
                pairs.push(format!("{}={}", encoded(name), encoded(&printed(&value))));
            }
        }
        if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
    }

    fn expanded(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.expanded_text(text)),
            Value::Array(list) => list.iter().map(|item| self.expanded(item)).collect(),
            Value::Object(map) => {
                map.iter().map(|(key, value)| (self.expanded_text(key), self.expanded(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn expanded_text(&self, text: &str) -> String {
        let expand = |found: &Captures<'_>| {
            let (name, whole) = (&found[1], &found[0]);
            if let ("pad", Some(count)) = (name, found.get(3)) {
                return "x".repeat(count.as_str().parse().unwrap_or(0));
            }
            let Some(value) = self.saved.get(name) else { return whole.to_owned() };
            let value = printed(value);
            match found.get(2) {
                None => value,
                Some(by) => {
                    let sum = value.parse::<i64>().ok().zip(by.as_str().parse::<i64>().ok());
                    sum.map_or(value, |(value, by)| (value + by).to_string())
                }
            }
        };
        VARIABLE.replace_all(text, expand).into_owned()
    }

    async fn call(&self, sent: &Sent) -> Result<Whole, String> {
        let call = async {
            let (head, body) = self.server.send(sent).await?.into_parts();
            let bytes = if sent.method == "HEAD" { Vec::new() } else { read_all(body).await? };
            let body = parsed(&bytes, &head.headers);
            Ok(Whole { code: head.status.as_u16(), headers: head.headers, body })
        };
        timeout(ANSWER, call).await.map_err(|_| "no answer in time".to_owned())?
    }
}

async fn read_all(body: Body) -> Result<Vec<u8>, String> {
    let mut stream = std::pin::pin!(http_body_util::BodyDataStream::new(body));
    let mut bytes = Vec::new();
    while let Some(chunk) = stream.try_next().await.map_err(|error| error.to_string())? {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Reads a stream until the server ends it, or for so long. Also tells which.
async fn read_lines(body: Body, until: Instant) -> (Vec<u8>, bool) {
    let mut stream = std::pin::pin!(http_body_util::BodyDataStream::new(body));
    let mut bytes = Vec::new();
    loop {
        match timeout_at(until, stream.try_next()).await {
            Ok(Ok(Some(chunk))) => bytes.extend_from_slice(&chunk),
            Ok(Ok(None)) => return (bytes, true),
            Ok(Err(_)) | Err(_) => return (bytes, false),
        }
    }
}

fn parsed(bytes: &[u8], headers: &HeaderMap) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        return value;
    }
    if values(headers, "Content-Type").iter().any(|value| value.contains("protobuf")) {
        return json!(if bytes.starts_with(b"k8s\0") { "PROTOBUF" } else { "BINARY" });
    }
    json!(String::from_utf8_lossy(bytes).chars().take(4000).collect::<String>())
}

/// The events of a stream. Bookmarks that say nothing but a revision are left out, or thinned to one of each run.
fn events(step: &Value, bytes: &[u8]) -> Vec<Value> {
    let unreadable = |line: &[u8]| {
        let text: String = String::from_utf8_lossy(line).chars().take(200).collect();
        json!({"type": "UNREADABLE", "object": text})
    };
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut events: Vec<Value> =
        lines.map(|line| serde_json::from_slice(line).unwrap_or_else(|_| unreadable(line))).collect();
    if is_true(&step["ordered"]) {
        let mut last = 0;
        for event in &mut events {
            let revision = revision_of(event);
            if revision > 0 && revision < last {
                event["order"] = json!("resourceVersion went back");
            }
            last = if revision > 0 { revision } else { last };
        }
    }
    let is_plain = |event: &Value| {
        let annotations = &event["object"]["metadata"]["annotations"];
        event["type"] == "BOOKMARK" && annotations.as_object().is_none_or(serde_json::Map::is_empty)
    };
    if is_true(&step["bookmarks"]) {
        // How many there are is a matter of timing.
        events.dedup_by(|next, before| is_plain(next) && is_plain(before));
    } else {
        events.retain(|event| !is_plain(event));
    }
    events
}

fn revision_of(event: &Value) -> u64 {
    event["object"]["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Eight letters that no other case has.
fn random_word() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz";
    let mut random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id());
    let mut word = String::new();
    for _ in 0..8 {
        let count = u64::try_from(LETTERS.len()).expect("few letters");
        word.push(char::from(LETTERS[usize::try_from(random % count).expect("a small number")]));
        random /= count;
    }
    word
}
