//! The tree of an expression.

/// A node of the tree.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expr {
    /// Byte offset of what the compiler points at: an operator, a bracket, the start of a name.
    pub at: usize,
    /// How many nodes deep it is, at most.
    pub depth: usize,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Ident(String),
    /// `operand.field`, or `operand.?field`, which is absent where the field is.
    Select {
        operand: Box<Expr>,
        field: String,
        optional: bool,
    },
    /// `has(operand.field)`
    Has {
        operand: Box<Expr>,
        field: String,
    },
    /// `a && b && …`, kept flat.
    And(Vec<Expr>),
    /// `a || b || …`, kept flat.
    Or(Vec<Expr>),
    Conditional(Box<[Expr; 3]>),
    /// An operator, under the name cel-go gives it: `_+_`.
    Operator {
        name: &'static str,
        args: Vec<Expr>,
    },
    Call {
        name: String,
        target: Option<Box<Expr>>,
        args: Vec<Expr>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    Fold(Box<Fold>),
    /// `target.optMap(name, body)`, or with `flat`, `target.optFlatMap(name, body)`.
    OptionalMap {
        target: Box<Expr>,
        name: String,
        body: Box<Expr>,
        flat: bool,
    },
}

/// An item of a list literal; an optional one is left out where absent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub value: Expr,
    pub optional: bool,
}

/// An entry of a map literal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub key: Expr,
    pub value: Expr,
    pub optional: bool,
}

/// A macro that goes through a list or a map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fold {
    pub step: Step,
    pub range: Expr,
    /// The item, or the key of a map.
    pub first: String,
    /// With two variables, `first` is the index or key and this is the item or value.
    pub second: Option<String>,
    /// Only items for which this holds are taken.
    pub filter: Option<Expr>,
    pub body: Expr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    All,
    Exists,
    ExistsOne,
    /// A list of the body's values.
    Collect,
    /// The items for which the body holds.
    Filter,
    /// A map with the same keys and the body's values.
    TransformMap,
    /// A map of the entries that the body gives.
    TransformEntry,
    /// The items in the order of the body's values.
    SortBy,
}
