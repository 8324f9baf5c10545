//! Reading a file of settings so that nothing in it is passed over: what nobody asked for is unknown.

use std::fmt::Display;

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What is wrong with a file, all of it at once.
#[derive(Debug, Default)]
pub(super) struct Problems {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// One object in the file, of which fields are taken one after the other.
pub(super) struct Section {
    path: String,
    fields: Map<String, Value>,
}

impl Section {
    /// The whole file.
    pub(super) fn whole(value: Value, problems: &mut Problems) -> Section {
        Section::of(String::new(), value, problems)
    }

    fn of(path: String, value: Value, problems: &mut Problems) -> Section {
        match value {
            Value::Object(fields) => return Section { path, fields },
            Value::Null => {}
            other => problems.errors.push(format!("{path}: must be an object, and is {other}")),
        }
        Section { path, fields: Map::new() }
    }

    /// Where a field is.
    pub(super) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Whether a field is there and says something.
    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name).filter(|value| !value.is_null())
    }

    /// An object in the object.
    pub(super) fn section(&mut self, name: &str, problems: &mut Problems) -> Option<Section> {
        let path = self.path(name);
        self.take(name).map(|value| Section::of(path, value, problems))
    }

    /// A value.
    pub(super) fn value<T: DeserializeOwned>(&mut self, name: &str, problems: &mut Problems) -> Option<T> {
        let value = self.take(name)?;
        match serde_json::from_value(value.clone()) {
            Ok(read) => Some(read),
            Err(error) => {
                problems.errors.push(format!("{}: {value}: {error}", self.path(name)));
                None
            }
        }
    }

    /// A span of time that is not negative.
    pub(super) fn duration(&mut self, name: &str, problems: &mut Problems) -> Option<SignedDuration> {
        let text: String = self.value(name, problems)?;
        let path = self.path(name);
        match text.parse::<SignedDuration>() {
            Ok(duration) if duration.is_negative() => {
                problems.errors.push(format!("{path}: {text:?}: must not be negative"));
                None
            }
            Ok(duration) => Some(duration),
            Err(_) => {
                problems
                    .errors
                    .push(format!("{path}: {text:?}: must be a span of time such as \"5m\" or \"1h30m\""));
                None
            }
        }
    }

    /// A number that is not negative.
    pub(super) fn count(&mut self, name: &str, problems: &mut Problems) -> Option<i32> {
        let count: i32 = self.value(name, problems)?;
        if count < 0 {
            problems.errors.push(format!("{}: {count}: must not be negative", self.path(name)));
            return None;
        }
        Some(count)
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &str,
        choices: &[(&str, T)],
        problems: &mut Problems,
    ) -> Option<T> {
        let said: String = self.value(name, problems)?;
        let found = choices.iter().find(|(word, _)| *word == said);
        if found.is_none() {
            let words: Vec<String> = choices.iter().map(|(word, _)| format!("{word:?}")).collect();
            let why = format!("{}: {said:?}: must be one of {}", self.path(name), words.join(", "));
            problems.errors.push(why);
        }
        found.map(|(_, choice)| *choice)
    }

    /// A setting that there is and that cannot be had here.
    pub(super) fn refuse(&mut self, name: &str, why: impl Display, problems: &mut Problems) {
        if self.take(name).is_some() {
            problems.errors.push(format!("{}: is not supported: {why}", self.path(name)));
        }
    }

    /// A setting that there is and that changes nothing here.
    pub(super) fn ignore(&mut self, name: &str, why: impl Display, problems: &mut Problems) {
        if self.take(name).is_some() {
            problems.warnings.push(format!("{}: has no effect: {why}", self.path(name)));
        }
    }

    /// Whatever is left is unknown.
    pub(super) fn done(self, problems: &mut Problems) {
        for name in self.fields.keys() {
            problems
                .errors
                .push(format!("{}: is not known; remove it, or look for a typing error", self.path(name)));
        }
    }
}
