//! Answers in the form that was asked for: whole objects, their metadata only, or rows; in JSON, YAML or protobuf.

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use rules::wire;
use serde_json::{Value, json};

use super::accept::{Form, JSON, Media, PROTOBUF, Shape, YAML};
use super::{Answer, json as json_answer};
use crate::cluster::Context;
use crate::registry::Resource;
use crate::request::Query;
use crate::status::Refusal;
use crate::table::{self, Include, Printer};

/// An answer in the form that was asked for. Verbs answer with objects in JSON, as they are stored; what has to be made of
/// them is made here, in one place for all of them.
pub(crate) async fn shown(context: &Context<'_>, form: Form, answer: Answer) -> Result<Answer, Refusal> {
    let is_json = answer.headers().get(header::CONTENT_TYPE).is_some_and(|media| media == JSON);
    if form.is_plain() || !is_json || answer.body().size_hint().exact().is_none() {
        return Ok(answer);
    }
    let (mut head, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    let bytes = body.to_bytes();
    let Ok(value) = serde_json::from_slice::<Value>(&bytes) else {
        return Ok(Answer::from_parts(head, http_body_util::Full::new(bytes).boxed_unsync()));
    };
    let is_list =
        value["items"].is_array() && value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    let value = match form.shape {
        // What is no object of the resource is told as it is.
        _ if value["kind"] == "Status" => value,
        Shape::Whole => value,
        _ if is_list => list(context, form.shape, &value)?,
        _ => object(context, form.shape, &value)?,
    };
    let (bytes, media) = spelled(form, &value);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(Answer::from_parts(head, http_body_util::Full::new(bytes).boxed_unsync()))
}

fn object(context: &Context<'_>, shape: Shape, object: &Value) -> Result<Value, Refusal> {
    match shape {
        Shape::Whole => Ok(object.clone()),
        Shape::Partial(version) => Ok(table::partial(object, version)),
        Shape::PartialList(_) if context.resource.custom.is_some() => {
            Err(Refusal::unknown("content is not a list"))
        }
        Shape::PartialList(_) => {
            let why = format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(context, "")
            );
            Err(Refusal::cannot_be_shown(why))
        }
        Shape::Table(version) => {
            let include = include(context.query)?;
            let printer = match object["kind"].as_str() {
                // What is shown of an object may be of another kind.
                Some("Scale") => Printer::built_in("autoscaling", "Scale"),
                _ => printer(context.resource),
            };
            let row = printer.row(object, include, version, Timestamp::now());
            let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
            Ok(table::table(version, &meta, Some(printer.columns()), vec![row]))
        }
    }
}

fn list(context: &Context<'_>, shape: Shape, list: &Value) -> Result<Value, Refusal> {
    let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
    match shape {
        Shape::Whole => Ok(list.clone()),
        Shape::Partial(_) => {
            let why = format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(context, "List")
            );
            Err(Refusal::cannot_be_shown(why))
        }
        Shape::PartialList(version) => {
            let items: Vec<Value> = items.iter().map(|item| table::partial(item, version)).collect();
            Ok(json!({
                "kind": "PartialObjectMetadataList", "apiVersion": format!("meta.k8s.io/{version}"),
                "metadata": list["metadata"], "items": items,
            }))
        }
        Shape::Table(version) => {
            let include = include(context.query)?;
            let printer = printer(context.resource);
            let now = Timestamp::now();
            let rows = items.iter().map(|item| {
                // Items leave out what their list says for all of them; rows do not.
                let mut item = item.clone();
                item["apiVersion"] = json!(context.resource.api_version());
                item["kind"] = json!(context.resource.kind);
                printer.row(&item, include, version, now)
            });
            Ok(table::table(version, &list["metadata"], Some(printer.columns()), rows.collect()))
        }
    }
}

/// A refusal.
pub(crate) fn refusal(form: Form, code: StatusCode, status: &Value) -> Answer {
    let (bytes, media) = spelled(form, status);
    let mut answer = json_answer(code, bytes);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

/// How the objects of a resource are shown as rows.
pub(crate) fn printer(resource: &Resource) -> Printer<'_> {
    match &resource.custom {
        Some(custom) => Printer::Custom(&custom.version().columns),
        None => Printer::built_in(&resource.group, &resource.kind),
    }
}

/// What is to be sent along with rows.
pub(crate) fn include(query: &Query) -> Result<Include, Refusal> {
    match query.get("includeObject").unwrap_or("") {
        "" | "Metadata" => Ok(Include::Metadata),
        "Object" => Ok(Include::Object),
        "None" => Ok(Include::Nothing),
        other => Err(Refusal::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', \
             'None', or empty",
            types::go::quote(other)
        ))),
    }
}

/// A value as protobuf, in its envelope. What has no type in the pack cannot be spelled so, and is not negotiated.
pub(crate) fn protobuf(value: &Value) -> Option<Vec<u8>> {
    let text = |key: &str| value[key].as_str().unwrap_or("");
    let (version, kind) = (text("apiVersion"), text("kind"));
    if let Some(of) = type_of(version, kind) {
        return Some(schema::protobuf::encode(of, value));
    }
    let of = type_of(version, kind.strip_suffix("List")?)?;
    let meta = wire::named("io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta");
    let mut message = Vec::new();
    field(&mut message, 1, &schema::protobuf::encode_message(meta, &value["metadata"]));
    for item in value["items"].as_array().into_iter().flatten() {
        field(&mut message, 2, &schema::protobuf::encode_message(of, item));
    }
    let mut type_meta = Vec::new();
    field(&mut type_meta, 1, version.as_bytes());
    field(&mut type_meta, 2, kind.as_bytes());
    let mut body = schema::protobuf::MAGIC.to_vec();
    for (number, bytes) in [(1, &type_meta[..]), (2, &message), (3, b""), (4, b"")] {
        field(&mut body, number, bytes);
    }
    Some(body)
}

fn type_of(api_version: &str, kind: &str) -> Option<schema::Type> {
    let meta = |name: &str| Some(wire::named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")));
    match (api_version, kind) {
        ("v1", "Status") => meta("Status"),
        ("meta.k8s.io/v1" | "meta.k8s.io/v1beta1", "PartialObjectMetadata") => meta("PartialObjectMetadata"),
        _ => {
            let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
            schema::Pack::v1_35().of_kind(group, version, kind)
        }
    }
}

/// A field of bytes in a protobuf message.
pub(crate) fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).expect("seven bits"));
    out.extend_from_slice(bytes);
}

fn spelled(form: Form, value: &Value) -> (Bytes, &'static str) {
    let json = || (json_bytes(value, form.pretty).into(), JSON);
    match form.media {
        Media::Json => json(),
        Media::Yaml => (super::yaml::print(value).into(), YAML),
        Media::Protobuf => protobuf(value).map_or_else(json, |bytes| (bytes.into(), PROTOBUF)),
    }
}

fn json_bytes(value: &Value, pretty: bool) -> Vec<u8> {
    let mut bytes = if pretty { serde_json::to_vec_pretty(value) } else { serde_json::to_vec(value) }
        .expect("JSON prints");
    bytes.push(b'\n');
    bytes
}

/// The Go type that refusals name.
fn go_type(context: &Context<'_>, suffix: &str) -> String {
    let resource = context.resource;
    if context.resource.custom.is_some() {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = match resource.group.split('.').next().unwrap_or("") {
        "" | "events" => "core",
        package => package,
    };
    format!("*{package}.{}{suffix}", resource.kind)
}
