//! Runs a checked expression.
//!
//! `&&` and `||` do not mind in which order their terms stand: an error on one side is forgotten if the other side
//! decides. Macros over lists and maps follow from that. Every step is paid for from a [`Budget`].

use std::{borrow::Cow, rc::Rc};

use super::{
    functions,
    syntax::{Entry, Expr, Fold, Item, Kind, Step},
    types::Type,
    value::{Error, List, Map, Outcome, Value},
};

/// How much work an expression may do. A step costs one, and going through text one for every ten characters.
#[derive(Debug, Clone)]
pub struct Budget {
    left: u64,
}

impl Budget {
    /// A budget of that many steps.
    pub fn new(steps: u64) -> Budget {
        Budget { left: steps }
    }

    /// What is left.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Error> {
        if let Some(left) = self.left.checked_sub(steps as u64) {
            self.left = left;
            Ok(())
        } else {
            self.left = 0;
            Err(Error::Budget)
        }
    }

    pub(super) fn spend_on_text(&mut self, text: &str) -> Result<(), Error> {
        self.spend(text.len() / 10)
    }
}

/// The value of `expr` where the names in `scope` have those values.
pub(super) fn evaluate<'a>(
    expr: &'a Expr,
    scope: Vec<(&'a str, Outcome<'a>)>,
    budget: &mut Budget,
) -> Outcome<'a> {
    let has_dotted = scope.iter().any(|(name, _)| name.contains('.'));
    Evaluator { scope, has_dotted, budget }.eval(expr)
}

struct Evaluator<'a, 'b> {
    /// What cannot be read is an error where it is used, and only there.
    scope: Vec<(&'a str, Outcome<'a>)>,
    /// Whether a variable has a dot in its name.
    has_dotted: bool,
    budget: &'b mut Budget,
}

impl<'a> Evaluator<'a, '_> {
    fn eval(&mut self, expr: &'a Expr) -> Outcome<'a> {
        self.budget.spend(1)?;
        match &expr.kind {
            Kind::Null => Ok(Value::Null),
            Kind::Bool(value) => Ok(Value::Bool(*value)),
            Kind::Int(value) => Ok(Value::Int(*value)),
            Kind::Uint(value) => Ok(Value::Uint(*value)),
            Kind::Double(value) => Ok(Value::Double(*value)),
            Kind::String(text) => Ok(Value::String(Cow::Borrowed(text))),
            Kind::Bytes(bytes) => Ok(Value::Bytes(bytes.as_slice().into())),
            Kind::Ident(name) => self.name(name),
            Kind::Select { operand, field, optional } => self.select(operand, field, *optional),
            Kind::Has { operand, field } => self.has(operand, field),
            Kind::And(terms) => self.chain(terms, false),
            Kind::Or(terms) => self.chain(terms, true),
            Kind::Conditional(parts) => match self.eval(&parts[0])? {
                Value::Bool(true) => self.eval(&parts[1]),
                Value::Bool(false) => self.eval(&parts[2]),
                _ => Err(Error::NoOverload),
            },
            Kind::Operator { name, args } => self.operator(name, args),
            Kind::Call { name, target, args } => self.call(name, target.as_deref(), args),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Fold(fold) => self.fold(fold),
            Kind::OptionalMap { target, name, body, flat } => match self.eval(target)? {
                Value::Optional(None) => Ok(Value::Optional(None)),
                Value::Optional(Some(value)) => {
                    let mapped = self.within(name, (*value).clone(), body)?;
                    Ok(if *flat { mapped } else { Value::some(mapped) })
                }
                _ => Err(Error::NoOverload),
            },
        }
    }

    fn within(&mut self, name: &'a str, value: Value<'a>, body: &'a Expr) -> Outcome<'a> {
        self.scope.push((name, Ok(value)));
        let result = self.eval(body);
        self.scope.pop();
        result
    }

    fn name(&mut self, name: &str) -> Outcome<'a> {
        if let Some((_, value)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
            return value.clone();
        }
        let named = Type::named(name).map(Value::Type);
        named.ok_or_else(|| Error::failed(format!("no such attribute(s): {name}")))
    }

    fn select(&mut self, operand: &'a Expr, field: &'a str, optional: bool) -> Outcome<'a> {
        if let Some(named) = dotted(operand).and_then(|prefix| Type::named(&format!("{prefix}.{field}"))) {
            return Ok(Value::Type(named));
        }
        if self.has_dotted
            && let Kind::Ident(outer) = &operand.kind
            && let Some((_, value)) = self.scope.iter().find(|(name, _)| is_dotted(name, outer, field))
        {
            return value.clone();
        }
        let found = self.eval(operand)?;
        match found {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => Ok(Value::optional(member(&inner, field)?)),
            value if optional => Ok(Value::optional(member(&value, field)?)),
            value => member(&value, field)?.ok_or_else(|| Error::failed(format!("no such key: {field}"))),
        }
    }

    fn has(&mut self, operand: &'a Expr, field: &'a str) -> Outcome<'a> {
        Ok(Value::Bool(match self.eval(operand)? {
            Value::Optional(None) => false,
            Value::Optional(Some(inner)) => member(&inner, field)?.is_some(),
            value => member(&value, field)?.is_some(),
        }))
    }

    /// `&&` (decided by the first false) or `||` (decided by the first true).
    fn chain(&mut self, terms: &'a [Expr], decisive: bool) -> Outcome<'a> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Error::NoOverload)),
                Err(Error::Budget) => return Err(Error::Budget),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn operator(&mut self, name: &str, args: &'a [Expr]) -> Outcome<'a> {
        match args {
            [only] => {
                let value = self.eval(only)?;
                functions::unary(name, &value)
            }
            [left, right] => {
                let left = self.eval(left)?;
                let right = self.eval(right)?;
                functions::binary(name, &left, &right, self.budget)
            }
            _ => Err(Error::NoOverload),
        }
    }

    fn call(&mut self, name: &str, target: Option<&'a Expr>, args: &'a [Expr]) -> Outcome<'a> {
        // What is absent may be replaced by something that is then never looked at.
        if let (Some(target), "or" | "orValue", [otherwise]) = (target, name, args) {
            return match self.eval(target)? {
                Value::Optional(None) => self.eval(otherwise),
                Value::Optional(Some(value)) if name == "orValue" => Ok((*value).clone()),
                value @ Value::Optional(_) => Ok(value),
                _ => Err(Error::NoOverload),
            };
        }
        let mut values = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target {
            values.push(self.eval(target)?);
        }
        for arg in args {
            values.push(self.eval(arg)?);
        }
        functions::call(name, &values, self.budget)
    }

    fn list(&mut self, items: &'a [Item]) -> Outcome<'a> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            match self.eval(&item.value)? {
                Value::Optional(inner) if item.optional => values.extend(inner.map(|inner| (*inner).clone())),
                value => values.push(value),
            }
        }
        Ok(Value::list(values))
    }

    fn map(&mut self, entries: &'a [Entry]) -> Outcome<'a> {
        let mut found: Vec<(Value<'a>, Value<'a>)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = match self.eval(&entry.value)? {
                Value::Optional(None) if entry.optional => continue,
                Value::Optional(Some(inner)) if entry.optional => (*inner).clone(),
                value => value,
            };
            self.budget.spend(found.len())?;
            if found.iter().any(|(known, _)| known.equals(&key)) {
                return Err(Error::failed(format!(
                    "insert failed: key {} already exists",
                    functions::print(&key)
                )));
            }
            found.push((key, value));
        }
        Ok(Value::Map(Map::Owned(Rc::new(found))))
    }

    /// The items of a range as pairs: of index and item, or of key and value.
    fn range(&mut self, fold: &'a Fold) -> Result<Vec<(Value<'a>, Outcome<'a>)>, Error> {
        let range = self.eval(&fold.range)?;
        let pairs: Vec<_> = match &range {
            Value::List(list) => {
                let index = |i| Value::Int(i64::try_from(i).unwrap_or(i64::MAX));
                list.items().enumerate().map(|(i, item)| (index(i), item)).collect()
            }
            Value::Map(map) => map.entries().collect(),
            _ => return Err(Error::NoOverload),
        };
        self.budget.spend(pairs.len())?;
        let by_key = fold.second.is_none() && matches!(range, Value::Map(_));
        Ok(if by_key { pairs.into_iter().map(|(key, _)| (key.clone(), Ok(key))).collect() } else { pairs })
    }

    fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let outside = self.scope.len();
        // Most macros ask whether something holds of the items of a list: for that nothing is put together.
        if let (Step::All | Step::Exists, None) = (fold.step, &fold.second) {
            let result = self.eval(&fold.range).and_then(|range| match &range {
                Value::List(list) => {
                    self.budget.spend(list.len())?;
                    self.decide(fold, list.items().map(|item| (Value::Null, item)), fold.step == Step::Exists)
                }
                Value::Map(map) => {
                    self.budget.spend(map.len())?;
                    let keys = map.entries().map(|(key, _)| (Value::Null, Ok(key)));
                    self.decide(fold, keys, fold.step == Step::Exists)
                }
                _ => Err(Error::NoOverload),
            });
            self.scope.truncate(outside);
            return result;
        }
        let result = self.range(fold).and_then(|pairs| match fold.step {
            Step::All => self.decide(fold, pairs.into_iter(), false),
            Step::Exists => self.decide(fold, pairs.into_iter(), true),
            Step::ExistsOne => self.count(fold, pairs),
            Step::Collect | Step::Filter => self.collect(fold, pairs),
            Step::TransformMap | Step::TransformEntry => self.transform(fold, pairs),
            Step::SortBy => self.sort(fold, pairs),
        });
        self.scope.truncate(outside);
        result
    }

    /// Puts the variables of a macro into scope for one item, in the place of the last one's.
    fn bind(&mut self, fold: &'a Fold, key: &Value<'a>, item: Value<'a>, outside: usize) {
        self.scope.truncate(outside);
        match &fold.second {
            None => self.scope.push((&fold.first, Ok(item))),
            Some(second) => {
                self.scope.push((&fold.first, Ok(key.clone())));
                self.scope.push((second, Ok(item)));
            }
        }
    }

    fn decide(
        &mut self,
        fold: &'a Fold,
        pairs: impl Iterator<Item = (Value<'a>, Outcome<'a>)>,
        decisive: bool,
    ) -> Outcome<'a> {
        let (outside, mut failed) = (self.scope.len(), None);
        for (key, item) in pairs {
            let outcome = item.and_then(|item| {
                self.bind(fold, &key, item, outside);
                self.eval(&fold.body)
            });
            match outcome {
                Ok(Value::Bool(value)) if value == decisive => return Ok(Value::Bool(decisive)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or(Some(Error::NoOverload)),
                Err(Error::Budget) => return Err(Error::Budget),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn holds(&mut self, condition: &'a Expr) -> Result<bool, Error> {
        match self.eval(condition)? {
            Value::Bool(value) => Ok(value),
            _ => Err(Error::NoOverload),
        }
    }

    fn count(&mut self, fold: &'a Fold, pairs: Vec<(Value<'a>, Outcome<'a>)>) -> Outcome<'a> {
        let (outside, mut count) = (self.scope.len(), Ok(0));
        for (key, item) in pairs {
            self.bind(fold, &key, item?, outside);
            // An error does not end it, and a later one takes its place.
            match self.holds(&fold.body) {
                Ok(holds) => count = count.map(|count| count + usize::from(holds)),
                Err(error) => count = Err(error),
            }
        }
        Ok(Value::Bool(count? == 1))
    }

    fn collect(&mut self, fold: &'a Fold, pairs: Vec<(Value<'a>, Outcome<'a>)>) -> Outcome<'a> {
        let (outside, mut found) = (self.scope.len(), Vec::new());
        for (key, item) in pairs {
            let item = item?;
            self.bind(fold, &key, item.clone(), outside);
            if fold.step == Step::Filter {
                if self.holds(&fold.body)? {
                    found.push(item);
                }
            } else if fold.filter.as_ref().map_or(Ok(true), |filter| self.holds(filter))? {
                found.push(self.eval(&fold.body)?);
            }
        }
        Ok(Value::list(found))
    }

    fn transform(&mut self, fold: &'a Fold, pairs: Vec<(Value<'a>, Outcome<'a>)>) -> Outcome<'a> {
        let (outside, mut found) = (self.scope.len(), Vec::<(Value<'a>, Value<'a>)>::new());
        for (key, item) in pairs {
            self.bind(fold, &key, item?, outside);
            if !fold.filter.as_ref().map_or(Ok(true), |filter| self.holds(filter))? {
                continue;
            }
            let value = self.eval(&fold.body)?;
            let entries = match (fold.step, value) {
                (Step::TransformMap, value) => vec![(key, value)],
                (_, Value::Map(map)) => {
                    map.entries().map(|(key, value)| Ok((key, value?))).collect::<Result<_, _>>()?
                }
                _ => return Err(Error::NoOverload),
            };
            for (key, value) in entries {
                self.budget.spend(found.len())?;
                if found.iter().any(|(known, _)| known.equals(&key)) {
                    let key = functions::print(&key);
                    return Err(Error::failed(format!("insert failed: key {key} already exists")));
                }
                found.push((key, value));
            }
        }
        Ok(Value::Map(Map::Owned(Rc::new(found))))
    }

    fn sort(&mut self, fold: &'a Fold, pairs: Vec<(Value<'a>, Outcome<'a>)>) -> Outcome<'a> {
        let (outside, mut keyed) = (self.scope.len(), Vec::new());
        for (key, item) in pairs {
            let item = item?;
            self.bind(fold, &key, item.clone(), outside);
            keyed.push((self.eval(&fold.body)?, item));
        }
        functions::sorted(keyed, self.budget).map(|items| Value::List(List::Owned(Rc::new(items))))
    }
}

/// A field of a structure or an entry of a map.
fn member<'a>(value: &Value<'a>, field: &'a str) -> Result<Option<Value<'a>>, Error> {
    match value {
        Value::Object(object) => object.get(field).transpose(),
        Value::Map(map) => map.get(&Value::String(Cow::Borrowed(field))).transpose(),
        // Nothing has no fields (as measured), which is no error where only their presence is asked for.
        Value::Null => Ok(None),
        _ => Err(Error::NoOverload),
    }
}

fn is_dotted(name: &str, outer: &str, field: &str) -> bool {
    name.strip_prefix(outer).and_then(|rest| rest.strip_prefix('.')) == Some(field)
}

/// `google.protobuf`, `net` or `kubernetes`, before the name of a type.
fn dotted(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) if matches!(name.as_str(), "net" | "kubernetes") => Some(name.clone()),
        Kind::Select { operand, field, .. } if field == "protobuf" => {
            matches!(&operand.kind, Kind::Ident(name) if name == "google")
                .then(|| "google.protobuf".to_owned())
        }
        _ => None,
    }
}
