use jiff::Timestamp;

use super::super::typed::{Duplicates, Typed};
use super::super::{FieldManager, Filter, Filters, Set, Tracked, Versions};
use super::*;

fn fields(group: &str, version: &str, kind: &str, object: Value) -> Value {
    let (schema, of) = BuiltIn::v1_35().of_kind(group, version, kind).expect("a built-in kind");
    let typed = Typed::new(schema, of, object, Duplicates::Refused).expect("an object of the kind");
    typed.field_set().to_fields_v1()
}

#[test]
fn r2_42_built_in_lists_and_maps_merge_as_declared() {
    let pod = json!({"metadata": {"finalizers": ["f"], "ownerReferences": [{"uid": "u", "name": "o"}]}, "spec": {
        "containers": [{"name": "c", "args": ["x"], "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 1}}}],
        "tolerations": [{"key": "k"}], "nodeSelector": {"a": "b"}, "hostAliases": [{"ip": "1"}]}});
    assert_eq!(
        fields("", "v1", "Pod", pod),
        json!({
            "f:metadata": {"f:finalizers": {"v:\"f\"": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:name": {}, "f:args": {}, "f:resources": {"f:limits": {"f:cpu": {}}},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }},
                "f:tolerations": {},
                "f:nodeSelector": {},
                "f:hostAliases": {"k:{\"ip\":\"1\"}": {".": {}, "f:ip": {}}},
            },
        })
    );
}

#[test]
fn a_reference_can_be_granular_although_its_type_is_atomic() {
    let volume = json!({"spec": {"claimRef": {"name": "c"}}});
    assert_eq!(
        fields("", "v1", "PersistentVolume", volume),
        json!({"f:spec": {"f:claimRef": {"f:name": {}}}})
    );
    assert_eq!(
        fields("", "v1", "Event", json!({"involvedObject": {"name": "o"}})),
        json!({"f:involvedObject": {}})
    );
}

#[test]
fn a_created_object_is_compared_with_its_zero_value() {
    let job = Pack::v1_35().of_kind("batch", "v1", "Job").expect("Kubernetes has Jobs");
    assert_eq!(
        empty(job, "batch/v1", "Job"),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "status": {},
            "spec": {"template": {"metadata": {}, "spec": {"containers": null}}}})
    );
}

struct Deployments;

impl Versions for Deployments {
    fn type_in(&self, version: &str) -> Option<(&Schema, TypeId)> {
        BuiltIn::v1_35().of_kind("apps", version.strip_prefix("apps/")?, "Deployment")
    }

    fn convert(&self, _: &Value, version: &str) -> Result<Value, String> {
        Err(format!("no conversion to {version}"))
    }
}

/// Plays requests to Deployments; fields in the answers were recorded from kube-apiserver v1.35.8.
fn with_deployments(play: impl FnOnce(&FieldManager<'_>)) {
    let of = Pack::v1_35().of_kind("apps", "v1", "Deployment").expect("Kubernetes has Deployments");
    let empty = empty(of, "apps/v1", "Deployment");
    let status = Set::from_fields_v1(&json!({"f:status": {}})).expect("FieldsV1");
    let reset: Filters = [("apps/v1".to_owned(), Filter::Except(status))].into();
    play(&FieldManager {
        versions: &Deployments,
        version: "apps/v1",
        kind: "Deployment",
        subresource: "",
        reset: &reset,
        empty: &empty,
    });
}

fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("a time")
}

fn managed(object: &Value, place: usize) -> &Value {
    &object["metadata"]["managedFields"][place]["fieldsV1"]
}

#[test]
fn r2_45_a_created_object_is_managed_as_kubernetes_does() {
    let created = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "a"}},
            "strategy": {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}, "type": "RollingUpdate"},
            "template": {"metadata": {"labels": {"app": "a"}}, "spec": {
                "containers": [{"name": "c", "image": "img:1", "command": ["a", "b"],
                    "env": [{"name": "A", "value": "1"},
                        {"name": "N", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                    "resources": {"limits": {"cpu": "2"}},
                    "volumeMounts": [{"mountPath": "/v", "name": "v"}]}],
                "securityContext": {}, "restartPolicy": "Always",
                "volumes": [{"emptyDir": {"sizeLimit": "1Mi"}, "name": "v"}]}}},
        "status": {}});
    let fields = json!({"f:spec": {"f:replicas": {}, "f:selector": {},
        "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}, "f:maxUnavailable": {}}, "f:type": {}},
        "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}, "f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:command": {},
                "f:env": {".": {}, "k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}},
                    "k:{\"name\":\"N\"}": {".": {}, "f:name": {}, "f:valueFrom": {".": {}, "f:fieldRef": {}}}},
                "f:image": {}, "f:name": {},
                "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {}, "f:protocol": {}}},
                "f:resources": {".": {}, "f:limits": {".": {}, "f:cpu": {}}},
                "f:volumeMounts": {".": {}, "k:{\"mountPath\":\"/v\"}": {".": {}, "f:mountPath": {}, "f:name": {}}}}},
            "f:restartPolicy": {}, "f:securityContext": {},
            "f:volumes": {".": {}, "k:{\"name\":\"v\"}": {
                ".": {}, "f:emptyDir": {".": {}, "f:sizeLimit": {}}, "f:name": {}}}}}}});
    with_deployments(|deployments| {
        let nothing = Tracked::of(deployments.empty.clone());
        let managers = deployments.update(&nothing, &created, None, "goldens", now()).expect("a creation");
        assert_eq!(managed(&Tracked { object: created, managers }.whole(), 0), &fields);
    });
}

#[test]
fn r2_43_replicas_are_handed_over_as_in_kubernetes() {
    let config = |spec: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [
        {"name": "c", "image": "img:1", "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}]}]}});
    let selector = json!({"matchLabels": {"app": "a"}});
    let of_template = json!({"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
        ".": {}, "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}, "f:image": {}, "f:name": {},
        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}});
    with_deployments(|deployments| {
        let apply = |live: &Value, who: &str, spec: Value| {
            let live = Tracked::of(live.clone());
            let applied = deployments.apply(&live, config(spec), who, false, now()).expect("an apply");
            let mut object = applied.whole();
            // What the server's defaults would add to the port.
            object["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = json!("TCP");
            object
        };
        let alice = json!({"selector": selector, "replicas": 2, "template": template});
        let object = apply(deployments.empty, "alice", alice);
        let whole = json!({"f:spec": {"f:replicas": {}, "f:selector": {}, "f:template": of_template}});
        assert_eq!(managed(&object, 0), &whole);
        let object = apply(&object, "hpa", json!({"replicas": 2}));
        assert_eq!(object["metadata"]["managedFields"][0].get("time"), None, "hpa changed nothing");
        let object = apply(&object, "alice", json!({"selector": selector, "template": template}));
        assert_eq!(object["spec"]["replicas"], 2);
        assert_eq!(managed(&object, 0), &json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(managed(&object, 1), &json!({"f:spec": {"f:selector": {}, "f:template": of_template}}));
        let object = apply(&object, "hpa", json!({"replicas": 4}));
        assert_eq!(object["spec"]["replicas"], 4);
    });
}
