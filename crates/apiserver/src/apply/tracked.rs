//! An object, and beside it who manages its fields.
//!
//! Nothing but this module's neighbours looks into `metadata.managedFields`, and as a tree it would be the larger part of
//! many objects. So it stays the text that is stored, and objects travel through a write without it.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::managers::{self, DecodeError, Managers};

/// `metadata.managedFields` as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries(Option<Bytes>);

impl Entries {
    /// The text of a list of entries, as it stands in a stored object.
    pub(crate) fn stored(text: Bytes) -> Entries {
        Entries(Some(text))
    }

    /// The entries of managers, as they are stored.
    pub fn of(managers: &Managers) -> Entries {
        Entries(managers::write(managers).map(Bytes::from))
    }

    /// Entries that stood in a tree.
    pub fn of_tree(entries: Option<&Value>) -> Entries {
        Entries(entries.filter(|entries| !entries.is_null()).map(|entries| entries.to_string().into()))
    }

    /// The same as a tree.
    pub fn tree(&self) -> Option<Value> {
        self.0.as_ref().map(|text| serde_json::from_slice(text).expect("what was written is JSON"))
    }

    /// The text, if there are entries.
    pub(crate) fn text(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// The managers.
    pub(crate) fn read(&self) -> Result<Managers, DecodeError> {
        self.text().map_or_else(|| Ok(Managers::new()), managers::read)
    }

    /// The same entries as others, which may say other times.
    pub(crate) fn are_same_but_for_times(&self, others: &Entries) -> bool {
        if self == others {
            return true;
        }
        let (Some(Value::Array(these)), Some(Value::Array(others))) = (self.tree(), others.tree()) else {
            return false;
        };
        let are_same = |(one, other): (&Value, &Value)| {
            let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return false };
            let counts = |(name, _): &(&String, &Value)| *name != "time";
            one.iter().filter(counts).eq(other.iter().filter(counts))
        };
        these.len() == others.len() && these.iter().zip(&others).all(are_same)
    }
}

/// An object without its managers, and its managers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// The object. It has no `metadata.managedFields`.
    pub object: Value,
    /// Who manages its fields.
    pub managers: Entries,
}

impl Tracked {
    /// Takes an object apart.
    pub fn of(mut object: Value) -> Tracked {
        let managers = Entries::of_tree(remove_managed_fields(&mut object).as_ref());
        Tracked { object, managers }
    }

    /// The object as clients see it.
    pub fn whole(&self) -> Value {
        self.clone().into_whole()
    }

    /// The same of one that is no longer needed.
    pub fn into_whole(self) -> Value {
        let Tracked { mut object, managers } = self;
        set_managed_fields(&mut object, managers.tree());
        object
    }
}

/// Takes an object's managers away, and says who they were.
pub(crate) fn remove_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// Puts managers into an object that has none.
pub(crate) fn set_managed_fields(object: &mut Value, entries: Option<Value>) {
    let (Some(entries), Value::Object(object)) = (entries, object) else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert("managedFields".into(), entries);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_are_taken_apart_and_put_together() {
        let fields = json!({"f:spec": {".": {}, "f:a": {}, "k:{\"name\":\"\\\"x\"}": {}}});
        let entry = json!({"manager": "m\n\"", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2024-01-01T00:00:00Z", "subresource": "status"});
        for managers in [json!([entry]), json!([]), json!("nonsense")] {
            let whole = json!({"metadata": {"name": "n", "managedFields": managers}, "spec": {"a": 1}});
            let tracked = Tracked::of(whole.clone());
            assert_eq!(tracked.object, json!({"metadata": {"name": "n"}, "spec": {"a": 1}}));
            assert_eq!(tracked.whole(), whole);
        }
        let managers = Entries::of_tree(Some(&json!([entry]))).read().expect("managers");
        assert_eq!(Entries::of(&managers).tree(), Some(json!([entry])));
        for without in [json!({"metadata": {"name": "n"}}), json!({}), json!(1)] {
            assert_eq!(Tracked::of(without.clone()).whole(), without);
        }
    }

    #[test]
    fn r2_43_times_are_not_what_makes_entries_different() {
        let entries = |manager: &str, time: &str| {
            Entries::of_tree(Some(&json!([{"manager": manager, "time": time, "fieldsV1": {"f:data": {}}}])))
        };
        let before = entries("m", "2023-01-01T00:00:00Z");
        assert!(entries("m", "2024-01-01T00:00:00Z").are_same_but_for_times(&before));
        assert!(!entries("n", "2023-01-01T00:00:00Z").are_same_but_for_times(&before));
        assert!(!Entries::default().are_same_but_for_times(&before));
        assert!(Entries::default().are_same_but_for_times(&Entries::default()));
    }
}
