//! `ferry join`: a cluster becomes a worker of a management cluster.

pub(crate) mod access;
mod mirror;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use kube::api::ListParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use rules::dispatch::GIVEN_UP;
use serde_json::{Value, json};
use types::kueue::{AdmissionCheck, MultiKueueCluster, MultiKueueConfig};

use crate::clusters::layout::{Layout, active, annotation, config_of};
use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure, Hint as _};
use crate::install::{self, apply::Target};
use crate::{jobs, output, process};
use access::{Access, Address};

/// The annotation of a MultiKueueCluster with the context by which its administrator reaches it.
pub(crate) const CONTEXT: &str = "ferry.dev/context";
/// The annotation of a MultiKueueCluster with what tells its cluster from others.
pub(crate) const CLUSTER: &str = "ferry.dev/cluster";
/// The annotations of a MultiKueueCluster with what was asked for when it was joined, so that it need not be repeated.
const LOGS: &str = "ferry.dev/logs";
const SERVER: &str = "ferry.dev/server";
/// What a configuration and its check are called if there are none.
const CONFIG: &str = "ferry";
/// How long to wait until the operator says that the cluster is connected.
const CONNECTED: Duration = Duration::from_secs(30);

/// Make a cluster a worker of the management cluster.
///
/// On the worker: a service account that may handle Workloads and Jobs and read queues, and nothing else. On the management
/// cluster: a Secret with a kubeconfig for that account, a MultiKueueCluster, and its name in a MultiKueueConfig, which is
/// made with an AdmissionCheck if there is none. Everything can be repeated; `ferry leave` undoes it.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry join east-admin --name east --context manager\n  ferry join east-admin --name east --mirror --dry-run"
)]
pub(crate) struct Arguments {
    /// The context of the worker in the kubeconfig.
    #[arg(value_name = "CONTEXT")]
    worker: String,

    /// What the worker is called on the management cluster [default: the name of the context].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The MultiKueueConfig that it is added to [default: the only one, or a new one called ferry].
    #[arg(long, value_name = "NAME")]
    config: Option<String>,

    /// The address by which the operator reaches the worker [default: as it was joined before, else that of the context].
    #[arg(long, value_name = "URL", value_parser = server)]
    server: Option<String>,

    /// Let the management cluster read the logs of pods, too, for `ferry logs`; --logs=false no longer [default: as it was
    /// joined before].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logs: Option<bool>,

    /// Create on the worker what it lacks of the queues that lead to workers: namespaces, flavors, ClusterQueues with the
    /// same quota, LocalQueues and priority classes. What is there stays as it is.
    #[arg(long)]
    mirror: bool,

    /// The same, for the queues of this namespace alone; can be given several times.
    #[arg(long, value_name = "NAMESPACE")]
    mirror_namespace: Vec<String>,

    /// Join although the worker has another manager; their operators must have different origins, since each deletes what
    /// it finds under its own.
    #[arg(long)]
    shared: bool,

    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let name = arguments.name.clone().unwrap_or_else(|| arguments.worker.clone());
        expect_name(&name)?;
        let layout = Layout::read(&manager.client).await?;
        let (client, address) = manager.context(&arguments.worker, None).await?;
        let worker = Target { client, name: arguments.worker.clone(), is_dry_run: arguments.dry_run };
        expect_definitions(&worker.client, &worker.name).await?;
        expect_definitions(&manager.client, &manager.context_name()).await?;

        // Everything is looked at before anything is written.
        let manager_uid = access::uid(&manager.context_name(), &manager.client).await?;
        let uid = access::uid(&worker.name, &worker.client).await?;
        let wanted = Wanted::of(arguments, &layout, &name, &uid);
        let address = wanted.server.clone().map_or(address.clone(), |server| Address { server, ..address });
        if uid == manager_uid {
            return Err(its_own_worker(&worker.name).into());
        }
        expect_once(&manager, &layout, &worker.name, &name, (&uid, &address.server)).await?;
        expect_the_same(&manager, &layout, &worker.name, &name, &uid).await?;
        let config = chosen_config(&layout, arguments.config.as_deref())?;
        let identity = access::identity(&manager_uid);
        let access = Access { identity, namespace: &manager.operator_namespace, logs: wanted.logs };
        if !arguments.shared {
            access.expect_no_other_manager(&worker).await?;
        }
        let mirrored = match (arguments.mirror, arguments.mirror_namespace.as_slice()) {
            (false, []) => None,
            (_, namespaces) => Some(mirror::chosen(&layout, &config, namespaces)?),
        };

        access.grant(&worker).await?;
        let here = install::target(&manager, arguments.dry_run);
        if arguments.dry_run {
            here.say(
                "would be created or renewed",
                &format!("Secret {}/{}", manager.operator_namespace, secret(&name)),
            )?;
        } else {
            let token = access.token(&worker).await?;
            here.apply(&kubeconfig_secret(&manager, &name, &address.kubeconfig(&name, &token))).await?;
        }
        here.apply(&wanted.cluster(&name, &arguments.worker, &uid)).await?;
        add_to_config(&here, &config, &name).await?;
        ensure_check(&here, &config).await?;
        if let Some(queues) = &mirrored {
            mirror::queues(&here, &worker, queues).await?;
        }
        if layout.cluster(&name).is_ok_and(|before| annotation(before, GIVEN_UP).is_some()) {
            output::note(format!(
                "note: {name} is said to be given up; to take that back: ferry uncordon {name}"
            ));
        }
        if !arguments.dry_run {
            tell_state(&here, &name).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Names of clusters become names of objects.
fn expect_name(name: &str) -> anyhow::Result<()> {
    match rules::names::dns_label(name).first() {
        None => Ok(()),
        Some(problem) => {
            let message = format!("{name:?} cannot be the name of a worker: {problem}");
            Err(Failure::new(Code::Error, message).hint("give it another one with --name").into())
        }
    }
}

/// The address of a worker, as the operator takes it: encrypted, or its credentials are anybody's.
fn server(url: &str) -> Result<String, String> {
    let uri: http::Uri = url.parse().map_err(|error| format!("{error}"))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) => Ok(url.to_owned()),
        _ => Err("write it like https://east.example:6443".to_owned()),
    }
}

/// What is wanted of a worker: as it was joined before, where nothing else is said.
struct Wanted {
    logs: bool,
    /// Where the operator reaches it, if that is not the address of the context.
    server: Option<String>,
}

impl Wanted {
    fn of(arguments: &Arguments, layout: &Layout, name: &str, uid: &str) -> Wanted {
        let before = layout.cluster(name).ok().filter(|before| annotation(before, CLUSTER) == Some(uid));
        let noted = |key: &str| before.and_then(|before| annotation(before, key));
        let logs = arguments.logs.unwrap_or_else(|| noted(LOGS).is_some());
        let server = arguments.server.clone().or_else(|| noted(SERVER).map(str::to_owned));
        Wanted { logs, server }
    }

    fn cluster(&self, name: &str, context: &str, uid: &str) -> Value {
        let source = json!({ "kubeConfig": { "locationType": "Secret", "location": secret(name) } });
        let mut object = kueue("MultiKueueCluster", name, json!({ "clusterSource": source }));
        let mut annotations = json!({ CONTEXT: context, CLUSTER: uid });
        if self.logs {
            annotations[LOGS] = json!("true");
        }
        if let Some(server) = &self.server {
            annotations[SERVER] = json!(server);
        }
        object["metadata"]["annotations"] = annotations;
        object
    }
}

/// The command by which a worker is joined again, as far as it is known.
pub(crate) fn again(cluster: &MultiKueueCluster) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    match annotation(cluster, CONTEXT).unwrap_or("CONTEXT") {
        context if context == name => format!("ferry join {name}"),
        context => format!("ferry join {context} --name {name}"),
    }
}

/// As its own worker, a Job and its mirror would be one object.
fn its_own_worker(context: &str) -> Failure {
    let message = format!("{context} leads to the management cluster itself, which cannot be its own worker");
    Failure::new(Code::No, message).hint(
        "Jobs without a queue that leads to workers run there as they are; --context says which cluster manages",
    )
}

/// A cluster is a worker once: two would share one account, which is gone when either leaves, and one quota.
async fn expect_once(
    manager: &Manager,
    layout: &Layout,
    context: &str,
    name: &str,
    (uid, server): (&str, &str),
) -> anyhow::Result<()> {
    for cluster in &layout.clusters {
        let other = cluster.metadata.name.as_deref().unwrap_or_default();
        if other == name {
            continue;
        }
        let is_it = annotation(cluster, CLUSTER) == Some(uid)
            || manager.server_of(cluster).await.as_deref() == Some(server.trim_end_matches('/'));
        if is_it {
            let message = format!("{context} is a worker already, called {other}");
            let hint =
                format!("to join it again: --name {other}; to call it {name}: ferry leave {other} first");
            return Err(Failure::new(Code::No, message).hint(hint).into());
        }
    }
    Ok(())
}

/// A name stays that of the same cluster while Jobs are there: on another one they would be missing, and start again.
async fn expect_the_same(
    manager: &Manager,
    layout: &Layout,
    context: &str,
    name: &str,
    uid: &str,
) -> anyhow::Result<()> {
    let Ok(before) = layout.cluster(name) else { return Ok(()) };
    if manager.uid_of_worker(before).await.is_none_or(|before| before == uid) {
        return Ok(());
    }
    let there = layout.on(name).count();
    if there == 0 {
        output::note(format!("note: {name} was another cluster than {context} until now"));
        return Ok(());
    }
    let message =
        format!("{name} is another cluster than {context}, and still has {}", output::count(there, "Job"));
    let hint = format!(
        "give this one another --name; or ferry drain {name} first, with --given-up if it will not come back"
    );
    Err(Failure::new(Code::No, message).hint(hint).into())
}

async fn expect_definitions(client: &Client, cluster: &str) -> anyhow::Result<()> {
    let api: Api<MultiKueueCluster> = Api::all(client.clone());
    match api.list_metadata(&ListParams::default().limit(1)).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            let message = format!("cluster {cluster} has no queues: Kueue's definitions are missing");
            Err(Failure::new(Code::Error, message).hint(format!("ferry install --context {cluster}")).into())
        }
        other => other.map(drop).with_context(|| format!("failed to reach cluster {cluster}")),
    }
}

/// The configuration that is meant.
fn chosen_config(layout: &Layout, wanted: Option<&str>) -> anyhow::Result<String> {
    if let Some(name) = wanted {
        return Ok(name.to_owned());
    }
    let names: Vec<&str> = layout.configs.iter().filter_map(|it| it.metadata.name.as_deref()).collect();
    match names.as_slice() {
        [] => Ok(CONFIG.to_owned()),
        [only] => Ok((*only).to_owned()),
        several => {
            let message = format!("there are several MultiKueueConfigs: {}", several.join(", "));
            Err(Failure::new(Code::Error, message).hint("say which one with --config NAME").into())
        }
    }
}

fn kueue(kind: &str, name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

pub(crate) fn secret(cluster: &str) -> String {
    format!("{cluster}-kubeconfig")
}

fn kubeconfig_secret(manager: &Manager, cluster: &str, kubeconfig: &Value) -> Value {
    let encoded = k8s_openapi::ByteString(kubeconfig.to_string().into_bytes());
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": secret(cluster), "namespace": manager.operator_namespace },
        "data": { "kubeconfig": encoded },
    })
}

/// The clusters of a configuration are one value, so it is written only if nobody else wrote in between.
async fn add_to_config(here: &Target, config: &str, cluster: &str) -> anyhow::Result<()> {
    let api: Api<MultiKueueConfig> = Api::all(here.client.clone());
    let there = api.get_opt(config).await.context("failed to read the MultiKueueConfig")?;
    let mut clusters = there.as_ref().map(|there| there.spec.clusters.clone()).unwrap_or_default();
    if !clusters.iter().any(|known| known == cluster) {
        clusters.push(cluster.to_owned());
    }
    let mut wanted = kueue("MultiKueueConfig", config, json!({ "clusters": clusters }));
    let Some(there) = there else { return here.apply(&wanted).await };
    wanted["metadata"]["resourceVersion"] = json!(there.metadata.resource_version);
    here.amend(&wanted).await.hint_if(failure::is_conflict, "somebody else changed it just now: try again")
}

/// A check that leads to the configuration, made if there is none.
async fn ensure_check(here: &Target, config: &str) -> anyhow::Result<()> {
    if !checks_of(&here.client, config).await?.is_empty() {
        return Ok(());
    }
    let parameters = json!({ "apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config });
    let spec = json!({ "controllerName": rules::dispatch::CONTROLLER, "parameters": parameters });
    here.apply(&kueue("AdmissionCheck", config, spec)).await?;
    output::announce(format!(
        "next: name the check in a ClusterQueue, so that its Jobs run on workers: \
         spec.admissionChecksStrategy.admissionChecks: [{{name: {config}}}]"
    ));
    Ok(())
}

/// The checks that lead to a configuration.
async fn checks_of(client: &Client, config: &str) -> anyhow::Result<Vec<String>> {
    let checks = jobs::cluster_objects::<AdmissionCheck>(client).await?;
    let leads = |check: &AdmissionCheck| config_of(check) == Some(config);
    Ok(checks.into_iter().filter(leads).filter_map(|check| check.metadata.name).collect())
}

/// Says whether the operator could connect, after waiting a little for it.
async fn tell_state(here: &Target, name: &str) -> anyhow::Result<()> {
    let api: Api<MultiKueueCluster> = Api::all(here.client.clone());
    let is_connected = |cluster: Option<&MultiKueueCluster>| {
        cluster.and_then(active).is_some_and(|active| active.status == "True")
    };
    let waited = tokio::time::timeout(CONNECTED, await_condition(api.clone(), name, is_connected)).await;
    if matches!(waited, Ok(Ok(_))) {
        return output::line(format!("{name} is connected"));
    }
    let cluster = api.get(name).await.context("failed to read the MultiKueueCluster")?;
    let why = active(&cluster).map_or("no operator said anything about it", |active| &active.message);
    Err(Failure::new(Code::Timeout, format!("{name} was added, but is not connected yet: {why}"))
        .hint("ferry doctor says what is wrong")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        join: Arguments,
    }

    /// What a worker was joined with is not dropped by a command that repeats it, as hints tell people to do.
    #[test]
    fn a_worker_is_joined_again_as_it_was() {
        let server = "https://east.example:6443";
        let before = Wanted { logs: true, server: Some(server.to_owned()) }.cluster("east", "prod", "uid");
        let layout = Layout {
            clusters: vec![serde_json::from_value(before).expect("a worker")],
            configs: Vec::new(),
            checks: Vec::new(),
            cluster_queues: Vec::new(),
            local_queues: Vec::new(),
            workloads: Vec::new(),
        };
        let wanted = |more: &[&str], name: &str, uid: &str| {
            let line = Line::parse_from([&["join", "prod"], more].concat());
            let Wanted { logs, server } = Wanted::of(&line.join, &layout, name, uid);
            (logs, server)
        };
        assert_eq!(wanted(&[], "east", "uid"), (true, Some(server.to_owned())));
        assert_eq!(wanted(&["--logs=false"], "east", "uid"), (false, Some(server.to_owned())));
        let other = "https://10.0.0.1:6443";
        assert_eq!(wanted(&["--server", other], "east", "uid"), (true, Some(other.to_owned())));
        assert_eq!(wanted(&[], "east", "another"), (false, None), "another cluster is another worker");
        assert_eq!(wanted(&["--logs"], "west", "uid"), (true, None));
    }
}
