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
use crate::apply::{Entries, Tracked, remove_managed_fields};
use crate::auth::rbac::{Authorizer, Escalation};
use crate::body::DeleteOptions;
use crate::cluster::Context;
use crate::managed::Managers;
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
    /// As it was sent, but for its managers.
    pub(crate) body: &'a Value,
    /// As it would be stored, if that is known already.
    pub(crate) canonical: Option<&'o Value>,
    /// Who manages its fields.
    pub(crate) managers: &'a Managers,
    /// The object as it is; `None` when it is made.
    pub(crate) old: Option<&'o Tracked>,
}

impl Sent<'_, '_> {
    /// As plugins see it: as it would be stored.
    fn seen(&self, context: &Context<'_>) -> Value {
        let canonical = || context.canonical(self.body, self.old.map(|old| &old.object));
        let seen = self.canonical.cloned().or_else(canonical);
        let mut seen = seen.unwrap_or_else(|| self.body.clone());
        if !context.namespace().is_empty() && object::text(&seen, &["metadata", "namespace"]).is_empty() {
            seen["metadata"]["namespace"] = json!(context.namespace());
        }
        seen
    }
}

/// An object as plugins see it: with its managers only if one of them asks for those.
fn seen_by<'a>(plugins: &[&Arc<dyn Plugin>], tracked: &'a Tracked) -> Cow<'a, Value> {
    let with_managers = plugins.iter().any(|plugin| plugin.sees_managers());
    if with_managers { Cow::Owned(tracked.whole()) } else { Cow::Borrowed(&tracked.object) }
}

/// The body of a write as the plugins leave it, and who manages its fields then. Both stay as they were sent if none of them
/// changes anything.
pub(crate) async fn mutated<'a>(
    context: &Context<'_>,
    operation: Operation,
    sent: Sent<'a, '_>,
    warnings: &mut Vec<String>,
) -> Result<(Cow<'a, Value>, Cow<'a, Managers>), Refusal> {
    let Sent { body, managers, old, .. } = sent;
    let unchanged = (Cow::Borrowed(body), Cow::Borrowed(managers));
    let chain = context.cluster.admission();
    let plugins = chain.mutating(context, operation);
    if plugins.is_empty() {
        return Ok(unchanged);
    }
    let options = options(context, operation);
    if let Some(Shown { of, new, old }) = Shown::of(context, body, old.map(|old| &old.object)) {
        let mut request =
            Request { of, ..request(context, operation, &options, Some(new.clone()), Some(&old)) };
        in_rounds(&plugins, &mut request).await?;
        warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
        let changed = request.object.filter(|scale| *scale != new);
        let changed = changed.and_then(|scale| Shown::applied(context, body, &scale));
        return Ok((changed.map_or(unchanged.0, Cow::Owned), unchanged.1));
    }
    let tracked = Tracked { object: sent.seen(context), managers: managers.entries.clone() };
    let seen = seen_by(&plugins, &tracked);
    let old = old.map(|old| seen_by(&plugins, old));
    let mut request = request(context, operation, &options, Some(seen.clone().into_owned()), old.as_deref());
    in_rounds(&plugins, &mut request).await?;
    let (object, said) = (request.object.take(), request.warnings);
    warnings.append(&mut said.into_inner().unwrap_or_else(PoisonError::into_inner));
    let Some(object) = object.filter(|object| *object != *seen) else { return Ok(unchanged) };
    let mut object = if let Some(custom) = &context.resource.custom {
        custom.reread_admitted(object)?
    } else {
        let decoded = schema::decode_value(context.resource.of_type(), &object);
        let mut decoded = decoded.map_err(|why| Refusal::internal(why.to_string()))?.value;
        restore_empty(&mut decoded, body);
        decoded
    };
    let managers = match remove_managed_fields(&mut object) {
        Some(entries) if managers.entries.tree().as_ref() != Some(&entries) => {
            Cow::Owned(Managers { entries: Entries::of_tree(Some(&entries)), are_given: true })
        }
        Some(_) => unchanged.1,
        None if matches!(seen, Cow::Borrowed(_)) => unchanged.1,
        None => Cow::Owned(Managers::default()),
    };
    Ok((Cow::Owned(object), managers))
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
    new: Tracked,
    old: Option<&Tracked>,
    warnings: &mut Vec<String>,
) -> Result<Value, Refusal> {
    let chain = context.cluster.admission();
    let plugins: Vec<_> = chain.wanting(context, operation).collect();
    if plugins.is_empty() {
        return Ok(new.object);
    }
    let old = old.map(|old| seen_by(&plugins, old));
    let object = match seen_by(&plugins, &new) {
        Cow::Owned(whole) => whole,
        Cow::Borrowed(_) => new.object,
    };
    let options = options(context, operation);
    if let Some(Shown { of, new, old }) = Shown::of(context, &object, old.as_deref()) {
        let request = Request { of, ..request(context, operation, &options, Some(new), Some(&old)) };
        for plugin in plugins {
            plugin.validate(&request).await?;
        }
        warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
        return Ok(Tracked::of(object).object);
    }
    let request = request(context, operation, &options, Some(object), old.as_deref());
    let mut judged = Ok(());
    for plugin in plugins {
        judged = plugin.validate(&request).await;
        if judged.is_err() {
            break;
        }
    }
    // What was warned of is told of what is refused, too.
    warnings.append(&mut request.warnings.into_inner().unwrap_or_else(PoisonError::into_inner));
    judged.map(|()| Tracked::of(request.object.unwrap_or_default()).object)
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
    old: &Tracked,
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
    let old = seen_by(&plugins, old);
    // Whether nothing is to be stored is often said in the body, which the query does not tell (2.59).
    let mut request =
        Request { dry_run: asked.dry_run, ..request(context, Operation::Delete, &options, None, Some(&old)) };
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
