//! The same on an embedded fleet.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::Context as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::site::{api, apply, eventually, ferry, job, kueue, succeeded};

/// A running `ferry up`, killed when it is dropped.
struct Up(Child);

impl Drop for Up {
    fn drop(&mut self) {
        self.0.kill().ok(); // it may have ended already
        self.0.wait().ok();
    }
}

impl Up {
    fn start(kubeconfig: &Path) -> anyhow::Result<Up> {
        let mut command = ferry(kubeconfig);
        command.args(["up", "--ephemeral", "--worker", "east", "--worker", "west", "--runtime", "simulated"]);
        let mut child = command.arg("--kubeconfig").arg(kubeconfig).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("piped")?).lines();
        let is_ready = lines.map_while(Result::ok).any(|line| line.starts_with("fleet is ready"));
        let up = Up(child);
        anyhow::ensure!(is_ready, "ferry up ended");
        Ok(up)
    }
}

async fn manager(kubeconfig: &Path) -> anyhow::Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_moves_when_its_worker_is_drained() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let _up = Up::start(&kubeconfig)?;
    let run = |arguments: &[&str]| succeeded(arguments, &ferry(&kubeconfig).args(arguments).output()?);
    let said = run(&["doctor"])?;
    assert!(said.contains(": 0 wrong"), "{said}");

    let client = manager(&kubeconfig).await?;
    apply(&client, long_job("long", "1")).await?;
    let place = async |not: &str| {
        eventually("it runs", async || {
            let shown: Value = serde_json::from_str(&run(&["get", "jobs", "-o", "json"])?)?;
            let cluster = shown["items"][0]["cluster"].as_str().map(str::to_owned);
            let api: Api<k8s_openapi::api::batch::v1::Job> = Api::default_namespaced(client.clone());
            let active = api.get("long").await?.status.and_then(|status| status.active);
            Ok(cluster.filter(|cluster| cluster != not && active > Some(0)))
        })
        .await
    };
    let first = place("").await?;
    eventually("the cluster is shown", async || {
        let said = run(&["clusters"])?;
        Ok(said.lines().any(|line| line.starts_with(&first) && line.contains("cpu 7/8")).then_some(()))
    })
    .await?;
    run(&["drain", &first])?;
    let second = place(&first).await?;
    assert_ne!(first, second);
    let output = ferry(&kubeconfig).arg("doctor").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("hint: ferry uncordon {first}")), "{said}");
    run(&["uncordon", &first])?;

    // A cluster is a worker once, under one name, and never its own.
    let refused = |arguments: &[&str], code: i32, error: &str, hint: &str| -> anyhow::Result<()> {
        let output = ferry(&kubeconfig).args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(error) && said.contains(hint), "{said}");
        Ok(())
    };
    refused(
        &["join", "ferry-east"],
        1,
        "ferry-east is a worker already, called east",
        "hint: to join it again: --name east;",
    )?;
    refused(
        &["join", "ferry-manager", "--name", "me", "--dry-run"],
        1,
        "ferry-manager leads to the management cluster itself",
        "hint: Jobs without a queue",
    )?;
    for server in ["east", "http://127.0.0.1:1", "127.0.0.1:6443"] {
        refused(
            &["join", "ferry-east", "--name", "east", "--server", server],
            2,
            "for '--server <URL>'",
            "https://east.example:6443",
        )?;
    }
    refused(&["cordon", "esat"], 3, "there is no cluster esat", "hint: did you mean east?")?;

    // A worker of the fleet can be joined like any other, and then has credentials of its own.
    let said = run(&["join", "ferry-east", "--name", "east"])?;
    assert!(said.contains("east is connected"), "{said}");
    assert!(run(&["doctor", "-v"])?.contains("the credentials for worker east suffice"));
    let doctor = |arguments: &[&str]| Ok(super::told(&ferry(&kubeconfig).args(arguments).output()?));
    super::clock::is_judged(&client, "east", doctor).await?;

    // What is there already is not installed again, and the fleet stays well.
    assert!(
        run(&["install", "--without-operator", "--dry-run"])?.contains("ClusterRole ferry would be created")
    );
    let said = run(&["install", "--without-operator"])?;
    assert!(said.contains("ClusterRole ferry created"), "{said}");
    let said = run(&["install", "--without-operator"])?;
    assert!(said.lines().all(|line| line.ends_with("unchanged")), "{said}");

    run(&["cancel", "long"])?;
    let said = run(&["cordon", "west"])?;
    assert!(said.ends_with("west takes no new Jobs; those that run there go on\n"), "{said}");
    let shown = run(&["clusters"])?;
    assert!(shown.lines().any(|line| line.starts_with("west") && line.contains("Cordoned")), "{shown}");
    run(&["uncordon", "west"])?;
    let said = run(&["leave", "east"])?;
    assert!(said.contains("MultiKueueCluster east deleted"), "{said}");
    assert_eq!(run(&["clusters", "-o", "name"])?, "west\n");
    assert!(run(&["join", "ferry-east", "--name", "east"])?.ends_with("east is connected\n"));
    assert!(run(&["doctor"])?.contains(": 0 wrong"));
    Ok(())
}

/// Lets the operator find nobody where a worker was. Returns how it was reached until now.
async fn lose(manager: &Client, worker: &str) -> anyhow::Result<Value> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(manager.clone(), "kueue-system");
    let data = secrets.get(&format!("{worker}-kubeconfig")).await?.data;
    let data = data.and_then(|mut data| data.remove("kubeconfig")).context("a kubeconfig")?;
    let before: Value = serde_json::from_slice(&data.0)?;
    let mut nowhere = before.clone();
    nowhere["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    reach_by(manager, worker, &nowhere).await?;
    Ok(before)
}

/// Lets the operator reach a worker by a kubeconfig.
async fn reach_by(manager: &Client, worker: &str, kubeconfig: &Value) -> anyhow::Result<()> {
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(manager.clone(), "kueue-system");
    let patch = Patch::Merge(json!({ "stringData": { "kubeconfig": kubeconfig.to_string() } }));
    secrets.patch(&format!("{worker}-kubeconfig"), &PatchParams::default(), &patch).await?;
    Ok(())
}

/// A Job of a fleet that does not end by itself.
fn long_job(name: &str, cpu: &str) -> Value {
    let mut long = job(name, true);
    long["metadata"]["namespace"] = json!("default");
    long["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "fleet" });
    long["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    long
}

/// What a worker holds that will not come back starts elsewhere as soon as that is said, however long it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_worker_holds_starts_elsewhere_on_request() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let _up = Up::start(&kubeconfig)?;
    let run = |arguments: &[&str]| succeeded(arguments, &ferry(&kubeconfig).args(arguments).output()?);
    let client = manager(&kubeconfig).await?;
    apply(&client, long_job("long", "1")).await?;
    let place = |job: &str| -> anyhow::Result<String> {
        run(&["wait", job, "--for", "running", "--timeout", "150s"])?;
        let shown: Value = serde_json::from_str(&run(&["get", "jobs", job, "-o", "json"])?)?;
        Ok(shown["items"][0]["cluster"].as_str().context("a cluster")?.to_owned())
    };
    let lost = place("long")?;
    // A worker that runs its Jobs is not given up: they would run twice.
    let early = ferry(&kubeconfig).args(["drain", "--given-up", &lost]).output()?;
    let said = String::from_utf8_lossy(&early.stderr).into_owned();
    assert_eq!(early.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{lost} is connected")) && said.contains("hint: ferry drain"), "{said}");
    let before = lose(&client, &lost).await?;
    eventually("it is lost", async || {
        let said = run(&["clusters"])?;
        Ok(said.lines().any(|line| line.starts_with(&lost) && line.contains("Lost")).then_some(()))
    })
    .await?;
    let (code, said) = super::told(&ferry(&kubeconfig).arg("doctor").output()?);
    assert_eq!(code, Some(1), "{said}");
    let expected = format!("wrong worker {lost} is not connected for ");
    assert!(said.contains(&expected) && said.contains(", at https://127.0.0.1:1: "), "{said}");
    assert_eq!(said.matches("wrong").count(), 2, "it is said once: {said}");
    assert!(said.contains(&format!("ferry drain --given-up {lost}")), "{said}");
    // Later nothing looks at it again by itself.
    let mut workload = kueue("Workload", "", json!({}));
    workload["metadata"]["namespace"] = json!("default");
    let workloads = api(&client, &workload)?;
    eventually("it is said to be lost", async || {
        let all = serde_json::to_string(&workloads.list(&ListParams::default()).await?.items)?;
        Ok(all.contains("which cannot be reached since").then_some(()))
    })
    .await?;
    let said = run(&["explain", "long"])?;
    assert!(said.contains(&format!("its pods may still run on {lost}, so it waits for that")), "{said}");
    // Its queues can be held by nobody, so the management cluster offers it nothing; and that can be taken back.
    let would = run(&["cordon", &lost, "--dry-run"])?;
    assert!(
        would.ends_with(&format!("{lost} would be offered no new Jobs, also when it is back\n")),
        "{would}"
    );
    let said = run(&["cordon", &lost])?;
    assert!(said.ends_with(&format!("{lost} is offered no new Jobs, also when it is back\n")), "{said}");
    let back = ferry(&kubeconfig).args(["uncordon", &lost]).output()?;
    let (changed, why) = (String::from_utf8_lossy(&back.stdout), String::from_utf8_lossy(&back.stderr));
    assert_eq!(back.status.code(), Some(2), "{why}");
    assert!(changed.contains(&format!("MultiKueueCluster {lost} changed")), "{changed}");
    assert!(why.contains("hint: is it up? its queues may be held there"), "{why}");
    let drained = ferry(&kubeconfig).args(["drain", &lost]).output()?;
    let why = String::from_utf8_lossy(&drained.stderr);
    assert_eq!(drained.status.code(), Some(2), "{why}");
    assert!(why.contains(&format!("ferry drain --given-up {lost}; ferry cordon {lost}")), "{why}");

    let said = run(&["drain", "--given-up", &lost, "--dry-run"])?;
    assert!(said.ends_with(&format!("{lost}: 1 Job would start elsewhere\n")), "{said}");
    let said = run(&["drain", "--given-up", &lost])?;
    assert!(said.ends_with(&format!("{lost} is empty\n")), "{said}");
    assert_ne!(place("long")?, lost);

    // It stays said until it is taken back, whether the worker is there or not.
    let shown = run(&["clusters"])?;
    assert!(shown.lines().any(|line| line.starts_with(&lost) && line.contains("GivenUp")), "{shown}");
    let (_, said) = super::told(&ferry(&kubeconfig).arg("doctor").output()?);
    assert!(said.contains(&format!("odd   worker {lost} is given up, and not connected for ")), "{said}");
    reach_by(&client, &lost, &before).await?;
    eventually("it is back", async || {
        let (_, said) = super::told(&ferry(&kubeconfig).arg("doctor").output()?);
        let what =
            format!("odd   worker {lost} is connected, and said to be given up: it is offered no new Jobs");
        Ok(said.contains(&what).then_some(()))
    })
    .await?;
    // There is room for this one there and nowhere else.
    apply(&client, long_job("next", "8")).await?;
    eventually("it waits for a worker", async || {
        let shown: Value = serde_json::from_str(&run(&["explain", "next", "-o", "json"])?)?;
        let clusters = shown["clusters"].as_array().context("clusters")?;
        let answer = clusters.iter().find(|it| it["cluster"] == lost.as_str()).context("an answer")?;
        let is_closed =
            answer["answer"] == "Closed" && answer["why"] == format!("cordoned: ferry uncordon {lost}");
        // Whom it is offered to is written down, and the other one cannot take it.
        let asked = shown["job"]["nominated"].as_array().cloned().unwrap_or_default();
        Ok((is_closed && asked.len() == 1 && asked[0] != lost.as_str()).then_some(()))
    })
    .await?;
    run(&["uncordon", &lost])?;
    assert_eq!(place("next")?, lost);
    let shown = run(&["clusters"])?;
    assert!(shown.lines().any(|line| line.starts_with(&lost) && line.contains("Connected")), "{shown}");
    Ok(())
}

/// A fleet whose worker east was joined, for what goes wrong with it.
struct Joined {
    _up: Up,
    kubeconfig: std::path::PathBuf,
    manager: Client,
    east: Client,
    _directory: tempfile::TempDir,
}

impl Joined {
    /// With a Job on east that does not end.
    async fn with_a_long_job() -> anyhow::Result<Joined> {
        let site = Joined::start().await?;
        site.run(&["cordon", "west"])?;
        apply(&site.manager, long_job("long", "1")).await?;
        site.run(&["wait", "long", "--for", "running", "--timeout", "150s"])?;
        Ok(site)
    }

    async fn start() -> anyhow::Result<Joined> {
        let directory = tempfile::tempdir()?;
        let kubeconfig = directory.path().join("kubeconfig");
        let up = Up::start(&kubeconfig)?;
        let manager = manager(&kubeconfig).await?;
        let options =
            KubeConfigOptions { context: Some("ferry-east".to_owned()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(Kubeconfig::read_from(&kubeconfig)?, &options).await?;
        let east = Client::try_from(config)?;
        let joined = Joined { _up: up, kubeconfig, manager, east, _directory: directory };
        joined.run(&["join", "ferry-east", "--name", "east"])?;
        Ok(joined)
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        succeeded(arguments, &ferry(&self.kubeconfig).args(arguments).output()?)
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, error: &str, hint: &str) {
        let output = ferry(&self.kubeconfig).args(arguments).output().expect("ferry runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        let (before, hinted) = said.split_once("hint: ").unwrap_or((&said, ""));
        assert!(before.contains(error) && hinted.contains(hint), "{arguments:?}: {said}");
    }

    async fn patch(&self, client: &Client, object: &Value, patch: Value) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().context("a name")?;
        let params = PatchParams { field_manager: Some("admin".to_owned()), ..PatchParams::default() };
        api(client, object)?.patch(name, &params, &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Writes down that worker east is this cluster, and returns which it was.
    async fn claim(&self, uid: &str) -> anyhow::Result<String> {
        let object = kueue("MultiKueueCluster", "east", json!({}));
        let there = api(&self.manager, &object)?.get("east").await?;
        let before = there.metadata.annotations.and_then(|mut it| it.remove("ferry.dev/cluster"));
        let patch = json!({ "metadata": { "annotations": { "ferry.dev/cluster": uid } } });
        self.patch(&self.manager, &object, patch).await?;
        before.context("it was written down when it was joined")
    }

    async fn stop_policy(&self) -> anyhow::Result<String> {
        let queue = api(&self.east, &fleet_queue())?.get("fleet").await?;
        Ok(queue.data["spec"]["stopPolicy"].as_str().unwrap_or("None").to_owned())
    }
}

/// The queue of a fleet, on any of its clusters.
fn fleet_queue() -> Value {
    let mut queue = kueue("LocalQueue", "fleet", json!({}));
    queue["metadata"]["namespace"] = json!("default");
    queue
}

/// Never twice: a worker is a cluster, and no other one gets its name, its Jobs or what is written to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_known_by_its_cluster_and_not_by_its_name() -> anyhow::Result<()> {
    let site = Joined::with_a_long_job().await?;

    // One cluster is one worker, by whatever address.
    let elsewhere = ["join", "ferry-east", "--name", "third", "--server", "https://east.example:6443"];
    site.refused(&elsewhere, 1, "ferry-east is a worker already, called east", "--name east");

    // Another cluster does not get the name of one that has Jobs.
    let own = site.claim("another").await?;
    site.refused(
        &["join", "ferry-east", "--name", "east"],
        1,
        "east is another cluster than ferry-east, and still has 1 Job",
        "another --name",
    );
    // Nothing is written to a cluster that only has the name.
    let astray = "context ferry-east leads to another cluster than worker east";
    for verb in [&["cordon", "east"][..], &["drain", "east"]] {
        site.refused(verb, 5, astray, "--worker-context");
        site.refused(&[verb, &["--worker-context", "ferry-east"]].concat(), 1, astray, "ferry join");
    }
    assert_eq!(site.stop_policy().await?, "None");
    site.claim(&own).await?;

    // The operator's credentials do not cover logs, and that is said at once.
    let mut alone: Value = serde_json::from_str(&std::fs::read_to_string(&site.kubeconfig)?)?;
    alone["contexts"].as_array_mut().context("contexts")?.retain(|it| it["name"] == "ferry-manager");
    let file = site.kubeconfig.with_file_name("alone");
    std::fs::write(&file, alone.to_string())?;
    for follow in [&["logs", "long"][..], &["logs", "long", "-f"]] {
        let output = ferry(&file).args(follow).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(5), "{follow:?}: {said}");
        assert!(said.contains("--name east --logs"), "{said}");
    }
    site.run(&["cancel", "long"])?;

    // What cannot be taken away on the worker is not forgotten, and done with the rest the next time.
    site.claim("another").await?;
    site.refused(&["leave", "east"], 5, "the manager's account on east could not be taken away", "--force");
    assert!(site.run(&["clusters", "-o", "name"])?.contains("east"));
    site.claim(&own).await?;
    let said = site.run(&["leave", "east"])?;
    assert!(said.contains("east: ClusterRole ferry-manager-") && said.contains(" deleted\n"), "{said}");
    assert!(said.ends_with("MultiKueueCluster east deleted\n"), "what finds the rest goes last: {said}");
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(site.east.clone(), "kueue-system");
    let left = accounts.list_metadata(&ListParams::default()).await?.items;
    assert!(
        !left.iter().any(|it| it
            .metadata
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with("ferry-manager-"))),
        "{left:?}"
    );
    Ok(())
}

/// A queue that somebody else holds stays held, and who that is is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_others_hold_stays_held() -> anyhow::Result<()> {
    let site = Joined::start().await?;
    let would = site.run(&["cordon", "east", "--dry-run"])?;
    assert!(would.ends_with("east would take no new Jobs; those that run there go on\n"), "{would}");
    let would = site.run(&["drain", "east", "--dry-run"])?;
    assert!(would.contains("east would take no new Jobs\n"), "{would}");
    assert!(would.ends_with("east: 0 Jobs would be stopped and queue again\n"), "{would}");
    let would = site.run(&["uncordon", "east", "--dry-run"])?;
    assert!(would.ends_with("east would take new Jobs\n"), "{would}");
    assert_eq!(site.stop_policy().await?, "None");

    let hold = json!({ "spec": { "stopPolicy": "Hold" } });
    site.patch(&site.east, &fleet_queue(), hold).await?;
    let said = site.run(&["doctor"])?;
    let what = "odd   queue default/fleet on worker east is stopped (Hold) by admin\n      hint: if that is not meant";
    assert!(said.contains(what), "{said}");
    site.run(&["cordon", "east"])?;
    let stopped = "spec.stopPolicy of the queue there to None";
    let by_admin = "east takes no new Jobs: queue default/fleet is stopped (Hold) by admin";
    site.refused(&["uncordon", "east"], 1, by_admin, stopped);
    assert_eq!(site.stop_policy().await?, "Hold");

    site.run(&["drain", "east"])?;
    assert_eq!(site.stop_policy().await?, "HoldAndDrain");
    let as_before = "queue default/fleet is stopped (Hold), as it was before";
    site.refused(&["uncordon", "east"], 1, as_before, stopped);
    assert_eq!(site.stop_policy().await?, "Hold");
    let said = site.run(&["uncordon", "east"])?;
    assert!(said.ends_with("east takes new Jobs\n"), "{said}");
    assert_eq!(site.stop_policy().await?, "None");
    Ok(())
}

/// What queues on the manager lead to is copied whole, and what is wrong with a worker is said in words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_mirrored_with_all_they_name() -> anyhow::Result<()> {
    let site = Joined::start().await?;
    let mut namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "team" } });
    namespace["metadata"]["labels"] = json!({ "tier": "gold" });
    apply(&site.manager, namespace.clone()).await?;
    let levels = json!({ "levels": [{ "nodeLabel": "kubernetes.io/hostname" }] });
    apply(&site.manager, kueue("Topology", "racks", levels)).await?;
    let racked = json!({ "topologyName": "racks", "nodeLabels": { "rack": "yes" } });
    apply(&site.manager, kueue("ResourceFlavor", "racked", racked)).await?;
    apply(&site.manager, kueue("Cohort", "root", json!({}))).await?;
    apply(&site.manager, kueue("Cohort", "child", json!({ "parentName": "root" }))).await?;
    let quota = json!([{ "name": "cpu", "nominalQuota": "4" }]);
    let groups =
        json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "racked", "resources": quota }] }]);
    let spec = json!({
        "namespaceSelector": { "matchLabels": { "tier": "gold" } }, "cohortName": "child",
        "resourceGroups": groups, "admissionChecksStrategy": { "admissionChecks": [{ "name": "fleet" }] },
    });
    apply(&site.manager, kueue("ClusterQueue", "team", spec)).await?;
    let mut queue = kueue("LocalQueue", "team", json!({ "clusterQueue": "team" }));
    queue["metadata"]["namespace"] = json!("team");
    apply(&site.manager, queue).await?;

    let typo = ["join", "ferry-east", "--name", "east", "--mirror-namespace", "taem"];
    site.refused(&typo, 3, "no queue of namespace taem leads to workers", "did you mean team?");
    let said = site.run(&["join", "ferry-east", "--name", "east", "--mirror-namespace", "team"])?;
    for what in [
        "Namespace team",
        "Topology racks",
        "ResourceFlavor racked",
        "Cohort child",
        "Cohort root",
        "ClusterQueue team",
        "LocalQueue team/team",
    ] {
        assert!(said.contains(&format!("ferry-east: {what} created\n")), "{what} is missing: {said}");
    }
    let there = api(&site.east, &namespace)?.get("team").await?;
    assert_eq!(there.metadata.labels.unwrap_or_default().get("tier").map(String::as_str), Some("gold"));

    // Two that act by Leases of two namespaces do not wait for each other.
    let renewed = format!("{:.6}", jiff::Timestamp::now());
    let spec = json!({ "holderIdentity": "stranger", "renewTime": renewed, "leaseDurationSeconds": 3600 });
    let metadata = json!({ "name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "team" });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
    });
    apply(&site.manager, lease).await?;
    let (code, said) = super::told(&ferry(&site.kubeconfig).arg("doctor").output()?);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("wrong 2 act on queues at once: ") && said.contains("stranger of namespace team"),
        "{said}"
    );
    site.refused(
        &["install", "--dry-run"],
        1,
        "stranger of namespace team acts on queues here, from another namespace",
        "--operator-namespace team",
    );

    // A worker without definitions is told apart from one that does not answer.
    let definition = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {} });
    api(&site.east, &definition)?.delete("localqueues.kueue.x-k8s.io", &DeleteParams::default()).await?;
    eventually("it is missed", async || {
        let (_, said) = super::told(&ferry(&site.kubeconfig).arg("doctor").output()?);
        let what = "wrong worker east has no queues: Kueue's definitions are missing there\n";
        Ok(said.contains(&format!("{what}      hint: ferry install --context ferry-east\n")).then_some(()))
    })
    .await
}

/// Who cancels a Job on a worker that is lost is not told that it is gone, and does not wait forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_worker_holds_is_not_said_to_be_gone() -> anyhow::Result<()> {
    let site = Joined::with_a_long_job().await?;
    lose(&site.manager, "east").await?;
    site.refused(
        &["cancel", "long", "--timeout", "150s"],
        2,
        "long is being deleted, but east was lost: whether its pods have ended there is not known",
        "ferry doctor",
    );
    Ok(())
}
