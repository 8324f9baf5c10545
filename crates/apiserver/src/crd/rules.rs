//! `x-kubernetes-validations`: rules in the Common Expression Language on any node of a schema.
//!
//! [`Rules`] mirrors the part of a schema that has rules. Compiling it declares to [`cel`] what the schema says about
//! each value; running it walks an object next to the old one and finds what a rule may compare.
//!
//! [`cel`]: crate::cel

use std::{collections::BTreeMap, sync::Arc};

use rules::field::{self, Error, Errors, Kind, Path};
use serde_json::Value;

use super::{
    at::{At, Found},
    correlate::{Correlated, Places, same_key},
    extent::Extent,
    field_path,
    go::shown,
    schema::{Additional, ListType, Rule, Schema, Type as SchemaType},
};
use crate::cel::{
    self, Budget, Program,
    types::{Field, List, ListKind, Object, Type, escape},
};

/// What one rule may cost, and all rules of an object together, in steps.
const PER_RULE: u64 = 1_000_000;
const PER_OBJECT: u64 = 10_000_000;
/// How long a computed message may be, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;

/// The compiled rules of a schema node and of the nodes below.
#[derive(Debug, Default)]
pub struct Rules {
    own: Vec<Compiled>,
    /// What `self` is here.
    r#type: Type,
    /// The schema's type, for messages.
    type_name: &'static str,
    properties: BTreeMap<String, Rules>,
    additional: Option<Box<Rules>>,
    items: Option<Box<Rules>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Program,
    /// Whether it is about the change itself.
    is_transition: bool,
    message: Option<Program>,
    /// What both can cost at most.
    costs: (u64, Option<u64>),
    field_path: Option<String>,
}

/// A rule that does not compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Whether it is the message's expression that does not compile.
    pub in_message: bool,
    /// What the compiler says.
    pub why: String,
    /// Whether it is known to be a transition rule all the same.
    pub uses_old_self: bool,
    /// What the rule itself can cost, if that is known.
    pub cost: u64,
}

/// What is known of a rule that compiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// It is a transition rule.
    pub uses_old_self: bool,
    /// What running it once can cost at most, and computing its message.
    pub cost: u64,
    /// The same of its message, if that is computed.
    pub message_cost: Option<u64>,
}

/// The verdicts on the rules of a node, one for each; an empty rule has none.
pub struct Judged {
    /// In the order of the rules.
    pub verdicts: Vec<Option<Result<Accepted, Refused>>>,
    /// How often the node can stand in an object, if nothing bounds it.
    pub most: u64,
}

/// The CEL type of what a schema allows; none if expressions cannot see it.
///
/// `root` says that it is an object of its own, whose type and name are there whatever the schema says.
pub fn declare(schema: &Schema, root: bool) -> Option<Type> {
    if schema.int_or_string {
        return Some(Type::Dyn);
    }
    Some(match schema.r#type? {
        SchemaType::Array => {
            let items = schema.items.as_ref()?;
            let kind = match schema.list_type {
                ListType::Atomic => ListKind::Atomic,
                ListType::Set => ListKind::Set,
                ListType::Map => ListKind::Map(schema.list_map_keys.clone()),
            };
            Type::List(Arc::new(List { item: declare(items, items.embedded)?, kind }))
        }
        SchemaType::Object => {
            if let Additional::Schema(value) = &schema.additional {
                return Some(Type::map(Type::String, declare(value, value.embedded)?));
            }
            Type::Object(Arc::new(object(schema, root)))
        }
        SchemaType::String => match schema.format.as_deref() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        },
        SchemaType::Boolean => Type::Bool,
        SchemaType::Number => Type::Double,
        SchemaType::Integer => Type::Int,
    })
}

fn object(schema: &Schema, root: bool) -> Object {
    let declared = schema.properties.iter().filter_map(|(name, schema)| {
        Some((escape(name)?, Field { name: name.clone(), r#type: declare(schema, schema.embedded)? }))
    });
    let mut fields: BTreeMap<String, Field> = declared.collect();
    if root {
        let text = |name: &str| (name.to_owned(), Field { name: name.to_owned(), r#type: Type::String });
        let name = Object { name: "", fields: BTreeMap::from([text("name"), text("generateName")]) };
        let metadata = Field { name: "metadata".to_owned(), r#type: Type::Object(Arc::new(name)) };
        fields.extend([text("apiVersion"), text("kind"), ("metadata".to_owned(), metadata)]);
    }
    Object { name: "", fields }
}

/// Compiles one rule for values of type `this`.
fn compile(rule: &Rule, this: &Type, schema: &Schema, extent: &Extent) -> Result<Compiled, Refused> {
    let old = if rule.optional_old_self == Some(true) { Type::optional(this.clone()) } else { this.clone() };
    let variables = [("self", this.clone()), ("oldSelf", old)];
    let in_rule = |why: String| Refused { in_message: false, why, uses_old_self: false, cost: 0 };
    let sizes = |path: &[String]| extent.at(path);
    let (program, cost) = Program::costed(&rule.rule, &variables, &sizes)
        .map_err(|issues| in_rule(format!("compilation failed: {issues}")))?;
    if *program.result() != Type::Bool {
        return Err(in_rule("cel expression must evaluate to a bool".to_owned()));
    }
    let uses_old_self = program.uses("oldSelf");
    let in_message = |why: String| Refused { in_message: true, why, uses_old_self, cost };
    let message = if rule.message_expression.is_empty() {
        None
    } else {
        let message = Program::costed(&rule.message_expression, &variables, &sizes)
            .map_err(|issues| in_message(format!("messageExpression compilation failed: {issues}")))?;
        if *message.0.result() != Type::String {
            return Err(in_message("messageExpression must evaluate to a string".to_owned()));
        }
        Some(message)
    };
    let (message, message_cost) = message.map_or((None, None), |(program, cost)| (Some(program), Some(cost)));
    let field_path = field_path::resolve(&rule.field_path, schema, true).ok().map(|(path, _)| path);
    Ok(Compiled {
        rule: rule.clone(),
        is_transition: uses_old_self,
        program,
        message,
        costs: (cost, message_cost),
        field_path: field_path.filter(|path| !path.is_empty()),
    })
}

/// Judges the rules of one node.
pub fn judge(schema: &Schema, root: bool) -> Judged {
    let (this, extent) = (declare(schema, root), Extent::of(schema, root).unwrap_or_default());
    let verdict = |rule: &Rule| {
        let no_type = || Refused {
            in_message: false,
            why: "failed to convert to declType for CEL validation rules".into(),
            uses_old_self: false,
            cost: 0,
        };
        let compiled = this.as_ref().ok_or_else(no_type);
        let compiled = compiled.and_then(|this| compile(rule, this, schema, &extent));
        compiled.map(|compiled| Accepted {
            uses_old_self: compiled.is_transition,
            cost: compiled.costs.0,
            message_cost: compiled.costs.1,
        })
    };
    let verdicts = schema.rules.iter().map(|rule| (!rule.rule.trim().is_empty()).then(|| verdict(rule)));
    Judged { verdicts: verdicts.collect(), most: extent.most() }
}

impl Rules {
    /// Compiles the rules of an accepted schema; none if it has none, or if expressions cannot see such values at all. A
    /// rule that does not compile was refused with its definition, and is left out.
    pub fn new(schema: &Schema, root: bool) -> Option<Rules> {
        if !schema.has_rules() {
            return None;
        }
        let this = declare(schema, root)?;
        let extent = Extent::default();
        let properties = schema.properties.iter();
        let additional = match &schema.additional {
            Additional::Schema(inner) => Rules::new(inner, inner.embedded).map(Box::new),
            _ => None,
        };
        Some(Rules {
            own: schema.rules.iter().filter_map(|rule| compile(rule, &this, schema, &extent).ok()).collect(),
            r#type: this,
            type_name: schema.type_name(),
            properties: properties
                .filter_map(|(name, inner)| Some((name.clone(), Rules::new(inner, inner.embedded)?)))
                .collect(),
            additional,
            items: schema.items.as_ref().and_then(|inner| Rules::new(inner, inner.embedded)).map(Box::new),
        })
    }

    /// Every rule that does not hold for `value`. With an old object, what is wrong with unchanged parts is told in
    /// `warnings` only, except by rules about the change itself.
    pub fn validate(
        &self,
        value: &Value,
        old: Option<&Value>,
        schema: &Schema,
        path: &Path,
        warnings: &mut Vec<String>,
    ) -> Errors {
        let places = Places::default();
        let mut run = Run {
            correlated: old.map(|old| Correlated::new(value, old, schema, &places)),
            places: &places,
            path,
            errors: Errors::new(),
            kept: Vec::new(),
            budget: Budget::new(PER_OBJECT),
            exhausted: false,
        };
        run.visit(self, schema, value, old, &At::ROOT);
        warnings.extend(run.kept);
        run.errors
    }

    /// How many rules there are.
    pub fn count(&self) -> usize {
        let below = self.properties.values().chain(self.additional.as_deref()).chain(self.items.as_deref());
        self.own.len() + below.map(Rules::count).sum::<usize>()
    }
}

struct Run<'a> {
    /// What the object was before.
    correlated: Option<Correlated<'a>>,
    places: &'a Places,
    /// Where the object stands.
    path: &'a Path,
    errors: Errors,
    /// What is wrong and stays as it was.
    kept: Vec<String>,
    budget: Budget,
    exhausted: bool,
}

impl Run<'_> {
    fn visit(&mut self, rules: &Rules, schema: &Schema, value: &Value, old: Option<&Value>, at: &At<'_>) {
        if value.is_null() || self.exhausted {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        for compiled in &rules.own {
            self.run(compiled, rules, value, old, at);
            if self.exhausted {
                return;
            }
        }
        match value {
            Value::Object(fields) => {
                if rules.additional.is_none() && rules.properties.is_empty() {
                    return;
                }
                let old = old.and_then(Value::as_object);
                for (name, value) in fields {
                    if let (Some(inner), Additional::Schema(schema)) = (&rules.additional, &schema.additional)
                    {
                        let old = old.and_then(|old| old.get(name));
                        self.visit(inner, schema, value, old, &at.entry(name));
                    }
                    if let Some(inner) = rules.properties.get(name)
                        && let Some(schema) = schema.properties.get(name)
                    {
                        let old = old.and_then(|old| old.get(name));
                        self.visit(inner, schema, value, old, &at.field(name));
                    }
                }
            }
            Value::Array(items) => {
                let (Some(inner), Some(item_schema)) = (&rules.items, &schema.items) else { return };
                let old = old.and_then(Value::as_array);
                for (index, item) in items.iter().enumerate() {
                    let old = old.and_then(|old| same_key(old, item, schema, self.places));
                    self.visit(inner, item_schema, item, old, &at.item(index));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn run(&mut self, compiled: &Compiled, rules: &Rules, value: &Value, old: Option<&Value>, at: &At<'_>) {
        let Compiled { rule, program, is_transition, .. } = compiled;
        let optional = rule.optional_old_self == Some(true);
        if *is_transition && old.is_none() && !optional {
            return;
        }
        // What a rule does not look at need not be there.
        let seen = old.filter(|_| *is_transition);
        match self.evaluate(program, variables(rules, value, seen, optional && *is_transition)) {
            Ok(cel::Value::Bool(true)) => {}
            Ok(_) => {
                let variables = variables(rules, value, old, optional);
                let error = self.broken(compiled, rules, value, variables, at);
                if *is_transition || !self.is_unchanged(at) {
                    self.errors.push(error);
                } else {
                    self.kept.push(error.to_string());
                }
            }
            Err(error) => self.failed(&error, rules, rule, at),
        }
    }

    /// Whether nothing changed here, or at the nearest place above of which it can be told.
    fn is_unchanged(&self, at: &At<'_>) -> bool {
        let Found { here, above } = at.correlated(self.correlated);
        here.or(above).is_some_and(Correlated::is_unchanged)
    }

    fn evaluate<'a>(
        &mut self,
        program: &'a Program,
        variables: Vec<(&'a str, cel::Outcome<'a>)>,
    ) -> cel::Outcome<'a> {
        let allowed = self.budget.left().min(PER_RULE);
        let mut budget = Budget::new(allowed);
        let outcome = program.run(variables, &mut budget);
        self.budget = Budget::new(self.budget.left() - (allowed - budget.left()));
        outcome
    }

    fn failed(&mut self, error: &cel::Error, rules: &Rules, rule: &Rule, at: &At<'_>) {
        let name = rule_name(rule);
        let detail = match error {
            cel::Error::NoOverload => format!(
                "'{error}': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            cel::Error::Budget => {
                self.exhausted = true;
                format!(
                    "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
                )
            }
            cel::Error::Failed(_) => format!("{error} evaluating rule: {name}"),
        };
        self.errors.push(at.below(self.path).invalid(rules.type_name, detail));
    }

    /// The error of a rule that does not hold.
    fn broken(
        &mut self,
        compiled: &Compiled,
        rules: &Rules,
        value: &Value,
        variables: Vec<(&str, cel::Outcome<'_>)>,
        at: &At<'_>,
    ) -> Error {
        let mut path = at.below(self.path);
        if let Some(field) = &compiled.field_path {
            path = path.child(field);
        }
        let computed =
            compiled.message.as_ref().and_then(|message| match self.evaluate(message, variables) {
                Ok(cel::Value::String(text)) => usable_message(&text),
                _ => None,
            });
        let detail = computed.unwrap_or_else(|| match compiled.rule.message.trim() {
            "" => format!("failed rule: {}", rule_name(&compiled.rule)),
            message => message.to_owned(),
        });
        let structured = matches!(rules.type_name, "object" | "array");
        let value = if structured { field::Value::OMITTED } else { shown(value) };
        match compiled.rule.reason.as_deref() {
            Some("FieldValueForbidden") => path.forbidden(detail),
            Some("FieldValueRequired") => path.required(detail),
            Some("FieldValueDuplicate") => path.duplicate(value),
            _ => path.invalid(value, detail),
        }
    }
}

fn variables<'a>(
    rules: &'a Rules,
    value: &'a Value,
    old: Option<&'a Value>,
    optional: bool,
) -> Vec<(&'a str, cel::Outcome<'a>)> {
    let view = |value: &'a Value| cel::Value::view(value, &rules.r#type);
    let mut variables = vec![("self", view(value))];
    if optional {
        let old = old.map(view).transpose();
        variables.push(("oldSelf", old.map(|old| cel::Value::Optional(old.map(std::rc::Rc::new)))));
    } else if let Some(old) = old {
        variables.push(("oldSelf", view(old)));
    }
    variables
}

fn usable_message(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')).then(|| text.to_owned())
}

fn rule_name(rule: &Rule) -> &str {
    if rule.message.is_empty() { rule.rule.trim() } else { rule.message.trim() }
}

/// Said in the place of rules that were not run, because the object is invalid in a way they may rely on.
pub(crate) fn not_checked(errors: &Errors) -> Option<Error> {
    let blocks = |error: &Error| {
        let kinds = [Kind::NotSupported, Kind::Required, Kind::TooLong, Kind::TooMany, Kind::TypeInvalid];
        kinds.contains(&error.kind)
    };
    errors.iter().any(blocks).then(|| {
        Path::root().invalid(
            field::Value::printed("null"),
            "some validation rules were not checked because the object was invalid; correct the existing errors to \
             complete validation",
        )
    })
}
