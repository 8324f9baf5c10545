//! OpenAPI v2: the same documents in the older form, all in one (1.21).

use serde_json::{Map, Value, json};

/// What objects of which kinds a schema is for.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// One v2 document of many v3 ones.
pub(super) fn document(documents: &[Value]) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            paths.insert(path.clone(), path_item(item));
        }
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            if !definitions.contains_key(name) {
                definitions.insert(name.clone(), definition(name, schema));
            }
        }
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": super::git_version()},
        "paths": paths,
        "definitions": definitions,
        "securityDefinitions": {"BearerToken": {"type": "apiKey", "description": "a bearer token", "name": "authorization", "in": "header"}},
        "security": [{"BearerToken": []}],
    })
}

/// Types that are one of several have a single one here.
fn definition(name: &str, schema: &Value) -> Value {
    // Readers of v2 take fields that are named for all that may be there, so nothing is said of objects that may hold more.
    if schema["x-kubernetes-preserve-unknown-fields"] == true && !schema[KINDS].is_null() {
        return json!({"type": "object", KINDS: schema[KINDS]});
    }
    let mut schema = converted(schema);
    if let Some(fields) = schema.as_object_mut()
        && fields.remove("oneOf").is_some()
    {
        fields.insert("type".to_owned(), json!("string"));
        if name.ends_with("IntOrString") {
            fields.insert("format".to_owned(), json!("int-or-string"));
        }
    }
    schema
}

/// A schema with references as v2 writes them, and without what v2 does not know.
fn converted(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (name, value) in fields {
                match (name.as_str(), value) {
                    ("$ref", Value::String(to)) => {
                        out.insert(
                            name.clone(),
                            json!(to.replace("#/components/schemas/", "#/definitions/")),
                        );
                    }
                    // A reference in an `allOf` of its own stands for itself; what stands beside it stays there.
                    ("allOf", Value::Array(all)) if all.len() == 1 && all[0].get("$ref").is_some() => {
                        out.extend(converted(&all[0]).as_object().cloned().unwrap_or_default());
                    }
                    // v2 has neither.
                    ("nullable" | "anyOf", _) => {}
                    ("default", value) if value.as_object().is_some_and(Map::is_empty) => {}
                    _ => drop(out.insert(name.clone(), converted(value))),
                }
            }
            out.into()
        }
        Value::Array(items) => items.iter().map(converted).collect(),
        other => other.clone(),
    }
}

fn path_item(item: &Value) -> Value {
    let fields = item.as_object().into_iter().flatten();
    fields
        .map(|(name, value)| {
            let value = if name == "parameters" { parameters(value) } else { operation(value) };
            (name.clone(), value)
        })
        .collect::<Map<_, _>>()
        .into()
}

/// Parameters say their type themselves.
fn parameters(parameters: &Value) -> Value {
    let all = parameters.as_array().into_iter().flatten();
    all.map(|parameter| {
        let mut parameter = parameter.clone();
        if let Some(fields) = parameter.as_object_mut()
            && let Some(Value::Object(schema)) = fields.remove("schema")
        {
            fields.extend(schema);
        }
        parameter
    })
    .collect()
}

fn operation(operation: &Value) -> Value {
    let mut out = operation.clone();
    let Some(fields) = out.as_object_mut() else { return out };
    let forms = |content: &Value| -> Vec<String> {
        content.as_object().into_iter().flat_map(|content| content.keys().cloned()).collect()
    };
    let schema = |content: &Value| {
        content.as_object().and_then(|content| content.values().next()).map(|form| converted(&form["schema"]))
    };
    let mut all =
        parameters(fields.get("parameters").unwrap_or(&Value::Null)).as_array().cloned().unwrap_or_default();
    let mut consumes = vec!["*/*".to_owned()];
    if let Some(body) = fields.remove("requestBody") {
        consumes = forms(&body["content"]);
        let mut parameter = json!({"in": "body", "name": "body", "schema": schema(&body["content"])});
        if body["required"] == true {
            parameter["required"] = json!(true);
        }
        all.insert(0, parameter);
    }
    let mut produces = Vec::new();
    for (_, response) in fields.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten() {
        if let Some(content) = response.as_object_mut().and_then(|response| response.remove("content")) {
            if produces.is_empty() {
                produces = forms(&content);
            }
            response["schema"] = schema(&content).unwrap_or_default();
        }
    }
    if !all.is_empty() {
        fields.insert("parameters".to_owned(), all.into());
    }
    fields.insert("consumes".to_owned(), json!(consumes));
    fields.insert("produces".to_owned(), json!(produces));
    fields.insert("schemes".to_owned(), json!(["https"]));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_1_21_v2_says_nothing_of_the_fields_of_objects_that_may_hold_others() {
        let kinds = json!([{"group": "g", "version": "v1", "kind": "K"}]);
        let properties = json!({"spec": {"type": "object"}});
        let mut schema = json!({"type": "object", "properties": properties, KINDS: kinds});
        assert_eq!(definition("g.v1.K", &schema)["properties"], properties);
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
        assert_eq!(definition("g.v1.K", &schema), json!({"type": "object", KINDS: kinds}));
    }
}
