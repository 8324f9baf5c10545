use schema::Pack;
use serde_json::json;

use super::*;

fn of(group: &str, kind: &str) -> Type {
    Pack::v1_35().of_kind(group, "v1", kind).expect("a built-in kind")
}

/// A Pod with a spec.
fn pod(spec: Value) -> Value {
    json!({"spec": spec})
}

fn check(document: Value, patch: Value, patched: Value) {
    assert_eq!(apply(of("", "Pod"), document, patch), Ok(patched));
}

#[test]
fn r2_39_lists_merge_by_key_and_new_items_come_first() {
    check(
        pod(json!({"containers": [{"name": "c", "image": "1", "args": ["x"]}, {"name": "d"}]})),
        pod(json!({"containers": [{"name": "new"}, {"name": "c", "image": "2", "args": ["y"]}]})),
        pod(
            json!({"containers": [{"name": "new"}, {"name": "c", "image": "2", "args": ["y"]}, {"name": "d"}]}),
        ),
    );
    check(
        json!({"spec": {"tolerations": [{"key": "a"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
        json!({"spec": {"tolerations": [{"key": "b"}]}}),
    );
}

#[test]
fn r2_39_directives_delete_and_replace() {
    let containers =
        json!({"containers": [{"name": "c", "env": [{"name": "A"}, {"name": "B"}]}, {"name": "d"}]});
    check(
        pod(containers.clone()),
        pod(
            json!({"containers": [{"name": "d", "$patch": "delete"}, {"name": "c", "env": [{"name": "A", "$patch": "delete"}]}]}),
        ),
        pod(json!({"containers": [{"name": "c", "env": [{"name": "B"}]}]})),
    );
    check(
        pod(containers.clone()),
        pod(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})),
        pod(json!({"containers": [{"name": "z"}]})),
    );
    check(
        pod(json!({"securityContext": {"runAsUser": 1}, "hostname": "h"})),
        pod(json!({"securityContext": {"$patch": "replace", "runAsGroup": 2}})),
        pod(json!({"securityContext": {"runAsGroup": 2}, "hostname": "h"})),
    );
    check(
        pod(json!({"securityContext": {"runAsUser": 1}})),
        pod(json!({"securityContext": {"$patch": "delete"}})),
        pod(json!({"securityContext": {}})),
    );
    check(
        pod(json!({})),
        pod(json!({"containers": [{"name": "x", "$patch": "delete"}]})),
        pod(json!({"containers": []})),
    );
}

#[test]
fn r2_39_lists_of_scalars_are_sets() {
    let meta = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    check(meta(json!(["a", "b"])), meta(json!(["c", "a"])), meta(json!(["c", "a", "b"])));
    check(
        meta(json!(["a", "b", "c"])),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b", "zz"]}}),
        meta(json!(["a", "c"])),
    );
    check(
        meta(json!(["a", "b", "c"])),
        json!({"metadata": {"$setElementOrder/finalizers": ["c", "d", "a"], "finalizers": ["d"]}}),
        meta(json!(["b", "c", "d", "a"])),
    );
}

#[test]
fn r2_39_an_order_can_be_set() {
    let conditions = |list: Value| json!({"status": {"conditions": list}});
    check(
        conditions(json!([{"type": "Ready", "status": "False"}, {"type": "X"}])),
        json!({"status": {"$setElementOrder/conditions": [{"type": "X"}, {"type": "Ready"}],
            "conditions": [{"type": "Ready", "status": "True"}]}}),
        conditions(json!([{"type": "X"}, {"type": "Ready", "status": "True"}])),
    );
}

#[test]
fn r2_39_keys_can_be_retained() {
    let volumes = |list: Value| pod(json!({"volumes": list}));
    check(
        volumes(json!([{"name": "v", "emptyDir": {}}])),
        volumes(json!([{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}])),
        volumes(json!([{"name": "v", "hostPath": {"path": "/x"}}])),
    );
}

#[test]
fn r2_39_null_removes() {
    check(
        json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
        json!({"metadata": {"labels": {"a": null, "z": null}, "annotations": {"x": null}}}),
        json!({"metadata": {"labels": {"b": "2"}, "annotations": {}}}),
    );
}

#[test]
fn r2_39_owners_are_found_by_uid() {
    check(
        json!({"metadata": {"ownerReferences": [{"uid": "1", "name": "x"}, {"uid": "2", "name": "y"}]}}),
        json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": "1"}]}}),
        json!({"metadata": {"ownerReferences": [{"uid": "2", "name": "y"}]}}),
    );
}

#[test]
fn r2_39_errors_have_upstreams_words() {
    let document = || pod(json!({"containers": [{"name": "c"}], "overhead": {"cpu": "1"}}));
    let check = |patch: Value, error: Error| assert_eq!(apply(of("", "Pod"), document(), patch), Err(error));
    let failed = |message: &str| Error::Failed(message.into());
    let bad = |message: &str| Error::BadRequest(message.into());
    check(
        pod(json!({"containers": [{"image": "noname"}]})),
        failed("map: map[image:noname] does not contain declared merge key: name"),
    );
    check(
        pod(json!({"containers": [{"$patch": "delete"}]})),
        failed("map: map[$patch:delete] does not contain declared merge key: name"),
    );
    check(
        pod(json!({"containers": [{"name": "c", "$patch": "frob"}]})),
        failed("unknown patch type: frob in map: map[$patch:frob name:c]"),
    );
    check(
        pod(json!({"$setElementOrder/containers": [{"name": "x"}], "containers": [{"name": "c"}]})),
        failed(
            "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:x]]\n",
        ),
    );
    check(
        pod(json!({"containers": [1]})),
        failed("list element types are not identical: [[map[name:c]] [1]]"),
    );
    check(pod(json!({"$retainKeys": "x"})), bad("invalid patch format of retainKeys"));
    check(pod(json!({"$deleteFromPrimitiveListx": []})), bad("invalid patch format of primitive list"));
    check(
        json!({"metadata": {"finalizers": [["a"]]}, "spec": {"$setElementOrder/containers": 1}}),
        failed("expected a []interface {}, but received a int64"),
    );
    check(json!([]), bad("json: cannot unmarshal array into Go value of type map[string]interface {}"));
    let unknown = apply(of("", "Pod"), json!({"nope": {}}), json!({"nope": {"a": 1}}));
    assert_eq!(unknown, Err(failed("unable to find api field in struct Pod for the json field \"nope\"")));
    let nested = apply(
        of("", "Pod"),
        json!({"metadata": {"labels": {"a": {}}}}),
        json!({"metadata": {"labels": {"a": {}}}}),
    );
    assert_eq!(nested, Err(failed("merging an object in json but data type is not struct, instead is: map")));
    let lists = apply(
        of("", "Pod"),
        json!({"metadata": {"finalizers": [["a"]]}}),
        json!({"metadata": {"finalizers": [["b"]]}}),
    );
    assert_eq!(lists, Err(Error::Unprocessable("lists of lists are not supported".into())));
}
