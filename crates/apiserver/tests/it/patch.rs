//! Patches of each kind, as kube-rs sends them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::client;

async fn jobs() -> Api<Job> {
    let jobs: Api<Job> = Api::default_namespaced(client().await);
    let job = json!({"metadata": {"name": "j"}, "spec": {"suspend": true, "template": {"spec": {
        "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}], "restartPolicy": "Never",
    }}}});
    jobs.create(&PostParams::default(), &serde_json::from_value(job).expect("a Job")).await.expect("created");
    jobs
}

fn params() -> PatchParams {
    PatchParams::default()
}

#[tokio::test]
async fn rule_2_38_json_and_merge_patches() {
    let jobs = jobs().await;
    let merged = jobs
        .patch("j", &params(), &Patch::Merge(json!({"spec": {"parallelism": 3}})))
        .await
        .expect("patched");
    let spec = merged.spec.expect("a spec");
    assert_eq!((spec.parallelism, merged.metadata.generation), (Some(3), Some(2)));
    let operations: json_patch::Patch =
        serde_json::from_value(json!([{"op": "replace", "path": "/spec/suspend", "value": false}]))
            .expect("a patch");
    let patched = jobs.patch("j", &params(), &Patch::<Value>::Json(operations)).await.expect("patched");
    assert_eq!(patched.spec.expect("a spec").suspend, Some(false));
}

#[tokio::test]
async fn rule_2_39_strategic_patches_merge_lists_by_key() {
    let maps: Api<ConfigMap> = Api::default_namespaced(client().await);
    let map = json!({"metadata": {"name": "m", "finalizers": ["a.io/x", "a.io/y"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).expect("a map")).await.expect("created");
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.io/x"]}});
    let patched = maps.patch("m", &params(), &Patch::Strategic(patch)).await.expect("patched");
    assert_eq!(patched.metadata.finalizers, Some(vec!["a.io/y".to_owned()]));
}

#[tokio::test]
async fn s_02_a_status_patch_keeps_the_spec() {
    let jobs = jobs().await;
    let patch =
        json!({"spec": {"parallelism": 9}, "status": {"startTime": "2025-01-01T00:00:00Z", "active": 1}});
    let patched = jobs.patch_status("j", &params(), &Patch::Merge(patch)).await.expect("patched");
    assert_eq!(patched.status.expect("a status").active, Some(1));
    assert_eq!(patched.spec.expect("a spec").parallelism, Some(1));
}

#[tokio::test]
async fn u_26_managed_by_cannot_be_patched() {
    let jobs = jobs().await;
    let refused = jobs.patch("j", &params(), &Patch::Merge(json!({"spec": {"managedBy": "a.io/b"}}))).await;
    match refused.expect_err("it is immutable") {
        kube::Error::Api(status) => {
            assert_eq!(status.code, 422);
            assert_eq!(
                status.message,
                "Job.batch \"j\" is invalid: spec.managedBy: Invalid value: \"a.io/b\": field is immutable"
            );
        }
        other => panic!("{other}"),
    }
}
