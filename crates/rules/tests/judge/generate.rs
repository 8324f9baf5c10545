//! Random documents: edits of a good one, at places and with values that the schema pack knows to be of the right type
//! most of the time. An edit list is small, prints well and shrinks.

use schema::Type;
use schema::pack::{Field, Shape};
use serde_json::{Map, Value, json};

use crate::chance::Chance;

/// A value put at a place, which is a JSON pointer without escapes.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    path: Vec<String>,
    value: Value,
}

impl Edit {
    /// A chosen value at a chosen place.
    pub(crate) fn new(path: &[&str], value: Value) -> Self {
        Edit { path: path.iter().map(|part| (*part).to_owned()).collect(), value }
    }
}

/// Applies edits in their order. `null` removes.
pub(crate) fn apply(document: &Value, edits: &[Edit]) -> Value {
    let mut document = document.clone();
    for edit in edits {
        set(&mut document, &edit.path, &edit.value);
    }
    document
}

fn set(target: &mut Value, path: &[String], value: &Value) {
    let Some((first, rest)) = path.split_first() else { return *target = value.clone() };
    if let Value::Array(items) = target
        && let Some(item) = first.parse::<usize>().ok().and_then(|i| items.get_mut(i))
    {
        return set(item, rest, value);
    }
    if !target.is_object() {
        *target = json!({});
    }
    let fields = target.as_object_mut().expect("made an object above");
    if rest.is_empty() && value.is_null() {
        fields.remove(first);
    } else {
        set(fields.entry(first.clone()).or_insert(Value::Null), rest, value);
    }
}

/// Smaller lists of edits, the simplest first.
pub(crate) fn smaller(edits: &[Edit]) -> Vec<Vec<Edit>> {
    let mut candidates = Vec::new();
    for i in 0..edits.len() {
        let mut fewer = edits.to_vec();
        fewer.remove(i);
        candidates.push(fewer);
    }
    for (i, edit) in edits.iter().enumerate() {
        for value in smaller_values(&edit.value) {
            let mut simpler = edits.to_vec();
            simpler[i].value = value;
            candidates.push(simpler);
        }
    }
    candidates
}

fn smaller_values(value: &Value) -> Vec<Value> {
    match value {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, field)| {
                let mut without = fields.clone();
                without.remove(key);
                let with = |smaller| {
                    let mut fields = fields.clone();
                    fields.insert(key.clone(), smaller);
                    Value::Object(fields)
                };
                std::iter::once(Value::Object(without)).chain(smaller_values(field).into_iter().map(with))
            })
            .collect(),
        Value::Array(items) => (0..items.len())
            .flat_map(|i| {
                let mut without = items.clone();
                without.remove(i);
                let with = move |smaller| {
                    let mut items = items.clone();
                    items[i] = smaller;
                    Value::Array(items)
                };
                std::iter::once(Value::Array(without)).chain(smaller_values(&items[i]).into_iter().map(with))
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// A random edit somewhere below `path`, which is of this type in this document.
pub(crate) fn edit(chance: &mut Chance, document: &Value, path: &[&str], of: Type) -> Edit {
    let mut path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
    let mut of = of;
    let mut name = path.last().cloned().unwrap_or_default();
    let mut field: Option<Field> = None;
    loop {
        let here = at(document, &path);
        match of.shape() {
            Shape::Pointer(inner) => of = inner,
            Shape::Struct if here.is_some_and(Value::is_object) && chance.percent(92) => {
                let members = members(of);
                let member = *chance.pick(&members);
                member.name().clone_into(&mut name);
                path.push(name.clone());
                of = member.of_type();
                field = Some(member);
                if chance.percent(8) {
                    return Edit { path, value: Value::Null };
                }
            }
            Shape::List(inner)
                if here.is_some_and(|list| list.as_array().is_some_and(|l| !l.is_empty()))
                    && chance.percent(80) =>
            {
                let length = here.and_then(Value::as_array).map_or(0, Vec::len);
                path.push(chance.below(length).to_string());
                of = inner;
            }
            _ => {
                let depth = 3 + chance.below(3);
                let value = value(chance, of, &name, field, depth);
                return Edit { path, value };
            }
        }
    }
}

fn at<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        value => value.get(part),
    })
}

/// The fields of a struct, those of inlined structs among them.
fn members(of: Type) -> Vec<Field> {
    let mut all = Vec::new();
    for field in of.fields() {
        if field.is_inline() { all.extend(members(field.of_type())) } else { all.push(field) }
    }
    all
}

fn value(chance: &mut Chance, of: Type, name: &str, field: Option<Field>, depth: usize) -> Value {
    if chance.percent(1) {
        return chance
            .pick(&[json!("text"), json!(1), json!(1.5), json!(true), json!([]), json!({})])
            .clone();
    }
    match of.shape() {
        Shape::Pointer(inner) => value(chance, inner, name, field, depth),
        Shape::String => string(chance, name, field),
        Shape::Bool => json!(chance.percent(50)),
        Shape::Int32 => {
            json!(chance.pick(&[0, 1, -1, 2, 3, 5, 30, 80, 8080, 65535, 65536, 100_001, i32::MAX]))
        }
        Shape::Int64 => json!(chance.pick(&[0, 1, -1, 2, 30, 420, 1000, 65536, i64::from(i32::MAX) + 1])),
        Shape::Float64 => json!(chance.pick(&[0.0, 1.5, -1.0])),
        Shape::Bytes => json!(chance.pick(&["", "YQ=="])),
        Shape::Time => {
            json!(chance.pick(&["2025-01-01T00:00:00Z", "2025-01-01T00:01:00Z", "2030-06-01T12:00:00+02:00"]))
        }
        Shape::MicroTime => json!("2025-01-01T00:00:00.000000Z"),
        Shape::Quantity => {
            json!(chance.pick(&["1", "0", "-1", "100m", "1.5Gi", "0.0001", "1e3", "2Gi", "1Ki", "1M", "0.5"]))
        }
        Shape::IntOrString => {
            chance.pick(&[json!(80), json!("http"), json!(0), json!("A_b"), json!(70000), json!("")]).clone()
        }
        Shape::Raw | Shape::Any => json!({"a": 1}),
        Shape::SchemaOrBool(_) | Shape::SchemaOrArray(_) | Shape::SchemaOrStrings(_) => json!(true),
        Shape::List(inner) => {
            let length = if depth == 0 { 0 } else { *chance.pick(&[0, 1, 1, 1, 2, 2, 3]) };
            (0..length).map(|_| value(chance, inner, name, field, depth - 1)).collect()
        }
        Shape::Map(inner) => {
            let length = *chance.pick(&[0, 1, 1, 2]);
            (0..length)
                .map(|_| (key(chance, name), value(chance, inner, name, None, depth.saturating_sub(1))))
                .collect()
        }
        Shape::Struct => structure(chance, of, depth),
    }
}

fn structure(chance: &mut Chance, of: Type, depth: usize) -> Value {
    let members = members(of);
    let mut fields = Map::new();
    // Structs that hold one of many (volumes, probes) are right only with few fields, so few are set.
    let wanted = if depth == 0 { 0 } else { *chance.pick(&[1, 1, 2, 3]) };
    let chosen: Vec<usize> = (0..wanted).map(|_| chance.below(members.len())).collect();
    for (i, member) in members.iter().enumerate() {
        if chosen.contains(&i) || (member.facts().required && chance.percent(85)) {
            let value =
                value(chance, member.of_type(), member.name(), Some(*member), depth.saturating_sub(1));
            fields.insert(member.name().to_owned(), value);
        }
    }
    Value::Object(fields)
}

fn string(chance: &mut Chance, name: &str, field: Option<Field>) -> Value {
    let words = field.and_then(|field| field.facts().values()).and_then(|values| values.as_array().cloned());
    if let Some(words) = words.filter(|words| !words.is_empty())
        && chance.percent(85)
    {
        return chance.pick(&words).clone();
    }
    let long = "x".repeat(64);
    let pool: &[&str] = match name {
        "name" | "containerName" | "serviceName" | "claimName" | "secretName" | "secret" | "hostname"
        | "subdomain" | "resourceClaimName" | "volumeName" | "nodeName" | "serviceAccountName" => {
            &["a", "c", "main", "a-b", "A", "a_b", "", "a.b", "-a", "http", &long]
        }
        "image" => &["i", " i", "", "i:latest", "i@sha256:abc", "i:1"],
        "path"
        | "mountPath"
        | "subPath"
        | "subPathExpr"
        | "devicePath"
        | "terminationMessagePath"
        | "workingDir" => &["/a", "a", "/", "../b", "a/../b", "a:b", "", "/a/b", "/dev/x"],
        "key" | "topologyKey" | "type" | "conditionType" | "labelSelectorKey" => {
            &["a", "kubernetes.io/hostname", "a b", "", "example.com/x", "metadata.name", "zone"]
        }
        "operator" => &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Equal", "", "Bad"],
        "fieldPath" => &[
            "metadata.name",
            "metadata.labels['a']",
            "spec.nodeName",
            "status.podIP",
            "metadata.annotations['A b']",
            "bad",
            "",
        ],
        "resource" => &["limits.cpu", "requests.memory", "limits.example.com/gpu", "bad", ""],
        "divisor" => &["1", "1m", "0", "1Ki", "3"],
        "values" => &["a", "1", "", "-", "A b", "5"],
        "ip" | "ips" | "nameservers" => {
            &["1.2.3.4", "::1", "bad", "", "01.2.3.4", "1.2.3.4/24", "01.2.3.4/24", "::1/64"]
        }
        "managedBy" => &["a.io/b", "kubernetes.io/job-controller", "bad", "", "A/b", "a.io/b c", &long],
        "succeededIndexes" | "completedIndexes" | "failedIndexes" => {
            &["0", "0-2", "1,3-4", "", "a", "2-1", "1-", "9", "0,0"]
        }
        "priorityClassName" | "runtimeClassName" | "schedulerName" => &["a", "A", "", "a.b", "a b"],
        "restartPolicy" => &["Never", "OnFailure", "Always", "", "Bad"],
        "completionMode" => &["Indexed", "NonIndexed", "", "Bad"],
        "action" => &["FailJob", "FailIndex", "Ignore", "Count", "", "Bad", "Restart"],
        "status" => &["True", "False", "Unknown", "", "Bad"],
        "expression" | "messageExpression" | "valueExpression" => &[
            "true",
            "",
            " 1 + 1",
            "(",
            "a",
            "object.a == 'b'",
            "request.name",
            "authorizer.group('').resource('pods').namespace('n').check('get').allowed()",
            "device.driver == 'd.io' && device.attributes['d.io'].a",
            "device.capacity['d.io'].c",
            "namespaceObject + 1 == 2",
            "authorizer.requestResource.check('get').reason()",
            "variables.a",
        ],
        "version" => &["v1", "1.2.3", "1.2.3-a+b", "1", "", "V1"],
        "driver" | "pool" | "device" | "matchAttribute" => {
            &["d.io", "D.io", "p", "v", "a/b", "d.io/a", "", "a b", "d.io/a b", "/a", "a/", &long]
        }
        "url" => &[
            "https://h/p",
            "http://h",
            "https://",
            "https://u@h",
            "https://h?q#f",
            ":",
            "https://h:x",
            "a b",
        ],
        _ => &["a", "b", "", "A b", "a/b", "example.com/x", "1.2.3.4", "http://x", "é<", &long],
    };
    json!(chance.pick(pool))
}

fn key(chance: &mut Chance, name: &str) -> String {
    let pool: &[&str] = match name {
        "limits" | "requests" | "overhead" => &[
            "cpu",
            "memory",
            "cpu",
            "memory",
            "ephemeral-storage",
            "hugepages-2Mi",
            "example.com/gpu",
            "bad name",
            "kubernetes.io/x",
            "pods",
            "requests.example.com/x",
            "A/b",
        ],
        _ => &["a", "b", "example.com/x", "A b", "", "kubernetes.io/hostname", "job-name"],
    };
    (*chance.pick(pool)).to_owned()
}
