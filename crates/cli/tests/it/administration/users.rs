//! What users ask, on real clusters: with contexts of their own for the workers, and with none.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::site::{Sites, apply, eventually, ferry, job, succeeded};

pub(super) async fn verbs(sites: &Sites) -> anyhow::Result<()> {
    let submit = |mut job: Value, cpu: &str| -> anyhow::Result<()> {
        job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        let name = job["metadata"]["name"].as_str().context("a name")?.to_owned();
        let file = sites.kubeconfig().with_file_name(format!("{name}.yaml"));
        std::fs::write(&file, job.to_string())?;
        let said = sites.said(&["submit", file.to_str().context("a path")?])?;
        assert_eq!(said, format!("job {name} submitted to queue team\n"));
        Ok(())
    };
    // A pod that waits to start keeps nobody from reading the other.
    let mut half = job("half", true);
    half["spec"]["completionMode"] = json!("Indexed");
    (half["spec"]["completions"], half["spec"]["parallelism"]) = (json!(2), json!(2));
    submit(half, "1")?;
    eventually("one of two is read", async || {
        let output = sites.run(&["logs", "half", "-n", "team"])?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (shown, noted) = (text(&output.stdout), text(&output.stderr));
        let is_read = shown.contains("] written by team/half-0-") && !shown.contains("half-1-");
        let is_said = noted.contains("note: failed to read the log of pod half-1-")
            && noted.contains("is waiting to start");
        Ok((output.status.success() && is_read && is_said).then_some(()))
    })
    .await?;
    sites.said(&["cancel", "half", "-n", "team"])?;

    submit(job("greets", true), "1")?;
    let said = sites.said(&["wait", "greets", "-n", "team", "--for", "running", "--timeout", "150s"])?;
    assert_eq!(said, "greets is Running\n");
    let of =
        |arguments: &[&str]| -> anyhow::Result<Value> { Ok(serde_json::from_str(&sites.said(arguments)?)?) };
    let shown = of(&["get", "jobs", "greets", "-n", "team", "-o", "json"])?;
    let cluster = shown["items"][0]["cluster"].as_str().context("a cluster")?.to_owned();
    let row = sites.said(&["get", "jobs", "-n", "team"])?;
    let words: Vec<&str> = row.lines().nth(1).context("a row")?.split_whitespace().collect();
    assert_eq!(words[..2], ["greets", "Running"]);
    assert!(words[2..].ends_with(&["team", cluster.as_str(), words[words.len() - 1]]), "{row}");

    let logs = sites.said(&["logs", "greets", "-n", "team"])?;
    assert!(logs.starts_with("[greets-") && logs.ends_with("/c\n"), "{logs}");
    assert!(logs.contains("] written by team/greets-"), "{logs}");
    let page = sites.said(&["describe", "greets", "-n", "team"])?;
    assert!(page.contains(&format!("Pods on {cluster}:\n")), "{page}");
    let events = sites.said(&["events", "greets", "-n", "team"])?;
    assert!(
        events.lines().any(|line| line.contains(&cluster) && line.contains("SuccessfulCreate")),
        "{events}"
    );

    // One that needs all there is waits for the other, and is told so with numbers.
    submit(job("big", true), "4")?;
    let explained = eventually("it waits", async || {
        let explained = of(&["explain", "big", "-n", "team", "-o", "json"])?;
        Ok((explained["clusters"][0]["answer"] == "Waits").then_some(explained))
    })
    .await?;
    let here = &explained["clusters"][0];
    assert_eq!(
        (&here["needs"]["cpu"], &here["free"]["cpu"], &here["position"]),
        (&json!("4"), &json!("3"), &json!(1))
    );
    assert!(here["why"].as_str().is_some_and(|why| why.contains("when greets ends")), "{explained}");
    let clusters = explained["clusters"].as_array().context("clusters")?;
    assert_eq!(clusters.iter().map(|it| &it["cluster"]).collect::<Vec<_>>(), ["manager", "east", "west"]);
    for worker in &clusters[1..] {
        let expected = if worker["cluster"] == cluster.as_str() { ("Waits", "3") } else { ("Fits", "4") };
        assert_eq!(
            (&worker["answer"], &worker["free"]["cpu"]),
            (&json!(expected.0), &json!(expected.1)),
            "{explained}"
        );
        assert_eq!(
            (&worker["largestHole"]["node"], &worker["unread"]),
            (&json!("simulated"), &json!([])),
            "{explained}"
        );
    }
    let text = sites.said(&["explain", "big", "-n", "team"])?;
    assert!(text.starts_with("big is Queued, 1 of 1 in ClusterQueue team, waiting for "), "{text}");

    with_the_credentials_of_the_operator(sites, &cluster).await?;
    as_one_of_the_team(sites, &cluster).await?;
    let said = sites.said(&["cancel", "big", "greets", "-n", "team"])?;
    assert!(said.contains("big is gone") && said.contains("greets is gone"), "{said}");
    Ok(())
}

/// A user with the role `edit` in a namespace, and with what docs/real-clusters.md says that users need.
async fn as_one_of_the_team(sites: &Sites, cluster: &str) -> anyhow::Result<()> {
    let manager = sites.client("manager");
    let rbac = |kind: &str, name: &str| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": { "name": name } });
    let group = "rbac.authorization.k8s.io";
    let resources = [
        "workloads",
        "localqueues",
        "clusterqueues",
        "cohorts",
        "resourceflavors",
        "admissionchecks",
        "multikueueclusters",
        "multikueueconfigs",
    ];
    let mut role = rbac("ClusterRole", "ferry-user");
    role["rules"] = json!([{ "apiGroups": ["kueue.x-k8s.io"], "resources": resources, "verbs": ["get", "list", "watch"] }]);
    apply(&manager, role).await?;
    let mut binding = rbac("RoleBinding", "");
    binding["subjects"] = json!([{ "apiGroup": group, "kind": "User", "name": "ann" }]);
    // What `edit` is put together from by a controller that these clusters do without.
    for (i, name) in
        ["system:aggregate-to-edit", "system:aggregate-to-view", "ferry-user"].into_iter().enumerate()
    {
        binding["metadata"] = json!({ "name": format!("ann-{i}"), "namespace": "team" });
        binding["roleRef"] = json!({ "apiGroup": group, "kind": "ClusterRole", "name": name });
        apply(&manager, binding.clone()).await?;
    }

    // On the workers she is nobody.
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(sites.kubeconfig())?)?;
    for user in config["users"].as_array_mut().context("users")? {
        user["user"]["as"] = json!("ann");
    }
    let file = sites.kubeconfig().with_file_name("ann");
    std::fs::write(&file, config.to_string())?;
    let run = |arguments: &[&str]| ferry(&file).args(arguments).args(["-n", "team"]).output();
    let said = |arguments: &[&str]| succeeded(arguments, &run(arguments)?);
    eventually("she is let in", async || Ok(run(&["get", "jobs"])?.status.success().then_some(()))).await?;
    assert!(said(&["get", "jobs"])?.contains("greets"));
    assert!(said(&["get", "queues"])?.contains("team"));
    assert_eq!(said(&["wait", "greets", "--for", "running"])?, "greets is Running\n");
    assert!(said(&["describe", "greets"])?.contains(&format!("Cluster:     {cluster}")));
    assert!(said(&["events", "greets"])?.contains("CreatedWorkload"));
    for verb in [&["explain", "big"][..], &["clusters"], &["hold", "greets"], &["logs", "greets"]] {
        let refused = run(verb)?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(5), "{verb:?}: {said}");
        assert!(said.contains("is forbidden: User \"ann\" cannot") && said.contains("\nhint: "), "{said}");
    }

    // In the whole cluster.
    binding["kind"] = json!("ClusterRoleBinding");
    binding["metadata"] = json!({ "name": "ferry-user" });
    apply(&manager, binding).await?;
    eventually("she is let in", async || Ok(run(&["clusters"])?.status.success().then_some(()))).await?;
    let shown = said(&["clusters"])?;
    let row = shown.lines().find(|line| line.starts_with(cluster)).context("a row")?;
    assert!(row.contains("Connected") && row.contains("only by the operator"), "{shown}");
    let explained = said(&["explain", "big"])?;
    assert!(explained.contains("when greets ends"), "{explained}");
    assert!(said(&["top"])?.contains("greets"));
    Ok(())
}

/// A user whose kubeconfig has only the manager reads workers as the operator does, who needs no more than that.
async fn with_the_credentials_of_the_operator(sites: &Sites, cluster: &str) -> anyhow::Result<()> {
    let mut config: Value = serde_json::from_str(&std::fs::read_to_string(sites.kubeconfig())?)?;
    for list in ["clusters", "users", "contexts"] {
        config[list].as_array_mut().context("a list")?.retain(|item| item["name"] == "manager");
    }
    let file = sites.kubeconfig().with_file_name("manager-only");
    std::fs::write(&file, config.to_string())?;
    let run = |arguments: &[&str]| ferry(&file).args(arguments).output();

    let text = succeeded(&["explain"], &run(&["explain", "big", "-n", "team", "-o", "json"])?)?;
    let explained: Value = serde_json::from_str(&text)?;
    let workers = explained["clusters"].as_array().context("clusters")?;
    let worker = workers.iter().find(|it| it["cluster"] == cluster).context("the worker")?;
    assert_eq!((&worker["answer"], &worker["free"]["cpu"]), (&json!("Waits"), &json!("3")), "{explained}");
    let unread = worker["unread"].as_array().context("what is not read")?;
    assert!(unread.contains(&json!("flavors")) && unread.contains(&json!("nodes")), "{explained}");

    for follow in [&[][..], &["-f"]] {
        let refused = run(&[&["logs", "greets", "-n", "team"], follow].concat())?;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(5), "{said}");
        assert!(said.contains(&format!("ferry join CONTEXT --name {cluster} --logs")), "{said}");
    }
    // What the hint says helps.
    sites.said(&["join", cluster, "--logs"])?;
    let logs = succeeded(&["logs"], &run(&["logs", "greets", "-n", "team"])?)?;
    assert!(logs.contains("] written by team/greets-"), "{logs}");
    // Repeated without it, it stays; it is taken away on request.
    sites.said(&["join", cluster])?;
    succeeded(&["logs"], &run(&["logs", "greets", "-n", "team"])?)?;
    sites.said(&["join", cluster, "--logs=false"])?;
    eventually("logs are no longer given", async || {
        Ok((run(&["logs", "greets", "-n", "team"])?.status.code() == Some(5)).then_some(()))
    })
    .await
}
