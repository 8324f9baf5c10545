//! Volumes and what is in them.

use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use crate::bed::{Bed, container, eventually, phase};

#[tokio::test]
async fn volumes_of_all_kinds_appear_where_the_pod_wants_them() {
    let Some(bed) = Bed::new("volumes").await else { return };
    let local = bed.local(|_| {}).await;
    let host = tempfile::tempdir().expect("a directory");
    std::fs::write(host.path().join("there"), "host").expect("a file");
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one", "b": "two" } }))
        .await;
    bed.make("v1", "Secret", json!({ "metadata": { "name": "hidden" }, "stringData": { "s": "secret" } }))
        .await;
    bed.make("v1", "ServiceAccount", json!({ "metadata": { "name": "default" } })).await;
    let volumes = json!([
        { "name": "map", "configMap": { "name": "map", "items": [{ "key": "a", "path": "deep/a", "mode": 256 }] } },
        { "name": "secret", "secret": { "secretName": "hidden" } },
        { "name": "empty", "emptyDir": {} },
        { "name": "memory", "emptyDir": { "medium": "Memory" } },
        { "name": "host", "hostPath": { "path": host.path(), "type": "Directory" } },
        { "name": "self", "downwardAPI": { "items": [{ "path": "name", "fieldRef": { "fieldPath": "metadata.name" } }] } },
        { "name": "all", "projected": { "sources": [
            { "configMap": { "name": "map" } },
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3600 } } ] } },
    ]);
    let mount = |name: &str| json!({ "name": name, "mountPath": format!("/mnt/new/{name}") });
    let mut mounts: Vec<_> = ["map", "secret", "empty", "memory", "host", "self", "all"].map(mount).into();
    mounts.push(json!({ "name": "all", "mountPath": "/etc/only-b", "subPath": "b", "readOnly": true }));
    mounts.push(json!({ "name": "empty", "mountPath": "/mnt/sub", "subPathExpr": "of-$(NAME)" }));
    let own = json!({ "volumeMounts": mounts, "env": [{ "name": "NAME", "value": "x" }] });
    let script = "cd /mnt/new; cat map/deep/a secret/s host/there self/name all/a /etc/only-b; echo; stat -L -c %a map/deep/a; \
                  cut -d. -f1 all/token | base64 -d 2>/dev/null | grep -o alg; echo w > empty/w && echo w > memory/w && echo w > /mnt/sub/w && cat empty/of-x/w; \
                  echo no > /etc/only-b; stat -f -c %T memory; echo new > host/new";
    let (pod, text) = bed
        .output(
            &local,
            bed.script(
                "volumes",
                script,
                own,
                json!({ "volumes": volumes, "serviceAccountName": "default" }),
            ),
        )
        .await;
    assert_eq!(phase(&pod), "Succeeded", "{text}");
    assert!(text.starts_with("onesecrethostvolumesonetwo\n400\nalg\nw\n"), "{text}");
    assert!(text.contains("Read-only file system\n") && text.contains("tmpfs\n"), "{text}");
    assert_eq!(std::fs::read_to_string(host.path().join("new")).expect("a file"), "new\n");
    let uid = pod.metadata.uid.expect("a uid");
    // Volumes go with the pod's end.
    let disk = local.directory.path().join("pods").join(&uid).join("volumes");
    let memory = Path::new("/dev/shm").join(format!("ferry-{uid}"));
    eventually(|| !disk.exists() && !memory.exists()).await;
}

#[tokio::test]
async fn changes_of_config_maps_reach_pods_that_run() {
    let Some(bed) = Bed::new("update").await else { return };
    let local = bed.local(|_| {}).await;
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "old" } })).await;
    let own = json!({
        "volumeMounts": [{ "name": "v", "mountPath": "/conf" }],
        "readinessProbe": { "exec": { "command": ["ls", "/var/tmp/read"] }, "periodSeconds": 1 },
    });
    let more = json!({ "volumes": [{ "name": "v", "configMap": { "name": "map" } }] });
    let script = "cat /conf/a; touch /var/tmp/read; until grep -q new /conf/a; do sleep 0.1; done; cat /conf/a; ls /conf";
    bed.create(bed.script("update", script, own, more)).await;
    let old = |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "main")["ready"] == true);
    bed.until("update", old).await;
    bed.patch("v1", "ConfigMap", "map", json!({ "data": { "a": "new", "b": "more" } })).await;
    bed.until_phase("update", "Succeeded").await;
    let text = bed.log(&local, "update", "main", runner::LogOptions::default()).await;
    assert_eq!(text, "oldnewa\nb\n");
}

#[tokio::test]
async fn changes_of_its_own_labels_reach_a_pod_that_runs() {
    let Some(bed) = Bed::new("labels").await else { return };
    let local = bed.local(|_| {}).await;
    let own = json!({
        "volumeMounts": [{ "name": "v", "mountPath": "/self" }],
        "readinessProbe": { "exec": { "command": ["ls", "/self/labels"] }, "periodSeconds": 1 },
    });
    let field = json!({ "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } });
    let more = json!({ "volumes": [{ "name": "v", "downwardAPI": { "items": [field] } }] });
    let script = "until grep -q new /self/labels; do sleep 0.1; done; cat /self/labels";
    bed.create(bed.script("labels", script, own, more)).await;
    let ready = |pod: Option<&Pod>| pod.is_some_and(|pod| container(pod, "main")["ready"] == true);
    bed.until("labels", ready).await;
    bed.patch("v1", "Pod", "labels", json!({ "metadata": { "labels": { "a": "new" } } })).await;
    bed.until_phase("labels", "Succeeded").await;
    let text = bed.log(&local, "labels", "main", runner::LogOptions::default()).await;
    assert_eq!(text.trim_end(), "a=\"new\"");
}

/// As a kubelet mounts them: what is written there would be gone with the next change, and misleads others until then.
#[tokio::test]
async fn volumes_that_come_from_objects_cannot_be_changed_by_pods() {
    let Some(bed) = Bed::new("unchangeable").await else { return };
    let local = bed.local(|_| {}).await;
    if !crate::isolation::is_isolated(&bed, &local).await {
        return;
    }
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one" } })).await;
    bed.make("v1", "Secret", json!({ "metadata": { "name": "hidden" }, "stringData": { "a": "one" } })).await;
    let field = json!({ "path": "a", "fieldRef": { "fieldPath": "metadata.name" } });
    let volumes = json!([
        { "name": "map", "configMap": { "name": "map" } },
        { "name": "secret", "secret": { "secretName": "hidden" } },
        { "name": "self", "downwardAPI": { "items": [field] } },
        { "name": "all", "projected": { "sources": [{ "configMap": { "name": "map" } }] } },
    ]);
    let names = ["map", "secret", "self", "all"];
    let mut mounts: Vec<_> =
        names.map(|name| json!({ "name": name, "mountPath": format!("/mnt/{name}") })).into();
    mounts.push(json!({ "name": "map", "mountPath": "/mnt/a", "subPath": "a" }));
    let script = "exec 2>&1; cd /mnt; for v in map secret self all; do rm $v/..data; echo x > $v/a; echo x > $v/new; done; echo x > a; cat */a";
    let own = json!({ "volumeMounts": mounts });
    let (_, text) =
        bed.output(&local, bed.script("unchangeable", script, own, json!({ "volumes": volumes }))).await;
    assert_eq!(text.matches("Read-only file system\n").count(), 13, "{text}");
    assert!(text.ends_with("\noneoneoneunchangeable"), "{text}");
}

/// What an init container leaves in a volume is found by those who mount something into it, or a part of it.
#[tokio::test]
async fn links_in_volumes_lead_no_mount_to_the_host() {
    let Some(bed) = Bed::new("links").await else { return };
    let local = bed.local(|_| {}).await;
    if !crate::isolation::is_isolated(&bed, &local).await {
        return;
    }
    let host = tempfile::Builder::new().prefix("ferry-host-").tempdir_in("/var/tmp").expect("a directory");
    let place = host.path().display();
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one" } })).await;
    let more = |links: &str| {
        let before = json!({ "name": "before", "image": "x", "command": ["sh", "-c", links],
            "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
        let volumes =
            json!([{ "name": "v", "emptyDir": {} }, { "name": "map", "configMap": { "name": "map" } }]);
        json!({ "volumes": volumes, "initContainers": [before] })
    };
    let whole = json!({ "name": "v", "mountPath": "/v" });
    let file = json!({ "name": "map", "mountPath": "/v/conf", "subPath": "a" });
    let parts = |links: &str, mounts: serde_json::Value| (more(links), json!({ "volumeMounts": mounts }));
    // Where the host's files used to be while those of the container are put together, and where the kernel shows others.
    for (number, to) in ["/.ferry-host", "/proc/self/cwd", "/proc/self/fd/7"].into_iter().enumerate() {
        let link = format!("ln -s {to}{place}/made /v/conf; ln -s {to}{place} /v/at");
        let (more, own) = parts(&link, json!([whole, file]));
        let name = format!("target-{number}");
        let (pod, _) = bed.output(&local, bed.script(&name, "true", own, more)).await;
        assert_eq!(container(&pod, "main")["state"]["terminated"]["reason"], "ContainerCannotRun", "{to}");
        let (more, own) = parts(&link, json!([whole, { "name": "map", "mountPath": "/v/at/deep/conf" }]));
        let name = format!("directory-{number}");
        bed.output(&local, bed.script(&name, "true", own, more)).await;
    }
    let (more_of, own) = parts(
        &format!("ln -s {place} /v/out"),
        json!([{ "name": "v", "mountPath": "/p", "subPath": "out/new" }]),
    );
    bed.create(bed.script("source", "true", own, more_of)).await;
    let waits = |pod: Option<&Pod>| {
        pod.is_some_and(|pod| {
            let waiting = &container(pod, "main")["state"]["waiting"];
            waiting["reason"] == "CreateContainerConfigError"
                && waiting["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("leads out of its volume"))
        })
    };
    bed.until("source", waits).await;
    assert_eq!(std::fs::read_dir(host.path()).expect("entries").count(), 0, "nothing was made on the host");
    // Links that stay in the container are followed.
    let links = "mkdir /v/deep; ln -s deep /v/short; ln -s /var/tmp/conf /v/conf";
    let (more, own) =
        parts(links, json!([whole, file, { "name": "v", "mountPath": "/p", "subPath": "short/new" }]));
    let script = "cat /var/tmp/conf; touch /p/x && ls /v/deep/new";
    assert_eq!(bed.output(&local, bed.script("inside", script, own, more)).await.1, "onex\n");
}

/// Where a limit can be kept: as root. Both containers have the same volume.
#[tokio::test]
async fn a_volume_in_memory_takes_no_more_than_its_limit() {
    let Some(bed) = Bed::new("sized").await else { return };
    let local = bed.local(|_| {}).await;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/fast" }] });
    let volumes = json!([{ "name": "v", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } }]);
    let before = json!({
        "name": "before", "image": "x", "command": ["sh", "-c", "echo kept > /fast/small"],
        "volumeMounts": own["volumeMounts"],
    });
    let script = "cat /fast/small; head -c 4000000 /dev/zero > /fast/large || echo full";
    let more = json!({ "volumes": volumes, "initContainers": [before] });
    let (pod, text) = bed.output(&local, bed.script("sized", script, own, more)).await;
    assert_eq!(
        text.lines().filter(|line| !line.contains("No space left")).collect::<Vec<_>>(),
        ["kept", "full"]
    );
    bed.delete("sized").await;
    bed.until_gone("sized").await;
    let memory = format!("/dev/shm/ferry-{}", pod.metadata.uid.expect("a uid"));
    crate::bed::eventually(|| !std::path::Path::new(&memory).exists()).await;
}

#[tokio::test]
async fn a_pod_that_writes_more_than_it_may_is_evicted() {
    let Some(bed) = Bed::new("evicted").await else { return };
    let local = bed.local(|_| {}).await;
    let script = |path: &str| format!("trap '' TERM; head -c 3000000 /dev/zero > {path}; sleep 1000; :");
    let mount = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let volumes = |limit: &str| json!({ "volumes": [{ "name": "v", "emptyDir": { "sizeLimit": limit } }] });
    let limited = json!({ "resources": { "limits": { "ephemeral-storage": "1Mi" } } });
    bed.create(bed.script("volume", &script("/v/large"), mount.clone(), volumes("1Mi"))).await;
    bed.create(bed.script("modest", &script("/v/large"), mount, volumes("100Mi"))).await;
    bed.create(bed.script("container", &script("/var/tmp/large"), limited, json!({}))).await;
    let mut expected = vec![("volume", "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ")];
    if crate::isolation::is_isolated(&bed, &local).await {
        let all = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
        expected.push(("container", all));
    }
    for (name, message) in expected {
        let pod = bed.until_phase(name, "Failed").await;
        assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 137, "{name}");
        let status = pod.status.expect("a status");
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("Evicted"), Some(message)));
    }
    bed.until_phase("modest", "Running").await;
}

#[tokio::test]
async fn a_volume_that_is_missing_keeps_the_pod_waiting_and_is_told_by_an_event() {
    let Some(bed) = Bed::new("missing").await else { return };
    let _local = bed.local(|_| {}).await;
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/conf" }] });
    let more = json!({ "volumes": [{ "name": "v", "secret": { "secretName": "none" } }] });
    bed.create(bed.script("missing", "true", own, more)).await;
    let events: kube::Api<k8s_openapi::api::core::v1::Event> =
        kube::Api::namespaced(bed.client.clone(), &bed.namespace);
    // It is tried again, and told again by the same event.
    let told = crate::bed::found(async || {
        let all = events.list(&kube::api::ListParams::default()).await.expect("events");
        let told = all.items.into_iter().filter(|event| event.reason.as_deref() == Some("FailedMount"));
        Some(told.collect::<Vec<_>>())
            .filter(|told| told.iter().filter_map(|event| event.count).sum::<i32>() > 1)
    })
    .await;
    assert_eq!(told.len(), 1, "{told:?}");
    let message = told[0].message.as_deref();
    assert_eq!(message, Some("MountVolume.SetUp failed for volume \"v\" : secret \"none\" not found"));
    bed.make("v1", "Secret", json!({ "metadata": { "name": "none" }, "stringData": { "s": "secret" } }))
        .await;
    bed.until_phase("missing", "Succeeded").await;
}
