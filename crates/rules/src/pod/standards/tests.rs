//! Every check, by what it says.

use serde_json::{Value, json};

use super::*;

fn standard(text: &str) -> Standard {
    let (level, minor) =
        text.split_once(':').map_or((text, None), |(level, minor)| (level, minor.parse().ok()));
    let level = if level == "baseline" { Level::Baseline } else { Level::Restricted };
    Standard { level, version: minor.map_or(Version::Latest, Version::Minor) }
}

fn check_pod(of: &str, annotations: &Value, spec: &Value, expected: &str) {
    let spec: PodSpec = serde_json::from_value(spec.clone()).expect("a test's spec");
    let meta = json!({"annotations": annotations});
    let meta: ObjectMeta = serde_json::from_value(meta).expect("a test's metadata");
    assert_eq!(violations(standard(of), &meta, &spec).to_string(), expected, "{of}");
}

/// A pod with one container that the restricted level allows, changed in parts.
fn check(of: &str, change: impl FnOnce(&mut Value), expected: &str) {
    let mut spec = json!({
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        }}],
    });
    change(&mut spec);
    check_pod(of, &Value::Null, &spec, expected);
}

/// The same, changed in the security context of its container.
fn check_context(of: &str, name: &str, value: Value, expected: &str) {
    check(of, |spec| spec["containers"][0]["securityContext"][name] = value, expected);
}

/// The same, changed in that of the pod.
fn check_own(of: &str, name: &str, value: Value, expected: &str) {
    check(of, |spec| spec["securityContext"][name] = value, expected);
}

#[test]
fn a_hardened_pod_violates_nothing() {
    for of in ["baseline", "restricted", "restricted:0", "restricted:18", "restricted:99"] {
        check(of, |_| {}, "");
    }
    let everything = json!({"containers": [], "hostPID": true, "hostNetwork": true});
    let spec: PodSpec = serde_json::from_value(everything).expect("a test's spec");
    let privileged = Standard { level: Level::Privileged, version: Version::Latest };
    assert!(violations(privileged, &ObjectMeta::default(), &spec).is_empty());
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let spec = json!({
        "hostNetwork": true, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}, {"name": "b"}],
        "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    });
    check_pod(
        "baseline",
        &Value::Null,
        &spec,
        r#"host namespaces (hostNetwork=true), hostPath volumes (volume "v")"#,
    );
    check_pod(
        "restricted",
        &Value::Null,
        &spec,
        concat!(
            "host namespaces (hostNetwork=true), ",
            r#"allowPrivilegeEscalation != false (containers "i", "a", "b" must set securityContext.allowPrivilegeEscalation=false), "#,
            r#"unrestricted capabilities (containers "i", "a", "b" must set securityContext.capabilities.drop=["ALL"]), "#,
            r#"restricted volume types (volume "v" uses restricted volume type "hostPath"), "#,
            r#"runAsNonRoot != true (pod or containers "i", "a", "b" must set securityContext.runAsNonRoot=true), "#,
            r#"seccompProfile (pod or containers "i", "a", "b" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
    );
}

#[test]
fn app_armor() {
    let unconfined = json!({"type": "Unconfined"});
    let why =
        r#"forbidden AppArmor profile (container "a" must not set AppArmor profile type to "Unconfined")"#;
    check_context("baseline", "appArmorProfile", unconfined.clone(), why);
    let why = r#"forbidden AppArmor profile (pod must not set AppArmor profile type to "Unconfined")"#;
    check_own("restricted", "appArmorProfile", unconfined, why);
    check_own("restricted", "appArmorProfile", json!({"type": "Localhost"}), "");
    let name = |container: &str| format!("container.apparmor.security.beta.kubernetes.io/{container}");
    check_pod(
        "baseline",
        &json!({name("a"): "unconfined", name("b"): "runtime/default", name("c"): "x"}),
        &json!({"containers": []}),
        concat!(
            "forbidden AppArmor profiles (annotations must not set AppArmor profile type to ",
            r#""container.apparmor.security.beta.kubernetes.io/a="unconfined"", "#,
            r#""container.apparmor.security.beta.kubernetes.io/c="x"")"#,
        ),
    );
}

#[test]
fn capabilities() {
    let some = json!({"add": ["SYS_ADMIN", "CHOWN", "NET_RAW"], "drop": ["ALL"]});
    check_context(
        "baseline",
        "capabilities",
        some.clone(),
        r#"non-default capabilities (container "a" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)"#,
    );
    check_context(
        "restricted:21",
        "capabilities",
        some.clone(),
        r#"non-default capabilities (container "a" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)"#,
    );
    check_context(
        "restricted",
        "capabilities",
        some,
        r#"unrestricted capabilities (container "a" must not include "CHOWN", "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)"#,
    );
    check_context(
        "restricted",
        "capabilities",
        json!({"add": ["NET_BIND_SERVICE", "KILL"], "drop": ["MKNOD"]}),
        concat!(
            r#"unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; "#,
            r#"container "a" must not include "KILL" in securityContext.capabilities.add)"#,
        ),
    );
}

#[test]
fn the_node_is_left_alone() {
    let shared = |spec: &mut Value| {
        spec["hostNetwork"] = json!(true);
        spec["hostPID"] = json!(true);
        spec["hostIPC"] = json!(true);
    };
    check("baseline", shared, "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)");
    let ports = json!([{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 443}, {"containerPort": 3}]);
    let ports = |spec: &mut Value| spec["containers"][0]["ports"] = ports;
    check("baseline", ports, r#"hostPort (container "a" uses hostPorts 443, 80)"#);
    check_context(
        "baseline",
        "privileged",
        json!(true),
        r#"privileged (container "a" must not set securityContext.privileged=true)"#,
    );
    check_context(
        "baseline",
        "procMount",
        json!("Unmasked"),
        r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#,
    );
    check_context(
        "baseline",
        "windowsOptions",
        json!({"hostProcess": true}),
        r#"hostProcess (container "a" must not set securityContext.windowsOptions.hostProcess=true)"#,
    );
    check_own(
        "baseline",
        "windowsOptions",
        json!({"hostProcess": true}),
        "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)",
    );
}

#[test]
fn hosts_of_probes_and_handlers() {
    let handlers = |spec: &mut Value| {
        let container = &mut spec["containers"][0];
        container["livenessProbe"] = json!({"httpGet": {"port": 1, "host": "y"}});
        container["startupProbe"] = json!({"tcpSocket": {"port": 1, "host": ""}});
        container["lifecycle"] = json!({"preStop": {"httpGet": {"port": 1, "host": "x"}}});
    };
    let why = r#"probe or lifecycle host (container "a" uses probe or lifecycle hosts "x", "y")"#;
    check("baseline", handlers, why);
    check("baseline:33", handlers, "");
}

#[test]
fn se_linux() {
    let options = json!({"type": "b", "user": "u", "role": "r"});
    let why = r#"seLinuxOptions (container "a" set forbidden securityContext.seLinuxOptions: type "b"; user may not be set; role may not be set)"#;
    check_context("baseline", "seLinuxOptions", options, why);
    let why = "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set)";
    check_own("restricted", "seLinuxOptions", json!({"user": "u", "level": "l"}), why);
    let engine = || json!({"type": "container_engine_t"});
    check_own("baseline", "seLinuxOptions", engine(), "");
    let why =
        r#"seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "container_engine_t")"#;
    check_own("baseline:30", "seLinuxOptions", engine(), why);
}

#[test]
fn seccomp() {
    let unconfined = || json!({"type": "Unconfined"});
    let why = r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#;
    check_own("baseline", "seccompProfile", unconfined(), why);
    check_own("restricted", "seccompProfile", unconfined(), why);
    check_own("restricted:18", "seccompProfile", unconfined(), "");
    let why =
        r#"seccompProfile (container "a" must not set securityContext.seccompProfile.type to "Unconfined")"#;
    check_context("restricted", "seccompProfile", unconfined(), why);
    let why = r#"seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#;
    check_own("restricted", "seccompProfile", Value::Null, why);
    check_own("baseline", "seccompProfile", Value::Null, "");
    let annotations = json!({
        "seccomp.security.alpha.kubernetes.io/pod": "unconfined",
        "container.seccomp.security.alpha.kubernetes.io/a": "docker/default",
        "container.seccomp.security.alpha.kubernetes.io/other": "unconfined",
    });
    check_pod(
        "baseline:18",
        &annotations,
        &json!({"containers": [{"name": "a"}]}),
        r#"seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")"#,
    );
    check_pod("baseline:19", &annotations, &json!({"containers": [{"name": "a"}]}), "");
}

#[test]
fn sysctls() {
    let sysctls = || {
        json!([
            {"name": "kernel.msgmax", "value": "1"}, {"name": "net.ipv4.tcp_rmem", "value": "1"},
            {"name": "net.ipv4.tcp_syncookies", "value": "1"}, {"name": "net.ipv4.tcp_fin_timeout", "value": "1"},
        ])
    };
    check_own("baseline", "sysctls", sysctls(), "forbidden sysctls (kernel.msgmax)");
    check_own("baseline:31", "sysctls", sysctls(), "forbidden sysctls (kernel.msgmax, net.ipv4.tcp_rmem)");
    let why = "forbidden sysctls (kernel.msgmax, net.ipv4.tcp_rmem, net.ipv4.tcp_fin_timeout)";
    check_own("baseline:28", "sysctls", sysctls(), why);
}

#[test]
fn users() {
    let why = "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)";
    check_own("restricted", "runAsNonRoot", json!(false), why);
    let why = r#"runAsNonRoot != true (container "a" must not set securityContext.runAsNonRoot=false)"#;
    check_context("restricted", "runAsNonRoot", json!(false), why);
    let why = r#"runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true)"#;
    check_own("restricted", "runAsNonRoot", Value::Null, why);
    check_own("restricted", "runAsUser", json!(0), "runAsUser=0 (pod must not set runAsUser=0)");
    check_context(
        "restricted",
        "runAsUser",
        json!(0),
        r#"runAsUser=0 (container "a" must not set runAsUser=0)"#,
    );
    check_own("restricted:22", "runAsUser", json!(0), "");
    check_own("restricted", "runAsUser", json!(1000), "");
}

#[test]
fn users_of_a_pods_own() {
    let own = |spec: &mut Value| {
        spec["hostUsers"] = json!(false);
        spec["securityContext"]["runAsNonRoot"] = json!(false);
        spec["securityContext"]["runAsUser"] = json!(0);
        spec["containers"][0]["securityContext"]["procMount"] = json!("Unmasked");
    };
    check("baseline", own, "");
    let unmasked = r#"procMount (container "a" must not set securityContext.procMount to "Unmasked")"#;
    check("baseline:34", own, unmasked);
    check("restricted", own, unmasked);
    let root = concat!(
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false), ",
        "runAsUser=0 (pod must not set runAsUser=0)",
    );
    check("restricted:34", own, &format!("{unmasked}, {root}"));
}

#[test]
fn pods_of_windows_need_not_have_what_windows_has_not() {
    let spec = json!({
        "os": {"name": "windows"}, "containers": [{"name": "a"}], "securityContext": {"runAsNonRoot": true},
    });
    check_pod("restricted", &Value::Null, &spec, "");
    check_pod(
        "restricted:24",
        &Value::Null,
        &spec,
        concat!(
            r#"allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), "#,
            r#"unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), "#,
            r#"seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#,
        ),
    );
}

#[test]
fn volumes() {
    let volumes = json!([
        {"name": "a", "emptyDir": {}}, {"name": "b", "nfs": {"server": "s", "path": "/"}},
        {"name": "i", "image": {"reference": "r"}}, {"name": "c", "iscsi": {"targetPortal": "p", "iqn": "q", "lun": 1}}, {"name": "d", "hostPath": {"path": "/"}},
    ]);
    let why = r#"restricted volume types (volumes "b", "c", "d" use restricted volume types "hostPath", "iscsi", "nfs")"#;
    check("restricted", |spec| spec["volumes"] = volumes, why);
}

#[test]
fn pods_are_judged_again_when_another_image_runs() {
    let pod = || json!({"spec": {"containers": [{"name": "a", "image": "i"}]}});
    let check = |change: fn(&mut Value), expected: bool| {
        let mut new = pod();
        change(&mut new);
        let typed = |pod: Value| -> Pod { serde_json::from_value(pod).expect("a test's pod") };
        assert_eq!(is_judged_again(&typed(new.clone()), &typed(pod())), expected, "{new}");
    };
    check(|_| {}, false);
    check(|pod| pod["metadata"]["labels"] = json!({"a": "b"}), false);
    check(|pod| pod["spec"]["containers"][0]["image"] = json!("j"), true);
    check(|pod| pod["spec"]["initContainers"] = json!([{"name": "i", "image": "i"}]), true);
    check(|pod| pod["spec"]["ephemeralContainers"] = json!([{"name": "e", "image": "i"}]), true);
    check(|pod| pod["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}}), false);
}
