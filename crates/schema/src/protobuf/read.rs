//! Messages into values.

use serde_json::{Map, Value};

use super::wire::{BYTES, Error, FIXED64, Reader, Tag, VARINT, need, text};
use crate::base64;
use crate::json;
use crate::pack::{Id, Pack, Shape};
use crate::time::{Layout, Time, ZERO};
use crate::value::{float, is_zero, nests_within, zero};

pub(super) fn root(pack: &Pack, id: Id, bytes: &[u8]) -> Result<Value, Error> {
    let mut members = Map::new();
    Read { pack, depth: 0 }.message(id, bytes, &mut members)?;
    let value = Value::Object(members);
    // Lists and maps are no messages, and JSON in a message nests by itself.
    if nests_within(&value, json::MAX_DEPTH) { Ok(value) } else { Err(Error::TooDeep) }
}

struct Read<'p> {
    pack: &'p Pack,
    depth: usize,
}

impl Read<'_> {
    /// Reads a message into the members of an object, which may have some from an earlier part of it.
    fn message(&mut self, id: Id, bytes: &[u8], members: &mut Map<String, Value>) -> Result<(), Error> {
        if self.depth == json::MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let def = self.pack.def(id);
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag(def.go_short())? {
            let Some(field) = def.field_numbered(tag.number) else {
                reader.skip(tag)?;
                continue;
            };
            if field.name.is_empty() {
                self.message(field.id, reader.bytes_of(tag, field.go)?, members)?;
                continue;
            }
            let mut slot = members.remove(field.name).unwrap_or(Value::Null);
            self.value(field.id, field.go, tag, &mut reader, &mut slot)?;
            if !is_zero(self.pack, field.id, &slot) {
                members.insert(field.name.to_owned(), slot);
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads one occurrence of a field into a slot, which holds what came before.
    fn value(
        &mut self,
        id: Id,
        field: &'static str,
        tag: Tag,
        reader: &mut Reader<'_>,
        slot: &mut Value,
    ) -> Result<(), Error> {
        let def = self.pack.def(id);
        match def.shape {
            Shape::Pointer(to) => return self.value(to, field, tag, reader, slot),
            Shape::List(item) if !def.message => return self.item(item, field, tag, reader, slot),
            Shape::Bool => {
                need(tag, VARINT, field)?;
                *slot = Value::Bool(reader.varint()? != 0);
            }
            Shape::Int32 | Shape::Int64 => {
                need(tag, VARINT, field)?;
                *slot = number(def.shape, reader.varint()?);
            }
            Shape::Float64 => {
                need(tag, FIXED64, field)?;
                *slot = float(f64::from_bits(reader.fixed64()?));
            }
            Shape::Map(item) => {
                need(tag, BYTES, field)?;
                self.entry(item, reader, slot)?;
            }
            _ => self.bytes(id, reader.bytes_of(tag, field)?, slot)?,
        }
        Ok(())
    }

    /// One item of a list, or several numbers in a row.
    fn item(
        &mut self,
        item: Id,
        field: &'static str,
        tag: Tag,
        reader: &mut Reader<'_>,
        slot: &mut Value,
    ) -> Result<(), Error> {
        let items = list(slot);
        let shape = self.pack.def(item).shape;
        if tag.wire == BYTES && matches!(shape, Shape::Int32 | Shape::Int64) {
            let mut packed = Reader::new(reader.bytes()?);
            while !packed.is_empty() {
                items.push(number(shape, packed.varint()?));
            }
            return Ok(());
        }
        let mut value = Value::Null;
        self.value(item, field, tag, reader, &mut value)?;
        items.push(value);
        Ok(())
    }

    /// What is written as a length and bytes.
    fn bytes(&mut self, id: Id, bytes: &[u8], slot: &mut Value) -> Result<(), Error> {
        let def = self.pack.def(id);
        match def.shape {
            Shape::String => *slot = Value::String(text(bytes)),
            Shape::Bytes => *slot = Value::String(base64::encode(bytes)),
            Shape::Struct => {
                if !slot.is_object() {
                    *slot = Value::Object(Map::new());
                }
                if let Value::Object(members) = slot {
                    self.message(id, bytes, members)?;
                }
            }
            Shape::List(item) => {
                // A list in a message of its own is there, even if it is empty.
                list(slot);
                let mut reader = Reader::new(bytes);
                while let Some(tag) = reader.tag(def.go_short())? {
                    match tag.number {
                        1 => self.item(item, "Items", tag, &mut reader, slot)?,
                        _ => reader.skip(tag)?,
                    }
                }
            }
            Shape::Time => {
                let time = timestamp(bytes)?.map_or(ZERO, |time| Time { nanos: 0, ..time });
                *slot = Value::String(Layout::Seconds.format(time));
            }
            Shape::MicroTime => {
                *slot = Value::String(Layout::Micros.format(timestamp(bytes)?.unwrap_or(ZERO)));
            }
            Shape::Quantity => quantity(bytes, slot)?,
            Shape::IntOrString => *slot = int_or_string(bytes)?,
            Shape::Raw => raw(def.go_short(), bytes, slot)?,
            Shape::SchemaOrBool(schema) => self.schema_or_bool(schema, bytes, slot)?,
            Shape::SchemaOrArray(schema) => self.schema_or_list(schema, schema, bytes, slot)?,
            Shape::SchemaOrStrings(schema) => self.schema_or_list(schema, self.pack.string(), bytes, slot)?,
            Shape::Bool
            | Shape::Int32
            | Shape::Int64
            | Shape::Float64
            | Shape::Any
            | Shape::Map(_)
            | Shape::Pointer(_) => unreachable!("{} is not written as bytes", def.go),
        }
        Ok(())
    }

    /// One member of a map: a message of key and value, of which either may be missing.
    fn entry(&mut self, item: Id, reader: &mut Reader<'_>, slot: &mut Value) -> Result<(), Error> {
        let mut value = Value::Null;
        let key = reader.entry(|bytes| {
            value = Value::Null;
            self.bytes(item, bytes, &mut value)
        })?;
        let key = text(key);
        if value.is_null() {
            value = match self.pack.def(item).shape {
                // Go's reader starts with empty ones, not with none.
                Shape::Bytes => Value::String(String::new()),
                Shape::List(_) => Value::Array(Vec::new()),
                shape => zero(shape),
            };
        }
        match slot {
            Value::Object(members) => {
                members.insert(key, value);
            }
            _ => *slot = Value::Object(Map::from_iter([(key, value)])),
        }
        Ok(())
    }

    fn schema_or_bool(&mut self, schema: Id, bytes: &[u8], slot: &mut Value) -> Result<(), Error> {
        *slot = Value::Bool(false);
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaPropsOrBool")? {
            match tag.number {
                1 => {
                    need(tag, VARINT, "Allows")?;
                    let allows = reader.varint()? != 0;
                    if !slot.is_object() {
                        *slot = Value::Bool(allows);
                    }
                }
                2 => self.bytes(schema, reader.bytes_of(tag, "Schema")?, slot)?,
                _ => reader.skip(tag)?,
            }
        }
        Ok(())
    }

    /// A list counts more than a schema, if there are both.
    fn schema_or_list(&mut self, schema: Id, item: Id, bytes: &[u8], slot: &mut Value) -> Result<(), Error> {
        let (mut one, mut many) = (Value::Null, Value::Array(Vec::new()));
        let mut reader = Reader::new(bytes);
        while let Some(tag) = reader.tag("JSONSchemaPropsOrArray")? {
            match tag.number {
                1 => self.bytes(schema, reader.bytes_of(tag, "Schema")?, &mut one)?,
                2 => self.item(item, "JSONSchemas", tag, &mut reader, &mut many)?,
                _ => reader.skip(tag)?,
            }
        }
        *slot = if one.is_object() && many == Value::Array(Vec::new()) { one } else { many };
        Ok(())
    }
}

fn list(slot: &mut Value) -> &mut Vec<Value> {
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    slot.as_array_mut().expect("the slot was made a list")
}

/// Go cuts a number to the bits of its type.
fn number(shape: Shape<Id>, varint: u64) -> Value {
    match shape {
        Shape::Int32 => {
            let cut = u32::try_from(varint & 0xffff_ffff).expect("cut to 32 bits");
            cut.cast_signed().into()
        }
        _ => varint.cast_signed().into(),
    }
}

/// `None` if the message is empty, which is how the zero time is written.
fn timestamp(bytes: &[u8]) -> Result<Option<Time>, Error> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Timestamp")? {
        match tag.number {
            1 => {
                need(tag, VARINT, "Seconds")?;
                seconds = reader.varint()?.cast_signed();
            }
            2 => {
                need(tag, VARINT, "Nanos")?;
                nanos = number(Shape::Int32, reader.varint()?).as_i64().unwrap_or_default();
            }
            _ => reader.skip(tag)?,
        }
    }
    // Nanoseconds may be negative or more than a second; they carry over.
    let seconds = seconds.saturating_add(nanos.div_euclid(1_000_000_000));
    let nanos = u32::try_from(nanos.rem_euclid(1_000_000_000)).expect("less than a second");
    Ok(Some(Time { seconds, nanos }))
}

fn quantity(bytes: &[u8], slot: &mut Value) -> Result<(), Error> {
    if slot.is_null() {
        *slot = zero(Shape::Quantity);
    }
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("Quantity")? {
        match tag.number {
            1 => {
                let text = text(reader.bytes_of(tag, "String_")?);
                let canonical = crate::quantity::canonical(&text).map_err(Error::Quantity)?;
                *slot = Value::String(canonical.into_owned());
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(())
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let (mut kind, mut number_value, mut text_value) = (0, Value::from(0), String::new());
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag("IntOrString")? {
        match tag.number {
            1 => {
                need(tag, VARINT, "Type")?;
                kind = reader.varint()?;
            }
            2 => {
                need(tag, VARINT, "IntVal")?;
                number_value = number(Shape::Int32, reader.varint()?);
            }
            3 => text_value = text(reader.bytes_of(tag, "StrVal")?),
            _ => reader.skip(tag)?,
        }
    }
    match kind {
        0 => Ok(number_value),
        1 => Ok(Value::String(text_value)),
        _ => Err(Error::IntOrString),
    }
}

/// JSON in bytes.
fn raw(message: &'static str, bytes: &[u8], slot: &mut Value) -> Result<(), Error> {
    let mut reader = Reader::new(bytes);
    while let Some(tag) = reader.tag(message)? {
        match tag.number {
            1 => {
                let text = reader.bytes_of(tag, "Raw")?;
                // Only a schema's JSON may be present and empty; Go cannot write the others back.
                if text.is_empty() && message == "JSON" {
                    *slot = Value::Null;
                } else {
                    json::check(text).map_err(Error::Json)?;
                    *slot = json::Scan::new(text).tree();
                }
            }
            _ => reader.skip(tag)?,
        }
    }
    Ok(())
}
