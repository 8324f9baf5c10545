//! `ferry install`: what a cluster needs so that the operator runs there.

pub(crate) mod apply;

use std::process::ExitCode;

use ::operator::definitions::{self, Conversion};
use ::operator::deploy::{self, Deployment};
use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment as Program;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;

use crate::connect::{Manager, Options};
use crate::{output, process};
use apply::Target;

/// The Deployment of Kueue, where Kueue is installed.
const KUEUE: &str = "kueue-controller-manager";

/// Install the operator on a cluster: definitions, namespace, permissions and Deployment.
///
/// On a management cluster and on its workers alike. Everything is written by server-side apply, so it can be repeated;
/// definitions that Kueue installed are left as they are. The permissions are those that the operator asks for and no
/// more; `deploy/` has the same as manifests and as a Helm chart.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry install --context manager --image registry.example/ferry:0.1.0\n  ferry install --context east --without-operator --dry-run"
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    options: Options,

    /// The image that brings `ferry` [default: ferry and this version].
    #[arg(long, value_name = "IMAGE", conflicts_with = "without_operator")]
    image: Option<String>,

    /// Install everything but the Deployment: the operator runs elsewhere, or Kueue does its work.
    #[arg(long)]
    without_operator: bool,

    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let target = target(&manager, arguments.dry_run);
        install_definitions(&target).await?;
        let namespace = &manager.operator_namespace;
        target.apply(&deploy::namespace(namespace)).await?;
        for object in deploy::access(namespace, &::operator::Settings::default()) {
            target.apply(&object).await?;
        }
        if arguments.without_operator {
            return Ok(ExitCode::SUCCESS);
        }
        target.apply_all("ClusterRoles for people", &::operator::roles::all()).await?;
        let mut wanted = Deployment { namespace: namespace.clone(), ..Deployment::default() };
        if let Some(image) = &arguments.image {
            wanted.image.clone_from(image);
        }
        for object in deploy::operator(&wanted) {
            target.apply(&object).await?;
        }
        warn_of_kueue(&manager).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The management cluster, as something to be written to.
pub(crate) fn target(manager: &Manager, is_dry_run: bool) -> Target {
    Target { client: manager.client.clone(), name: manager.context_name(), is_dry_run }
}

async fn install_definitions(target: &Target) -> anyhow::Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(target.client.clone());
    let mut missing = Vec::new();
    for name in definitions::names() {
        let there = api.get_opt(&name).await;
        let there = there.with_context(|| format!("failed to read the definition of {name}"))?;
        if there.is_none() {
            missing.push(name);
        }
    }
    if !target.is_dry_run {
        definitions::install(&target.client, &Conversion::Embedded).await?;
    }
    let done = match (missing.len(), target.is_dry_run) {
        (0, _) => "unchanged".to_owned(),
        (count, true) => format!("would be created ({count})"),
        (count, false) => format!("created ({count})"),
    };
    target.say(&done, "CustomResourceDefinitions of kueue.x-k8s.io")
}

/// Two that could act are no danger, since one waits for the other's Lease; but it may be the other one.
async fn warn_of_kueue(manager: &Manager) -> anyhow::Result<()> {
    let api: Api<Program> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
    let kueue = api.get_opt(KUEUE).await.context("failed to look for Kueue")?;
    if kueue.is_some_and(|kueue| kueue.spec.and_then(|spec| spec.replicas) != Some(0)) {
        output::line(format!(
            "note: Kueue is installed here, too. Both wait for the same Lease and only one acts. To let ferry act: \
             kubectl -n {} scale deployment {KUEUE} --replicas=0",
            manager.operator_namespace
        ))?;
    }
    Ok(())
}
