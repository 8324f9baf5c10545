//! A pod's way through the server: made, bound, run, changed, evicted, removed.

use apiserver::Cluster;
use http::Method;
use serde_json::{Value, json};

use crate::{ask, cluster};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]}})
}

async fn make(cluster: &Cluster, path: &str, body: &Value) -> Value {
    let (code, answer, _) = ask(cluster, Method::POST, path, Some(body)).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

async fn bind(cluster: &Cluster, name: &str) {
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"}});
    make(cluster, &format!("{PODS}/{name}/binding"), &binding).await;
}

async fn set_status(cluster: &Cluster, name: &str, status: Value) -> (u16, Value) {
    let (_, mut pod, _) = ask(cluster, Method::GET, &format!("{PODS}/{name}"), None).await;
    pod["status"] = status;
    let (code, answer, _) = ask(cluster, Method::PUT, &format!("{PODS}/{name}/status"), Some(&pod)).await;
    (code, answer)
}

#[tokio::test]
async fn rule_3_4_3_5_a_new_pod() {
    let cluster = cluster().await;
    let made = make(&cluster, PODS, &pod("p")).await;
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(made["spec"]["restartPolicy"], "Always");
    assert_eq!(made["spec"]["containers"][0]["resources"], json!({}));
    let (code, answer, _) =
        ask(&cluster, Method::POST, PODS, Some(&json!({"metadata": {"name": "q"}}))).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.containers")));
}

#[tokio::test]
async fn rule_2_76_bindings() {
    let cluster = cluster().await;
    make(&cluster, PODS, &pod("p")).await;
    bind(&cluster, "p").await;
    let (_, bound, _) = ask(&cluster, Method::GET, &format!("{PODS}/p"), None).await;
    assert_eq!(bound["spec"]["nodeName"], "n");
    assert_eq!(bound["status"]["conditions"][0]["type"], "PodScheduled");
    assert_eq!(bound["metadata"]["generation"], 1);
    let again = json!({"metadata": {"name": "p"}, "target": {"name": "m"}});
    let (code, answer, _) = ask(&cluster, Method::POST, &format!("{PODS}/p/binding"), Some(&again)).await;
    assert_eq!(code, 409);
    assert_eq!(
        answer["message"],
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    let nowhere = json!({"metadata": {"name": "p"}, "target": {"kind": "Pod"}});
    let (code, _, _) = ask(&cluster, Method::POST, &format!("{PODS}/p/binding"), Some(&nowhere)).await;
    assert_eq!(code, 500);
    make(&cluster, PODS, &pod("q")).await;
    let legacy = json!({"metadata": {"name": "q"}, "target": {"name": "n"}});
    make(&cluster, "/api/v1/namespaces/default/bindings", &legacy).await;
    let (_, list, _) =
        ask(&cluster, Method::GET, &format!("{PODS}?fieldSelector=spec.nodeName%3Dn"), None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn rule_3_6_what_may_change() {
    let cluster = cluster().await;
    let mut made = make(&cluster, PODS, &pod("p")).await;
    made["spec"]["containers"][0]["image"] = json!("busybox:1");
    let (code, changed, _) = ask(&cluster, Method::PUT, &format!("{PODS}/p"), Some(&made)).await;
    assert_eq!((code, &changed["metadata"]["generation"]), (200, &json!(2)));
    made = changed;
    made["spec"]["hostname"] = json!("h");
    let (code, answer, _) = ask(&cluster, Method::PUT, &format!("{PODS}/p"), Some(&made)).await;
    assert_eq!(code, 422);
    let message = answer["message"].as_str().expect("a message");
    assert!(message.contains("pod updates may not change fields other than"), "{message}");
    assert!(message.contains("- \"Hostname\": \"\",\n+ \"Hostname\": \"h\",\n"), "{message}");
}

#[tokio::test]
async fn the_status_is_written_by_itself() {
    let cluster = cluster().await;
    make(&cluster, PODS, &pod("p")).await;
    let (code, answer) =
        set_status(&cluster, "p", json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]})).await;
    assert_eq!((code, &answer["status"]["qosClass"]), (200, &json!("BestEffort")), "{answer}");
    assert_eq!(answer["status"]["podIP"], "10.0.0.1");
    let (code, _) = set_status(&cluster, "p", json!({"qosClass": "Guaranteed"})).await;
    assert_eq!(code, 422);
    let path = format!("{PODS}?fieldSelector=status.phase%3DRunning,status.podIP%3D10.0.0.1");
    let (_, list, _) = ask(&cluster, Method::GET, &path, None).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn rule_2_77_sizes_and_debugging() {
    let cluster = cluster().await;
    let mut body = pod("p");
    body["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    let mut made = make(&cluster, PODS, &body).await;
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    let (code, _, _) = ask(&cluster, Method::PUT, &format!("{PODS}/p"), Some(&made)).await;
    assert_eq!(code, 422);
    let (code, resized, _) = ask(&cluster, Method::PUT, &format!("{PODS}/p/resize"), Some(&made)).await;
    assert_eq!((code, &resized["metadata"]["generation"]), (200, &json!(2)), "{resized}");
    let mut debugged = resized;
    debugged["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]);
    let path = format!("{PODS}/p/ephemeralcontainers");
    let (code, debugged, _) = ask(&cluster, Method::PUT, &path, Some(&debugged)).await;
    assert_eq!((code, &debugged["spec"]["ephemeralContainers"][0]["name"]), (200, &json!("e")), "{debugged}");
}

#[tokio::test]
async fn rule_2_56_how_long_a_pod_takes_to_leave() {
    let cluster = cluster().await;
    make(&cluster, PODS, &pod("unbound")).await;
    ask(&cluster, Method::DELETE, &format!("{PODS}/unbound"), None).await;
    assert_eq!(ask(&cluster, Method::GET, &format!("{PODS}/unbound"), None).await.0, 404);
    make(&cluster, PODS, &pod("bound")).await;
    bind(&cluster, "bound").await;
    let (_, leaving, _) = ask(&cluster, Method::DELETE, &format!("{PODS}/bound"), None).await;
    assert_eq!(leaving["metadata"]["deletionGracePeriodSeconds"], 30);
    let now = json!({"gracePeriodSeconds": 0});
    ask(&cluster, Method::DELETE, &format!("{PODS}/bound"), Some(&now)).await;
    assert_eq!(ask(&cluster, Method::GET, &format!("{PODS}/bound"), None).await.0, 404);
}

/// However long somebody grants a pod to leave, there is a last time.
#[tokio::test]
async fn rule_2_56_no_pod_takes_longer_than_there_is_time() {
    let cluster = cluster().await;
    for (name, own, asked) in [("own", i64::MAX, None), ("asked", 30, Some(i64::MAX))] {
        let mut body = pod(name);
        body["spec"]["terminationGracePeriodSeconds"] = json!(own);
        make(&cluster, PODS, &body).await;
        bind(&cluster, name).await;
        let options = asked.map(|asked| json!({"gracePeriodSeconds": asked}));
        let path = format!("{PODS}/{name}");
        let (code, leaving, _) = ask(&cluster, Method::DELETE, &path, options.as_ref()).await;
        assert_eq!((code, &leaving["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(i64::MAX)));
        let (code, sooner, _) =
            ask(&cluster, Method::DELETE, &path, Some(&json!({"gracePeriodSeconds": 5}))).await;
        let left = sooner["metadata"]["deletionGracePeriodSeconds"].as_i64();
        assert!(code == 200 && left.is_some_and(|left| left <= 5), "{sooner}");
    }
}

/// A pod that has ended is marked and goes at once. Its node sees the mark and may remove it first: whoever asked is
/// answered all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_2_56_a_node_is_faster_than_who_deletes() {
    let cluster = cluster().await;
    for number in 0..100 {
        let name = format!("ended-{number}");
        make(&cluster, PODS, &pod(&name)).await;
        bind(&cluster, &name).await;
        assert_eq!(set_status(&cluster, &name, json!({"phase": "Succeeded"})).await.0, 200);
        let (of_node, path) = (cluster.clone(), format!("{PODS}/{name}"));
        let seen = path.clone();
        let node = tokio::spawn(async move {
            loop {
                let (code, there, _) = ask(&of_node, Method::GET, &seen, None).await;
                if code == 404 {
                    return;
                }
                if !there["metadata"]["deletionTimestamp"].is_null() {
                    ask(&of_node, Method::DELETE, &seen, Some(&json!({"gracePeriodSeconds": 0}))).await;
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
        let (code, answer, _) = ask(&cluster, Method::DELETE, &path, None).await;
        assert_eq!((code, &answer["metadata"]["name"]), (200, &json!(name)), "{answer}");
        node.await.expect("the node ends");
        assert_eq!(ask(&cluster, Method::GET, &path, None).await.0, 404);
    }
}

#[tokio::test]
async fn rule_2_75_evictions_ask_the_budget() {
    const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let cluster = cluster().await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    let mut budget = make(&cluster, BUDGETS, &budget).await;
    for name in ["p", "q"] {
        make(&cluster, PODS, &pod(name)).await;
        bind(&cluster, name).await;
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(set_status(&cluster, name, ready).await.0, 200);
    }
    let evict =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let (code, answer, _) =
        ask(&cluster, Method::POST, &format!("{PODS}/p/eviction"), Some(&evict("p"))).await;
    assert_eq!((code, &answer["details"]["retryAfterSeconds"]), (429, &json!(10)), "{answer}");
    budget["status"] = json!({"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1,
        "expectedPods": 2});
    let (code, _, _) = ask(&cluster, Method::PUT, &format!("{BUDGETS}/b/status"), Some(&budget)).await;
    assert_eq!(code, 200);
    let (code, answer, _) =
        ask(&cluster, Method::POST, &format!("{PODS}/p/eviction"), Some(&evict("p"))).await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")), "{answer}");
    let (_, leaving, _) = ask(&cluster, Method::GET, &format!("{PODS}/p"), None).await;
    assert!(!leaving["metadata"]["deletionTimestamp"].is_null());
    let conditions = leaving["status"]["conditions"].as_array().expect("conditions");
    assert!(conditions.iter().any(|condition| condition["type"] == "DisruptionTarget"));
    let (code, answer, _) =
        ask(&cluster, Method::POST, &format!("{PODS}/q/eviction"), Some(&evict("q"))).await;
    assert_eq!(code, 429);
    assert_eq!(answer["details"]["causes"][0]["reason"], "DisruptionBudget");
    let (_, used, _) = ask(&cluster, Method::GET, &format!("{BUDGETS}/b"), None).await;
    assert!(used["status"]["disruptedPods"]["p"].is_string(), "{used}");
}

#[tokio::test]
async fn events_are_one_and_have_two_faces() {
    let cluster = cluster().await;
    let event = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "namespace": "default", "name": "p"}, "note": "n", "type": "Normal", "reason": "r",
        "action": "a", "reportingController": "c.io/c", "reportingInstance": "i",
        "eventTime": "2025-01-01T00:00:00.000000Z"});
    let made = make(&cluster, "/apis/events.k8s.io/v1/namespaces/default/events", &event).await;
    assert_eq!((&made["note"], &made["apiVersion"]), (&json!("n"), &json!("events.k8s.io/v1")));
    let path =
        "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp,reportingComponent%3Dc.io/c";
    let (_, list, _) = ask(&cluster, Method::GET, path, None).await;
    assert_eq!(list["items"][0]["message"], "n", "{list}");
    let path = "/apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=regarding.name%3Dp";
    let (_, list, _) = ask(&cluster, Method::GET, path, None).await;
    assert_eq!(list["items"][0]["note"], "n", "{list}");
    let mut changed = made;
    changed["note"] = json!("m");
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let (code, answer, _) = ask(&cluster, Method::PUT, path, Some(&changed)).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("message")), "{answer}");
}

#[tokio::test]
async fn rule_2_60_2_79_namespaces_are_finalized() {
    let cluster = cluster().await;
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}});
    make(&cluster, "/api/v1/namespaces", &body).await;
    let (_, mut leaving, _) = ask(&cluster, Method::DELETE, "/api/v1/namespaces/x", None).await;
    assert_eq!(leaving["status"]["phase"], "Terminating");
    leaving["status"]["phase"] = json!("Active");
    let (code, _, _) = ask(&cluster, Method::PUT, "/api/v1/namespaces/x/status", Some(&leaving)).await;
    assert_eq!(code, 422);
    leaving["spec"]["finalizers"] = json!([]);
    let (code, _, _) = ask(&cluster, Method::PUT, "/api/v1/namespaces/x/finalize", Some(&leaving)).await;
    assert_eq!(code, 200);
    assert_eq!(ask(&cluster, Method::GET, "/api/v1/namespaces/x", None).await.0, 404);
}

/// Answers one request with the first line of it and its body, as JSON.
async fn repeat_once(listener: tokio::net::TcpListener) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let (mut stream, _) = listener.accept().await.expect("a client");
    let mut asked = Vec::new();
    while !asked.ends_with(b"{\"a\":1}") {
        let mut piece = [0; 1024];
        let read = stream.read(&mut piece).await.expect("a request");
        asked.extend_from_slice(&piece[..read]);
    }
    let asked = String::from_utf8(asked).expect("text");
    let body =
        json!({"line": asked.lines().next(), "authorized": asked.to_lowercase().contains("authorization")});
    let body = body.to_string();
    let answer = format!("HTTP/1.1 202 Accepted\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.expect("answered");
}

#[tokio::test]
async fn requests_are_passed_on_to_pods_and_to_those_behind_services() {
    let cluster = cluster().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let there = tokio::spawn(repeat_once(listener));
    make(&cluster, PODS, &pod("p")).await;
    let path = format!("{PODS}/p:{port}/proxy/some/where?x=y");
    let (code, answer, _) = ask(&cluster, Method::GET, &path, None).await;
    assert_eq!(code, 400, "it has no address yet: {answer}");
    set_status(&cluster, "p", json!({"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]})).await;
    let (code, answer, _) = ask(&cluster, Method::POST, &path, Some(&json!({"a": 1}))).await;
    assert_eq!((code, &answer["line"]), (202, &json!("POST /some/where?x=y HTTP/1.1")));
    assert_eq!(answer["authorized"], false, "whoever asks keeps his credentials to himself");
    there.await.expect("answered");
    let (code, _, _) = ask(&cluster, Method::GET, &format!("{PODS}/p:{port}/proxy"), None).await;
    assert_eq!(code, 301, "links begin at a directory");
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("the port");
    let there = tokio::spawn(repeat_once(listener));
    let (_, answer, _) =
        ask(&cluster, Method::POST, &format!("{PODS}/p:{port}/proxy?x=y"), Some(&json!({"a": 1}))).await;
    assert_eq!(answer["line"], json!("POST /?x=y HTTP/1.1"), "only who reads can be led elsewhere");
    there.await.expect("answered");
    let (code, answer, _) = ask(&cluster, Method::GET, &path, None).await;
    assert_eq!((code, &answer["reason"]), (503, &json!("ServiceUnavailable")), "nobody listens any more");

    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}});
    let services = "/api/v1/namespaces/default/services";
    make(&cluster, services, &service).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
        "addressType": "IPv4", "ports": [{"name": "web", "port": port}], "endpoints": [{"addresses": ["127.0.0.1"]}]});
    make(&cluster, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await;
    let there = tokio::spawn(repeat_once(listener));
    let path = format!("{services}/s:web/proxy/there");
    let (code, answer, _) = ask(&cluster, Method::POST, &path, Some(&json!({"a": 1}))).await;
    assert_eq!((code, &answer["line"]), (202, &json!("POST /there HTTP/1.1")));
    there.await.expect("answered");
}

#[tokio::test]
async fn containers_are_privileged_where_the_cluster_lets_them() {
    let mut privileged = pod("p");
    privileged["spec"]["containers"][0]["securityContext"] = json!({"privileged": true});
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": privileged["spec"]});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template}});
    let mut of_job = template.clone();
    of_job["spec"]["restartPolicy"] = json!("Never");
    let job = json!({"metadata": {"name": "j"}, "spec": {"template": of_job}});
    let store = || store::Store::open(store::Options::ephemeral()).expect("a store");
    let allowing = rules::job::Settings { allow_privileged: true, ..rules::job::Settings::default() };
    for (settings, expected) in [(rules::job::Settings::default(), 422), (allowing, 201)] {
        let cluster = Cluster::open(store(), settings).await.expect("a cluster");
        for (path, object) in [
            (PODS, &privileged),
            ("/apis/apps/v1/namespaces/default/deployments", &deployment),
            ("/apis/batch/v1/namespaces/default/jobs", &job),
        ] {
            let (code, answer, _) = ask(&cluster, Method::POST, path, Some(object)).await;
            assert_eq!(code, expected, "{path}: {answer}");
        }
    }
}
