//! How far pods are kept apart from their host, and what limits them.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use runner::init::Isolation;
use serde_json::json;

use crate::bed::{Bed, Local, container, phase};

pub(crate) async fn condition(bed: &Bed, kind: &str) -> (String, String) {
    let node = Api::<Node>::all(bed.client.clone()).get(&bed.node("local")).await.expect("the node");
    let conditions = node.status.and_then(|status| status.conditions).expect("conditions");
    let found = conditions.into_iter().find(|one| one.type_ == kind).expect("the condition");
    (found.status, found.message.unwrap_or_default())
}

/// Whether this machine permits what the test is about; says so if not.
pub(crate) async fn is_isolated(bed: &Bed, _local: &Local) -> bool {
    let (status, message) = condition(bed, "PodsIsolated").await;
    if status != "True" {
        eprintln!("not tested: {message}");
    }
    status == "True"
}

#[tokio::test]
async fn pods_have_namespaces_of_their_own_over_the_hosts_files() {
    let Some(bed) = Bed::new("namespaces").await else { return };
    let local = bed.local(|_| {}).await;
    if !is_isolated(&bed, &local).await {
        return;
    }
    let script = format!(
        "echo $$$$; hostname; echo new > /etc/ferry-test && cat /etc/ferry-test; ls /tmp | wc -l; ls {} 2>/dev/null | wc -l; ls -d /proc/[0-9]* | wc -l",
        local.directory.path().display()
    );
    let (pod, text) = bed.output(&local, bed.script("apart", &script, json!({}), json!({}))).await;
    assert_eq!(phase(&pod), "Succeeded", "{text}");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..5], ["1", "apart", "new", "0", "0"], "{text}");
    assert!(lines[5].parse::<u32>().is_ok_and(|processes| processes < 5), "{text}");
    assert!(!std::path::Path::new("/etc/ferry-test").exists(), "the host's files are as they were");
}

/// The kernel has one `/proc/sys` for all, and a way to be restarted (`/proc/sysrq-trigger`); root in a container is root.
#[tokio::test]
async fn what_of_the_kernel_is_the_hosts_is_kept_from_containers() {
    let script = "for f in /proc/sys/kernel/core_pattern /proc/sysrq-trigger /proc/irq/default_smp_affinity; do \
                  test -w $f && echo writable $f; done; \
                  cat /proc/kcore /proc/keys /proc/timer_list /proc/interrupts /proc/sched_debug 2>/dev/null | head -c 1; \
                  ls /sys/firmware; touch /sys/firmware/x 2>/dev/null && echo touched; echo read $(cat /proc/sys/kernel/ostype)";
    for isolation in APART {
        let Some(bed) = Bed::new("kernel").await else { return };
        let local = bed.local(|process| process.isolation = isolation).await;
        if !is_isolated(&bed, &local).await {
            return;
        }
        let (_, text) = bed.output(&local, bed.script("usual", script, json!({}), json!({}))).await;
        assert_eq!(text, "read Linux\n", "{isolation:?}");
        if isolation.is_none() && rustix::process::geteuid().is_root() {
            let unmasked = json!({ "securityContext": { "procMount": "Unmasked" } });
            let more = json!({ "hostUsers": false });
            let (_, text) = bed.output(&local, bed.script("unmasked", script, unmasked, more)).await;
            assert_eq!(text, "read Linux\n", "its root is that of the host");
            let own = json!({ "securityContext": { "privileged": true } });
            let (_, text) = bed.output(&local, bed.script("privileged", script, own, json!({}))).await;
            assert!(text.contains("writable /proc/sys/kernel/core_pattern"), "{text}");
        }
    }
}

/// A device of a disk is the disk, whoever made it and wherever.
#[tokio::test]
async fn devices_that_containers_make_are_none() {
    let Some(bed) = Bed::new("devices").await else { return };
    let local = bed.local(|_| {}).await;
    if !is_isolated(&bed, &local).await || !rustix::process::geteuid().is_root() {
        return;
    }
    let script = "for d in /var/tmp /v /dev /dev/shm; do mknod $d/zero-too c 1 5 2>/dev/null && echo made && \
                  head -c 1 $d/zero-too 2>/dev/null | wc -c; done; head -c 1 /dev/zero | wc -c; echo x > /dev/null && test -c /dev/tty && echo usual";
    let mounts = json!([{ "name": "v", "mountPath": "/v" }]);
    let pod = |name: &str, context: serde_json::Value| {
        let own = json!({ "volumeMounts": mounts, "securityContext": context });
        bed.script(name, script, own, json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }))
    };
    assert_eq!(bed.output(&local, pod("usual", json!({}))).await.1, "1\nusual\n");
    let may = json!({ "capabilities": { "add": ["MKNOD"] } });
    assert_eq!(bed.output(&local, pod("makes", may)).await.1, format!("{}1\nusual\n", "made\n0\n".repeat(4)));
    let all = bed.output(&local, pod("privileged", json!({ "privileged": true }))).await.1;
    assert!(all.starts_with("made\n1\n"), "{all}");
}

/// Where the directory of a node is, there is usually more that may let its reader be the administrator.
#[tokio::test]
async fn pods_see_nothing_of_what_is_hidden_but_what_they_mount() {
    for isolation in APART {
        let Some(bed) = Bed::new("hidden").await else { return };
        // Not in /tmp, which every pod has for itself.
        let data =
            tempfile::Builder::new().prefix("ferry-data-").tempdir_in("/var/tmp").expect("a directory");
        std::fs::write(data.path().join("kubeconfig"), "secret").expect("a file");
        let directory =
            tempfile::Builder::new().prefix("node-").tempdir_in(data.path()).expect("a directory");
        let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file");
        std::fs::write(file.path(), "secret").expect("it is written");
        let later = file.path().with_extension("later");
        let hidden = vec![data.path().to_owned(), file.path().to_owned(), later.clone()];
        let local = bed
            .local_in(directory, bed.client.clone(), |process| {
                (process.hidden, process.isolation) = (hidden, isolation);
            })
            .await;
        if !is_isolated(&bed, &local).await {
            return;
        }
        bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one" } })).await;
        let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/conf" }] });
        let more = json!({ "volumes": [{ "name": "v", "configMap": { "name": "map" } }] });
        bed.create(bed.script("hidden", "exec sleep 1000", own, more)).await;
        bed.until_phase("hidden", "Running").await;
        std::fs::write(&later, "secret").expect("a file");
        let (data, file, later_one) = (data.path().display(), file.path().display(), later.display());
        let script = format!("ls -A {data} | wc -l; cat {file} {later_one}; cat /conf/a; : > {file}");
        let seen = bed.exec(&local, "hidden", &script).await;
        std::fs::remove_file(&later).expect("it is there");
        assert_eq!(seen, (0, "0\none".to_owned()), "{isolation:?}");
    }
}

#[tokio::test]
async fn users_groups_and_unchangeable_roots_are_as_the_pod_says() {
    let Some(bed) = Bed::new("security").await else { return };
    let local = bed.local(|_| {}).await;
    if !is_isolated(&bed, &local).await || !rustix::process::geteuid().is_root() {
        return;
    }
    let own = json!({ "securityContext": {
        "runAsUser": 1234, "runAsGroup": 2345, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false } });
    let more = json!({ "securityContext": { "fsGroup": 3456 },
        "volumes": [{ "name": "v", "emptyDir": {} }] });
    let mut own = own;
    own["volumeMounts"] = json!([{ "name": "v", "mountPath": "/v" }]);
    let script = "id -u; id -g; id -G; touch /var/x 2>/dev/null || echo unchangeable; touch /v/x && stat -c %g /v/x; \
                  grep NoNewPrivs /proc/self/status | cut -f2; grep CapEff /proc/self/status | cut -f2";
    let (_, text) = bed.output(&local, bed.script("user", script, own, more)).await;
    assert_eq!(text, "1234\n2345\n2345 3456\nunchangeable\n3456\n1\n0000000000000000\n");
    let root = json!({ "securityContext": { "runAsNonRoot": true } });
    bed.create(bed.script("root", "id", root, json!({}))).await;
    let waits = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        pod.is_some_and(|pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == "CreateContainerConfigError"
        })
    };
    bed.until("root", waits).await.expect("the pod");
}

#[tokio::test]
async fn containers_of_one_pod_share_memory_and_those_of_others_do_not() {
    let Some(bed) = Bed::new("shm").await else { return };
    let local = bed.local(|_| {}).await;
    if !is_isolated(&bed, &local).await {
        return;
    }
    let script = "until test -e /dev/shm/said; do sleep 0.05; done; cat /dev/shm/said";
    let mut pod = bed.script("two", script, json!({}), json!({}));
    let mut other = pod["spec"]["containers"][0].clone();
    other["name"] = json!("other");
    other["command"] = json!(["sh", "-c", "echo heard > /dev/shm/said"]);
    pod["spec"]["containers"].as_array_mut().expect("containers").push(other);
    let (_, text) = bed.output(&local, pod).await;
    assert_eq!(text, "heard\n");
    let alone = bed.script("alone", "ls -A /dev/shm; df /dev/shm | grep -c shm", json!({}), json!({}));
    assert_eq!(bed.output(&local, alone).await.1, "1\n");
}

/// Shared memory, semaphores and queues of messages are there once for all containers of a pod, whichever of them runs, and
/// for nobody else (4.14).
#[tokio::test]
async fn containers_of_one_pod_talk_through_the_kernel_and_nobody_else_hears_them() {
    for isolation in APART {
        let Some(bed) = Bed::new("ipc").await else { return };
        let local = bed.local(|process| process.isolation = isolation).await;
        if !is_isolated(&bed, &local).await {
            return;
        }
        let look = "readlink /proc/self/ns/ipc; cat /proc/sysvipc/* | grep -vc key";
        let mut pod = bed.script("three", look, json!({}), json!({}));
        let with = |name: &str, script: &str| {
            let mut container = pod["spec"]["containers"][0].clone();
            container["name"] = json!(name);
            container["command"] = json!(["sh", "-c", script]);
            container
        };
        let (first, other) = (with("first", "ipcmk -M 4097 -S 2 -Q"), with("other", look));
        pod["spec"]["initContainers"] = json!([first]);
        pod["spec"]["containers"].as_array_mut().expect("containers").push(other);
        let (_, seen) = bed.output(&local, pod).await;
        let (space, count) = seen.split_once('\n').expect("two lines");
        assert_eq!(count, "3\n", "one of each kind, by a container that has ended");
        assert_eq!(bed.log(&local, "three", "other", runner::LogOptions::default()).await, seen);
        let (_, alone) = bed.output(&local, bed.script("alone", look, json!({}), json!({}))).await;
        // The kernel may give its namespace the number of the one before, which is gone; what is in it tells them apart.
        assert!(alone.ends_with("\n0\n"), "{alone}");
        assert_ne!(
            std::fs::read_link("/proc/self/ns/ipc").expect("a namespace"),
            std::path::Path::new(space)
        );
    }
}

/// Both ways in which this machine may keep pods apart.
const APART: [Option<Isolation>; 2] = [None, Some(Isolation::User)];

#[tokio::test]
async fn containers_that_share_processes_see_each_other_and_end_with_their_pod() {
    for isolation in APART {
        let Some(bed) = Bed::new("share").await else { return };
        let local = bed.local(|process| process.isolation = isolation).await;
        if !is_isolated(&bed, &local).await {
            return;
        }
        let mark = format!("{}.375", 6000 + std::process::id());
        let script = format!(
            "until test -s /dev/shm/id; do sleep 0.05; done; tr '\\0' ' ' < /proc/1/cmdline; echo; \
             test $$$$ -ne 1 && kill -USR1 $(cat /dev/shm/id) && (setsid sleep {mark} &)"
        );
        let mut pod = bed.script("both", &script, json!({}), json!({ "shareProcessNamespace": true }));
        let mut other = pod["spec"]["containers"][0].clone();
        other["name"] = json!("other");
        let script = "trap 'exit 0' USR1; echo $$$$ > /dev/shm/id; while :; do sleep 0.05; done";
        other["command"] = json!(["sh", "-c", script]);
        pod["spec"]["containers"].as_array_mut().expect("containers").push(other);
        let (pod, text) = bed.output(&local, pod).await;
        assert_eq!(phase(&pod), "Succeeded", "{text}");
        assert!(text.contains("pause"), "who only holds the others comes first: {text}");
        crate::bed::eventually_is(|| crate::stopping::count_processes(&mark), 0).await;
        bed.delete("both").await;
        bed.until_gone("both").await;
        let directory = local.directory.path().display().to_string();
        crate::bed::eventually_is(|| crate::stopping::count_processes(&directory), 0).await;
    }
}

#[tokio::test]
async fn a_pod_that_asks_for_the_processes_and_the_memory_of_its_host_has_them() {
    for isolation in APART {
        let Some(bed) = Bed::new("host").await else { return };
        let local = bed.local(|process| process.isolation = isolation).await;
        if !is_isolated(&bed, &local).await {
            return;
        }
        let space = "readlink /proc/self/ns/ipc";
        let (_, own) = bed.output(&local, bed.script("own", space, json!({}), json!({}))).await;
        let hosts = std::fs::read_link("/proc/self/ns/ipc").expect("a namespace").display().to_string();
        assert_ne!(own.trim_end(), hosts);
        let kept = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
        std::fs::write(kept.path(), "of the host\n").expect("it is written");
        let mark = format!("{}.875", 7000 + std::process::id());
        let (id, file) = (std::process::id(), kept.path().display());
        let made = std::process::Command::new("ipcmk").args(["-M", "4097"]).output().expect("ipcmk");
        let made = String::from_utf8(made.stdout).expect("text");
        let memory = made.rsplit(' ').next().expect("a number").trim_end();
        let script = format!(
            "{space}; cat {file}; tr '\\0' '\\n' < /proc/{id}/cmdline | head -1; ipcrm -m {memory} && echo removed; \
             (setsid sleep {mark} &) ; sleep 0.3"
        );
        let more = json!({ "hostPID": true, "hostIPC": true });
        let (pod, text) = bed.output(&local, bed.script("hosts", &script, json!({}), more)).await;
        assert_eq!(phase(&pod), "Succeeded", "{text}");
        let ourselves = std::env::args().next().expect("a program");
        assert_eq!(text.lines().collect::<Vec<_>>(), [hosts.as_str(), "of the host", &ourselves, "removed"]);
        assert_eq!(crate::stopping::count_processes(&mark), 0, "what has left its parent ends too");
    }
}

#[tokio::test]
async fn a_container_that_is_added_for_another_sees_its_processes() {
    let Some(bed) = Bed::new("target").await else { return };
    let local = bed.local(|_| {}).await;
    if !is_isolated(&bed, &local).await {
        return;
    }
    bed.create(bed.script("target", "exec sleep 1234.5", json!({}), json!({}))).await;
    bed.until_phase("target", "Running").await;
    let added = json!([{ "name": "look", "image": "any", "targetContainerName": "main",
        "command": ["sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline"], "terminationMessagePolicy": "File" }]);
    let patch = Patch::Strategic(json!({ "spec": { "ephemeralContainers": added } }));
    let changed = bed.pods().patch_ephemeral_containers("target", &PatchParams::default(), &patch).await;
    changed.expect("a container more");
    let looked = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        let statuses = status.and_then(|status| status.ephemeral_container_statuses.as_deref());
        let state = statuses.and_then(|all| all.first()?.state.as_ref());
        state.is_some_and(|state| state.terminated.is_some())
    };
    bed.until("target", looked).await;
    let text = bed.log(&local, "target", "look", runner::LogOptions::default()).await;
    assert_eq!(text.trim_end(), "sleep 1234.5");
}

#[tokio::test]
async fn too_much_memory_is_the_end_and_is_told() {
    let Some(bed) = Bed::new("memory").await else { return };
    let local = bed.local(|_| {}).await;
    let (status, message) = condition(&bed, "LimitsEnforced").await;
    if status != "True" {
        eprintln!("not tested: {message}");
        return;
    }
    let own = json!({ "resources": { "limits": { "memory": "32Mi", "cpu": "500m" } } });
    let script = "head -c 200M /dev/zero | tail -c 150M | wc -c; exit 1";
    let (pod, text) = bed.output(&local, bed.script("greedy", script, own.clone(), json!({}))).await;
    let ended = &container(&pod, "main")["state"]["terminated"];
    assert_eq!(ended["reason"], "OOMKilled", "{ended} {text}");
    let (pod, _) = bed.output(&local, bed.script("modest", "exit 1", own, json!({}))).await;
    assert_eq!(container(&pod, "main")["state"]["terminated"]["reason"], "Error");
}

#[tokio::test]
async fn a_plain_node_says_so_and_shows_volumes_below_a_directory() {
    let Some(bed) = Bed::new("plain").await else { return };
    let local = bed.local(|process| process.isolation = Some(Isolation::Plain)).await;
    let (status, message) = condition(&bed, "PodsIsolated").await;
    assert_eq!(status, "False");
    assert!(message.contains("plain processes"), "{message}");
    bed.make("v1", "ConfigMap", json!({ "metadata": { "name": "map" }, "data": { "a": "one" } })).await;
    let own = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/etc/conf" }] });
    let more = json!({ "volumes": [{ "name": "v", "configMap": { "name": "map" } }] });
    let (pod, text) =
        bed.output(&local, bed.script("plain", "cat $POD_ROOT/etc/conf/a; exit 4", own, more)).await;
    assert_eq!((text.as_str(), phase(&pod)), ("one", "Failed"));
    let mark = format!("{}.125", 3000 + std::process::id());
    let script = format!("(setsid sleep {mark} &) ; sleep 0.3");
    let (_, _) = bed.output(&local, bed.script("strays", &script, json!({}), json!({}))).await;
    assert_eq!(crate::stopping::count_processes(&mark), 0, "what has left its parent ends too");
}

#[tokio::test]
async fn a_container_that_runs_gets_other_limits_and_sees_them() {
    let Some(bed) = Bed::new("resize").await else { return };
    let local = bed.local(|_| {}).await;
    let (limits, message) = condition(&bed, "LimitsEnforced").await;
    let (isolated, _) = condition(&bed, "PodsIsolated").await;
    if (limits.as_str(), isolated.as_str()) != ("True", "True") {
        eprintln!("NOT TESTED: {message}");
        return;
    }
    let quota = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us /sys/fs/cgroup/cpu.max 2>/dev/null | cut -d' ' -f1";
    let script = "exec sleep 1000";
    let resources = |cpu: &str| json!({ "limits": { "cpu": cpu }, "requests": { "cpu": cpu } });
    let own = |cpu: &str, policy: &str| {
        let policy = json!([{ "resourceName": "cpu", "restartPolicy": policy }]);
        json!({ "resources": resources(cpu), "resizePolicy": policy })
    };
    let gentle = bed.script("gentle", script, own("200m", "NotRequired"), json!({}));
    let more = json!({ "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 1 });
    let harsh = bed.script("harsh", script, own("200m", "RestartContainer"), more);
    let has = |cpu: &'static str, restarts: i64| {
        move |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
            pod.is_some_and(|pod| {
                let main = container(pod, "main");
                let has = main["state"]["running"].is_object()
                    && main["resources"] == json!({ "limits": { "cpu": cpu }, "requests": { "cpu": cpu } });
                has && main["allocatedResources"]["cpu"] == cpu && main["restartCount"] == restarts
            })
        }
    };
    for (pod, name, restarts) in [(gentle, "gentle", 0), (harsh, "harsh", 1)] {
        bed.create(pod).await;
        bed.until(name, has("200m", 0)).await.expect("the pod");
        assert_eq!(bed.exec(&local, name, quota).await, (0, "20000\n".to_owned()), "{name}");
        bed.resize(name, resources("300m")).await;
        bed.until(name, has("300m", restarts)).await.expect("the pod");
        assert_eq!(bed.exec(&local, name, quota).await, (0, "30000\n".to_owned()), "{name}");
    }
    bed.resize("gentle", resources("5000")).await;
    let waits = |pod: Option<&k8s_openapi::api::core::v1::Pod>| {
        let status = pod.and_then(|pod| pod.status.as_ref());
        let mut conditions =
            status.and_then(|status| status.conditions.as_deref()).unwrap_or_default().iter();
        conditions.any(|it| it.type_ == "PodResizePending" && it.reason.as_deref() == Some("Infeasible"))
    };
    let pod = bed.until("gentle", waits).await.expect("the pod");
    assert_eq!(container(&pod, "main")["resources"], resources("300m"), "it keeps what it has");
    bed.resize("gentle", resources("100m")).await;
    let pod = bed.until("gentle", has("100m", 0)).await.expect("the pod");
    assert!(!waits(Some(&pod)), "{:?}", pod.status);
}
