//! Who acts: the Lease that Kueue takes, too, so that the two never act at once.

use std::time::Duration;

use k8s_openapi::{
    api::{
        coordination::v1::{Lease, LeaseSpec},
        core::v1::Namespace,
    },
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use reconcile::{Clock, Key};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::Error;

/// Kueue's Lease.
pub const LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

/// How the Lease is taken and kept.
#[derive(Debug, Clone)]
pub struct Leadership {
    /// Where the Lease is.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who we are.
    pub identity: String,
    /// For how long it is ours without being renewed.
    pub duration: Duration,
    /// For how long renewing may fail before we stop.
    pub deadline: Duration,
    /// How often it is renewed, or looked at.
    pub period: Duration,
}

impl Leadership {
    /// Kueue's Lease, by Kueue's times.
    pub fn new(namespace: impl Into<String>, identity: impl Into<String>) -> Leadership {
        Leadership {
            namespace: namespace.into(),
            name: LEASE.to_owned(),
            identity: identity.into(),
            duration: Duration::from_secs(15),
            deadline: Duration::from_secs(10),
            period: Duration::from_secs(2),
        }
    }
}

/// The Lease, once it is ours.
pub struct Leader {
    client: Client,
    clock: Clock,
    leadership: Leadership,
    lease: Lease,
}

/// Waits until the Lease is ours. Whoever has it keeps it as long as it is renewed: by our own clock, since that of
/// another may be wrong.
pub async fn lead(client: Client, leadership: Leadership, clock: Clock) -> Result<Leader, Error> {
    let api = api(&client, &leadership);
    ensure_namespace(&client, &leadership).await?;
    let mut seen: Option<(LeaseSpec, Instant)> = None;
    loop {
        let found = api.get_opt(&leadership.name).await.map_err(failed("read", &leadership))?;
        let spec = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
        if seen.as_ref().is_none_or(|(before, _)| *before != spec) {
            seen = Some((spec.clone(), Instant::now()));
        }
        let since = seen.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        let lasts =
            Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs().into());
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let free = holder.is_empty() || holder == leadership.identity || since.elapsed() >= lasts;
        if found.is_none() || free {
            let wanted = taken(found.as_ref(), &leadership, &clock);
            let written = match &found {
                None => api.create(&PostParams::default(), &wanted).await,
                Some(_) => api.replace(&leadership.name, &PostParams::default(), &wanted).await,
            };
            match written {
                Ok(lease) => {
                    info!(lease = %leadership.name, identity = %leadership.identity, "leading");
                    return Ok(Leader { client, clock, leadership, lease });
                }
                Err(error) if crate::error::is_outdated(&error) => {}
                Err(error) => return Err(failed("take", &leadership)(error)),
            }
        } else {
            debug!(%holder, "somebody else leads");
        }
        tokio::time::sleep(leadership.period).await;
    }
}

impl Leader {
    /// Keeps the Lease, and returns when it is lost: somebody else has it, or it could not be renewed in time.
    pub async fn keep(&mut self) -> Error {
        let api = api(&self.client, &self.leadership);
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.leadership.period).await;
            let wanted = self.renewed();
            let params = PostParams::default();
            let writing = api.replace(&self.leadership.name, &params, &wanted);
            let error = match tokio::time::timeout(self.leadership.deadline, writing).await {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    renewed = Instant::now();
                    continue;
                }
                Ok(Err(error)) => error,
                Err(_) => kube::Error::Service("the cluster does not answer".into()),
            };
            if crate::error::is_outdated(&error) {
                // Somebody wrote to it. It is lost unless it still has our name.
                match api.get_opt(&self.leadership.name).await {
                    Ok(Some(lease)) if self.is_ours(&lease) => {
                        self.lease = lease;
                        continue;
                    }
                    _ => return failed("keep", &self.leadership)(error),
                }
            }
            warn!(error = %reconcile::chain(&error), "the lease could not be renewed");
            if renewed.elapsed() >= self.leadership.deadline {
                return failed("keep", &self.leadership)(error);
            }
        }
    }

    /// Gives the Lease back, so that the next one need not wait for its end.
    pub async fn release(self) -> Result<(), Error> {
        let mut wanted = self.renewed();
        if let Some(spec) = &mut wanted.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
        }
        let api = api(&self.client, &self.leadership);
        match api.replace(&self.leadership.name, &PostParams::default(), &wanted).await {
            Ok(_) => Ok(()),
            // It is not ours any more, or was never there.
            Err(error) if crate::error::is_outdated(&error) => Ok(()),
            Err(error) => Err(failed("give back", &self.leadership)(error)),
        }
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_ref());
        holder == Some(&self.leadership.identity)
    }

    fn renewed(&self) -> Lease {
        let mut lease = self.lease.clone();
        lease.spec.get_or_insert_default().renew_time = Some(MicroTime(self.clock.now()));
        lease
    }
}

fn taken(found: Option<&Lease>, leadership: &Leadership, clock: &Clock) -> Lease {
    let now = MicroTime(clock.now());
    let mut lease = found.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(leadership.name.clone()),
            namespace: Some(leadership.namespace.clone()),
            ..ObjectMeta::default()
        },
        ..Lease::default()
    });
    let spec = lease.spec.get_or_insert_default();
    let same = spec.holder_identity.as_ref() == Some(&leadership.identity);
    if !same {
        let transitions = spec.lease_transitions.unwrap_or(0);
        spec.lease_transitions = Some(transitions.saturating_add(i32::from(found.is_some())));
        spec.acquire_time = Some(now.clone());
    }
    spec.holder_identity = Some(leadership.identity.clone());
    spec.lease_duration_seconds = Some(leadership.duration.as_secs().try_into().unwrap_or(i32::MAX));
    spec.renew_time = Some(now);
    lease
}

fn api(client: &Client, leadership: &Leadership) -> Api<Lease> {
    Api::namespaced(client.clone(), &leadership.namespace)
}

/// Makes the namespace of the Lease, if it is missing.
async fn ensure_namespace(client: &Client, leadership: &Leadership) -> Result<(), Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let name = &leadership.namespace;
    if api.get_opt(name).await.map_err(failed("find a namespace for", leadership))?.is_some() {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    match api.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await {
        Ok(_) => Ok(()),
        Err(error) if crate::error::is_outdated(&error) => Ok(()),
        Err(error) => Err(failed("make a namespace for", leadership)(error)),
    }
}

fn failed(doing: &'static str, leadership: &Leadership) -> impl FnOnce(kube::Error) -> Error + use<> {
    let name = Key::new(leadership.namespace.as_str(), leadership.name.as_str());
    move |source| Error::Lease { doing, name, source: Box::new(source) }
}
