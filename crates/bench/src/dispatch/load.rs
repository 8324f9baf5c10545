//! Jobs, submitted and waited for.

use std::{
    collections::BTreeMap,
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::batch::v1::Job;
use kube::{
    Api, Client,
    api::PostParams,
    runtime::watcher::{self, Event},
};
use serde_json::Value;

use crate::report::Samples;

/// How many Jobs are being created at once.
const AT_ONCE: usize = 32;
/// Nothing takes longer between two events of Jobs, unless something hangs; but for each Job that is submitted at once Kueue
/// may take a second before anything is to be seen.
fn patience(count: usize) -> Duration {
    Duration::from_secs(300) + Duration::from_secs(2) * u32::try_from(count).unwrap_or(u32::MAX)
}

/// A place for Jobs.
pub(super) struct Jobs {
    api: Api<Job>,
    make: fn(&str) -> Value,
}

/// When Jobs were submitted, and how long each took.
pub(super) struct Times {
    took: Vec<Duration>,
    total: Duration,
}

impl Jobs {
    pub(super) fn new(client: Client, make: fn(&str) -> Value) -> Jobs {
        Jobs { api: Api::default_namespaced(client), make }
    }

    /// Submits so many Jobs, as fast as they are taken or one after each pause, and waits until all are Complete.
    pub(super) async fn run(
        &self,
        name: &str,
        count: usize,
        pause: Option<Duration>,
    ) -> anyhow::Result<Times> {
        let name = format!("{name}-");
        let mut events = pin!(watcher::watcher(self.api.clone(), watcher::Config::default()));
        // What there is was seen when the list has ended; from then on nothing is missed.
        while !matches!(events.try_next().await?, Some(Event::InitDone)) {}
        let began = Instant::now();
        let create = async {
            let mut created: Vec<(String, Instant)> = Vec::new();
            if let Some(pause) = pause {
                for number in 0..count {
                    created.push(self.create(format!("{name}{number}")).await?);
                    tokio::time::sleep(pause).await;
                }
                return Ok(created);
            }
            let all = stream::iter((0..count).map(|number| self.create(format!("{name}{number}"))));
            all.buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await
        };
        let mut ended: BTreeMap<String, Instant> = BTreeMap::new();
        let complete = async {
            while ended.len() < count {
                let event = tokio::time::timeout(patience(count), events.next()).await;
                let event =
                    event.with_context(|| format!("only {} of {count} Jobs have ended", ended.len()))?;
                let (Event::Apply(job) | Event::InitApply(job)) = event.context("the watch has ended")??
                else {
                    continue;
                };
                let of = job.metadata.name.clone().unwrap_or_default();
                if of.starts_with(&name) && is_complete(&job)? {
                    ended.entry(of).or_insert_with(Instant::now);
                }
            }
            anyhow::Ok(())
        };
        let (created, ()) = futures::future::try_join(create, complete).await?;
        let total = ended.values().max().map_or(Duration::ZERO, |last| *last - began);
        let took =
            created.into_iter().filter_map(|(name, at)| ended.get(&name).map(|end| *end - at)).collect();
        Ok(Times { took, total })
    }

    async fn create(&self, name: String) -> anyhow::Result<(String, Instant)> {
        let job: Job = serde_json::from_value((self.make)(&name))?;
        let at = Instant::now();
        self.api
            .create(&PostParams::default(), &job)
            .await
            .with_context(|| format!("failed to create {name}"))?;
        Ok((name, at))
    }
}

fn is_complete(job: &Job) -> anyhow::Result<bool> {
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    for condition in conditions.filter(|condition| condition.status == "True") {
        match condition.type_.as_str() {
            "Complete" => return Ok(true),
            "Failed" => bail!("{:?} has failed: {:?}", job.metadata.name, condition.message),
            _ => {}
        }
    }
    Ok(false)
}

impl Times {
    pub(super) fn count(&self) -> usize {
        self.took.len()
    }

    /// From the first create to the last end.
    pub(super) fn total(&self) -> Duration {
        self.total
    }

    /// How many ended in a second.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people to read")]
    pub(super) fn rate(&self) -> f64 {
        self.count() as f64 / self.total.as_secs_f64()
    }

    pub(super) fn each(&self) -> Vec<Duration> {
        self.took.clone()
    }

    pub(super) fn samples(&self) -> Samples {
        Samples::new(self.took.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn jobs_are_complete_or_an_error() {
        let with = |kind: &str| -> Job {
            serde_json::from_value(json!({"status": {"conditions": [{"type": kind, "status": "True"}]}}))
                .expect("a Job")
        };
        assert!(is_complete(&with("Complete")).expect("it has not failed"));
        assert!(!is_complete(&with("Suspended")).expect("it has not failed"));
        assert!(is_complete(&with("Failed")).is_err());
    }
}
