//! `ferry install`: what a cluster needs so that the operator runs there.

pub(crate) mod apply;

use std::process::ExitCode;

use ::operator::definitions::{self, Conversion};
use ::operator::deploy::{self, Deployment};
use anyhow::Context as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use serde_json::Value;

use crate::actors::{self, KUEUE};
use crate::connect::{Manager, Options};
use crate::failure::{Code, Failure};
use crate::{doctor, output, process};
use apply::Target;

/// Install the operator on a cluster: definitions, namespace, permissions and Deployment.
///
/// On a management cluster and on its workers alike. Everything is written by server-side apply, so it can be repeated;
/// definitions that Kueue installed are left as they are. Where somebody acts on queues from another namespace, nothing is
/// installed: operators take turns by a Lease in their namespace. The permissions are those that the operator asks for and no
/// more; `deploy/` has the same as manifests and as a Helm chart.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry install --context manager --image registry.example/ferry:0.1.0\n  ferry install --context east --without-operator --dry-run"
)]
pub(crate) struct Arguments {
    /// The image that brings `ferry` [default: ferry and this version].
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
    let (mut missing, mut older) = (0, 0);
    for definition in definitions::all(&Conversion::Embedded) {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let there = api.get_metadata_opt(name).await;
        match there.with_context(|| format!("failed to read the definition of {name}"))? {
            None => missing += 1,
            Some(there) if is_older(&there.metadata, &definition) => older += 1,
            Some(_) => {}
        }
    }
    if !target.is_dry_run {
        definitions::install(&target.client, &Conversion::Embedded).await?;
    }
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

/// Whether a definition is one of ours, of an earlier release: the number in its annotation grows.
fn is_older(there: &ObjectMeta, ours: &Value) -> bool {
    let release = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let marks = ours["metadata"]["annotations"].as_object().into_iter().flatten();
    marks.into_iter().any(|(key, value)| {
        let found = there.annotations.as_ref().and_then(|annotations| annotations.get(key));
        release(found.map(String::as_str)).is_some_and(|found| Some(found) < release(value.as_str()))
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_our_own_definitions_of_earlier_releases_are_changed() {
        let ours = definitions::all(&Conversion::Embedded).remove(0);
        let marks = ours["metadata"]["annotations"].as_object().expect("a mark");
        let (key, release) = marks.iter().next().expect("a mark");
        let release: u32 = release.as_str().and_then(|text| text.parse().ok()).expect("a number");
        let judged = |annotations: Value| {
            let there = serde_json::from_value(json!({ "annotations": annotations })).expect("metadata");
            is_older(&there, &ours)
        };
        assert!(judged(json!({ key: (release - 1).to_string() })));
        assert!(!judged(json!({ key: release.to_string() })));
        assert!(!judged(json!({})), "Kueue's own are left as they are");
    }
}
