//! In which form a client wants its answer (1.27): the clauses of `Accept`, best first, against what is offered.

use http::{HeaderMap, header};

use crate::auth;
use crate::registry::Resource;
use crate::request::{Query, Target, Verb};
use crate::status::Refusal;

pub(crate) const JSON: &str = "application/json";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OFFERED: [(&str, Media); 3] = [(JSON, Media::Json), (YAML, Media::Yaml), (PROTOBUF, Media::Protobuf)];

/// How an answer is spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Yaml,
    Protobuf,
}

/// What becomes of an object before it is sent (§1.7). The text is the version of the transformed kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Nothing.
    Whole,
    /// Only metadata, of one object.
    Partial(&'static str),
    /// Only metadata, of a list.
    PartialList(&'static str),
    /// Rows.
    Table(&'static str),
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) media: Media,
    pub(crate) shape: Shape,
    pub(crate) pretty: bool,
}

impl Form {
    /// What a client gets that asks for nothing in particular.
    pub(crate) const PLAIN: Form = Form { media: Media::Json, shape: Shape::Whole, pretty: false };

    /// Whether stored bytes can be sent as they are.
    pub(crate) fn is_plain(&self) -> bool {
        *self == Form::PLAIN
    }
}

/// What an endpoint can send.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is offered on its own")]
pub(crate) struct Offer {
    /// Objects in protobuf: not those of custom resources.
    pub(crate) protobuf: bool,
    /// Rows: not of what is only answered and never kept.
    pub(crate) tables: bool,
    /// Streams: then YAML is not among the forms.
    pub(crate) stream: bool,
    /// Whether the endpoint may also stream, which a refusal tells.
    pub(crate) may_stream: bool,
}

impl Offer {
    pub(crate) fn of(resource: &Resource, target: &Target) -> Self {
        let is_collection = matches!(target.verb, Verb::List | Verb::Watch);
        Offer {
            protobuf: resource.custom.is_none(),
            tables: !auth::reviews::is_review(resource),
            stream: target.verb == Verb::Watch,
            may_stream: is_collection,
        }
    }
}

/// The form that a request asks for.
pub(crate) fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<Form, Refusal> {
    let accept = accept(headers);
    if offer.protobuf && !is_routable(accept) {
        return Err(unroutable(offer.may_stream));
    }
    let not_acceptable = |streams: bool| {
        let media = if streams {
            vec![format!("{JSON};stream=watch"), format!("{PROTOBUF};stream=watch")]
        } else {
            OFFERED.map(|(name, _)| name.to_owned()).to_vec()
        };
        Refusal::not_acceptable(&media.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut form = chosen(accept, |shape, media| match shape {
        Some(Shape::Table(_)) => offer.tables && media != Media::Protobuf,
        Some(_) => true,
        None => media != Media::Protobuf || offer.protobuf,
    })
    .ok_or_else(|| not_acceptable(false))?;
    if offer.stream && form.media == Media::Yaml {
        return Err(not_acceptable(true));
    }
    form.pretty |= is_for_people(headers, query);
    Ok(form)
}

/// The form of a refusal. One that cannot be sent as asked for is sent as JSON, so that at least its reason arrives.
pub(crate) fn for_refusal(headers: &HeaderMap, query: &Query) -> Form {
    match chosen(accept(headers), |shape, _| shape.is_none()) {
        Some(form) => Form { pretty: form.pretty || is_for_people(headers, query), ..form },
        None => Form { pretty: true, ..Form::PLAIN },
    }
}

fn accept(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The router in front of built-in resources knows no `application/*`.
fn is_routable(accept: &str) -> bool {
    let names = || accept.split(',').map(|clause| clause.split(';').next().unwrap_or("").trim_matches(' '));
    accept.is_empty() || names().any(|name| name == "*/*" || OFFERED.iter().any(|(known, _)| *known == name))
}

fn unroutable(may_stream: bool) -> Refusal {
    let mut media = OFFERED.map(|(name, _)| name.to_owned()).to_vec();
    if may_stream {
        media.extend([JSON, PROTOBUF].map(|name| format!("{name};stream=watch")));
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {}", media.join(", "));
    Refusal::not_acceptable_here(message)
}

/// The first clause that something offered fits.
fn chosen(accept: &str, allows: impl Fn(Option<Shape>, Media) -> bool) -> Option<Form> {
    if accept.is_empty() {
        return Some(Form::PLAIN);
    }
    for clause in clauses(accept) {
        for (name, media) in OFFERED {
            let (kind, subkind) = name.split_once('/').expect("media types have two parts");
            let fits = (clause.kind == kind && (clause.subkind == subkind || clause.subkind == "*"))
                || (clause.kind == "*" && clause.subkind == "*");
            if !fits {
                continue;
            }
            let Some(shape) = clause.shape() else { continue };
            let streams = clause.parameter("stream");
            if streams.is_some_and(|word| !word.is_empty() && (word != "watch" || media == Media::Yaml)) {
                continue;
            }
            if allows(shape, media) {
                let pretty = clause.parameter("pretty") == Some("1");
                return Some(Form { media, shape: shape.unwrap_or(Shape::Whole), pretty });
            }
        }
    }
    None
}

/// One of the alternatives of an `Accept` header.
struct Clause<'a> {
    kind: &'a str,
    subkind: &'a str,
    quality: f64,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Clause<'_> {
    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().rfind(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    /// The transformation that is asked for; nothing at all if there is no such.
    #[expect(clippy::option_option, reason = "no shape, an unknown shape and a known one are three things")]
    fn shape(&self) -> Option<Option<Shape>> {
        let [kind, group, version] = ["as", "g", "v"].map(|name| self.parameter(name));
        if kind.is_none() && group.is_none() && version.is_none() {
            return Some(None);
        }
        let version = match (group, version) {
            (Some("meta.k8s.io"), Some("v1")) => "v1",
            (Some("meta.k8s.io"), Some("v1beta1")) => "v1beta1",
            _ => return None,
        };
        Some(Some(match kind {
            Some("Table") => Shape::Table(version),
            Some("PartialObjectMetadata") => Shape::Partial(version),
            Some("PartialObjectMetadataList") => Shape::PartialList(version),
            _ => return None,
        }))
    }
}

/// The clauses, best first: by quality, then the more exact ones.
fn clauses(accept: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<Clause<'_>> = Vec::new();
    for part in accept.split(',') {
        let mut pieces = part.trim_matches(' ').split(';');
        let name = pieces.next().unwrap_or("");
        let (kind, subkind) = match name.split_once('/') {
            None if name.trim_matches(' ') == "*" => ("*", "*"),
            Some((kind, subkind)) if !subkind.contains('/') => {
                (kind.trim_matches(' '), subkind.trim_matches(' '))
            }
            _ => continue,
        };
        let mut clause = Clause { kind, subkind, quality: 1.0, parameters: Vec::new() };
        for piece in pieces {
            match piece.split_once('=') {
                Some((key, value)) if !value.contains('=') && !value.is_empty() => {
                    let (key, value) = (key.trim_matches(' '), value.trim_matches(' '));
                    if key == "q" {
                        clause.quality = value.parse().unwrap_or(0.0);
                    } else {
                        clause.parameters.push((key, value));
                    }
                }
                _ => {}
            }
        }
        clauses.push(clause);
    }
    let exactness = |clause: &Clause<'_>| (clause.kind == "*", clause.subkind == "*");
    clauses.sort_by(|a, b| b.quality.total_cmp(&a.quality).then(exactness(a).cmp(&exactness(b))));
    clauses
}

/// Whether somebody is going to read the answer: who says so, and tools of the command line.
fn is_for_people(headers: &HeaderMap, query: &Query) -> bool {
    if let Some(pretty) = query.get("pretty").filter(|pretty| !pretty.is_empty()) {
        return matches!(pretty, "1" | "t" | "T" | "TRUE" | "true" | "True");
    }
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or("");
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";

    fn check(accept: &'static str, protobuf: bool, expected: &str) {
        let mut headers = HeaderMap::new();
        if !accept.is_empty() {
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        }
        let offer = Offer { protobuf, tables: protobuf, stream: false, may_stream: false };
        let got = match negotiate(&headers, &Query::default(), offer) {
            Ok(form) => format!("{:?} {:?}", form.media, form.shape),
            Err(refusal) => refusal.code().as_u16().to_string(),
        };
        assert_eq!(got, expected, "{accept}");
    }

    #[test]
    fn rule_1_27_the_best_clause_that_is_offered() {
        check("", true, "Json Whole");
        check("*/*", true, "Json Whole");
        check("application/*", true, "406");
        check("application/*", false, "Json Whole");
        check("text/html", true, "406");
        check("application/json;q=0.5, application/vnd.kubernetes.protobuf", true, "Protobuf Whole");
        check("application/vnd.kubernetes.protobuf,application/json", true, "Protobuf Whole");
        check("application/vnd.kubernetes.protobuf,application/json", false, "Json Whole");
        check("application/vnd.kubernetes.protobuf", false, "406");
        check("*/*, application/yaml", true, "Yaml Whole");
        check("application/json;stream=nothing", true, "406");
    }

    #[test]
    fn rule_1_35_1_36_transforms() {
        check(TABLE, true, "Json Table(\"v1\")");
        check("application/json;as=Table;g=meta.k8s.io;v=v2,application/json", true, "Json Whole");
        check("application/json;as=Table;g=meta.k8s.io;v=v2", true, "406");
        check("application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", true, "406");
        let partial = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        check(partial, false, "Protobuf Partial(\"v1\")");
        check(TABLE, false, "406"); // where no rows are offered
    }
}
