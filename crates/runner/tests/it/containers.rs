//! What containers run, in which order, and what becomes of it.

use std::sync::Arc;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use rules::node::image::Found;
use runner::{LogOptions, Settings};
use serde_json::json;

use crate::bed::{Bed, conditions, container, phase};

#[tokio::test]
async fn commands_arguments_and_variables_are_expanded() {
    let Some(bed) = Bed::new("expand").await else { return };
    let local = bed.local(|_| {}).await;
    let mut pod = bed.script(
        "expand",
        "",
        json!({
            "command": ["sh", "-c", "echo $0 $1 \"$GREETING\" $POD $UNSET; pwd", "$(GREETING)"],
            "args": ["$(UNKNOWN)-$$(GREETING)"],
            "workingDir": "/var/tmp",
            "env": [
                { "name": "NAME", "value": "world" },
                { "name": "GREETING", "value": "hello $(NAME)" },
                { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            ],
        }),
        json!({}),
    );
    pod["spec"]["containers"][0]["image"] = json!("nowhere.example/any:1");
    let (pod, text) = bed.output(&local, pod).await;
    assert_eq!(text, "hello world $(UNKNOWN)-$(GREETING) hello world expand\n/var/tmp\n");
    assert_eq!(phase(&pod), "Succeeded");
    let main = container(&pod, "main");
    assert_eq!(main["state"]["terminated"]["reason"], "Completed");
    assert!(main["containerID"].as_str().is_some_and(|id| id.starts_with("process://")), "{main}");
    assert!(conditions(&pod).contains(&"Ready=False PodCompleted".to_owned()));
    let status = pod.status.as_ref().expect("a status");
    assert_eq!(status.observed_generation, pod.metadata.generation);
    assert!(status.pod_ip.as_deref().is_some_and(|ip| ip.starts_with("127.")), "{status:?}");
}

#[tokio::test]
async fn variables_come_from_config_maps_and_secrets_and_missing_ones_are_waited_for() {
    let Some(bed) = Bed::new("env").await else { return };
    let local = bed.local(|_| {}).await;
    let pod = bed.script(
        "env",
        "echo $M_a $secret",
        json!({
            "envFrom": [{ "prefix": "M_", "configMapRef": { "name": "map" } }],
            "env": [{ "name": "secret", "valueFrom": { "secretKeyRef": { "name": "hidden", "key": "s" } } }],
        }),
        json!({}),
    );
    bed.create(pod).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
    };
    let pod = bed.until("env", waits).await.expect("the pod");
    assert_eq!(container(&pod, "main")["state"]["waiting"]["message"], "configmap \"map\" not found");
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one" } })).await;
    bed.make("v1", "Secret", json!({ "metadata": { "name": "hidden" }, "stringData": { "s": "two" } })).await;
    bed.until_phase("env", "Succeeded").await;
    assert_eq!(bed.log(&local, "env", "main", LogOptions::default()).await, "one two\n");
}

#[tokio::test]
async fn variables_come_from_files_that_other_containers_have_written() {
    let Some(bed) = Bed::new("files").await else { return };
    let local = bed.local(|_| {}).await;
    let from = |key: &str, optional: bool| json!({ "fileKeyRef": { "volumeName": "v", "path": "all.env", "key": key, "optional": optional } });
    let init = json!({
        "name": "init", "image": "any", "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
        "command": ["sh", "-c", "echo \"A='one' # first\" > /v/all.env"],
    });
    let more = json!({ "initContainers": [init], "volumes": [{ "name": "v", "emptyDir": {} }] });
    let variables = json!([
        { "name": "A", "valueFrom": from("A", false) }, { "name": "B", "valueFrom": from("B", true) },
    ]);
    let own = json!({ "env": variables });
    let (_, text) = bed.output(&local, bed.script("there", "echo $A ${B-none}", own, more.clone())).await;
    assert_eq!(text, "one none\n");
    let own = json!({ "env": [{ "name": "B", "valueFrom": from("B", false) }] });
    bed.create(bed.script("missing", "true", own, more)).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
    };
    let pod = bed.until("missing", waits).await.expect("the pod");
    assert_eq!(
        container(&pod, "main")["state"]["waiting"]["message"],
        "environment variable key \"B\" not found in file \"all.env\""
    );
}

#[tokio::test]
async fn exit_codes_and_reasons_are_told() {
    let Some(bed) = Bed::new("exit").await else { return };
    let local = bed.local(|_| {}).await;
    let (pod, _) = bed.output(&local, bed.script("three", "exit 3", json!({}), json!({}))).await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((phase(&pod), &ended["exitCode"], &ended["reason"]), ("Failed", &json!(3), &json!("Error")));
    assert!(ended["startedAt"].is_string() && ended["finishedAt"].is_string());
    let none = bed.script("none", "", json!({ "command": ["no-such-program"] }), json!({}));
    let (pod, _) = bed.output(&local, none).await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(127), &json!("ContainerCannotRun")));
    assert!(ended["message"].as_str().is_some_and(|message| message.contains("no-such-program")), "{ended}");
}

/// An image that nobody has.
#[derive(Debug)]
struct Nothing;

impl runner::Resolve for Nothing {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Found>, String>> {
        Box::pin(async { Err("nobody has it".to_owned()) })
    }
}

#[tokio::test]
async fn a_container_whose_image_cannot_be_had_waits_for_it() {
    let Some(bed) = Bed::new("pull").await else { return };
    let _local = bed.local(|process| process.resolver = Some(Arc::new(Nothing))).await;
    bed.create(bed.script("pull", "true", json!({}), json!({}))).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| container(pod, "main")["state"]["waiting"]["reason"] == "ImagePullBackOff")
    };
    let pod = bed.until("pull", waits).await.expect("the pod");
    assert_eq!(
        container(&pod, "main")["state"]["waiting"]["message"],
        "Back-off pulling image \"any\": ErrImagePull: nobody has it"
    );
    let told = crate::bed::found(async || bed.told("pull", "BackOff").await).await;
    assert_eq!(told, "Back-off pulling image \"any\"");
}

#[tokio::test]
async fn what_is_told_of_a_container_is_told_in_the_words_of_a_kubelet() {
    let Some(bed) = Bed::new("words").await else { return };
    let _local = bed.local(|_| {}).await;
    let hook = json!({ "exec": { "command": ["sh", "-c", "echo secret; exit 1"] } });
    let own = json!({ "lifecycle": { "postStart": hook } });
    bed.create(bed.script("words", "exec sleep 1000", own, json!({}))).await;
    bed.until_phase("words", "Failed").await;
    for (reason, message) in [
        ("Created", "Container created"),
        ("Started", "Container started"),
        ("FailedPostStartHook", "PostStartHook failed"),
    ] {
        assert_eq!(crate::bed::found(async || bed.told("words", reason).await).await, message);
    }
}

#[tokio::test]
async fn termination_messages_come_from_their_file_or_the_end_of_the_log() {
    let Some(bed) = Bed::new("message").await else { return };
    let local = bed.local(|_| {}).await;
    let own = json!({ "terminationMessagePath": "/tmp/last-words" });
    let (pod, _) =
        bed.output(&local, bed.script("file", "echo done > /tmp/last-words", own, json!({}))).await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["message"], "done\n");
    let fallback = json!({ "terminationMessagePolicy": "FallbackToLogsOnError" });
    let (pod, _) =
        bed.output(&local, bed.script("log", "echo why; exit 1", fallback.clone(), json!({}))).await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["message"], "why\n");
    let (pod, _) = bed.output(&local, bed.script("well", "echo fine", fallback, json!({}))).await;
    assert!(container(&pod, "main")["state"]["terminated"]["message"].is_null());
}

#[tokio::test]
async fn init_containers_run_first_and_sidecars_until_the_end() {
    let Some(bed) = Bed::new("init").await else { return };
    let local = bed.local(|_| {}).await;
    let step = |name: &str, script: &str| {
        json!({
            "name": name, "image": "any", "command": ["sh", "-c", script],
            "volumeMounts": [{ "name": "shared", "mountPath": "/shared" }],
        })
    };
    let mut side = step(
        "side",
        "echo side >> /shared/log; trap 'echo side-ends >> /shared/log; exit 0' TERM; while :; do sleep 0.05; done",
    );
    side["restartPolicy"] = json!("Always");
    side["startupProbe"] =
        json!({ "exec": { "command": ["grep", "side", "/shared/log"] }, "periodSeconds": 1 });
    let host = tempfile::tempdir().expect("a directory");
    let pod = json!({
        "metadata": { "name": "order" },
        "spec": {
            "nodeName": bed.node("local"), "restartPolicy": "Never", "automountServiceAccountToken": false,
            "volumes": [{ "name": "shared", "hostPath": { "path": host.path() } }],
            "initContainers": [step("first", "echo first >> /shared/log"), side, step("second", "echo second >> /shared/log")],
            "containers": [step("main", "echo main >> /shared/log"), step("other", "sleep 0.3; echo other >> /shared/log")],
        },
    });
    bed.create(pod).await;
    let pod = bed.until_phase("order", "Succeeded").await;
    let log = std::fs::read_to_string(host.path().join("log")).expect("a log");
    assert_eq!(log, "first\nside\nsecond\nmain\nother\nside-ends\n");
    assert_eq!(container(&pod, "side")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(container(&pod, "first")["ready"], true);
    drop(local);
}

#[tokio::test]
async fn a_failing_container_is_started_again_and_then_waits() {
    let Some(bed) = Bed::new("crash").await else { return };
    let local = bed.local(|_| {}).await;
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let more = json!({ "restartPolicy": "OnFailure", "volumes": [{ "name": "v", "emptyDir": {} }] });
    let script = "echo x >> /v/tries; wc -l < /v/tries; exit 1";
    bed.create(bed.script("crash", script, own, more)).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff")
    };
    let pod = bed.until("crash", waits).await.expect("the pod");
    let main = container(&pod, "main");
    assert_eq!((phase(&pod), &main["restartCount"]), ("Running", &json!(1)));
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 1);
    // While nothing runs, the last one to have run is meant either way.
    let previous = LogOptions { previous: true, ..LogOptions::default() };
    assert_eq!(bed.log(&local, "crash", "main", previous).await, "2\n");
    assert_eq!(bed.log(&local, "crash", "main", LogOptions::default()).await, "2\n");
}

#[tokio::test]
async fn rule_2_73_a_container_that_has_not_begun_has_no_log_and_says_why() {
    let Some(bed) = Bed::new("no-log").await else { return };
    let local = bed.local(|_| {}).await;
    let why = |name: &str, container: &str, previous: bool| {
        let options = LogOptions { previous, ..LogOptions::default() };
        local.node.logs(&bed.key(name), container, options).err().map(|error| error.to_string())
    };
    let waits = |reason: &'static str| {
        move |pod: Option<&Pod>| {
            pod.is_some_and(|pod| container(pod, "main")["state"]["waiting"]["reason"] == reason)
        }
    };
    let missing = json!({ "envFrom": [{ "configMapRef": { "name": "none" } }] });
    bed.create(bed.script("config", "true", missing, json!({}))).await;
    bed.until("config", waits("CreateContainerConfigError")).await;
    let said = "container \"main\" in pod \"config\" is waiting to start: CreateContainerConfigError";
    assert_eq!(why("config", "main", false).as_deref(), Some(said));

    let first = json!({ "name": "first", "image": "any", "command": ["sleep", "1000"] });
    bed.create(bed.script("later", "true", json!({}), json!({ "initContainers": [first] }))).await;
    let begun =
        |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "first")["state"]["running"].is_object());
    bed.until("later", begun).await;
    let said = "container \"main\" in pod \"later\" is waiting to start: PodInitializing";
    assert_eq!(why("later", "main", false).as_deref(), Some(said));
    assert_eq!(why("later", "first", false), None);
    let said = "previous terminated container \"first\" in pod \"later\" not found";
    assert_eq!(why("later", "first", true).as_deref(), Some(said));
}

#[tokio::test]
async fn images_are_what_the_table_says_and_unknown_ones_say_what_to_do() {
    let Some(bed) = Bed::new("images").await else { return };
    let table = "tool=/bin/echo\nroot/*=/:/bin/pwd";
    let local = bed
        .local(|process| process.images = rules::node::image::Images::parse(table).expect("a table"))
        .await;
    let of = |name: &str, image: &str, args: &[&str]| {
        let mut pod = bed.script(name, "", json!({ "args": args }), json!({}));
        pod["spec"]["containers"][0]["image"] = json!(image);
        pod["spec"]["containers"][0].as_object_mut().expect("a container").remove("command");
        pod
    };
    let (_, text) = bed.output(&local, of("program", "tool:1.0", &["said"])).await;
    assert_eq!(text, "said\n");
    let (pod, text) = bed.output(&local, of("directory", "root/fs", &[])).await;
    assert_eq!((text.as_str(), phase(&pod)), ("/\n", "Succeeded"));
    bed.create(of("unknown", "nowhere.example/app:1", &[])).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| container(pod, "main")["state"]["waiting"]["reason"] == "ErrImageNeverPull")
    };
    let pod = bed.until("unknown", waits).await.expect("the pod");
    let message =
        container(&pod, "main")["state"]["waiting"]["message"].as_str().expect("a message").to_owned();
    assert!(message.contains("--image nowhere.example/app=PATH[:ENTRYPOINT]"), "{message}");
    assert_eq!(phase(&pod), "Pending");
    bed.delete("unknown").await;
    bed.until_gone("unknown").await;
}

#[tokio::test]
async fn processes_and_simulations_live_side_by_side() {
    let Some(bed) = Bed::new("mixed").await else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let settings = vec![
        Settings::simulated(&bed.node("pretend")),
        crate::bed::process_settings(&bed.node("local"), directory.path(), |_| {}),
    ];
    let mut tasks = reconcile::Tasks::new();
    let clock = reconcile::Clock::system();
    let nodes = runner::start(bed.client.clone(), settings, clock, &mut tasks).await.expect("nodes");
    assert_eq!(nodes.len(), 2);
    let mut pretend = bed.script("pretend", "exit 1", json!({}), json!({}));
    pretend["spec"]["nodeName"] = json!(bed.node("pretend"));
    bed.create(pretend).await;
    bed.create(bed.script("real", "exit 1", json!({}), json!({}))).await;
    bed.until_phase("pretend", "Succeeded").await;
    bed.until_phase("real", "Failed").await;
}

#[tokio::test]
async fn a_container_that_is_added_to_a_pod_runs_once_beside_the_others() {
    let Some(bed) = Bed::new("added").await else { return };
    let local = bed.local(|_| {}).await;
    let more = json!({ "volumes": [{ "name": "v", "emptyDir": {} }] });
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/shared" }] });
    bed.create(bed.script("added", "until [ -e /shared/go ]; do sleep 0.1; done", own, more)).await;
    bed.until_phase("added", "Running").await;
    let added = json!([{ "name": "look", "image": "any", "command": ["sh", "-c", "trap '' TERM; echo looked; touch /shared/go; exit 3"],
        "volumeMounts": [{ "name": "v", "mountPath": "/shared" }], "terminationMessagePolicy": "File" }]);
    let patch = Patch::Strategic(json!({ "spec": { "ephemeralContainers": added } }));
    let changed = bed.pods().patch_ephemeral_containers("added", &PatchParams::default(), &patch).await;
    changed.expect("a container more");
    let pod = bed.until_phase("added", "Succeeded").await;
    let statuses =
        serde_json::to_value(pod.status.expect("a status").ephemeral_container_statuses).expect("JSON");
    assert_eq!(statuses[0]["state"]["terminated"]["exitCode"], 3, "{statuses}");
    assert_eq!(bed.log(&local, "added", "look", LogOptions::default()).await, "looked\n");
}

#[tokio::test]
async fn a_pod_sets_what_is_its_own_of_the_kernel_and_nothing_else() {
    let Some(bed) = Bed::new("sysctl").await else { return };
    let local = bed.local(|_| {}).await;
    let with = |name: &str| json!({ "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
    let script = "cat /proc/sys/kernel/shm_rmid_forced";
    let (_, text) =
        bed.output(&local, bed.script("own", script, json!({}), with("kernel.shm_rmid_forced"))).await;
    assert_eq!(text, "1\n");
    bed.create(bed.script("other", "true", json!({}), with("kernel.msgmax"))).await;
    let pod = bed.until_phase("other", "Failed").await;
    assert_eq!(pod.status.and_then(|status| status.reason).as_deref(), Some("SysctlForbidden"));
}

#[tokio::test]
async fn a_pod_is_called_what_it_asks_to_be_called() {
    let Some(bed) = Bed::new("called").await else { return };
    let local = bed.local(|_| {}).await;
    let whole = json!({ "hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true });
    let expected = format!("h.s.{}.svc.cluster.local", bed.namespace);
    for (name, more, expected) in [
        ("whole", whole, expected),
        ("other", json!({ "hostnameOverride": "db.example" }), "db.example".to_owned()),
        ("host", json!({ "hostNetwork": true }), bed.node("local")),
    ] {
        let script = "echo $HOSTNAME $(cat /proc/sys/kernel/hostname)";
        let (_, text) = bed.output(&local, bed.script(name, script, json!({}), more)).await;
        assert_eq!(text, format!("{expected} {expected}\n"), "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_asks_for_another_node_than_it_names_is_refused() {
    let Some(bed) = Bed::new("refused").await else { return };
    let _local = bed.local(|_| {}).await;
    bed.create(bed.script("refused", "true", json!({}), json!({ "nodeSelector": { "no": "such" } }))).await;
    let status = bed.until_phase("refused", "Failed").await.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("NodeAffinity"));
    let told = crate::bed::found(async || bed.told("refused", "NodeAffinity").await).await;
    assert_eq!(told, "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector");
}

#[tokio::test]
async fn a_second_pod_that_asks_for_the_same_port_of_the_node_is_refused() {
    let Some(bed) = Bed::new("ports").await else { return };
    let _local = bed.local(|_| {}).await;
    let port = json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] });
    bed.create(bed.script("first", "sleep 1000", port.clone(), json!({}))).await;
    bed.until_phase("first", "Running").await;
    bed.create(bed.script("second", "sleep 1000", port, json!({}))).await;
    let second = bed.until_phase("second", "Failed").await;
    let status = second.status.expect("a status");
    assert_eq!(status.reason.as_deref(), Some("NodePorts"));
    let first = bed.until_phase("first", "Running").await;
    assert_eq!(container(&first, "main")["restartCount"], 0);
}
