//! The types that bring their own reader: times, quantities, numbers or strings, raw JSON, schemas.
//!
//! An error in one of these ends the reading, where other errors let it go on.

use serde_json::Value;

use super::error::Mismatch;
use super::{DecodeError, Decoder};
use crate::json::unquote;
use crate::pack::{Id, Shape};
use crate::quantity;
use crate::time::Layout;

impl Decoder<'_> {
    pub(super) fn special(&mut self, id: Id, slot: &mut Value) -> Result<(), DecodeError> {
        match self.pack.def(id).shape {
            Shape::Time => *slot = time(self.scan.skip(), Layout::Seconds)?,
            Shape::MicroTime => *slot = time(self.scan.skip(), Layout::Micros)?,
            Shape::Quantity => *slot = quantity(self.scan.skip())?,
            Shape::IntOrString => int_or_string(self.scan.skip(), slot)?,
            Shape::SchemaOrBool(schema) => self.schema_or_bool(schema, slot)?,
            Shape::SchemaOrArray(schema) => self.schema_or_list(schema, schema, slot)?,
            Shape::SchemaOrStrings(schema) => self.schema_or_list(schema, self.pack.string(), slot)?,
            _ if self.scan.peek() == b'n' => {
                self.scan.skip();
            }
            _ => *slot = self.scan.tree(),
        }
        Ok(())
    }

    fn schema_or_bool(&mut self, schema: Id, slot: &mut Value) -> Result<(), DecodeError> {
        match self.scan.peek() {
            b'{' => return self.apart(schema, slot),
            b't' => *slot = Value::Bool(true),
            b'f' => *slot = Value::Bool(false),
            _ => return Err(DecodeError::Other("boolean or JSON schema expected".to_owned())),
        }
        self.scan.skip();
        Ok(())
    }

    /// A schema, or a list of something else. Whatever is neither becomes what has neither, shown as an empty list.
    fn schema_or_list(&mut self, schema: Id, item: Id, slot: &mut Value) -> Result<(), DecodeError> {
        match self.scan.peek() {
            b'{' => return self.apart(schema, slot),
            b'[' => {
                let mut part = Decoder::new(self.pack, self.scan);
                *slot = Value::Null;
                part.list(item, slot).map_err(|error| part.locate(error))?;
                self.scan = part.scan;
                return part.saved.map_or(Ok(()), Err);
            }
            _ => {
                self.scan.skip();
                *slot = Value::Array(Vec::new());
            }
        }
        Ok(())
    }

    /// Reads the next value as Kubernetes does here: as a document of its own, leniently.
    fn apart(&mut self, id: Id, slot: &mut Value) -> Result<(), DecodeError> {
        let mut part = Decoder::new(self.pack, self.scan);
        *slot = Value::Null;
        part.read(id, slot)?;
        self.scan = part.scan;
        Ok(())
    }
}

fn time(text: &[u8], layout: Layout) -> Result<Value, DecodeError> {
    match text[0] {
        b'n' => Ok(Value::Null),
        b'"' => match layout.parse(&unquote(text)).map_err(DecodeError::Other)? {
            // A fraction matters until the time is written.
            time if layout == Layout::Seconds => Ok(Value::String(time.exact())),
            time => Ok(Value::String(layout.format(time))),
        },
        _ => Err(DecodeError::Mismatch(Mismatch::new(text, "string"))),
    }
}

/// Kubernetes takes any JSON text for a quantity, and does not resolve escapes in strings.
fn quantity(text: &[u8]) -> Result<Value, DecodeError> {
    if text == b"null" {
        return Ok(Value::Null);
    }
    let text = String::from_utf8_lossy(text);
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(&text);
    let canonical = quantity::canonical(inner.trim()).map_err(DecodeError::Other)?;
    Ok(Value::String(canonical.into_owned()))
}

fn int_or_string(text: &[u8], slot: &mut Value) -> Result<(), DecodeError> {
    match text[0] {
        b'"' => *slot = Value::String(unquote(text).into_owned()),
        b'n' => {
            if !slot.is_number() {
                *slot = Value::Null;
            }
        }
        b'-' | b'0'..=b'9' => {
            let number = super::number::<i32>(text).ok_or_else(|| Mismatch::number(text, "int32"));
            *slot = number.map_err(DecodeError::Mismatch)?.into();
        }
        _ => return Err(DecodeError::Mismatch(Mismatch::new(text, "int32"))),
    }
    Ok(())
}
