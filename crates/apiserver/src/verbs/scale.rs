//! `/scale`: how many replicas an object wants and has, as an `autoscaling/v1` Scale (2.72).

use std::sync::{Arc, LazyLock, OnceLock};

use http::{StatusCode, header};
use http_body_util::BodyExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceSubresourceScale;
use rules::job::Settings;
use rules::wire;
use serde_json::{Value, json};

use crate::answer::{self, Answer};
use crate::apply::managers::DecodeError;
use crate::apply::scale::{ReplicasPaths, from_scale, to_scale};
use crate::apply::{PathElement, Tracked};
use crate::body::{self, Read};
use crate::cluster::Context;
use crate::crd::scale;
use crate::registry::Resource;
use crate::request::Verb;
use crate::status::{About, Refusal};
use crate::strategy::{self, Strategy};
use crate::verbs::patch::{ACCEPTED, ACCEPTED_CUSTOM, Patching, missing_first};
use crate::verbs::update::{Wanted, change, expect_uid};
use crate::{managed, object, verbs};

/// What the Scale of an object says that does not say how many replicas it wants: the smallest number there is.
const UNSET: i64 = i32::MIN as i64;

/// Scales as objects of their own, as far as reading them and following their managers goes.
static SCALES: LazyLock<Arc<Resource>> = LazyLock::new(|| {
    Arc::new(Resource {
        group: "autoscaling".to_owned(),
        version: "v1".to_owned(),
        kind: "Scale".to_owned(),
        plural: "scales".to_owned(),
        singular: "scale".to_owned(),
        namespaced: true,
        verbs: Vec::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: String::new(),
        subresources: Vec::new(),
        custom: None,
        known_type: OnceLock::new(),
    })
});

/// A Scale has defaults of its own, which are none, whatever those of the scaled kind are.
static SCALING: LazyLock<Arc<dyn Strategy>> = LazyLock::new(|| strategy::of(&SCALES, Settings::default()));

/// How a Scale is made of an object.
struct Scaled {
    paths: CustomResourceSubresourceScale,
    managers: ReplicasPaths,
    /// The version of the object.
    version: String,
    /// Built-in kinds have selectors that are no texts.
    is_built_in: bool,
}

impl Scaled {
    fn of(resource: &Resource) -> Option<Self> {
        let Some(custom) = &resource.custom else {
            let version = resource.api_version();
            let replicas = ["spec", "replicas"].into_iter().map(PathElement::field).collect();
            return Some(Scaled {
                paths: CustomResourceSubresourceScale {
                    spec_replicas_path: ".spec.replicas".to_owned(),
                    status_replicas_path: ".status.replicas".to_owned(),
                    label_selector_path: None,
                },
                managers: ReplicasPaths::from([(version.clone(), Some(replicas))]),
                version,
                is_built_in: true,
            });
        };
        let version = custom.version();
        Some(Scaled {
            paths: version.scale.clone()?,
            managers: custom.replicas_paths(),
            version: version.api_version(),
            is_built_in: false,
        })
    }

    fn get(&self, object: &Value) -> Result<Value, scale::Error> {
        let mut scale = scale::get(object, &self.paths)?;
        if self.is_built_in {
            let selector = selector(&object["spec"]["selector"]);
            if !selector.is_empty() {
                scale["status"]["selector"] = selector.into();
            }
        }
        Ok(scale)
    }
}

/// A selector as a text: of labels, or of labels and expressions.
fn selector(selector: &Value) -> String {
    let is_plain = selector.as_object().is_some_and(|fields| fields.values().all(Value::is_string));
    if selector.is_null() {
        return String::new();
    }
    let selector = if is_plain { json!({"matchLabels": selector}) } else { selector.clone() };
    rules::meta::selector::printed(&wire::typed(&selector))
}

/// What plugins are shown of a change through a Scale: the Scale, before and after (3.15).
pub(crate) struct Shown {
    pub(crate) of: &'static Resource,
    pub(crate) new: Value,
    pub(crate) old: Value,
}

impl Shown {
    /// `None` for requests that are not about a Scale.
    pub(crate) fn of(context: &Context<'_>, new: &Value, old: Option<&Value>) -> Option<Self> {
        context.target.subresource.as_deref().filter(|name| *name == "scale")?;
        let scaled = Scaled::of(context.resource)?;
        let seen = |object: &Value| {
            let mut scale = scaled.get(object).ok()?;
            scale["apiVersion"] = json!(SCALES.api_version());
            scale["kind"] = json!(SCALES.kind);
            Some(scale)
        };
        let old = old.and_then(seen).unwrap_or_default();
        Some(Shown { of: &SCALES, new: seen(new)?, old })
    }

    /// The object with as many replicas as plugins left in its Scale.
    pub(crate) fn applied(context: &Context<'_>, object: &Value, scale: &Value) -> Option<Value> {
        let mut object = object.clone();
        scale::set(
            &mut object,
            &Scaled::of(context.resource)?.paths,
            scale["spec"]["replicas"].as_i64().unwrap_or(0),
        );
        Some(object)
    }
}

/// Reads or changes the Scale of an object.
pub(crate) async fn scale(context: &Context<'_>, bytes: &[u8]) -> Result<Answer, Refusal> {
    let custom = &Scaled::of(context.resource).ok_or_else(Refusal::unknown_resource)?;
    let answer = match context.target.verb {
        Verb::Get => {
            verbs::get::expect_no_export(context)?;
            let key = object::key(context.resource, context.namespace(), context.name());
            let found =
                context.cluster.store().get(&key).ok_or_else(|| verbs::absent(context, context.name()))?;
            let found = context.read_tracked(&found).await?;
            return Ok(answer::value(StatusCode::OK, &shown(custom, &found.object)?));
        }
        Verb::Update => {
            let read = body::read(&SCALES, &context.head.headers, context.query, bytes)?;
            verbs::expect_namespace(context, &read.object)?;
            expect_name(context, &read.object)?;
            write(context, custom, &|old| {
                expect_uid(context, &read.object, &old.object)?;
                Ok(Read { object: read.object.clone(), warnings: read.warnings.clone() })
            })
            .await?
        }
        _ => patch(context, custom, bytes).await?,
    };
    // What was written is the object; what is answered is its Scale.
    let (head, bytes) = answer.into_parts();
    let bytes = bytes.collect().await.unwrap_or_else(|never| match never {}).to_bytes();
    let object: Value = serde_json::from_slice(&bytes).map_err(|why| Refusal::internal(why.to_string()))?;
    let mut scale = answer::value(head.status, &shown(custom, &object)?);
    for warning in head.headers.get_all(header::WARNING) {
        scale.headers_mut().append(header::WARNING, warning.clone());
    }
    Ok(scale)
}

async fn patch(context: &Context<'_>, custom: &Scaled, bytes: &[u8]) -> Result<Answer, Refusal> {
    let scales = of_scales(context);
    let accepted: &[&str] = if custom.is_built_in { &ACCEPTED } else { &ACCEPTED_CUSTOM };
    match Patching::read(&scales, accepted, bytes).map_err(|why| missing_first(context, why))? {
        Patching::Apply(config, _) => {
            write_followed(context, custom, &|old| {
                let Tracked { object, managers } = managed::apply(&scales, Some(old), config.clone(), false)?;
                let sent = || String::from_utf8_lossy(bytes).into_owned();
                let Read { object, warnings } = body::reread(&SCALES, context.query, &object, &[], sent)?;
                Ok(Wanted::applied(Tracked { object, managers }, warnings))
            })
            .await
        }
        Patching::Document(patch) => {
            write(context, custom, &|old| {
                let read = patch.read_again(context, &SCALES, old)?;
                expect_same(context, &read.object, &old.object)?;
                Ok(read)
            })
            .await
        }
    }
}

/// Writes what `make` makes of the Scale, and follows who manages it.
async fn write(
    context: &Context<'_>,
    custom: &Scaled,
    make: &(dyn Fn(&Tracked) -> Result<Read, Refusal> + Sync),
) -> Result<Answer, Refusal> {
    let scales = of_scales(context);
    write_followed(context, custom, &|old| {
        let Read { object, warnings } = make(old)?;
        Ok(Wanted::of(managed::followed(&scales, Some(old), object, false), warnings))
    })
    .await
}

async fn write_followed(
    context: &Context<'_>,
    custom: &Scaled,
    make: &(dyn Fn(&Tracked) -> Result<Wanted, Refusal> + Sync),
) -> Result<Answer, Refusal> {
    let Scaled { paths, managers, version, .. } = custom;
    let unreadable = |why: DecodeError| Refusal::unknown(why.to_string());
    change(context, false, |Tracked { object: old, managers: before }| {
        let scale = match custom.get(old) {
            Err(scale::Error::Missing(_)) => {
                let mut with = old.clone();
                scale::set(&mut with, paths, UNSET);
                custom.get(&with)
            }
            found => found,
        }
        .map_err(|why| Refusal::unknown(why.to_string()))?;
        let shown = to_scale(before, managers).map_err(unreadable)?;
        let Wanted { object: wanted, managers: after, warnings } =
            make(&Tracked { object: scale, managers: shown })?;
        expect_name(context, &wanted)?;
        let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
        if replicas == UNSET {
            let path = types::go::quote(&paths.spec_replicas_path);
            return Err(Refusal::bad_request(format!("the spec replicas field {path} cannot be empty")));
        }
        if custom.is_built_in && replicas < 0 {
            let path = rules::field::Path::new("spec").child("replicas");
            let about = About { group: "autoscaling", resource: "Scale", name: context.name() };
            return Err(Refusal::invalid(about, &rules::meta::not_negative(replicas, &path)));
        }
        let mut object = old.clone();
        scale::set(&mut object, paths, replicas);
        let sent = object::text(&wanted, &["metadata", "resourceVersion"]);
        if !sent.is_empty() {
            object["metadata"]["resourceVersion"] = json!(sent);
        }
        let managers = from_scale(before, &after.entries, version, managers).map_err(unreadable)?;
        Ok(Wanted::applied(Tracked { object, managers }, warnings))
    })
    .await
}

/// A patch makes no Scale of another object of it.
fn expect_same(context: &Context<'_>, new: &Value, old: &Value) -> Result<(), Refusal> {
    let uid = |scale: &Value| object::text(scale, &["metadata", "uid"]).to_owned();
    let (wanted, found) = (uid(new), uid(old));
    if wanted.is_empty() || wanted == found {
        return Ok(());
    }
    let resource = format!("{}/scale", context.resource.plural);
    let about = About { resource: &resource, ..context.about() };
    let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
    Err(Refusal::conflict(about, &why))
}

fn expect_name(context: &Context<'_>, scale: &Value) -> Result<(), Refusal> {
    match (object::text(scale, &["metadata", "name"]), context.name()) {
        (sent, name) if sent == name => Ok(()),
        ("", name) => Err(Refusal::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        (sent, name) => Err(Refusal::bad_request(format!(
            "the name of the object ({sent}) does not match the name on the URL ({name})"
        ))),
    }
}

fn shown(custom: &Scaled, object: &Value) -> Result<Value, Refusal> {
    custom.get(object).map_err(|why| match why {
        scale::Error::Missing(_) => Refusal::internal_cause(why),
        scale::Error::WrongType(_) => Refusal::unknown(why.to_string()),
    })
}

/// The request as one about a Scale.
fn of_scales<'a>(context: &Context<'a>) -> Context<'a> {
    Context { resource: &SCALES, strategy: &**SCALING, ..*context }
}
