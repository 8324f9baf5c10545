//! The same on an embedded fleet.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::Context as _;
use kube::api::{ListParams, Patch, PatchParams};
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
    let mut long = job("long", true);
    long["metadata"]["namespace"] = json!("default");
    long["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "fleet" });
    apply(&client, long).await?;
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

/// What a worker holds that will not come back starts elsewhere as soon as that is said, however long it is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_worker_holds_starts_elsewhere_on_request() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let kubeconfig = directory.path().join("kubeconfig");
    let _up = Up::start(&kubeconfig)?;
    let run = |arguments: &[&str]| succeeded(arguments, &ferry(&kubeconfig).args(arguments).output()?);
    let client = manager(&kubeconfig).await?;
    let mut long = job("long", true);
    long["metadata"]["namespace"] = json!("default");
    long["metadata"]["labels"] = json!({ "kueue.x-k8s.io/queue-name": "fleet" });
    apply(&client, long).await?;
    let place = || -> anyhow::Result<String> {
        run(&["wait", "long", "--for", "running", "--timeout", "150s"])?;
        let shown: Value = serde_json::from_str(&run(&["get", "jobs", "long", "-o", "json"])?)?;
        Ok(shown["items"][0]["cluster"].as_str().context("a cluster")?.to_owned())
    };
    let lost = place()?;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), "kueue-system");
    let name = format!("{lost}-kubeconfig");
    let data = secrets.get(&name).await?.data.and_then(|mut data| data.remove("kubeconfig"));
    let mut nowhere: Value = serde_json::from_slice(&data.context("a kubeconfig")?.0)?;
    nowhere["clusters"][0]["cluster"]["server"] = json!("https://127.0.0.1:1");
    let patch = json!({ "stringData": { "kubeconfig": nowhere.to_string() } });
    secrets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
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
    let said = run(&["drain", "--given-up", &lost])?;
    assert!(said.ends_with(&format!("{lost} is empty\n")), "{said}");
    assert_ne!(place()?, lost);
    Ok(())
}
