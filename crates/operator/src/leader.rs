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

    /// For how long one attempt may take, so that one without an answer does not cost the Lease.
    fn attempt(&self) -> Duration {
        Duration::from_secs(1).max(self.deadline / 2)
    }
}

/// The Lease, once it is ours.
pub struct Leader {
    client: Client,
    clock: Clock,
    leadership: Leadership,
    lease: Lease,
    /// When it was asked for what it is now: others count from the answer at the earliest, and that may have been late.
    renewed: Instant,
}

/// Waits until the Lease is ours. Whoever has it keeps it as long as it is renewed: by our own clock, since that of
/// another may be wrong. A cluster that does not answer is asked again; one that refuses is not.
pub async fn lead(client: Client, leadership: Leadership, clock: Clock) -> Result<Leader, Error> {
    let api = api(&client, &leadership);
    ensure_namespace(&client, &leadership).await?;
    let mut seen: Option<(LeaseSpec, Instant)> = None;
    loop {
        match attempt(&api, &leadership, &clock, &mut seen).await {
            Ok(Some((lease, renewed))) => {
                info!(lease = %leadership.name, identity = %leadership.identity, "leading");
                return Ok(Leader { client, clock, leadership, lease, renewed });
            }
            Ok(None) => {}
            Err(error) if is_refusal(&error) => return Err(failed("take", &leadership)(error)),
            Err(error) => {
                let error = reconcile::chain(&error);
                warn!(lease = %leadership.name, %error, "failed to take the lease; trying again");
            }
        }
        tokio::time::sleep(leadership.period).await;
    }
}

/// Takes the Lease if it is free, and says when it began to. `seen` is what it was before, and since when.
async fn attempt(
    api: &Api<Lease>,
    leadership: &Leadership,
    clock: &Clock,
    seen: &mut Option<(LeaseSpec, Instant)>,
) -> Result<Option<(Lease, Instant)>, kube::Error> {
    let found = in_time(leadership, api.get_opt(&leadership.name)).await?;
    let spec = found.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
    if seen.as_ref().is_none_or(|(before, _)| *before != spec) {
        *seen = Some((spec.clone(), Instant::now()));
    }
    let since = seen.as_ref().map_or_else(Instant::now, |(_, since)| *since);
    let lasts = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs().into());
    let holder = spec.holder_identity.clone().unwrap_or_default();
    let free = holder.is_empty() || holder == leadership.identity || since.elapsed() >= lasts;
    if found.is_some() && !free {
        debug!(%holder, "somebody else leads");
        return Ok(None);
    }
    let began = Instant::now();
    let (wanted, params) = (taken(found.as_ref(), leadership, clock), PostParams::default());
    let written = match &found {
        None => in_time(leadership, api.create(&params, &wanted)).await,
        Some(_) => in_time(leadership, api.replace(&leadership.name, &params, &wanted)).await,
    };
    match written {
        Ok(lease) => Ok(Some((lease, began))),
        Err(error) if crate::error::is_outdated(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for an answer no longer than a leader could.
async fn in_time<T>(
    leadership: &Leadership,
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    let answer = tokio::time::timeout(leadership.deadline, call).await;
    answer.unwrap_or_else(|_| Err(no_answer()))
}

fn no_answer() -> kube::Error {
    kube::Error::Service("the cluster does not answer".into())
}

/// Whether asking again would not help.
fn is_refusal(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && status.code != 429)
}

impl Leader {
    /// Keeps the Lease, and returns when it is lost: somebody else has it, or it could not be renewed in time.
    pub async fn keep(&mut self) -> Error {
        let api = api(&self.client, &self.leadership);
        let (mut began, mut last) = (Instant::now(), None);
        loop {
            // All attempts together have this long: whoever waits for the Lease counts from the last one that succeeded.
            let until = self.renewed + self.leadership.deadline;
            tokio::time::sleep_until(until.min(began + self.leadership.period)).await;
            began = Instant::now();
            if let Some(error) = last.filter(|_| began >= until) {
                return failed("keep", &self.leadership)(error);
            }
            let ends = until.min(began + self.leadership.attempt());
            let error = match tokio::time::timeout_at(ends, self.renew(&api)).await {
                Ok(Ok(lease)) => {
                    self.lease = lease;
                    self.renewed = began;
                    last = None;
                    continue;
                }
                Ok(Err(error)) if crate::error::is_outdated(&error) => {
                    return failed("keep", &self.leadership)(error);
                }
                Ok(Err(error)) => error,
                Err(_) => no_answer(),
            };
            warn!(error = %reconcile::chain(&error), "the lease could not be renewed");
            last = Some(error);
        }
    }

    /// Renews the Lease, also if somebody wrote to it and it still has our name.
    async fn renew(&self, api: &Api<Lease>) -> Result<Lease, kube::Error> {
        let (name, params) = (&self.leadership.name, PostParams::default());
        let outdated = match api.replace(name, &params, &self.renewed(&self.lease)).await {
            Err(error) if crate::error::is_outdated(&error) => error,
            done => return done,
        };
        match api.get_opt(name).await? {
            Some(lease) if self.is_ours(&lease) => api.replace(name, &params, &self.renewed(&lease)).await,
            _ => Err(outdated),
        }
    }

    /// Gives the Lease back, so that the next one need not wait for its end; not for longer than one attempt takes, since it
    /// ends by itself as well.
    pub async fn release(self) -> Result<(), Error> {
        let mut wanted = self.renewed(&self.lease);
        if let Some(spec) = &mut wanted.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
        }
        let api = api(&self.client, &self.leadership);
        let params = PostParams::default();
        let given = api.replace(&self.leadership.name, &params, &wanted);
        let given = tokio::time::timeout(self.leadership.attempt(), given).await;
        match given.unwrap_or_else(|_| Err(no_answer())) {
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

    fn renewed(&self, lease: &Lease) -> Lease {
        let mut lease = lease.clone();
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
pub async fn ensure_namespace(client: &Client, leadership: &Leadership) -> Result<(), Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let name = &leadership.namespace;
    if in_time(leadership, api.get_opt(name))
        .await
        .map_err(failed("find a namespace for", leadership))?
        .is_some()
    {
        return Ok(());
    }
    let metadata = ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() };
    let (params, namespace) = (PostParams::default(), Namespace { metadata, ..Namespace::default() });
    match in_time(leadership, api.create(&params, &namespace)).await {
        Ok(_) => Ok(()),
        Err(error) if crate::error::is_outdated(&error) => Ok(()),
        Err(error) => Err(failed("make a namespace for", leadership)(error)),
    }
}

fn failed(doing: &'static str, leadership: &Leadership) -> impl FnOnce(kube::Error) -> Error + use<> {
    let name = Key::new(leadership.namespace.as_str(), leadership.name.as_str());
    move |source| Error::Lease { doing, name, source: Box::new(source) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, OnceLock};
    use std::task::{Context, Poll};

    use futures::future::{BoxFuture, FutureExt as _};
    use http::{Method, Request, Response, StatusCode};
    use kube::client::Body;
    use tower_service::Service;

    use super::*;

    /// How long a cluster takes to say that the Lease is taken.
    const SLOW: Duration = Duration::from_secs(1);

    /// A cluster that fails to take a few renewals, and then no longer answers; and before that fails to say a few times
    /// who leads, and is slow to say that it is taken.
    #[derive(Clone, Default)]
    struct Failing {
        taken: Arc<OnceLock<Instant>>,
        renewals: Arc<AtomicUsize>,
        asked: Arc<AtomicUsize>,
        /// How many renewals are not answered before that is taken to be for good.
        silent: usize,
    }

    impl Service<Request<Body>> for Failing {
        type Response = Response<Body>;
        type Error = std::convert::Infallible;
        type Future = BoxFuture<'static, Result<Response<Body>, Self::Error>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<Body>) -> Self::Future {
            let Failing { taken, renewals, asked, silent } = self.clone();
            async move {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let (code, object) = match *request.method() {
                    Method::GET if name == LEASE && asked.fetch_add(1, Ordering::SeqCst) < 2 => {
                        (StatusCode::SERVICE_UNAVAILABLE, serde_json::json!({"code": 503}))
                    }
                    Method::GET if name == LEASE => {
                        (StatusCode::NOT_FOUND, serde_json::json!({"code": 404, "reason": "NotFound"}))
                    }
                    Method::PUT => match renewals.fetch_add(1, Ordering::SeqCst) {
                        nth if silent > 0 && nth >= silent => {
                            (StatusCode::OK, serde_json::json!({"metadata": {"name": LEASE}}))
                        }
                        nth if silent == 0 && nth < 3 => {
                            (StatusCode::INTERNAL_SERVER_ERROR, serde_json::json!({"code": 500}))
                        }
                        _ => std::future::pending().await,
                    },
                    Method::POST if name == "leases" => {
                        taken.get_or_init(Instant::now);
                        tokio::time::sleep(SLOW).await;
                        (StatusCode::CREATED, serde_json::json!({"metadata": {"name": LEASE}}))
                    }
                    _ => (StatusCode::OK, serde_json::json!({"metadata": {"name": name}})),
                };
                let answer =
                    Response::builder().status(code).body(Body::from(object.to_string().into_bytes()));
                Ok(answer.expect("a code and a body"))
            }
            .boxed()
        }
    }

    /// SM-44: whoever cannot renew stops before anybody else may begin, however the attempts fail.
    #[tokio::test(start_paused = true)]
    async fn sm_44_who_cannot_renew_stops_before_the_lease_ends() {
        let cluster = Failing::default();
        let client = Client::new(cluster.clone(), "default");
        let mut leader =
            lead(client, Leadership::new("n", "we"), Clock::system()).await.expect("nobody else leads");
        let began = *cluster.taken.get().expect("it was taken");
        assert!(began.elapsed() >= SLOW, "the answer was late");
        let lost = leader.keep().await;
        assert!(lost.to_string().contains(LEASE), "{lost}");
        assert_eq!(cluster.asked.load(Ordering::SeqCst), 3, "who waits asks again where nobody answers");
        assert!(cluster.renewals.load(Ordering::SeqCst) > 3, "it was tried until the end");
        assert!(began.elapsed() <= leader.leadership.deadline, "{:?}", began.elapsed());
        assert!(leader.leadership.deadline < leader.leadership.duration);
    }

    async fn leading(cluster: &Failing, leadership: Leadership) -> Leader {
        let client = Client::new(cluster.clone(), "default");
        lead(client, leadership, Clock::system()).await.expect("nobody else leads")
    }

    /// SM-44: also if the next attempt would come after the deadline.
    #[tokio::test(start_paused = true)]
    async fn sm_44_nobody_acts_beyond_the_deadline_for_the_sake_of_another_attempt() {
        let cluster = Failing::default();
        let usual = Leadership::new("n", "we");
        let mut leader = leading(&cluster, Leadership { period: Duration::from_secs(8), ..usual }).await;
        let began = *cluster.taken.get().expect("it was taken");
        leader.keep().await;
        assert!(began.elapsed() <= leader.leadership.deadline, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn one_renewal_that_is_not_answered_does_not_cost_the_lease() {
        let cluster = Failing { silent: 1, ..Failing::default() };
        let mut leader = leading(&cluster, Leadership::new("n", "we")).await;
        let lost = tokio::time::timeout(Duration::from_secs(60), leader.keep()).await;
        assert!(lost.is_err(), "the second attempt was answered");
    }

    #[tokio::test(start_paused = true)]
    async fn giving_the_lease_back_does_not_wait_for_ever() {
        let cluster = Failing { silent: usize::MAX, ..Failing::default() };
        let leader = leading(&cluster, Leadership::new("n", "we")).await;
        let released = tokio::time::timeout(Duration::from_secs(10), leader.release()).await;
        assert!(released.expect("in time").is_err(), "it was not given back");
    }
}
