//! Events on the wire: a line of JSON each, or a length and a protobuf message, in the form that was asked for.

use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Revision;

use crate::answer::accept::{Form, Media, Shape};
use crate::answer::form;
use crate::cluster::Context;
use crate::object;
use crate::registry::Resource;
use crate::service::LeavesOutManagers;
use crate::status::Refusal;
use crate::table::{self, Include};

/// The writer of one stream.
pub(super) struct Frames {
    form: Form,
    include: Include,
    resource: Arc<Resource>,
    /// Columns are told with the first event.
    told_columns: bool,
    leaves_out_managers: bool,
}

impl Frames {
    pub(super) fn of(context: &Context<'_>) -> Result<Self, Refusal> {
        let is_table = matches!(context.form.shape, Shape::Table(_));
        let include = if is_table { form::include(context.query)? } else { Include::Metadata };
        let leaves_out_managers = context.head.extensions.get::<LeavesOutManagers>().is_some();
        Ok(Frames {
            form: context.form,
            include,
            resource: context.resource.clone(),
            told_columns: false,
            leaves_out_managers,
        })
    }

    /// Whether events can be told: a list of metadata is no form of one object, and its stream ends with the first.
    pub(super) fn can_tell(&self) -> bool {
        !matches!(self.form.shape, Shape::PartialList(_))
    }

    /// What the stream is.
    pub(super) fn media(&self) -> &'static str {
        match self.form.media {
            Media::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => "application/json",
        }
    }

    /// An event about an object. `revision_at` says where its revision stands, if these are the bytes that are stored.
    pub(super) fn event(
        &mut self,
        out: &mut BytesMut,
        word: &str,
        object: &[u8],
        revision_at: Option<usize>,
    ) {
        match (self.form.media, self.form.shape) {
            (Media::Json, Shape::Whole) => {
                let (before, after) = self.cut(object, revision_at);
                return line(out, word, &[before, after]);
            }
            // Controllers that only follow metadata watch every kind, and nobody has to parse anything for them.
            (Media::Json, Shape::Partial(version)) if !self.is_daemon_set() => {
                let (before, after) = self.cut(object, revision_at);
                if let Some(meta) = revision_at.and_then(|at| object::metadata_from(before, at)) {
                    let head = br#"{"apiVersion":"meta.k8s.io/"#;
                    let kind = br#"","kind":"PartialObjectMetadata","metadata":"#;
                    return line(out, word, &[&head[..], version.as_bytes(), kind, meta, after]);
                }
            }
            _ => {}
        }
        let object: Value = serde_json::from_slice(object).expect("what was stored is JSON");
        self.value(out, word, &object);
    }

    /// An object in two parts, between which its managers are left out if they are not to be told.
    fn cut<'a>(&self, object: &'a [u8], revision_at: Option<usize>) -> (&'a [u8], &'a [u8]) {
        let revision_at = revision_at.filter(|_| self.leaves_out_managers);
        let around = revision_at.and_then(|at| object::around_managers(object, at));
        around.map_or((object, b""), |(before, _, after)| (before, after))
    }

    /// The mark of how far the stream has come.
    pub(super) fn bookmark(&mut self, out: &mut BytesMut, revision: Revision, ends_initial: bool) {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if ends_initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        // An empty DaemonSet is converted like any other, and what it counts is an annotation.
        if self.is_daemon_set() {
            object["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = json!("0");
        }
        self.value(out, "BOOKMARK", &object);
    }

    /// The end of a stream that cannot go on.
    pub(super) fn error(&self, out: &mut BytesMut, refusal: &Refusal) {
        self.send(out, "ERROR", &refusal.to_status());
    }

    /// What a DaemonSet counts is an annotation, which its metadata alone does not show ([`table::partial`]).
    fn is_daemon_set(&self) -> bool {
        (self.resource.group.as_str(), self.resource.kind.as_str()) == ("apps", "DaemonSet")
    }

    fn value(&mut self, out: &mut BytesMut, word: &str, object: &Value) {
        let shown = match self.form.shape {
            Shape::Whole => object.clone(),
            Shape::Partial(version) | Shape::PartialList(version) => table::partial(object, version),
            Shape::Table(version) => {
                let printer = form::printer(&self.resource);
                let columns = (!self.told_columns).then(|| printer.columns());
                self.told_columns = true;
                let row = printer.row(object, self.include, version, Timestamp::now());
                let meta = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table::table(version, &meta, columns, vec![row])
            }
        };
        self.send(out, word, &shown);
    }

    fn send(&self, out: &mut BytesMut, word: &str, object: &Value) {
        match (self.form.media, form::protobuf(object)) {
            (Media::Protobuf, Some(object)) => message(out, word, &object),
            _ => line(out, word, &[object.to_string().as_bytes()]),
        }
    }
}

fn line(out: &mut BytesMut, word: &str, object: &[&[u8]]) {
    out.reserve(object.iter().map(|part| part.len()).sum::<usize>() + 64);
    out.put_slice(b"{\"type\":\"");
    out.put_slice(word.as_bytes());
    out.put_slice(b"\",\"object\":");
    for part in object {
        out.put_slice(part);
    }
    out.put_slice(b"}\n");
}

/// A `WatchEvent` without an envelope, after its length in four bytes.
fn message(out: &mut BytesMut, word: &str, object: &[u8]) {
    let (mut extension, mut event) =
        (Vec::with_capacity(object.len() + 8), Vec::with_capacity(object.len() + 24));
    form::field(&mut extension, 1, object);
    form::field(&mut event, 1, word.as_bytes());
    form::field(&mut event, 2, &extension);
    out.put_u32(u32::try_from(event.len()).expect("objects are smaller than requests may be"));
    out.put_slice(&event);
}
