//! `ferry submit`: manifests to the management cluster, and their Jobs to their end if wanted.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, Scope};
use kube::{Api, ResourceExt as _};
use rules::dispatch::Adapter;
use rules::framework::QUEUE_NAME_LABEL;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure, Hint as _};
use crate::jobs;
use crate::logs::{self, What};
use crate::manifest;
use crate::output;
use crate::process;
use crate::wait::{self, Aim};

/// Who writes what is submitted.
const FIELD_MANAGER: &str = "ferry";
/// How many Jobs are submitted at the same time.
const AT_ONCE: usize = 16;

/// Submit Jobs, and whatever else is in a manifest.
///
/// Every document of the files is applied by the server, so that submitting the same again changes nothing. An object with
/// generateName instead of a name is created, each time anew. What is refused is told, and all else is submitted.
///
/// Exit status with --wait or --logs: 0 if all Jobs completed, 1 if one failed.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  ferry submit job.yaml\n  ferry submit job.yaml --queue fleet --logs\n  kubectl create job hi --image=busybox --dry-run=client -o yaml -- echo hi | ferry submit - --queue fleet --wait"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub(crate) struct Arguments {
    /// Files to read, YAML or JSON; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The queue of the Jobs, in place of what they say.
    #[arg(short, long, value_name = "NAME")]
    queue: Option<String>,

    /// Wait until all Jobs have ended.
    #[arg(short, long)]
    wait: bool,

    /// Show what their pods write until all Jobs have ended.
    #[arg(short, long)]
    logs: bool,

    /// Take over fields that somebody else has set.
    #[arg(long)]
    force: bool,

    /// Let the server judge everything, and change nothing.
    #[arg(long, conflicts_with_all = ["wait", "logs"])]
    dry_run: bool,

    #[command(flatten)]
    connection: Options,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    process::run(async {
        let mut documents = Vec::new();
        for file in &arguments.files {
            documents.extend(manifest::read(file)?);
        }
        if documents.is_empty() {
            return Err(Failure::new(Code::Error, "there is nothing in it to submit")
                .hint("every document names apiVersion, kind and metadata.name")
                .into());
        }
        let manager = arguments.connection.manager().await?;
        let (submitted, refused) = submit_all(arguments, &manager, &documents).await?;
        if let Some(code) = refused {
            return Ok(code);
        }
        if arguments.wait || arguments.logs {
            return to_the_end(arguments, &manager, &submitted).await;
        }
        if let [.., last] = submitted.as_slice()
            && !arguments.dry_run
        {
            let flags = manager.flags(last.metadata.namespace.as_deref().unwrap_or(&manager.namespace));
            let job = format!("{}{flags}", called(last));
            output::note(format!("hint: ferry wait {job}; ferry logs {job} -f; ferry explain {job}"));
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Submits everything in its order, but for Jobs, which do not need each other. Returns the Jobs, and the exit status of the
/// first refusal if there was one: what is wrong with one object keeps no other from being submitted.
async fn submit_all(
    arguments: &Arguments,
    manager: &Manager,
    documents: &[Value],
) -> anyhow::Result<(Vec<DynamicObject>, Option<ExitCode>)> {
    let kinds = Kinds::default();
    let (mut submitted, mut refused) = (Vec::new(), None);
    for together in documents.chunk_by(|one, next| is_job(one) && is_job(next)) {
        let answers = together.iter().map(|document| async {
            let answer = submit(arguments, manager, &kinds, document.clone()).await;
            (is_job(document), answer)
        });
        let mut answers = stream::iter(answers).buffered(AT_ONCE);
        while let Some((is_job, answer)) = answers.next().await {
            match answer {
                Ok(object) => {
                    say(arguments, &object);
                    submitted.extend(is_job.then_some(object));
                }
                Err(error) if failure::is_unreachable(&error) => return Err(error),
                Err(error) => {
                    let code = failure::report(&error);
                    refused.get_or_insert(code);
                }
            }
        }
    }
    Ok((submitted, refused))
}

/// Whoever has read enough of it keeps nothing from being submitted.
fn say(arguments: &Arguments, object: &DynamicObject) {
    let kind = object.types.as_ref().map(|types| types.kind.to_lowercase()).unwrap_or_default();
    let queue = object.labels().get(QUEUE_NAME_LABEL);
    let queue = queue.map(|queue| format!(" to queue {queue}")).unwrap_or_default();
    let would = if arguments.dry_run { "would be submitted" } else { "submitted" };
    output::announce(format!("{kind} {} {would}{queue}", object.name_any()));
}

/// Whether an object is a job of a kind that can be queued. A Pod can be, too, but is more often meant as a pod.
fn is_job(document: &Value) -> bool {
    let text = |key: &str| document[key].as_str().unwrap_or_default();
    text("kind") != "Pod" && Adapter::of(text("apiVersion"), text("kind")).is_some()
}

/// What a job is called on the command line.
fn called(object: &DynamicObject) -> String {
    let kind = object.types.as_ref().map_or("Job", |types| types.kind.as_str());
    if kind == "Job" { object.name_any() } else { format!("{}/{}", kind.to_lowercase(), object.name_any()) }
}

async fn submit(
    arguments: &Arguments,
    manager: &Manager,
    kinds: &Kinds,
    mut document: Value,
) -> anyhow::Result<DynamicObject> {
    expect_metadata(&document)?;
    if let Some(queue) = &arguments.queue
        && is_job(&document)
    {
        document["metadata"]["labels"][QUEUE_NAME_LABEL] = json!(queue);
    }
    let text =
        |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    let (name, prefix) = (text("/metadata/name"), text("/metadata/generateName"));
    let namespace = Some(text("/metadata/namespace")).filter(|it| !it.is_empty());
    let api = kinds.objects(manager, &api_version, &kind, namespace.clone()).await?;
    let title = format!("{} {}", kind.to_lowercase(), if name.is_empty() { &prefix } else { &name });
    let failed = || format!("failed to submit {title}");
    let answer = if name.is_empty() {
        let object: DynamicObject = serde_json::from_value(document).with_context(failed)?;
        let params = PostParams { dry_run: arguments.dry_run, field_manager: Some(FIELD_MANAGER.to_owned()) };
        api.create(&params, &object).await
    } else {
        let mut params = PatchParams::apply(FIELD_MANAGER);
        params.force = arguments.force;
        params.dry_run = arguments.dry_run;
        api.patch(&name, &params, &Patch::Apply(&document)).await
    };
    let hint = match &answer {
        Err(kube::Error::Api(status)) => {
            advice(status, &title, namespace.as_ref().unwrap_or(&manager.namespace), manager)
        }
        _ => None,
    };
    let answer = answer.with_context(failed);
    match hint {
        Some(hint) => answer.hint(hint),
        None => answer,
    }
}

/// That a document is an object with a name, so that it can be said what is wrong with the rest.
fn expect_metadata(document: &Value) -> anyhow::Result<()> {
    let is_text = |pointer: &str| {
        let text = document.pointer(pointer).and_then(Value::as_str);
        text.is_some_and(|text| !text.is_empty())
    };
    let labels = &document["metadata"]["labels"];
    let (message, hint) = if !is_text("/apiVersion") || !is_text("/kind") {
        ("a document has no apiVersion or no kind", "every object of Kubernetes names both")
    } else if !is_text("/metadata/name") && !is_text("/metadata/generateName") {
        (
            "a document has no name",
            "give it metadata.name, or metadata.generateName to submit it again and again",
        )
    } else if !labels.is_null() && !labels.is_object() {
        ("metadata.labels of a document are no labels", "write them like metadata: {labels: {team: vision}}")
    } else {
        return Ok(());
    };
    let title = document["kind"].as_str().map(|kind| format!(" ({kind})")).unwrap_or_default();
    Err(Failure::new(Code::Error, format!("{message}{title}")).hint(hint).into())
}

/// What to do about a refusal.
fn advice(status: &kube::core::Status, title: &str, namespace: &str, manager: &Manager) -> Option<String> {
    let name = title.rsplit(' ').next().unwrap_or_default();
    if status.is_conflict() {
        return Some("--force takes over the fields that somebody else has set".to_owned());
    }
    if status.is_not_found() && status.message.contains("namespaces") {
        return Some(format!(
            "create it (kubectl create namespace {namespace}), or choose another one with -n"
        ));
    }
    // Webhooks, which guard some fields, answer with another status than the API server.
    if status.message.contains("field is immutable") {
        let flags = manager.flags(namespace);
        return Some(format!(
            "{title} is there already, and cannot become this one: ferry cancel {name}{flags} first, or give this one another name"
        ));
    }
    status.is_invalid().then(|| "ferry check says the same without a cluster".to_owned())
}

/// What the cluster knows of kinds, asked once for each.
#[derive(Default)]
struct Kinds {
    known: Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>,
}

impl Kinds {
    /// The objects of a kind, in their namespace if the kind has any.
    async fn objects(
        &self,
        manager: &Manager,
        api_version: &str,
        kind: &str,
        namespace: Option<String>,
    ) -> anyhow::Result<Api<DynamicObject>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let mut known = self.known.lock().await;
        let (resource, scope) = match known.entry(gvk) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let asked = ask(manager, unknown.key()).await?;
                unknown.insert(asked)
            }
        };
        Ok(match scope {
            Scope::Cluster => Api::all_with(manager.client.clone(), resource),
            Scope::Namespaced => {
                let namespace = namespace.unwrap_or_else(|| manager.namespace.clone());
                Api::namespaced_with(manager.client.clone(), &namespace, resource)
            }
        })
    }
}

async fn ask(manager: &Manager, gvk: &GroupVersionKind) -> anyhow::Result<(ApiResource, Scope)> {
    let error = match discovery::pinned_kind(&manager.client, gvk).await {
        Ok((resource, capabilities)) => return Ok((resource, capabilities.scope)),
        Err(error) => error,
    };
    let is_unknown = match &error {
        // A group that nobody serves is answered without a Status.
        kube::Error::Api(status) => status.code == 404,
        kube::Error::Discovery(_) => true,
        _ => false,
    };
    if is_unknown {
        let message = format!("the cluster does not know {} of {}", gvk.kind, gvk.api_version());
        let hint = "is its definition installed? kubectl api-resources lists what is known";
        return Err(Failure::new(Code::Error, message).hint(hint).into());
    }
    Err(error).context("failed to ask the cluster what it knows")
}

/// Shows the Jobs to their end.
async fn to_the_end(
    arguments: &Arguments,
    manager: &Manager,
    submitted: &[DynamicObject],
) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut followed = Vec::new();
    let mut by_namespace: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for object in submitted {
        let namespace = object.namespace().unwrap_or_else(|| manager.namespace.clone());
        let there = manager.in_namespace(&namespace);
        if arguments.logs && object.types.as_ref().is_none_or(|types| types.kind == "Job") {
            let found = jobs::find(&there, &called(object)).await?;
            followed.push((there, found.view));
        }
        let line = (called(object), object.uid().unwrap_or_default());
        by_namespace.entry(namespace).or_default().push(line);
    }
    let what = What::default();
    futures::future::try_join_all(followed.iter().map(|(there, view)| logs::follow(there, view, &what)))
        .await?;
    for (namespace, jobs) in by_namespace {
        let there = manager.in_namespace(&namespace);
        let ended = wait::until(&there, &jobs, Aim::Complete).await?;
        if ended != ExitCode::SUCCESS {
            code = ended;
        }
    }
    Ok(code)
}
