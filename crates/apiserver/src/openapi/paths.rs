//! What can be asked of a resource, as OpenAPI v3 shows it: paths, operations and their parameters (1.19, 1.20).

use schema::pack::Shape;
use serde_json::{Map, Value, json};

use super::components::{meta, reference};
use crate::registry::{Resource, Subresource};

/// Parameters of lists and watches, and of what deletes many.
const LIST: [&str; 10] = [
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];
const WRITE: [&str; 3] = ["dryRun", "fieldManager", "fieldValidation"];
const DELETE: [&str; 5] = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
];

/// A resource whose paths are wanted.
pub(super) struct Described<'a> {
    /// The resource.
    pub(super) resource: &'a Resource,
    /// The component of one object.
    pub(super) one: String,
    /// The component of a list of them.
    pub(super) list: String,
    /// The component of a kind, by group, version and kind.
    pub(super) of_kind: &'a dyn Fn(&str, &str, &str) -> Option<String>,
}

/// The prefix of everything of a group and version.
pub(super) fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}

/// `batch`, `rbacAuthorization`, `core`.
pub(super) fn tag(group: &str) -> String {
    let camel = camel(group);
    let mut letters = camel.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// `Batch`, `RbacAuthorization`, `Core`.
fn camel(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let own = group.strip_suffix(".k8s.io").unwrap_or(group);
    own.split(['.', '-']).map(capital).collect()
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

/// An operation that tells what a group, or a version of it, has.
pub(super) fn discovery(id: &str, tag: &str, kind: &str, what: &str) -> Value {
    let content = contents(&reference(&meta(kind)), &["application/json", "application/yaml", PROTOBUF]);
    json!({"get": {
        "tags": [tag], "description": what, "operationId": id,
        "responses": {"200": {"description": "OK", "content": content}, "401": {"description": "Unauthorized"}},
    }})
}

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

impl Described<'_> {
    /// All its paths.
    pub(super) fn paths(&self, into: &mut Map<String, Value>) {
        let resource = self.resource;
        let root = root(&resource.group, &resource.version);
        let plural = &resource.plural;
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let collection = format!("{root}{scope}/{plural}");
        let item = format!("{collection}/{{name}}");
        let mut add = |path: String, operations: Vec<(&str, Value)>, parameters: &[&str]| {
            if operations.is_empty() {
                return;
            }
            into.insert(path, path_item(operations, self.parameters(parameters)));
        };
        let everywhere: &[&str] = &["pretty"];
        let inside: &[&str] = if resource.namespaced { &["namespace", "pretty"] } else { everywhere };
        let named: &[&str] =
            if resource.namespaced { &["name", "namespace", "pretty"] } else { &["name", "pretty"] };
        let with = |more: &[&'static str]| {
            let mut all: Vec<&str> = LIST.iter().copied().chain(more.iter().copied()).collect();
            all.sort_unstable();
            all
        };
        let operations = |all: &[(&'static str, &str)]| -> Vec<(&'static str, Value)> {
            all.iter()
                .filter(|(_, verb)| resource.allows(verb))
                .map(|(method, verb)| (*method, self.operation(verb)))
                .collect()
        };
        add(
            collection.clone(),
            operations(&[("get", "list"), ("post", "create"), ("delete", "deletecollection")]),
            inside,
        );
        add(
            item.clone(),
            operations(&[("get", "get"), ("put", "update"), ("delete", "delete"), ("patch", "patch")]),
            named,
        );
        if resource.namespaced && resource.allows("list") {
            let operation =
                self.read_many("list", &format!("list{}ForAllNamespaces", self.id("")), "list", &[]);
            add(format!("{root}/{plural}"), vec![("get", operation)], &with(&["pretty"]));
        }
        if resource.allows("watch") && resource.custom.is_none() {
            let watch = |id: String, action: &str| vec![("get", self.watch(&id, action))];
            let scoped = self.scoped("");
            let of_list = format!("watch{scoped}List");
            if resource.namespaced {
                let all = format!("watch{}ListForAllNamespaces", self.id(""));
                add(format!("{root}/watch/{plural}"), watch(all, "watchlist"), &with(&["pretty"]));
            }
            let more: &[&str] = if resource.namespaced { &["namespace", "pretty"] } else { &["pretty"] };
            add(format!("{root}/watch{scope}/{plural}"), watch(of_list, "watchlist"), &with(more));
            if resource.allows("get") {
                let more: &[&str] =
                    if resource.namespaced { &["name", "namespace", "pretty"] } else { &["name", "pretty"] };
                let one = watch(format!("watch{scoped}"), "watch");
                add(format!("{root}/watch{scope}/{plural}/{{name}}"), one, &with(more));
            }
        }
        for subresource in resource.subresources.iter().filter(|known| !known.name.contains('/')) {
            if subresource.kind.ends_with("Options") {
                self.connect(subresource, &item, into);
                continue;
            }
            let mut operations = Vec::new();
            for (method, verb) in [("get", "get"), ("put", "update"), ("patch", "patch"), ("post", "create")]
            {
                if subresource.verbs.iter().any(|known| known == verb)
                    && let Some(operation) = self.sub_operation(subresource, verb)
                {
                    operations.push((method, operation));
                }
            }
            let path = format!("{item}/{}", subresource.name);
            if !operations.is_empty() {
                into.insert(path, path_item(operations, self.parameters(named)));
            }
        }
    }

    /// `BatchV1` and what follows.
    fn id(&self, between: &str) -> String {
        let Resource { group, version, kind, .. } = self.resource;
        format!("{}{}{between}{kind}", camel(group), capital(version))
    }

    /// The same with the scope.
    fn scoped(&self, between: &str) -> String {
        let scope = if self.resource.namespaced { "Namespaced" } else { "" };
        self.id(&format!("{between}{scope}"))
    }

    fn operation(&self, verb: &str) -> Value {
        let one = &reference(&self.one);
        let kind = &self.resource.kind;
        match verb {
            "list" => {
                let id = format!("list{}", self.scoped(""));
                self.read_many("list", &id, "list", &LIST)
            }
            "get" => {
                let id = format!("read{}", self.scoped(""));
                self.op("get", &id, &format!("reads a {kind}"), self.read_parameters(), None, &[("200", one)])
            }
            "create" => {
                let id = format!("create{}", self.scoped(""));
                let answers = [("200", one), ("201", one), ("202", one)];
                self.op("post", &id, &format!("makes a {kind}"), &WRITE, Some(one), &answers)
            }
            "update" => {
                let id = format!("replace{}", self.scoped(""));
                self.op(
                    "put",
                    &id,
                    &format!("replaces a {kind}"),
                    &WRITE,
                    Some(one),
                    &[("200", one), ("201", one)],
                )
            }
            "patch" => self.patch(&format!("patch{}", self.scoped("")), kind, one),
            "delete" => {
                let id = format!("delete{}", self.scoped(""));
                let answer = self.deleted();
                let answers = [("200", &answer), ("202", &answer)];
                let options = reference(&meta("DeleteOptions"));
                let mut operation =
                    self.op("delete", &id, &format!("deletes a {kind}"), &DELETE, Some(&options), &answers);
                optional_body(&mut operation);
                operation
            }
            _ if self.resource.custom.is_some() => {
                let id = format!("delete{}", self.scoped("Collection"));
                let what = format!("deletes many of kind {kind}");
                let status = reference(&meta("Status"));
                self.op("deletecollection", &id, &what, &LIST, None, &[("200", &status)])
            }
            _ => {
                let id = format!("delete{}", self.scoped("Collection"));
                let mut parameters: Vec<&str> = LIST
                    .iter()
                    .copied()
                    .filter(|name| !matches!(*name, "allowWatchBookmarks" | "watch"))
                    .chain(DELETE)
                    .collect();
                parameters.sort_unstable();
                let status = reference(&meta("Status"));
                let options = reference(&meta("DeleteOptions"));
                let what = format!("deletes many of kind {kind}");
                let mut operation =
                    self.op("deletecollection", &id, &what, &parameters, Some(&options), &[("200", &status)]);
                optional_body(&mut operation);
                operation
            }
        }
    }

    /// Custom resources say that they can be read at a version; the others can, too.
    fn read_parameters(&self) -> &'static [&'static str] {
        if self.resource.custom.is_some() { &["resourceVersion"] } else { &[] }
    }

    /// Some kinds are answered with the object when they are deleted (2.57).
    fn deleted(&self) -> Value {
        const OBJECTS: [&str; 7] = [
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "podtemplates",
            "resourcequotas",
            "serviceaccounts",
            "services",
        ];
        let of_core = self.resource.group.is_empty() && OBJECTS.contains(&self.resource.plural.as_str());
        let of_others = matches!(
            (self.resource.group.as_str(), self.resource.plural.as_str()),
            (
                "storage.k8s.io",
                "csidrivers"
                    | "csinodes"
                    | "storageclasses"
                    | "volumeattachments"
                    | "volumeattributesclasses"
            ) | ("resource.k8s.io", _)
        );
        if of_core || of_others { reference(&self.one) } else { reference(&meta("Status")) }
    }

    fn sub_operation(&self, subresource: &Subresource, verb: &str) -> Option<Value> {
        let resource = self.resource;
        let (group, version) = match &subresource.of {
            Some((group, version)) => (group.as_str(), version.as_str()),
            None => (resource.group.as_str(), resource.version.as_str()),
        };
        let own = subresource.of.is_none() && subresource.kind == resource.kind;
        let name = if own { self.one.clone() } else { (self.of_kind)(group, version, &subresource.kind)? };
        let of = &reference(&name);
        let suffix = capital(&subresource.name);
        let id = |verb: &str| format!("{verb}{}{suffix}", self.scoped(""));
        let what = |word: &str| format!("{word} {} of a {}", subresource.name, resource.kind);
        let mut operation = match verb {
            "get" if subresource.name == "log" => {
                let text = json!({"type": "string"});
                let mut operation =
                    self.op("get", &id("read"), &what("reads the"), &[], None, &[("200", &text)]);
                operation["responses"]["200"]["content"]["text/plain"] = json!({"schema": text});
                let options = schema::Pack::v1_35().of_kind("", "v1", "PodLogOptions").map(self::options);
                operation["parameters"] = options.unwrap_or_default().into();
                operation
            }
            "get" => {
                self.op("get", &id("read"), &what("reads the"), self.read_parameters(), None, &[("200", of)])
            }
            "update" => {
                let answers = [("200", of), ("201", of)];
                self.op("put", &id("replace"), &what("replaces the"), &WRITE, Some(of), &answers)
            }
            "create" => {
                let answers = [("200", of), ("201", of), ("202", of)];
                self.op("post", &id("create"), &what("makes the"), &WRITE, Some(of), &answers)
            }
            _ => self.patch(&id("patch"), &resource.kind, of),
        };
        // The scale of a custom resource is said to be of its kind.
        if resource.custom.is_none() {
            operation["x-kubernetes-group-version-kind"] =
                json!({"group": group, "version": version, "kind": subresource.kind});
        }
        Some(operation)
    }

    /// A subresource that is talked to, and has options instead of an object.
    fn connect(&self, subresource: &Subresource, item: &str, into: &mut Map<String, Value>) {
        let resource = self.resource;
        let proxies = subresource.name == "proxy";
        let methods: &[&str] = if proxies {
            &["get", "put", "post", "delete", "options", "head", "patch"]
        } else {
            &["get", "post"]
        };
        let Some(of) = schema::Pack::v1_35().of_kind("", &resource.version, &subresource.kind) else {
            return;
        };
        let scope = if resource.namespaced { "Namespaced" } else { "" };
        for suffix in ["", "WithPath"].into_iter().take(if proxies { 2 } else { 1 }) {
            let operations = methods.iter().map(|method| {
                let of = self.id(&format!("{}{scope}", capital(method)));
                let id = format!("connect{of}{}{suffix}", capital(&subresource.name));
                let what = format!("talks to the {} of a {}", subresource.name, resource.kind);
                let mut operation = self.op("connect", &id, &what, &[], None, &[]);
                operation["responses"]["200"] =
                    json!({"description": "OK", "content": contents(&json!({"type": "string"}), &["*/*"])});
                operation["x-kubernetes-group-version-kind"] =
                    json!({"group": resource.group, "version": resource.version, "kind": subresource.kind});
                (*method, operation)
            });
            let mut parameters = options(of);
            parameters.push(parameter("name", &resource.kind));
            if resource.namespaced {
                parameters.push(parameter("namespace", &resource.kind));
            }
            let mut path = format!("{item}/{}", subresource.name);
            if !suffix.is_empty() {
                path.push_str("/{path}");
                let mut rest = query_parameter("path", "string");
                (rest["in"], rest["required"]) = (json!("path"), json!(true));
                parameters.push(rest);
            }
            into.insert(path, path_item(operations.collect(), parameters.into()));
        }
    }

    fn read_many(&self, action: &str, id: &str, word: &str, parameters: &[&str]) -> Value {
        let what = format!("{word}s or watches objects of kind {}", self.resource.kind);
        let mut operation = self.op(action, id, &what, parameters, None, &[("200", &reference(&self.list))]);
        self.streams(&mut operation);
        operation
    }

    fn watch(&self, id: &str, action: &str) -> Value {
        let what = format!("watches {}; lists with the parameter watch are for that now", self.resource.kind);
        let event = reference(&meta("WatchEvent"));
        let mut operation = self.op(action, id, &what, &[], None, &[("200", &event)]);
        self.streams(&mut operation);
        operation
    }

    /// Answers that go on have media types of their own.
    fn streams(&self, operation: &mut Value) {
        if self.resource.custom.is_some() {
            return;
        }
        let Some(content) = operation.pointer_mut("/responses/200/content").and_then(Value::as_object_mut)
        else {
            return;
        };
        for of in ["application/json", PROTOBUF] {
            if let Some(schema) = content.get(of).cloned() {
                content.insert(format!("{of};stream=watch"), schema);
            }
        }
    }

    fn patch(&self, id: &str, kind: &str, one: &Value) -> Value {
        let parameters = [WRITE.as_slice(), &["force"]].concat();
        let what = format!("changes a part of a {kind}");
        let mut operation = self.op("patch", id, &what, &parameters, None, &[("200", one), ("201", one)]);
        let patch = reference(&meta("Patch"));
        let mut kinds = vec![
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
        ];
        if self.resource.custom.is_none() {
            kinds.push("application/strategic-merge-patch+json");
        } else if let Some(answers) = operation["responses"].as_object_mut() {
            answers.remove("201");
        }
        operation["requestBody"] = json!({"content": contents(&patch, &kinds), "required": true});
        operation
    }

    fn op(
        &self,
        action: &str,
        id: &str,
        what: &str,
        parameters: &[&str],
        body: Option<&Value>,
        answers: &[(&str, &Value)],
    ) -> Value {
        let Resource { group, version, kind, .. } = self.resource;
        let words = |code: &str| match code {
            "200" => "OK",
            "201" => "Created",
            _ => "Accepted",
        };
        let forms: &[&str] = match self.resource.custom {
            Some(_) => &["application/json", "application/yaml"],
            None => &["application/json", "application/yaml", PROTOBUF],
        };
        let answer = |schema: &Value, code: &str| json!({"description": words(code), "content": contents(schema, forms)});
        let mut responses: Map<String, Value> =
            answers.iter().map(|(code, schema)| ((*code).to_owned(), answer(schema, code))).collect();
        responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
        let mut operation = json!({
            "tags": [format!("{}_{version}", tag(group))], "description": what, "operationId": id, "responses": responses,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
        });
        if !parameters.is_empty() {
            operation["parameters"] = self.parameters(parameters);
        }
        if let Some(body) = body {
            let forms: &[&str] = match self.resource.custom {
                Some(_) => &["application/json", "application/yaml"],
                None => &["*/*"],
            };
            operation["requestBody"] = json!({"content": contents(body, forms), "required": true});
        }
        operation
    }

    fn parameters(&self, names: &[&str]) -> Value {
        names.iter().map(|name| parameter(name, &self.resource.kind)).collect()
    }
}

/// Operations with the parameters of their path. What all of them take, the path takes for them.
fn path_item(mut operations: Vec<(&str, Value)>, own: Value) -> Value {
    let mut parameters = own.as_array().cloned().unwrap_or_default();
    let of = |operation: &Value| operation["parameters"].as_array().cloned().unwrap_or_default();
    let shared: Vec<Value> = operations.first().map(|(_, first)| of(first)).unwrap_or_default();
    for parameter in shared {
        if operations.iter().all(|(_, operation)| of(operation).contains(&parameter)) {
            for (_, operation) in &mut operations {
                let mut rest = of(operation);
                rest.retain(|known| *known != parameter);
                if rest.is_empty() {
                    operation.as_object_mut().map(|fields| fields.remove("parameters"));
                } else {
                    operation["parameters"] = rest.into();
                }
            }
            parameters.push(parameter);
        }
    }
    let place = |parameter: &Value| (parameter["name"].to_string(), parameter["in"].to_string());
    parameters.sort_by_key(place);
    let mut entry: Map<String, Value> =
        operations.into_iter().map(|(method, operation)| (method.to_owned(), operation)).collect();
    entry.insert("parameters".to_owned(), parameters.into());
    entry.into()
}

/// The fields of options as parameters.
fn options(of: schema::Type) -> Vec<Value> {
    let name_of = |shape: &Shape| match shape {
        Shape::Bool => "boolean",
        Shape::Int32 | Shape::Int64 => "integer",
        _ => "string",
    };
    // A time is no parameter.
    let fields = of.fields().filter(|field| {
        !field.is_inline()
            && !matches!(field.of_type().shape(), Shape::Pointer(to) if matches!(to.shape(), Shape::Time))
    });
    fields
        .map(|field| {
            let shape = match field.of_type().shape() {
                Shape::Pointer(to) | Shape::List(to) => to.shape(),
                shape => shape,
            };
            query_parameter(field.name(), name_of(&shape))
        })
        .collect()
}

fn query_parameter(name: &str, of: &str) -> Value {
    json!({"name": name, "in": "query", "description": format!("see {name}"), "schema": {"type": of, "uniqueItems": true}})
}

fn optional_body(operation: &mut Value) {
    operation["requestBody"].as_object_mut().map(|body| body.remove("required"));
}

fn contents(schema: &Value, forms: &[&str]) -> Value {
    forms.iter().map(|form| ((*form).to_owned(), json!({"schema": schema}))).collect::<Map<_, _>>().into()
}

fn parameter(name: &str, kind: &str) -> Value {
    let of = match name {
        "gracePeriodSeconds" | "limit" | "timeoutSeconds" => "integer",
        "allowWatchBookmarks"
        | "force"
        | "ignoreStoreReadErrorWithClusterBreakingPotential"
        | "orphanDependents"
        | "sendInitialEvents"
        | "watch" => "boolean",
        _ => "string",
    };
    let what = match name {
        "name" => format!("name of the {kind}"),
        "namespace" => "namespace of the objects".to_owned(),
        "dryRun" => "All: nothing is stored".to_owned(),
        "fieldManager" => "who makes the change".to_owned(),
        "fieldValidation" => {
            "what becomes of fields that are unknown or stand twice: Ignore, Warn or Strict".to_owned()
        }
        "force" => "take fields from those who manage them".to_owned(),
        "pretty" => "true: the answer is printed for people".to_owned(),
        "labelSelector" | "fieldSelector" => "only what is selected".to_owned(),
        other => format!("see {other} in the Kubernetes API conventions"),
    };
    let is_path = matches!(name, "name" | "namespace");
    let mut parameter = json!({
        "name": name, "in": if is_path { "path" } else { "query" }, "description": what,
        "schema": {"type": of, "uniqueItems": true},
    });
    if is_path {
        parameter["required"] = json!(true);
    }
    parameter
}
