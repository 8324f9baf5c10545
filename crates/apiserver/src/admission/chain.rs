//! The plugins of a cluster, and how a verb asks them.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use store::Store;

use super::certificates::Certificates;
use super::claims::ClaimResize;
use super::classes::DefaultClasses;
use super::marks::Marks;
use super::plugin::{Again, Operation, Plugin, Request, whole};
use super::pods::limits::LimitRanger;
use super::pods::priority::Priority;
use super::pods::runtime_class::RuntimeClasses;
use super::pods::security::PodSecurity;
use super::pods::service_account::ServiceAccounts;
use super::pods::tolerations::DefaultTolerationSeconds;
use super::pods::topology::TopologyLabels;
use super::policies::Policies;
use super::quotas::Quotas;
use super::webhooks::{Mutating, Validating};
use crate::auth::rbac::{Authorizer, Escalation};
use crate::body::DeleteOptions;
use crate::cluster::Context;
use crate::object;
use crate::registry::Resource;
use crate::status::Refusal;
use crate::verbs::create;
use crate::verbs::scale::Shown;
use crate::webhook::Caller;

/// The plugins of a cluster, in their order.
pub(crate) struct Chain {
    plugins: Vec<Arc<dyn Plugin>>,
}

impl Chain {
    /// The plugins that every cluster has, with others in their place (3.14).
    pub(crate) fn of(
        store: &Store,
        authorizer: &Arc<Authorizer>,
        has_service_accounts: bool,
        others: Vec<Arc<dyn Plugin>>,
    ) -> Self {
        let mut plugins: Vec<Arc<dyn Plugin>> = vec![Arc::new(LimitRanger(store.clone()))];
        if has_service_accounts {
            plugins.push(Arc::new(ServiceAccounts(store.clone())));
        }
        plugins.push(Arc::new(Marks));
        plugins.push(Arc::new(PodSecurity(store.clone())));
        plugins.push(Arc::new(Priority(store.clone())));
        plugins.push(Arc::new(DefaultTolerationSeconds));
        plugins.push(Arc::new(DefaultClasses(store.clone())));
        plugins.push(Arc::new(ClaimResize(store.clone())));
        plugins.push(Arc::new(RuntimeClasses(store.clone())));
        plugins.push(Arc::new(Certificates(authorizer.clone())));
        plugins.push(Arc::new(TopologyLabels(store.clone())));
        plugins.extend(others);
        let caller = Caller::new(store.clone());
        plugins.push(Arc::new(Mutating::new(store, &caller)));
        plugins.push(Arc::new(Policies::new(store)));
        plugins.push(Arc::new(Validating::new(store, &caller)));
        plugins.push(Arc::new(Escalation(authorizer.clone())));
        plugins.push(Arc::new(Quotas::new(store)));
        Chain { plugins }
    }

    fn wanting<'a>(
        &'a self,
        context: &'a Context<'_>,
        operation: Operation,
    ) -> impl Iterator<Item = &'a Arc<dyn Plugin>> {
        let subresource = context.target.subresource.as_deref().unwrap_or("");
        self.plugins.iter().filter(move |plugin| plugin.wants(operation, context.resource, subresource))
    }

    fn mutating<'a>(&'a self, context: &'a Context<'_>, operation: Operation) -> Vec<&'a Arc<dyn Plugin>> {
        let wanting = self.wanting(context, operation);
        wanting.filter(|plugin| plugin.mutates(operation, context.resource)).collect()
    }
}

/// What is written.
pub(crate) struct Sent<'a, 'o> {
    /// As it was sent.
    pub(crate) body: &'a Value,
    /// As it would be stored, without managers, if that is known already.
    pub(crate) canonical: Option<&'o Value>,
    /// The object as it is; `None` when it is made.
    pub(crate) old: Option<&'o Value>,
}

impl Sent<'_, '_> {
    /// As plugins see it: as it would be stored.
    fn seen(&self, context: &Context<'_>) -> Value {
        let mut seen = match self.canonical {
            None => context.canonical(self.body, self.old),
            Some(canonical) => {
                let mut seen = canonical.clone();
                let managers = &self.body["metadata"]["managedFields"];
                if !managers.is_null() {
                    seen["metadata"]["managedFields"] = managers.clone();
                }
                seen
            }
        };
        if !context.namespace().is_empty() && object::text(&seen, &["metadata", "namespace"]).is_empty() {
            seen["metadata"]["namespace"] = json!(context.namespace());
        }
        seen
    }
}

/// The body of a write as the plugins leave it. It stays as it was sent if none of them changes anything.
pub(crate) async fn mutated<'a>(
    context: &Context<'_>,
    operation: Operation,
    sent: Sent<'a, '_>,
    warnings: &mut Vec<String>,
) -> Result<Cow<'a, Value>, Refusal> {
    let chain = context.cluster.admission();
    let plugins = chain.mutating(context, operation);
    if plugins.is_empty() {
        return Ok(Cow::Borrowed(sent.body));
    }
    let Sent { body, old, .. } = sent;
    let options = options(context, operation);
    if let Some(Shown { of, new, old }) = Shown::of(context, body, old) {
        let mut request =
            Request { of, ..request(context, operation, &options, Some(new.clone()), Some(&old)) };
        in_rounds(&plugins, &mut request).await?;
        warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
        let changed = request.object.filter(|scale| *scale != new);
        let changed = changed.and_then(|scale| Shown::applied(context, body, &scale));
        return Ok(changed.map_or(Cow::Borrowed(body), Cow::Owned));
    }
    let seen = sent.seen(context);
    let mut request = request(context, operation, &options, Some(seen.clone()), old);
    in_rounds(&plugins, &mut request).await?;
    let (object, said) = (request.object.take(), request.warnings);
    warnings.append(&mut said.into_inner().unwrap_or_else(PoisonError::into_inner));
    match object.filter(|object| *object != seen) {
        None => Ok(Cow::Borrowed(body)),
        Some(object) => {
            if let Some(custom) = &context.resource.custom {
                return custom.reread_admitted(object).map(Cow::Owned);
            }
            let decoded = schema::decode_value(context.resource.of_type(), &object);
            let mut decoded = decoded.map_err(|why| Refusal::internal(why.to_string()))?.value;
            restore_empty(&mut decoded, body);
            Ok(Cow::Owned(decoded))
        }
    }
}

/// What was sent empty stands in a body, because refusals show it, and not in the form that plugins see.
fn restore_empty(object: &mut Value, sent: &Value) {
    match (object, sent) {
        (Value::Object(object), Value::Object(sent)) => {
            for (name, sent) in sent {
                let is_empty = matches!(sent, Value::Array(items) if items.is_empty())
                    || matches!(sent, Value::Object(fields) if fields.is_empty());
                match object.get_mut(name) {
                    Some(value) => restore_empty(value, sent),
                    None if is_empty => drop(object.insert(name.clone(), sent.clone())),
                    None => {}
                }
            }
        }
        (Value::Array(object), Value::Array(sent)) => {
            object.iter_mut().zip(sent).for_each(|(value, sent)| restore_empty(value, sent));
        }
        _ => {}
    }
}

/// Asks the plugins about a write as it would be stored, and gives it back.
pub(crate) async fn validated(
    context: &Context<'_>,
    operation: Operation,
    object: Value,
    old: Option<&Value>,
    warnings: &mut Vec<String>,
) -> Result<Value, Refusal> {
    let chain = context.cluster.admission();
    let mut plugins = chain.wanting(context, operation).peekable();
    if plugins.peek().is_none() {
        return Ok(object);
    }
    let options = options(context, operation);
    if let Some(Shown { of, new, old }) = Shown::of(context, &object, old) {
        let request = Request { of, ..request(context, operation, &options, Some(new), Some(&old)) };
        for plugin in plugins {
            plugin.validate(&request).await?;
        }
        warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
        return Ok(object);
    }
    let request = request(context, operation, &options, Some(object), old);
    let mut judged = Ok(());
    for plugin in plugins {
        judged = plugin.validate(&request).await;
        if judged.is_err() {
            break;
        }
    }
    // What was warned of is told of what is refused, too.
    warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    judged.map(|()| request.object.unwrap_or_default())
}

/// What is posted to a subresource, such as a Binding, as the plugins leave it. Its place has to be there, as for everything
/// that is made (2.28).
pub(crate) async fn mutated_part(
    context: &Context<'_>,
    of: &Resource,
    object: Value,
    warnings: &mut Vec<String>,
) -> Result<Value, Refusal> {
    create::expect_place(context, context.name())?;
    let chain = context.cluster.admission();
    let plugins = chain.mutating(context, Operation::Create);
    if plugins.is_empty() {
        return Ok(object);
    }
    let mut object = whole(of, object);
    if object::text(&object, &["metadata", "namespace"]).is_empty() {
        object["metadata"]["namespace"] = json!(context.namespace());
    }
    let options = options(context, Operation::Create);
    let mut request = Request { of, ..request(context, Operation::Create, &options, Some(object), None) };
    in_rounds(&plugins, &mut request).await?;
    warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(request.object.unwrap_or_default())
}

/// Asks the plugins about what is posted to a subresource, once it is known to be good.
pub(crate) async fn validated_part(
    context: &Context<'_>,
    of: &Resource,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let chain = context.cluster.admission();
    let plugins: Vec<_> = chain.wanting(context, Operation::Create).collect();
    if plugins.is_empty() {
        return Ok(());
    }
    let object = whole(of, object.clone());
    let options = options(context, Operation::Create);
    let request = Request { of, ..request(context, Operation::Create, &options, Some(object), None) };
    for plugin in plugins {
        plugin.validate(&request).await?;
    }
    warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// Asks plugins that change objects, and those again who want to be when others changed something after them.
async fn in_rounds(plugins: &[&Arc<dyn Plugin>], request: &mut Request<'_>) -> Result<(), Refusal> {
    for plugin in plugins {
        plugin.mutate(request).await?;
    }
    if request.again.is_wanted {
        request.again.is_second_round = true;
        for plugin in plugins {
            plugin.mutate(request).await?;
        }
    }
    Ok(())
}

/// Asks the plugins about a removal.
pub(crate) async fn deleted(
    context: &Context<'_>,
    old: &Value,
    asked: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<(), Refusal> {
    let chain = context.cluster.admission();
    let plugins: Vec<_> = chain.wanting(context, Operation::Delete).collect();
    if plugins.is_empty() {
        return Ok(());
    }
    let mut options = if asked.value.is_object() { asked.value.clone() } else { json!({}) };
    options["kind"] = json!("DeleteOptions");
    options["apiVersion"] = json!("meta.k8s.io/v1");
    // Whether nothing is to be stored is often said in the body, which the query does not tell (2.59).
    let mut request =
        Request { dry_run: asked.dry_run, ..request(context, Operation::Delete, &options, None, Some(old)) };
    for plugin in &plugins {
        plugin.mutate(&mut request).await?;
    }
    for plugin in &plugins {
        plugin.validate(&request).await?;
    }
    warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

/// Asks the plugins about somebody who wants to talk to what an object stands for. They see what is asked for.
pub(crate) async fn connected(context: &Context<'_>, asked: Value) -> Result<(), Refusal> {
    let chain = context.cluster.admission();
    let plugins: Vec<_> = chain.wanting(context, Operation::Connect).collect();
    if plugins.is_empty() {
        return Ok(());
    }
    let mut request = request(context, Operation::Connect, &Value::Null, Some(asked), None);
    for plugin in &plugins {
        plugin.mutate(&mut request).await?;
    }
    for plugin in &plugins {
        plugin.validate(&request).await?;
    }
    Ok(())
}

fn request<'a>(
    context: &'a Context<'a>,
    operation: Operation,
    options: &'a Value,
    object: Option<Value>,
    old: Option<&'a Value>,
) -> Request<'a> {
    Request {
        operation,
        resource: context.resource,
        of: context.resource,
        subresource: context.target.subresource.as_deref().unwrap_or(""),
        namespace: context.namespace(),
        name: name(context, object.as_ref()),
        user: context.user,
        dry_run: context.is_dry_run(),
        options,
        object,
        old,
        warnings: Mutex::default(),
        again: Again::default(),
        context,
    }
}

/// The name of the object as far as the client said it.
fn name(context: &Context<'_>, object: Option<&Value>) -> String {
    let said = |field: &str| object.map_or("", |object| object::text(object, &["metadata", field]));
    let generated = said("generateName");
    match (context.name(), said("name")) {
        ("", name) if !generated.is_empty() && name.starts_with(generated) => String::new(),
        ("", name) | (name, _) => name.to_owned(),
    }
}

/// The options of a write, as an object.
fn options(context: &Context<'_>, operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        _ if context.target.verb == crate::request::Verb::Patch => "PatchOptions",
        _ => "UpdateOptions",
    };
    let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
    for name in ["fieldManager", "fieldValidation"] {
        if let Some(value) = context.query.get(name).filter(|value| !value.is_empty()) {
            options[name] = json!(value);
        }
    }
    if context.is_dry_run() {
        options["dryRun"] = json!(["All"]);
    }
    if kind == "PatchOptions" && context.query.get("force").is_some() {
        options["force"] = json!(context.query.is_on("force"));
    }
    options
}
