//! The schema pack: every Go type that an API server reads or writes, with its fields, tags and OpenAPI facts.
//!
//! `tools/schema` writes the pack from Kubernetes' own modules; this module reads it and answers questions about it.
//! A type here is a *Go* type, pointers and named strings included, because error messages name those and because only
//! Go's tags say which zero values reach the wire. What to do with a value of a type is not known here.

mod reach;
mod read;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use serde_json::Value;

pub use reach::Reach;

/// The types of one Kubernetes version.
pub struct Pack {
    version: &'static str,
    types: Vec<TypeDef>,
    names: HashMap<&'static str, Id>,
    /// Sorted by group, version and kind.
    kinds: Vec<Kind>,
    string: Id,
}

/// The place of a type in its pack.
pub(crate) type Id = u16;

/// One Go type. Cheap to copy; all that is known about it lives in the pack.
#[derive(Clone, Copy)]
pub struct Type {
    pack: &'static Pack,
    id: Id,
}

/// What a Go type is on the wire. `T` is how it refers to other types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape<T = Type> {
    /// A string, or a type made of one.
    String,
    /// A truth value.
    Bool,
    /// An integer of 32 bits.
    Int32,
    /// An integer of 64 bits.
    Int64,
    /// A floating-point number of 64 bits.
    Float64,
    /// Bytes; base64 in JSON.
    Bytes,
    /// `metav1.Time`: seconds, RFC 3339.
    Time,
    /// `metav1.MicroTime`: microseconds, RFC 3339 with six decimal places.
    MicroTime,
    /// `resource.Quantity`.
    Quantity,
    /// `intstr.IntOrString`.
    IntOrString,
    /// Any JSON, kept as it came: `RawExtension`, `FieldsV1`, `JSON`.
    Raw,
    /// A Go interface: any JSON, too. Only tables and internal types have it.
    Any,
    /// A JSON schema or a truth value.
    SchemaOrBool(T),
    /// A JSON schema or a list of them.
    SchemaOrArray(T),
    /// A JSON schema or a list of strings.
    SchemaOrStrings(T),
    /// A Go slice.
    List(T),
    /// A Go map with string keys.
    Map(T),
    /// A Go pointer: absent and zero are different things.
    Pointer(T),
    /// A Go struct.
    Struct,
}

/// One field of a Go struct, in the order of the Go source.
#[derive(Clone, Copy)]
pub struct Field {
    pack: &'static Pack,
    def: &'static FieldDef,
}

/// A kind that the API server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Empty for the core group.
    pub group: &'static str,
    /// For example `v1`.
    pub version: &'static str,
    /// For example `Job`.
    pub kind: &'static str,
    id: Id,
}

/// When Go leaves a field out of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omit {
    /// It never does.
    Never,
    /// `omitempty`: nil, zero scalars, empty lists and maps; but never a struct.
    Empty,
    /// `omitzero`: the zero value, of a struct too.
    Zero,
}

/// Where a field stands in a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proto {
    /// The field's number.
    pub number: u32,
    /// How it, or each item of it, is written.
    pub wire: Wire,
}

/// Protobuf's ways to write a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// A number of seven bits a byte.
    Varint,
    /// Eight bytes.
    Fixed64,
    /// A length and as many bytes.
    Bytes,
}

/// How a list is merged by server-side apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListType {
    /// As one value.
    Atomic,
    /// Item by item; an item is its own key.
    Set,
    /// Item by item, by the values of [`Facts::keys`].
    Map,
}

/// What OpenAPI says about a field or a struct beyond its Go type.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// A document without the field is invalid.
    pub required: bool,
    /// How server-side apply merges the list.
    pub list: Option<ListType>,
    /// The keys of a [`ListType::Map`].
    pub keys: Vec<&'static str>,
    /// Server-side apply takes the map or struct as one value.
    pub atomic: bool,
    /// How a strategic merge patch treats the list or struct: `merge`, `replace`, `retainKeys`, separated by commas.
    pub patch_strategy: Option<&'static str>,
    /// The key by which a strategic merge patch merges the list.
    pub merge_key: Option<&'static str>,
    default: Option<&'static str>,
    values: Option<&'static str>,
    item_default: Option<&'static str>,
    item_values: Option<&'static str>,
    unions: Option<&'static str>,
}

#[derive(Debug)]
pub(crate) struct TypeDef {
    /// As Go's reflection prints it: `v1.JobSpec`, `[]v1.Container`.
    pub(crate) go: &'static str,
    /// Empty unless OpenAPI has a name for the type.
    pub(crate) model: &'static str,
    pub(crate) shape: Shape<Id>,
    pub(crate) fields: Vec<FieldDef>,
    /// The fields as JSON shows them.
    pub(crate) members: Vec<Member>,
    /// How the names of members begin, and their places in `members`, sorted. Every write looks up every name several
    /// times: numbers in a row are found faster than texts.
    by_name: Vec<(u64, u16)>,
    /// Places in `members` of those that are written even when nothing was given.
    pub(crate) always: Vec<u16>,
    /// Protobuf numbers and places in `fields`, sorted.
    by_number: Vec<(u32, u16)>,
    /// A list that protobuf wraps into a message of its own.
    pub(crate) message: bool,
    pub(crate) internal: Option<Counterpart>,
    facts: Facts,
}

#[derive(Debug)]
pub(crate) struct FieldDef {
    pub(crate) go: &'static str,
    /// Empty if the field is inlined.
    pub(crate) name: &'static str,
    pub(crate) id: Id,
    pub(crate) omit: Omit,
    pub(crate) proto: Option<Proto>,
    facts: Facts,
}

/// A key of the JSON object that a struct becomes: inlined structs are gone.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: &'static str,
    pub(crate) id: Id,
    pub(crate) omit: Omit,
    /// The Go names of the inlined structs on the way to the field. They appear in error messages.
    pub(crate) through: Vec<&'static str>,
}

/// The unversioned struct that Kubernetes keeps a wire struct in, and prints when it refuses a value.
#[derive(Debug)]
pub(crate) struct Counterpart {
    pub(crate) id: Id,
    /// For each field of the internal struct, where its value comes from.
    pub(crate) sources: Vec<Source>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nowhere: the field stays zero.
    Nothing,
    /// The wire object itself, which inlines what the field holds.
    SameObject,
    /// This key of the wire object.
    Key(&'static str),
}

impl Pack {
    /// The types of Kubernetes v1.35.
    pub fn v1_35() -> &'static Pack {
        static PACK: LazyLock<Pack> = LazyLock::new(|| read::pack(include_bytes!("../v1.35.8.pack.gz")));
        &PACK
    }

    /// The exact version, for example `v1.35.8`.
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The type with an OpenAPI name, for example `io.k8s.api.batch.v1.Job`.
    pub fn named(&'static self, name: &str) -> Option<Type> {
        self.names.get(name).map(|&id| Type { pack: self, id })
    }

    /// The type of a kind. The core group's name is empty.
    pub fn of_kind(&'static self, group: &str, version: &str, kind: &str) -> Option<Type> {
        let place = self
            .kinds
            .binary_search_by(|known| (known.group, known.version, known.kind).cmp(&(group, version, kind)))
            .ok()?;
        Some(Type { pack: self, id: self.kinds[place].id })
    }

    /// Every kind of every group and version, sorted. Options and watch events are kinds too.
    pub fn kinds(&'static self) -> impl Iterator<Item = (Kind, Type)> {
        self.kinds.iter().map(move |&kind| (kind, Type { pack: self, id: kind.id }))
    }

    /// Every type that has an OpenAPI name.
    pub fn named_types(&'static self) -> impl Iterator<Item = Type> {
        self.types().filter(|named| !named.name().is_empty())
    }

    /// Every type, by its place.
    fn types(&'static self) -> impl Iterator<Item = Type> {
        let ids = 0..Id::try_from(self.types.len()).expect("a pack numbers its types with 16 bits");
        ids.map(move |id| Type { pack: self, id })
    }

    /// Go's plain `string`.
    pub(crate) fn string(&self) -> Id {
        self.string
    }

    pub(crate) fn def(&self, id: Id) -> &TypeDef {
        &self.types[usize::from(id)]
    }
}

impl fmt::Debug for Pack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pack({}, {} types)", self.version, self.types.len())
    }
}

impl Type {
    /// The name in OpenAPI documents, for example `io.k8s.api.batch.v1.Job`; empty for lists, maps, pointers, scalars.
    pub fn name(self) -> &'static str {
        self.def().model
    }

    /// The name as Go prints it, for example `v1.Job` or `[]v1.Container`.
    pub fn go_name(self) -> &'static str {
        self.def().go
    }

    /// What it is on the wire.
    pub fn shape(self) -> Shape {
        self.def().shape.map(|id| Type { pack: self.pack, id })
    }

    /// A struct's fields in Go's order, inlined structs as one field each. Empty for everything else.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        self.def().fields.iter().map(move |def| Field { pack: self.pack, def })
    }

    /// The field with a JSON name, looked up through inlined structs.
    pub fn field(self, name: &str) -> Option<Field> {
        self.fields().find_map(|field| {
            if field.is_inline() {
                field.of_type().field(name)
            } else {
                (field.name() == name).then_some(field)
            }
        })
    }

    /// The type of the member of a JSON object with this name, found by number rather than one by one.
    pub fn member(self, name: &str) -> Option<Type> {
        let def = self.def();
        def.member(name).map(|place| Type { pack: self.pack, id: def.members[place].id })
    }

    /// Protobuf wraps this list into a message of its own.
    pub fn is_message(self) -> bool {
        self.def().message
    }

    /// What OpenAPI says about the struct itself.
    pub fn facts(self) -> &'static Facts {
        &self.def().facts
    }

    pub(crate) fn pack(self) -> &'static Pack {
        self.pack
    }

    pub(crate) fn id(self) -> Id {
        self.id
    }

    fn def(self) -> &'static TypeDef {
        self.pack.def(self.id)
    }
}

impl PartialEq for Type {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.pack, other.pack) && self.id == other.id
    }
}

impl Eq for Type {}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.go_name())
    }
}

impl Field {
    /// The name in Go.
    pub fn go_name(self) -> &'static str {
        self.def.go
    }

    /// The name in JSON; empty if the field is inlined.
    pub fn name(self) -> &'static str {
        self.def.name
    }

    /// Its fields appear in JSON as if they were the struct's own.
    pub fn is_inline(self) -> bool {
        self.def.name.is_empty()
    }

    /// Its type.
    pub fn of_type(self) -> Type {
        Type { pack: self.pack, id: self.def.id }
    }

    /// When Go leaves it out of JSON.
    pub fn omit(self) -> Omit {
        self.def.omit
    }

    /// Where it stands in protobuf; `None` if it is not there.
    pub fn proto(self) -> Option<Proto> {
        self.def.proto
    }

    /// What OpenAPI says about it.
    pub fn facts(self) -> &'static Facts {
        &self.def.facts
    }
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.go_name(), self.of_type())
    }
}

impl<T> Shape<T> {
    pub(crate) fn map<U>(self, with: impl FnOnce(T) -> U) -> Shape<U> {
        match self {
            Shape::String => Shape::String,
            Shape::Bool => Shape::Bool,
            Shape::Int32 => Shape::Int32,
            Shape::Int64 => Shape::Int64,
            Shape::Float64 => Shape::Float64,
            Shape::Bytes => Shape::Bytes,
            Shape::Time => Shape::Time,
            Shape::MicroTime => Shape::MicroTime,
            Shape::Quantity => Shape::Quantity,
            Shape::IntOrString => Shape::IntOrString,
            Shape::Raw => Shape::Raw,
            Shape::Any => Shape::Any,
            Shape::SchemaOrBool(of) => Shape::SchemaOrBool(with(of)),
            Shape::SchemaOrArray(of) => Shape::SchemaOrArray(with(of)),
            Shape::SchemaOrStrings(of) => Shape::SchemaOrStrings(with(of)),
            Shape::List(of) => Shape::List(with(of)),
            Shape::Map(of) => Shape::Map(with(of)),
            Shape::Pointer(of) => Shape::Pointer(with(of)),
            Shape::Struct => Shape::Struct,
        }
    }
}

impl Facts {
    /// The default in the OpenAPI document, which the API server does not always apply.
    pub fn default_value(&self) -> Option<Value> {
        json(self.default)
    }

    /// The values allowed.
    pub fn values(&self) -> Option<Value> {
        json(self.values)
    }

    /// The default of each item of a list or map.
    pub fn item_default(&self) -> Option<Value> {
        json(self.item_default)
    }

    /// The values allowed for each item of a list or map.
    pub fn item_values(&self) -> Option<Value> {
        json(self.item_values)
    }

    /// `x-kubernetes-unions` as it stands in the document.
    pub fn unions(&self) -> Option<Value> {
        json(self.unions)
    }
}

fn json(text: Option<&'static str>) -> Option<Value> {
    text.map(|text| serde_json::from_str(text).expect("the pack holds facts as JSON"))
}

/// The first eight bytes of a name, as a number that sorts as they do.
fn beginning(name: &str) -> u64 {
    let mut start = [0; 8];
    let length = name.len().min(8);
    start[..length].copy_from_slice(&name.as_bytes()[..length]);
    u64::from_be_bytes(start)
}

impl TypeDef {
    /// The place of a member, by its JSON name.
    pub(crate) fn member(&self, name: &str) -> Option<usize> {
        let start = beginning(name);
        let from = self.by_name.partition_point(|&(known, _)| known < start);
        let alike = self.by_name[from..].iter().take_while(|&&(known, _)| known == start);
        alike.map(|&(_, place)| usize::from(place)).find(|&place| self.members[place].name == name)
    }

    /// The field with a number in protobuf.
    pub(crate) fn field_numbered(&self, number: u32) -> Option<&FieldDef> {
        let found = self.by_number.binary_search_by_key(&number, |&(known, _)| known).ok()?;
        Some(&self.fields[usize::from(self.by_number[found].1)])
    }

    /// The fields that protobuf has, in the order in which it writes them.
    pub(crate) fn fields_by_number(&self) -> impl Iterator<Item = (u32, &FieldDef)> {
        self.by_number.iter().map(|&(number, place)| (number, &self.fields[usize::from(place)]))
    }

    /// The name that Go's reflection calls `Name()`: without package, and empty for what has no name.
    pub(crate) fn go_short(&self) -> &'static str {
        self.go.rsplit_once('.').map_or(self.go, |(_, short)| short)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job_spec() -> Type {
        Pack::v1_35().named("io.k8s.api.batch.v1.JobSpec").expect("the pack has JobSpec")
    }

    #[test]
    fn finds_types_by_name_and_by_kind() {
        let pack = Pack::v1_35();
        assert_eq!(pack.version(), "v1.35.8");
        let job = pack.of_kind("batch", "v1", "Job").expect("the pack has Job");
        assert_eq!(job.name(), "io.k8s.api.batch.v1.Job");
        assert_eq!(job.go_name(), "v1.Job");
        assert_eq!(pack.named(job.name()), Some(job));
        assert_eq!(pack.of_kind("batch", "v2", "Job"), None);
        assert_eq!(pack.of_kind("", "v1", "Pod").map(Type::go_name), Some("v1.Pod"));
        assert_eq!(
            pack.of_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").map(Type::name),
            Some("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition")
        );
        assert!(pack.of_kind("apiregistration.k8s.io", "v1", "APIService").is_some());
    }

    #[test]
    fn knows_a_field() {
        let parallelism = job_spec().field("parallelism").expect("JobSpec has parallelism");
        assert_eq!(parallelism.go_name(), "Parallelism");
        assert_eq!(parallelism.omit(), Omit::Empty);
        assert_eq!(parallelism.proto(), Some(Proto { number: 1, wire: Wire::Varint }));
        let Shape::Pointer(to) = parallelism.of_type().shape() else { panic!("parallelism is a pointer") };
        assert_eq!(to.shape(), Shape::Int32);
        let template = job_spec().field("template").expect("JobSpec has a template");
        assert!(template.facts().required);
        assert_eq!(template.facts().default_value(), Some(json!({})));
        let mode = job_spec().field("completionMode").expect("JobSpec has completionMode");
        assert_eq!(mode.facts().values(), Some(json!(["Indexed", "NonIndexed"])));
    }

    #[test]
    fn finds_fields_through_inlined_structs() {
        let volume = Pack::v1_35().named("io.k8s.api.core.v1.Volume").expect("the pack has Volume");
        assert_eq!(volume.field("emptyDir").map(Field::go_name), Some("EmptyDir"));
        assert!(volume.fields().any(Field::is_inline));
        assert!(volume.field("VolumeSource").is_none());
    }

    #[test]
    fn api_11_api_12_knows_how_lists_merge() {
        let pack = Pack::v1_35();
        let status = pack.named("io.k8s.api.batch.v1.JobStatus").expect("the pack has JobStatus");
        let conditions = status.field("conditions").expect("JobStatus has conditions").facts();
        assert_eq!(conditions.list, Some(ListType::Atomic));
        assert_eq!((conditions.patch_strategy, conditions.merge_key), (Some("merge"), Some("type")));
        let pods = pack.named("io.k8s.api.batch.v1.UncountedTerminatedPods").expect("the pack has it");
        assert_eq!(pods.field("succeeded").and_then(|field| field.facts().list), Some(ListType::Set));
        let pod = pack.named("io.k8s.api.core.v1.PodSpec").expect("the pack has PodSpec");
        let containers = pod.field("containers").expect("PodSpec has containers").facts();
        assert_eq!((containers.list, &*containers.keys), (Some(ListType::Map), &["name"][..]));
        assert!(pack.named("io.k8s.api.core.v1.ObjectReference").is_some_and(|it| it.facts().atomic));
    }

    #[test]
    fn spec_1_24_patch_strategies_are_complete() {
        let mut found = std::collections::BTreeMap::new();
        for described in Pack::v1_35().named_types() {
            for strategy in described.fields().filter_map(|field| field.facts().patch_strategy) {
                *found.entry(strategy).or_insert(0) += 1;
            }
        }
        assert!(found["merge"] >= 60, "{found:?}");
        assert!(found["merge,retainKeys"] >= 3, "{found:?}");
        assert!(found["retainKeys"] >= 1, "{found:?}");
        assert!(found["replace"] >= 1, "{found:?}");
    }
}
