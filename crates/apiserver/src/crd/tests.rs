//! Definitions and objects through the whole way of a write.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Version, definition, schema::Schema};

/// A compiled schema.
pub(crate) fn schema(of: Value) -> Schema {
    let props: JSONSchemaProps = serde_json::from_value(of).expect("a test's schema");
    Schema::compile(&props)
}

/// A definition of Widgets with that schema.
pub(crate) fn definition(of: Value) -> CustomResourceDefinition {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": of}});
    with(json!({"versions": [version]}))
}

/// A definition of Widgets with changed fields of its spec.
fn with(changes: Value) -> CustomResourceDefinition {
    let mut spec = json!({
        "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
    });
    let changes = changes.as_object().expect("changes are fields").clone();
    spec.as_object_mut().expect("a spec").extend(changes);
    let mut definition = serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"}, "spec": spec,
    }))
    .expect("a test's definition");
    definition::apply_defaults(&mut definition);
    definition
}

fn check_definition(definition: &CustomResourceDefinition, expected: &[&str]) {
    let errors: Vec<String> = definition::validate(definition).iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (error, start) in errors.iter().zip(expected) {
        assert!(error.starts_with(start), "{error:?} does not start with {start:?}");
    }
}

#[test]
fn definitions_3_21() {
    let spec = |inner: Value| definition(json!({"type": "object", "properties": {"spec": inner}}));
    let at = "spec.validation.openAPIV3Schema.properties[spec]";
    check_definition(&with(json!({})), &[]);
    check_definition(
        &with(json!({"group": "nodots"})),
        &[
            "metadata.name: Invalid value: \"widgets.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Invalid value: \"nodots\": should be a domain with at least one dot",
        ],
    );
    check_definition(
        &with(json!({"versions": []})),
        &[
            "spec.versions: Invalid value: []: must have exactly one version marked as storage version",
            "status.storedVersions: Invalid value: null: must have at least one stored version",
        ],
    );
    check_definition(
        &spec(json!({})),
        &[&format!("{at}.type: Required value: must not be empty for specified object fields")],
    );
    check_definition(&spec(json!({"type": "string", "default": 5})), &[&format!(
        "{at}.default: Invalid value: \"integer\": {at}.default in body must be of type string: \"integer\""
    ).replace(&format!("{at}.default in body"), " in body")]);
    check_definition(
        &spec(json!({"type": "object", "default": {"x": 1}})),
        &[&format!("{at}.default: Invalid value: {{\"x\":1}}: must not have unknown fields")],
    );
    check_definition(
        &spec(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.nope"}]})),
        &[&format!("{at}.x-kubernetes-validations[0].rule: Invalid value: {{")],
    );
    check_definition(
        &spec(
            json!({"type": "array", "maxItems": 9, "items": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        ),
        &[&format!(
            "{at}.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the uncorrelatable portion of the schema within {at}"
        )],
    );
}

#[test]
fn what_is_unknown_is_not_preserved_beside_defaults_and_webhooks() {
    let last = "spec.preserveUnknownFields: Invalid value: true: cannot set to true";
    let preserving = |mut definition: CustomResourceDefinition| {
        definition.spec.preserve_unknown_fields = Some(true);
        definition
    };
    check_definition(&preserving(with(json!({}))), &[last]);
    let defaults = json!({"type": "object", "properties": {"a": {"type": "string", "default": "x"}}});
    check_definition(
        &preserving(definition(defaults)),
        &[
            "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema",
            last,
        ],
    );
    let webhook = json!({"clientConfig": {"url": "https://a.b"}, "conversionReviewVersions": ["v1"]});
    check_definition(
        &preserving(with(json!({"conversion": {"strategy": "Webhook", "webhook": webhook}}))),
        &[
            "spec.conversion.strategy: Invalid value: \"Webhook\": must be None if spec.preserveUnknownFields is true",
            last,
        ],
    );
}

/// A definition whose objects are converted by who is asked like this.
fn converted_by(config: Value) -> CustomResourceDefinition {
    let webhook = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
    with(json!({"conversion": {"strategy": "Webhook", "webhook": webhook}}))
}

#[test]
fn conversion_webhooks_are_judged_as_others() {
    let at = "spec.conversion.webhookClientConfig";
    let form = "; desired format: https://host[/path]";
    let service = |name: &str, namespace: &str, more: Value| {
        let mut service = json!({"name": name, "namespace": namespace});
        service.as_object_mut().expect("fields").extend(more.as_object().expect("fields").clone());
        json!({"service": service})
    };
    let check = |config: Value, expected: &[String]| {
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        check_definition(&converted_by(config), &expected);
    };
    check(json!({"url": "https://a.b/c"}), &[]);
    check(service("n", "ns", json!({"path": "/a/b"})), &[]);
    check(json!({}), &[format!("{at}: Required value: exactly one of url or service is required")]);
    check(
        json!({"url": "http://"}),
        &[
            format!("{at}.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{form}"),
            format!("{at}.url: Invalid value: \"\": host must be specified{form}"),
        ],
    );
    check(
        json!({"url": "https://me@a.b/c?d=e#f"}),
        &[
            format!("{at}.url: Invalid value: \"me\": user information is not permitted in the URL"),
            format!("{at}.url: Invalid value: \"f\": fragments are not permitted in the URL"),
            format!("{at}.url: Invalid value: \"d=e\": query parameters are not permitted in the URL"),
        ],
    );
    check(
        json!({"url": ":a"}),
        &[format!(
            "{at}.url: Required value: url must be a valid URL: parse \":a\": missing protocol scheme{form}"
        )],
    );
    check(service("n", "", json!({})), &[format!("{at}.service.name: Required value")]);
    check(service("", "ns", json!({})), &[format!("{at}.service.namespace: Required value")]);
    check(
        service("n", "ns", json!({"port": 0, "path": "a/b"})),
        &[
            format!(
                "{at}.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"
            ),
            format!("{at}.service.path: Invalid value: \"a/b\": must start with a '/'"),
            format!("{at}.service.path: Invalid value: \"a/b\": segment[0] may not be empty"),
        ],
    );
}

#[test]
fn who_is_established_has_a_good_authority() {
    let with_bundle = |bundle: &str| converted_by(json!({"url": "https://a.b", "caBundle": bundle}));
    let errors = |new: &str, old: CustomResourceDefinition| -> Vec<String> {
        let errors = definition::validate_update(&with_bundle(new), &old);
        errors.iter().map(ToString::to_string).filter(|error| error.contains("caBundle")).collect()
    };
    let established = |mut definition: CustomResourceDefinition| {
        let status = definition::settle(&definition, [&definition], jiff::Timestamp::UNIX_EPOCH);
        definition.status = Some(status);
        definition
    };
    check_definition(&with_bundle("d29yZHM="), &[]);
    let refused = "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"d29yZHM=\": unable to parse bytes as \
                   PEM block";
    assert_eq!(errors("d29yZHM=", established(with(json!({})))), [refused]);
    assert_eq!(errors("d29yZHM=", with(json!({}))), [""; 0], "it is not established");
    let mut stored_so = established(with(json!({})));
    stored_so.spec.conversion = with_bundle("b3RoZXI=").spec.conversion;
    assert_eq!(errors("d29yZHM=", stored_so), [""; 0], "it was no better before");
}

#[test]
fn versions_that_share_a_schema_are_judged_once() {
    let version = |name: &str, schema: Value| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}});
    let wrong = json!({"type": "object", "properties": {"spec": {"type": "array"}}});
    check_definition(
        &with(json!({"versions": [version("v1", wrong.clone()), version("v2", wrong.clone())]})),
        &["spec.validation.openAPIV3Schema.properties[spec].items: Required value: must be specified"],
    );
    check_definition(
        &with(json!({"versions": [version("v1", wrong), version("v2", json!({"type": "object"}))]})),
        &[
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].items: Required value: must be specified",
        ],
    );
}

#[test]
fn changed_definitions_keep_what_cannot_change() {
    let established = |mut definition: CustomResourceDefinition| {
        definition.metadata.resource_version = Some("1".into());
        let status =
            json!({"storedVersions": ["v1"], "conditions": [{"type": "Established", "status": "True"}]});
        definition.status = serde_json::from_value(status).expect("a status");
        definition
    };
    let old = established(with(json!({})));
    let errors = |changes: Value| -> Vec<String> {
        definition::validate_update(&established(with(changes)), &old)
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert!(errors(json!({})).is_empty());
    assert_eq!(
        errors(json!({"scope": "Cluster"})),
        ["spec.scope: Invalid value: \"Cluster\": field is immutable"]
    );
    assert_eq!(
        errors(json!({"group": "other.example.com"})),
        ["spec.group: Invalid value: \"other.example.com\": field is immutable"]
    );
    let other = json!({"name": "v2", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let errors = errors(json!({"versions": [other]}));
    assert!(
        errors[0].contains("must have the storage version v2")
            && errors[1].starts_with("status.storedVersions[0]: Invalid value: \"v1\": missing"),
        "{errors:?}"
    );
}

/// The version of a definition that accepts objects with this schema.
fn version(of: Value) -> Version {
    let definition = definition(of);
    assert_eq!(definition::validate(&definition), [], "a test's definition is accepted");
    Version::all(&definition).pop().expect("one version")
}

fn widget(spec: Value) -> Value {
    let metadata = json!({"name": "a", "namespace": "default", "resourceVersion": "1"});
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec})
}

fn texts(errors: &rules::field::Errors) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn rules_3_28() {
    let version = version(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "maxLength": 9, "x-kubernetes-validations": [{"rule": "self != 'bad'"}, {"rule": "self == oldSelf", "message": "fixed"}]},
        "min": {"type": "integer"}, "max": {"type": "integer"},
        "l": {"type": "array", "maxItems": 9, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "!has(self.v) || !has(oldSelf.v) || self.v >= oldSelf.v", "message": "grows"}]}},
    }, "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "messageExpression": "'min is %d'.format([self.min])", "fieldPath": ".min", "reason": "FieldValueForbidden"},
        {"rule": "!has(self.max) || 10 / self.max > 0", "message": "divides"},
    ]}}}));
    let check = |spec: Value, old: Option<Value>, expected: &[&str]| {
        let errors = match old {
            None => version.validate_create(&widget(spec)),
            Some(old) => version.validate_update(&widget(spec), &widget(old), &mut Vec::new()),
        };
        assert_eq!(texts(&errors), expected);
    };
    check(json!({"a": "x", "min": 1, "max": 2}), None, &[]);
    check(json!({"a": "bad"}), None, &["spec.a: Invalid value: \"bad\": failed rule: self != 'bad'"]);
    check(json!({"min": 3, "max": 2}), None, &["spec.min: Forbidden: min is 3"]);
    check(
        json!({"max": 0}),
        None,
        &["spec: Invalid value: \"object\": division by zero evaluating rule: divides"],
    );
    check(json!({"a": "y"}), Some(json!({"a": "x"})), &["spec.a: Invalid value: \"y\": fixed"]);
    check(json!({"a": "y"}), Some(json!({})), &[]);
    // Unchanged values stay as they are, but not in the eyes of a rule about changes.
    check(json!({"a": "bad", "min": 1}), Some(json!({"a": "bad"})), &[]);
    check(
        json!({"l": [{"k": "y", "v": 1}, {"k": "x", "v": 1}]}),
        Some(json!({"l": [{"k": "x", "v": 2}, {"k": "y", "v": 1}]})),
        &["spec.l[1]: Invalid value: grows"],
    );
    check(
        json!({"a": 5}),
        None,
        &[
            "spec.a: Invalid value: \"integer\": spec.a in body must be of type string: \"integer\"",
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
         existing errors to complete validation",
        ],
    );
}

#[test]
fn ratcheting_3_27() {
    let version = version(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "a": {"type": "string", "enum": ["good"]},
        "l": {"type": "array", "items": {"type": "string", "pattern": "^o"}},
        "m": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
            "properties": {"k": {"type": "string"}, "v": {"type": "integer", "minimum": 1}, "w": {"type": "integer"}}}},
    }}}}));
    let check = |new: Value, old: Value, expected: &[&str]| {
        let errors = texts(&version.validate_update(&widget(new), &widget(old), &mut Vec::new()));
        assert_eq!(errors, expected);
    };
    check(json!({"a": "bad", "l": ["ok"]}), json!({"a": "bad"}), &[]);
    check(
        json!({"a": "bad"}),
        json!({"a": "worse"}),
        &["spec.a: Unsupported value: \"bad\": supported values: \"good\""],
    );
    check(json!({"l": ["bad", "ok"]}), json!({"l": ["bad", "ok"]}), &[]);
    // A list without keys is one value: changing one item brings all of them back into view.
    check(
        json!({"l": ["bad", "oo"]}),
        json!({"l": ["bad", "ok"]}),
        &["spec.l[0]: Invalid value: \"bad\": spec.l[0] in body should match '^o'"],
    );
    check(
        json!({"m": [{"k": "y"}, {"k": "x", "v": 0, "w": 2}]}),
        json!({"m": [{"k": "x", "v": 0, "w": 1}]}),
        &[],
    );
}

#[test]
fn an_objects_way_3_24() {
    let mut definition = definition(json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}, "f": {"type": "number"}}},
        "status": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0}}},
    }}));
    definition.spec.versions[0].subresources =
        serde_json::from_value(json!({"status": {}})).expect("subresources");
    let version = Version::all(&definition).pop().expect("one version");
    let mut object = json!({"apiVersion": "example.com/v1", "kind": "Widget", "status": {"n": 1}, "spec": {"x": 1, "f": 2.0},
        "metadata": {"name": "a", "namespace": "default", "odd": true, "finalizers": ["mine"]}});
    assert_eq!(version.decode(&mut object), Ok(vec!["metadata.odd".to_owned(), "spec.x".to_owned()]));
    version.prepare_create(&mut object);
    assert_eq!(version.validate_create(&object), []);
    assert_eq!(
        object,
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"n": 1, "f": 2},
        "metadata": {"name": "a", "namespace": "default", "generation": 1, "finalizers": ["mine"]}})
    );
    assert_eq!(
        version.warnings(&object, None),
        [
            "metadata.finalizers: \"mine\": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        ]
    );
    let mut old = object.clone();
    old["metadata"]["resourceVersion"] = "1".into();
    old["status"] = json!({"n": 3});
    let mut new = old.clone();
    new["spec"]["n"] = 2.into();
    new["status"] = json!({"n": 9});
    version.prepare_update(&mut new, &old);
    assert_eq!((&new["status"]["n"], &new["metadata"]["generation"]), (&json!(3), &json!(2)));
    let mut status = old.clone();
    status["spec"]["n"] = 7.into();
    status["status"]["n"] = (-1).into();
    let status = version.with_status(&old, &status);
    assert_eq!((&status["spec"]["n"], &status["metadata"]["generation"]), (&json!(1), &json!(1)));
    assert_eq!(
        texts(&version.validate_status_update(&status, &old, &mut Vec::new())),
        ["status.n: Invalid value: -1: n in body should be greater than or equal to 0"]
    );
    let wrong = json!({"apiVersion": "example.com/v2", "kind": "Gadget", "metadata": {}});
    assert_eq!(
        texts(&version.validate_create(&wrong)),
        [
            "kind: Invalid value: \"Gadget\": must be Widget",
            "apiVersion: Invalid value: \"example.com/v2\": must be example.com/v1"
        ]
    );
}

#[test]
fn selectable_fields_3_31() {
    let mut definition =
        definition(json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "color": {"type": "string"}, "n": {"type": "integer"}, "b": {"type": "boolean"}}}}}));
    let fields = json!([{"jsonPath": ".spec.color"}, {"jsonPath": ".spec.n"}, {"jsonPath": ".spec.b"}]);
    definition.spec.versions[0].selectable_fields = serde_json::from_value(fields).expect("fields");
    check_definition(&definition, &[]);
    let version = Version::all(&definition).pop().expect("one version");
    let values = version.selectable_values(&json!({"spec": {"color": "red", "n": 1}}));
    let values: Vec<(&str, &str)> =
        values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(values, [("spec.b", ""), ("spec.color", "red"), ("spec.n", "1")]);
}

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let names = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "additionalProperties",
        "default",
        "enum",
        "required",
        "nullable",
        "pattern",
        "format",
        "minimum",
        "maxLength",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "x-kubernetes-int-or-string",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-map-type",
        "x-kubernetes-validations",
        "rule",
        "messageExpression",
        "fieldPath",
        "metadata",
        "spec",
        "status",
        "apiVersion",
        "kind",
        "name",
        "a",
    ]);
    let texts = prop::sample::select(vec![
        "object",
        "string",
        "array",
        "integer",
        "number",
        "boolean",
        "set",
        "map",
        "atomic",
        "date-time",
        "byte",
        "self == oldSelf",
        "self.a",
        "true",
        ".a",
        "^a",
        "[",
        "a",
        "é",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        texts.prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_schema_and_any_object_are_survived(schema in any_json(), object in any_json(), old in any_json()) {
        let Ok(props) = serde_json::from_value::<JSONSchemaProps>(schema) else { return Ok(()) };
        let mut definition = definition(json!({"type": "object"}));
        let written = definition.spec.versions[0].schema.as_mut().expect("a schema");
        written.open_api_v3_schema = Some(props);
        let _ = definition::validate(&definition);
        let _ = definition::validate_update(&definition, &definition);
        let version = Version::all(&definition).pop().expect("one version");
        let (mut object, mut old) = (object, old);
        let _ = version.decode(&mut object);
        version.read(&mut old);
        version.prepare_update(&mut object, &old);
        let _ = (version.validate_create(&object), version.validate_update(&object, &old, &mut Vec::new()), version.validate_status_update(&object, &old, &mut Vec::new()));
        for column in &version.columns {
            column.cell(&object, jiff::Timestamp::UNIX_EPOCH);
        }
    }

    #[test]
    fn pruning_and_defaulting_again_change_nothing(schema in any_json(), object in any_json()) {
        let Ok(props) = serde_json::from_value::<JSONSchemaProps>(schema) else { return Ok(()) };
        let schema = Schema::compile(&props);
        let mut once = object;
        super::prune::prune(&mut once, &schema, true);
        super::defaults::apply(&mut once, &schema);
        // Defaults may hold unknown fields in a schema that was never accepted; then they are pruned once more.
        super::prune::prune(&mut once, &schema, true);
        let mut twice = once.clone();
        assert_eq!(super::prune::prune(&mut twice, &schema, true), Vec::<String>::new());
        assert_eq!(once, twice);
    }
}
