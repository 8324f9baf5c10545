//! `ferry cordon` and `ferry uncordon`: whether a worker takes new Jobs.
//!
//! A worker is cordoned by stopping its own LocalQueues: those that queues of the management cluster lead to get the stop
//! policy `Hold`, or `HoldAndDrain` to drain. That is Kueue's API, so it holds whoever runs on either side: the worker
//! admits no copy while its queue is held, and a manager that sees a copy evicted starts it elsewhere. To take the
//! cluster out of its MultiKueueConfig instead would be wrong: Kueue takes what runs there for lost and starts it a second
//! time.
//!
//! The queues of a worker that nobody reaches cannot be stopped. Then its MultiKueueCluster is annotated, and Ferry's
//! manager offers it nothing; Kueue's does not know the annotation.

use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::api::DynamicObject;
use rules::dispatch::{CORDONED, GIVEN_UP};
use serde_json::{Value, json};
use types::kueue::{LocalQueue, MultiKueueCluster, StopPolicy};

use crate::clusters::counterparts;
use crate::clusters::layout::{Layout, active, annotation};
use crate::connect::{Manager, Options};
use crate::failure::{self, Code, Failure, Hint as _};
use crate::install::{self, apply::Target};
use crate::{jobs, output, process};

/// Under this name queues are stopped: with it the stop can be taken back, and nothing else.
pub(crate) const MANAGER: &str = "ferry-cordon";
/// The annotation of a LocalQueue with how it was stopped before it was stopped here in another way.
const BEFORE: &str = "ferry.dev/stopped-before";
/// The annotations of a MultiKueueCluster with what is said of a worker that nobody reaches.
const WORDS: [&str; 2] = [GIVEN_UP, CORDONED];

/// Let a worker take no new Jobs; those that run there go on.
///
/// Its LocalQueues that queues of the management cluster lead to are held (stopPolicy: Hold), which Kueue respects, too.
/// Jobs that wait start on other workers. Needs a context of the kubeconfig that may change LocalQueues on the worker. One
/// that cannot be reached is offered nothing instead, also when it is back (an annotation of its MultiKueueCluster, which
/// Kueue's manager does not know).
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry cordon east")]
pub(crate) struct Cordon {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Let a worker take new Jobs again.
///
/// What `ferry cordon`, `drain` and `drain --given-up` did is undone. A queue that somebody else holds stays held.
///
/// Exit status: 0 if the worker takes new Jobs, 1 if somebody else keeps it from doing so.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ferry uncordon east")]
pub(crate) struct Uncordon {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Which worker is meant, and how it is reached.
#[derive(clap::Args)]
pub(crate) struct Which {
    /// The worker, as `ferry clusters` calls it.
    #[arg(value_name = "CLUSTER")]
    pub(crate) cluster: String,

    /// The context of the worker in the kubeconfig [default: that it was joined with].
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) worker_context: Option<String>,

    /// Only say what would be done.
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) options: Options,
}

pub(crate) fn cordon(arguments: &Cordon) -> anyhow::Result<ExitCode> {
    process::run(async {
        let site = Site::of(&arguments.which).await?;
        match site.queues().await {
            // Its queues can be held by nobody now; but it can be offered nothing, also when it is back.
            Err(error) if is_lost(&error) => site.offer_nothing(&error).await?,
            queues => site.stop(queues?, Some("Hold")).await?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

pub(crate) fn uncordon(arguments: &Uncordon) -> anyhow::Result<ExitCode> {
    process::run(async {
        let site = Site::of(&arguments.which).await?;
        // First: it holds whether the worker can be reached or not.
        site.take_back().await?;
        let name = &arguments.which.cluster;
        let hint = format!(
            "is it up? its queues may be held there: do this again when it is; to do without it: ferry leave {name} --force"
        );
        let queues = site.queues().await.hint_if(is_lost, hint)?;
        site.stop(queues, None).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// Lets a worker stop what runs there.
pub(crate) async fn drain(which: &Which) -> anyhow::Result<()> {
    let (site, name) = (Site::of(which).await?, &which.cluster);
    let hint = format!(
        "is it up? if it will not come back: ferry drain --given-up {name}; ferry cordon {name} keeps new Jobs from it"
    );
    let queues = site.queues().await.hint_if(is_lost, hint)?;
    site.stop(queues, Some("HoldAndDrain")).await
}

/// Whether a worker is one that nobody reaches, or that says nothing.
fn is_lost(error: &anyhow::Error) -> bool {
    failure::is_unreachable(error) || failure::code_of(error) == Code::Timeout
}

/// A worker, as its management cluster knows it.
struct Site<'a> {
    which: &'a Which,
    manager: Manager,
    layout: Layout,
}

/// Queues of a worker that the queues of the management cluster lead to, and where they are.
type Queues = (Target, Vec<LocalQueue>);

impl Site<'_> {
    async fn of(which: &Which) -> anyhow::Result<Site<'_>> {
        let manager = which.options.manager().await?;
        let layout = Layout::read(&manager.client).await?;
        layout.cluster(&which.cluster)?;
        Ok(Site { which, manager, layout })
    }

    fn cluster(&self) -> anyhow::Result<&MultiKueueCluster> {
        self.layout.cluster(&self.which.cluster)
    }

    /// The queues by which the worker gets Jobs.
    async fn queues(&self) -> anyhow::Result<Queues> {
        let (which, name) = (self.which, &self.which.cluster);
        let worker = self.manager.administered(self.cluster()?, which.worker_context.as_deref()).await?;
        let target = Target { client: worker.client, name: name.clone(), is_dry_run: which.dry_run };
        let there = jobs::objects::<LocalQueue>(&target.client, None).await;
        let there = there.with_context(|| format!("failed to ask {name}"))?;
        let queues: Vec<LocalQueue> = counterparts(&self.layout, name, &there).cloned().collect();
        if queues.is_empty() {
            let message = format!("{name} has none of the queues that lead to it");
            let hint = "ferry doctor says which ones are missing";
            return Err(Failure::new(Code::No, message).hint(hint).into());
        }
        Ok((target, queues))
    }

    /// Stops queues in this way, or lets them go on.
    async fn stop(&self, (worker, queues): Queues, policy: Option<&str>) -> anyhow::Result<()> {
        let (which, name) = (self.which, &self.which.cluster);
        let mut held = Vec::new();
        for queue in &queues {
            let applied = worker.apply_as(MANAGER, &wanted(queue, policy)).await;
            let hint = "name a context that may change LocalQueues there with --worker-context";
            let after = applied.hint_if(failure::is_forbidden, hint)?;
            held.extend(after.filter(|_| policy.is_none()).and_then(|after| still_held(&after)));
        }
        if !held.is_empty() {
            let message = format!("{name} {} no new Jobs: {}", takes(which), held.join(", "));
            let hint = "if it is to take them all the same, set spec.stopPolicy of the queue there to None";
            return Err(Failure::new(Code::No, message).hint(hint).into());
        }
        output::announce(match policy {
            Some("Hold") => format!("{name} {} no new Jobs; those that run there go on", takes(which)),
            Some(_) if which.dry_run => format!("{name} would take no new Jobs"),
            Some(_) => format!("{name} takes no new Jobs; those that run there are stopped and queue again"),
            None => format!("{name} {} new Jobs", takes(which)),
        });
        Ok(())
    }

    /// Says on the management cluster that the worker is to get nothing new.
    async fn offer_nothing(&self, why: &anyhow::Error) -> anyhow::Result<()> {
        output::note(format!("note: {}", failure::text(why)));
        // What was said before stays said.
        let given_up = annotation(self.cluster()?, GIVEN_UP).map(str::to_owned);
        self.say(given_up, true).await?;
        let would = if self.which.dry_run { "would be" } else { "is" };
        output::announce(format!("{} {would} offered no new Jobs, also when it is back", self.which.cluster));
        Ok(())
    }

    /// Takes back what was said of the worker on the management cluster.
    async fn take_back(&self) -> anyhow::Result<()> {
        let cluster = self.cluster()?;
        if WORDS.iter().all(|word| annotation(cluster, word).is_none()) {
            return Ok(());
        }
        let after = self.say(None, false).await?;
        // Somebody may have set it under another name.
        let annotations = after.and_then(|after| after.metadata.annotations).unwrap_or_default();
        match WORDS.iter().find(|word| annotations.contains_key(**word)) {
            None => Ok(()),
            Some(left) => {
                let name = &self.which.cluster;
                let message = format!("somebody else has annotated MultiKueueCluster {name} with {left}");
                let hint = format!("kubectl annotate multikueuecluster {name} {left}-");
                Err(Failure::new(Code::No, message).hint(hint).into())
            }
        }
    }

    /// What is said of the worker on the management cluster from now on. Returns its object, if there is one then.
    async fn say(
        &self,
        given_up: Option<String>,
        is_cordoned: bool,
    ) -> anyhow::Result<Option<DynamicObject>> {
        let mut wanted = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueCluster",
            "metadata": { "name": self.which.cluster },
        });
        if let Some(at) = given_up {
            wanted["metadata"]["annotations"][GIVEN_UP] = json!(at);
        }
        if is_cordoned {
            wanted["metadata"]["annotations"][CORDONED] = json!("true");
        }
        install::target(&self.manager, self.which.dry_run).apply_as(MANAGER, &wanted).await
    }
}

fn takes(which: &Which) -> &'static str {
    if which.dry_run { "would take" } else { "takes" }
}

/// What is to be written to a queue. How somebody else had stopped it is noted while it is stopped in another way, and
/// restored when it is let go.
fn wanted(queue: &LocalQueue, policy: Option<&str>) -> Value {
    let mut wanted = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue",
        "metadata": { "name": queue.metadata.name, "namespace": queue.metadata.namespace },
    });
    let noted = queue.metadata.annotations.as_ref().and_then(|annotations| annotations.get(BEFORE)).cloned();
    let stopped = queue.spec.stop_policy.filter(|policy| *policy != StopPolicy::None);
    let of_others = stopped.filter(|_| !holders(&queue.metadata).contains(&MANAGER));
    let before = noted.clone().or_else(|| of_others.map(|policy| format!("{policy:?}")));
    match policy {
        Some(policy) => {
            wanted["spec"]["stopPolicy"] = json!(policy);
            if let Some(before) = before.filter(|before| before != policy) {
                wanted["metadata"]["annotations"] = json!({ BEFORE: before });
            }
        }
        None if noted.is_some() => wanted["spec"]["stopPolicy"] = json!(noted),
        None => {}
    }
    wanted
}

/// What still stops a queue that was let go, in words.
fn still_held(queue: &DynamicObject) -> Option<String> {
    let policy = queue.data["spec"]["stopPolicy"].as_str().filter(|policy| *policy != "None")?;
    let name = queue.metadata.name.as_deref().unwrap_or_default();
    let namespace = queue.metadata.namespace.as_deref().unwrap_or_default();
    let others: Vec<&str> = holders(&queue.metadata).into_iter().filter(|it| *it != MANAGER).collect();
    let by = match others.as_slice() {
        [] => ", as it was before".to_owned(),
        others => format!(" by {}", others.join(" and ")),
    };
    Some(format!("queue {namespace}/{name} is stopped ({policy}){by}"))
}

/// Who says how a queue is stopped.
pub(crate) fn holders(queue: &ObjectMeta) -> Vec<&str> {
    let fields = queue.managed_fields.iter().flatten();
    let says = |fields: &&ManagedFieldsEntry| {
        fields.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:stopPolicy").is_some())
    };
    fields.filter(says).filter_map(|fields| fields.manager.as_deref()).collect()
}

/// Says of a worker that it will not come back and that nothing runs there. Should it come back all the same, it gets
/// nothing new.
pub(crate) async fn give_up(which: &Which) -> anyhow::Result<()> {
    let (site, name) = (Site::of(which).await?, &which.cluster);
    let active = active(site.cluster()?);
    if active.is_some_and(|active| active.status == "True") {
        let message = format!("{name} is connected, so its Jobs run there");
        let hint = format!("ferry drain {name} stops them there, and lets them start elsewhere");
        return Err(Failure::new(Code::No, message).hint(hint).into());
    }
    // It counts for the outage that there is, whatever our clock says, and for no later one.
    let since = active.map_or(Timestamp::MIN, |active| active.last_transition_time.0);
    let at = Timestamp::now().max(since).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    site.say(Some(at), true).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue that is stopped so, says this manager of fields.
    fn queue(policy: &str, by: &str, before: Option<&str>) -> LocalQueue {
        let fields = json!({ "f:spec": { "f:stopPolicy": {} } });
        let entry = json!({
            "manager": by, "operation": "Apply", "apiVersion": "kueue.x-k8s.io/v1beta2", "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        });
        let annotations = before.map(|before| json!({ BEFORE: before }));
        let metadata = json!({
            "name": "q", "namespace": "team", "managedFields": [entry], "annotations": annotations,
        });
        let spec = json!({ "clusterQueue": "q", "stopPolicy": policy });
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": spec,
        });
        serde_json::from_value(queue).expect("a LocalQueue")
    }

    /// What an administrator held is held again when a worker that was drained meanwhile is let go.
    #[test]
    fn a_hold_of_others_outlives_a_drain() {
        let written = |queue: LocalQueue, policy| {
            let wanted = wanted(&queue, policy);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            (text(&wanted["spec"]["stopPolicy"]), text(&wanted["metadata"]["annotations"][BEFORE]))
        };
        let of = |policy: Option<&str>, before: Option<&str>| {
            (policy.map(str::to_owned), before.map(str::to_owned))
        };
        let drain = Some("HoldAndDrain");
        assert_eq!(written(queue("None", "kubectl", None), drain), of(drain, None));
        assert_eq!(written(queue("Hold", "kubectl", None), drain), of(drain, Some("Hold")));
        assert_eq!(written(queue("Hold", "kubectl", None), Some("Hold")), of(Some("Hold"), None));
        assert_eq!(written(queue("Hold", MANAGER, None), drain), of(drain, None), "ours is no other's");
        let drained = queue("HoldAndDrain", MANAGER, Some("Hold"));
        assert_eq!(written(drained.clone(), drain), of(drain, Some("Hold")), "twice is as once");
        assert_eq!(written(drained, None), of(Some("Hold"), None));
        assert_eq!(written(queue("Hold", MANAGER, None), None), of(None, None));
    }

    #[test]
    fn who_holds_a_queue_is_named() {
        let said = |queue: LocalQueue| {
            let object = serde_json::to_value(queue).and_then(serde_json::from_value).expect("an object");
            still_held(&object)
        };
        assert_eq!(said(queue("None", "kubectl", None)), None);
        assert_eq!(
            said(queue("Hold", "kubectl", None)).as_deref(),
            Some("queue team/q is stopped (Hold) by kubectl")
        );
        assert_eq!(
            said(queue("Hold", MANAGER, None)).as_deref(),
            Some("queue team/q is stopped (Hold), as it was before")
        );
    }
}
