//! The authorizer library: expressions that ask what somebody may do.
//!
//! A question is put together step by step, each of which is a value; who answers it is not known here.

use std::{fmt, rc::Rc};

use super::{
    eval::Budget,
    types::Library,
    value::{Error, Outcome, Value},
};

/// A question costs as much as very many steps, so that an expression cannot ask many.
const PER_QUESTION: usize = 80_000;

/// Whoever knows what is allowed.
pub trait Authority {
    /// Whether it is allowed, and by what.
    fn decide(&self, asked: &Question) -> Decision;
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace and name of the service account that it is about; the user of the request if there is none.
    pub service_account: Option<(String, String)>,
    /// A path that is no resource.
    pub path: Option<String>,
    /// The group of a resource.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// A part of it.
    pub subresource: String,
    /// Where it is.
    pub namespace: String,
    /// The name of one.
    pub name: String,
    /// What is to be done.
    pub verb: String,
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// It is allowed.
    pub allowed: bool,
    /// By what; often empty.
    pub reason: String,
}

/// A question on its way.
#[derive(Clone)]
pub struct Check<'a> {
    authority: &'a dyn Authority,
    pub(super) stage: Library,
    question: Rc<Question>,
}

impl fmt::Debug for Check<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check").field("stage", &self.stage).field("question", &self.question).finish()
    }
}

impl<'a> Check<'a> {
    /// The authorizer itself.
    pub fn authorizer(authority: &'a dyn Authority) -> Value<'a> {
        Value::Check(Check { authority, stage: Library::Authorizer, question: Rc::default() })
    }

    /// The question about the resource of a request.
    pub fn resource(authority: &'a dyn Authority, question: Question) -> Value<'a> {
        Value::Check(Check { authority, stage: Library::ResourceCheck, question: Rc::new(question) })
    }

    fn step(&self, stage: Library, add: impl FnOnce(&mut Question)) -> Value<'a> {
        let mut question = (*self.question).clone();
        add(&mut question);
        Value::Check(Check { authority: self.authority, stage, question: Rc::new(question) })
    }
}

/// A function of the library.
pub(super) fn call<'a>(
    check: &Check<'a>,
    name: &str,
    args: &[Value<'a>],
    budget: &mut Budget,
) -> Outcome<'a> {
    use Library::{Authorizer, GroupCheck, PathCheck, ResourceCheck};
    let texts: Vec<String> = args
        .iter()
        .map(|arg| match arg {
            Value::String(text) => Ok(text.clone().into_owned()),
            _ => Err(Error::NoOverload),
        })
        .collect::<Result<_, _>>()?;
    let not_empty = |what: &str, text: &str| {
        if text.trim().is_empty() { Err(Error::failed(format!("{what} must not be empty"))) } else { Ok(()) }
    };
    Ok(match (check.stage, name, texts.as_slice()) {
        (Authorizer, "path", [path]) => {
            not_empty("path", path)?;
            check.step(PathCheck, |asked| asked.path = Some(path.clone()))
        }
        (Authorizer, "group", [group]) => check.step(GroupCheck, |asked| asked.group.clone_from(group)),
        (Authorizer, "serviceAccount", [namespace, name]) => {
            if !rules::names::dns_subdomain(name).is_empty() {
                return Err(Error::failed("Invalid service account name"));
            }
            if !rules::names::dns_label(namespace).is_empty() {
                return Err(Error::failed("Invalid service account namespace"));
            }
            check.step(Authorizer, |asked| asked.service_account = Some((namespace.clone(), name.clone())))
        }
        (GroupCheck, "resource", [resource]) => {
            not_empty("resource", resource)?;
            check.step(ResourceCheck, |asked| asked.resource.clone_from(resource))
        }
        (ResourceCheck, "subresource", [text]) => {
            check.step(ResourceCheck, |asked| asked.subresource.clone_from(text))
        }
        (ResourceCheck, "namespace", [text]) => {
            check.step(ResourceCheck, |asked| asked.namespace.clone_from(text))
        }
        (ResourceCheck, "name", [text]) => check.step(ResourceCheck, |asked| asked.name.clone_from(text)),
        // Roles do not speak of selectors.
        (ResourceCheck, "fieldSelector" | "labelSelector", [_]) => Value::Check(check.clone()),
        (PathCheck | ResourceCheck, "check", [verb]) => {
            budget.spend(PER_QUESTION)?;
            let question = Question { verb: verb.clone(), ..(*check.question).clone() };
            Value::Decision(Rc::new(check.authority.decide(&question)))
        }
        _ => return Err(Error::NoOverload),
    })
}

/// What can be asked of an answer. That none was found is an answer, too.
pub(super) fn told<'a>(decision: &Decision, name: &str) -> Outcome<'a> {
    match name {
        "allowed" => Ok(Value::Bool(decision.allowed)),
        "errored" => Ok(Value::Bool(false)),
        "error" => Ok(Value::text("")),
        "reason" => Ok(Value::text(decision.reason.clone())),
        _ => Err(Error::NoOverload),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cel::{Program, types::Type};

    struct Echo;

    impl Authority for Echo {
        fn decide(&self, asked: &Question) -> Decision {
            Decision { allowed: asked.name == "a", reason: format!("{asked:?}") }
        }
    }

    fn run(source: &str) -> Result<String, Error> {
        let names = [
            ("authorizer", Type::Library(Library::Authorizer)),
            ("authorizer.requestResource", Type::Library(Library::ResourceCheck)),
        ];
        let program = Program::compile(source, &names).expect("an expression");
        let own = Question { resource: "own".to_owned(), name: "a".to_owned(), ..Question::default() };
        let known = vec![
            ("authorizer", Ok(Check::authorizer(&Echo))),
            ("authorizer.requestResource", Ok(Check::resource(&Echo, own))),
        ];
        match program.run(known, &mut Budget::new(1_000_000))? {
            Value::Bool(value) => Ok(value.to_string()),
            Value::String(text) => Ok(text.into_owned()),
            other => Ok(format!("{other:?}")),
        }
    }

    #[test]
    fn rule_3_20_what_is_asked_of_the_authorizer() {
        let pods = "authorizer.group('g').resource('pods').subresource('s').namespace('n')";
        let told = run(&format!("{pods}.check('get').reason()")).expect("an answer");
        for part in [
            r#"group: "g""#,
            r#"resource: "pods""#,
            r#"subresource: "s""#,
            r#"namespace: "n""#,
            r#"verb: "get""#,
        ] {
            assert!(told.contains(part), "{told}");
        }
        assert_eq!(run(&format!("{pods}.name('a').check('get').allowed()")).as_deref(), Ok("true"));
        assert_eq!(run("authorizer.requestResource.check('get').allowed()").as_deref(), Ok("true"));
        assert_eq!(run("authorizer.path('/x').check('get').errored()").as_deref(), Ok("false"));
        let account = run("authorizer.serviceAccount('n', 'a').path('/x').check('get').reason()");
        assert!(account.expect("an answer").contains(r#"service_account: Some(("n", "a"))"#));
        let failed = |source: &str| run(source).expect_err("a mistake").to_string();
        assert_eq!(failed("authorizer.path('').check('get').allowed()"), "path must not be empty");
        assert_eq!(
            failed("authorizer.serviceAccount('n', '-').path('/').check('get').allowed()"),
            "Invalid service account name"
        );
    }
}
