//! `ferry install`: what a cluster needs so that the operator runs there.

pub(crate) mod apply;

use std::process::ExitCode;

use ::operator::definitions::{self, Conversion, State};
use ::operator::deploy::{self, Deployment};
use anyhow::Context as _;
use k8s_openapi::api::apps::v1 as apps;
use kube::Api;
use serde_json::Value;

use crate::actors::{self, KUEUE};
use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure, Hint as _};
use crate::{doctor, output, process};
use apply::Target;

/// What to do about definitions that are too old.
pub(crate) const UPDATE_KUEUE: &str =
    "they are of a Kueue before v0.15: bring Kueue up to date first, by its own manifests";

/// Install the operator on a cluster: definitions, namespace, permissions and Deployment.
///
/// On a management cluster and on its workers alike. Everything is written by server-side apply, so it can be repeated;
/// definitions that Kueue installed are left as they are, and so is how many replicas of the operator there are, which
/// image they have unless another one is named, and which configuration they read. Where somebody acts on queues from another namespace, nothing is
/// installed: operators take turns by a Lease in their namespace. The permissions are those that the operator asks for and no
/// more; `deploy/` has the same as manifests and as a Helm chart.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry install --context manager --image registry.example/ferry:0.1.0\n  ferry install --context east --without-operator --dry-run"
)]
pub(crate) struct Arguments {
    /// The image that brings `ferry` [default: that of the operator that is there, else ferry and this version].
    #[arg(long, value_name = "IMAGE", conflicts_with = "without_operator")]
    image: Option<String>,

    /// Install everything but the Deployment and its Services: the operator runs elsewhere, or Kueue does its work.
    #[arg(long)]
    without_operator: bool,

    /// Only say what would be done.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    options: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let manager = arguments.options.manager().await?;
        let target = target(&manager, arguments.dry_run);
        if !arguments.without_operator {
            expect_one_namespace(&manager).await?;
        }
        install_definitions(&target).await?;
        let namespace = &manager.operator_namespace;
        target.apply(&deploy::namespace(namespace)).await?;
        for object in deploy::access(namespace, &::operator::Settings::default()) {
            target.apply(&object).await?;
        }
        target.apply_all("ClusterRoles for people", &::operator::roles::all()).await?;
        if arguments.without_operator {
            return Ok(ExitCode::SUCCESS);
        }
        let mut wanted = Deployment { namespace: namespace.clone(), ..Deployment::default() };
        // What whoever was here before said of it holds on.
        let there = operator_of(&manager).await?;
        if let Some(image) = arguments.image.as_deref().or(deploy::image(&there)) {
            wanted.image = image.to_owned();
        }
        // From a volume that whoever told it so brought along.
        wanted.further_arguments = deploy::configured(&there);
        for object in deploy::operator(&wanted) {
            target.apply(&object).await?;
        }
        for object in deploy::configurations() {
            target.apply_unless_others(&object).await?;
        }
        warn_of_kueue(&manager).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// The operator that is there, if there is one.
async fn operator_of(manager: &Manager) -> anyhow::Result<Value> {
    let api: Api<apps::Deployment> = Api::namespaced(manager.client.clone(), &manager.operator_namespace);
    let there = api.get_opt(deploy::NAME).await;
    let there = there.with_context(|| format!("failed to read the Deployment {}", deploy::NAME))?;
    Ok(serde_json::to_value(there)?)
}

/// The management cluster, as something to be written to.
pub(crate) fn target(manager: &Manager, is_dry_run: bool) -> Target {
    Target { client: manager.client.clone(), name: manager.context_name(), is_dry_run }
}

async fn install_definitions(target: &Target) -> anyhow::Result<()> {
    let states = definitions::states(&target.client).await?;
    definitions::expect_usable(&states).hint(UPDATE_KUEUE)?;
    if !target.is_dry_run {
        definitions::install(&target.client, &Conversion::without_us(&target.client).await?).await?;
    }
    let count = |wanted: State| states.iter().filter(|(_, state)| *state == wanted).count();
    let (missing, older) = (count(State::Missing), count(State::Older));
    let what = "CustomResourceDefinitions of kueue.x-k8s.io";
    let would = if target.is_dry_run { "would be " } else { "" };
    if (missing, older) == (0, 0) {
        return target.say("unchanged", what);
    }
    for (count, done) in [(missing, "created"), (older, "changed")] {
        if count > 0 {
            target.say(&format!("{would}{done} ({count})"), what)?;
        }
    }
    Ok(())
}

/// Two that wait for the same Lease are no danger, but in two namespaces they have one each, and both act.
async fn expect_one_namespace(manager: &Manager) -> anyhow::Result<()> {
    let own = &manager.operator_namespace;
    let now = doctor::clock_of(manager).await;
    let leases = actors::leases(manager).await?;
    let acting = leases.iter().filter(|it| it.metadata.namespace.as_ref() != Some(own));
    let acting =
        acting.filter_map(|lease| Some((lease.metadata.namespace.clone()?, actors::actor(lease, now)?)));
    let programs = actors::programs(manager).await?.into_iter();
    let installed =
        programs.filter(|it| it.namespace != *own).map(|it| (it.namespace.clone(), it.to_string()));
    let Some((namespace, who)) = acting.chain(installed).next() else { return Ok(()) };
    let message = format!("{who} acts on queues here, from another namespace: two would act at once");
    let hint = format!("--operator-namespace {namespace} lets them take turns; or stop that one first");
    Err(Failure::new(Code::No, message).hint(hint).into())
}

/// Two that could act are no danger, since one waits for the other's Lease; but it may be the other one.
async fn warn_of_kueue(manager: &Manager) -> anyhow::Result<()> {
    let namespace = &manager.operator_namespace;
    if actors::programs(manager).await?.iter().any(|it| it.name == KUEUE && it.namespace == *namespace) {
        output::line(format!(
            "note: Kueue is installed here, too. Both wait for the same Lease and only one acts. To let ferry act: \
             kubectl -n {namespace} scale deployment {KUEUE} --replicas=0"
        ))?;
    }
    Ok(())
}
