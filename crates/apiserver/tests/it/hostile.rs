//! Whatever a client sends, it gets an answer: nothing panics, and nothing is the server's own fault.

use bytes::Bytes;
use http::{Method, Request};
use proptest::prelude::*;

use crate::cluster;

const PATHS: [&str; 4] = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/secrets",
    "/api/v1/namespaces",
    "/apis/batch/v1/namespaces/default/jobs",
];

const TYPES: [&str; 7] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let json = prop_oneof![
        Just(""),
        Just("null"),
        Just("5"),
        Just("[]"),
        Just("{}"),
        Just("\"x\""),
        Just("{\"metadata\":null}"),
        Just("{\"metadata\":[]}"),
        Just("{\"metadata\":{\"name\":\"default\",\"labels\":null}}"),
        Just("{\"metadata\":{\"name\":\"a\"},\"spec\":null,\"data\":null}"),
        Just(
            "{\"metadata\":{\"name\":\"a\",\"managedFields\":[{}]},\"stringData\":{\"k\":\"v\"},\"spec\":{\"finalizers\":[]}}"
        ),
        Just("[{\"op\":\"remove\",\"path\":\"/metadata\"}]"),
        Just("[{\"op\":\"replace\",\"path\":\"\",\"value\":null}]"),
        Just("{\"metadata\":{\"$patch\":\"delete\"}}"),
        Just("{\"$patch\":\"replace\"}"),
        Just("k8s\0"),
        Just("k8s\0\n\x04"),
    ];
    prop_oneof![4 => json.prop_map(|text| text.as_bytes().to_vec()), 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_body_gets_an_answer(body in bodies(), path in 0..PATHS.len(), kind in 0..TYPES.len(), status in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let cluster = cluster().await;
            for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
                let name = match (&method, status) {
                    (&Method::POST, _) => "",
                    (_, true) => "/default/status",
                    (_, false) => "/default",
                };
                let request = Request::builder()
                    .method(method)
                    .uri(format!("{}{name}?fieldManager=m", PATHS[path]))
                    .header("Content-Type", TYPES[kind])
                    .body(Bytes::from(body.clone()))
                    .expect("a request");
                let code = cluster.answer(request).await.status().as_u16();
                assert!((200..=500).contains(&code), "{code}");
            }
        });
    }
}
