//! What an expression may cost at most, estimated before it is ever run, as cel-go and Kubernetes' libraries estimate it.
//!
//! Macros cost what cel-go makes of them: a loop that begins with something, does a step for each item, and ends with
//! something. Only the greatest cost is of interest; of sizes the least is, too, where a replacement divides by it.

use std::collections::HashMap;

use super::{
    check,
    signatures::{self, Overload},
    syntax::{Expr, Fold, Kind, Step},
    types::{Library, Type},
};

/// How many characters, items or entries something has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// At least.
    pub min: u64,
    /// At most.
    pub max: u64,
}

/// What is known of the size of what is reached by a path through the variables: the name of one, then names of fields,
/// `@items`, `@keys` and `@values`.
pub type Sizes<'a> = &'a dyn Fn(&[String]) -> Option<Size>;

/// What looking at one character costs, and what one of a pattern does.
const PER_CHARACTER: f64 = 0.1;
const PER_PATTERN_CHARACTER: f64 = 0.25;
const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
/// How long the pattern and the name of a format are taken to be.
const FORMAT_PATTERN: f64 = 128.0;
const FORMAT_NAME: u64 = 64;
const UNKNOWN: Size = Size { min: 0, max: u64::MAX };

/// The greatest cost of `expr`, whose parts were found to have these types.
pub(super) fn estimate(expr: &Expr, types: &HashMap<usize, Type>, sizes: Sizes<'_>) -> u64 {
    let mut coster = Coster { types, sizes, locals: Vec::new() };
    coster.cost(expr).cost
}

impl Size {
    fn exactly(size: u64) -> Size {
        Size { min: size, max: size }
    }

    fn plus(self, other: Size) -> Size {
        Size { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Size) -> Size {
        Size { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn or(self, other: Size) -> Size {
        Size { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn cost(self, each: f64) -> u64 {
        scaled(self.max, each)
    }
}

/// The product, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cel-go computes with floats, too, and conversions from floats saturate"
)]
fn scaled(count: u64, each: f64) -> u64 {
    (count as f64 * each).ceil() as u64
}

/// Sizes of what a list or a map holds.
#[derive(Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Size,
    value: Size,
}

impl Entry {
    fn or(this: Option<Entry>, other: Option<Entry>) -> Option<Entry> {
        let (this, other) = (this?, other?);
        Some(Entry { is_list: this.is_list, key: this.key.or(other.key), value: this.value.or(other.value) })
    }
}

/// What is known of a part of an expression.
#[derive(Clone)]
struct Node {
    cost: u64,
    path: Vec<String>,
    of: Type,
    size: Option<Size>,
    entry: Option<Entry>,
    /// An integer that stands there.
    literal: Option<i64>,
}

impl Node {
    fn size(&self) -> Size {
        self.size.unwrap_or(UNKNOWN)
    }
}

struct Local {
    name: String,
    path: Vec<String>,
    size: Option<Size>,
    entry: Option<Entry>,
}

struct Coster<'a> {
    types: &'a HashMap<usize, Type>,
    sizes: Sizes<'a>,
    locals: Vec<Local>,
}

/// The size of what is of this type, if all such have the same.
fn of_type(of: &Type) -> Option<Size> {
    match of {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => {
            Some(Size::exactly(1))
        }
        Type::Optional(inner) => of_type(inner),
        _ => None,
    }
}

impl Coster<'_> {
    fn of(&self, expr: &Expr) -> Type {
        self.types.get(&check::address(expr)).cloned().unwrap_or(Type::Dyn)
    }

    fn sized(&self, path: &[String], of: &Type) -> Option<Size> {
        let by_path = if path.is_empty() { None } else { (self.sizes)(path) };
        by_path.or_else(|| of_type(of))
    }

    fn plain(&self, expr: &Expr, cost: u64, size: Option<Size>) -> Node {
        let of = self.of(expr);
        let size = size.or_else(|| of_type(&of));
        Node { cost, path: Vec::new(), of, size, entry: None, literal: None }
    }

    fn cost(&mut self, expr: &Expr) -> Node {
        let literal = |this: &Self, size: u64| this.plain(expr, 0, Some(Size::exactly(size)));
        match &expr.kind {
            Kind::Null | Kind::Bool(_) | Kind::Uint(_) | Kind::Double(_) => literal(self, 1),
            Kind::Int(value) => Node { literal: Some(*value), ..literal(self, 1) },
            Kind::String(text) => literal(self, text.chars().count() as u64),
            Kind::Bytes(bytes) => literal(self, bytes.len() as u64),
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, optional } => self.select(expr, operand, field, *optional),
            // That something is there costs nothing more than to look where it would be.
            Kind::Has { operand, .. } => {
                let cost = self.cost(operand).cost;
                self.plain(expr, cost, None)
            }
            Kind::And(terms) | Kind::Or(terms) => {
                let cost = terms.iter().fold(0, |sum: u64, term| sum.saturating_add(self.cost(term).cost));
                self.plain(expr, cost, None)
            }
            Kind::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                let (condition, yes, no) = (self.cost(condition), self.cost(yes), self.cost(no));
                let cost = condition.cost.saturating_add(yes.cost.max(no.cost));
                let node = self.plain(expr, cost, Some(yes.size().or(no.size())));
                Node { entry: Entry::or(yes.entry, no.entry), ..node }
            }
            Kind::Operator { name, args } => self.call(expr, name, None, args),
            Kind::Call { name, target: None, args } if name == "dyn" && args.len() == 1 => {
                let inner = self.cost(&args[0]);
                let node = self.plain(expr, inner.cost.saturating_add(1), inner.size);
                Node { entry: inner.entry, ..node }
            }
            Kind::Call { name, target, args } => self.call(expr, name, target.as_deref(), args),
            Kind::List(items) => {
                let nodes: Vec<Node> = items.iter().map(|item| self.cost(&item.value)).collect();
                self.made(expr, NEW_LIST, &[], &nodes)
            }
            Kind::Map(entries) => {
                let keys: Vec<Node> = entries.iter().map(|entry| self.cost(&entry.key)).collect();
                let values: Vec<Node> = entries.iter().map(|entry| self.cost(&entry.value)).collect();
                self.made(expr, NEW_MAP, &keys, &values)
            }
            Kind::Fold(fold) if fold.step == Step::SortBy => self.sort_by(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
            Kind::OptionalMap { target, name, body, flat } => {
                let target = self.cost(target);
                // Whether it is there, what it is, and what is made of it; an optional of that, or none.
                let value = self.plain(expr, target.cost.saturating_add(1), None);
                self.push(name, Vec::new(), None, None);
                let body = self.cost(body);
                self.locals.pop();
                let bound = NEW_LIST.saturating_add(value.cost).saturating_add(body.cost);
                let there = if *flat { bound } else { bound.saturating_add(1) };
                let cost = target.cost.saturating_add(1).saturating_add(there);
                self.plain(expr, cost, None)
            }
        }
    }

    fn ident(&self, expr: &Expr, name: &str) -> Node {
        let of = self.of(expr);
        let local = self.locals.iter().rev().find(|local| local.name == name);
        let path = local.map_or_else(|| vec![name.to_owned()], |local| local.path.clone());
        let size = self.sized(&path, &of).or_else(|| local.and_then(|local| local.size));
        Node { cost: 1, size, path, of, entry: local.and_then(|local| local.entry), literal: None }
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, optional: bool) -> Node {
        let of = self.of(expr);
        // A name with a dot in it, of a type or a variable.
        if matches!(of, Type::Type(_)) || !self.types.contains_key(&check::address(operand)) {
            let path = vec![field.to_owned()];
            let size = self.sized(&path, &of);
            return Node { cost: 1, size, path, of, entry: None, literal: None };
        }
        let operand = self.cost(operand);
        if optional {
            return self.plain(expr, operand.cost.saturating_add(1), None);
        }
        let own = u64::from(matches!(operand.of, Type::Map(_) | Type::Object(_) | Type::Library(_)));
        let mut path = operand.path;
        path.push(field.to_owned());
        let size = self.sized(&path, &of);
        Node { cost: operand.cost.saturating_add(own), size, path, of, entry: None, literal: None }
    }

    /// A list or a map that stands there.
    fn made(&self, expr: &Expr, base: u64, keys: &[Node], values: &[Node]) -> Node {
        let cost = keys.iter().chain(values).fold(base, |sum, node| sum.saturating_add(node.cost));
        let union = |nodes: &[Node]| {
            let sizes = nodes.iter().map(Node::size).reduce(Size::or);
            sizes.unwrap_or(Size::exactly(0))
        };
        let is_list = base == NEW_LIST;
        let key = if is_list { Size::exactly(1) } else { union(keys) };
        let node = self.plain(expr, cost, Some(Size::exactly(values.len() as u64)));
        Node { entry: Some(Entry { is_list, key, value: union(values) }), ..node }
    }

    fn push(&mut self, name: &str, path: Vec<String>, size: Option<Size>, entry: Option<Entry>) {
        self.locals.push(Local { name: name.to_owned(), path, size, entry });
    }

    /// Puts the variables of a loop in scope; returns how many there are.
    fn enter(&mut self, fold: &Fold, range: &Node) -> usize {
        let is_list = range.entry.map_or(matches!(range.of, Type::List(_)), |entry| entry.is_list);
        let (key, value) = (range.entry.map(|entry| entry.key), range.entry.map(|entry| entry.value));
        let below = |part: &str| [range.path.clone(), vec![part.to_owned()]].concat();
        let Some(second) = &fold.second else {
            let (part, size) = if is_list { ("@items", value) } else { ("@keys", key) };
            self.push(&fold.first, below(part), size, None);
            return 1;
        };
        self.push(&fold.first, below(if is_list { "@indices" } else { "@keys" }), key, None);
        self.push(second, below(if is_list { "@items" } else { "@values" }), value, None);
        2
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Node {
        let range = self.cost(&fold.range);
        let bound = self.enter(fold, &range);
        let filter = fold.filter.as_ref().map(|filter| self.cost(filter));
        let body = self.cost(&fold.body);
        let item = self.first_size(&range, bound);
        self.locals.truncate(self.locals.len() - bound);
        let with = |cost: u64| cost.saturating_add(body.cost);
        let chosen = |cost: u64| filter.as_ref().map_or(cost, |filter| filter.cost.saturating_add(cost));
        // What it begins with, what each step costs with the condition to go on, and what the end does.
        let (begin, each, end) = match fold.step {
            Step::All => (0, with(3), 1),
            Step::Exists => (0, with(4), 1),
            Step::ExistsOne => (0, with(2), 2),
            Step::Filter => (NEW_LIST, with(NEW_LIST + 3), 1),
            Step::Collect | Step::SortBy => (NEW_LIST, chosen(with(NEW_LIST + 2)), 1),
            Step::TransformMap => (NEW_MAP, chosen(with(3)), 1),
            Step::TransformEntry => (NEW_MAP, chosen(with(2)), 1),
        };
        let count = range.size();
        let looped = count.max.saturating_mul(each);
        let cost = [range.cost, begin, end, looped].into_iter().fold(0, u64::saturating_add);
        let kept =
            |size: Size| Some(Entry { is_list: true, key: Size::exactly(1), value: Size { min: 0, ..size } });
        let (size, entry) = match fold.step {
            Step::All | Step::Exists | Step::ExistsOne => (Size::exactly(1), None),
            Step::Filter => (count, kept(item)),
            Step::Collect | Step::SortBy => (count, kept(body.size())),
            Step::TransformMap | Step::TransformEntry => (count, None),
        };
        Node { entry, ..self.plain(expr, cost, Some(size)) }
    }

    /// The size of the first variable of a loop, of which `bound` are in scope.
    fn first_size(&self, range: &Node, bound: usize) -> Size {
        let local = &self.locals[self.locals.len() - bound];
        let of = match &range.of {
            Type::List(list) => list.item.clone(),
            Type::Map(entry) => entry.0.clone(),
            _ => Type::Dyn,
        };
        self.sized(&local.path, &of).or(local.size).unwrap_or(UNKNOWN)
    }

    /// The list is kept under a name, keys are made of it, and it is sorted by them.
    fn sort_by(&mut self, expr: &Expr, fold: &Fold) -> Node {
        let range = self.cost(&fold.range);
        let bound = self.enter(fold, &range);
        let body = self.cost(&fold.body);
        self.locals.truncate(self.locals.len() - bound);
        let count = range.size();
        let keys =
            count.max.saturating_mul(body.cost.saturating_add(NEW_LIST + 2)).saturating_add(NEW_LIST + 2);
        let sorted = sort(count, &body.of);
        let cost = [NEW_LIST, range.cost, 1, keys, sorted].into_iter().fold(0, u64::saturating_add);
        self.plain(expr, cost, Some(count.times(count)))
    }

    fn call(&mut self, expr: &Expr, name: &str, target: Option<&Expr>, args: &[Expr]) -> Node {
        let args: Vec<Node> = args.iter().map(|arg| self.cost(arg)).collect();
        let target = target.map(|target| self.cost(target));
        let of = self.of(expr);
        let types: Vec<Type> = target.iter().chain(&args).map(|node| node.of.clone()).collect();
        let of_args = args.iter().fold(0, |sum: u64, arg| sum.saturating_add(arg.cost));
        let (mut own, mut size, mut path, mut entry) = (0, None, Vec::new(), None);
        for overload in signatures::overloads(name) {
            if overload.member != target.is_some() || !check::fits(overload, &types) {
                continue;
            }
            let (cost, made) = self.function(name, overload, target.as_ref(), &args);
            own = own.max(cost);
            size = match (size, made) {
                (Some(known), Some(made)) => Some(Size::or(known, made)),
                (known, made) => known.or(made),
            };
            if name == "_[_]"
                && let part @ ("@items" | "@values") = match &overload.params[0] {
                    Type::List(_) => "@items",
                    Type::Map(_) => "@values",
                    _ => "",
                }
            {
                size = args[0].entry.map(|entry| entry.value);
                path = [args[0].path.clone(), vec![part.to_owned()]].concat();
            }
            if name == "_+_" && matches!(overload.params[0], Type::List(_) | Type::String | Type::Bytes) {
                entry = Entry::or(args[0].entry, args[1].entry);
            }
        }
        // Without a path to what is indexed there is none to what is found.
        if path.len() == 1 {
            path.clear();
        }
        let size = size.or_else(|| self.sized(&path, &of));
        let of_target = target.map_or(0, |target| target.cost);
        let cost = own.saturating_add(of_args).saturating_add(of_target);
        Node { cost, path, of, size, entry, literal: None }
    }

    /// The size of what stands in a list.
    fn item_size(&self, list: &Node) -> Size {
        if list.path.is_empty() {
            return UNKNOWN;
        }
        let path = [list.path.clone(), vec!["@items".to_owned()]].concat();
        (self.sizes)(&path).unwrap_or(UNKNOWN)
    }

    /// What a call costs besides its arguments, and the size of what it gives.
    fn function(
        &self,
        name: &str,
        overload: &Overload,
        target: Option<&Node>,
        args: &[Node],
    ) -> (u64, Option<Size>) {
        if let Some(estimate) = self.of_libraries(name, overload, target, args) {
            return estimate;
        }
        let first = args.first().map_or(UNKNOWN, Node::size);
        let second = args.get(1).map_or(UNKNOWN, Node::size);
        let params = &overload.params;
        match (name, target) {
            ("format", Some(target)) => (target.size().cost(PER_CHARACTER), None),
            ("bytes", None) if params[0] == Type::String => {
                let size = Size { min: first.min, max: first.max.wrapping_mul(4) };
                (first.cost(PER_CHARACTER), Some(size))
            }
            ("string", None) if params[0] == Type::Bytes => {
                (first.cost(PER_CHARACTER), Some(Size { min: first.min / 4, max: first.max }))
            }
            ("strings.quote", None) => {
                let max = first.max.wrapping_mul(2).wrapping_add(2);
                (first.cost(PER_CHARACTER), Some(Size { min: first.min.wrapping_add(2), max }))
            }
            ("startsWith" | "endsWith", Some(_)) => (first.cost(PER_CHARACTER), None),
            ("@in", None) if matches!(params[1], Type::List(_)) => (second.cost(1.0), None),
            ("matches", Some(target)) => (matched(target.size(), first), None),
            ("contains", Some(target)) => {
                let text = target.size().cost(PER_CHARACTER);
                (text.saturating_mul(first.cost(PER_CHARACTER)), None)
            }
            ("_+_", None) if matches!(params[0], Type::List(_)) => (1, Some(first.plus(second))),
            ("_+_", None) if matches!(params[0], Type::String | Type::Bytes) => {
                let size = first.plus(second);
                (size.cost(PER_CHARACTER), Some(size))
            }
            ("_==_" | "_!=_", None) => (scaled(first.max.min(second.max), PER_CHARACTER), None),
            ("_<_" | "_<=_" | "_>_" | "_>=_", None) if matches!(params[0], Type::String | Type::Bytes) => {
                (scaled(first.max.min(second.max), PER_CHARACTER), None)
            }
            _ => (1, None),
        }
    }

    /// Functions of which Kubernetes or an extension says what they cost.
    fn of_libraries(
        &self,
        name: &str,
        overload: &Overload,
        target: Option<&Node>,
        args: &[Node],
    ) -> Option<(u64, Option<Size>)> {
        let first = args.first().map(Node::size);
        let read = |size: Size| size.cost(PER_CHARACTER);
        let listed = |count: Size, each: f64| (count.cost(each).saturating_add(1 + NEW_LIST), Some(count));
        Some(match (name, target) {
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target)) => {
                match &target.of {
                    Type::List(list) => {
                        let texts = matches!(list.item, Type::String | Type::Bytes);
                        let more = if texts { read(self.item_size(target)) } else { 0 };
                        (target.size().max.saturating_mul(more.saturating_add(1)), None)
                    }
                    _ => (read(target.size()), None),
                }
            }
            ("url", None) => (read(first?), first),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target)) => {
                (read(target.size()), Some(target.size()))
            }
            ("replace", Some(target)) => {
                let size = replaced(target.size(), first?, args.get(1)?.size());
                (target.size().cost(2.0 * PER_CHARACTER), Some(size))
            }
            ("split", Some(target)) => {
                let limit = args.get(1).and_then(|limit| limit.literal);
                let max = limit.map_or(target.size().max, i64::cast_unsigned);
                (target.size().cost(2.0 * PER_CHARACTER), Some(Size { min: 0, max }))
            }
            ("join", Some(target)) => {
                let count = target.size();
                let mut size = match &target.of {
                    Type::List(_) => count.times(self.item_size(target)),
                    _ => Size::exactly(0),
                };
                if let Some(separator) = first {
                    let between = Size { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.plus(separator.times(between));
                }
                (read(size), Some(size))
            }
            ("find" | "findAll", Some(target)) => {
                (matched(target.size(), first?), Some(Size { min: 0, max: target.size().max }))
            }
            ("ip", Some(_)) => (1, None),
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", None) => {
                (read(first?), None)
            }
            ("ip.isCanonical", None) => (first?.cost(2.0 * PER_CHARACTER), None),
            ("containsIP" | "containsCIDR", Some(_)) => {
                let address = Size { min: 4, max: 16 };
                let block = if name == "containsCIDR" { read(address) + 1 } else { 0 };
                let text = if overload.params[1] == Type::String { read(first?) } else { 0 };
                ((read(address.plus(address)) + block).saturating_add(text), None)
            }
            ("validate", Some(_)) => (scaled(read(first?), FORMAT_PATTERN * PER_PATTERN_CHARACTER), None),
            ("_==_", None) if args[0].of == args[1].of => match &args[0].of {
                Type::Library(Library::Format) => (scaled(FORMAT_NAME, PER_CHARACTER), None),
                Type::Library(Library::Url) => {
                    let size = args[1].size.unwrap_or(Size::exactly(1));
                    (scaled(size.max, PER_CHARACTER), None)
                }
                Type::Library(_) => (1, None),
                _ => return None,
            },
            ("sets.contains" | "sets.intersects", None) => {
                (first?.times(args.get(1)?.size()).cost(1.0).saturating_add(1), None)
            }
            ("sets.equivalent", None) => {
                (first?.times(args.get(1)?.size()).cost(2.0).saturating_add(1), None)
            }
            ("slice", Some(target)) => {
                let place = |node: &Node, otherwise: u64| {
                    node.literal.map_or(otherwise, |place| u64::try_from(place).unwrap_or(0))
                };
                let (begin, end) = (place(args.first()?, 0), place(args.get(1)?, target.size().max));
                listed(Size::exactly(end.wrapping_sub(begin)), 1.0)
            }
            ("lists.range", None) => {
                let count = args.first()?.literal.map_or(u64::MAX, |count| u64::try_from(count).unwrap_or(0));
                listed(Size::exactly(count), 1.0)
            }
            ("reverse", Some(target)) => listed(target.size(), 1.0),
            ("flatten", Some(target)) => {
                let depth = args.first().map_or(1, |depth| {
                    depth.literal.map_or(u64::MAX, |depth| u64::try_from(depth).unwrap_or(0))
                });
                #[expect(clippy::cast_precision_loss, reason = "cel-go computes with a float, too")]
                listed(target.size(), depth as f64)
            }
            ("distinct", Some(target)) => listed(target.size().times(target.size()), 2.0),
            ("sort", Some(target)) => {
                let item = match &overload.params[0] {
                    Type::List(list) => list.item.clone(),
                    _ => Type::Dyn,
                };
                (sort(target.size(), &item), Some(target.size().times(target.size())))
            }
            _ => return None,
        })
    }
}

/// Sorting compares everything with everything.
fn sort(count: Size, item: &Type) -> u64 {
    let each = if matches!(item, Type::String | Type::Bytes) { 2.0 + PER_CHARACTER } else { 2.0 };
    count.times(count).cost(each).saturating_add(1 + NEW_LIST)
}

fn matched(text: Size, pattern: Size) -> u64 {
    let text = text.plus(Size::exactly(1)).cost(PER_CHARACTER);
    text.saturating_mul(pattern.cost(PER_PATTERN_CHARACTER))
}

/// How long a text can be once parts of it were replaced.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "as Kubernetes computes it"
)]
fn replaced(text: Size, part: Size, by: Size) -> Size {
    let divided = |text: u64, part: u64| (text as f64 / part as f64).ceil() as u64;
    let (most, kept_at_most) = if part.min == 0 {
        (text.max.saturating_add(1), text.max)
    } else if by.max <= part.min {
        (0, text.max)
    } else {
        (divided(text.max, part.min), 0)
    };
    let (least, kept_at_least) = if part.max == 0 {
        (text.min.saturating_add(1), text.min)
    } else if part.max <= by.min {
        (0, text.min)
    } else {
        (divided(text.min, part.max), 0)
    };
    let kept = Size { min: kept_at_least, max: kept_at_most };
    Size { min: least, max: most }.times(by).plus(kept)
}
