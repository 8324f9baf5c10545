//! Types an expression, so that what cannot work is refused when the rule is written and not when it is used.

use std::collections::{BTreeMap, HashMap};

use super::{
    format,
    issue::Issue,
    signatures::{self, Overload},
    syntax::{Expr, Fold, Kind, Step},
    types::Type,
};

/// The type of an expression, and what it refers to.
pub(super) struct Checked {
    pub r#type: Type,
    /// Names of the given variables that the expression uses.
    pub used: Vec<String>,
    /// The types of its parts, by where they are in memory.
    pub types: HashMap<usize, Type>,
}

/// What a part of an expression is known by, as long as it stays where it is.
pub(super) fn address(expr: &Expr) -> usize {
    std::ptr::from_ref(expr).addr()
}

/// Whether arguments of these types can be given.
pub(super) fn fits(overload: &Overload, args: &[Type]) -> bool {
    apply(overload, args).is_some()
}

/// Checks `expr` with `variables` in scope.
pub(super) fn check(expr: &Expr, variables: &[(&str, Type)]) -> Result<Checked, Vec<Issue>> {
    let scope = variables.iter().map(|(name, r#type)| ((*name).to_owned(), r#type.clone())).collect();
    let mut checker = Checker {
        scope,
        given: variables.len(),
        used: Vec::new(),
        issues: Vec::new(),
        literals: Vec::new(),
        in_format: false,
        types: HashMap::new(),
    };
    let r#type = checker.check(expr);
    // Literals are looked at once all types are right.
    if checker.issues.is_empty() {
        checker.issues = checker.literals;
    }
    if checker.issues.is_empty() {
        Ok(Checked { r#type, used: checker.used, types: checker.types })
    } else {
        Err(checker.issues)
    }
}

struct Checker {
    scope: Vec<(String, Type)>,
    /// How many of the scope's names were given from outside.
    given: usize,
    used: Vec<String>,
    issues: Vec<Issue>,
    /// What is wrong with literals that can only fail when they are used.
    literals: Vec<Issue>,
    /// What is formatted may be of any types, though it stands in a list.
    in_format: bool,
    types: HashMap<usize, Type>,
}

impl Checker {
    /// Notes an issue; the part it is about fits everywhere from then on, so that one mistake is reported once.
    fn issue(&mut self, at: usize, message: impl Into<String>) -> Type {
        // The compiler has short names for types that have long ones when it runs.
        let message = message.into();
        let message = message.replace("google.protobuf.Timestamp", "timestamp");
        let message = message.replace("google.protobuf.Duration", "duration");
        self.issues.push(Issue::at(at, message));
        Type::Wrong
    }

    fn check(&mut self, expr: &Expr) -> Type {
        let found = self.type_of(expr);
        self.types.insert(address(expr), found.clone());
        found
    }

    fn type_of(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            Kind::Null => Type::Null,
            Kind::Bool(_) => Type::Bool,
            Kind::Int(_) => Type::Int,
            Kind::Uint(_) => Type::Uint,
            Kind::Double(_) => Type::Double,
            Kind::String(_) => Type::String,
            Kind::Bytes(_) => Type::Bytes,
            Kind::Ident(name) => self.name(name, expr.at),
            Kind::Select { operand, field, optional } => self.select(expr.at, operand, field, *optional),
            Kind::Has { operand, field } => {
                self.select(expr.at, operand, field, false);
                Type::Bool
            }
            Kind::And(terms) | Kind::Or(terms) => self.chain(terms),
            Kind::Conditional(parts) => {
                let types = parts.iter().map(|part| self.check(part)).collect();
                self.resolve(expr.at, "_?_:_", types, false)
            }
            Kind::Operator { name, args } => {
                let types = args.iter().map(|arg| self.check(arg)).collect();
                self.resolve(expr.at, name, types, false)
            }
            Kind::Call { name, target, args } => self.call(expr.at, name, target.as_deref(), args),
            Kind::List(items) => {
                let mut joined = None;
                for item in items {
                    let found = self.check(&item.value);
                    let found = self.unwrapped(found, item.optional, item.value.at);
                    joined = Some(self.join(joined, found, item.value.at));
                }
                Type::list(joined.unwrap_or(Type::Dyn))
            }
            Kind::Map(entries) => {
                let (mut keys, mut values) = (None, None);
                for entry in entries {
                    let key = self.check(&entry.key);
                    keys = Some(self.join(keys, key, entry.key.at));
                    let value = self.check(&entry.value);
                    let value = self.unwrapped(value, entry.optional, entry.value.at);
                    values = Some(self.join(values, value, entry.value.at));
                }
                Type::map(keys.unwrap_or(Type::Dyn), values.unwrap_or(Type::Dyn))
            }
            Kind::Fold(fold) => self.fold(expr.at, fold),
            Kind::OptionalMap { target, name, body, flat } => {
                let found = self.check(target);
                let inner = match &found {
                    Type::Optional(inner) => (**inner).clone(),
                    Type::Dyn | Type::Any | Type::Wrong => Type::Dyn,
                    other => {
                        self.issue(target.at, format!("expected type 'optional_type' but found '{other}'"))
                    }
                };
                let mapped = self.within(vec![(name.clone(), inner)], |checker| checker.check(body));
                if *flat { mapped } else { Type::optional(mapped) }
            }
        }
    }

    fn within<T>(&mut self, names: Vec<(String, Type)>, body: impl FnOnce(&mut Self) -> T) -> T {
        let outside = self.scope.len();
        self.scope.extend(names);
        let result = body(self);
        self.scope.truncate(outside);
        result
    }

    fn name(&mut self, name: &str, at: usize) -> Type {
        if let Some((index, r#type)) = self
            .scope
            .iter()
            .enumerate()
            .rev()
            .find_map(|(i, (known, t))| (known == name).then(|| (i, t.clone())))
        {
            if index < self.given && !self.used.iter().any(|used| used == name) {
                self.used.push(name.to_owned());
            }
            return r#type;
        }
        match Type::named(name) {
            Some(named) => Type::of(named),
            None => self.issue(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, at: usize, operand: &Expr, field: &str, optional: bool) -> Type {
        if let Some(qualified) = qualified_type(operand, field) {
            return Type::of(qualified);
        }
        if let Kind::Ident(outer) = &operand.kind
            && !optional
        {
            let dotted = format!("{outer}.{field}");
            if self.scope[..self.given].iter().any(|(name, _)| *name == dotted) {
                return self.name(&dotted, at);
            }
        }
        let found = self.check(operand);
        let (inner, absent) = match &found {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let selected = match &inner {
            Type::Dyn | Type::Any => Type::Dyn,
            Type::Wrong => Type::Wrong,
            Type::Map(entry) => entry.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(field) => field.r#type.clone(),
                None => self.issue(at, format!("undefined field '{field}'")),
            },
            other => self.issue(at, format!("type '{other}' does not support field selection")),
        };
        match (absent || optional, selected) {
            (true, already @ Type::Optional(_)) if absent => already,
            (true, selected) => Type::optional(selected),
            (false, selected) => selected,
        }
    }

    /// Terms of a chain of `&&` or `||`.
    fn chain(&mut self, terms: &[Expr]) -> Type {
        for term in terms {
            let found = self.check(term);
            if !matches!(found, Type::Bool | Type::Dyn | Type::Any | Type::Wrong) {
                self.issue(term.at, format!("expected type 'bool' but found '{found}'"));
            }
        }
        Type::Bool
    }

    fn call(&mut self, at: usize, name: &str, target: Option<&Expr>, args: &[Expr]) -> Type {
        let mut types = Vec::with_capacity(args.len() + 1);
        if let Some(target) = target {
            types.push(self.check(target));
        }
        let outside = self.in_format;
        self.in_format |= name == "format";
        let formatted = format::literal(target, args).filter(|_| name == "format");
        if let Some((text, values)) = formatted {
            let of_values: Vec<Type> = values.iter().map(|value| self.check(value)).collect();
            self.literals.extend(format::check(text, &values, &of_values, at));
            types.push(Type::list(Type::Dyn));
        } else {
            types.extend(args.iter().map(|arg| self.check(arg)).collect::<Vec<_>>());
        }
        self.in_format = outside;
        if signatures::overloads(name).is_empty() {
            return self.issue(at, format!("undeclared reference to '{name}' (in container '')"));
        }
        if wrong_literal(name, target, args) {
            let at = args.last().map_or(at, |arg| arg.at);
            self.literals.push(Issue::at(at, format!("invalid {name} argument")));
        }
        self.resolve(at, name, types, target.is_some())
    }

    fn resolve(&mut self, at: usize, name: &str, args: Vec<Type>, member: bool) -> Type {
        let mut result: Option<Type> = None;
        for overload in signatures::overloads(name).iter().filter(|overload| overload.member == member) {
            let Some(found) = apply(overload, &args) else { continue };
            result = Some(match result {
                Some(other) if other != found => Type::Dyn,
                _ => found,
            });
        }
        match result {
            Some(result) => result,
            None => self.no_overload(at, name, &args, member),
        }
    }

    fn no_overload(&mut self, at: usize, name: &str, args: &[Type], member: bool) -> Type {
        let printed = |args: &[Type]| args.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = match args {
            [target, args @ ..] if member => format!("{target}.({})", printed(args)),
            args => format!("({})", printed(args)),
        };
        self.issue(at, format!("found no matching overload for '{name}' applied to '{applied}'"))
    }

    /// The common type of the items of a literal: Kubernetes wants them all alike.
    fn join(&mut self, joined: Option<Type>, found: Type, at: usize) -> Type {
        match joined {
            None => found,
            Some(known) if known.is_dyn() || found.is_dyn() => Type::Dyn,
            Some(known) if unify(&known, &found, &mut BTreeMap::new()) => known,
            Some(_) if self.in_format => Type::Dyn,
            Some(known) => self.issue(at, format!("expected type '{known}' but found '{found}'")),
        }
    }

    fn unwrapped(&mut self, found: Type, optional: bool, at: usize) -> Type {
        match found {
            Type::Optional(inner) if optional => (*inner).clone(),
            other if optional && !other.is_dyn() => {
                self.issue(at, format!("expected type 'optional_type({other})' but found '{other}'"))
            }
            other => other,
        }
    }

    fn fold(&mut self, at: usize, fold: &Fold) -> Type {
        let range = self.check(&fold.range);
        let (key, value, item) = match &range {
            Type::Dyn | Type::Any | Type::Wrong => (Type::Dyn, Type::Dyn, Type::Dyn),
            Type::List(list) => (Type::Int, list.item.clone(), list.item.clone()),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone(), entry.0.clone()),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(fold.range.at, message);
                (Type::Dyn, Type::Dyn, Type::Dyn)
            }
        };
        let names = match &fold.second {
            Some(second) => vec![(fold.first.clone(), key.clone()), (second.clone(), value)],
            None => vec![(fold.first.clone(), item.clone())],
        };
        self.within(names, |checker| match fold.step {
            Step::All | Step::Exists => {
                checker.must_be_bool(&fold.body);
                Type::Bool
            }
            Step::ExistsOne => {
                checker.decides(at, &fold.body, &Type::Int);
                Type::Bool
            }
            Step::Filter => {
                let kept = Type::list(item);
                checker.decides(at, &fold.body, &kept);
                kept
            }
            Step::Collect => {
                let collected = Type::list(checker.check(&fold.body));
                checker.filters(at, fold, &collected);
                collected
            }
            Step::TransformMap => {
                let made = Type::map(key, checker.check(&fold.body));
                checker.filters(at, fold, &made);
                made
            }
            Step::TransformEntry => {
                let made = match checker.check(&fold.body) {
                    entry @ (Type::Map(_) | Type::Dyn | Type::Any | Type::Wrong) => entry,
                    other => checker.issue(fold.body.at, format!("expected type 'map' but found '{other}'")),
                };
                checker.filters(at, fold, &made);
                made
            }
            Step::SortBy => {
                checker.check(&fold.body);
                Type::list(item)
            }
        })
    }

    fn filters(&mut self, at: usize, fold: &Fold, result: &Type) {
        if let Some(filter) = &fold.filter {
            self.decides(at, filter, result);
        }
    }

    /// A macro's condition chooses between two results, which is how cel-go speaks of it.
    fn decides(&mut self, at: usize, condition: &Expr, result: &Type) {
        match self.check(condition) {
            Type::Bool | Type::Dyn | Type::Any | Type::Wrong => {}
            other => drop(self.no_overload(at, "_?_:_", &[other, result.clone(), result.clone()], false)),
        }
    }

    fn must_be_bool(&mut self, expr: &Expr) {
        match self.check(expr) {
            Type::Bool | Type::Dyn | Type::Any | Type::Wrong => {}
            other => {
                self.issue(expr.at, format!("expected type 'bool' but found '{other}'"));
            }
        }
    }
}

/// `net.IP` and the like, written as a field of something that is no variable.
fn qualified_type(operand: &Expr, field: &str) -> Option<Type> {
    let prefix = match &operand.kind {
        Kind::Ident(name) if matches!(name.as_str(), "net" | "kubernetes") => name.clone(),
        Kind::Select { operand, field, .. } => match &operand.kind {
            Kind::Ident(name) if name == "google" && field == "protobuf" => "google.protobuf".to_owned(),
            _ => return None,
        },
        _ => return None,
    };
    Type::named(&format!("{prefix}.{field}"))
}

/// Whether a literal can only fail when it is used.
fn wrong_literal(name: &str, target: Option<&Expr>, args: &[Expr]) -> bool {
    let Some(literal) = args.last().map(|arg| &arg.kind) else { return false };
    match (name, target.is_some(), args.len(), literal) {
        ("duration", false, 1, Kind::String(text)) => super::time::duration(text).is_none(),
        // It has a type, and no meaning.
        ("duration", false, 1, Kind::Int(_)) => true,
        ("timestamp", false, 1, Kind::String(text)) => super::time::timestamp(text).is_none(),
        ("matches", true, 1, Kind::String(text)) | ("matches", false, 2, Kind::String(text)) => {
            crate::crd::pattern::compile(text).is_err()
        }
        _ => false,
    }
}

/// The result of calling `overload` with `args`, if that fits.
fn apply(overload: &Overload, args: &[Type]) -> Option<Type> {
    if overload.params.len() != args.len() {
        return None;
    }
    let mut bound = BTreeMap::new();
    let fits = overload.params.iter().zip(args).all(|(param, arg)| unify(param, arg, &mut bound));
    fits.then(|| substitute(&overload.result, &bound))
}

/// Whether a value of type `arg` may stand where `param` is wanted; binds type variables on the way.
fn unify(param: &Type, arg: &Type, bound: &mut BTreeMap<char, Type>) -> bool {
    if let Type::Param(name) = param {
        return match bound.get(name).cloned() {
            None => {
                bound.insert(*name, arg.clone());
                true
            }
            Some(Type::Dyn | Type::Any | Type::Wrong) => true,
            Some(Type::Null) if nullable(arg) => {
                bound.insert(*name, arg.clone());
                true
            }
            Some(known) => unify(&known, arg, bound),
        };
    }
    match (param, arg) {
        (Type::Dyn | Type::Any | Type::Wrong, _)
        | (_, Type::Dyn | Type::Any | Type::Wrong)
        | (Type::Type(_), Type::Type(_)) => true,
        (param, Type::Null) | (Type::Null, param) if nullable(param) => true,
        (Type::List(param), Type::List(arg)) => unify(&param.item, &arg.item, bound),
        (Type::Map(param), Type::Map(arg)) => {
            unify(&param.0, &arg.0, bound) && unify(&param.1, &arg.1, bound)
        }
        (Type::Optional(param), Type::Optional(arg)) => unify(param, arg, bound),
        (param, arg) => param == arg,
    }
}

fn nullable(r#type: &Type) -> bool {
    let structure = matches!(r#type, Type::Null | Type::Object(_) | Type::Library(_) | Type::Optional(_));
    structure || matches!(r#type, Type::Duration | Type::Timestamp)
}

fn substitute(r#type: &Type, bound: &BTreeMap<char, Type>) -> Type {
    match r#type {
        Type::Param(name) => bound.get(name).cloned().unwrap_or(Type::Dyn),
        Type::List(list) => Type::list(substitute(&list.item, bound)),
        Type::Map(entry) => Type::map(substitute(&entry.0, bound), substitute(&entry.1, bound)),
        Type::Optional(inner) => Type::optional(substitute(inner, bound)),
        Type::Type(inner) => Type::of(substitute(inner, bound)),
        other => other.clone(),
    }
}
