//! GET of many objects (2.6–2.11): from one state, straight from the stored bytes, of which no more than a piece is copied at
//! one time.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use store::{At, Key, Object, Revision, Scope};

use crate::answer::{self, Answer};
use crate::cluster::Context;
use crate::crd::Custom;
use crate::object;
use crate::options::ListOptions;
use crate::selector::{FieldRequirement, Fields, Labels};
use crate::status::Refusal;
use crate::strategy::traits::Traits;

/// How long a request waits for a state that does not exist yet.
const CATCH_UP: Duration = Duration::from_secs(3);

/// Fields of which few objects have the same value.
const FEW: [&str; 4] =
    ["spec.nodeName", "status.nominatedNodeName", "involvedObject.name", "involvedObject.uid"];

/// What a client selects.
pub(crate) struct Selection {
    labels: Labels,
    fields: Fields,
    /// Set where objects of a custom resource are selected by what only their form in the requested version tells: its own
    /// fields, and labels that whoever converts may change.
    custom: Option<Arc<Custom>>,
}

/// Which of some objects are selected.
pub(crate) struct Selected<'a> {
    selection: &'a Selection,
    /// Those that were looked at in the requested version.
    converted: Option<HashSet<Key>>,
}

impl Selection {
    /// Reads the selectors of a request, and refuses fields that cannot be selected.
    pub(crate) fn read(context: &Context<'_>) -> Result<Self, Refusal> {
        let bad = |why: crate::selector::Malformed| Refusal::bad_request(why.to_string());
        let labels = Labels::parse(context.query.get("labelSelector").unwrap_or("")).map_err(bad)?;
        let fields = Fields::parse(context.query.get("fieldSelector").unwrap_or("")).map_err(bad)?;
        let is_pod = (context.resource.group.as_str(), context.resource.kind.as_str()) == ("", "Pod");
        let fields = if is_pod { fields.renamed("spec.host", "spec.nodeName") } else { fields };
        let traits = Traits::of(context.resource);
        let known = |name: &str| {
            name == "metadata.name"
                || name == "metadata.namespace" && traits.selects_namespace
                || context.strategy.selectable().contains(&name)
                || context.resource.custom.as_ref().is_some_and(|custom| custom.selects(name))
        };
        if let Some(unknown) = fields.iter().find(|wanted| !known(&wanted.field)) {
            return Err(unknown_field(context, &unknown.field));
        }
        let custom = context.resource.custom.clone();
        let custom = custom.filter(|custom| {
            fields.iter().any(|wanted| custom.selects(&wanted.field))
                || !labels.is_everything() && custom.may_relabel()
        });
        Ok(Selection { labels, fields, custom })
    }

    /// Whether a selector of fields, if there is one, says by itself that objects have this name. Of several names that it says
    /// the first by the alphabet counts (as measured).
    pub(crate) fn is_of_name(&self, name: &str) -> bool {
        let names = self.fields.iter().filter(|wanted| wanted.equal && wanted.field == "metadata.name");
        self.fields.is_everything() || names.map(|wanted| wanted.value.as_str()).min() == Some(name)
    }

    /// The narrowest part of the store that holds everything selected. Whoever watches it is not woken by the rest (8.20).
    pub(crate) fn scope(&self, context: &Context<'_>) -> Scope {
        let scope = Scope::resource(&object::storage_name(context.resource));
        self.narrowed(scope, context.resource.namespaced, context.namespace(), context.name())
    }

    fn narrowed(&self, mut scope: Scope, namespaced: bool, namespace: &str, name: &str) -> Scope {
        let said = |text: &'_ str, field: &str| {
            let exact = || self.fields.exact(field).filter(|value| !value.is_empty()).map(str::to_owned);
            Some(text.to_owned()).filter(|text| !text.is_empty()).or_else(exact)
        };
        if !namespaced {
            scope = scope.namespace("");
        } else if let Some(namespace) = said(namespace, "metadata.namespace") {
            scope = scope.namespace(&namespace);
        }
        // A watch by the deprecated path names its object there.
        if let Some(name) = said(name, "metadata.name") {
            return scope.name(&name);
        }
        // The index knows the fields of built-in kinds. That a field is empty, or not there, it may leave open. Within a
        // namespace only a field that few objects share narrows more than the namespace does.
        let is_within = namespaced && !namespace.is_empty();
        let is_indexed = |wanted: &&FieldRequirement| {
            let field = wanted.field.as_str();
            let is_narrow = if is_within { FEW.contains(&field) } else { !field.starts_with("metadata.") };
            wanted.equal && !wanted.value.is_empty() && is_narrow
        };
        match self.fields.iter().find(is_indexed).filter(|_| self.custom.is_none()) {
            Some(FieldRequirement { field, value, .. }) => scope.field(field, value),
            None => scope,
        }
    }

    /// Which of these objects are selected. Custom resources are judged as clients of the requested version see them.
    pub(crate) async fn among<'a>(
        &self,
        objects: impl IntoIterator<Item = &'a Arc<Object>>,
    ) -> Result<Selected<'_>, Refusal> {
        let Some(custom) = &self.custom else { return Ok(Selected { selection: self, converted: None }) };
        let objects: Vec<&Arc<Object>> = objects.into_iter().collect();
        let shown = custom.seen(&objects).await?;
        let is_selected = |object: &Object, shown: &Value| {
            let label = |key: &str| shown["metadata"]["labels"][key].as_str();
            let own = custom.version().selectable_values(shown);
            let field =
                |name: &str| own.get(name).map(String::as_str).or_else(|| object.index.fields.get(name));
            self.labels.matches(label) && self.fields.matches(field)
        };
        let selected = objects.iter().zip(&shown).filter(|(object, shown)| is_selected(object, shown));
        Ok(Selected {
            selection: self,
            converted: Some(selected.map(|(object, _)| object.key.clone()).collect()),
        })
    }

    fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }
}

impl Selected<'_> {
    /// Whether it is one of them.
    pub(crate) fn has(&self, object: &Object) -> bool {
        if let Some(selected) = &self.converted {
            return selected.contains(&object.key);
        }
        let Selection { labels, fields, .. } = self.selection;
        labels.matches(|key| object.index.labels.get(key))
            && fields.matches(|field| object.index.fields.get(field))
    }
}

/// Upstream words it by kind (§9, 2.69).
fn unknown_field(context: &Context<'_>, field: &str) -> Refusal {
    if context.resource.custom.is_some() {
        return Refusal::bad_request(format!("field label not supported: {field}"));
    }
    if context.strategy.selectable().is_empty() {
        let why = format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            types::go::quote(field)
        );
        return Refusal::bad_request(why);
    }
    if context.resource.group == "batch" {
        let (field, kind) = (types::go::quote(field), &context.resource.kind);
        return Refusal::bad_request(format!("field label {field} not supported for {kind}"));
    }
    if context.resource.kind == "ResourceSlice" {
        let of = format!("{}, Kind={}", context.resource.api_version(), context.resource.kind);
        return Refusal::bad_request(format!("field label not supported for {of}: {field}"));
    }
    Refusal::bad_request(format!("field label not supported: {field}"))
}

pub(crate) async fn list(context: &Context<'_>) -> Result<Answer, Refusal> {
    let page = Page::read(context).await?;
    let selection = Selection::read(context)?;
    let listed = listed(context, &selection, &page).await?;
    listed.answer(context).await
}

/// One page of a list.
pub(crate) struct Listed {
    revision: Revision,
    pub(crate) objects: Vec<Arc<Object>>,
    token: Option<String>,
    remaining: Option<usize>,
}

impl Listed {
    /// A list of stored objects, byte for byte but for the kind, which the list says for all.
    pub(crate) async fn answer(&self, context: &Context<'_>) -> Result<Answer, Refusal> {
        let objects = context.shown(&self.objects).await?;
        let items: Vec<(&'static [u8], Bytes)> = objects
            .iter()
            .map(|object| {
                let (start, rest) = object::item(context.resource, object);
                (start, object.slice_ref(rest))
            })
            .collect();
        let head = Bytes::from(self.head(context));
        let commas = items.len().saturating_sub(1);
        let length: usize = items.iter().map(|(start, rest)| start.len() + rest.len()).sum();
        let length = head.len() + length + commas + END.len();
        let parts = items.into_iter().enumerate().flat_map(|(i, (start, rest))| {
            let comma: &'static [u8] = if i == 0 { b"" } else { b"," };
            [Bytes::from_static(comma), Bytes::from_static(start), rest]
        });
        let parts = std::iter::once(head).chain(parts).chain([Bytes::from_static(END)]);
        Ok(answer::json_in_parts(length as u64, parts))
    }

    /// What stands before the first object.
    fn head(&self, context: &Context<'_>) -> String {
        let (kind, version) = (context.resource.list_kind(), context.resource.api_version());
        let mut head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{{"resourceVersion":"{}""#,
            self.revision
        );
        if let Some(token) = &self.token {
            write!(head, r#","continue":"{token}""#).expect("memory");
        }
        if let Some(remaining) = self.remaining {
            write!(head, r#","remainingItemCount":{remaining}"#).expect("memory");
        }
        head.push_str("},\"items\":[");
        head
    }
}

/// What stands after the last object of a list.
const END: &[u8] = b"]}";

/// The objects of a page.
pub(crate) async fn listed(
    context: &Context<'_>,
    selection: &Selection,
    page: &Page,
) -> Result<Listed, Refusal> {
    let view = context.cluster.store().view_at(page.at).map_err(|why| expired(context, &why, page))?;
    let scope = selection.scope(context);
    let all = || view.list_after(&scope, page.after.as_deref().unwrap_or(""));
    let selected = selection.among(all()).await?;
    let mut objects = Vec::new();
    let mut is_more = false;
    for object in all() {
        if page.limit.is_some_and(|limit| objects.len() >= limit) {
            // Whether more of them are selected is for the next page to find out.
            is_more = true;
            break;
        }
        if selected.has(object) {
            objects.push(object.clone());
        }
    }
    let last = objects.last().filter(|_| is_more);
    // Held from its first page on, and not for as long as somebody asks: tokens end.
    if is_more && page.after.is_none() {
        context.cluster.store().hold(&view);
    }
    let token = last.map(|last| {
        let after = after_key(context, last);
        token(i64::try_from(view.revision().0).unwrap_or(i64::MAX), &after)
    });
    let remaining = last.filter(|_| selection.is_everything());
    let remaining = remaining.map(|last| view.count(&scope, Some(last.key.path())));
    Ok(Listed { revision: view.revision(), objects, token, remaining })
}

/// Which part of which state is wanted.
pub(crate) struct Page {
    at: At,
    after: Option<String>,
    limit: Option<usize>,
}

impl Page {
    pub(crate) async fn read(context: &Context<'_>) -> Result<Self, Refusal> {
        let options = ListOptions::read(context.query, false)?;
        let version = options.version();
        if let Some(token) = &options.token {
            if !version.is_empty() && version != "0" {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Refusal::bad_request(why));
            }
            let (at, after) = read_token(context, token)?;
            return Ok(Page { at, after: Some(after), limit: options.limit });
        }
        let revision = options.revision()?;
        wait_for(context, revision).await?;
        let is_exact = match options.version_match.as_deref() {
            Some(how) => how == "Exact",
            None => options.limit.is_some(),
        };
        let at = if revision.0 > 0 && is_exact { At::Exactly(revision) } else { At::Latest };
        // Reflectors ask for any state and rely on getting all of it at once (2.7).
        let limit = if version == "0" { None } else { options.limit };
        Ok(Page { at, after: None, limit })
    }
}

/// Waits a moment for a state that the client has seen elsewhere (2.5, 2.15).
pub(crate) async fn wait_for(context: &Context<'_>, revision: Revision) -> Result<(), Refusal> {
    let store = context.cluster.store();
    let reached = tokio::time::timeout(CATCH_UP, store.reached(revision)).await;
    reached.map_err(|_| Refusal::too_large_resource_version(revision.0, store.revision().0))
}

/// Where the next page begins (2.8): after this object, in the words of the token.
fn after_key(context: &Context<'_>, last: &Object) -> String {
    if context.namespace().is_empty() { last.key.path().to_owned() } else { format!("/{}", last.key.name()) }
}

/// The token of a page that begins after an object of a state; a state of -1 is the latest.
fn token(revision: impl Into<i64>, after: &str) -> String {
    let revision: i64 = revision.into();
    let token = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{after}\u{0}")});
    base64url(token.to_string().as_bytes())
}

fn read_token(context: &Context<'_>, token: &str) -> Result<(At, String), Refusal> {
    let bad =
        |why: &str| Refusal::bad_request(format!("invalid continue token: continue key is not valid: {why}"));
    let bytes =
        from_base64url(token).map_err(|at| bad(&format!("illegal base64 data at input byte {at}")))?;
    let token: Value = serde_json::from_slice(&bytes).map_err(|_| {
        let why = schema::check_syntax(&bytes).err();
        bad(why.as_deref().unwrap_or("json: cannot unmarshal the token"))
    })?;
    let version = token["v"].as_str().unwrap_or("");
    if version != "meta.k8s.io/v1" {
        return Err(bad(&format!("server does not recognize this encoded version {version}")));
    }
    let revision = token["rv"].as_i64().unwrap_or(0);
    if revision == 0 {
        return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"));
    }
    let start = token["start"].as_str().filter(|start| !start.is_empty());
    let start = start.ok_or_else(|| bad("encoded start key empty (version meta.k8s.io/v1)"))?;
    let start = start.strip_suffix('\u{0}').unwrap_or(start);
    let after = match start.strip_prefix('/') {
        Some(name) if !context.namespace().is_empty() => format!("{}/{name}", context.namespace()),
        _ => start.to_owned(),
    };
    let at = u64::try_from(revision).map_or(At::Latest, |revision| At::Exactly(Revision(revision)));
    Ok((at, after))
}

/// The state of a list is no longer known. Whoever was in the middle of one may go on with the latest state (2.9).
fn expired(context: &Context<'_>, why: &store::error::Read, page: &Page) -> Refusal {
    let Some(after) = &page.after else {
        tracing::debug!(%why, "a list of a state that is no longer known");
        return Refusal::expired("The resourceVersion for the provided list is too old.");
    };
    let after = match after.strip_prefix(context.namespace()) {
        Some(name) if !context.namespace().is_empty() => name,
        _ => after,
    };
    Refusal::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    )
    .with_continue(token(-1, after))
}

const BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

fn base64url(bytes: &[u8]) -> String {
    base64::Engine::encode(&BASE64, bytes)
}

/// The bytes, or the place of the first byte that is none of base64.
fn from_base64url(text: &str) -> Result<Vec<u8>, usize> {
    base64::Engine::decode(&BASE64, text).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        // Go tells where the group began that is not whole.
        base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len() / 4 * 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_5_14_selectors_narrow_what_is_watched() {
        let check = |fields: &str, namespaced: bool, namespace: &str, name: &str, expected: Scope| {
            let fields = Fields::parse(fields).expect("a selector");
            let selection =
                Selection { labels: Labels::parse("").expect("a selector"), fields, custom: None };
            let scope = selection.narrowed(Scope::resource("r"), namespaced, namespace, name);
            assert_eq!(scope, expected);
        };
        let all = || Scope::resource("r");
        check("", true, "", "", all());
        check("", true, "n", "", all().namespace("n"));
        check("", false, "", "", all().namespace(""));
        check("", false, "", "x", all().namespace("").name("x"));
        check("metadata.name=x", false, "", "", all().namespace("").name("x"));
        check("metadata.name=x", true, "n", "", all().namespace("n").name("x"));
        check("metadata.namespace=n,metadata.name=x", true, "", "", all().namespace("n").name("x"));
        check("spec.nodeName=a", true, "", "", all().field("spec.nodeName", "a"));
        check(
            "status.phase!=b,spec.nodeName=a",
            true,
            "n",
            "",
            all().namespace("n").field("spec.nodeName", "a"),
        );
        check("status.phase=b", true, "n", "", all().namespace("n"));
        check("status.phase=b", true, "", "", all().field("status.phase", "b"));
        check("spec.nodeName=", true, "", "", all());
        check("spec.nodeName!=a", true, "", "", all());
    }
}
