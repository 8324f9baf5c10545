//! `ferry install`, `join`, `leave`, `clusters`, `cordon`, `drain` and `doctor`.

mod clock;
mod embedded;
mod kubelet;
pub(crate) mod site;
mod users;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::json;

use site::{Sites, api, apply, eventually, job, kueue};

/// The client of the kubeconfig that the manager has for a worker.
async fn as_manager(sites: &Sites, worker: &str) -> anyhow::Result<Client> {
    let secrets: Api<Secret> = Api::namespaced(sites.client("manager"), "kueue-system");
    let secret = secrets.get(&format!("{worker}-kubeconfig")).await?;
    let data = secret.data.and_then(|mut data| data.remove("kubeconfig")).context("a kubeconfig")?;
    let kubeconfig: Kubeconfig = serde_json::from_slice(&data.0)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// How a command ended, and its answer.
fn told(output: &std::process::Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn code<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}

/// The worker on which a Job runs, says the manager.
async fn place_of(sites: &Sites, name: &str, not: Option<&str>) -> anyhow::Result<String> {
    eventually(&format!("{name} runs, and not on {not:?}"), async || {
        let shown = sites.said(&["get", "jobs", "-n", "team", "-o", "json"])?;
        let shown: serde_json::Value = serde_json::from_str(&shown)?;
        let items = shown["items"].as_array().context("Jobs")?;
        let job = items.iter().find(|item| item["name"] == name).context("the Job")?;
        let active = sites.jobs("manager").get(name).await?.status.and_then(|status| status.active);
        let cluster = job["cluster"].as_str().map(str::to_owned);
        Ok(cluster.filter(|cluster| Some(cluster.as_str()) != not && active > Some(0)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_join_work_and_leave() -> anyhow::Result<()> {
    let Some(mut sites) = Sites::start(&["manager", "east", "west"]).await? else { return Ok(()) };

    // Without definitions there is nothing to look at, and that is said. What names an unknown controller is looked at later.
    let output = sites.run(&["doctor"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("manager lacks the definitions of admissionchecks.kueue.x-k8s.io"), "{said}");
    assert!(said.contains("hint: ferry install --context manager"), "{said}");
    let mut elsewhere = job("elsewhere", false);
    elsewhere["metadata"] = json!({ "name": "elsewhere", "namespace": "default" });
    elsewhere["spec"]["managedBy"] = json!("example.com/nobody");
    apply(&sites.client("manager"), elsewhere).await?;

    // What would be done is said and not done; what was done is not done again.
    let said = sites.said(&["install", "--context", "manager", "--dry-run"])?;
    assert!(said.contains("manager: ClusterRole ferry would be created"), "{said}");
    let roles: Api<ClusterRole> = Api::all(sites.client("manager"));
    assert!(roles.get_opt("ferry").await?.is_none());
    for cluster in ["manager", "east", "west"] {
        let said = sites.said(&["install", "--context", cluster, "--image", "ferry:test"])?;
        assert!(said.contains(&format!("{cluster}: Deployment kueue-system/ferry created")), "{said}");
    }
    let said = sites.said(&["install", "--context", "manager", "--image", "ferry:test"])?;
    assert!(said.lines().all(|line| line.ends_with("unchanged")), "{said}");

    installed_again_it_is_as_it_was(&sites).await?;

    // Nobody acts yet, and that is said.
    let output = sites.run(&["doctor"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("nobody acts on queues"), "{said}");

    // Behind these nobody answers either, since the operators are going to run outside of the clusters.
    eventually("API services without an operator are wrong", async || {
        let said = String::from_utf8(sites.run(&["doctor"])?.stdout)?;
        let wrong = ["v1beta1", "v1beta2"]
            .map(|version| format!("the API service {version}.visibility.kueue.x-k8s.io is not available"));
        Ok(wrong.iter().all(|wrong| said.contains(wrong)).then_some(()))
    })
    .await?;
    for version in ["v1beta1", "v1beta2"] {
        let services: Api<APIService> = Api::all(sites.client("manager"));
        services.delete(&format!("{version}.visibility.kueue.x-k8s.io"), &DeleteParams::default()).await?;
    }

    sites.operate()?;
    sites.queues().await?;
    let said = sites.said(&["join", "east", "--mirror", "--dry-run"])?;
    assert!(said.contains("manager: MultiKueueCluster east would be created"), "{said}");
    assert!(
        api(&sites.client("manager"), &kueue("MultiKueueCluster", "", json!({})))?
            .get_opt("east")
            .await?
            .is_none()
    );
    for cluster in ["east", "west"] {
        let said = sites.said(&["join", cluster, "--mirror"])?;
        assert!(said.contains(&format!("{cluster}: LocalQueue team/team created")), "{said}");
        assert!(said.ends_with(&format!("{cluster} is connected\n")), "{said}");
    }
    let said = sites.said(&["join", "east", "--mirror"])?;
    let is_kept = |line: &str| line.ends_with(" unchanged") || line.ends_with(" kept");
    assert!(said.lines().all(|line| is_kept(line) || line == "east is connected"), "{said}");

    // A worker has one manager: two would delete each other's Jobs.
    let refused = sites.run(&["join", "east", "--context", "west"])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("east has another manager already"), "{said}");

    // The credentials are enough for Jobs, and for nothing else.
    let there = as_manager(&sites, "east").await?;
    let params = ListParams::default();
    let jobs: Api<k8s_openapi::api::batch::v1::Job> = Api::all(there.clone());
    assert_eq!(code(jobs.list(&params).await), 200);
    assert_eq!(code(Api::<Secret>::all(there.clone()).list(&params).await), 403);
    assert_eq!(code(Api::<Node>::all(there.clone()).list(&params).await), 403);
    assert_eq!(code(Api::<ClusterRole>::all(there).delete("ferry", &DeleteParams::default()).await), 403);

    let healthy = sites.run(&["doctor", "--verbose"])?;
    let said = String::from_utf8_lossy(&healthy.stdout).into_owned();
    assert_eq!(healthy.status.code(), Some(0), "{said}");
    assert!(said.contains("Jobs in queues wait for their quota"), "{said}");
    assert!(said.contains("the credentials for worker west suffice"), "{said}");

    users::verbs(&sites).await?;
    move_a_job(&sites).await?;
    find_what_is_wrong(&sites).await?;
    a_silent_worker_is_named(&sites).await?;
    let doctor = |arguments: &[&str]| Ok(told(&sites.run(arguments)?));
    clock::is_judged(&sites.client("manager"), "east", doctor).await?;
    leave(&sites).await
}

/// What others said of the operator holds on, also if a new release is installed: its file, its image, and how many there are.
async fn installed_again_it_is_as_it_was(sites: &Sites) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(sites.client("manager"), "kueue-system");
    let mut theirs = serde_json::to_value(deployments.get("ferry").await?)?;
    theirs["spec"]["replicas"] = json!(2);
    let pod = &mut theirs["spec"]["template"]["spec"];
    pod["volumes"] = json!([{ "name": "file", "configMap": { "name": "file" } }]);
    pod["containers"][0]["volumeMounts"] = json!([{ "name": "file", "mountPath": "/etc/file" }]);
    pod["containers"][0]["args"]
        .as_array_mut()
        .context("arguments")?
        .push(json!("--config=/etc/file/c.yaml"));
    let theirs =
        deployments.replace("ferry", &PostParams::default(), &serde_json::from_value(theirs)?).await?;
    let said = sites.said(&["install", "--context", "manager", "--image", "ferry:test"])?;
    assert!(said.lines().all(|line| line.ends_with("unchanged")), "{said}");
    // Who says nothing of the image means the one that is there, which the usual one is not.
    let said = sites.said(&["install", "--context", "manager"])?;
    assert!(said.lines().all(|line| line.ends_with("unchanged")), "{said}");
    let said = sites.said(&["install", "--context", "manager", "--image", "ferry:next"])?;
    assert!(said.contains("Deployment kueue-system/ferry changed"), "{said}");
    let mut expected = theirs.spec.context("a spec")?;
    let container = expected.template.spec.as_mut().and_then(|pod| pod.containers.first_mut());
    container.context("a container")?.image = Some("ferry:next".to_owned());
    assert_eq!(deployments.get("ferry").await?.spec, Some(expected));
    Ok(())
}

/// A Job leaves a worker that is drained, and does not come back to one that is cordoned.
async fn move_a_job(sites: &Sites) -> anyhow::Result<()> {
    apply(&sites.client("manager"), job("long", true)).await?;
    let first = place_of(sites, "long", None).await?;
    // Queues show it later than it is counted.
    eventually("the cluster is shown", async || {
        let said = sites.said(&["clusters"])?;
        let shown = said.lines().find(|line| line.starts_with(&first)).context("a row")?.to_owned();
        Ok((shown.contains("Connected") && shown.contains("cpu 3/4")).then_some(()))
    })
    .await?;

    let refused = sites.run(&["leave", &first])?;
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains(&format!("hint: ferry drain {first}")), "{said}");

    let said = sites.said(&["drain", &first, "--dry-run"])?;
    assert!(said.contains("1 Job would be stopped"), "{said}");
    let said = sites.said(&["drain", &first])?;
    assert!(said.ends_with(&format!("{first} is empty\n")), "{said}");
    let second = place_of(sites, "long", Some(&first)).await?;
    assert_ne!(first, second);
    let said = sites.said(&["clusters"])?;
    assert!(said.lines().any(|line| line.starts_with(&first) && line.contains("Drained")), "{said}");
    sites.said(&["uncordon", &first])?;
    let said = sites.said(&["clusters"])?;
    assert!(said.lines().any(|line| line.starts_with(&first) && line.contains("Connected")), "{said}");

    // A worker that is cordoned keeps what it has, and takes nothing new.
    sites.said(&["cordon", &second])?;
    apply(&sites.client("manager"), job("next", true)).await?;
    assert_eq!(place_of(sites, "next", None).await?, first);
    assert_eq!(place_of(sites, "long", None).await?, second);
    sites.said(&["uncordon", &second])?;
    for name in ["long", "next"] {
        sites.jobs("manager").delete(name, &DeleteParams::background()).await?;
    }
    for cluster in ["east", "west"] {
        eventually("the mirrors are gone", async || {
            let left = sites.jobs(cluster).list(&ListParams::default()).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await?;
    }
    Ok(())
}

async fn find_what_is_wrong(sites: &Sites) -> anyhow::Result<()> {
    let manager = sites.client("manager");
    let mut queue = kueue("LocalQueue", "team", json!({ "clusterQueue": "team" }));
    queue["metadata"]["namespace"] = json!("team");
    api(&sites.client("east"), &queue)?.delete("team", &DeleteParams::default()).await?;
    let mut lost = job("lost", false);
    lost["metadata"]["labels"] = json!({});
    lost["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    apply(&manager, lost).await?;
    let secrets: Api<Secret> = Api::namespaced(manager.clone(), "kueue-system");
    let bad = Patch::Merge(json!({ "stringData": { "kubeconfig": "{" } }));
    secrets.patch("west-kubeconfig", &PatchParams::default(), &bad).await?;

    let labels = json!({ "control-plane": "controller-manager" });
    let pod = json!({ "containers": [{ "name": "manager", "image": "kueue" }] });
    apply(
        &manager,
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": "kueue-controller-manager", "namespace": "kueue-system" },
            "spec": {
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        }),
    )
    .await?;

    let said = eventually("the operator has noticed", async || {
        let output = sites.run(&["doctor"])?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        // Whoever a Job names has a minute to appear.
        let is_seen = said.contains("InsecureKubeConfig") && said.contains("example.com/nobody");
        Ok((output.status.code() == Some(1) && is_seen).then_some(said))
    })
    .await?;
    for expected in [
        "worker east lacks queue team/team",
        "hint: ferry join east --mirror-namespace team",
        "worker west is not connected",
        "hint: ferry join west makes a new kubeconfig",
        "two programs want to act on queues: kueue-system/ferry and kueue-system/kueue-controller-manager",
        "hint: only the one with the Lease does; stop the other: kubectl -n NAMESPACE scale deployment",
        "job default/elsewhere is managed by example.com/nobody, who has done nothing about it",
        "job team/lost is to run on a worker (managedBy: kueue.x-k8s.io/multikueue), but names no queue",
    ] {
        assert!(said.contains(expected), "{expected} is missing: {said}");
    }
    let shown = sites.said(&["clusters"])?;
    assert!(shown.lines().any(|line| line.starts_with("west") && line.contains("Lost")), "{shown}");

    // What the hints say helps.
    sites.jobs("manager").delete("lost", &DeleteParams::background()).await?;
    for cluster in ["east", "west"] {
        sites.said(&["join", cluster, "--mirror-namespace", "team"])?;
    }
    eventually("everything is well again", async || {
        Ok((sites.run(&["doctor"])?.status.code() == Some(0)).then_some(()))
    })
    .await
}

/// A worker whose connections open and on which nobody answers keeps no verb from its answer about the others.
async fn a_silent_worker_is_named(sites: &Sites) -> anyhow::Result<()> {
    sites.plane("east").freeze()?;
    let verbs = [&["clusters", "-o", "wide"][..], &["doctor"], &["top"], &["get", "jobs", "-A"]];
    let answers = std::thread::scope(|scope| {
        let asked = verbs.map(|verb| scope.spawn(move || sites.run(verb)));
        asked.map(|answer| answer.join().expect("it ends"))
    });
    sites.plane("east").thaw()?;
    let [clusters, doctor, top, jobs] = answers;
    let (code, said) = told(&clusters?);
    assert_eq!(code, Some(0), "{said}");
    let row = |name: &str| said.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(row("east").contains("failed to list "), "{said}");
    assert!(row("west").contains("now ("), "{said}");
    let (code, said) = told(&doctor?);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("worker east"), "{said}");
    for answer in [top?, jobs?] {
        assert_eq!(answer.status.code(), Some(0), "{}", String::from_utf8_lossy(&answer.stderr));
    }
    eventually("it is connected again", async || {
        Ok((sites.run(&["doctor"])?.status.code() == Some(0)).then_some(()))
    })
    .await
}

async fn leave(sites: &Sites) -> anyhow::Result<()> {
    let said = sites.said(&["leave", "east", "--dry-run"])?;
    assert!(said.contains("manager: MultiKueueCluster east would be deleted"), "{said}");
    let said = sites.said(&["leave", "east"])?;
    for expected in [
        "manager: MultiKueueConfig ferry changed",
        "manager: Secret kueue-system/east-kubeconfig deleted",
        "east: ClusterRole ferry-manager-",
        "east: ServiceAccount kueue-system/ferry-manager-",
    ] {
        assert!(said.contains(expected), "{expected} is missing: {said}");
    }
    assert_eq!(sites.said(&["clusters", "-o", "name"])?, "west\n");
    assert_eq!(sites.said(&["leave", "east"])?, "east is no worker\n");

    // What was made with the first worker goes with the last one, once no queue names it any more.
    let quota = json!([{ "name": "cpu", "nominalQuota": "4" }]);
    let groups =
        json!([{ "coveredResources": ["cpu"], "flavors": [{ "name": "default", "resources": quota }] }]);
    let spec = json!({ "namespaceSelector": {}, "resourceGroups": groups });
    apply(&sites.client("manager"), kueue("ClusterQueue", "team", spec)).await?;
    let said = sites.said(&["leave", "west"])?;
    for expected in ["manager: MultiKueueConfig ferry deleted", "manager: AdmissionCheck ferry deleted"] {
        assert!(said.contains(expected), "{expected} is missing: {said}");
    }
    let (code, said) = told(&sites.run(&["doctor"])?);
    assert_eq!(code, Some(0), "{said}");
    Ok(())
}
