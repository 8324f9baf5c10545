//! Users who may not do everything.

use serde_json::{Value, json};

use super::{Fleet, client, job};

/// A user without leave to read the kubeconfigs of workers is told so; another context serves as well.
pub(super) fn without_leave_to_read_secrets(fleet: &Fleet) {
    fleet.submit("private", "100m", "sleep 300");
    fleet.run(&["wait", "private", "--for", "running", "--timeout", "60s"]).expect(0);
    let cluster =
        fleet.json(&["get", "jobs", "private"])["items"][0]["cluster"].as_str().expect("one").to_owned();
    let rules = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"] }]);
    let rules_here =
        json!([{ "apiGroups": ["kueue.x-k8s.io"], "resources": ["*"], "verbs": ["get", "list", "watch"] }]);
    let account = json!({ "kind": "ServiceAccount", "name": "user", "namespace": "default" });
    let manifest = |kind: &str, more: Value| {
        let group = if kind == "ServiceAccount" { "v1" } else { "rbac.authorization.k8s.io/v1" };
        let mut object = json!({ "apiVersion": group, "kind": kind, "metadata": { "name": "user" } });
        for (key, value) in more.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        object.to_string()
    };
    let role = |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "user" });
    let documents = [
        manifest("ServiceAccount", json!({})),
        manifest("Role", json!({ "rules": rules })),
        manifest("RoleBinding", json!({ "roleRef": role("Role"), "subjects": [account] })),
        manifest("ClusterRole", json!({ "rules": rules_here })),
        manifest("ClusterRoleBinding", json!({ "roleRef": role("ClusterRole"), "subjects": [account] })),
    ];
    fleet.with_input(&["submit", "-"], &documents.join("\n---\n")).expect(0);
    let whole = std::fs::read_to_string(fleet.kubeconfig()).expect("a kubeconfig");
    let whole: Value = serde_json::from_str(&whole).expect("JSON");
    let file = fleet.home.path().join("of-user");
    let get = |more: bool| {
        let mut config = whole.clone();
        config["users"]
            .as_array_mut()
            .expect("a list")
            .push(json!({ "name": "user", "user": { "token": token(fleet) } }));
        for context in config["contexts"].as_array_mut().expect("a list") {
            if context["name"] == "ferry-manager" {
                context["context"]["user"] = json!("user");
            } else if !more {
                context["name"] = json!("another");
            }
        }
        std::fs::write(&file, config.to_string()).expect("a file");
        fleet.run(&["describe", "private", "--kubeconfig", file.to_str().expect("a path")])
    };
    let page = get(false);
    assert_eq!(page.code, Some(0), "{page:?}");
    let why = format!(
        "failed to reach cluster {cluster}: failed to read its kubeconfig, Secret kueue-system/{cluster}-kubeconfig"
    );
    assert!(page.stdout.contains(&why) && page.stdout.contains("is forbidden"), "{}", page.stdout);
    let logs = fleet.run(&["logs", "private", "--kubeconfig", file.to_str().expect("a path")]);
    logs.refused(5, &why, &format!("add a context named {cluster} or ferry-{cluster} to your kubeconfig"));
    assert!(get(true).stdout.contains(&format!("Pods on {cluster}:\n")), "a context of his own serves");
    one_that_may_not_be_deleted(fleet, file.to_str().expect("a path"));
    with_leave_for_a_namespace_only(fleet, &cluster, file.to_str().expect("a path"));
    fleet.run(&["cancel", "private"]).expect(0);
}

/// The same user may delete one Job and not the other: the refusal of the one does not keep the other.
fn one_that_may_not_be_deleted(fleet: &Fleet, kubeconfig: &str) {
    let rules = json!([{ "apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": ["second"], "verbs": ["delete"] }]);
    let account = json!({ "kind": "ServiceAccount", "name": "user", "namespace": "default" });
    let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "deleter" });
    let object = |kind: &str| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": "deleter" } });
    let (mut may, mut bound) = (object("Role"), object("RoleBinding"));
    may["rules"] = rules;
    (bound["roleRef"], bound["subjects"]) = (role, json!([account]));
    let jobs = ["first", "second"].map(|name| job(name, "100m", "sleep 300", json!({})));
    let documents = [may.to_string(), bound.to_string(), jobs[0].clone(), jobs[1].clone()];
    fleet.with_input(&["submit", "-"], &documents.join("\n---\n")).expect(0);
    let some = fleet.run(&["cancel", "first", "second", "--no-wait", "--kubeconfig", kubeconfig]);
    some.refused(5, "failed to delete first: ", "ask an administrator");
    assert_eq!(some.stdout, "second is being deleted\n");
    fleet.run(&["wait", "second", "--for", "deleted", "--timeout", "120s"]).expect(0);
    fleet.run(&["cancel", "first"]).expect(0);
}

/// The same user, who may no longer read what is in no namespace, goes without it. He has contexts for the workers.
fn with_leave_for_a_namespace_only(fleet: &Fleet, cluster: &str, kubeconfig: &str) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let bindings: kube::Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> =
            kube::Api::all(client(fleet).await);
        bindings.delete("user", &kube::api::DeleteParams::default()).await.expect("deleted");
    });
    let run = |arguments: &[&str]| fleet.run(&[arguments, &["--kubeconfig", kubeconfig]].concat());
    run(&["clusters"]).refused(5, "is forbidden", "ask an administrator");
    assert!(run(&["get", "jobs"]).expect(0).contains("private"));
    let queues = run(&["get", "queues"]).expect(0);
    assert!(queues.lines().any(|line| line.starts_with("fleet") && line.ends_with('-')), "{queues}");
    let described = run(&["describe", "private"]).expect(0);
    assert!(described.contains(&format!("Pods on {cluster}:\n")), "{described}");
    let events = run(&["events"]);
    assert!(events.stderr.starts_with("warning: without workers: "), "{events:?}");
    assert!(events.expect(0).contains("manager"), "what was told here");
    assert!(
        run(&["events", "private"]).expect(0).contains(&format!(" {cluster} ")),
        "his own context serves"
    );
}

/// A token of the service account `user`.
fn token(fleet: &Fleet) -> String {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> = kube::Api::default_namespaced(client(fleet).await);
        let request = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "audiences": [] } });
        let params = kube::api::PostParams::default();
        let answer: Value = accounts.create_subresource("token", "user", &params, &request).await.expect("a token");
        answer["status"]["token"].as_str().expect("a token").to_owned()
    })
}
