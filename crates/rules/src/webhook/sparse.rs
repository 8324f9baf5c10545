//! Reads a typed object without the parts that nobody will look at. Pod templates and the record of who manages which
//! fields are most of what an object is, and most rules look at neither.

use serde::de::value::MapDeserializer;
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

/// Reads an object as if the fields at these paths, of which there are a few, were not there.
pub(super) fn read<T: DeserializeOwned>(object: &Value, without: &[&[&str]]) -> Result<T, Error> {
    let lead_here = (0..without.len()).fold(0, |all, path| all | 1 << path);
    T::deserialize(Sparse { value: object, without, lead_here, depth: 0 })
}

/// A value in an object.
#[derive(Clone, Copy)]
struct Sparse<'a> {
    value: &'a Value,
    /// The paths of what is left out.
    without: &'a [&'a [&'a str]],
    /// Those of them that lead here and on, as bits.
    lead_here: u32,
    /// How deep this is.
    depth: usize,
}

impl<'a> Sparse<'a> {
    /// A field, unless it is left out.
    fn field(self, name: &str, value: &'a Value) -> Option<Sparse<'a>> {
        let mut lead_there = 0;
        for (i, path) in self.without.iter().enumerate() {
            if self.lead_here & 1 << i != 0 && path.get(self.depth) == Some(&name) {
                if path.len() == self.depth + 1 {
                    return None;
                }
                lead_there |= 1 << i;
            }
        }
        Some(Sparse { value, lead_here: lead_there, depth: self.depth + 1, ..self })
    }

    /// The fields, if something is left out of them.
    fn fields(self) -> Option<&'a Map<String, Value>> {
        self.value.as_object().filter(|_| self.lead_here != 0)
    }
}

impl<'de> IntoDeserializer<'de, Error> for Sparse<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Sparse<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Some(fields) = self.fields() else { return self.value.deserialize_any(visitor) };
        let stay = fields.iter().filter_map(|(name, value)| Some((name.as_str(), self.field(name, value)?)));
        MapDeserializer::new(stay).deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.fields() {
            None => self.value.deserialize_struct(name, fields, visitor),
            Some(_) => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_might_as_well_not_be_there() {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "n", "labels": {"spec": "x"}, "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {}}}]},
            "spec": {"suspend": true, "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}], "terminationGracePeriodSeconds": 1},
            }},
            "status": {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "T", "status": "True"}]},
        });
        let paths: [&[&str]; 5] = [
            &["metadata", "managedFields"],
            &["spec", "template", "spec"],
            &["status"],
            &["spec", "template", "metadata", "labels"],
            &["no", "such"],
        ];
        for chosen in 0..1_usize << paths.len() {
            let without: Vec<&[&str]> =
                (0..paths.len()).filter(|i| chosen & 1 << i != 0).map(|i| paths[i]).collect();
            let mut rest = job.clone();
            for path in &without {
                let (last, above) = path.split_last().expect("a path");
                let above = above.iter().try_fold(&mut rest, |value, name| value.get_mut(*name));
                above.and_then(Value::as_object_mut).map(|fields| fields.remove(*last));
            }
            let read = super::read::<Job>(&job, &without).expect("a Job");
            assert_eq!(read, serde_json::from_value::<Job>(rest).expect("a Job"), "{without:?}");
        }
        assert!(super::read::<Job>(&json!({"spec": {"suspend": 1}}), &[&["spec", "template"]]).is_err());
        assert!(super::read::<Job>(&json!({"spec": {"template": 1}}), &[&["spec", "template"]]).is_ok());
    }
}
