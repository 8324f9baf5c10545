//! `pods/binding`, and `bindings`, its older form: a scheduler says on which node a pod is to run (2.76).

use http::{StatusCode, request};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rules::field::{Errors, Path, Value as Shown};
use rules::{kind, meta, pod, wire};
use serde_json::{Value, json};
use store::Write;

use crate::answer::{self, Answer, accept};
use crate::apply::Tracked;
use crate::auth::User;
use crate::body;
use crate::cluster::{Cluster, Context};
use crate::object;
use crate::registry::Registry;
use crate::request::{Query, Target};
use crate::status::{About, Refusal};
use crate::verbs::update::precondition_failed;
use crate::{admission, verbs};

/// Binds the pod that the path names.
pub(crate) async fn create(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let bindings = Registry::built_in().get("", "v1", "bindings").expect("bindings are served");
    let body::Read { object, mut warnings } =
        body::read(bindings, &context.head.headers, context.query, bytes)?;
    answer::warned(bind(context, context, object, &mut warnings).await, &warnings)
}

/// Binds the pod that the binding names.
pub(crate) async fn create_legacy(
    cluster: &Cluster,
    target: &Target,
    query: &Query,
    head: &request::Parts,
    user: &User,
    bytes: &[u8],
) -> Result<Answer, Refusal> {
    let registry = Registry::built_in();
    let bindings = registry.get("", "v1", "bindings").expect("bindings are served");
    let binding = body::read(bindings, &head.headers, query, bytes)?;
    let resource = registry.get("", "v1", "pods").expect("pods are served");
    let name = object::text(&binding.object, &["metadata", "name"]).to_owned();
    let target = Target { name: Some(name), ..target.clone() };
    let strategy = cluster.strategy(resource).ok_or_else(Refusal::method_not_allowed)?;
    let form = accept::Form::PLAIN;
    let context =
        Context { cluster, target: &target, resource, strategy: &*strategy, query, user, head, form };
    let asked = Context { resource: bindings, ..context };
    let mut warnings = binding.warnings;
    answer::warned(bind(&context, &asked, binding.object, &mut warnings).await, &warnings)
}

/// Binds a pod, as `asked`: at the pod, or by a binding of its own.
async fn bind(
    context: &Context<'_>,
    asked: &Context<'_>,
    sent: Value,
    warnings: &mut Vec<String>,
) -> Result<Answer, Refusal> {
    let bindings = Registry::built_in().get("", "v1", "bindings").expect("bindings are served");
    verbs::expect_namespace(context, &sent)?;
    let binding = &admission::mutated_part(asked, bindings, sent, warnings).await?;
    if object::text(binding, &["metadata", "name"]) != context.name() {
        return Err(Refusal::bad_request("name in URL does not match name in Binding object"));
    }
    let errors = judge(binding);
    if !errors.is_empty() {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) };
        return Err(Refusal::unknown(text));
    }
    admission::validated_part(asked, bindings, binding, warnings).await?;
    let name = context.name();
    let key = object::key(context.resource, context.namespace(), name);
    loop {
        let current = context.cluster.store().get(&key).ok_or_else(|| verbs::absent(context, name))?;
        let Tracked { object: old, managers } = object::read_tracked(&current);
        expect_same(context, binding, &old)?;
        let mut pod: Pod = wire::typed(&old);
        if let Some(why) = pod::prepare::refuse_binding(&pod) {
            return Err(Refusal::conflict(About { group: "", resource: "pods/binding", name }, &why));
        }
        let (annotations, labels) = (map(binding, "annotations"), map(binding, "labels"));
        let now = Time(now());
        pod::prepare::bind(&mut pod, object::text(binding, &["target", "name"]), &annotations, &labels, now);
        let mut new = schema::encode(context.resource.of_type(), &wire::untyped(&pod, &Value::Null));
        new["apiVersion"] = json!(context.resource.api_version());
        new["kind"] = json!(context.resource.kind);
        if context.is_dry_run() {
            break;
        }
        let write =
            Write::put(key.clone(), context.draft(&new, &managers).await?).if_revision(current.revision);
        match context.cluster.store().commit(write).await {
            Ok(_) => break,
            Err(store::error::Commit::Conflict { .. }) => {}
            Err(error) => return Err(verbs::not_committed(context, name, error)),
        }
    }
    Ok(success())
}

/// What is answered where there is nothing to show.
pub(super) fn success() -> Answer {
    let status =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    answer::value(StatusCode::CREATED, &status)
}

/// Now, in whole seconds.
pub(super) fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    jiff::Timestamp::from_second(now.as_second()).unwrap_or(now)
}

fn map(binding: &Value, field: &str) -> meta::Map {
    let entries = binding["metadata"][field].as_object().into_iter().flatten();
    entries.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn judge(binding: &Value) -> Errors {
    let mut errors = Errors::new();
    let path = Path::new("target");
    let of = kind::text(binding, "target.kind");
    if !matches!(of, "" | "Node") {
        errors.push(path.child("kind").not_supported(Shown::from(of), &["Node", "<empty>"]));
    }
    if kind::text(binding, "target.name").is_empty() {
        errors.push(path.child("name").required(""));
    }
    errors
}

/// A binding may say which pod it means, and in which version.
fn expect_same(context: &Context<'_>, binding: &Value, pod: &Value) -> Result<(), Refusal> {
    for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) =
            (object::text(binding, &["metadata", field]), object::text(pod, &["metadata", field]));
        if !wanted.is_empty() && wanted != found {
            let what = format!("{word} in precondition: {wanted}, {word} in object meta: {found}");
            return Err(precondition_failed(context, &what));
        }
    }
    Ok(())
}
