//! Definitions for the comparison with a real API server: schemas that use everything, and definitions that are wrong in
//! one way each.

use serde_json::{Value, json};

/// Plain values: types, bounds, formats, enumerations, defaults, nulls, lists of every type.
pub(super) fn values() -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {"spec": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 4},
        "pattern": {"type": "string", "pattern": "^[a-z-]*$"},
        "choice": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "count": {"type": "integer", "minimum": 0, "maximum": 7, "default": 1},
        "ratio": {"type": "number", "minimum": 0.5, "exclusiveMinimum": true, "multipleOf": 0.5},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "span": {"type": "string", "format": "duration"},
        "address": {"type": "string", "format": "ipv4"},
        "link": {"type": "string", "format": "uri"},
        "flag": {"type": "boolean", "nullable": true},
        "amount": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%?$"},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
            "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer", "default": 3}}}},
        "few": {"type": "array", "maxItems": 2, "minItems": 1, "items": {"type": "integer"}},
        "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "maxLength": 3}},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "object", "properties": {"leaf": {"type": "integer", "default": 9}}}}},
    }}}})
}

/// Combined schemas, embedded objects and preserved fields.
pub(super) fn combined() -> Value {
    json!({"type": "object", "properties": {"spec": {"type": "object",
    "properties": {
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "any": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            "anyOf": [{"required": ["a"], "properties": {"a": {"minLength": 2}}}, {"properties": {"b": {"minimum": 2}}, "required": ["b"]}]},
        "all": {"type": "integer", "allOf": [{"minimum": 1}, {"maximum": 3}]},
        "not": {"type": "string", "not": {"enum": ["a"]}},
        "either": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        "kept": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "embedded": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "closed": {"type": "object", "properties": {"a": {"type": "string"}}},
    }}}})
}

/// Rules of most kinds.
pub(super) fn rules() -> Value {
    json!({"type": "object",
    "x-kubernetes-validations": [
        {"rule": "self.metadata.name.size() < 60", "message": "long name"},
        {"rule": "has(self.spec)"},
    ],
    "properties": {"spec": {"type": "object",
    "x-kubernetes-validations": [
        {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min over max", "fieldPath": ".min"},
        {"rule": "!has(self.words) || self.words.all(w, w.matches('^[a-z-]*$'))", "messageExpression": "'bad words: ' + self.words.join(',')"},
        {"rule": "!has(self.word) || self.word != 'b'", "reason": "FieldValueForbidden", "message": "not b"},
        {"rule": "self.?word.orValue('') != 'abc' || self.?min.orValue(0) > 0", "message": "abc needs min"},
        {"rule": "!has(self.span) || self.span <= duration('1m')", "message": "too long a span"},
        {"rule": "!has(self.size) || !isQuantity(self.size) || quantity(self.size).isLessThan(quantity('1Gi'))", "message": "too big"},
        {"rule": "!has(self.when) || self.when > timestamp('2026-01-02T00:00:00Z')", "message": "too early"},
        {"rule": "!has(self.items) || self.items.map(i, has(i.v) ? i.v : 0).sum() < 10"},
        {"rule": "!has(self.amount) || (type(self.amount) == int ? self.amount < 50 : self.amount.endsWith('%'))", "message": "amount"},
        {"rule": "!has(self.labels) || self.labels.all(k, self.labels[k].size() < 3)", "message": "label values"},
        {"rule": "duration(self.word) < duration('1h') || true", "message": "absorbed"},
        {"rule": "!has(self.link) || isURL(self.link) == self.link.startsWith('http')", "message": "links"},
    ],
    "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 1000", "message": "max too high"}]},
        "word": {"type": "string", "maxLength": 100, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}]},
        "words": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 100}},
        "span": {"type": "string", "format": "duration"},
        "when": {"type": "string", "format": "date-time"},
        "size": {"type": "string", "maxLength": 100},
        "link": {"type": "string", "maxLength": 100},
        "amount": {"x-kubernetes-int-or-string": true},
        "labels": {"type": "object", "maxProperties": 5, "additionalProperties": {"type": "string", "maxLength": 100}},
        "items": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": {
            "type": "object", "required": ["k"], "properties": {"k": {"type": "string", "maxLength": 100}, "v": {"type": "integer"}},
            "x-kubernetes-validations": [
                {"rule": "!has(self.v) || !has(oldSelf.v) || self.v >= oldSelf.v", "message": "v only grows"},
                {"rule": "oldSelf.hasValue() || self.?v.orValue(0) < 100", "optionalOldSelf": true, "message": "new ones start small"},
            ]}},
    }}}})
}

/// A definition of its own for each schema.
pub(super) fn crd(plural: &str, schema: &Value) -> Value {
    let subresources = if plural == "statuses" { json!({"status": {}}) } else { json!(null) };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.differential.example.com")},
        "spec": {"group": "differential.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": "Widget".to_owned() + plural, "listKind": "List".to_owned() + plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources, "schema": {"openAPIV3Schema": schema}}]},
    })
}

/// Definitions that are wrong in one way each, and a few that are right.
pub(super) fn wrong_definitions() -> Vec<Value> {
    let spec = |inner: Value| json!({"type": "object", "properties": {"spec": inner}});
    let rule = |rule: Value| {
        spec(
            json!({"type": "object", "properties": {"s": {"type": "string", "maxLength": 9}, "i": {"type": "integer"},
            "l": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 9}}}, "x-kubernetes-validations": [rule]}),
        )
    };
    let of = |rule_text: &str| rule(json!({"rule": rule_text}));
    let schemas = vec![
        spec(json!({"type": "object"})),
        spec(json!({})),
        json!({"type": "string"}),
        json!({"type": "object", "nullable": true}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}}}),
        json!({"type": "object", "properties": {"kind": {"type": "integer"}, "apiVersion": {"type": "string", "default": "x"}}}),
        spec(json!({"type": "array"})),
        spec(json!({"type": "unknown"})),
        spec(json!({"type": "null"})),
        spec(json!({"type": "array", "items": {}})),
        spec(json!({"type": "array", "items": [{"type": "string"}]})),
        spec(json!({"type": "string", "pattern": "^[a-z"})),
        spec(json!({"type": "string", "default": 5})),
        spec(json!({"type": "string", "default": "long", "maxLength": 2})),
        spec(json!({"type": "object", "default": {"x": 1}})),
        spec(json!({"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "string"}}})),
        spec(json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}})),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}),
        ),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        ),
        spec(json!({"type": "object", "patternProperties": {"a": {"type": "string"}}})),
        spec(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": false})),
        spec(json!({"type": "string", "x-kubernetes-embedded-resource": true})),
        spec(json!({"type": "object", "x-kubernetes-embedded-resource": true})),
        spec(json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true})),
        spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        spec(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "string"}, {"type": "integer"}]})),
        spec(
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"properties": {"b": {"minLength": 1}}}]}),
        ),
        spec(
            json!({"type": "object", "allOf": [{"type": "object", "description": "x", "nullable": true, "default": {}}]}),
        ),
        spec(json!({"type": "object", "not": {"properties": {"metadata": {}}}})),
        spec(json!({"type": "string", "x-kubernetes-list-type": "set"})),
        spec(json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "bag"})),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"})),
        spec(
            json!({"type": "array", "items": {"type": "string", "nullable": true}, "x-kubernetes-list-type": "set"}),
        ),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"})),
        spec(
            json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        ),
        spec(
            json!({"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        ),
        spec(
            json!({"type": "array", "items": {"type": "object", "required": ["k"], "properties": {"k": {"type": "object"}}}, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k", "k", "z"]}),
        ),
        spec(json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-map-keys": ["k"]})),
        spec(json!({"type": "object", "x-kubernetes-map-type": "odd"})),
        spec(json!({"type": "string", "x-kubernetes-map-type": "atomic"})),
        of("self.s.size() > 1"),
        of("self.nope == 1"),
        of("self.s == 1"),
        of("self.s"),
        of("nope"),
        of("self.s.frob()"),
        of("self.l.all(x, x)"),
        of("self.i.all(x, true)"),
        of("self.s.size(1) > 1"),
        of("[1, 'a'].size() > 0"),
        of("duration('x') > duration('1s')"),
        of("self.s.matches('[')"),
        of("true || self.s in 5"),
        of("has(self)"),
        of("'%s %d'.format(['a', 1]) == ''"),
        of("self.i > 1.5 && self.i == 2"),
        of("self.i == 1.5"),
        of("self.s == null"),
        of("self.l == ['a'] && self.l[0] == 'a' && 'a' in self.l"),
        of("self.?s.orValue(1) == 1"),
        of("self.l.exists(x, y, true)"),
        of(""),
        of("self.l.map(x, x.size()).sum() > 1.0"),
        of("self.l.sort() == self.l.distinct() && self.l.slice(0, 1).size() == 1"),
        of("sets.contains(self.l, ['a']) && self.l.isSorted()"),
        of(
            "quantity(self.s).isLessThan(quantity('1')) && isIP(self.s) && cidr(self.s).containsIP(ip(self.s))",
        ),
        of(
            "url(self.s).getHost() == '' && semver(self.s).major() == 1 && !format.dns1123Label().validate(self.s).hasValue()",
        ),
        of("quantity(self.i).sign() == 1"),
        of("ip(self.s).containsIP(self.s)"),
        of("cel.bind(x, self.i, x > 1)"),
        of(
            "self.s.split(',').exists_one(x, x == '') && self.s.replace('a', 'b').lowerAscii() == self.s.substring(1, 2)",
        ),
        of("timestamp(self.s).getFullYear() > 2020 && duration(self.s).getSeconds() > 1"),
        of("string(self.i) == self.s && int(self.s) == self.i && type(self.i) == int"),
        of("{'a': 1}.a == 1 && {'a': self.s}['a'] == self.s"),
        of("{'a': 1, 'b': 'x'}.size() == 2"),
        of("self.metadata.name == ''"),
        of("oldSelf.s == self.s"),
        of("self.s.endsWith('a') ? self.i : self.s"),
        of("self.s.endsWith('a') ? 1 : 2"),
        of("self.i + self.s == ''"),
        of("!self.i"),
        of("-self.s == ''"),
        of("self.s in self.l && self.i in self.l"),
        of("self.l['a'] == 'a'"),
        of("self.s[0] == 'a'"),
        of("self == self && dyn(self.i) == 'x'"),
        of("self.l.all(s, s != self.s)"),
        of("self.l.filter(x, x)"),
        of("optional.none().hasValue() || self.?s.hasValue()"),
        of("self.l[?0].orValue('') == '' && self.?l.orValue([]).size() == 0"),
        of("self.s.matches(self.s) && self.s.find('a') == ''"),
        of("size(self.i) > 0"),
        of("true ? true : false"),
        of("self.s.format([self.i]) == ''"),
        of("1u + 2u == 3u && 5 % 2 == 1 && 1.5 * 2.0 == 3.0"),
        of("b'a' == bytes('a') && self.s == r'\\d'"),
        of("self.l.transformList(i, v, v + 'x').size() == self.l.size()"),
        of("self.s.charAt(0) == self.s.indexOf('a')"),
        rule(json!({"rule": "true", "message": " "})),
        rule(json!({"rule": "true", "message": "a\nb"})),
        rule(json!({"rule": "true\n"})),
        rule(json!({"rule": "true &&\n true"})),
        rule(json!({"rule": "true", "messageExpression": "1"})),
        rule(json!({"rule": "true", "messageExpression": "self.nope"})),
        rule(json!({"rule": "true", "messageExpression": " "})),
        rule(json!({"rule": "true", "reason": "Because"})),
        rule(json!({"rule": "true", "fieldPath": ".s"})),
        rule(json!({"rule": "true", "fieldPath": ".z"})),
        rule(json!({"rule": "true", "fieldPath": "s"})),
        rule(json!({"rule": "true", "optionalOldSelf": true})),
        rule(json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true})),
        rule(json!({"rule": "self == oldSelf"})),
        spec(
            json!({"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}}),
        ),
        spec(
            json!({"type": "string", "default": "x", "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "not x"}]}),
        ),
    ];
    let mut definitions: Vec<Value> = schemas.iter().map(|schema| crd("wrongs", schema)).collect();
    let plain = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}},
        "status": {"type": "object"}}});
    let changed = |path: &str, value: Value| {
        let mut definition = crd("wrongs", &plain);
        let (parent, name) = path.rsplit_once('/').expect("a pointer");
        definition.pointer_mut(parent).expect("a place")[name] = value;
        definition
    };
    let webhook = |config: Value| {
        let asked = json!({"clientConfig": config, "conversionReviewVersions": ["v1"]});
        changed("/spec/conversion", json!({"strategy": "Webhook", "webhook": asked}))
    };
    let version = "/spec/versions/0";
    definitions.extend([
        changed("/metadata/name", json!("other")),
        changed("/spec/group", json!("nodots")),
        changed("/spec/group", json!("Bad.example.com")),
        changed("/spec/group", json!("x.k8s.io")),
        changed("/spec/scope", json!("Somewhere")),
        changed("/spec/names/kind", json!("a b")),
        changed("/spec/names/listKind", json!("Widgetwrongs")),
        changed("/spec/names/shortNames", json!(["ok", "Not_"])),
        changed("/spec/names/singular", json!("Sing")),
        changed("/spec/names/categories", json!(["a b"])),
        changed(&format!("{version}/name"), json!("V1")),
        changed(&format!("{version}/storage"), json!(false)),
        changed(&format!("{version}/schema"), json!(null)),
        changed(&format!("{version}/deprecationWarning"), json!("x")),
        changed(&format!("{version}/subresources"), json!({"scale": {"specReplicasPath": "bad", "statusReplicasPath": ".spec.x"}})),
        changed(&format!("{version}/subresources"), json!({"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n", "labelSelectorPath": ".x"}})),
        changed(&format!("{version}/additionalPrinterColumns"), json!([{"name": "", "type": "bad", "jsonPath": "x[", "format": "odd"}])),
        changed(&format!("{version}/selectableFields"), json!([{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}, {"jsonPath": ".spec.zz"}, {"jsonPath": "spec.a"}, {"jsonPath": ".spec"}])),
        changed("/spec/conversion", json!({"strategy": "Webhook"})),
        changed("/spec/conversion", json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://x"}, "conversionReviewVersions": ["v2", "v2"]}})),
        webhook(json!({"url": "https://me@a.b/c?d=e#f"})),
        webhook(json!({"url": "http://"})),
        webhook(json!({"url": ":a"})),
        webhook(json!({"service": {"name": "n", "namespace": "ns", "port": 0, "path": "a//b"}})),
        webhook(json!({})),
        changed("/spec/conversion", json!({"strategy": "None", "webhook": {"clientConfig": {"url": "https://x"}, "conversionReviewVersions": ["v1"]}})),
        changed("/spec/conversion", json!({"strategy": "Odd"})),
        changed("/spec/preserveUnknownFields", json!(true)),
        changed("/spec/versions", json!([])),
    ]);
    let two = |second: Value| {
        let mut definition = crd("wrongs", &plain);
        let mut version = definition["spec"]["versions"][0].clone();
        version["name"] = "v2".into();
        version["storage"] = false.into();
        version.as_object_mut().expect("a version").extend(second.as_object().expect("changes").clone());
        definition["spec"]["versions"].as_array_mut().expect("versions").push(version);
        definition
    };
    definitions.extend([
        two(json!({})),
        two(json!({"name": "v1"})),
        two(json!({"storage": true})),
        two(json!({"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "array"}}}}})),
        two(json!({"subresources": {"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.x"}}})),
        two(json!({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "a"}]})),
    ]);
    definitions
}
