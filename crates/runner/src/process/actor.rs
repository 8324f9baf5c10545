//! One pod, from the moment the node sees it until nothing of it is left.

mod containers;
mod resources;
mod retries;
mod storage;

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use reconcile::Key;
use rules::node::{
    Container, Ending, State, Step, container, downward::Place as Downward, ending, plan, probe::Purpose,
    resize::Unsettled, restart, status,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tracing::{debug, warn};

use self::{
    retries::{Attempt, Retries},
    storage::Storage,
};
use super::{
    Reachable, Shared,
    instance::{End, Instance, LONGEST_GRACE},
    launch::Directories,
    loopback::Address,
    probes,
    sandbox::Sandbox,
    volumes::{self, Volumes},
};
use crate::{
    init::Isolation,
    kept,
    logs::Log,
    network::Interface,
    threads,
    writes::{self, Written},
};

/// After something could not be written.
const RETRY: SignedDuration = retries::FIRST;
/// Leads one pod.
pub(super) struct Actor {
    shared: Arc<Shared>,
    key: Key,
    pod: Arc<Pod>,
    latest: watch::Receiver<Option<Arc<Pod>>>,
    /// The pod is not on the server any more.
    gone: bool,
    /// Empty until it has one.
    ip: String,
    /// No other pod gets it meanwhile.
    _address: Option<Address>,
    /// Its place in the network of pods, if it has one.
    interface: Option<Interface>,
    /// What its containers have in common, if they are kept apart from their host.
    sandbox: Option<Sandbox>,
    directories: Directories,
    volumes: Volumes,
    volumes_ready: bool,
    /// When volumes are to be looked at again.
    renew: Option<Timestamp>,
    containers: Vec<Container>,
    instances: BTreeMap<usize, Instance>,
    /// What could not be made waits.
    retries: Retries,
    started: Option<Timestamp>,
    /// Whether it may begin is known, and if not, why.
    admitted: Option<Result<(), Ending>>,
    ending: Option<Ending>,
    /// What keeps it from the resources that it asks for.
    unsettled: Option<Unsettled>,
    storage: Storage,
    /// When everything has to have ended.
    deadline: Option<Instant>,
    /// How long that was when it was said last.
    grace: Duration,
    stage: Stage,
    /// Files and cgroups that are being removed, while others go on.
    removals: JoinSet<()>,
    happened: mpsc::UnboundedReceiver<(usize, i32, Happening)>,
    tell: mpsc::UnboundedSender<(usize, i32, Happening)>,
}

/// How far the pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Living,
    /// Nothing runs, and nothing will again.
    Over,
    /// And the files that it needed are removed.
    Cleaned,
}

/// What happens to an instance.
#[derive(Debug)]
enum Happening {
    Ended(End),
    HookDone(Result<Option<String>, String>),
    Probed(Purpose, probes::Found),
}

impl Actor {
    pub(super) fn new(
        shared: Arc<Shared>,
        key: Key,
        pod: Arc<Pod>,
        latest: watch::Receiver<Option<Arc<Pod>>>,
    ) -> Actor {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let directories = Directories::of(&shared, &uid);
        let status = pod.status.as_ref();
        let (tell, happened) = mpsc::unbounded_channel();
        let (ip, address) = address(&shared, &pod);
        let actor = Actor {
            ip,
            _address: address,
            interface: None,
            sandbox: None,
            volumes: Volumes::new(&directories.pod, &uid),
            directories,
            started: status.and_then(|status| status.start_time.as_ref()).map(|time| time.0),
            containers: container::of_pod(&pod),
            key,
            pod,
            latest,
            gone: false,
            volumes_ready: false,
            renew: None,
            instances: BTreeMap::new(),
            retries: Retries::default(),
            admitted: None,
            ending: None,
            unsettled: None,
            storage: Storage::default(),
            deadline: None,
            grace: Duration::ZERO,
            stage: Stage::Living,
            removals: JoinSet::new(),
            happened,
            tell,
            shared,
        };
        actor.register_logs();
        actor
    }

    /// Until the pod is gone and nothing of it is left.
    pub(super) async fn run(mut self) {
        let mut objects = self.shared.objects.changes();
        loop {
            let again = match self.turn().await {
                Ok(again) => again,
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    warn!(pod = %self.key, error, "failed to write about a pod, will be tried again");
                    later(self.now(), RETRY)
                }
            };
            if self.gone && self.instances.is_empty() {
                break;
            }
            let wait = again.map(|at| Duration::try_from(at.duration_since(self.now())).unwrap_or_default());
            tokio::select! {
                biased;
                changed = self.latest.changed(), if !self.gone => {
                    let pod = if changed.is_ok() { self.latest.borrow_and_update().clone() } else { None };
                    match pod {
                        Some(pod) => self.see(pod),
                        None => self.gone = true,
                    }
                }
                Some((index, number, happening)) = self.happened.recv() => self.happen(index, number, happening).await,
                (usage, took) = self.storage.found() => self.see_storage(&usage, took),
                Ok(()) = objects.changed(), if self.volumes_ready && self.stage == Stage::Living => self.renew = Some(self.now()),
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
            }
        }
        self.forget().await;
    }

    /// The pod as it is now. Volumes may show its labels and annotations.
    fn see(&mut self, pod: Arc<Pod>) {
        let (old, new) = (&self.pod.metadata, &pod.metadata);
        if self.volumes_ready && (&old.labels, &old.annotations) != (&new.labels, &new.annotations) {
            self.renew = Some(self.now());
        }
        if (&old.labels, &old.annotations, &self.pod.spec) != (&new.labels, &new.annotations, &pod.spec) {
            self.retries.forget();
        }
        let is_new = |added: &Container| self.containers.iter().all(|known| known.name != added.name);
        let added: Vec<Container> = pod.spec.iter().flat_map(container::ephemerals).filter(is_new).collect();
        self.containers.extend(added);
        self.pod = pod;
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// Does what is to be done now, and writes what became of it. Returns when to look again.
    async fn turn(&mut self) -> kube::Result<Option<Timestamp>> {
        let mut again = None;
        if self.stage == Stage::Living {
            if self.admitted.is_none() {
                let refused = self.shared.admission.refusal(&self.pod).await?;
                self.admitted = Some(refused.map_or(Ok(()), Err));
            }
            again = self.advance().await;
        }
        if self.gone {
            return Ok(again);
        }
        self.write().await?;
        if self.stage == Stage::Living && self.back_off_pulls() {
            self.write().await?;
        }
        if self.stage == Stage::Over {
            self.clean().await;
        }
        if self.stage != Stage::Living && self.pod.metadata.deletion_timestamp.is_some() {
            match writes::delete(&self.shared.client, &self.pod).await? {
                Written::Pod(pod) if pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) => {
                    self.shared.pods.removed(&pod);
                }
                // Whoever holds it by a finalizer lets it go, of which the watch tells.
                Written::Pod(_) | Written::Gone => {}
            }
        }
        Ok(again)
    }

    async fn advance(&mut self) -> Option<Timestamp> {
        loop {
            let now = self.now();
            let mut again = self.see_ending(now);
            let plan = plan::decide(&plan::Seen {
                pod: &self.pod,
                containers: &self.containers,
                ending: self.ending.as_ref(),
                now,
            });
            debug!(pod = %self.key, %plan, "decided");
            if plan.over {
                self.stage = Stage::Over;
                return None;
            }
            again = earlier(again, plan.again);
            if self.ending.is_none() {
                self.started.get_or_insert(now);
                if let Err(retry) = self.prepare_network(now).await {
                    return earlier(again, Some(retry));
                }
                if let Err(retry) = self.prepare_sandbox(now).await {
                    return earlier(again, Some(retry));
                }
                if let Err(retry) = self.prepare_volumes(now).await {
                    return earlier(again, Some(retry));
                }
                again = earlier(again, self.renew);
                again = earlier(again, self.resize(now).await);
                again = earlier(again, self.look_at_storage(now));
            }
            let mut moved = false;
            for step in plan.steps {
                match step {
                    Step::Start(index) => {
                        if let Some(retry) = self.retries.waits(Attempt::Container(index), now) {
                            again = earlier(again, Some(retry));
                        } else {
                            self.start(index).await;
                            moved = true;
                        }
                    }
                    Step::BackOff { container, seconds } => {
                        let container = &mut self.containers[container];
                        let message = restart::message(&self.pod, &container.name, seconds);
                        container.wait(restart::CRASH_LOOP, message);
                        let message = restart::told(&self.pod, &container.name);
                        self.shared.events.warning(&self.pod, Some(&container.name), "BackOff", message);
                        self.register_logs();
                    }
                    Step::PreStop(index) => self.pre_stop(index),
                    Step::Stop(index) => self.stop(index, None),
                }
            }
            if !moved {
                return again;
            }
        }
    }

    /// Whether the pod has to end; if not, when it may have to.
    fn see_ending(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.gone {
            // Nobody waits for it any more.
            self.ending = Some(Ending::Deleted);
            (self.deadline, self.grace) = (Some(Instant::now()), Duration::ZERO);
            return None;
        }
        let refused = || self.admitted.clone().and_then(Result::err).or_else(|| self.storage.exceeded());
        let found = match ending::of_pod(&self.pod, self.started, now) {
            Ok(found) => found,
            Err(again) => match refused() {
                Some(refused) => refused,
                None => return again,
            },
        };
        let grace = ending::grace(&self.pod, &found).min(LONGEST_GRACE);
        let deadline = Instant::now() + grace;
        match (&self.ending, &found) {
            // A second deletion may have less patience than the first; the time that it grants begins now.
            (Some(Ending::Deleted), Ending::Deleted) => {
                if grace < self.grace {
                    self.grace = grace;
                    self.deadline = self.deadline.map(|known| known.min(deadline));
                }
            }
            (
                Some(
                    Ending::DeadlineExceeded
                    | Ending::Evicted { .. }
                    | Ending::Rejected { .. }
                    | Ending::Disrupted { .. }
                    | Ending::Final,
                ),
                _,
            ) => {}
            (Some(Ending::Deleted) | None, _) => {
                if let Some((reason, message)) = found.words() {
                    let (events, message) = (&self.shared.events, message.to_owned());
                    match &found {
                        Ending::DeadlineExceeded => events.normal(&self.pod, None, reason, message),
                        _ => events.warning(&self.pod, None, reason, message),
                    }
                }
                (self.deadline, self.grace) = (Some(deadline), grace);
                self.ending = Some(found);
            }
        }
        None
    }

    /// Makes the network of the pod, unless it is in that of its host; an error says when to try again.
    async fn prepare_network(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let Some((network, node)) = &self.shared.machine.network else { return Ok(()) };
        if self.interface.is_some() || is_in_hosts_network(&self.pod) {
            return Ok(());
        }
        if let Some(retry) = self.retries.waits(Attempt::Network, now) {
            return Err(retry);
        }
        match network.connect(*node, self.ip.parse().ok()).await {
            Ok(interface) => {
                self.retries.succeeded(Attempt::Network);
                self.ip = interface.address().to_string();
                self.interface = Some(interface);
                Ok(())
            }
            Err(error) => Err(self.no_sandbox(Attempt::Network, &error, now)),
        }
    }

    /// Makes what the containers have in common; an error says when to try again.
    async fn prepare_sandbox(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        let is_plain = self.shared.machine.isolation == Isolation::Plain;
        if is_plain || self.sandbox.as_mut().is_some_and(Sandbox::is_whole) {
            return Ok(());
        }
        if let Some(retry) = self.retries.waits(Attempt::Sandbox, now) {
            return Err(retry);
        }
        match Sandbox::start(&self.shared, &self.pod, &self.directories).await {
            Ok(sandbox) => {
                self.retries.succeeded(Attempt::Sandbox);
                self.sandbox = Some(sandbox);
                Ok(())
            }
            Err(error) => Err(self.no_sandbox(Attempt::Sandbox, &error, now)),
        }
    }

    /// Tells why the pod has not what its containers have in common; returns when it is tried again.
    fn no_sandbox(
        &mut self,
        what: Attempt,
        error: &(dyn std::error::Error + 'static),
        now: Timestamp,
    ) -> Timestamp {
        let message = format!("Failed to create pod sandbox: {}", reconcile::chain(error));
        self.shared.events.warning(&self.pod, None, "FailedCreatePodSandBox", message);
        self.retries.failed(what, retries::LONGEST, now)
    }

    /// Makes volumes, or brings them up to date; an error says when to try again.
    async fn prepare_volumes(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.volumes_ready && self.renew.is_none_or(|renew| renew > now) {
            return Ok(());
        }
        if let Some(retry) = self.retries.waits(Attempt::Volumes, now).filter(|_| !self.volumes_ready) {
            return Err(retry);
        }
        let host_ip = self.shared.host.settings.address.to_string();
        let allocatable = &self.shared.host.settings.capacity;
        let place = Downward { ip: &self.ip, host_ip: &host_ip, allocatable };
        match self.volumes.update(&self.pod, &self.shared.objects, &place, now).await {
            Ok(renew) => {
                (self.volumes_ready, self.renew) = (true, renew);
                self.retries.succeeded(Attempt::Volumes);
                Ok(())
            }
            Err(error) => {
                let retry = self.retries.failed(Attempt::Volumes, retries::LONGEST, now);
                self.shared.events.warning(&self.pod, None, "FailedMount", error.to_string());
                if self.volumes_ready {
                    // What is there stays as it is.
                    self.renew = Some(retry);
                    return Ok(());
                }
                Err(retry)
            }
        }
    }

    /// Writes the status, if it says something new.
    async fn write(&mut self) -> kube::Result<()> {
        // A pod that had ended before we saw it is not ours to describe.
        if self.ending == Some(Ending::Final) && !self.volumes_ready {
            return Ok(());
        }
        let host_ip = self.shared.host.settings.address.to_string();
        let status = status::of(&status::Seen {
            pod: &self.pod,
            containers: &self.containers,
            ending: self.ending.as_ref(),
            resize: self.unsettled.as_ref(),
            over: self.stage != Stage::Living,
            started: self.started,
            ip: Some(self.ip.as_str()).filter(|ip| self.started.is_some() && !ip.is_empty()),
            host_ip: &host_ip,
            sandboxed: self.volumes_ready,
            now: self.now(),
        });
        if self.pod.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let status = Arc::new(status);
        self.shared.said().insert(self.pod.uid().unwrap_or_default(), Arc::clone(&status));
        match writes::status(&self.shared.client, &self.pod, &status).await? {
            Written::Pod(pod) => {
                self.pod = Arc::new(pod.as_ref().clone());
                self.shared.pods.put(*pod);
            }
            Written::Gone => self.gone = true,
        }
        Ok(())
    }

    /// Removes what a pod needs to run. Its logs stay.
    async fn clean(&mut self) {
        while self.removals.join_next().await.is_some() {}
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.end().await;
        }
        self.interface = None; // and with it the network, for nothing runs in it
        match self.remove_files().await {
            Ok(()) => self.stage = Stage::Cleaned,
            Err(error) => warn!(pod = %self.key, %error, "failed to remove the files of a pod"),
        }
    }

    async fn remove_files(&mut self) -> io::Result<()> {
        self.volumes.remove().await?;
        let containers = self.directories.containers();
        threads::blocking(move || volumes::remove_tree(&containers)).await
    }

    /// Removes everything but logs that are to be kept.
    async fn forget(mut self) {
        self.clean().await;
        let (node, most) = (self.shared.settings.directory.clone(), self.shared.settings.kept_logs);
        let (pod, logs) = (Arc::clone(&self.pod), self.directories.logs());
        if let Err(error) = threads::blocking(move || kept::keep(&node, &pod, &logs, most)).await {
            warn!(pod = %self.key, %error, "failed to keep the logs of a pod");
        }
        let directory = self.directories.pod.clone();
        if let Err(error) = threads::blocking(move || volumes::remove_tree(&directory)).await {
            warn!(pod = %self.key, %error, "failed to remove the directory of a pod");
        }
        let uid = self.pod.metadata.uid.clone();
        self.shared.containers().retain(|(key, _), known| *key != self.key || known.uid != uid);
        self.shared.said().remove(&uid.unwrap_or_default());
    }

    /// Says what can be read and done of our containers now.
    fn register_logs(&self) {
        let uid = self.pod.metadata.uid.clone();
        let mut all = self.shared.containers();
        // Who is told that the pod is gone is told so before another one of its name is led. Looked at with the table held.
        let is_gone = self.latest.borrow().is_none();
        for (index, container) in self.containers.iter().enumerate() {
            let running = self.instances.get(&index);
            let ended = |number: i32| {
                let path = self.directories.log(&container.name, number);
                path.exists().then(|| Log::ended(path))
            };
            let latest = running.map_or(container.restarts, |instance| instance.number);
            let log = running.map(|instance| instance.log.clone()).or_else(|| ended(latest));
            // While a container waits to start again, the latest instance is the last one.
            let last = if matches!(container.state, State::Waiting { .. }) { latest } else { latest - 1 };
            let previous = ended(last);
            let place = running.map(|instance| instance.place.clone());
            let input = running.and_then(|instance| instance.input.clone());
            let key = (self.key.clone(), container.name.clone());
            if is_gone && all.get(&key).is_some_and(|known| known.uid != uid) {
                continue; // what is known of another pod of this name stays
            }
            all.insert(key, Reachable { uid: uid.clone(), log, previous, place, input });
        }
    }
}

fn is_in_hosts_network(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
}

/// The pod's address: the one it has; the node's if it wants that; or one of the many that every machine has for itself,
/// which it keeps.
fn address(shared: &Shared, pod: &Pod) -> (String, Option<Address>) {
    let known = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
    if let Some(known) = known {
        let kept = Address::known(&known);
        return (known, kept);
    }
    if is_in_hosts_network(pod) {
        return (shared.host.settings.address.to_string(), None);
    }
    if shared.machine.network.is_some() {
        return (String::new(), None); // it will be known when it is made
    }
    let new = Address::any();
    (new.ip().to_string(), Some(new))
}

fn later(now: Timestamp, wait: SignedDuration) -> Option<Timestamp> {
    now.saturating_add(wait).ok()
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
