//! Reads JSON into a type and refuses if the type asks for a field that the JSON does not have, or misses one that it
//! has. Types of other crates are read as they come.

use serde::{
    Deserializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, Value};

pub(crate) fn from_value<T: DeserializeOwned>(value: &Value) -> Result<T, Error> {
    T::deserialize(Strict { value, at: String::new() })
}

/// Fields of these types are Kubernetes' business: another release of it may well know more of them.
const OF_KUBERNETES: [&str; 2] = ["template", "metadata"];

struct Strict<'a> {
    value: &'a Value,
    at: String,
}

impl<'a> Strict<'a> {
    fn field(&self, name: &str, value: &'a Value) -> Strict<'a> {
        Strict { value, at: format!("{}.{name}", self.at) }
    }

    fn is_ours(&self) -> bool {
        !OF_KUBERNETES.iter().any(|name| self.at.split('.').any(|part| part == *name))
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Object(fields) if self.is_ours() => {
                let fields: Vec<_> = fields.iter().collect();
                visitor.visit_map(Entries { of: &self, fields, next: 0 })
            }
            Value::Array(items) if self.is_ours() => {
                visitor.visit_seq(Elements { of: &self, items, next: 0 })
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
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
        if self.is_ours() {
            let known =
                self.value.as_object().ok_or_else(|| Error::custom(format!("{} is no object", self.at)))?;
            let invented: Vec<_> = fields.iter().filter(|field| !known.contains_key(**field)).collect();
            let missing: Vec<_> = known.keys().filter(|field| !fields.contains(&field.as_str())).collect();
            if !invented.is_empty() || !missing.is_empty() {
                let text = format!("{name} at {:?} lacks {missing:?} and invents {invented:?}", self.at);
                return Err(Error::custom(text));
            }
        }
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Entries<'s, 'de> {
    of: &'s Strict<'de>,
    fields: Vec<(&'de String, &'de Value)>,
    next: usize,
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, _)) = self.fields.get(self.next) else { return Ok(None) };
        seed.deserialize(name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (name, value) = self.fields[self.next];
        self.next += 1;
        seed.deserialize(self.of.field(name, value))
    }
}

struct Elements<'s, 'de> {
    of: &'s Strict<'de>,
    items: &'de [Value],
    next: usize,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.items.get(self.next) else { return Ok(None) };
        self.next += 1;
        seed.deserialize(self.of.field("[]", item)).map(Some)
    }
}
