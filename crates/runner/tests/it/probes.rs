//! Probes.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::bed::{Bed, conditions, container};

fn is_ready(pod: Option<&Pod>) -> bool {
    pod.is_some_and(|pod| conditions(pod).contains(&"Ready=True ".to_owned()))
}

fn every_second(mut probe: Value, failures: u32) -> Value {
    probe["periodSeconds"] = json!(1);
    probe["failureThreshold"] = json!(failures);
    probe
}

#[tokio::test]
async fn readiness_follows_its_probe() {
    let Some(bed) = Bed::new("ready").await else { return };
    let _local = bed.local(|_| {}).await;
    let probe = every_second(json!({ "exec": { "command": ["test", "-e", "/var/tmp/ready"] } }), 1);
    let script = "sleep 1; touch /var/tmp/ready; sleep 3; rm /var/tmp/ready; sleep 1000";
    bed.create(bed.script("ready", script, json!({ "readinessProbe": probe }), json!({}))).await;
    let pod = bed.until_phase("ready", "Running").await;
    assert!(!is_ready(Some(&pod)));
    bed.until("ready", is_ready).await;
    bed.until("ready", |pod: Option<&Pod>| !is_ready(pod)).await.expect("it still runs");
}

/// Whoever waits for a container to come up can see why it does not, long before that has consequences.
#[tokio::test]
async fn a_probe_that_fails_is_told_before_it_counts() {
    let Some(bed) = Bed::new("told").await else { return };
    let _local = bed.local(|_| {}).await;
    let own = json!({ "startupProbe": every_second(json!({ "exec": { "command": ["false"] } }), 100) });
    bed.create(bed.script("told", "exec sleep 1000", own, json!({}))).await;
    let told = crate::bed::found(async || bed.told("told", "Unhealthy").await).await;
    assert!(told.starts_with("Startup probe failed: "), "{told}");
    let pod = bed.until_phase("told", "Running").await;
    assert_eq!(container(&pod, "main")["restartCount"], 0);
}

#[tokio::test]
async fn what_is_not_alive_is_started_again_and_not_asked_before_it_has_come_up() {
    let Some(bed) = Bed::new("alive").await else { return };
    let _local = bed.local(|_| {}).await;
    let own = json!({
        "startupProbe": every_second(json!({ "exec": { "command": ["test", "-e", "/var/tmp/up"] } }), 10),
        "livenessProbe": every_second(json!({ "exec": { "command": ["test", "-e", "/var/tmp/alive"] } }), 1),
    });
    let script = "sleep 2; touch /var/tmp/up; trap 'exit 0' TERM; while :; do sleep 0.05; done";
    bed.create(bed.script("alive", script, own, json!({ "restartPolicy": "OnFailure" }))).await;
    let again = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            let main = container(pod, "main");
            main["restartCount"] == 1 && main["state"]["running"].is_object()
        })
    };
    let pod = bed.until("alive", again).await.expect("the pod");
    // It ended well, and was started again all the same; and it lived until it had come up.
    let last = &container(&pod, "main")["lastState"]["terminated"];
    assert_eq!(last["exitCode"], 0);
    let time = |name: &str| last[name].as_str().expect("a time").parse::<jiff::Timestamp>().expect("a time");
    assert!(time("finishedAt").duration_since(time("startedAt")).as_secs() >= 2, "{last}");
}

#[tokio::test]
async fn ports_are_probed_at_the_address_of_the_pod() {
    let Some(bed) = Bed::new("ports").await else { return };
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        eprintln!("not tested: there is no python3 to listen on a port");
        return;
    }
    let _local = bed.local(|_| {}).await;
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let own = json!({
        "ports": [{ "name": "web", "containerPort": port }],
        "startupProbe": every_second(json!({ "tcpSocket": { "port": port } }), 30),
        "readinessProbe": every_second(json!({ "httpGet": { "path": "/there", "port": "web" } }), 1),
        "env": [{ "name": "POD_IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } }],
    });
    let script = format!(
        "mkdir /var/tmp/www && cd /var/tmp/www && (sleep 2; touch there) & sleep 0.2; cd /var/tmp/www; exec python3 -m http.server --bind $POD_IP {port}"
    );
    bed.create(bed.script("ports", &script, own, json!({}))).await;
    bed.until("ports", is_ready).await;
    bed.delete("ports").await;
    bed.until_gone("ports").await;
}
