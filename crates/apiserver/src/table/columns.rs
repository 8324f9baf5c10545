//! Columns, written as `Name:name|Ready|Desired:integer|IP*`: a format or a type after a colon, `*` for those that only show
//! when more is asked for.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::{Value, json};

/// One column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) format: &'static str,
    pub(super) priority: u8,
}

impl Column {
    pub(super) fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": "", "priority": self.priority,
        })
    }
}

/// Reads the short form.
pub(super) fn read(text: &'static str) -> Vec<Column> {
    let column = |text: &'static str| {
        let (text, priority) = text.strip_suffix('*').map_or((text, 0), |text| (text, 1));
        let (name, kind, format) = match text.split_once(':') {
            Some((name, "name")) => (name, "string", "name"),
            Some((name, kind)) => (name, kind, ""),
            None => (text, "string", ""),
        };
        Column { name: name.to_owned(), kind, format, priority }
    };
    text.split('|').map(column).collect()
}

/// The columns that a short form stands for, read once.
pub(super) fn of(text: &'static str) -> &'static [Column] {
    static READ: LazyLock<Mutex<BTreeMap<&'static str, &'static [Column]>>> = LazyLock::new(Mutex::default);
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(text).or_insert_with(|| Vec::leak(read(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form() {
        let read = of("Name:name|Desired:integer|IP*|Up:name*");
        let short = |column: &Column| (column.name.clone(), column.kind, column.format, column.priority);
        let columns: Vec<_> = read.iter().map(short).collect();
        assert_eq!(
            columns,
            [
                ("Name".to_owned(), "string", "name", 0),
                ("Desired".to_owned(), "integer", "", 0),
                ("IP".to_owned(), "string", "", 1),
                ("Up".to_owned(), "string", "name", 1),
            ]
        );
    }
}
