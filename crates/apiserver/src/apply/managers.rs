//! Who manages which fields, as `metadata.managedFields` keeps it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::path::write_string;
use super::set::{FieldsError, Set};
use crate::object;

/// Whose fields they are. An applier is one manager whatever version it applies; an updater is one per version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Manager {
    /// The name that a request gave, or its user agent.
    pub name: String,
    /// How it writes, and for updates in which version.
    pub operation: Operation,
    /// Through which subresource it writes; empty for the object itself.
    pub subresource: String,
}

/// How a manager writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Everything else, in this version.
    Update {
        /// For example `batch/v1`.
        version: String,
    },
}

/// The fields of one manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Managed {
    /// Which fields.
    pub fields: Set,
    /// The version whose fields they are.
    pub version: String,
    /// When it last changed something, in whole seconds; appliers that changed nothing yet have no time.
    pub time: Option<Timestamp>,
}

/// The managers of one object.
pub type Managers = BTreeMap<Manager, Managed>;

/// Why `managedFields` cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// No version.
    #[error("apiVersion must not be empty")]
    NoVersion,
    /// Nothing says what the fields are.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// Something unknown says what the fields are.
    #[error("invalid fieldsType {} in managed fields entry {place}", types::go::quote(given))]
    FieldsType {
        /// What says it.
        given: String,
        /// Which entry.
        place: usize,
    },
    /// The fields are no set.
    #[error("error decoding versioned set from managed fields entry {1}: error decoding set: {0}")]
    Fields(FieldsError, usize),
    /// It is not a list of entries in the first place.
    #[error("managed fields entry {0} is malformed")]
    Malformed(usize),
}

/// What the name of a manager becomes when a request has neither name nor user agent.
const UNKNOWN: &str = "unknown";

/// Longest name of a manager, in bytes.
const NAME_LIMIT: usize = 128;

impl Manager {
    pub(crate) fn new(name: &str, operation: Operation, subresource: &str) -> Manager {
        let name = if name.is_empty() { UNKNOWN } else { name };
        Manager { name: name.to_owned(), operation, subresource: subresource.to_owned() }
    }

    pub(crate) fn is_applier(&self) -> bool {
        self.operation == Operation::Apply
    }

    /// The text by which upstream tells managers apart, and sorts them in messages.
    pub(crate) fn identifier(&self) -> String {
        let mut parts = Vec::with_capacity(4);
        let mut part = |name: &str, value: &str| {
            if !value.is_empty() {
                let mut text = format!("\"{name}\":");
                types::go::write_json_string(&mut text, value);
                parts.push(text);
            }
        };
        part("manager", &self.name);
        match &self.operation {
            Operation::Apply => part("operation", "Apply"),
            Operation::Update { version } => {
                part("operation", "Update");
                part("apiVersion", version);
            }
        }
        part("subresource", &self.subresource);
        format!("{{{}}}", parts.join(","))
    }

    /// The manager as messages of conflicts name it.
    pub(crate) fn shown(&self) -> String {
        let through = match self.subresource.as_str() {
            "" => String::new(),
            subresource => format!(" with subresource {}", types::go::quote(subresource)),
        };
        let using = match &self.operation {
            Operation::Apply => String::new(),
            Operation::Update { version } => format!(" using {version}"),
        };
        format!("{}{through}{using}", types::go::quote(&self.name))
    }
}

/// The name of the manager of a request: what it says, or the product part of its user agent.
pub fn manager_name(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.to_owned();
    }
    let mut name = String::new();
    let product = user_agent.split('/').next().unwrap_or_default();
    for c in product.chars().filter(|c| types::go::is_print(*c)) {
        if name.len() + c.len_utf8() > NAME_LIMIT {
            break;
        }
        name.push(c);
    }
    name
}

/// Whether an update asks to forget all managers: `managedFields: []`, or one entry that says nothing.
pub(crate) fn is_reset(managed_fields: Option<&Value>) -> bool {
    match managed_fields.and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => ENTRY_FIELDS.iter().all(|field| match entry.get(*field) {
            None | Some(Value::Null) => true,
            Some(value) => !matches!(*field, "time" | "fieldsV1") && value == "",
        }),
        _ => false,
    }
}

const ENTRY_FIELDS: [&str; 7] =
    ["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

/// Reads `managedFields`; absent and null are no managers.
pub fn decode(managed_fields: Option<&Value>) -> Result<Managers, DecodeError> {
    let entries = match managed_fields {
        None | Some(Value::Null) => return Ok(Managers::new()),
        Some(Value::Array(entries)) => entries,
        Some(_) => return Err(DecodeError::Malformed(0)),
    };
    entries.iter().enumerate().map(|(place, entry)| decode_entry(entry, place)).collect()
}

fn decode_entry(entry: &Value, place: usize) -> Result<(Manager, Managed), DecodeError> {
    let malformed = || DecodeError::Malformed(place);
    let fields = entry.as_object().ok_or_else(malformed)?;
    let text = |name: &str| match fields.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text.as_str()),
        Some(_) => Err(malformed()),
    };
    let time = match text("time")? {
        "" => None,
        text => Some(text.parse::<Timestamp>().map_err(|_| malformed())?),
    };
    let version = text("apiVersion")?;
    let operation = match text("operation")? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update { version: version.to_owned() },
        _ => return Err(DecodeError::Operation),
    };
    if version.is_empty() {
        return Err(DecodeError::NoVersion);
    }
    match text("fieldsType")? {
        FIELDS_TYPE => {}
        "" => return Err(DecodeError::NoFieldsType(place)),
        other => return Err(DecodeError::FieldsType { given: other.to_owned(), place }),
    }
    let set = Set::from_fields_v1(fields.get("fieldsV1").unwrap_or(&Value::Null));
    let set = set.map_err(|error| DecodeError::Fields(error, place))?;
    let manager = Manager {
        name: text("manager")?.to_owned(),
        operation,
        subresource: text("subresource")?.to_owned(),
    };
    Ok((manager, Managed { fields: set, version: version.to_owned(), time }))
}

/// Reads `managedFields` as they are stored.
pub(crate) fn read(text: &[u8]) -> Result<Managers, DecodeError> {
    if let Some(managers) = read_plain(text) {
        return Ok(managers);
    }
    // What is not as we write it is read with more patience, which also finds the words for what is wrong with it.
    let entries: Value = serde_json::from_slice(text).map_err(|_| DecodeError::Malformed(0))?;
    decode(Some(&entries))
}

/// An entry as [`write`] writes it, unless there is something in it to be escaped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Plain<'a> {
    manager: &'a str,
    operation: &'a str,
    api_version: &'a str,
    time: Option<&'a str>,
    fields_type: &'a str,
    #[serde(rename = "fieldsV1")]
    fields_v1: Set,
    #[serde(default)]
    subresource: &'a str,
}

fn read_plain(text: &[u8]) -> Option<Managers> {
    let entries: Vec<Plain<'_>> = serde_json::from_slice(text).ok()?;
    let managers = entries.into_iter().map(|entry| {
        let operation = match entry.operation {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update { version: entry.api_version.to_owned() },
            _ => return None,
        };
        if entry.fields_type != FIELDS_TYPE || entry.api_version.is_empty() {
            return None;
        }
        let time = match entry.time {
            Some(time) => Some(time.parse().ok()?),
            None => None,
        };
        let (name, subresource) = (entry.manager.to_owned(), entry.subresource.to_owned());
        let managed = Managed { fields: entry.fields_v1, version: entry.api_version.to_owned(), time };
        Some((Manager { name, operation, subresource }, managed))
    });
    managers.collect()
}

const FIELDS_TYPE: &str = "FieldsV1";

/// Writes `managedFields`: appliers before updaters, each oldest first. `None` if there are no managers.
pub(crate) fn write(managers: &Managers) -> Option<String> {
    if managers.is_empty() {
        return None;
    }
    let mut entries: Vec<(&Manager, &Managed)> = managers.iter().collect();
    entries.sort_by_key(|(manager, managed)| {
        (!manager.is_applier(), seconds(managed.time), &manager.name, &managed.version, &manager.subresource)
    });
    let mut out = String::with_capacity(1024);
    for (manager, managed) in entries {
        out.push(if out.is_empty() { '[' } else { ',' });
        write_entry(&mut out, manager, managed);
    }
    out.push(']');
    Some(out)
}

fn write_entry(out: &mut String, manager: &Manager, managed: &Managed) {
    out.push('{');
    if !manager.name.is_empty() {
        out.push_str("\"manager\":");
        write_string(out, &manager.name, false);
        out.push(',');
    }
    out.push_str("\"operation\":\"");
    out.push_str(if manager.is_applier() { "Apply" } else { "Update" });
    out.push_str("\",\"apiVersion\":");
    write_string(out, &managed.version, false);
    if let Some(time) = managed.time {
        out.push_str(",\"time\":\"");
        out.push_str(&object::time(time));
        out.push('"');
    }
    out.push_str(",\"fieldsType\":\"");
    out.push_str(FIELDS_TYPE);
    out.push_str("\",\"fieldsV1\":");
    managed.fields.write_json(out);
    if !manager.subresource.is_empty() {
        out.push_str(",\"subresource\":");
        write_string(out, &manager.subresource, false);
    }
    out.push('}');
}

/// Seconds since 1970; no time is 1970.
pub(crate) fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn encode(managers: &Managers) -> Option<Value> {
        let text = write(managers)?;
        assert_eq!(read(text.as_bytes()).as_ref(), Ok(managers), "what is written is read again");
        assert_eq!(read_plain(text.as_bytes()).as_ref(), Some(managers), "and in one go");
        Some(serde_json::from_str(&text).expect("JSON"))
    }

    fn entry(manager: &str, operation: &str, time: &str) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}})
    }

    #[test]
    fn r2_45_entries_are_sorted_by_operation_time_and_name() {
        let times = ["2024-01-01T00:00:00Z", "2023-01-01T00:00:00Z"];
        let unsorted = json!([
            entry("a", "Update", times[0]),
            entry("z", "Update", times[1]),
            entry("c", "Apply", times[0]),
            entry("b", "Apply", times[0]),
        ]);
        let sorted = encode(&decode(Some(&unsorted)).expect("managed fields")).expect("entries");
        assert_eq!(sorted, json!([unsorted[3], unsorted[2], unsorted[1], unsorted[0]]));
    }

    #[test]
    fn r2_45_entries_are_told_apart_by_version_only_if_they_update() {
        let at = |operation: &str, version: &str| {
            json!({"manager": "m", "operation": operation,
            "apiVersion": version, "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}})
        };
        let entries = json!([at("Apply", "v1"), at("Apply", "v2"), at("Update", "v1"), at("Update", "v2")]);
        assert_eq!(
            encode(&decode(Some(&entries)).expect("managed fields")),
            Some(json!([at("Apply", "v2"), at("Update", "v1"), at("Update", "v2")]))
        );
    }

    #[test]
    fn r2_47_what_cannot_be_read_says_why() {
        let check = |entry: Value, why: &str| {
            assert_eq!(decode(Some(&json!([entry]))).expect_err(why).to_string(), why);
        };
        let with = |field: &str, value: Value| {
            let mut entry = entry("m", "Apply", "2024-01-01T00:00:00Z");
            entry[field] = value;
            entry
        };
        check(with("operation", json!("Nope")), "operation must be `Apply` or `Update`");
        check(with("apiVersion", json!("")), "apiVersion must not be empty");
        check(with("fieldsType", json!(null)), "missing fieldsType in managed fields entry 0");
        check(with("fieldsType", json!("V2")), "invalid fieldsType \"V2\" in managed fields entry 0");
        check(with("time", json!("yesterday")), "managed fields entry 0 is malformed");
        assert!(decode(Some(&json!([with("fieldsV1", json!({"x": 1}))]))).is_err());
        assert!(decode(Some(&json!({}))).is_err());
    }

    #[test]
    fn r2_47_two_ways_ask_to_forget() {
        for (fields, forget) in [
            (json!([]), true),
            (json!([{}]), true),
            (json!([{"manager": "", "time": null}]), true),
            (json!([{"manager": "m"}]), false),
            (json!([{"fieldsV1": {}}]), false),
            (json!([{}, {}]), false),
            (json!(null), false),
        ] {
            assert_eq!(is_reset(Some(&fields)), forget, "{fields}");
        }
        assert!(!is_reset(None));
    }

    #[test]
    fn r2_45_names_come_from_the_user_agent() {
        assert_eq!(manager_name("me", "kubectl/v1"), "me");
        assert_eq!(manager_name("", "kubectl/v1.35 (linux)"), "kubectl");
        assert_eq!(manager_name("", "a\u{1}b\u{a0}c/x"), "abc");
        assert_eq!(manager_name("", &"é".repeat(100)), "é".repeat(64));
        assert_eq!(Manager::new("", Operation::Apply, "").name, "unknown");
    }
}
