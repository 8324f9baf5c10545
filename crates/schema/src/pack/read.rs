//! Reads the pack's file. Its format is described where it is written, in `tools/schema/pack/main.go`.
//!
//! The file is part of the program, so a line that cannot be read is a broken build: reading panics, and says where.

use std::io::Read as _;
use std::str::Split;

use flate2::read::GzDecoder;
use serde_json::Value;

use super::{
    Counterpart, Facts, FieldDef, Id, Kind, ListType, Member, Omit, Pack, Proto, Shape, Source, TypeDef,
    Wire, beginning,
};

use crate::encode::is_omitted;

/// The version of the format that this reader knows.
const FORMAT: &str = "1";

pub(super) fn pack(file: &[u8]) -> Pack {
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).expect("the pack is gzipped text");
    // Names are slices of the text, so it stays for as long as the program runs; it is read once.
    let text: &'static str = Box::leak(text.into_boxed_str());

    let mut lines = text.lines();
    let mut header = Columns::of(lines.next().expect("the pack has a first line"));
    assert_eq!(header.next(), "ferry-schema", "the pack says what it is");
    assert_eq!(header.next(), FORMAT, "the pack has another format");
    let mut pack = Pack {
        version: header.next(),
        types: Vec::with_capacity(4096),
        names: std::collections::HashMap::with_capacity(2048),
        kinds: Vec::with_capacity(1024),
        string: 0,
    };
    for line in lines {
        pack.read_line(Columns::of(line));
    }
    pack.flatten();
    pack.kinds.sort_unstable();
    pack
}

/// The columns of one line.
struct Columns {
    line: &'static str,
    rest: Split<'static, char>,
}

impl Columns {
    fn of(line: &'static str) -> Self {
        Self { line, rest: line.split('\t') }
    }

    fn next(&mut self) -> &'static str {
        self.rest.next().unwrap_or_else(|| panic!("a column is missing in {:?}", self.line))
    }

    fn id(&mut self) -> Id {
        let column = self.next();
        column.parse().unwrap_or_else(|_| panic!("{column:?} is no type in {:?}", self.line))
    }
}

impl Pack {
    fn read_line(&mut self, mut columns: Columns) {
        match columns.next() {
            "." => {
                let field = field(columns);
                self.types.last_mut().expect("a field follows its struct").fields.push(field);
            }
            "internal" => {
                let wire = usize::from(columns.id());
                let id = columns.id();
                let sources = columns.next().split(',').map(source).collect();
                self.types[wire].internal = Some(Counterpart { id, sources });
            }
            "kind" => {
                let (group, version, kind) = (columns.next(), columns.next(), columns.next());
                self.kinds.push(Kind { group, version, kind, id: columns.id() });
            }
            shape => {
                let id = Id::try_from(self.types.len()).expect("a pack numbers its types with 16 bits");
                let read = type_def(shape, columns);
                if read.go == "string" {
                    self.string = id;
                }
                if !read.model.is_empty() {
                    self.names.insert(read.model, id);
                }
                self.types.push(read);
            }
        }
    }

    /// Computes the JSON view of every struct.
    fn flatten(&mut self) {
        for id in 0..self.types.len() {
            let mut members = Vec::with_capacity(self.types[id].fields.len());
            self.collect_members(&self.types[id], &mut Vec::new(), &mut members);
            let mut by_name: Vec<u16> =
                (0..members.len()).map(|place| u16::try_from(place).expect("few members")).collect();
            by_name.sort_unstable_by_key(|&place| members[usize::from(place)].name);
            assert!(members.len() <= 128, "{} has more fields than a bit set of them", self.types[id].go);
            let is_always = |member: &Member| !is_omitted(self, member.omit, member.id, &Value::Null);
            let always = by_name.iter().copied().filter(|&place| is_always(&members[usize::from(place)]));
            let always = always.collect();
            let numbers = self.types[id].fields.iter().enumerate().filter_map(|(place, field)| {
                Some((field.proto?.number, u16::try_from(place).expect("few fields")))
            });
            let mut by_number: Vec<_> = numbers.collect();
            by_number.sort_unstable();
            self.types[id].by_number = by_number;
            let started = |place: u16| (beginning(members[usize::from(place)].name), place);
            self.types[id].by_name = by_name.into_iter().map(started).collect();
            self.types[id].members = members;
            self.types[id].always = always;
        }
    }

    fn collect_members(&self, of: &TypeDef, through: &mut Vec<&'static str>, into: &mut Vec<Member>) {
        for field in &of.fields {
            if field.name.is_empty() {
                through.push(field.go);
                self.collect_members(self.def(field.id), through, into);
                through.pop();
            } else {
                into.push(Member {
                    name: field.name,
                    id: field.id,
                    omit: field.omit,
                    through: through.clone(),
                });
            }
        }
    }
}

fn type_def(shape: &str, mut columns: Columns) -> TypeDef {
    let (go, model) = (columns.next(), columns.next());
    let of = columns.next();
    let of = || of.parse().unwrap_or_else(|_| panic!("{of:?} is no type of items of {go}"));
    let shape = match shape {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float64" => Shape::Float64,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "microtime" => Shape::MicroTime,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "raw" => Shape::Raw,
        "any" => Shape::Any,
        "schema-or-bool" => Shape::SchemaOrBool(of()),
        "schema-or-array" => Shape::SchemaOrArray(of()),
        "schema-or-strings" => Shape::SchemaOrStrings(of()),
        "list" => Shape::List(of()),
        "map" => Shape::Map(of()),
        "ptr" => Shape::Pointer(of()),
        "struct" => Shape::Struct,
        other => panic!("the pack has types of shape {other:?}"),
    };
    let mut message = false;
    let facts = facts(columns.rest.filter(|&fact| {
        message |= fact == "message";
        fact != "message"
    }));
    let (fields, members, internal) = (Vec::new(), Vec::new(), None);
    let (by_name, always, by_number) = (Vec::new(), Vec::new(), Vec::new());
    TypeDef { go, model, shape, fields, members, by_name, always, by_number, message, internal, facts }
}

fn field(mut columns: Columns) -> FieldDef {
    let (go, name, id) = (columns.next(), columns.next(), columns.id());
    let omit = match columns.next() {
        "-" => Omit::Never,
        "e" => Omit::Empty,
        "z" => Omit::Zero,
        other => panic!("{other:?} does not say when to omit {go}"),
    };
    let proto = columns.next();
    let proto = (!proto.is_empty()).then(|| {
        let (number, wire) = proto.split_at(proto.len() - 1);
        let number = number.parse().unwrap_or_else(|_| panic!("{proto:?} is no protobuf field"));
        let wire = match wire {
            "v" => Wire::Varint,
            "f" => Wire::Fixed64,
            "b" => Wire::Bytes,
            other => panic!("{other:?} is no protobuf wire type"),
        };
        Proto { number, wire }
    });
    FieldDef { go, name, id, omit, proto, facts: facts(columns.rest) }
}

fn source(text: &'static str) -> Source {
    match text {
        "-" => Source::Nothing,
        "^" => Source::SameObject,
        key => Source::Key(key),
    }
}

fn facts(all: impl Iterator<Item = &'static str>) -> Facts {
    let mut facts = Facts::default();
    for fact in all {
        let (key, value) = fact.split_once('=').unwrap_or((fact, ""));
        match key {
            "required" => facts.required = true,
            "list" => {
                facts.list = Some(match unquote(value) {
                    "atomic" => ListType::Atomic,
                    "set" => ListType::Set,
                    "map" => ListType::Map,
                    other => panic!("{other:?} is no list type"),
                });
            }
            "keys" => {
                let keys = value.trim_start_matches('[').trim_end_matches(']');
                facts.keys = keys.split(',').map(unquote).collect();
            }
            "map" => {
                assert!(matches!(unquote(value), "atomic" | "granular"), "{value} is no map type");
                facts.atomic = unquote(value) == "atomic";
            }
            "patch" => facts.patch_strategy = Some(unquote(value)),
            "mergekey" => facts.merge_key = Some(unquote(value)),
            "default" => facts.default = Some(value),
            "enum" => facts.values = Some(value),
            "item.default" => facts.item_default = Some(value),
            "item.enum" => facts.item_values = Some(value),
            "unions" => facts.unions = Some(value),
            other => panic!("the pack has facts called {other:?}"),
        }
    }
    facts
}

/// A JSON string of which we know that it needs no escapes.
fn unquote(text: &'static str) -> &'static str {
    text.trim_matches('"')
}
